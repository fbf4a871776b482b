#include "microbench/mpi_side.hpp"

#include <cctype>

namespace tutti::bench {

/// The words before the first number, then the number; the rest of the line is about the build.
std::string shortened_library_version(const std::string& version) {
  const std::string line = version.substr(0, version.find_first_of("\n,"));
  std::string name;
  std::string word;
  for (const char letter : line + ' ') {
    if (std::isspace(static_cast<unsigned char>(letter)) == 0) {
      word += letter;
      continue;
    }
    if (word.empty()) continue;
    if (word == "Version:") word.clear();
    const bool has_v =
        word.size() > 1 && word[0] == 'v' && std::isdigit(static_cast<unsigned char>(word[1])) != 0;
    if (has_v) word.erase(0, 1);
    if (!word.empty()) name += (name.empty() ? "" : " ") + word;
    if (!word.empty() && std::isdigit(static_cast<unsigned char>(word[0])) != 0) break;
    word.clear();
  }
  return name;
}

}  // namespace tutti::bench
