// Binomial gather and scatter over nodes: the root is connected with few of many nodes.
//
// Idea.  One rank of each node, its head (core/node_shares.hpp), passes on the blocks of its node
// and of the nodes below it.  Nodes are counted around from the root's.  The head of node lo stands
// for the nodes lo .. hi-1: the later half of them is a child, then the later half of what is left,
// until lo alone is left.  Every block is a message of its own, passed on as soon as it is there,
// so that blocks may be long, and of several lengths.
//
//   gather, 6 nodes of one rank, root 0:   0 <- 1             0 receives from ceil(log2 N):
//                                          0 <- 2             1, 2, 3, 4, 5 in this order
//                                          0 <- 3 <- 4
//                                               3 <- 5
//
// The root's port carries the P - L blocks that it gets or sends anyway; each is copied once at
// every head on its way.  There are at most floor(log2 N) hops between nodes, and one inside.  The
// head of a gather passes on the i-th block of each of its children before the next one of any; a
// scatter does so in reverse.
//
// The flow is one-way, with a credit for each edge of the tree: a sender can be two calls ahead of
// its receiver, so the root of a scatter, or the last rank of a gather, can be twice the depth
// ahead, 2 floor(log2 N) + 2.  Between two ranks blocks are a stream (core/peer_stream.hpp), so
// that a few receives suffice for any number of them.
//
// Slots: one for each block, and a line for each, which tells its sender that it was taken.
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

/// `node_of` holds the node of each rank; empty: each rank is a node of its own.  Need
/// is_block_exchange(rank_count) (blocks.hpp).
Plan tree_gather(Rank self, std::uint32_t rank_count, std::span<const Node> node_of, Rank root);
Plan tree_scatter(Rank self, std::uint32_t rank_count, std::span<const Node> node_of, Rank root);

}  // namespace tutti::plan
