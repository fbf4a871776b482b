// The secret of a job from where other users, and this user's lists of processes, do not show it: a
// file that only its owner may read, or an open descriptor.  One newline at its end is no part of
// it.  Errors name where it was to come from, and never say what was read.
#pragma once

#include <string>

#include "tutti/timeout.hpp"

namespace tutti::bootstrap {

/// Throws Error{invalid_argument}, which begins with `origin`, if the file cannot be read, others
/// may read or change it, or it has no secret of 1 to 256 bytes.
std::string secret_in_file(const std::string& path, const std::string& origin, Deadline deadline);

/// Reads to the end, and closes the descriptor unless it is a standard stream.  A file is read from
/// its begin, so that ranks may share one that their parent has opened.  Throws likewise, and if
/// the end does not come by the deadline.
std::string secret_from_descriptor(int descriptor, const std::string& origin, Deadline deadline);

}  // namespace tutti::bootstrap
