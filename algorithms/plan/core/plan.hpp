// A plan is everything that one rank does for one collective, as a value: which messages it sends
// and awaits, and what it combines in which order.  It knows neither sizes nor devices.
//
// Registers.  `source` and `target` are the user's buffers.  A `partial` can be sent; the engine
// keeps two copies of each, by call parity.  A `slot` is written by a peer, one message each, and
// has two copies as well.  Every partial and slot has room for as many payloads side by side as
// Plan::payloads says: 0 for a barrier, 1 as a rule, more where values travel that may not be
// combined yet: the two sides of the seam between rank P-1 and rank 0 for an operator that does not
// commute, blocks of a fixed tree, or contributions as they are.  Slots for messages that are much
// shorter than the longest one of the plan may have room for fewer payloads: Plan::short_payloads.
//
// Parts.  Most plans work on the user's payload as a whole.  A plan of N parts cuts it into N runs
// of elements, as even as can be, the longer ones first.  A step works on one part, and a register
// has room for one part in each of its payloads.  A message or copy of several payloads carries
// several parts: the last one is the part of the step, the others are as long as the longest part.
//
// Blocks.  Where every rank sends something else to each rank, or gets something else from each,
// the parts are blocks, one for each rank: block p of a target is from rank p, block p of a source
// is for rank p.  Where a plan `swaps` blocks, part p of the source of rank q keeps the number p on
// its way and becomes part q in the target of rank p; if blocks are forwarded then, all have one
// length.  Where a plan does not swap blocks, a long block may be several parts.
//
// By reference.  Inside a node a payload may stay in the user's buffer, or in a partial: a put by
// reference tells its peer where the source, target or partial lies, and a copy by reference reads
// the payload there.  A combine by reference does not read `into`: into = referenced payload o
// source, for operators that commute; unless it `grows`: into = referenced payload o into.  Until
// the reader has acknowledged, the sender neither writes there nor completes.
//
// Zero copy.  Where the buffers of all ranks are registered memory, a put may send from source or
// target, and a put `into target` lands in the same part of the peer's target: its slot gets the
// notification alone.  The value that is put there must hold the peer's contribution, which proves
// that the peer has entered the call; or the peer has told by an entry (below) that it has.  What
// is sent from the target may still be on its way when everything has arrived, so the plan awaits
// that it has left.  So does an acknowledged plan for what it sends from the source.
//
// Shared target.  Where the ranks of a node share one target, a put from target into target moves
// nothing: it tells the others that this rank has written there.  So does a put from source into
// target, of a rank whose source is that target, where its user has written the payload.  Others of
// the node may still read the result of the call before, until they enter: whoever writes the
// target has heard from all that it tells, from their contributions or by an entry.  An entry is a
// put into target of no payload, which says that its sender has entered, and that its target may be
// written.
//
// Answers.  A message may be received in a partial instead of a slot: a partial that its receiver
// has sent to the answering rank, and to no other, and does not use any more.  The answering rank
// has read that message before.  Inside a node a sent partial is read where it is; the answer then
// goes into cache lines that its writer has just read, and does not take others from the receiver's
// cache.  Elsewhere an answer is a message as any other.
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

/// Room for one payload.
struct Register {
  Place place = Place::source;
  std::uint16_t payload = 0;  // which of those side by side in a partial or slot
  std::uint16_t index = 0;    // which partial or slot
  friend bool operator==(const Register&, const Register&) = default;
};

enum class Action : std::uint8_t {
  put,           // send `payloads`, the first of which is `from`, into slot `slot` of `peer`,
                 // from its payload 0 on, with notification `slot`
  await,         // wait until notification `slot` has arrived from `peer`
  await_credit,  // wait until notification `slot` of two calls before has arrived from `peer`,
                 // which then no longer reads what it was sent in that call; the first two calls
                 // do not wait
  await_sent,    // wait until what was put from the target to `peer` has left, and what was put
                 // from the source if the plan is acknowledged; where a payload goes in chunks,
                 // only the last one waits
  copy,          // into = from, `payloads` side by side
  combine,       // into = from o into: `from` holds lower ranks and is the left operand
  take_out,      // into = into without from, by the operator's inverse
};

/// Why nobody writes into a slot that is still being read.
enum class FlowControl : std::uint8_t {
  synchronising,  // completing a call needs every rank to have entered it: two copies of
                  // everything, by call parity, suffice without acknowledgements
  acknowledged,   // whoever puts to a peer receives from that peer in the same call: the two are
                  // never more than a call apart, so two copies suffice for what they share
  one_way,        // some rank can run ahead of another: the receiver of a message gives a credit, a
                  // put without payload, for which the sender waits two calls later
};

/// Where the users' buffers are, on all ranks.
enum class Buffers : std::uint8_t {
  anywhere,
  registered,  // peers may write there, and the network may read there
};

/// Whether each rank has a target of its own, or the ranks of a node share one.
enum class Target : std::uint8_t { of_rank, of_node };

/// In which order the operands of a result are combined.
enum class Order : std::uint8_t {
  commutative,  // in a rotated order, arrivals perhaps as they come
  rank_order,   // 0 o 1 o ... o P-1 on every rank, however it is associated
};

struct Step {
  Action action = Action::copy;
  std::uint16_t payloads = 0;  // how many a put sends, an await receives or a copy copies
  std::uint16_t slot = 0;      // the peer's for a put, this rank's for an await or await_credit
  std::uint16_t part = 0;      // which part of the user's payload
  bool by_reference = false;   // put, await, copy or combine from a slot; one payload
  bool grows = false;          // combine by reference: of `into`, instead of the source
  bool into_target = false;    // put or await; see "Zero copy" and "Shared target"
  bool forwards = false;       // put: sends a block that has come from another rank
  std::uint32_t round = 0;     // for people: counted from 0
  Rank peer = no_rank;         // other side of a put or await; by reference, whose memory is read
  Register from = {};          // put, copy, combine, take_out
  Register into = {};          // copy, combine, take_out
  friend bool operator==(const Step&, const Step&) = default;
};

/// See "Answers": every rank that awaits `slot` receives it in `partial`.
struct Answer {
  std::uint16_t slot = 0;
  std::uint16_t partial = 0;
  friend bool operator==(const Answer&, const Answer&) = default;
};

struct Plan {
  Rank self{0};
  std::uint32_t rank_count = 1;
  std::string algorithm = {};                 // literature name
  std::vector<std::uint32_t> per_round = {};  // messages of each round, as executed
  std::uint32_t n = 0;    // the n of schedules that have one for all rounds, else 0
  bool all_alike = true;  // every rank sends exactly per_round, and awaits as many, maybe in later
                          // rounds; if not, per_round is an upper bound
  FlowControl flow_control = FlowControl::synchronising;
  std::uint16_t parts = 1;         // of the user's payload
  std::vector<Rank> owners = {};   // where blocks go in pieces, the owner of each part; empty: part
                                   // p is the block of rank p
  bool is_pipeline = false;        // parts pass through rank after rank: better many short ones
  bool zero_copy = false;          // source and target stand in for registers
  bool swaps_blocks = false;       // block p of rank q becomes block q of rank p
  std::uint16_t payloads = 1;      // side by side in each partial and slot, one part each
  bool shares_target = false;      // the ranks of a node have one target
  std::uint32_t incoming_max = 0;  // messages of one peer that can be on their way to this rank at
                                   // once; 0: as many as it sends in two calls
  std::uint32_t takes_out = 0;     // contributions, the own one and those before it, that the last
                                   // round brings a second time and that are taken out again
  std::uint16_t partial_count = 0;
  std::uint16_t partials_max = 0;  // the most partials of any rank; 0: it is not said
  std::uint16_t slot_count = 0;
  std::uint16_t line_slot_count = 0;   // the last ones of slot_count: room for a notification, a
                                       // credit or a reference, but for no payload
  std::uint16_t short_slot_count = 0;  // those before the lines: room for short_payloads alone
  std::uint16_t short_payloads = 0;
  std::vector<Answer> answers = {};  // the same on all ranks
  std::vector<Step> steps = {};
};

/// How many payloads a slot has room for.
inline std::uint16_t payloads_of_slot(const Plan& plan, std::uint16_t slot) noexcept {
  const std::uint32_t lines_begin = std::uint32_t{plan.slot_count} - plan.line_slot_count;
  if (slot >= lines_begin) return 0;
  return slot + std::uint32_t{plan.short_slot_count} < lines_begin ? plan.payloads
                                                                   : plan.short_payloads;
}

/// How many payloads all slots and so many partials have room for together.
inline std::size_t payloads_of_registers(const Plan& plan, std::size_t partial_count) noexcept {
  const std::size_t data_slots = std::size_t{plan.slot_count} - plan.line_slot_count;
  return plan.payloads * (data_slots - plan.short_slot_count + partial_count) +
         std::size_t{plan.short_payloads} * plan.short_slot_count;
}

/// The answer that a slot stands for, or null.
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

/// Whether a put sends from its user's buffer, instead of telling of it.
inline bool sends_from(const Step& step, Place place) noexcept {
  return step.action == Action::put && step.payloads > 0 && !step.by_reference &&
         step.from.place == place;
}

/// Whether the plan has to await that this put has left: nothing that comes later proves it.
inline bool is_awaited_sent(const Plan& plan, const Step& step) noexcept {
  return sends_from(step, Place::target) ||
         (plan.flow_control == FlowControl::acknowledged && sends_from(step, Place::source));
}

/// Whether all payloads stay in the users' buffers, or go from one to another: no register has room
/// for one.
inline bool has_no_registers(const Plan& plan) noexcept {
  return plan.zero_copy && plan.slot_count == plan.line_slot_count && plan.slot_count > 0;
}

/// Whether anyone but its owner uses the target: peers write or read it, or the network sends from
/// it.
inline bool exposes_target(const Plan& plan) noexcept {
  return std::any_of(plan.steps.begin(), plan.steps.end(), [](const Step& step) {
    const bool is_written = step.action == Action::await && step.into_target && step.payloads > 0;
    const bool is_read =
        step.action == Action::put && step.payloads > 0 && step.from.place == Place::target;
    return is_written || is_read;
  });
}

/// Whether the network, or a peer, reads the source of a zero-copy plan.
inline bool exposes_source(const Plan& plan) noexcept {
  return std::any_of(plan.steps.begin(), plan.steps.end(), [](const Step& step) {
    return step.action == Action::put && step.payloads > 0 && step.from.place == Place::source;
  });
}

/// Whether the source has to be the target that the ranks of a node share.
inline bool tells_of_source(const Plan& plan) noexcept {
  return plan.shares_target &&
         std::any_of(plan.steps.begin(), plan.steps.end(), [](const Step& step) {
           return step.action == Action::put && step.into_target && step.payloads > 0 &&
                  step.from.place == Place::source;
         });
}

}  // namespace tutti::plan
