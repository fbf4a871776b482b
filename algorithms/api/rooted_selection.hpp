// Which tree a collective with a root takes, and what is refused: pure, as selection.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <tutti/algorithm.hpp>

#include "api/selection.hpp"
#include "plan/core/per_round.hpp"
#include "plan/core/plan.hpp"

namespace tutti::api {

struct BroadcastRequest {
  Rank root{0};
  std::size_t bytes = 0;
  plan::PerRound per_round_by_default = {};
  std::span<const Node> node_of = {};
  bool single_copy = false;  // whether ranks may read each other's buffers
  Tree tree = Tree::automatic;
};

struct ReduceRequest {
  Rank root{0};
  AllreduceRequest combines = {};       // what is combined, and how
  std::uint32_t participant_count = 0;  // 0: all ranks
  bool single_copy = false;
  Tree tree = Tree::automatic;
};

/// `self`'s plan.  Throws Error{invalid_argument} for a vector that does not cover the nodes, with
/// the nearest that does, and Error{unsupported} for a tree that cannot keep the promise.
plan::Plan broadcast_plan(Rank self, std::uint32_t rank_count, const BroadcastRequest& request);
plan::Plan reduce_plan(Rank self, std::uint32_t rank_count, const ReduceRequest& request);

}  // namespace tutti::api
