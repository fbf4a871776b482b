// A plan is everything one rank does for one collective, as a value: whom to tell what, whom to
// await, and what to combine in which order.  It knows neither sizes nor devices; a register is
// "one payload", whatever the engine makes of that.
//
// Registers.  `source` and `target` are the user's buffers.  `partial` registers are sendable
// (the engine keeps two copies of each, by call parity).  `slot` registers are written by peers,
// one message each, also in two copies.  Every partial and slot consists of `payloads` payloads
// side by side: 0 for a barrier, 1 as a rule, more where values travel that may not be combined
// yet: the two sides of the seam between rank P-1 and rank 0 for an operator that is not
// commutative, blocks of a fixed tree, or contributions as they are.
//
// Parts.  Most plans work on whole payloads.  A plan of N parts cuts the payload into N runs of
// elements, as even as can be, the longer ones first; a step works on one of them, and each payload
// of a partial or slot has room for one.  Several payloads of a message or copy are several parts,
// each as long as the longest, but for the last one, whose part is that of the step.
//
// Blocks.  Where every rank has something else for each rank, or gets something else from each, the
// parts are blocks, one for each rank: block p of a target is from rank p, block p of a source for
// rank p.  Where a plan `swaps` blocks, part p of the source of rank q is part p on its way, too,
// and part q in the target of rank p; if any is forwarded, all have one length.  If none is
// swapped, a long block may be several parts.
//
// By reference.  Inside a node a payload may stay in the user's buffer: a put by reference tells
// its peer where source or target lies, a copy by reference reads the payload there.  A combine by
// reference does not read `into`: into = what was told of o source, for operators that commute.
// Until the reader has said that it is done, the sender neither writes there nor completes.
//
// Zero copy.  Where the buffers of all ranks are registered memory, a put may send from source or
// target, and a put `into target` lands in the same part of the peer's target: its slot has the
// notification alone.  Its value must hold the peer's contribution, so that the peer has entered
// the call.  What is sent from the target may not have left when all has arrived: the plan awaits
// that.
//
// Where the ranks of a node share one target, what one of them has written there is told by a put
// from target into target, which moves nothing.
//
// Answers.  A message may have its room in a partial of its receiver instead of in a slot: in one
// that the receiver has sent to the rank that answers, and to no other, and does not use any more.
// The rank that answers has read that message before.  Inside a node a sent partial is read where
// it is; the answer then goes into cache lines that its writer has just read, and does not have to
// take others from the receiver's cache.  Elsewhere an answer is a message as any other.
//
// Slots are numbered alike on all ranks, and each is written by exactly one peer, once per call:
// the notification of a message is its slot number.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <tutti/types.hpp>
#include <vector>

namespace tutti::plan {

enum class Place : std::uint8_t { source, target, partial, slot };

/// One payload-sized register.
struct Register {
  Place place = Place::source;
  std::uint16_t payload = 0;  // of a partial or slot
  std::uint16_t index = 0;    // which partial or slot
  friend bool operator==(const Register&, const Register&) = default;
};

enum class Action : std::uint8_t {
  put,           // send `payloads`, the first of which is `from`, into slot `slot` of `peer`,
                 // from its payload 0 on, with notification `slot`
  await,         // until notification `slot` has arrived from `peer`
  await_credit,  // until notification `slot` of two calls before has arrived from `peer`, which
                 // then no longer reads what it was sent in that call; in the first two calls:
                 // nothing
  await_sent,    // until what was put from the target to `peer` has left; of a payload in chunks
                 // in the last one
  copy,          // into = from, `payloads` side by side
  combine,       // into = from o into: `from` holds lower ranks and is the left operand
  take_out,      // into = into without from, by the operator's inverse
};

/// What makes sure that nobody writes into a slot that is still being read.
enum class FlowControl : std::uint8_t {
  synchronising,  // completing a call needs every rank to have entered it: two copies of
                  // everything, by call parity, suffice without acknowledgements
  acknowledged,   // whoever puts to a peer hears from that peer in the same call: the two are never
                  // more than a call apart, so two copies suffice for what they share
  one_way,        // some rank can run ahead of another: who has read a message says so by a put
                  // without payload (the credit), for which its sender waits two calls later
};

/// Where the users' buffers lie, on all ranks.
enum class Buffers : std::uint8_t {
  anywhere,
  registered,  // peers may write there, and the network may read there
};

/// Whose target it is.
enum class Target : std::uint8_t { of_rank, of_node };

/// In which order the operands of a result are combined.
enum class Order : std::uint8_t {
  commutative,  // in a rotated order, arrivals perhaps as they come
  rank_order,   // 0 o 1 o ... o P-1 on every rank, however it is associated
};

struct Step {
  Action action = Action::copy;
  std::uint16_t payloads = 0;  // that a put sends, an await receives or a copy copies
  std::uint16_t slot = 0;      // of a put (at the peer), an await or await_credit (here)
  std::uint16_t part = 0;      // of the payload
  bool by_reference = false;   // of a put, an await, a copy or combine from a slot; one payload
  bool into_target = false;    // of a put or an await; see "Zero copy"
  bool forwards = false;       // of a put of a block that has come from another rank
  std::uint32_t round = 0;     // for people: counted from 0
  Rank peer = no_rank;         // of a put, await or await_credit, or whose memory is read
  Register from = {};          // of a put, copy, combine or take_out
  Register into = {};          // of a copy, combine or take_out
};

/// See "Answers": on every rank that awaits `slot`, it has the room of `partial`.
struct Answer {
  std::uint16_t slot = 0;
  std::uint16_t partial = 0;
};

struct Plan {
  Rank self{0};
  std::uint32_t rank_count = 1;
  std::string algorithm;                 // literature name
  std::vector<std::uint32_t> per_round;  // messages of each round, as executed
  std::uint32_t n = 0;    // of schedules with one n for all rounds, which per_round may not tell
  bool all_alike = true;  // every rank sends exactly per_round, and awaits as many, maybe in later
                          // rounds; if not, none sends more
  FlowControl flow_control = FlowControl::synchronising;
  std::uint16_t parts = 1;        // of the payload
  std::vector<Rank> owners = {};  // of blocks in pieces: whose block each part is of; empty: part p
                                  // is the block of rank p
  bool is_pipeline = false;       // parts pass through rank after rank: better many short ones
  bool zero_copy = false;         // source and target stand in for registers
  bool swaps_blocks = false;      // block p of rank q becomes block q of rank p
  std::uint16_t payloads = 1;     // payloads (of one part) in each partial and slot
  bool shares_target = false;     // of the ranks of a node: it is the same memory
  std::uint32_t incoming_max = 0;  // messages of one peer that can be on their way to this rank at
                                   // once; 0: as many as it sends in two calls
  std::uint32_t takes_out = 0;     // contributions, the own one and those before it, that the last
                                   // round brings a second time and the result is without
  std::uint16_t partial_count = 0;
  std::uint16_t slot_count = 0;
  std::uint16_t line_slot_count = 0;  // of these, the last ones: they have room for no payload, but
                                      // for the notification, a credit, or a reference
  std::vector<Answer> answers = {};   // the same on all ranks
  std::vector<Step> steps;
};

/// The answer that comes into a slot, if that is one.
inline const Answer* answer_in(const Plan& plan, std::uint16_t slot) noexcept {
  for (const Answer& answer : plan.answers)
    if (answer.slot == slot) return &answer;
  return nullptr;
}

/// Whether payloads stay in the users' buffers.
inline bool is_by_reference(const Plan& plan) noexcept {
  return std::any_of(plan.steps.begin(), plan.steps.end(),
                     [](const Step& step) { return step.by_reference; });
}

}  // namespace tutti::plan
