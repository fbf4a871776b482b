// Requests with their nodes, as tests write them down, and the plans that are chosen for them.
#pragma once

#include <vector>

#include "plan/blocks/blocks.hpp"
#include "tune/choose.hpp"

namespace tutti::tune {

/// By which choices are priced here.
inline const plan::Network fdr = machine_preset("fdr").network();

/// An allreduce, or what a reduce combines.
struct Asked : CollectiveRequest {
  std::vector<Node> node_of = {}, domain_of = {};
};

inline plan::Plan allreduce_plan(Rank self, std::uint32_t rank_count, const Asked& asked) {
  return plan_for(
      asked, {.rank_count = rank_count, .node_of = asked.node_of, .domain_of = asked.domain_of},
      self, fdr);
}

struct BarrierAsked {
  Algorithm algorithm = Algorithm::automatic;
  Across across = Across::automatic;
  plan::PerRound per_round = {}, per_round_by_default = {};
  std::vector<Node> node_of = {}, domain_of = {};
};

inline plan::Plan barrier_plan(Rank self, std::uint32_t rank_count, const BarrierAsked& asked) {
  return plan_for(
      {.collective = Collective::barrier,
       .algorithm = asked.algorithm,
       .across = asked.across,
       .per_round = asked.per_round,
       .per_round_by_default = asked.per_round_by_default},
      {.rank_count = rank_count, .node_of = asked.node_of, .domain_of = asked.domain_of}, self,
      fdr);
}

struct BroadcastAsked {
  std::size_t bytes = 0;
  plan::PerRound per_round_by_default = {};
  std::vector<Node> node_of = {};
  bool reads_in_place = false;
  Tree tree = Tree::automatic;
};

inline plan::Plan broadcast_plan(Rank self, std::uint32_t rank_count, const BroadcastAsked& asked) {
  return plan_for({.collective = Collective::broadcast,
                   .element_count = asked.bytes,
                   .reduction = {.element_bytes = 1},
                   .root = Rank{0},
                   .tree = asked.tree,
                   .per_round_by_default = asked.per_round_by_default,
                   .reads_in_place = asked.reads_in_place},
                  {.rank_count = rank_count, .node_of = asked.node_of}, self, fdr);
}

/// A collective of blocks; `bytes` of the longest, or of all blocks of a reduce_scatter.
struct BlocksAsked {
  Collective collective = Collective::alltoall;
  std::size_t bytes = 0;
  std::vector<Node> node_of = {};
  plan::Transport transport = plan::Transport::copied;
  Rank root{0};
};

inline plan::Plan blocks_plan(Rank self, std::uint32_t rank_count, const BlocksAsked& asked) {
  return plan_for({.collective = asked.collective,
                   .element_count = asked.bytes,
                   .reduction = {.element_bytes = 1},
                   .root = asked.root,
                   .reads_in_place = asked.transport == plan::Transport::by_reference},
                  {.rank_count = rank_count, .node_of = asked.node_of}, self, fdr);
}

}  // namespace tutti::tune
