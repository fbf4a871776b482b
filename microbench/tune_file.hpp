// A tuning file by its name, as the tools read it.
#pragma once

#include <string>

#include "tune/knowledge.hpp"
#include "tune/tuning.hpp"

namespace tutti::bench {

/// Throws Error{invalid_argument} if there is no such file, or if it is no tuning file.
tune::Tuning read_tuning(const std::string& file);

/// What programs with this file know on the machine where it was made.  Throws likewise.
tune::Knowledge knowledge_of_file(const std::string& file);

}  // namespace tutti::bench
