#include "tune/race.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <string>
#include <tutti/status.hpp>
#include <utility>

#include "tune/generator.hpp"

namespace tutti::tune {
namespace {

using plan::Picoseconds;

constexpr double too_slow = 1.025;  // must not win
constexpr double by_chance_max = 0.01;
// The error probability of the test that ends a race.  It is lower than a single test would need,
// because the test is repeated after each block.  It is divided by the number of other candidates,
// because each candidate except the fastest could win by mistake.
constexpr double by_chance_max_at_end = 0.002;
// With several candidates left, a race does not end before so many blocks unless its time is up. In
// a few blocks, all ratios are too often below the limit by chance.
constexpr std::size_t blocks_min_of_tie = 24;

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::invalid_argument, "race: " + what);
}

void check(std::uint32_t candidate_count, const RaceLimits& limits) {
  if (candidate_count == 0) refuse("0 candidates; give at least one");
  if (limits.blocks_max == 0) refuse("blocks_max is 0; give at least one block");
  if (limits.blocks_min > limits.blocks_max)
    refuse("blocks_min is " + std::to_string(limits.blocks_min) + ", above blocks_max, " +
           std::to_string(limits.blocks_max) + "; give at most as many");
}

Picoseconds checked(Picoseconds time, const std::string& of) {
  if (time <= 0)
    refuse("a sample of " + of + " is " + std::to_string(time) + " ps; it has to be above 0");
  return time;
}

Picoseconds median_of(std::vector<Picoseconds> times) {
  if (times.empty()) return 0;
  std::sort(times.begin(), times.end());
  const std::size_t half = times.size() / 2;
  return times.size() % 2 == 1 ? times[half]
                               : times[half - 1] + (times[half] - times[half - 1]) / 2;
}

/// The ranks of ratios by their distance from 1, and the sum of those that are below 1.  Ranks are
/// doubled, so that those of equals, which share theirs, are whole; a ratio of 1 says nothing.
struct SignedRanks {
  explicit SignedRanks(std::vector<double> ratios) {
    std::erase(ratios, 1.0);
    const auto size = [](double ratio) { return std::max(ratio, 1 / ratio); };
    std::sort(ratios.begin(), ratios.end(),
              [&](double left, double right) { return size(left) < size(right); });
    for (std::size_t first = 0; first < ratios.size();) {
      std::size_t end = first;
      while (end < ratios.size() && size(ratios[end]) == size(ratios[first])) ++end;
      const std::size_t rank = first + end + 1;
      for (; first < end; ++first) {
        ranks.push_back(rank);
        if (ratios[first] < 1) below += rank;
      }
    }
  }

  /// Whether `below` is within one standard deviation of what is expected by chance, or above it:
  /// of many ratios, that is too probable for any test here.
  bool is_usual() const {
    constexpr std::size_t many = 12;
    std::size_t sum = 0, squares = 0;
    for (const std::size_t rank : ranks) {
      sum += rank;
      squares += rank * rank;
    }
    return ranks.size() >= many &&
           (2 * below >= sum || (sum - 2 * below) * (sum - 2 * below) < squares);
  }

  std::vector<std::size_t> ranks = {};
  std::size_t below = 0;
};

class Runners {
 public:
  explicit Runners(std::uint32_t count) : times_(count) {
    for (std::uint32_t i = 0; i < count; ++i) left_.push_back(i);
  }

  /// In the order of the list.
  const std::vector<std::uint32_t>& left() const { return left_; }
  const std::vector<Picoseconds>& times_of(std::uint32_t one) const { return times_[one]; }
  void add(std::uint32_t one, Picoseconds time) { times_[one].push_back(time); }

  /// One's times over another's in the blocks of both.
  std::vector<double> ratios(std::uint32_t one, std::uint32_t other) const {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < std::min(times_[one].size(), times_[other].size()); ++i)
      ratios.push_back(static_cast<double>(times_[one][i]) / static_cast<double>(times_[other][i]));
    return ratios;
  }
  double ratio(std::uint32_t one, std::uint32_t other) const {
    return hodges_lehmann(ratios(one, other));
  }
  /// How likely it is chance that one takes more than `factor` times what the other takes; 1 if
  /// that is not worth computing, which takes the third power of the number of blocks.
  double slower_by_chance(std::uint32_t one, std::uint32_t other, double factor) const {
    std::vector<double> all = ratios(one, other);
    for (double& ratio : all) ratio /= factor;
    return SignedRanks(all).is_usual() ? 1 : above_one_by_chance(std::move(all));
  }

  std::uint32_t fastest() const {
    std::uint32_t fastest = left_.front();
    for (const std::uint32_t one : left_)
      if (one != fastest && ratio(one, fastest) < 1) fastest = one;
    return fastest;
  }
  std::uint32_t winner() const {
    const std::uint32_t best = fastest();
    return *std::find_if(left_.begin(), left_.end(), [&](std::uint32_t one) {
      return one == best || ratio(one, best) <= race_tie;
    });
  }
  bool is_decided() const {
    if (left_.size() > 1 && times_[left_.front()].size() < blocks_min_of_tie) return false;
    const std::uint32_t first = winner();
    const auto others = static_cast<double>(times_.size() - 1);
    return first == left_.front() && std::all_of(left_.begin(), left_.end(), [&](auto one) {
             return one == first ||
                    slower_by_chance(one, first, 1 / too_slow) <= by_chance_max_at_end / others;
           });
  }

  void drop_slower() {
    const std::uint32_t best = fastest();
    std::vector<std::pair<double, std::uint32_t>> by_chance;
    for (const std::uint32_t one : left_)
      if (one != best)
        by_chance.emplace_back(slower_by_chance(one, best, one < best ? race_tie : 1), one);
    std::sort(by_chance.begin(), by_chance.end());
    auto comparisons = static_cast<double>(by_chance.size());
    for (const auto& [chance, one] : by_chance) {
      if (chance * comparisons-- > by_chance_max) return;
      std::erase(left_, one);
    }
  }

 private:
  std::vector<std::vector<Picoseconds>> times_;
  std::vector<std::uint32_t> left_ = {};
};

/// The order of a block, with the control.
std::vector<std::uint32_t> shuffled(std::vector<std::uint32_t> runners, std::uint32_t control,
                                    Generator& generator) {
  runners.push_back(control);
  for (std::size_t left = runners.size(); left > 1; --left)
    std::swap(runners[left - 1], runners[generator.below(left)]);
  return runners;
}

/// The ratio, above 1, of what both halves take.
double moved(std::span<const double> times) {
  const double first = hodges_lehmann(times.first(times.size() / 2));
  const double last = hodges_lehmann(times.subspan(times.size() / 2));
  return std::max(first, last) / std::min(first, last);
}

/// How far the control went between the halves of the race, by itself and from the winner: the
/// lesser of both.  What slows down all alike does not count, as it does not for candidates.
double moved(const std::vector<Picoseconds>& control, const std::vector<Picoseconds>& winner) {
  std::vector<double> times, ratios;
  for (std::size_t i = 0; i < control.size(); ++i) {
    times.push_back(static_cast<double>(control[i]));
    ratios.push_back(times.back() / static_cast<double>(winner[i]));
  }
  return std::min(moved(times), moved(ratios));
}

/// The least factor above too_slow by which a candidate is slower or faster than the winner;
/// too_slow if there is none.
double distance(const Runners& runners, std::uint32_t count, std::uint32_t winner) {
  double least = HUGE_VAL;
  for (std::uint32_t one = 0; one < count; ++one) {
    const double ratio = one == winner ? 1 : runners.ratio(one, winner);
    if (const double factor = std::max(ratio, 1 / ratio); factor > too_slow)
      least = std::min(least, factor);
  }
  return least == HUGE_VAL ? too_slow : least;
}

}  // namespace

double above_one_by_chance(std::vector<double> ratios) {
  const SignedRanks signs(std::move(ratios));
  // How probable each sum of the ranks below 1 is, of all choices of signs.
  std::vector<double> probable = {1};
  for (const std::size_t rank : signs.ranks) {
    probable.resize(std::min(probable.size() + rank, signs.below + 1));
    for (std::size_t sum = probable.size(); sum-- > 0;)
      probable[sum] = (probable[sum] + (sum < rank ? 0 : probable[sum - rank])) / 2;
  }
  return std::accumulate(probable.begin(), probable.end(), 0.0);
}

double hodges_lehmann(std::span<const double> ratios) {
  assert(!ratios.empty());
  std::vector<double> means;
  for (std::size_t one = 0; one < ratios.size(); ++one)
    for (std::size_t other = 0; other <= one; ++other)
      means.push_back(std::sqrt(ratios[one] * ratios[other]));
  const auto half = means.begin() + static_cast<std::ptrdiff_t>(means.size() / 2);
  std::nth_element(means.begin(), half, means.end());
  if (means.size() % 2 == 1) return *half;
  return std::sqrt(*half * *std::max_element(means.begin(), half));
}

RaceResult race(std::uint32_t candidate_count,
                const std::function<Picoseconds(std::uint32_t)>& sample,
                const std::function<Picoseconds()>& control, const std::function<bool()>& may_go_on,
                const RaceLimits& limits) {
  check(candidate_count, limits);
  Generator generator(limits.seed);
  Runners runners(candidate_count);
  std::vector<Picoseconds> controls;
  RaceResult result;
  while (result.blocks < limits.blocks_max && may_go_on()) {
    for (const std::uint32_t one : shuffled(runners.left(), candidate_count, generator)) {
      if (one == candidate_count)
        controls.push_back(checked(control(), "the control"));
      else
        runners.add(one, checked(sample(one), "candidate " + std::to_string(one)));
      ++result.samples;
    }
    ++result.blocks;
    if (result.blocks < limits.blocks_min) continue;
    runners.drop_slower();
    if (runners.is_decided()) break;
  }
  for (std::uint32_t one = 0; one < candidate_count; ++one)
    result.times.push_back(median_of(runners.times_of(one)));
  if (result.blocks > 0) result.winner = runners.winner();
  result.is_noisy = result.blocks < std::max(limits.blocks_min, 2u) ||
                    moved(controls, runners.times_of(result.winner)) >=
                        distance(runners, candidate_count, result.winner);
  return result;
}

}  // namespace tutti::tune
