// What tutti-tune says without ranks: what a file holds, what is chosen by it and why, and how two
// files differ.
#pragma once

#include <string>

#include "microbench/tune_file.hpp"
#include "microbench/tune_options.hpp"

namespace tutti::bench {

/// What is chosen, the next ones, why the others are out, and what would flip the choice.
std::string explained(const TuneOptions& options);

/// What differs between two files.
std::string compared(const std::string& file, const std::string& other);

/// A page with pictures of a file.
std::string reported(const std::string& file);

/// Writes that page.  Throws Error{invalid_argument} if `page_file` is the tuning file or another
/// one, which would be lost, or if it cannot be written.
void write_report(const std::string& page_file, const std::string& tuning_file);

}  // namespace tutti::bench
