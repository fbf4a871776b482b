// The bytes of a tuning file or of its journal, whatever is there by that name: nothing is waited
// for, and no more is read than can be meant.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace tutti::tune {

/// The text of a regular file; nothing if there is no file.  Throws Error{invalid_argument},
/// "FILE: reason", for a pipe, a device or a folder of that name, for a file that cannot be read,
/// and for one of more than json_bytes_max bytes.
std::optional<std::string> text_of_file(const std::string& file);

/// Reads an open file likewise, from where it is; `name` is for messages.
std::string text_of_file(int descriptor, const std::string& name, std::size_t bytes_max);

}  // namespace tutti::tune
