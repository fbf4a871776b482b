// What a collective is asked to do, whatever it is: one struct for all of them.  It is the same on
// every rank, so that every rank chooses alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tutti/algorithm.hpp>
#include <tutti/reduction.hpp>
#include <tutti/types.hpp>
#include <vector>

#include "plan/core/per_round.hpp"

namespace tutti::tune {

/// Collectives that choose alike are one: gatherv chooses as gather does, by the longest block.
enum class Collective : std::uint8_t {
  barrier,
  allreduce,
  allreduce_ssp,
  broadcast,
  reduce,
  reduce_scatter,
  allgather,
  alltoall,
  gather,
  scatter,
  scan,
  exscan,
};
const char* name_of(Collective collective) noexcept;

/// What the ranks have told each other about a shared ring that nobody asks for by name.
enum class RingRoom : std::uint8_t {
  not_told,  // nobody was asked
  missing,   // some rank has no room for it, or would not get on in it while it waits
  there,     // all have room
};

struct CollectiveRequest {
  Collective collective = Collective::allreduce;
  /// Elements of `reduction.element_bytes` each: of one contribution, of the longest block, or of
  /// all blocks of a reduce_scatter together.
  std::size_t element_count = 0;
  Reduction reduction = {};
  Agreement agreement = Agreement::identical;
  Rank root = no_rank;                        // of a collective that has one
  std::vector<std::size_t> block_bytes = {};  // of each rank, of an allgather; empty: all alike
  bool has_equal_blocks = true;               // of an alltoall
  std::uint32_t participant_count = 0;        // of a reduce; 0: all ranks
  std::uint32_t slack = 0;                    // of an allreduce_ssp

  // What the call asks for, and what the context has by default.
  Algorithm algorithm = Algorithm::automatic;
  Across across = Across::automatic;
  Tree tree = Tree::automatic;
  plan::PerRound per_round = {};             // messages per round; empty: see the next
  plan::PerRound per_round_by_default = {};  // empty: a rule

  std::string only = {};  // the choice that is called so, and no other (Choice::name()); by tuners

  // The ranks and their contexts have these.
  std::uint32_t partners_max = UINT32_MAX;  // connections that a context can hold
  bool shares_target = false;               // the ranks of each node have one target
  bool zero_copy = false;                   // the buffers of all ranks are registered
  RingRoom ring_room = RingRoom::not_told;
  bool reads_in_place = false;  // ranks read payloads of this size where they are: measured to be
                                // the faster way when the ranks met

  // What encloses it, of the allreduce of a lane.
  bool is_undivided = false;    // the payload is a part already: no schedule divides it further
  bool one_value_only = false;  // and a message carries one value of it

  /// A race asks.  In a single node, all schedules that it can run are considered, and not only
  /// what a rule takes, so that they can be measured.  Between nodes, a vector that the race names
  /// for an allgather connects a rank with no more others than one that is chosen by price.
  bool for_race = false;

  std::size_t bytes() const noexcept { return element_count * reduction.element_bytes; }
  bool gives_per_round() const noexcept {
    return !per_round.empty() || !per_round_by_default.empty();
  }
  /// Whether the call or the context says how it is done.
  bool is_asked_for() const noexcept {
    return gives_per_round() || algorithm != Algorithm::automatic;
  }
};

/// Whether another order or association of the operands may give other bits.  Integer elements are
/// taken to be exact; what a user's operator does with elements of no known type is not known.
bool order_shows_in_bits(const Reduction& reduction) noexcept;

/// Whether messages of a round may be combined in the order in which they arrive.
bool takes_any_order(const CollectiveRequest& request) noexcept;

/// "3,2,1".
std::string text_of(const plan::PerRound& vector);

}  // namespace tutti::tune
