// Ranks on nodes for tests of the shared ring: memory, sources and targets of each rank, and what
// its call should give.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <tutti/types.hpp>
#include <vector>

#include "engine/shared_ring.hpp"
#include "plan/allreduce/shared_ring.hpp"
#include "support/node_shapes.hpp"
#include "support/operators.hpp"

namespace tutti::test {

struct RingCase {
  std::vector<std::uint32_t> ranks_per_node;
  std::size_t elements = 0;
  std::uint32_t sub_blocks = 0;  // 0: as the library takes them
  plan::RingLaps laps = {};
  std::uint32_t ahead = 0;  // laps that a rank contributes to ahead; 0: those in flight
  plan::RingPhases phases = plan::RingPhases::both;
  // How many elements each rank has in its block, in one half of the ring; none: `elements`.
  std::vector<std::size_t> of_rank = {};
};

class RingOfNodes {
 public:
  struct Line {
    alignas(engine::RegisterMemory::line_bytes) std::byte bytes[engine::RegisterMemory::line_bytes];
  };
  struct Member {
    std::uint32_t rank = 0, node = 0, local = 0;
    std::uint32_t next = 0;  // node that it sends to
    std::vector<std::uint64_t> source, target;
    engine::Execution execution;
    std::unique_ptr<engine::SharedRing> ring;
  };

  explicit RingOfNodes(const RingCase& one) : phases_(one.phases), of_rank_(one.of_rank) {
    const NodeOf node_of = in_blocks(one.ranks_per_node);
    of_rank_.resize(node_of.size(), one.elements);
    for (const std::size_t elements : of_rank_) {
      begins_.push_back(phases_ == plan::RingPhases::both ? 0 : all_);
      all_ += elements;
    }
    const auto nodes = static_cast<std::uint32_t>(one.ranks_per_node.size());
    const auto ranks = static_cast<std::uint32_t>(node_of.size());
    const std::uint32_t sub_blocks =
        one.sub_blocks != 0 ? one.sub_blocks : plan::shared_ring_sub_blocks(ranks, node_of, 0);
    for (std::uint32_t node = 0, rank = 0; node < nodes; ++node) {
      engine::SharedRingLayout layout{
          .ring = {.nodes = nodes, .node = node, .sub_blocks = sub_blocks, .phases = one.phases},
          .laps = one.laps,
          .members = one.ranks_per_node[node],
          .ahead = std::vector<std::uint32_t>(one.ranks_per_node[node],
                                              std::max(one.ahead, one.laps.in_flight)),
          .element_count = one.elements,
          .element_bytes = sizeof(std::uint64_t)};
      if (has_blocks()) {
        layout.blocks.elements =
            plan::blocks_of_ring(ranks, node_of, std::span<const std::size_t>(of_rank_));
        layout.cut_blocks();
      }
      std::vector<std::byte*> areas;
      for (std::uint32_t local = 0; local < layout.members; ++local) {
        memory_.emplace_back(layout.bytes_of(local, layout.ahead[local]) / sizeof(Line));
        auto* const begin = reinterpret_cast<std::byte*>(memory_.back().data());
        if (local == 0) blocks_.push_back(begin);
        areas.push_back(begin + (local == 0 ? layout.block_bytes() : 0));
      }
      for (std::uint32_t local = 0; local < layout.members; ++local, ++rank) {
        Member& member = members.emplace_back();
        member.rank = rank;
        member.node = node;
        member.local = local;
        member.next = (node + 1) % nodes;
        const bool has_all_to_give = phases_ == plan::RingPhases::reduce_scatter;
        member.source.resize(!has_blocks()     ? one.elements
                             : has_all_to_give ? all_
                                               : of_rank_[rank]);
        member.target.resize(!has_blocks()     ? one.elements
                             : has_all_to_give ? of_rank_[rank]
                                               : all_);
        if (has_blocks()) lay_out_blocks(layout, node_of, rank);
        member.execution.reduction = sum_job().reduction;
        member.execution.memory.source = reinterpret_cast<std::byte*>(member.source.data());
        member.execution.memory.target = reinterpret_cast<std::byte*>(member.target.data());
        member.ring = std::make_unique<engine::SharedRing>(layout, local, block(node), areas);
      }
    }
  }

  std::byte* block(std::uint32_t node) { return blocks_[node]; }

  void start(Member& member) {
    member.execution.begin();
    for (std::size_t i = 0; i < member.source.size(); ++i)
      member.source[i] = input(member.rank, member.execution.sequence, i);
    std::fill(member.target.begin(), member.target.end(), 0);
    if (change_source) change_source(member);
    struct Words : engine::WordsOfNode {
      static Status room() noexcept { return Status::ok; }
      static Status forward(const engine::Forwarding&) noexcept { return Status::ok; }
    } fabric;
    member.ring->begin(member.execution);
    while (member.ring->contribute(member.execution, fabric)) {
    }
  }

  bool is_right(const Member& member) const {
    const auto ranks = static_cast<std::uint32_t>(members.size());
    const std::uint64_t call = member.execution.sequence;
    if (phases_ == plan::RingPhases::allgather) {
      for (std::uint32_t rank = 0; rank < ranks; ++rank)
        for (std::size_t i = 0; i < of_rank_[rank]; ++i)
          if (member.target[begins_[rank] + i] != input(rank, call, i)) return false;
      return true;
    }
    for (std::size_t i = 0; i < member.target.size(); ++i)
      if (member.target[i] != sum_job().expected(ranks, call, begins_[member.rank] + i))
        return false;
    return true;
  }

  std::deque<Member> members;
  std::function<void(Member&)> change_source = {};  // before its rank contributes

 private:
  bool has_blocks() const { return phases_ != plan::RingPhases::both; }

  /// Which ranks have what in the blocks of the nodes, as `self` sees it.
  void lay_out_blocks(engine::SharedRingLayout& layout, const NodeOf& node_of, std::uint32_t self) {
    const bool gathers = phases_ == plan::RingPhases::allgather;
    engine::RingBlocks& blocks = layout.blocks;
    blocks.sources.assign(layout.ring.nodes, {});
    blocks.targets.assign(layout.ring.nodes, {});
    for (std::uint32_t block = 0; block < layout.ring.nodes; ++block) {
      std::size_t begin = 0;
      std::uint32_t member = 0;
      for (std::uint32_t rank = 0; rank < node_of.size(); ++rank) {
        if (index_of(node_of[rank]) != layout.ring.node_of(block)) continue;
        const std::size_t bytes = of_rank_[rank] * sizeof(std::uint64_t);
        const std::size_t place = begins_[rank] * sizeof(std::uint64_t);
        if (gathers || rank == self)
          blocks.targets[block].push_back({begin, bytes, gathers ? place : 0, member});
        if (!gathers || rank == self)
          blocks.sources[block].push_back({begin, bytes, gathers ? 0 : place, member});
        begin += bytes;
        ++member;
      }
    }
  }

  plan::RingPhases phases_;
  std::vector<std::size_t> of_rank_, begins_ = {};  // by rank
  std::size_t all_ = 0;
  std::deque<std::vector<Line>> memory_;  // of each rank
  std::vector<std::byte*> blocks_;        // by node
};

}  // namespace tutti::test
