// How a program adds what its first calls have found to a tuning file, beside tutti-tune: under the
// same lock, as a whole or not at all, and never in place of what is there.
#pragma once

#include <string>

#include "runtime/tuning_table.hpp"
#include "tune/tuning.hpp"

namespace tutti::runtime {

/// The file that is appended to: the one that was found, else the user's own.  Throws
/// Error{invalid_argument} if no variable says where that is.
std::string file_to_append_to(const FoundTable& found);

/// Appends a finding, unless there is one about the same call that is not noisy, or both are.  A
/// file that is not there is made, with its folders.  Predictions are kept only if the file
/// describes the machine `priced_by`, or none: corrections compare with prices on the machine of
/// the file. Returns what became of it, in words.  Throws Error if the file is of another machine
/// than `here`, or stale, does not say of which, cannot be read or written, or if tutti-tune writes
/// it, or was interrupted.
std::string append_finding(const std::string& file, const tune::Fingerprint& here,
                           const tune::Machine& priced_by, tune::Finding finding);

}  // namespace tutti::runtime
