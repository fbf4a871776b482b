// Chooses the core of recursive multiplying (recursive_multiplying.hpp).  What a core costs
// depends on its product, its length and the sum of its entries only.  So the cheapest core of each
// product is kept, whatever its order; within bounds, that of each product and length, from round
// to round.
#include <algorithm>
#include <cassert>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "plan/allreduce/recursive_multiplying.hpp"
#include "plan/core/per_round.hpp"

namespace tutti::plan {
namespace {

/// The cheapest core of each product that has factors of 2 .. largest + 1 alone.
class ByProduct {
  struct Core {
    std::uint64_t product = 1;
    std::int64_t price = 0;
    std::uint32_t rounds = 0;
    std::uint64_t messages = 0;
    std::size_t before = 0;  // the core without its last factor
    auto key() const { return std::tuple(price, rounds, messages); }
  };

 public:
  ByProduct(std::uint32_t rank_count, const CorePrices& prices)
      : rank_count_(rank_count), prices_(prices) {
    // In the order of products, so that each is final before it is multiplied: by each factor, the
    // next product that it leads to is that of the core `at`.
    struct Factor {
      std::uint64_t value;
      std::int64_t price;
      std::size_t at;
      std::uint64_t next;  // the product
    };
    std::vector<Factor> factors;  // the largest first
    for (std::uint64_t value =
             std::min(prices.largest + std::uint64_t{1}, rank_count + std::uint64_t{0});
         value >= 2; --value)
      factors.push_back({value, prices.combining.of(value - 1), 0, value});
    known_.push_back(Core{});
    for (std::uint64_t product = 2; !factors.empty();) {
      known_.push_back({.product = product, .price = INT64_MAX});
      Core& kept = known_.back();
      std::uint64_t least = UINT64_MAX;
      bool is_over = false;  // for some factor
      for (Factor& factor : factors) {
        if (factor.next == product) {
          const Core& last = known_[factor.at];
          const Core next{.product = product,
                          .price = last.price + factor.price,
                          .rounds = last.rounds + 1,
                          .messages = last.messages + factor.value - 1,
                          .before = factor.at};
          if (next.key() < kept.key()) kept = next;
          factor.next = known_[++factor.at].product * factor.value;
          is_over = is_over || factor.next > rank_count;
        }
        least = std::min(least, factor.next);
      }
      product = least;
      if (is_over)
        std::erase_if(factors, [&](const Factor& factor) { return factor.next > rank_count; });
    }
  }

  /// With the fold that a product leaves; empty if none keeps to the limit.
  std::optional<PerRound> cheapest(std::uint64_t messages_max) const {
    Core best{.price = INT64_MAX};
    std::size_t best_at = 0;
    for (std::size_t at = 0; at < known_.size(); ++at) {
      Core all = known_[at];
      if (all.product != rank_count_) {
        const std::uint64_t folded = (rank_count_ + all.product - 1) / all.product - 1;
        if (folded > prices_.largest) continue;
        all.price += prices_.combining.of(folded) + prices_.out.of(folded);
        all.rounds += 2;
        all.messages += folded;
      }
      if (all.messages > messages_max || all.key() >= best.key()) continue;
      best = all;
      best_at = at;
    }
    if (best.price == INT64_MAX) return {};
    PerRound vector;
    for (std::size_t at = best_at; at != 0; at = known_[at].before)
      vector.push_back(
          static_cast<std::uint32_t>(known_[at].product / known_[known_[at].before].product - 1));
    std::sort(vector.begin(), vector.end(), std::greater<>());
    return vector;
  }

 private:
  std::uint32_t rank_count_;
  const CorePrices& prices_;
  std::vector<Core> known_;  // in the order of products
};

class CoreSearch {
 public:
  CoreSearch(std::uint32_t rank_count, const CorePrices& prices)
      : rank_count_(rank_count), prices_(prices) {}

  PerRound find(const PerRound& at_most) {
    keep(cheapest_, 1, {0, {}});
    for (const std::uint32_t bound : at_most) add_round(bound);
    // There is always one: the largest product within the bounds is over half of P, so that groups
    // of two suffice.
    assert(best_.price != INT64_MAX);
    return best_.core;
  }

 private:
  struct Core {
    std::int64_t price = INT64_MAX;  // of its rounds; of the best one with the fold
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
        Core next{core.price + prices_.combining.of(entry), core.core};
        if (next.price > best_.price) break;
        next.core.push_back(static_cast<std::uint32_t>(entry));
        keep(grown, product * (entry + 1), std::move(next));
      }
    }
    cheapest_ = std::move(grown);
  }

  void keep(ByProductAndRounds& cores, std::uint64_t product, Core candidate) {
    Core& kept = cores[{product, candidate.core.size()}];
    if (candidate.price >= kept.price) return;
    kept = candidate;
    consider(product, std::move(candidate));
  }

  /// The price of a core with the fold that its product leaves.
  void consider(std::uint64_t product, Core candidate) {
    const std::uint64_t folded = (rank_count_ + product - 1) / product - 1;
    if (folded > prices_.largest || !is_core(rank_count_, candidate.core)) return;
    std::size_t rounds = candidate.core.size();
    if (product != rank_count_) {
      candidate.price += prices_.combining.of(folded) + prices_.out.of(folded);
      rounds += 2;
    }
    if (std::pair(candidate.price, rounds) >= std::pair(best_.price, best_rounds_)) return;
    best_ = std::move(candidate);
    best_rounds_ = rounds;
  }

  std::uint32_t rank_count_;
  CorePrices prices_;
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

PerRound cheapest_core_within(std::uint32_t rank_count, const CorePrices& prices,
                              const PerRound& at_most) {
  assert(is_executable(rank_count, at_most));
  if (rank_count == 1) return {};
  if (is_product(rank_count, at_most)) return at_most;
  CorePrices bounded = prices;
  bounded.largest = *std::max_element(at_most.begin(), at_most.end());
  return CoreSearch(rank_count, bounded).find(at_most);
}

PerRound cheapest_core(std::uint32_t rank_count, const CorePrices& prices,
                       std::uint64_t messages_max) {
  assert(prices.largest >= 1);
  if (rank_count == 1) return {};
  const ByProduct cores(rank_count, prices);
  const std::optional<PerRound> within = cores.cheapest(messages_max);
  return within ? *within : cores.cheapest(UINT64_MAX).value();
}

}  // namespace tutti::plan
