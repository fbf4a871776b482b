// How much memory this process has.
#pragma once

#include <malloc.h>
#include <sys/stat.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

namespace tutti::test {

/// Bytes of this process: of its heap (0 with sanitizers), of its own pages, and of its files in
/// memory, which the software device shares with its peers.
struct ProcessMemory {
  std::size_t heap = 0, anonymous = 0, shared = 0;

  static ProcessMemory now() {
    ProcessMemory memory;
    // Sanitizers have a heap of their own, and then several threads would be the first to use this.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    memory.heap = mallinfo2().uordblks;
#endif
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;)
      if (word == "RssAnon:" && status >> memory.anonymous) memory.anonymous *= 1024;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      struct stat file {};
      std::error_code gone;
      const std::string name = std::filesystem::read_symlink(entry.path(), gone).string();
      if (name.starts_with("/memfd:") && ::stat(entry.path().c_str(), &file) == 0)
        memory.shared += static_cast<std::size_t>(file.st_blocks) * 512;
    }
    return memory;
  }
};

/// Bytes of mappings whose names contain `part` that are in this process's page tables.
inline std::size_t resident_bytes_of(const std::string& part) {
  std::ifstream maps("/proc/self/smaps");
  std::size_t bytes = 0;
  bool is_one = false;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::string word;
    std::size_t kibibytes = 0;
    words >> word;
    if (word.find('-') != std::string::npos)  // "7f00-7f80 rw-s ... /memfd:name"
      is_one = line.find(part) != std::string::npos;
    else if (is_one && word == "Rss:" && words >> kibibytes)
      bytes += kibibytes * 1024;
  }
  return bytes;
}

}  // namespace tutti::test
