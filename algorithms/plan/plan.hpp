// A plan is everything one rank does for one collective, as a value: whom to tell what, whom to
// await, and what to combine in which order.  It knows neither sizes nor devices; a register is
// "one payload", whatever the engine makes of that.
//
// Registers.  `source` and `target` are the user's buffers.  `partial` registers are sendable
// (the engine keeps two copies of each, by call parity).  `slot` registers are written by peers,
// one message each, also in two copies.  Every partial and slot consists of `segments` payloads
// side by side: 0 for a barrier, 1 as a rule, 2 where an operator that is not commutative has to
// carry the two sides of the seam between rank P-1 and rank 0 (segment 0 is the part that ends at
// the owner, segment 1 the part that ends at rank P-1).
//
// Slots are numbered alike on all ranks, and each is written by exactly one peer, once per call:
// the notification of a message is its slot number.
#pragma once

#include <cstdint>
#include <string>
#include <tutti/types.hpp>
#include <vector>

namespace tutti::plan {

enum class Place : std::uint8_t { source, target, partial, slot };

/// One payload-sized register.
struct Register {
  Place place = Place::source;
  std::uint8_t segment = 0;  // of a partial or slot
  std::uint16_t index = 0;   // which partial or slot
  friend bool operator==(const Register&, const Register&) = default;
};

enum class Action : std::uint8_t {
  put,    // send `segments` payloads, starting at segment 0 of partial `from`, into slot `slot` of
          // `peer`, with notification `slot`
  await,  // until notification `slot` has arrived from `peer`
  copy,   // into = from
  combine,  // into = from o into: `from` holds lower ranks and is the left operand
};

struct Step {
  Action action = Action::copy;
  std::uint8_t segments = 0;  // of a put: 0, 1 or 2 payloads travel; of an await: what will arrive
  std::uint16_t slot = 0;     // of a put (at the peer) or an await (here)
  std::uint32_t round = 0;    // for people: counted from 0
  Rank peer = no_rank;        // of a put or an await
  Register from = {};         // of a put, copy or combine
  Register into = {};         // of a copy or combine
};

struct Plan {
  Rank self{0};
  std::uint32_t rank_count = 1;
  std::string algorithm;                 // literature name
  std::vector<std::uint32_t> per_round;  // messages of each round, as executed
  bool all_alike = true;  // every rank sends and receives exactly per_round; if not, it is the most
  std::uint8_t segments = 1;  // payloads in each partial and slot
  std::uint16_t partial_count = 0;
  std::uint16_t slot_count = 0;
  std::vector<Step> steps;
};

}  // namespace tutti::plan
