#include "microbench/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

namespace tutti::bench {
namespace {

constexpr auto between_bars = std::chrono::milliseconds(200);
constexpr auto between_lines = std::chrono::seconds(10);
constexpr const char* erase_line = "\r\033[K";

}  // namespace

std::string bar_text(std::size_t done, std::size_t total, double seconds_left,
                     const std::string& what) {
  constexpr std::size_t width = 30;
  const std::size_t full = total == 0 ? width : std::min(width, width * done / total);
  return fmt::format("[{}{}] {} of {}, {:.0f} s left, {}", std::string(full, '#'),
                     std::string(width - full, '.'), done, total,
                     std::ceil(std::max(0.0, seconds_left)), what);
}

Progress::Progress(std::FILE* stream, const char* program) : stream_(stream), program_(program) {
  is_terminal_ = stream_ != nullptr && ::isatty(::fileno(stream_)) == 1;
}

void Progress::show(std::size_t done, std::size_t total, double seconds_left,
                    const std::string& what) {
  if (stream_ == nullptr) return;
  const auto now = Clock::now();
  if (last_ != Clock::time_point{} &&
      now - last_ < (is_terminal_ ? Clock::duration(between_bars) : Clock::duration(between_lines)))
    return;
  last_ = now;
  if (is_terminal_) {
    fmt::print(stream_, "{}{}", erase_line, bar_text(done, total, seconds_left, what));
    has_bar_ = true;
  } else {
    fmt::print(stream_, "{}: {} of {}, {:.0f} s left, {}\n", program_, done, total,
               std::ceil(std::max(0.0, seconds_left)), what);
  }
  std::fflush(stream_);
}

void Progress::say(const std::string& line) {
  if (stream_ == nullptr) return;
  end();
  fmt::print(stream_, "{}: {}\n", program_, line);
  std::fflush(stream_);
}

void Progress::end() {
  if (!has_bar_) return;
  fmt::print(stream_, "{}", erase_line);
  std::fflush(stream_);
  has_bar_ = false;
}

}  // namespace tutti::bench
