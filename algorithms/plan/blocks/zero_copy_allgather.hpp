// Allgather over several nodes whose blocks are in nobody's registers: between nodes a block is
// written from the target of one rank straight into that of another, and the ranks of a node read
// it in the target of the rank that has it there (core/plan.hpp, "Zero copy" and "By reference").
//
// Idea.  Every rank puts its own block into its target first, unless it is in place.  A block has
// one holder in each node (core/node_shares.hpp), to which its rank sends it directly; the holder
// tells the others of its node.
//
//   nodes {0 1} {2 3 4}: block 0 on its way, and what allows it
//
//           rank 0     1          2     3     4
//   entry        <-------------- e
//                0 ============> 0     into its target
//                0 --> 0         0 --> 0 --> 0   references: 1, 3 and 4 read
//                a <-- a         a <-- a <-- a   acknowledgements, one from each for all blocks
//
// A holder tells the owner that it has entered, before the owner writes its target.  So each pair
// of peers that send to each other stays in step, and two copies of the lines are enough.  A block
// goes in pieces, so that the network and the memory of the nodes work at the same time.
//
// Cost, for N nodes of L ranks each: a rank sends its block N - 1 times to other nodes, to as many
// ranks, and reads P - N blocks in memory.  Rounds: entries, own blocks, blocks of other nodes,
// acknowledgements.  Where nodes differ in size, ranks of smaller nodes receive more.  Scratch: a
// line for each piece and each peer.
//
// Literature: blocks/block_dissemination.hpp, of which this is the schedule with one round.
#pragma once

#include <cstdint>
#include <span>
#include <tutti/types.hpp>

#include "plan/core/plan.hpp"

namespace tutti::plan {

/// `node_of` holds the node of each rank, more than one; empty: each rank is one of its own.
/// `pieces`: of each block, 1 and more.  Blocks lie in all targets alike.
Plan zero_copy_allgather(Rank self, std::uint32_t rank_count, std::span<const Node> node_of,
                         std::uint16_t pieces);

}  // namespace tutti::plan
