// What each fuzz target of this folder defines, and what it says when a promise is broken. main.cpp
// hands both to libFuzzer.
#pragma once

#include <poll.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::fuzz {

/// Reads what may come from outside.  Returns if it was refused or read as promised, else it ends
/// the process.
void judge(std::span<const std::uint8_t> input);

/// Valid inputs, from which others are made.
std::vector<std::string> seeds();

/// Ends the process with the promise that is broken, so that libFuzzer keeps the input.
inline void promise(bool kept, const char* what, std::string_view value = {}) {
  if (kept) return;
  std::fprintf(stderr, "broken: %s: %.*s\n", what, static_cast<int>(value.size()), value.data());
  std::abort();
}

inline std::string_view text_of(std::span<const std::uint8_t> input) {
  return {reinterpret_cast<const char*>(input.data()), input.size()};
}

/// Whether anything can be read within that time.  libFuzzer's timer interrupts system calls.
inline bool is_readable(int descriptor, int milliseconds) {
  pollfd waiting{descriptor, POLLIN, 0};
  int ready = 0;
  do {
    ready = ::poll(&waiting, 1, milliseconds);
  } while (ready < 0 && errno == EINTR);
  return ready == 1;
}

/// Takes an input from its begin; what is not there is zero.
class Bytes {
 public:
  explicit Bytes(std::span<const std::uint8_t> input) : rest_(input) {}

  bool empty() const noexcept { return rest_.empty(); }
  std::uint8_t byte() noexcept {
    if (rest_.empty()) return 0;
    const std::uint8_t first = rest_.front();
    rest_ = rest_.subspan(1);
    return first;
  }
  std::span<const std::byte> bytes(std::size_t count) noexcept {
    const auto first = rest_.first(count < rest_.size() ? count : rest_.size());
    rest_ = rest_.subspan(first.size());
    return std::as_bytes(first);
  }

 private:
  std::span<const std::uint8_t> rest_;
};

}  // namespace tutti::fuzz
