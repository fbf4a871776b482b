// How a tuning file is changed, by whoever does: under the lock of its journal, FILE.journal, and
// as a whole or not at all.
#pragma once

#include <chrono>
#include <string>
#include <tutti/detail/descriptor.hpp>

namespace tutti::runtime {

/// An open journal, which nobody else has locked.
struct LockedJournal {
  detail::Descriptor descriptor;
  bool is_made = false;  // it was not there before
};
/// Opens a journal, or makes it.  Throws Error{invalid_argument}, "NAME: reason; remedy": it cannot
/// be written, or somebody else has it locked for as long as `patience`.  `advice` is the remedy
/// for a file that cannot be written, `advice_if_locked` the one for a file that is locked.
LockedJournal lock_journal(const std::string& name, std::chrono::milliseconds patience,
                           const char* advice, const char* advice_if_locked);

/// Makes the folders of `file` that do not exist.  Throws Error{invalid_argument}, "FOLDER: reason;
/// ADVICE".
void make_folder_of(const std::string& file, const char* advice);

/// Puts `text` where `file` is, or where the links of that name lead, as a whole or not at all.
/// The permissions of a file that is there stay; a new one has those that the process's mask
/// leaves.  Throws Error, "FILE: reason; ADVICE", also if a folder, a device or a pipe is there.
void replace_file(const std::string& file, const std::string& text, const char* advice);

/// Throw Error{system}, "NAME: reason".
void write_all(int descriptor, const std::string& text, const std::string& name);
void sync_file(int descriptor, const std::string& name);
/// A rename, or the end of a file, is on the disk when its folder is.
void sync_folder_of(const std::string& file);

}  // namespace tutti::runtime
