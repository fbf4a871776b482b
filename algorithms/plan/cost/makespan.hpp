// How long a plan takes on a network of LogGP: the recurrence of its events, which is that of the
// emulated networks, to the picosecond.
//
// Recurrence.  Each rank has a clock, which begins at its start, and two ports, which begin free.
// With b the bytes of a message (payloads x bytes of the part) and p = max(g, b G):
//
//   put       leaves at s = max(clock, transmit port free), which then is free again at s + p;
//             clock += g of a rank
//   arrival   at a = s + o + L + b G at the receiver's port, where messages are served first come
//             first served: delivered at d = max(a, receive port free), which then is free at d + p
//   await     done at once if the message was seen.  If not, the rank polls, at t = the later of
//             its clock and the next delivery, sees all k messages that were delivered by then,
//             and clock = t + k o_r; again, until the awaited one was among them.  So a rank spends
//             o_r on every message, also on those of later rounds, but only while it has to wait
//   combine, take_out   clock += gamma(bytes of the part)
//   copy      free
//
// What happens at one instant is ordered by rank: a poll sees a delivery of the same instant if the
// message is from a lower rank, or if it is the one that ends the waiting; ports serve the lower
// sender first.  The engine takes at most 16 completions a poll, which matters to nobody who has
// fewer messages waiting.  Credits are not modelled: it is one call, begun with all of them.
//
// The times of messages depend on each other only through o + L > 0, so the events are followed in
// the order of time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/core/plan.hpp"
#include "plan/cost/loggp.hpp"
#include "plan/cost/network.hpp"

namespace tutti::plan {

enum class CombineOrder : std::uint8_t {
  as_planned,
  // A run of steps that await a message each and copy or combine it into the same register takes
  // them as they are seen: other bits from call to call, only where the operator commutes.
  as_seen,
};

/// One call of a collective.
struct Call {
  std::uint64_t payload_bytes = 0;
  std::uint32_t element_bytes = 1;           // parts are runs of elements
  std::span<const Picoseconds> starts = {};  // of the ranks; empty: all start at 0
  CombineOrder order = CombineOrder::as_planned;
  bool lines = false;  // what fits goes to other nodes as a line
};

/// When each rank has finished, where each is a node of its own.  Needs the matching plans of ranks
/// 0 .. P-1, starts of all or none, o + L > 0, and whole elements.
std::vector<Picoseconds> completion_times(std::span<const Plan> plans, const LogGP& network,
                                          const Call& call);

/// When the last rank has finished.
Picoseconds makespan(std::span<const Plan> plans, const LogGP& network, const Call& call);

// Nodes of several ranks.  A node has one pair of ports, which its ranks share: puts pass the
// transmit port in the order in which they are begun, messages the receive port in the order in
// which they come.  Inside a node, with b the bytes of a message (8 of a reference, none where the
// node has one target),
//
//   put       clock += o + b G; the message is visible L later
//   await     until the message is visible, then clock += o_r.  Nothing is polled for it, but a
//             rank that waits polls: it spends o_r of the network on each message that has come
//             meanwhile
//   await_credit   clock += o_r
//   copy or combine by reference   clock += what reading the part takes
//
// with the parameters of NodeMemory.  Between nodes, messages may go as lines, which their receiver
// polls in memory (TUTTI_NOTIFY=flag).  A line has room for 56 bytes of payload, and 64 bytes on
// the network, or 8 if it has no payload; longer messages go as ever:
//
//   await     until the line is delivered, then clock += o_r of the network; await_credit as well
//
// What happens at one instant is ordered by rank, here too: the rank's own turn, then its messages
// in the order of its puts.

/// When each rank has finished.  As above, and o + L > 0 also inside a node.  Plans that work on
/// buffers of several chunks or wait until what they sent has left are not modelled.
std::vector<Picoseconds> completion_times(std::span<const Plan> plans, const Network& network,
                                          NodesOfRanks node_of, const Call& call);

/// When the last rank has finished.
Picoseconds makespan(std::span<const Plan> plans, const Network& network, NodesOfRanks node_of,
                     const Call& call);

/// About when, if all nodes do alike at the same times: the events of one node, to whose own ranks
/// comes back what they send to others.  `plans` are those of its ranks, with equally many slots.
/// `place_of` says of every rank which of its node it is; empty: each is a node of its own.  The
/// largest number where the nodes do not do alike, as some rank would wait for ever.
Picoseconds makespan_of_node(std::span<const Plan> plans, const Network& network,
                             NodesOfRanks node_of, std::span<const std::uint32_t> place_of,
                             const Call& call);

}  // namespace tutti::plan
