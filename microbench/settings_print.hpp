// The table of TUTTI_* variables, for people, programs and docs/settings.md.
#pragma once

#include <string>

namespace tutti::bench {

/// `format` is table, json or markdown, which is the whole of docs/settings.md.  Throws
/// Error{invalid_argument} for another one.
std::string settings_text(const std::string& format);

}  // namespace tutti::bench
