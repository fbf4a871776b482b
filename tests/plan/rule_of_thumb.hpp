// A rule for messages per round that needs no network, for tests that take any sensible vector: a
// round costs as much as four further messages, two beyond 256 bytes, one beyond 4 KiB.
#pragma once

#include <cstdint>
#include <utility>

#include "plan/allreduce/recursive_multiplying.hpp"
#include "plan/core/per_round.hpp"

namespace tutti::plan::test {

inline std::uint64_t round_in_messages(std::uint64_t payload_bytes) {
  if (payload_bytes <= 256) return 4;
  return payload_bytes <= 4096 ? 2 : 1;
}

/// Returns the uniform vector with n = 1 .. 7 of the least sum over its rounds; the smaller n
/// if equal.
inline PerRound rule_vector(std::uint32_t rank_count, std::uint64_t payload_bytes) {
  PerRound best;
  std::uint64_t best_cost = UINT64_MAX;
  for (std::uint32_t messages = 1; messages <= 7; ++messages) {
    PerRound candidate = uniform(rank_count, messages);
    std::uint64_t cost = 0;
    for (const Round& round : two_partial_rounds(rank_count, candidate))
      cost += round_in_messages(payload_bytes) + round.messages;
    if (cost >= best_cost) continue;
    best_cost = cost;
    best = std::move(candidate);
  }
  return best;
}

inline CorePrices rule_prices(std::uint64_t payload_bytes) {
  const CorePrices::OfRound price{
      .fixed = static_cast<std::int64_t>(round_in_messages(payload_bytes)), .each = 1};
  return {.combining = price, .out = price, .largest = 7};
}

inline PerRound rule_core(std::uint32_t rank_count, std::uint64_t payload_bytes) {
  return cheapest_core(rank_count, rule_prices(payload_bytes), UINT64_MAX);
}
inline PerRound rule_core(std::uint32_t rank_count, std::uint64_t payload_bytes,
                          const PerRound& at_most) {
  return cheapest_core_within(rank_count, rule_prices(payload_bytes), at_most);
}

}  // namespace tutti::plan::test
