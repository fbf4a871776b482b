// Finds what the messages of a plan bring, by running the plans of all ranks together on symbols. A
// value is the multiset of ranks whose contributions it holds; the plan's verifier checks order and
// association (plan/core/verify.hpp).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "plan/core/plan.hpp"

namespace tutti::bench {

/// The ranks first, first + 1, ..., `count` of them, modulo the number of ranks.
struct CyclicInterval {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  friend bool operator==(const CyclicInterval&, const CyclicInterval&) = default;
};

/// The fewest intervals that contain every rank as often as the multiset does, by `first`.
using Cover = std::vector<CyclicInterval>;

/// A multiset of ranks as a step function: from rank `from` on, up to the next change, every rank
/// is in it `times` times.  Changes are in rising order; no rank before the first change or from
/// the last one on is in the multiset.
struct Change {
  std::uint32_t from = 0;
  std::uint32_t times = 0;
};

Cover cover_of(std::span<const Change> multiset, std::uint32_t rank_count);

/// Steps, registers and changes that a trace may keep: two-partial dissemination stays below for
/// 50,000 ranks, which take 0.3 GB and 6 s, most of it for 136 MB of JSON.
inline constexpr std::size_t trace_size_max = std::size_t{1} << 23;

/// A schedule may search for its parameters anew with each plan.
inline constexpr std::chrono::seconds trace_time_max{20};

/// Whether the plans of all ranks together stay below trace_size_max, if none is larger than
/// `plan`.
bool is_traceable(const plan::Plan& plan) noexcept;

class PlanTrace {
 public:
  /// Traces the plans of all ranks.  Returns nothing if they need more than trace_size_max, or if
  /// making them takes longer than trace_time_max.  Throws std::logic_error if a rank waits for
  /// ever: then they are no plans.  `node_of` says which ranks share a target, in plans that do;
  /// empty: none.
  static std::optional<PlanTrace> of(std::uint32_t rank_count,
                                     const std::function<plan::Plan(Rank)>& plan_of,
                                     std::span<const Node> node_of = {});

  const plan::Plan& plan(Rank rank) const { return plans_[index_of(rank)]; }

  /// What the message into a slot brings, all of its payloads together; in a barrier, the ranks of
  /// which its sender knows that they have entered.
  Cover brought(Rank receiver, std::uint16_t slot) const;

  /// The round in which the message is put; it may be awaited in a later round, if it is needed
  /// late.
  std::uint32_t round(Rank receiver, std::uint16_t slot) const {
    return ranks_[index_of(receiver)].rounds[slot];
  }

  /// What a part of the target contains at the end; in a barrier, the ranks that have certainly
  /// entered.
  Cover result(Rank rank, std::uint16_t part = 0) const;

 private:
  class Run;
  struct Value {  // in changes_
    std::size_t begin = 0;
    std::uint32_t count = 0;
  };
  struct RankState {
    std::vector<std::optional<Value>> messages;  // by slot
    std::vector<std::uint32_t> rounds;           // of these
    std::vector<Value> targets;                  // by part
    std::uint32_t owner = 0;                     // the rank whose `targets` are this rank's
  };

  Cover cover(Value value) const;

  std::vector<plan::Plan> plans_;
  std::vector<Change> changes_;
  std::vector<RankState> ranks_;
};

}  // namespace tutti::bench
