// Allgather of blocks that differ in length, passed on from node to node piece by piece.  A rank
// alone is a node, too.
//
// Idea.  A block that is far longer than the others takes as long as it is, for each node that its
// owner tells (blocks.hpp) or, by dissemination, for each round (block_dissemination.hpp).  Here it
// is cut into pieces, and who gets a piece passes it on at once.  Along a ring everybody sends
// everything once:
//
//   4 nodes, all is in the block of node 0, in 3 pieces; who sends what:
//
//   time      0   1   2   3   4
//   node 0    a   b   c                  to 1
//   node 1        a   b   c              to 2
//   node 2            a   b   c          to 3
//
// Whatever the lengths are, no link carries more than all blocks; but the last piece has up to N -
// 1 hops to go.  Down a binary tree it would have log2 N, but some nodes would send everything
// twice. In two trees, one for every other piece of a block, each node is a leaf of one: it sends
// every other piece twice, the rest not at all.
//
//   8 nodes, block of node 0; by distance from it
//
//   the last piece but 0, 2, ...              the last piece but 1, 3, ...
//
//                 0 --- 4 --- 2 --- 1                      0 --- 5 --- 3 --- 2
//                       |      `--- 3                            |      `--- 4
//                        `--- 6 --- 5                             `--- 7 --- 6
//                              `--- 7                                   `--- 1
//
// A node tells those that are powers of two away, on either side, whosever block it is; where the
// second tree, which stands one node further, goes round past its root, one more.
//
// Who sends what when is a timetable that every rank draws up for itself, the same for all
// (piece_timetable.hpp).
//
// Inside the nodes, which all have L ranks, there are L rings, or pairs of trees: the pieces of a
// block are dealt out to the ranks of its node, beginning with its owner, and the k-th ranks of all
// nodes pass on what falls to them.  Who receives a piece tells the others of its node.
//
// Cost, for N nodes of L ranks, m bytes in all: a rank sends about as many pieces to other nodes as
// its lane has, m / L bytes where blocks have L pieces at least, and tells L - 1 ranks of its own
// node of as many, which these read where they are.  Along a ring a piece takes N - 1 hops, and
// there are two connections; in trees log2 N hops, each of which may wait for a piece, and about 2
// log2 N connections, to tell and to hear on.  Few messages are on their way on each (windows.hpp).
// Slots: one for each piece, and one for each answer.
//
// Two parities suffice: every block has a piece at least, maybe of no bytes, so nobody has all
// before all have entered.
//
// Literature: M. A. Al Ahad, C. Simmendinger, R. Iakymchuk, E. Laure, S. Markidis, "Efficient
// algorithms for collective operations with notified communication in shared windows", PAW-ATM
// 2018, II.A, for the ring; there pieces are dealt out by bytes, and come out of order.  P.
// Sanders, J. Speck, J. L. Traff, "Two-tree algorithms for full bandwidth broadcast, reduction and
// scan", Parallel Computing 35 (2009), 2, for the trees; there one block goes down trees that are
// numbered for it alone.
#pragma once

#include <cstdint>
#include <span>
#include <tutti/types.hpp>

#include "plan/blocks/piece_timetable.hpp"
#include "plan/core/plan.hpp"

namespace tutti::plan {

/// `pieces` of each rank's block, 1 at least; the parts of the plan are the pieces of rank 0's
/// block, then those of rank 1's, ... (Plan::owners).  `node_of`: of each rank, nodes of one size;
/// empty: each rank is a node of its own.  At most slots_max / 2 pieces.
Plan piecewise_allgather(Rank self, std::span<const std::uint16_t> pieces, PieceRoute route,
                         std::span<const Node> node_of = {});

}  // namespace tutti::plan
