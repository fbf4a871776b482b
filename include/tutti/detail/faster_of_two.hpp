// Chooses the faster of two ways to do the same work again and again, by the times that both have
// taken lately: plain or streaming stores, copies as a whole or in pieces (bulk_copy.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti::detail {

enum class Either : std::uint8_t { usual, other };

/// One thread at a time.
class FasterOfTwo {
 public:
  /// `gain_min`: how many times as fast as the usual way the other one must be to be preferred.
  explicit FasterOfTwo(double gain_min = 1) noexcept : gain_min_(gain_min) {}

  /// The way for the next run.  Now and then it is the slower one, so that a change is noticed.
  Either next() noexcept;
  /// Records how long a run has taken in that way.
  void took(Either way, std::size_t bytes, std::uint64_t ticks) noexcept;
  /// Ticks per byte; 0: unknown.
  double cost(Either way) const noexcept { return costs_[static_cast<std::size_t>(way)]; }

 private:
  static constexpr unsigned alternating_times = 4;  // the first runs
  static constexpr unsigned times_between_trials = 32;
  /// The slower the other way, the rarer its trials: one that takes ten times as long is tried
  /// after ten times as many runs.  This is the largest such factor.
  static constexpr double seldom_max = 16;
  /// A longer time than this many means counts as this many, because a run may have been
  /// interrupted, or may have been the first one that touches its pages.  For that reason, too, a
  /// time of less than half the mean replaces the mean at once.
  static constexpr double outlier = 4;

  double gain_min_;
  std::array<double, 2> costs_{};  // ticks per byte
  unsigned alternated_ = 0;
  unsigned until_trial_ = 0;
};

inline Either FasterOfTwo::next() noexcept {
  if (alternated_ < alternating_times)
    return alternated_++ % 2 == 0 ? Either::usual : Either::other;
  const Either best = costs_[0] > gain_min_ * costs_[1] ? Either::other : Either::usual;
  if (until_trial_ != 0) {
    --until_trial_;
    return best;
  }
  const auto [low, high] = std::minmax(costs_[0], costs_[1]);
  const double seldom = low > 0 ? std::min(high / low, seldom_max) : 1;
  until_trial_ = static_cast<unsigned>(times_between_trials * seldom);
  return best == Either::usual ? Either::other : Either::usual;
}

inline void FasterOfTwo::took(Either way, std::size_t bytes, std::uint64_t ticks) noexcept {
  if (static_cast<std::int64_t>(ticks) <= 0) return;  // the thread has moved to another CPU
  const double sample = static_cast<double>(ticks) / static_cast<double>(bytes);
  double& mean = costs_[static_cast<std::size_t>(way)];
  if (mean == 0 || sample < mean / 2)
    mean = sample;
  else
    mean += (std::min(sample, outlier * mean) - mean) / 4;
}

}  // namespace tutti::detail
