// Multi-lane allreduce in turns, for large payloads of nodes of equally many ranks: the memory of
// the nodes and the network work at the same time, with few messages.
//
// Idea.  A rank is a number with digits: the first one is its place in its node, the others are
// those of its node's number.  The payload goes in turns.  In a turn, the ranks that differ only in
// the first digit cut the turn into one range for each of them.  Each sends the others their ranges
// and sums its own.  Then the ranks that differ only in the second digit do the same within that
// range, and so on.  This is a reduce-scatter, in which every message is one range of the payload.
// In the end each rank has the result of one part; all parts have the same length.  The results go
// back by the same messages, in the opposite order of digits, as an allgather.
//
//   nodes {0 1} {2 3}, a turn of four parts a, b, c, d
//
//            rank 0          1          2          3
//   in       c d ->  <- a b      c d ->  <- a b         0 has a b of its node, 1 has c d
//   across   b ---------------> 2    <- a               0 has a of all ranks, 2 has b
//   back     a ---------------> 2    <- b               0 and 2 have a b, 1 and 3 have c d
//   out      a b ->  <- c d      a b ->  <- c d
//
// Ranks give and take the messages of the reduce-scatter inside a node, and tell and hear those of
// the allgather there.  With D digits a turn has 2 D + 1 stages: the first one gives, the last one
// hears results, each of the others takes the messages of a digit and sends those of the next one.
// At step t a rank runs stage s of turn t - s, for all s, in the order 1, 0, 2, 3 and so on.  What
// a stage awaits was sent one step before, so the stages of other turns lie between.  Stage 1 is
// first because it sends the first messages to other nodes: the port sends them while the rank
// gives its part of the next turn in stage 0, whose stores take long.
//
//   turn 0   0 1 2 3 4          the stages of two digits, over time: each column is a step
//   turn 1     0 1 2 3 4
//   turn 2       0 1 2 3 4
//
// Pieces.  The port is idle until the first turn has been given inside the nodes, and the last turn
// ends only when its results have been distributed inside the nodes.  Both delays grow with the
// length of a turn.  More turns shorten them, but then messages between nodes become so short that
// their fixed cost dominates.  So a turn may be given and told in a few pieces, by the value of the
// second digit: a piece goes across while the next one is given, and is told while the next one
// comes.  With pieces, each step handles one piece.  At step t a rank gives and takes piece t,
// counted through all turns, and runs the other stages of pieces before it, each a step after the
// one that sent what it awaits: first those across, and last those that tell and hear.  Results
// also cross piece by piece; otherwise the port would send all results of one rank first, and the
// other ranks of the node would distribute theirs late.  The cost of a further piece is its
// additional messages in shared memory.
//
// Exchanges.  A port is busy for a gap however short a message is, and the messages of the last
// digits are the shortest.  In an exchange, the ranks that differ in a digit send each other their
// whole ranges, and each of them sums them all, in the order of the digit.  So the range is not cut
// by that digit, nothing comes back in it, and there are half as many messages, longer ones: of two
// ranks as many bytes together, of n + 1 ranks (n + 1) / 2 times as many.  The digits that are
// exchanged are the last ones.  A turn has a stage less for each exchange.
//
// Cost, for N nodes of L ranks, K turns of Q pieces, n_i messages in the i-th round across (N is
// the product of n_i + 1), payload B: per rank 2 K Q (L - 1) messages in memory, of 2 (L - 1) / L B
// together, and 2 K (n_1 + n_2 + ..) across, of 2 (N - 1) / N B / L: no schedule sends less.  In a
// round that exchanges, the messages across are K n_i instead of 2 K n_i, each of them n_i + 1
// times as long, and twice that if the round before exchanges two ranks' ranges.  Slots: as many as
// messages.
// Partials: K (L + 1), and K for each exchange after the first.  A partial or a slot holds B / (K
// L) bytes, a range of the first digit.  Slots for messages between nodes hold only a range of the
// second digit.  With several pieces, every slot holds one piece.
//
// Two sets of slots, used by alternate calls, suffice: no rank can finish a call before every rank
// has contributed to it, so no rank is ahead by more than one call.  Results are equal on all
// ranks, bit by bit, because one rank computes each part, or those that exchange it compute it from
// the same sums in the same order.  The operator has to commute.
//
// Literature: reduce-scatter and allgather along the dimensions of a torus as in E. Chan,
// M. Heimlich, A. Purkayastha, R. van de Geijn, "Collective communication: theory, practice, and
// experience", 2007; lanes as in J. L. Traff, S. Hunold, "Decomposing collectives for exploiting
// multi-lane communication", CLUSTER 2020; stages of several parts at a time as in V. Tipparaju,
// J. Nieplocha, D. Panda, "Fast collective operations using shared and remote memory access
// protocols on clusters", IPDPS 2003.
#pragma once

#include <cstdint>
#include <span>
#include <tutti/types.hpp>

#include "plan/core/nodes.hpp"
#include "plan/core/per_round.hpp"
#include "plan/core/plan.hpp"
#include "plan/cost/network.hpp"

namespace tutti::plan {

struct LaneTurns {
  std::uint32_t rank_count = 1;
  std::span<const Node> node_of = {};  // of each rank
  PerRound per_round = {};             // messages of each round across the nodes
  std::uint32_t turns = 1;
  std::uint32_t pieces = 1;     // of a turn inside the nodes
  std::uint32_t exchanges = 0;  // the last rounds, in which ranks exchange their whole ranges
};

/// What a plan takes, the same on all ranks.
struct LaneTurnsExtent {
  std::uint64_t parts =
      0;  // of the payload: one in each turn of each rank, or of ranks that exchange
  std::uint64_t payloads = 0;
  std::uint64_t slots = 0;
  /// Slots that hold less than a range of the first digit: those between nodes, or all slots when
  /// there are several pieces.
  std::uint64_t short_slots = 0;
  std::uint64_t short_payloads = 0;
  std::uint64_t partials = 0;
};

/// Whether there is such a plan for the shape, whose nodes have these `counts`.  It needs several
/// nodes of several ranks each, as many on each; the product of (messages + 1) over the rounds has
/// to equal the number of nodes; there are fewer exchanges than rounds, and at most as many pieces
/// as the second digit has values; and the numbers of parts, slots and partials have to fit into a
/// plan's fields.
bool is_lane_turns(const LaneTurns& shape, const NodeCounts& counts);

/// Needs is_lane_turns(shape), as the following do.
LaneTurnsExtent lane_turns_extent(const LaneTurns& shape, const NodeCounts& counts);

/// Allreduce of `self`, named "lanes/turns".
Plan lane_turns_allreduce(Rank self, const LaneTurns& shape);

/// An estimate of the time of one call.  It follows the events of one rank, and assumes that all
/// ranks do the same at the same time, and that the ranks of a node share its port and take turns
/// to send one message each.
Picoseconds lane_turns_time(const LaneTurns& shape, const NodeCounts& counts,
                            const Network& network, std::uint64_t payload_bytes);

/// A quick estimate, to sort shapes by: port, memory, or the latencies of all steps, whichever
/// takes longest; but a port begins when the first piece has been given, and memory pauses while
/// there are fewer pieces than stages.
Picoseconds lane_turns_estimate(const LaneTurns& shape, const NodeCounts& counts,
                                const Network& network, std::uint64_t payload_bytes);

}  // namespace tutti::plan
