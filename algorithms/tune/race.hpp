// Which of a few candidates is the fastest, from as few measurements as decide it.
//
// Candidates run in blocks, each block all that are left and a control probe, in an order shuffled
// by the seed.  A sample is the mean of a batch, of the slowest rank.  Whatever slows down a whole
// block (another program, a clock) cancels out, because two candidates are compared by the ratio of
// their samples in each block.  Wilcoxon's signed-rank test tells whether it is above a limit
// (exact, also with ties; F. Wilcoxon, Biometrics Bulletin 1945), and the estimate of Hodges and
// Lehmann tells how large it is (J. Hodges, E. Lehmann, Ann. Math. Stat. 1963).
//
// The winner is the first of the list that takes at most 1.2 % more than the fastest; so ties go to
// the front of the list, where the choice without a race is.  After each block
//   * a candidate drops out if, with 99 % confidence, it is slower than the fastest, or slower by
//     more than 1.2 % if it is in front of it in the list (Holm's correction for several
//     comparisons, S. Holm, Scand. J. Stat. 1979)
//   * the race is over if one candidate is left.  After 24 blocks it is also over if none is left
//   in
//     front of the winner, and the winner takes at most 2.5 % more than each other one that is
//     left. Each such test errs with a probability of at most 0.2 % (Bonferroni's correction for
//     several candidates)
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "plan/cost/loggp.hpp"

namespace tutti::tune {

/// The first of the list wins of those that take at most this many times the fastest.
inline constexpr double race_tie = 1.012;

struct RaceLimits {
  std::uint32_t blocks_min = 6;  // before anything is decided
  std::uint32_t blocks_max = 160;
  std::uint64_t seed = 1;
};

struct RaceResult {
  std::uint32_t winner = 0;                   // index of the candidate
  std::vector<plan::Picoseconds> times = {};  // of each, the median of its blocks; 0: none
  std::uint32_t blocks = 0;                   // that were run
  std::uint32_t samples = 0;                  // in all, with those of the control
  /// Between the halves of the race, the control's time and its ratio to the winner's both moved by
  /// as much as the winner differs from the nearest one that is not within 2.5 % of it (by 2.5 % if
  /// all are), or there were fewer than blocks_min blocks.
  bool is_noisy = false;
};

/// A race of two takes at least 7 blocks if one is slower, and a race of four at least 9: in fewer
/// blocks, even the same order in every block may be chance.  A tie takes at least 24.
///
/// `sample(candidate)` is what one batch takes; `control()` that of a probe which does not change.
/// `may_go_on()`: whether there is time for another block, asked before each one; without a block
/// the first candidate wins.  Where ranks race together, all of them have to get the same numbers
/// from these functions: then they run the same samples in the same order.
///
/// Throws Error{invalid_argument} for no candidates, no blocks, blocks_min > blocks_max, and a
/// sample that is not above 0.
RaceResult race(std::uint32_t candidate_count,
                const std::function<plan::Picoseconds(std::uint32_t)>& sample,
                const std::function<plan::Picoseconds()>& control,
                const std::function<bool()>& may_go_on, const RaceLimits& limits);

/// The probability of signs at least as favourable to "above 1" as those of `ratios`, if each were
/// as likely above 1 as below it by as much.  The arithmetic is that of every machine.
double above_one_by_chance(std::vector<double> ratios);

/// The median of the geometric means of all pairs (and of each with itself); of at least one.
double hodges_lehmann(std::span<const double> ratios);

}  // namespace tutti::tune
