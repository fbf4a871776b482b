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

  explicit RingOfNodes(const RingCase& one) : elements_(one.elements) {
    const NodeOf node_of = in_blocks(one.ranks_per_node);
    const auto nodes = static_cast<std::uint32_t>(one.ranks_per_node.size());
    const auto ranks = static_cast<std::uint32_t>(node_of.size());
    const std::uint32_t sub_blocks =
        one.sub_blocks != 0 ? one.sub_blocks : plan::shared_ring_sub_blocks(ranks, node_of, 0);
    for (std::uint32_t node = 0, rank = 0; node < nodes; ++node) {
      const engine::SharedRingLayout layout{
          .ring = {.nodes = nodes, .node = node, .sub_blocks = sub_blocks},
          .laps = one.laps,
          .members = one.ranks_per_node[node],
          .ahead = std::vector<std::uint32_t>(one.ranks_per_node[node],
                                              std::max(one.ahead, one.laps.in_flight)),
          .element_count = one.elements,
          .element_bytes = sizeof(std::uint64_t)};
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
        member.source.resize(one.elements);
        member.target.resize(one.elements);
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
    for (std::size_t i = 0; i < elements_; ++i)
      member.source[i] = input(member.rank, member.execution.sequence, i);
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
    for (std::size_t i = 0; i < elements_; ++i)
      if (member.target[i] != sum_job().expected(ranks, member.execution.sequence, i)) return false;
    return true;
  }

  std::deque<Member> members;
  std::function<void(Member&)> change_source = {};  // before its rank contributes

 private:
  std::size_t elements_;
  std::deque<std::vector<Line>> memory_;  // of each rank
  std::vector<std::byte*> blocks_;        // by node
};

}  // namespace tutti::test
