// Counts the resources of the system that a process holds, for comparison before and after a test.
#pragma once

#include <sys/wait.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace tutti::test {

struct HeldResources {
  std::ptrdiff_t descriptors = 0, shared_mappings = 0, threads = 0;
  bool has_children = false;

  static HeldResources now() {
    const auto entries = [](const char* folder) {
      return std::distance(std::filesystem::directory_iterator(folder),
                           std::filesystem::directory_iterator());
    };
    HeldResources held{.descriptors = entries("/proc/self/fd"),
                       .threads = entries("/proc/self/task")};
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
      held.shared_mappings += line.find("/memfd:") != std::string::npos;
    held.has_children = ::waitpid(-1, nullptr, WNOHANG) >= 0;
    return held;
  }

  /// Says of which resources there are more than in `before`; empty if of none.
  std::string beyond(const HeldResources& before) const {
    std::string text;
    const auto compare = [&](const char* what, std::ptrdiff_t was, std::ptrdiff_t is) {
      if (is > was)
        text += std::string(text.empty() ? "" : ", ") + std::to_string(is) + " " + what +
                " instead of " + std::to_string(was);
    };
    compare("descriptors", before.descriptors, descriptors);
    compare("shared mappings", before.shared_mappings, shared_mappings);
    compare("threads", before.threads, threads);
    compare("children", before.has_children, has_children);
    return text;
  }
};

}  // namespace tutti::test
