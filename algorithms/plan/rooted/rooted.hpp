// Broadcast and reduce along a tree (rooted_tree.hpp; in the picture all fans are 1), and along a
// pipelined chain.
//
// Flow control.  One-way: the root of a broadcast and a leaf of a reduce finish without waiting for
// anybody.  So each message has a credit: its receiver gives it after reading, and its sender waits
// for it two calls later, before it touches the partial that it sent.
//
//   broadcast, P = 4, root 0          reduce, P = 4, root 0
//
//   call    rank 0   1   2   3        rank 0   1   2   3
//   round 0      x------->|               |<--x   |<--x
//   round 1      x-->|    x-->|           |<------x
//   then         |<--c    |<--c           c-->|   c-->|
//                |<-------c               c------>|          c: credit, awaited in call + 2
//
// A representative may send to the other ranks of its node in one round: that is one hop instead of
// several, and a payload that stays where it was sent from is copied there once.
//
// Where the ranks of a node share one target (plan.hpp, "Shared target"), the payload is not passed
// on inside the nodes.  The representative writes it there once, or the user has written it there
// on the root, and the tree of the node carries notifications: first each rank tells its parent
// that it and the ranks below it have entered, and no longer read the last result; then each parent
// tells its children that the payload is there.  These entries stand for credits.
//
//   nodes {0 1} {2 3}, root 0          0 --> 2: payload      1 --> 0, 3 --> 2: entered
//                                                            0 --> 1, 2 --> 3: it is there
//
// Along a chain of the nodes (TreeFans::is_chain) the payload goes in 4 pieces, each of which is
// passed on or combined as soon as it is there.  So while one piece passes through all nodes, the
// next ones follow, and every node sends every byte once instead of log N times.  Long payloads go
// in chunks of 4 short pieces, of which two are on their way between two ranks.  A round is a
// piece.
//
//   broadcast, P = 4, root 0            0 --> 1 --> 2 --> 3
//
//   piece 0        at rank    0: sent   1     2     3
//   piece 1                         0: sent   1     2     3
//
// A broadcast along a tree of one level may cut the payload, too (RootedShape::pieces).  Each piece
// has a slot and a partial of its own, so that ranks copy one while the root writes the next.  One
// credit stands for all pieces.
//
// Rounds: the levels of the tree, inside and across nodes.  Messages: P - 1 of one payload and as
// many credits; a rank sends at most as many in a round as the fan of its level says.  Scratch,
// with F the sum of the fans: broadcast one partial and one slot, F credits; reduce F slots and one
// partial (in rank order up to F and one); credits a line each.  A chain has F = 1, four times that
// of pieces, and takes (N - 1) hops of a piece and the time of all bytes, where a tree takes log N
// times the latter.
//
// Literature: M. A. Al Ahad, C. Simmendinger, R. Iakymchuk, E. Laure, S. Markidis, "Efficient
// algorithms for collective operations with notified communication in shared windows", PAW-ATM
// 2018, II.A.9 (results that stay in the memory of the node); J. L. Traff, A. Ripke, "Optimal
// broadcast for fully connected processor-node networks", JPDC 68 (7), 2008, 2 (linear pipeline);
// trees: rooted_tree.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <tutti/types.hpp>

#include "plan/core/plan.hpp"
#include "plan/rooted/rooted_tree.hpp"

namespace tutti::plan {

struct RootedShape {
  Rank root{0};
  std::uint32_t rank_count = 1;
  std::span<const Node> node_of = {};  // of each rank; empty: each rank is a node of its own
  TreeFans fans = {};                  // with ones everywhere, trees are binomial
  Target target = Target::of_rank;     // of a broadcast
  std::uint16_t pieces = 1;            // of a broadcast; above 1: fans are flat
};

/// The root's source gets into all other targets; the root's target is not touched.  If targets are
/// those of nodes, the root's source has to be that of its node.
Plan tree_broadcast(Rank self, const RootedShape& shape);

/// The root's target gets the sources of all ranks.
///   commutative:  along the tree from the root, combined in the order of the tree;
///   rank_order:   along a tree from rank 0, which combines 0 o 1 o ... o P-1, and one round more
///                 to the root if that is another rank.  Nodes count only if they are runs of
///                 ranks. Without nodes the expression is that of the canonical tree
///                 (allreduce/canonical_tree.hpp), which makes it reproducible.
Plan tree_reduce(Rank self, const RootedShape& shape, Order order);

/// tree_reduce() of the first `participant_count` ranks, counted from the root on and round the
/// end; the other ranks have nothing to do.  (The literature rounds the number up to whole levels
/// of the tree, which a tree over these ranks alone does not need.)
Plan tree_reduce_of(std::uint32_t participant_count, Rank self, const RootedShape& shape,
                    Order order);

}  // namespace tutti::plan
