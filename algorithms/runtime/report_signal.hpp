// A signal on which a process prints what its operations are doing (TUTTI_REPORT_SIGNAL).  The
// handler only counts; whoever tests, or waits for more than some microseconds, sees that within a
// tenth of a second and prints.
#pragma once

#include <cstdint>

namespace tutti::runtime {

/// Installs the handler, unless it is there.  A handler that the program has installed before is
/// called, too.
/// Throws Error{system}.
void report_on_signal(int signal);

/// How many such signals have come.
std::uint32_t report_signals() noexcept;

}  // namespace tutti::runtime
