// Pipelined ring allgather, and two-tree allgather, of blocks that differ in length: they are
// passed on from node to node piece by piece.  A rank that shares its node with no other is a node,
// too.
//
// Idea.  A block that is far longer than the others costs its whole length for each node that its
// owner sends it to (blocks.hpp) or, by dissemination, for each round (block_dissemination.hpp).
// Here it is cut into pieces, and whoever gets a piece passes it on at once.  Along a ring every
// node sends everything once:
//
//   4 nodes, all bytes are in the block of node 0, in 3 pieces a, b, c; what each node sends:
//
//   time      0   1   2   3   4
//   node 0    a   b   c                  to 1
//   node 1        a   b   c              to 2
//   node 2            a   b   c          to 3
//
// Whatever the lengths are, no link carries more than all blocks; but the last piece has up to
// N - 1 hops to go.  Down a binary tree it would have log2 N, but some nodes would send everything
// twice.  With two trees, one for every other piece of a block, each node is a leaf of one of them:
// it sends every other piece twice, the rest not at all.
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
// For every block a node sends to the nodes that are powers of two away, on either side; and to one
// more where the second tree, which stands one node further, goes round past its root.
//
// A timetable says which node sends which piece when (piece_timetable.hpp); every rank draws up the
// same one for itself.
//
// Inside the nodes, which all have L ranks, there are L rings, or pairs of trees: the pieces of a
// block are dealt out to the ranks of its node, beginning with its owner, and the k-th ranks of all
// nodes pass on the pieces of lane k.  The receiver of a piece sends it to the others of its node.
//
// Cost, for N nodes of L ranks, m bytes in all: a rank sends about as many pieces to other nodes as
// its lane has, m / L bytes where blocks have at least L pieces, and as many to each of the L - 1
// others of its node, which read them where they are.  Along a ring a piece takes N - 1 hops, and a
// rank has two connections; in trees it takes log2 N hops, each of which may wait for a piece, and
// a rank has about 2 log2 N connections.  The pieces on each are a stream (core/peer_stream.hpp).
// Slots: one for each piece, and one for each answer.
//
// Two parities suffice: every block has at least one piece, maybe of no bytes, so no rank has all
// of them before all ranks have entered.
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

/// `pieces` holds the number of pieces of each rank's block, at least 1, at most slots_max / 2 in
/// all; the parts of the plan are the pieces of rank 0's block, then those of rank 1's, ...
/// (Plan::owners).  `node_of` holds the node of each rank, nodes of one size; empty: each rank is a
/// node of its own.
Plan piecewise_allgather(Rank self, std::span<const std::uint16_t> pieces, PieceRoute route,
                         std::span<const Node> node_of = {});

}  // namespace tutti::plan
