// Times of batches on a machine that does other things as well: what slows down a whole block,
// jitter, and now and then a batch that takes up to several times as long (Pareto).  Races are
// judged by it, in tests and by tutti-tune --verify.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "plan/cost/loggp.hpp"
#include "tune/race.hpp"

namespace tutti::bench {

class NoisyTimes {
 public:
  /// `times`: what each candidate takes without noise; above 0.
  NoisyTimes(std::vector<plan::Picoseconds> times, std::uint64_t seed);

  plan::Picoseconds sample(std::uint32_t candidate) { return disturbed(times_[candidate]); }
  plan::Picoseconds control();

 private:
  plan::Picoseconds disturbed(plan::Picoseconds time);

  std::vector<plan::Picoseconds> times_;
  std::mt19937_64 numbers_;
  std::uniform_real_distribution<> uniform_ = {};
  double load_ = 0;
};

/// A race of candidates that take these times, by that seed.
tune::RaceResult noisy_race(const std::vector<plan::Picoseconds>& times, std::uint64_t seed);

/// Whether what won takes more than a twentieth more than the best.
bool is_bad_winner(const std::vector<plan::Picoseconds>& times, std::uint32_t winner);

/// What a fixed count of blocks takes: the rule of races, but without tests.
std::uint32_t winner_of_fixed(const std::vector<plan::Picoseconds>& times, std::uint64_t seed,
                              std::uint32_t blocks);

/// Races of one kind of candidates, by the seeds 1 to `races`.
struct RaceTally {
  std::uint32_t races = 0;
  std::uint32_t bad = 0;      // that something was taken of that is more than 5 % slower
  std::uint32_t first = 0;    // that the first of the list has won
  std::uint64_t samples = 0;  // of candidates, without the control
};

struct RaceRates {
  RaceTally some;   // four candidates, within 30 % of each other
  RaceTally close;  // four, of which all but one are 6 % slower
  RaceTally twins;  // two that take equally long
  /// The least multiple of 20 blocks that makes as few errors of both kinds without tests, as
  /// nobody knows before how far candidates differ.
  std::uint32_t fixed_blocks = 0;
};
RaceRates race_rates(std::uint32_t races);

}  // namespace tutti::bench
