// See cost_model.hpp.
#include "plan/cost/cost_model.hpp"

#include <algorithm>
#include <cassert>
#include <functional>
#include <tuple>
#include <unordered_map>

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
};

std::uint32_t divided_up(std::uint64_t number, std::uint64_t by) {
  return static_cast<std::uint32_t>((number + by - 1) / by);
}

struct Best {
  Cost cost = {.time = INT64_MAX};
  std::uint32_t last_entry = 0;
};

/// C of the header, remembered.
struct Search {
  std::uint64_t payload_bytes;
  const LogGP& network;
  std::uint32_t largest;
  Combining combining;
  std::unordered_map<std::uint32_t, Best> known = {{1, {.cost = {}}}};

  const Best& of(std::uint32_t ranks) {
    if (const auto place = known.find(ranks); place != known.end()) return place->second;
    const Best found = best_of(ranks);
    return known[ranks] = found;
  }

  /// For each quotient the least entry that leaves it, from the smallest entry on.
  Best best_of(std::uint32_t ranks) {
    Best best;
    const std::uint32_t most = std::min(largest, ranks - 1);
    for (std::uint32_t entry = 1; entry <= most;) {
      const Picoseconds round = round_time(entry, payload_bytes, network, combining);
      if (round > best.cost.time) break;  // more messages are not cheaper
      const std::uint32_t left = divided_up(ranks, entry + std::uint64_t{1});
      const Cost before = of(left).cost;
      const Cost cost{before.time + round, before.rounds + 1, before.messages + entry};
      if (cost < best.cost) best = {cost, entry};
      if (left == 1) break;
      entry = divided_up(ranks, left - 1) - 1;
    }
    return best;
  }
};

}  // namespace

Picoseconds round_time(std::uint32_t messages, std::uint64_t payload_bytes, const LogGP& network,
                       Combining combining) {
  assert(messages >= 1);
  const std::int64_t more = messages - std::int64_t{1};
  const Picoseconds first = network.travel_time(payload_bytes) + network.receive_overhead;
  const Picoseconds gap = network.port_time(payload_bytes);
  const Picoseconds work = payload_bytes == 0 ? 0 : network.work_time(payload_bytes);
  if (combining == Combining::after_all) return first + more * gap + messages * work;
  return first + more * std::max(gap, network.receive_overhead + work) + work;
}

Picoseconds dissemination_time(std::uint32_t rank_count, const PerRound& per_round,
                               std::uint64_t payload_bytes, const LogGP& network,
                               Combining combining) {
  Picoseconds sum = 0;
  for (const Round& round : two_partial_rounds(rank_count, per_round))
    sum += round_time(round.messages, payload_bytes, network, combining);
  return sum;
}

PerRound best_per_round(std::uint32_t rank_count, std::uint64_t payload_bytes, const LogGP& network,
                        std::uint32_t largest_entry, Combining combining) {
  assert(rank_count >= 1);
  assert(largest_entry >= 1 && largest_entry <= entry_max);
  Search search{payload_bytes, network, largest_entry, combining};
  PerRound vector;
  for (std::uint32_t ranks = rank_count; ranks > 1;
       ranks = divided_up(ranks, vector.back() + std::uint64_t{1}))
    vector.push_back(search.of(ranks).last_entry);
  std::sort(vector.begin(), vector.end(), std::greater<>());
  return vector;
}

}  // namespace tutti::plan
