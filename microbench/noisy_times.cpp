#include "microbench/noisy_times.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace tutti::bench {
namespace {

using plan::Picoseconds;
using Times = std::vector<Picoseconds>;
constexpr Picoseconds microsecond = 1'000'000;

/// A choice without a race that is up to 30 % off, and others as models have them.
Times some_candidates(std::uint64_t seed) {
  std::mt19937_64 numbers(seed + 1'000'000);
  Times times(4);
  for (Picoseconds& time : times)
    time = std::llround(10 * microsecond * std::uniform_real_distribution<>(1, 1.3)(numbers));
  return times;
}
/// Everything but the best is just worse than what must not win.
Times close_candidates(std::uint64_t seed) {
  Times times(4, 106 * microsecond / 10);
  times[seed % 4] = 10 * microsecond;
  return times;
}
Times twins(std::uint64_t) {
  return {10 * microsecond, 10 * microsecond};
}

using Candidates = Times (*)(std::uint64_t seed);
using Winner = std::function<std::uint32_t(const Times&, std::uint64_t seed, RaceTally&)>;

RaceTally tally_of(std::uint32_t races, Candidates candidates, const Winner& winner_of) {
  RaceTally tally{.races = races};
  for (std::uint64_t seed = 1; seed <= races; ++seed) {
    const Times times = candidates(seed);
    const std::uint32_t winner = winner_of(times, seed, tally);
    tally.bad += is_bad_winner(times, winner) ? 1 : 0;
    tally.first += winner == 0 ? 1 : 0;
  }
  return tally;
}

}  // namespace

NoisyTimes::NoisyTimes(std::vector<Picoseconds> times, std::uint64_t seed)
    : times_(std::move(times)), numbers_(seed) {}

Picoseconds NoisyTimes::control() {
  return disturbed(5 * microsecond);
}

Picoseconds NoisyTimes::disturbed(Picoseconds time) {
  load_ = 0.9 * load_ + std::normal_distribution<>(0, 0.02)(numbers_);
  double factor = std::exp(load_) * (1 + std::exponential_distribution<>(1 / 0.03)(numbers_));
  if (uniform_(numbers_) < 0.1) factor *= 0.8 + 0.3 * std::pow(uniform_(numbers_), -1 / 1.5);
  return std::max<Picoseconds>(std::llround(static_cast<double>(time) * std::max(factor, 0.5)), 1);
}

tune::RaceResult noisy_race(const std::vector<Picoseconds>& times, std::uint64_t seed) {
  NoisyTimes machine(times, seed);
  return tune::race(
      static_cast<std::uint32_t>(times.size()), [&](auto one) { return machine.sample(one); },
      [&] { return machine.control(); }, [] { return true; }, {.seed = seed});
}

bool is_bad_winner(const std::vector<Picoseconds>& times, std::uint32_t winner) {
  return static_cast<double>(times[winner]) >
         1.05 * static_cast<double>(*std::min_element(times.begin(), times.end()));
}

std::uint32_t winner_of_fixed(const std::vector<Picoseconds>& times, std::uint64_t seed,
                              std::uint32_t blocks) {
  NoisyTimes machine(times, seed);
  std::vector<std::vector<double>> samples(times.size());
  for (std::uint32_t block = 0; block < blocks; ++block)
    for (std::uint32_t one = 0; one < samples.size(); ++one)
      samples[one].push_back(static_cast<double>(machine.sample(one)));
  const auto ratio = [&](std::size_t one, std::size_t other) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < blocks; ++i) ratios.push_back(samples[one][i] / samples[other][i]);
    return tune::hodges_lehmann(ratios);
  };
  std::size_t fastest = 0;
  for (std::size_t one = 1; one < samples.size(); ++one)
    if (ratio(one, fastest) < 1) fastest = one;
  std::uint32_t first = 0;
  while (first != fastest && ratio(first, fastest) > tune::race_tie) ++first;
  return first;
}

RaceRates race_rates(std::uint32_t races) {
  const Winner by_race = [](const Times& times, std::uint64_t seed, RaceTally& tally) {
    const tune::RaceResult result = noisy_race(times, seed);
    tally.samples += result.samples - result.blocks;
    return result.winner;
  };
  RaceRates rates{.some = tally_of(races, some_candidates, by_race),
                  .close = tally_of(races, close_candidates, by_race),
                  .twins = tally_of(races, twins, by_race)};
  const Winner by_count = [&](const Times& times, std::uint64_t seed, RaceTally& tally) {
    tally.samples += times.size() * rates.fixed_blocks;
    return winner_of_fixed(times, seed, rates.fixed_blocks);
  };
  constexpr std::uint32_t blocks_max = 200;
  do rates.fixed_blocks += 20;
  while (rates.fixed_blocks < blocks_max &&
         (tally_of(races, some_candidates, by_count).bad > rates.some.bad ||
          tally_of(races, twins, by_count).first < rates.twins.first));
  return rates;
}

}  // namespace tutti::bench
