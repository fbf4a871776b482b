// Looks at a process of this host from outside: what its operations are doing.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::bench {

/// Text, or a list of JSON with an object for each context of the process.  Throws
/// Error{invalid_argument} if `process` is no number, Error{system} if there is no such process, if
/// it may not be looked at, or if nothing of tutti is there.
std::string attach(const std::string& process, const std::string& format);

}  // namespace tutti::bench
