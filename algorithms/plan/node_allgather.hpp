// Allgather between nodes whose ranks share memory: every block goes once to every other node, and
// from there through memory.
//
// Idea.  Who receives the blocks of another node's ranks in a node is dealt out: the k-th rank
// there (in rank order) sends to the k-th one here, counted modulo their number, which tells the
// others of its node.  So nodes of M ranks each share the work evenly, and it takes a rank N - 1
// partners on the N - 1 other nodes instead of P - M.
//
//   nodes {0 1} {2 3 4}: blocks on their way into the second node, and in it
//
//           rank 0     1          2     3     4
//                0 -------------> 0 --> 0 --> 0
//                      1 -------> 1 <-- 1 --> 1
//
// Cost, for N nodes of M ranks each, blocks of B bytes (where nodes differ, ranks of the smaller
// ones receive more): two rounds.  A rank sends N - 1 blocks to other nodes and tells M - 1 ranks
// of its own node of N blocks, which these read where they are.  Slots: one for each rank;
// partials: N.  Two parities suffice: nobody leaves before all have entered.
//
// Literature: the work of a node is dealt out to its ranks as in M. A. Al Ahad, C. Simmendinger,
// R. Iakymchuk, E. Laure, S. Markidis, "Efficient algorithms for collective operations with
// notified communication in shared windows", PAW-ATM 2018, II.A, which balances bytes and
// passes them along a ring of the nodes; here whole blocks go directly, in one hop between nodes.
#pragma once

#include <span>
#include <tutti/types.hpp>

#include "plan/plan.hpp"

namespace tutti::plan {

/// `node_of`: of each rank.  For is_block_exchange(node_of.size()) (blocks.hpp).
Plan node_allgather(Rank self, std::span<const Node> node_of);

}  // namespace tutti::plan
