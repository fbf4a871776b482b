// Chooses the core of recursive multiplying (recursive_multiplying.hpp).  What a core costs
// depends on its product, its length and the sum of its entries only, so the search goes from round
// to round and keeps the cheapest core of each product and length.
#include <algorithm>
#include <cassert>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "plan/allreduce/recursive_multiplying.hpp"
#include "plan/core/per_round.hpp"

namespace tutti::plan {
namespace {

class CoreSearch {
 public:
  struct Limits {
    std::uint32_t messages_max;  // per round of the fold; those of the core have their own bounds
    std::size_t rounds_max;      // all together
  };

  CoreSearch(std::uint32_t rank_count, std::uint64_t ratio, Limits limits)
      : rank_count_(rank_count), ratio_(ratio), limits_(limits) {}

  /// The cheapest core; empty if none keeps to the limits.
  std::optional<PerRound> find(const PerRound& at_most) {
    keep(cheapest_, 1, {0, {}});
    for (const std::uint32_t bound : at_most) add_round(bound);
    if (best_.cost == UINT64_MAX) return {};
    return best_.core;
  }

 private:
  struct Core {
    std::uint64_t cost = UINT64_MAX;  // of its rounds; of the best one with the fold
    PerRound core;
  };
  using ByProductAndRounds = std::map<std::pair<std::uint64_t, std::size_t>, Core>;

  /// A round of 1 .. `bound` messages after each core, or none.
  void add_round(std::uint32_t bound) {
    ByProductAndRounds grown = cheapest_;
    for (const auto& [key, core] : cheapest_) {
      const std::uint64_t product = key.first;
      const std::uint64_t entry_max = std::min<std::uint64_t>(bound, rank_count_ / product - 1);
      for (std::uint64_t entry = 1; entry <= entry_max; ++entry) {
        Core next{core.cost + ratio_ + entry, core.core};
        if (next.cost > best_.cost) break;
        next.core.push_back(static_cast<std::uint32_t>(entry));
        keep(grown, product * (entry + 1), std::move(next));
      }
    }
    cheapest_ = std::move(grown);
  }

  void keep(ByProductAndRounds& cores, std::uint64_t product, Core candidate) {
    Core& kept = cores[{product, candidate.core.size()}];
    if (candidate.cost >= kept.cost) return;
    kept = candidate;
    consider(product, std::move(candidate));
  }

  /// The cost of a core with the fold that its product leaves.
  void consider(std::uint64_t product, Core candidate) {
    const std::uint64_t folded = (rank_count_ + product - 1) / product - 1;
    if (folded > limits_.messages_max || !is_core(rank_count_, candidate.core)) return;
    std::size_t rounds = candidate.core.size();
    if (product != rank_count_) {
      candidate.cost += 2 * (ratio_ + folded);
      rounds += 2;
    }
    if (rounds > limits_.rounds_max) return;
    if (std::pair(candidate.cost, rounds) >= std::pair(best_.cost, best_rounds_)) return;
    best_ = std::move(candidate);
    best_rounds_ = rounds;
  }

  std::uint32_t rank_count_;
  std::uint64_t ratio_;
  Limits limits_;
  ByProductAndRounds cheapest_;
  Core best_;
  std::size_t best_rounds_ = 0;
};

bool is_product(std::uint32_t rank_count, const PerRound& vector) {
  std::uint64_t product = 1;
  for (const std::uint32_t entry : vector) {
    product *= entry + std::uint64_t{1};
    if (product > rank_count) return false;
  }
  return product == rank_count;
}

}  // namespace

PerRound per_round_for_recursive_multiplying(std::uint32_t rank_count, std::uint64_t payload_bytes,
                                             const PerRound& at_most) {
  assert(is_executable(rank_count, at_most));
  if (rank_count == 1) return {};
  if (is_product(rank_count, at_most)) return at_most;
  const std::uint32_t largest = *std::max_element(at_most.begin(), at_most.end());
  // There is always one: the largest product within the bounds is over half of P, so that groups of
  // two suffice.
  return CoreSearch(rank_count, round_cost_in_messages(payload_bytes), {largest, SIZE_MAX})
      .find(at_most)
      .value();
}

PerRound per_round_for_recursive_multiplying(std::uint32_t rank_count,
                                             std::uint64_t payload_bytes) {
  constexpr std::uint32_t largest = 7;
  const std::uint64_t ratio = round_cost_in_messages(payload_bytes);
  PerRound at_most;
  for (std::uint32_t ranks = rank_count; ranks > 1; ranks /= 2) at_most.push_back(largest);
  const std::size_t relaxed_rounds =
      two_partial_rounds(rank_count, default_per_round(rank_count, payload_bytes)).size();
  std::optional<PerRound> core =
      CoreSearch(rank_count, ratio, {largest, relaxed_rounds}).find(at_most);
  if (!core) core = CoreSearch(rank_count, ratio, {largest, SIZE_MAX}).find(at_most);
  std::sort(core->begin(), core->end(), std::greater<>());
  return *core;
}

}  // namespace tutti::plan
