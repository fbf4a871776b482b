// See cost_model.hpp.
#include "plan/cost/cost_model.hpp"

#include <algorithm>
#include <cassert>
#include <functional>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plan/allreduce/recursive_multiplying.hpp"
#include "plan/allreduce/two_partial.hpp"

namespace tutti::plan {
namespace {

/// Compared in this order.
struct Cost {
  Picoseconds time = 0;
  std::uint32_t rounds = 0;
  std::uint64_t messages = 0;
  auto key() const { return std::tuple(time, rounds, messages); }
  friend bool operator<(const Cost& a, const Cost& b) { return a.key() < b.key(); }
  friend bool operator==(const Cost&, const Cost&) = default;
  friend Cost operator+(const Cost& a, const Cost& b) {
    return {a.time + b.time, a.rounds + b.rounds, a.messages + b.messages};
  }
};

constexpr Cost no_cost_yet{.time = INT64_MAX};

/// The costs of rounds, for one network and payload.
class RoundCosts {
 public:
  RoundCosts(std::uint64_t payload_bytes, const LogGP& network, Combining combining)
      : first_(network.travel_time(payload_bytes) + network.receive_overhead),
        each_more_(network.port_time(payload_bytes)),
        work_(payload_bytes == 0 ? 0 : network.work_time(payload_bytes)),
        receive_overhead_(network.receive_overhead),
        combining_(combining) {}

  Cost round(std::uint32_t messages) const {
    assert(messages >= 1);
    const std::int64_t more = messages - std::int64_t{1};
    const Picoseconds time =
        combining_ == Combining::after_all
            ? first_ + more * each_more_ + messages * work_
            : first_ + more * std::max(each_more_, receive_overhead_ + work_) + work_;
    return {time, 1, messages};
  }

  /// Both rounds of a fold; none if groups are of one rank.
  Cost fold(std::uint32_t messages) const {
    if (messages == 0) return {};
    const Cost in = round(messages);
    Cost out = in;
    out.time -= messages * work_;
    return in + out;
  }

 private:
  Picoseconds first_;
  Picoseconds each_more_;
  Picoseconds work_;
  Picoseconds receive_overhead_;
  Combining combining_;
};

std::uint32_t divided_up(std::uint64_t number, std::uint64_t by) {
  return static_cast<std::uint32_t>((number + by - 1) / by);
}

/// C of the header, remembered.
class Dissemination {
 public:
  Dissemination(const RoundCosts& costs, std::uint32_t largest)
      : costs_(costs), largest_(largest) {}

  struct Best {
    Cost cost = no_cost_yet;
    std::uint32_t last_entry = 0;
  };

  const Best& of(std::uint32_t ranks) {
    const auto [place, is_new] = best_.try_emplace(ranks);
    if (!is_new) return place->second;
    const Best found = ranks == 1 ? Best{.cost = {}} : search(ranks);
    return best_[ranks] = found;  // `place` may be gone
  }

 private:
  /// For each quotient the least entry that leaves it, from the smallest entry on.
  Best search(std::uint32_t ranks) {
    Best best;
    const std::uint32_t most = std::min(largest_, ranks - 1);
    for (std::uint32_t entry = 1; entry <= most;) {
      const Cost round = costs_.round(entry);
      if (round.time > best.cost.time) break;  // more messages are not cheaper
      const std::uint32_t left = divided_up(ranks, entry + std::uint64_t{1});
      if (const Cost cost = round + of(left).cost; cost < best.cost) best = {cost, entry};
      if (left == 1) break;
      entry = divided_up(ranks, left - 1) - 1;
    }
    return best;
  }

  const RoundCosts& costs_;
  std::uint32_t largest_;
  std::unordered_map<std::uint32_t, Best> best_;
};

/// A* from product 1.  A node is a core, told by its product, or a core with its fold, which is the
/// end.
class CoreSearch {
 public:
  CoreSearch(std::uint32_t rank_count, const RoundCosts& costs, std::uint32_t largest)
      : rank_count_(rank_count), costs_(costs), largest_(largest), rest_(costs, largest) {}

  PerRound find() {
    reach(1, {}, 0);
    for (;;) {
      const Node node = open_.top();
      open_.pop();
      if (node.is_end) return core_of(node.product);
      if (node.cost == reached_[node.product].cost) expand(node);
    }
  }

 private:
  struct Node {
    Cost bound;  // of the whole schedule
    bool is_end;
    std::uint64_t product;
    Cost cost;  // of the core
    auto key() const { return std::tuple(bound, !is_end, product, cost); }
    friend bool operator>(const Node& a, const Node& b) { return a.key() > b.key(); }
  };
  struct Reached {
    Cost cost = no_cost_yet;
    std::uint32_t last_entry = 0;
  };

  void expand(const Node& node) {
    const std::uint32_t groups_of = divided_up(rank_count_, node.product);
    if (const std::uint32_t folded = groups_of - 1; folded <= largest_)
      open_.push({node.cost + costs_.fold(folded), true, node.product, node.cost});
    for (std::uint64_t entry = 1; entry <= largest_ && node.product * (entry + 1) <= rank_count_;
         ++entry) {
      const auto messages = static_cast<std::uint32_t>(entry);
      reach(node.product * (entry + 1), node.cost + costs_.round(messages), messages);
    }
  }

  void reach(std::uint64_t product, const Cost& cost, std::uint32_t last_entry) {
    Reached& reached = reached_[product];
    if (!(cost < reached.cost)) return;
    reached = {cost, last_entry};
    const Cost bound = cost + rest_.of(divided_up(rank_count_, product)).cost;
    open_.push({bound, false, product, cost});
  }

  PerRound core_of(std::uint64_t product) const {
    PerRound core;
    for (; product > 1; product /= core.back() + std::uint64_t{1})
      core.push_back(reached_.at(product).last_entry);
    return core;
  }

  std::uint32_t rank_count_;
  const RoundCosts& costs_;
  std::uint32_t largest_;
  Dissemination rest_;
  std::priority_queue<Node, std::vector<Node>, std::greater<>> open_;
  std::unordered_map<std::uint64_t, Reached> reached_;
};

PerRound larger_first(PerRound vector) {
  std::sort(vector.begin(), vector.end(), std::greater<>());
  return vector;
}

}  // namespace

Picoseconds round_time(std::uint32_t messages, std::uint64_t payload_bytes, const LogGP& network,
                       Combining combining) {
  return RoundCosts(payload_bytes, network, combining).round(messages).time;
}

Picoseconds dissemination_time(std::uint32_t rank_count, const PerRound& per_round,
                               std::uint64_t payload_bytes, const LogGP& network,
                               Combining combining) {
  const RoundCosts costs(payload_bytes, network, combining);
  Cost sum;
  for (const Round& round : two_partial_rounds(rank_count, per_round))
    sum = sum + costs.round(round.messages);
  return sum.time;
}

Picoseconds recursive_multiplying_time(std::uint32_t rank_count, const PerRound& core,
                                       std::uint64_t payload_bytes, const LogGP& network) {
  assert(is_core(rank_count, core));
  const RoundCosts costs(payload_bytes, network, Combining::after_all);
  std::uint64_t product = 1;
  Cost sum;
  for (const std::uint32_t entry : core) {
    product *= entry + std::uint64_t{1};
    sum = sum + costs.round(entry);
  }
  return (sum + costs.fold(divided_up(rank_count, product) - 1)).time;
}

PerRound best_per_round(std::uint32_t rank_count, std::uint64_t payload_bytes, const LogGP& network,
                        std::uint32_t largest_entry, Combining combining) {
  assert(rank_count >= 1);
  assert(largest_entry >= 1 && largest_entry <= entry_max);
  const RoundCosts costs(payload_bytes, network, combining);
  Dissemination search(costs, largest_entry);
  PerRound vector;
  for (std::uint32_t ranks = rank_count; ranks > 1;
       ranks = divided_up(ranks, vector.back() + std::uint64_t{1}))
    vector.push_back(search.of(ranks).last_entry);
  return larger_first(std::move(vector));
}

PerRound best_core(std::uint32_t rank_count, std::uint64_t payload_bytes, const LogGP& network,
                   std::uint32_t largest_entry) {
  assert(rank_count >= 1);
  assert(largest_entry >= 1 && largest_entry <= entry_max);
  const RoundCosts costs(payload_bytes, network, Combining::after_all);
  return larger_first(CoreSearch(rank_count, costs, largest_entry).find());
}

}  // namespace tutti::plan
