// A signal on which a process prints what its operations are doing (TUTTI_REPORT_SIGNAL).  The
// handler only counts; whoever waits, or tests, in the library sees that within a tenth of a second
// and prints.
#pragma once

#include <cstdint>

namespace tutti::runtime {

/// Installs the handler, once for a process.  A handler that was there before is called, too.
/// Throws Error{system}.
void report_on_signal(int signal);

/// How many such signals have come.
std::uint32_t report_signals() noexcept;

}  // namespace tutti::runtime
