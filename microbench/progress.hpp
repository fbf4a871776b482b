// How far a long run has come: a bar on a terminal, a line now and then in a log.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>

namespace tutti::bench {

/// `done` of `total` as text: "[#####.....] 50 % of 96, 20 s left, allreduce 8 B".
std::string bar_text(std::size_t done, std::size_t total, double seconds_left,
                     const std::string& what);

class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  /// Prints to a stream, which is borrowed; nothing if it is null.
  Progress(std::FILE* stream, const char* program);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { end(); }

  /// Has come so far, and now is about `what`.
  void show(std::size_t done, std::size_t total, double seconds_left, const std::string& what);
  /// Prints a line beside the bar.
  void say(const std::string& line);
  /// Removes the bar.
  void end();

 private:
  std::FILE* stream_;
  const char* program_;
  bool is_terminal_ = false, has_bar_ = false;
  Clock::time_point last_ = {};
};

}  // namespace tutti::bench
