// What tutti-tune says without ranks: what a file holds, what is chosen by it and why, and how two
// files differ.
#pragma once

#include <string>

#include "microbench/tune_options.hpp"
#include "tune/tuning.hpp"

namespace tutti::bench {

/// Throws Error{invalid_argument} if there is no such file, or if it is none.
tune::Tuning read_tuning(const std::string& file);

/// What is chosen, the next ones, why the others are out, and what would flip the choice.
std::string explained(const TuneOptions& options);

/// What differs between two files.
std::string compared(const std::string& file, const std::string& other);

/// A page with pictures of a file.
std::string reported(const std::string& file);

}  // namespace tutti::bench
