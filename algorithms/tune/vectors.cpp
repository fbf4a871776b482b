#include "tune/vectors.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <tuple>
#include <unordered_map>

namespace tutti::tune {
namespace {

/// Compared in this order.
struct Cost {
  plan::Picoseconds time = 0;
  std::uint32_t rounds = 0;
  std::uint64_t messages = 0;
  auto key() const { return std::tuple(time, rounds, messages); }
};

std::uint32_t divided_up(std::uint64_t number, std::uint64_t by) {
  return static_cast<std::uint32_t>((number + by - 1) / by);
}

/// From the last round to the first one: a round of r messages leaves ceil(m / (r+1)) of m ranks to
/// the rounds before it, and only the least r of each quotient counts.
class Search {
 public:
  Search(const RoundPrice& price, std::uint32_t largest) : price_(price), largest_(largest) {}

  plan::PerRound of(std::uint32_t rank_count) {
    plan::PerRound vector;
    for (std::uint32_t ranks = rank_count; ranks > 1;
         ranks = divided_up(ranks, vector.back() + std::uint64_t{1}))
      vector.push_back(best(ranks).last_entry);
    std::reverse(vector.begin(), vector.end());
    return vector;
  }

 private:
  struct Best {
    Cost cost = {.time = INT64_MAX};
    std::uint32_t last_entry = 0;
  };

  const Best& best(std::uint32_t ranks) {
    if (const auto place = known_.find(ranks); place != known_.end()) return place->second;
    Best found;
    const std::uint32_t most = std::min(largest_, ranks - 1);
    for (std::uint32_t entry = 1; entry <= most;) {
      const std::uint32_t left = divided_up(ranks, entry + std::uint64_t{1});
      const plan::Round round{
          .length = left, .messages = entry, .short_messages = (entry + 1) * left - ranks};
      const Cost before = left == 1 ? Cost{} : best(left).cost;
      const Cost cost{before.time + price_(round), before.rounds + 1, before.messages + entry};
      if (cost.key() < found.cost.key()) found = {cost, entry};
      if (left == 1) break;
      entry = divided_up(ranks, left - 1) - 1;
    }
    return known_[ranks] = found;
  }

  const RoundPrice& price_;
  std::uint32_t largest_;
  std::unordered_map<std::uint32_t, Best> known_;
};

}  // namespace

std::uint32_t messages_max_of(std::uint32_t rank_count, std::uint32_t partners_max) {
  return partners_max >= rank_count - 1 ? UINT32_MAX : partners_max / 2;
}

plan::PerRound cheapest_vector(std::uint32_t rank_count, std::uint32_t partners_max,
                               const RoundPrice& price) {
  assert(rank_count >= 1);
  const std::uint32_t messages_max = messages_max_of(rank_count, partners_max);
  for (std::uint32_t largest = messages_of_round_max; largest >= 1; --largest) {
    plan::PerRound vector = Search(price, largest).of(rank_count);
    if (std::accumulate(vector.begin(), vector.end(), std::uint64_t{0}) <= messages_max)
      return vector;
  }
  return Search(price, messages_of_round_max).of(rank_count);
}

}  // namespace tutti::tune
