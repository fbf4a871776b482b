// See per_round.hpp.  Products stop growing at the rank count, so 64 bits hold them all.
#include "plan/core/per_round.hpp"

#include <algorithm>
#include <cassert>

namespace tutti::plan {
namespace {

/// Ranks reached from `reached` ranks by a round of `messages`, at most `rank_count`: both factors
/// are below 2^32 + 1 and `reached` never exceeds `rank_count`.
std::uint64_t reach(std::uint64_t reached, std::uint64_t messages, std::uint32_t rank_count) {
  return std::min<std::uint64_t>(reached * (messages + 1), rank_count);
}

/// Fewest rounds of at most `largest` messages that cover.
std::uint32_t rounds_needed(std::uint32_t rank_count, std::uint32_t largest) {
  std::uint32_t rounds = 0;
  for (std::uint64_t reached = 1; reached < rank_count; ++rounds)
    reached = reach(reached, largest, rank_count);
  return rounds;
}

/// `sum` spread over `rounds` as evenly as possible: the largest product of (entry + 1).
PerRound spread_evenly(std::uint64_t sum, std::uint32_t rounds) {
  PerRound entries(rounds, static_cast<std::uint32_t>(sum / rounds));
  for (std::uint64_t i = 0; i < sum % rounds; ++i) ++entries[i];
  return entries;
}

/// Finds the nearest product among the vectors of given length and sum, larger entries first.
class NearestProduct {
 public:
  NearestProduct(std::uint32_t rank_count, std::uint32_t rounds) : rank_count_(rank_count) {
    entries_.resize(rounds);
  }

  PerRound find(std::uint64_t sum, std::uint32_t largest) {
    choose(0, 1, sum, largest);
    return best_;
  }

 private:
  /// Chooses entry `position` and all after it; entries do not grow from left to right.
  void choose(std::uint32_t position, std::uint64_t product, std::uint64_t sum,
              std::uint64_t largest) {
    const std::uint64_t rounds_left = entries_.size() - position;
    if (rounds_left == 0) return keep_if_nearer(product);
    if (!can_cover(product, sum, rounds_left)) return;
    const std::uint64_t evenly = (sum + rounds_left - 1) / rounds_left;
    for (std::uint64_t entry = std::min(largest, sum - (rounds_left - 1)); entry >= evenly;
         --entry) {
      entries_[position] = static_cast<std::uint32_t>(entry);
      choose(position + 1, product * (entry + 1), sum - entry, entry);
    }
  }

  /// The sum is minimal, so nearly every uneven branch ends here and the search stays small.
  bool can_cover(std::uint64_t product, std::uint64_t sum, std::uint64_t rounds_left) const {
    for (const std::uint32_t entry : spread_evenly(sum, static_cast<std::uint32_t>(rounds_left)))
      product = reach(std::min<std::uint64_t>(product, rank_count_), entry, rank_count_);
    return product >= rank_count_;
  }

  void keep_if_nearer(std::uint64_t product) {
    if (product < rank_count_ || (!best_.empty() && product >= best_product_)) return;
    best_product_ = product;
    best_ = entries_;
  }

  std::uint32_t rank_count_;
  PerRound entries_;
  PerRound best_;
  std::uint64_t best_product_ = 0;
};

}  // namespace

bool covers(std::uint32_t rank_count, const PerRound& per_round) {
  std::uint64_t reached = 1;
  for (const std::uint32_t messages : per_round) {
    if (messages == 0) return false;
    reached = reach(reached, messages, rank_count);
  }
  return reached >= rank_count;
}

std::vector<Round> two_partial_rounds(std::uint32_t rank_count, const PerRound& per_round) {
  assert(covers(rank_count, per_round));
  std::vector<Round> rounds;
  std::uint64_t grown = rank_count;
  for (auto entry = per_round.rbegin(); entry != per_round.rend(); ++entry) {
    const std::uint64_t length = (grown + *entry) / (*entry + std::uint64_t{1});
    if (length == grown) continue;  // nothing is left to do before this round
    const std::uint64_t pieces = (grown + length - 1) / length;
    rounds.push_back({.length = static_cast<std::uint32_t>(length),
                      .messages = static_cast<std::uint32_t>(pieces - 1),
                      .short_messages = static_cast<std::uint32_t>(pieces * length - grown)});
    grown = length;
  }
  std::reverse(rounds.begin(), rounds.end());
  return rounds;
}

bool is_executable(std::uint32_t rank_count, const PerRound& per_round) {
  if (rank_count == 0 || !covers(rank_count, per_round)) return false;
  std::uint64_t messages = 0;
  for (const Round& round : two_partial_rounds(rank_count, per_round)) messages += round.messages;
  return messages <= slots_max;
}

PerRound uniform(std::uint32_t rank_count, std::uint32_t messages) {
  assert(messages >= 1);
  return PerRound(rounds_needed(rank_count, messages), messages);
}

PerRound nearest_covering(std::uint32_t rank_count, std::uint32_t largest) {
  assert(largest >= 1);
  const std::uint32_t rounds = rounds_needed(rank_count, largest);
  if (rounds == 0) return {};
  // Among vectors with the same sum, the even one has the largest product.  So the least sum that
  // covers is the least one whose even vector covers.  That product grows with the sum, so
  // bisection finds it.
  std::uint64_t first = rounds;
  std::uint64_t last = std::uint64_t{rounds} * largest;
  while (first < last) {
    const std::uint64_t middle = first + (last - first) / 2;
    if (covers(rank_count, spread_evenly(middle, rounds)))
      last = middle;
    else
      first = middle + 1;
  }
  return NearestProduct(rank_count, rounds).find(first, largest);
}

}  // namespace tutti::plan
