// Allgather by dissemination (Bruck): every block travels by itself from node to node, and from
// there through the memory of the node.  A rank that shares its node with no other is a node, too.
//
// Idea.  The nodes stand in a circle.  A node that holds the blocks of the m nodes up to itself
// sends them to the r nodes at distances m, 2 m, .. r m ahead, which then hold (r + 1) m; so a
// vector of messages per round covers N nodes as any dissemination does (two_partial.hpp), with
// sum(n_i) peers instead of N - 1.  One round of N - 1 is the direct exchange.  Every block is one
// message, which is passed on as soon as it is there: nobody waits until a round is complete.
//
//   N = 5, n = 1, node 4 sends to the node 1 ahead, then 2, then 4 ahead; what it holds:
//
//   nodes             0   1   2   3   4
//   round 0, m = 1    .   .   .   3   own     its own to 0           3 from 3
//   round 1, m = 2    .   1   2   3   own     its own, then 3, to 1  2, then 1 from 2
//   round 2, m = 4    0   1   2   3   own     its own to 3           0 from 0
//
// The block that has come latest is sent last.  A block that would come twice (here all but the own
// one in the last round) is not sent.  What a rank knows before it has to wait goes first.
//
// Where nodes have one size, the blocks from one rank to another in a round are a stream
// (core/peer_stream.hpp), so that a rank finds at most three windows of a peer and call waiting,
// and needs receives for no more.
//
// Inside the nodes.  A block has one holder in each node (core/node_shares.hpp), which receives it,
// passes it on and sends it to the others of its node.  So nodes of L ranks share the work evenly.
//
//   nodes {0 1} {2 3 4}: blocks on their way into the second node, and in it
//
//           rank 0     1          2     3     4
//                0 -------------> 0 --> 0 --> 0
//                      1 -------> 1 <-- 1 --> 1
//
// Where the ranks of a node share one target (core/plan.hpp, "Shared target"), the holder of a
// block writes it there, and tells the others of its node.  Before that, each rank has told them
// that it has entered, and no longer reads the last result.  What goes to other nodes does not wait
// for them.  In a single node each rank copies its own block, and no payload needs a slot.
//
// Cost, for N nodes of L ranks each, blocks of B bytes: K rounds, and one more in memory.  A rank
// sends N - 1 blocks to sum(n_i) ranks of other nodes, receives as many from as many, and sends N
// blocks to each of the L - 1 others of its node, which read them where they are.  Where nodes
// differ in size, ranks of smaller nodes receive more, and have up to ceil(largest / own) partners
// in a node.  Slots: one for each rank; partials: the m of the last round, where nodes are shared
// N.
//
// Two parities suffice, because no rank has all blocks before all ranks have entered.
//
// Literature: J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby, "Efficient algorithms for
// all-to-all communications in multiport message-passing systems", IEEE TPDS 8 (11), 1997, whose
// concatenation sends all that a rank holds as one message; here blocks go one by one, so that they
// may be long, and of several lengths.  The work of a node is dealt out to its ranks as in
// M. A. Al Ahad, C. Simmendinger, R. Iakymchuk, E. Laure, S. Markidis, "Efficient algorithms for
// collective operations with notified communication in shared windows", PAW-ATM 2018, II.A, which
// balances bytes and passes them along a ring of the nodes; II.A.9 there leaves the result in the
// memory of the node.
#pragma once

#include <cstdint>
#include <span>
#include <tutti/types.hpp>

#include "plan/core/per_round.hpp"
#include "plan/core/plan.hpp"

namespace tutti::plan {

/// `node_of` holds the node of each rank; empty: each rank is a node of its own.  Needs
/// is_block_exchange(rank_count) (blocks.hpp) and a vector that covers the nodes.
Plan dissemination_allgather(Rank self, std::uint32_t rank_count, const PerRound& per_round,
                             std::span<const Node> node_of = {}, Target target = Target::of_rank);

}  // namespace tutti::plan
