// Hierarchical (leader) and multi-lane allreduce and barrier, multi-lane broadcast and reduce, for
// nodes whose ranks share memory, in three stages: inside the nodes to few ranks, across the nodes
// between these, and back.
//
// Idea.  The payload is cut into as many parts as there are lanes.  The k-th rank of a node, in
// rank order, is its rank of lane k: it combines part k of all ranks of its node (in), takes part
// in an allreduce of that part with the ranks of lane k of the other nodes (across, any schedule of
// as many ranks as there are nodes), and sends the result to its node (out).  With one lane a node
// has a leader, which alone uses the network; with as many lanes as ranks, all of them combine and
// send alike.
//
//   nodes {0 1 2} {3 4}, two lanes (a, b: parts)
//
//           rank 0         1         2       |   3         4
//   in         a <-a------ . -----a- .       |   a <-a---- .
//              . -b------> b <----b- .       |   . ----b-> b
//   across     a <-------------------------> |   a                  lane 0
//              .           b <-------------> |   .         b        lane 1
//   out        a --a-----> .   --a-> .       |   a --a---> .
//              . <------b- b ---b--> .       |   . <----b- b
//
// The schedule across may cut the part of a lane again, into Q pieces, as `circulant` does.  A
// piece is then combined in the node right before the schedule needs it, while the next one is
// given, and its result goes to the node as soon as it is there: network and memory work at the
// same time, as in the pipelined protocols of Tipparaju, Nieplocha, Panda (below).  There are Q
// times the messages inside a node, of a Q-th of the bytes each.
//
// Cost, for L ranks in the largest node, Z lanes, payload B: two rounds more than the schedule
// across, none more if each rank is a node of its own.  Messages inside a node: 2 Z (L - 1), of B /
// Z bytes; per node across: Z times those of a rank of the schedule, of B / Z bytes.  A rank that
// is of no lane has no partner on another node.  Scratch: L - 1 + Z slots and Z + 2 partials
// besides those of the schedule across, all of B / Z bytes, times the payloads of its messages.
//
// Two ranks of a node answer each other (plan.hpp): the result of a part goes back into the partial
// that its contribution was sent from, whose lines its reader has in its cache.
//
// All ranks of a node get what its rank of the lane has: results are equal on all ranks, bit by
// bit, if the schedule across makes them so.  Rank order is kept if each node's ranks follow each
// other and the schedule across keeps it.  Two parities suffice: no rank leaves before all have
// entered, because that holds across, and results inside a node wait for it.
//
// Domains, parts of a node such as the ranks that share a cache, may stand for nodes: they meet
// first, and the schedule across them is one with leaders of nodes.  Then only one cache line for
// each domain crosses between caches instead of one for each rank, for one hop more in and out:
//
//   {0 1 2} {3 4 5} of a node, {6 7} of another     0 <- 1 2   3 <- 4 5     6 <- 7      domains
//                                                   0 <- 3                  6           leader
//                                                   0 <-------------------> 6           across
//
// Broadcast and reduce.  Of a broadcast only the root gives: its parts, to the ranks of its node
// that have a lane, which broadcast them to the ranks of their lanes; then these send them to their
// nodes, as above.  Of a reduce only the root gets results, from the ranks of its node.  Across,
// any broadcast or reduce of the nodes that is one-way (rooted/rooted.hpp) or in pieces; its
// credits are its own, and in a node each receiver gives a sender one credit for all messages of a
// call.  Messages inside the root's node: Z - 1 and Z (L - 1); of a broadcast Z (L - 1) in others,
// of a reduce, too.
//
// Literature: leaders as in V. Tipparaju, J. Nieplocha, D. Panda, "Fast collective operations using
// shared and remote memory access protocols on clusters", IPDPS 2003; lanes as in J. L. Traff,
// S. Hunold, "Decomposing collectives for exploiting multi-lane communication", CLUSTER 2020.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <tutti/types.hpp>

#include "plan/core/nodes.hpp"
#include "plan/core/plan.hpp"

namespace tutti::plan {

struct LaneShape {
  std::uint32_t rank_count = 1;
  std::span<const Node> node_of = {};  // of each rank; empty: each rank is a node of its own
  std::uint32_t lane_count = 1;
  std::uint32_t pieces = 1;         // into which the schedule across cuts the part of a lane
  const char* one_lane = "leader";  // the word for a single lane in the plan's name
};

/// Makes the schedule across the nodes: the plan of node number `self`, as a rank, of `node_count`.
using PlanAcross = std::function<Plan(Rank self, std::uint32_t node_count)>;

/// The most lanes that there can be: the number of ranks of the smallest node.
std::uint32_t lanes_max(std::uint32_t rank_count, std::span<const Node> node_of);

/// Whether slots and parts suffice for the shape, besides those of the schedule across.  `counts`:
/// those of its nodes, if they are known.
bool is_lane_shape(const LaneShape& shape);
bool is_lane_shape(const LaneShape& shape, const NodeCounts& counts);

/// Allreduce of `self`, named by ranks that take part and the schedule across, as in
/// "leader/recursive_multiplying"; that schedule if each rank is a node of its own.  Needs
/// is_lane_shape(shape), and with Order::rank_order nodes_are_runs(). With several lanes, `across`
/// has registers of one payload.
/// With Target::of_node the ranks of a node have one target, which nobody copies to another.  Two
/// ranks of one node then combine in it, where the order permits, and have a partial less.
Plan lanes_allreduce(Rank self, const LaneShape& shape, Order order, const PlanAcross& across,
                     Target target = Target::of_rank);

/// Broadcast from and reduce to `root`, named as in "lanes/fibonacci_tree".  `across` is one from
/// or to the root's node; needs is_lane_shape(shape), and with Order::rank_order nodes_are_runs().
/// In a single node nothing goes across; a reduce in lanes of all ranks, or of all but the root,
/// needs no credits.
Plan lanes_broadcast(Rank self, Rank root, const LaneShape& shape, const PlanAcross& across);
Plan lanes_reduce(Rank self, Rank root, const LaneShape& shape, Order order,
                  const PlanAcross& across);

/// Barrier of `self`, in one lane; `across` is a barrier, too.
Plan leader_barrier(Rank self, const LaneShape& shape, const PlanAcross& across);

}  // namespace tutti::plan
