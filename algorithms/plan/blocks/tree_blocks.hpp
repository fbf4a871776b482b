// Gather and scatter along a binomial tree over nodes: where there are many of them, the root is
// connected with few.
//
// Idea.  One rank of each node, its head, passes on the blocks of its node and of the nodes below
// it: the root is the head of its own node, the lowest rank that of any other.  Of N nodes, counted
// around from the root's, the head of nodes lo .. hi-1 is that of lo; the later half of them is a
// child of it, so is the later half of what is left, until lo is.  Every block is a message of its
// own, passed on as soon as it is there, so that blocks may be long, and of several lengths.
//
//   gather, 6 nodes of one rank, root 0:   0 <- 1             0 hears from ceil(log2 N) others:
//                                          0 <- 2             1, 2, 3, 4, 5 in this order
//                                          0 <- 3 <- 4
//                                               3 <- 5
//
// Through the root's port go the P - L blocks that it gets or sends anyway, each copied once at
// every head on its way; there are floor(log2 N) hops between nodes at most, and one inside.  A
// head passes on the i-th block of each of its children before the next one of any, in a scatter
// the other way round.
//
// One-way, with a credit for each edge of the tree: whoever sends can be two calls ahead of whom it
// tells, so the root of a scatter, or the last rank of a gather, twice the depth, 2 floor(log2 N) +
// 2.  Between nodes blocks go in windows, with an answer for each window but the last ones, so that
// few receives will do for any number of them.
//
// Slots: of each block, and a line for each, in which whoever has sent it hears that it was taken.
//
// Literature: binomial scatter as in R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of
// collective communication operations in MPICH", IJHPCA 19 (1), 2005; there what a child gets is
// one message.
#pragma once

#include <cstdint>
#include <span>
#include <tutti/types.hpp>

#include "plan/core/plan.hpp"

namespace tutti::plan {

/// `node_of`: of each rank; empty: each is a node of its own.  For is_block_exchange() of the ranks
/// (blocks.hpp).
Plan tree_gather(Rank self, std::uint32_t rank_count, std::span<const Node> node_of, Rank root);
Plan tree_scatter(Rank self, std::uint32_t rank_count, std::span<const Node> node_of, Rank root);

}  // namespace tutti::plan
