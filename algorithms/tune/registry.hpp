// The registry: one row for each schedule of each collective, with everything that a choice needs
// to know about it.  What can be asked for by name, what the tables of schedules list, and what
// tests run, all come from here.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tutti/status.hpp>
#include <tutti/types.hpp>
#include <vector>

#include "plan/core/per_round.hpp"
#include "plan/core/plan.hpp"
#include "plan/cost/network.hpp"
#include "plan/rooted/rooted_tree.hpp"
#include "tune/request.hpp"
#include "tune/topology.hpp"

namespace tutti::tune {

/// How nodes enter a schedule of barrier or allreduce.
enum class Hierarchy : std::uint8_t {
  flat,     // it runs over all ranks
  leader,   // one rank of each node takes part in a schedule across the nodes
  lanes,    // as many ranks of each node as the smallest has, with a part of the payload each
  domains,  // the ranks of a domain meet first, then their leaders by nodes
  groups,   // the same of groups of ranks of a node, where there are no domains
};

/// Which bits may come out where the order of operands shows.
enum class Association : std::uint8_t {
  any,         // ranks may differ
  expression,  // one expression on all ranks, fixed for the operation
  canonical,   // the canonical tree, which depends on the number of ranks alone
};

/// What messages per round mean to a schedule.
enum class PerRoundIs : std::uint8_t {
  covering,  // any vector that covers the ranks
  core,      // a core, or upper bounds of its rounds
  uniform,   // one n for all rounds: one entry, or several equal ones
  nothing,   // there are none to choose
};

class Choice;
class KnownChoices;

struct Query {
  const CollectiveRequest& request;
  const Topology& topology;
  const plan::Network& network;
  KnownChoices* known = nullptr;  // across nodes; nullptr: each is made anew
};

/// Free parameters of a schedule, as far as it has them.
struct Variant {
  plan::PerRound per_round = {};              // messages of its rounds, a core, or one n
  plan::TreeFans fans = {};                   // of a tree
  std::vector<std::uint16_t> pieces = {};     // into which each rank's block is cut
  std::uint32_t group_size = 0;               // ranks of a node that meet first
  std::uint32_t lane_count = 1;               // ranks of each node that take part across nodes
  std::uint32_t sub_blocks = 1;               // of each part of the schedule across nodes
  std::uint32_t turns = 0;                    // of lanes that go in turns, without another schedule
  std::uint32_t turn_pieces = 1;              // of each turn inside the nodes
  std::uint32_t turn_exchanges = 0;           // the last rounds of each turn that exchange
  std::shared_ptr<const Choice> across = {};  // the schedule across nodes, or across domains
};

struct Row {
  Collective collective;
  const char* name;       // as in the literature, and the algorithm of its plans ...
  const char* also = "";  // ... or one of these; with blanks between them
  Hierarchy hierarchy = Hierarchy::flat;
  Association association = Association::canonical;
  Algorithm algorithm = Algorithm::automatic;  // how to ask for it, of barrier and allreduce
  Tree tree = Tree::automatic;                 // how to ask for it, of broadcast and reduce
  bool keeps_rank_order = true;                // else the operator has to commute
  bool needs_idempotent = false;               // contributions may enter twice
  bool needs_inverse = false;                  // of the operator
  bool has_other_bits = false;  // than the canonical tree, although its association says so
  bool is_in_place = false;     // payloads stay in registered buffers, also where ranks share nodes
  bool is_flow = false;         // chunks go by a rule of their own: its plan only says with whom
  PerRoundIs takes = PerRoundIs::covering;
  const char* rounds = "";   // of one that takes no messages per round: which it has
  const char* instead = "";  // the schedule to name where it does not fit

  /// Why there is no such plan, as the words after the name; empty: there is one.
  std::string (*why_not)(const Query&) = nullptr;
  /// Why it is not considered unless it is asked for, as a sentence; empty: it is.
  std::string (*why_not_unasked)(const Query&) = nullptr;
  /// May throw Error{invalid_argument} for messages per round that do not serve.
  std::vector<Variant> (*variants)(const Query&) = nullptr;  // nullptr: one without parameters
  plan::Picoseconds (*cost)(const Query&, const Variant&) = nullptr;
  /// A price nearer to the events; needs no plans, but takes longer to compute than `cost`.
  std::optional<plan::Picoseconds> (*closer_cost)(const Query&, const Variant&) = nullptr;
  plan::Plan (*build)(const Query&, const Variant&, Rank self) = nullptr;
};

/// All rows, in the order of the catalogue.  Of equal prices the first one is taken.
const std::vector<Row>& registry();

/// The rows of allreduce that are plans and can be asked for by name.
const std::vector<Row>& named_schedules();

/// The row of an allreduce that is asked for by that name.  Throws Error{invalid_argument} if it is
/// none.
const Row& row_of(Algorithm algorithm);

/// The strongest that a row gives where order shows in bits.
Agreement agreement_of(const Row& row) noexcept;

/// Whether the operator and the promise of the request are those that a row can serve.
bool serves(const Row& row, const CollectiveRequest& request);

}  // namespace tutti::tune
