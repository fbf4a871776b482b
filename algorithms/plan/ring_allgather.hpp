// Allgather of blocks that differ in length, along rings of the nodes, piece by piece.  A rank
// alone is a node, too.
//
// Idea.  A block that is far longer than the others takes as long as it is, for each node that its
// owner tells (blocks.hpp) or, by dissemination, for each round (block_dissemination.hpp).  Along a
// ring it is sent once by everybody: each block is cut into pieces, and a rank passes on each piece
// to the next node as soon as it is there.  Blocks go in the order of their distance: the own one,
// that of the node before, that of the one before that, ...
//
//   4 nodes, all is in the block of node 0, in 3 pieces; who sends what:
//
//   time      0   1   2   3   4
//   node 0    a   b   c                  to 1
//   node 1        a   b   c              to 2
//   node 2            a   b   c          to 3
//
// Whatever the lengths are, no link carries more than all blocks, and nobody waits for longer than
// that takes, plus the time of a piece for each hop: a chain of messages that wait for each other
// goes from link to link with one block, or from one block to the next on one link.  (Where blocks
// are so long that they go through the plan chunk by chunk, those hops count for each chunk.)
//
// Inside the nodes, which all have L ranks, there are L rings: the pieces of a block are dealt out
// to the ranks of its node, beginning with its owner, and the k-th ranks of all nodes pass on what
// falls to them.  Who receives a piece tells the others of its node.
//
// Cost, for N nodes of L ranks, m bytes in all: a rank sends at most the pieces of its lane to one
// rank of the next node, about m / L bytes where blocks have L pieces at least, and tells L - 1
// ranks of its own node of as many, which these read where they are.  Two connections, with few
// messages on their way on each: who receives answers every fourth one, and who sends waits for
// the answer before the last.  Slots: one for each piece, and one for each answer.
//
// Two parities suffice: every block has a piece at least, maybe of no bytes, so nobody has all
// before all have entered.
//
// Literature: M. A. Al Ahad, C. Simmendinger, R. Iakymchuk, E. Laure, S. Markidis, "Efficient
// algorithms for collective operations with notified communication in shared windows", PAW-ATM
// 2018, II.A; there pieces are dealt out by bytes, and come out of order.
#pragma once

#include <cstdint>
#include <span>
#include <tutti/types.hpp>

#include "plan/plan.hpp"

namespace tutti::plan {

/// `pieces` of each rank's block, 1 at least; the parts of the plan are the pieces of rank 0's
/// block, then those of rank 1's, ... (Plan::owners).  `node_of`: of each rank, nodes of one size;
/// empty: each rank is a node of its own.  At most slots_max / 2 pieces.
Plan ring_allgather(Rank self, std::span<const std::uint16_t> pieces,
                    std::span<const Node> node_of = {});

}  // namespace tutti::plan
