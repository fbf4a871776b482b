// Direct exchange of blocks, one for each rank (plan.hpp, "Blocks"): allgather, alltoall, gather
// and scatter in which every block is sent once, from its owner to the rank that it is for.
//
// A copied block is laid into a partial, sent, and taken from the slot.  By reference, among ranks
// of one node that may read each other's memory, it is read from its source: one copy, and two
// messages of a line.  In place a block of the source lies where the target's is, so that a plan
// that swaps blocks has to copy them.
//
//   allgather  block q of every target = the source of rank q, which is its block q
//   alltoall   block q of the target of p = block p of the source of q
//   gather     allgather, for the root alone
//   scatter    the target of p, its block p = block p of the root's source
#pragma once

#include <span>
#include <tutti/types.hpp>

#include "plan/core/plan.hpp"

namespace tutti::plan {

enum class Transport : std::uint8_t { copied, by_reference };

/// Whether there are slots for the blocks of so many ranks, which all builders here need.
bool is_block_exchange(std::uint32_t rank_count) noexcept;

Plan direct_allgather(Rank self, std::uint32_t rank_count, Transport transport);
Plan direct_alltoall(Rank self, std::uint32_t rank_count, Transport transport);
/// Where blocks are copied, a rank can be two calls ahead of the root.
Plan direct_gather(Rank self, std::uint32_t rank_count, Rank root, Transport transport);
/// Where blocks are copied, the root can be two calls ahead of the others.  Blocks for other nodes
/// leave first: the port sends them while the root stores those of its own node.  Without nodes,
/// each rank is one.
Plan direct_scatter(Rank self, std::uint32_t rank_count, Rank root, Transport transport,
                    std::span<const Node> node_of = {});

}  // namespace tutti::plan
