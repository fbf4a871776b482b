#include "tune/hierarchy.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <tutti/detail/names.hpp>

#include "plan/allreduce/canonical_halving.hpp"
#include "plan/allreduce/lanes.hpp"
#include "plan/allreduce/recursive_multiplying.hpp"
#include "plan/core/copies.hpp"
#include "plan/core/nodes.hpp"
#include "tune/chooser.hpp"
#include "tune/chunks.hpp"
#include "tune/lanes_in_turns.hpp"
#include "tune/plan_time.hpp"
#include "tune/prices.hpp"
#include "tune/rows.hpp"
#include "tune/vectors.hpp"

namespace tutti::tune {
namespace {

// These rules decide where ranks share CPUs, and in a single node, because the model does not tell
// its messages from those of a network.  They are provisional: measured in one run each with 2 to 8
// ranks on 2 CPUs (runtime/README.md).
constexpr std::size_t lanes_from_bytes = 8192;
constexpr std::size_t lane_bytes_min = 1024;  // of a lane
constexpr std::uint32_t group_size_min = 4, group_size_max = 16;
// Slots that the ranks of a node have for the pieces of lanes.  With more, the registers would not
// fit the default arena, or chunks would be very short.
constexpr std::uint64_t pieces_slots_max = 2048;
/// Messages of one peer on their way: what an operation may take of the receives of a connection.
constexpr std::uint32_t incoming_of_lane_max = 32;

/// Why the ranks of a node cannot be combined first; empty: they can.
std::string why_not_by_nodes(const CollectiveRequest& request, const Topology& topology) {
  if (is_reproducible_in_bits(request))
    return "gives results that depend on the shape of the nodes, and reproducible ones are asked "
           "for";
  if (!request.reduction.properties.commutative && !topology.has_runs())
    return std::string(
               "combines the ranks of each node first, which do not follow each other, and ") +
           name_of(request.reduction.built_in) + " does not commute";
  return {};
}

/// The most lanes of a hierarchy: none of them is without an element.
std::uint32_t lanes_max_of(const Query& query, Hierarchy hierarchy) {
  const std::size_t seats = hierarchy == Hierarchy::lanes ? query.topology.smallest_node() : 1;
  return static_cast<std::uint32_t>(
      std::min(seats, std::max<std::size_t>(query.request.element_count, 1)));
}

/// Some ranks of each node, in rank order, as if they were a domain.
std::vector<Node> groups_of(const Topology& topology, std::uint32_t group_size) {
  assert(group_size > 0 && topology.node_of.size() == topology.rank_count);
  std::vector<std::uint32_t> seats(topology.node_count());
  std::vector<Node> last(topology.node_count());  // group of each node
  std::vector<Node> groups;
  groups.reserve(topology.rank_count);
  std::uint32_t group_count = 0;
  for (const Node node : topology.node_of) {
    std::uint32_t& seat = seats[index_of(node)];
    if (seat == 0) last[index_of(node)] = Node{group_count++};
    seat = seat + 1 == group_size ? 0 : seat + 1;
    groups.push_back(last[index_of(node)]);
  }
  return groups;
}

/// Slots for each rank of a node, besides those of the schedule across.
std::string too_many_of_a_node() {
  return "has a message for each rank of a node, and others across, of at most " +
         std::to_string(plan::slots_max / 2) +
         " each; use flat, or nodes of fewer ranks (TUTTI_RANKS_PER_NODE)";
}

std::string why_not_hierarchy(const Query& query, Hierarchy hierarchy) {
  const bool in_stages = hierarchy == Hierarchy::domains || hierarchy == Hierarchy::groups;
  if (query.request.collective == Collective::allreduce) {
    if (in_stages && query.request.bytes() >= lanes_from_bytes)
      return "has leaders combine whole payloads, which takes long; use automatic";
    const Topology domains{.rank_count = query.topology.rank_count,
                           .node_of = query.topology.domain_of};
    const std::string why =
        why_not_by_nodes(query.request, hierarchy == Hierarchy::domains ? domains : query.topology);
    if (!why.empty()) return why + "; use automatic or flat";
  }
  if (hierarchy == Hierarchy::domains) return "";
  const std::uint32_t lane_count = lanes_max_of(query, hierarchy);
  return may_be_lanes(query, lane_count) ? "" : too_many_of_a_node();
}

/// Whether small payloads and barriers meet by domains first.
bool goes_by_domains(const Query& query) {
  const CollectiveRequest& request = query.request;
  return !request.is_asked_for() && request.across == Across::automatic && !request.shares_target &&
         query.topology.has_domains() && why_not_hierarchy(query, Hierarchy::domains).empty();
}

/// Whether the payload is worth cutting into lanes, by a rule.
bool is_worth_lanes(const Query& query) {
  const std::uint32_t lane_count = lanes_max_of(query, Hierarchy::lanes);
  const std::size_t bytes = query.request.bytes();
  return bytes >= lanes_from_bytes && lane_count > 1 && bytes / lane_count >= lane_bytes_min &&
         may_be_lanes(query, lane_count);
}

/// The hierarchy by a rule of payload and shape.
Hierarchy hierarchy_by_rule(const Query& query) {
  const bool is_one_node = query.topology.is_one_node();
  // Lanes take a round more than a flat schedule, and each rank waits for its turn in it
  // (docs/performance.md).
  constexpr std::size_t lanes_from_bytes_by_turns = 16u << 10;
  const bool by_turns = is_one_node && query.topology.shares_cpus;
  if (query.request.collective == Collective::barrier ||
      query.request.bytes() < (by_turns ? lanes_from_bytes_by_turns : lanes_from_bytes))
    return is_one_node || !why_not_hierarchy(query, Hierarchy::leader).empty() ? Hierarchy::flat
                                                                               : Hierarchy::leader;
  return is_worth_lanes(query) ? Hierarchy::lanes : Hierarchy::flat;
}

/// Where nothing is said: one hierarchy, or that of the least price.
std::optional<Hierarchy> hierarchy_unasked(const Query& query) {
  const CollectiveRequest& request = query.request;
  if (request.shares_target)
    return request.bytes() >= lanes_from_bytes ? Hierarchy::lanes : Hierarchy::leader;
  if (request.is_asked_for() || !query.topology.has_shared_nodes()) return Hierarchy::flat;
  if (request.collective == Collective::allreduce &&
      !why_not_by_nodes(request, query.topology).empty())
    return Hierarchy::flat;
  if (query.topology.is_one_node() || query.topology.shares_cpus) return hierarchy_by_rule(query);
  return {};
}

/// Whether a hierarchy is asked for, so that a refusal is an error.
bool is_asked_for_hierarchy(const CollectiveRequest& request) {
  return request.across != Across::automatic || request.shares_target;
}

/// Why the schedule across the nodes does not go with so many lanes; empty: it does.
std::string why_not_across(const Query& query, std::uint32_t lane_count, const plan::Plan& across) {
  if (across.slot_count > plan::slots_max / 2 || !may_be_lanes(query, lane_count, across.parts))
    return too_many_of_a_node();
  const bool is_cut = lane_count > 1 || across.parts > 1;
  if (across.flow_control != plan::FlowControl::synchronising || (is_cut && across.payloads > 1))
    return "does not go with algorithm " + across.algorithm +
           ", whose messages are several payloads or need credits; use recursive_multiplying";
  return {};
}

/// How many ranks a rank is connected with at most, by a schedule of which `plan` is rank 0's.
std::size_t partners_max_of(const Choice& across, const plan::Plan& plan,
                            std::uint32_t rank_count) {
  if (across.row().algorithm == Algorithm::canonical_halving)
    return plan::canonical_halving_partners_max(rank_count);
  std::set<Rank> partners;  // the other schedules give each rank equally many
  for (const plan::Step& step : plan.steps)
    if (step.peer != no_rank) partners.insert(step.peer);
  return partners.size();
}

/// Whether there are slots for so many pieces of the part of a lane.
bool has_room_for_pieces(const Query& query, std::uint32_t lane_count, std::uint32_t pieces) {
  const std::uint64_t seats = std::uint64_t{query.topology.largest_node()} + lane_count;
  return seats * pieces <= pieces_slots_max && may_be_lanes(query, lane_count, pieces);
}

/// Whether a schedule that cuts the part of a lane goes with so many lanes.
bool is_possible(const Query& query, std::uint32_t lane_count, const Choice& across,
                 const plan::Plan& plan) {
  return plan.parts > 1 && plan.payloads == 1 &&
         plan.flow_control == plan::FlowControl::synchronising &&
         has_room_for_pieces(query, lane_count, plan.parts) &&
         partners_max_of(across, plan, query.topology.node_count()) <= query.request.partners_max;
}

/// Whether the parts of a schedule that is_possible() may be cut into sub-blocks: those that are
/// long in each chunk that goes through the plan.
bool may_have_sub_blocks(const Query& query, std::uint32_t lane_count, const plan::Plan& across,
                         std::uint32_t sub_blocks) {
  const std::uint32_t pieces = across.parts * sub_blocks;
  const std::size_t slots = std::size_t{query.topology.largest_node() + lane_count} * pieces;
  const std::size_t chunk =
      within_registers(chunk_bytes_in_node, slots, std::size_t{pieces} * lane_count);
  const std::uint64_t gap = bytes_of_gap(query.network.between);
  return query.request.bytes() >= std::uint64_t{pieces} * lane_count * 3 * gap &&
         2 * chunk >= 3 * gap && across.line_slot_count == 0 &&
         across.incoming_max * sub_blocks <= incoming_of_lane_max &&
         plan::has_room_for_copies(across, sub_blocks) &&
         has_room_for_pieces(query, lane_count, pieces);
}

/// Whether the schedule that is asked for can be chosen across the nodes without being asked for by
/// the caller.
bool serves_across(const Query& query) {
  const Row& row = row_of(query.request.algorithm);
  const bool connects_all = row.algorithm == Algorithm::chunked_fold;
  return serves(row, query.request) && (row.why_not == nullptr || row.why_not(query).empty()) &&
         (!connects_all || query.topology.rank_count <= partners_unasked_max + 1);
}

/// The choice across; none if it is named and not among those that serve.
std::shared_ptr<const Choice> choice_across(const Query& query, const CollectiveRequest& inner,
                                            const Topology& topology,
                                            const plan::Network& network) {
  KnownChoices none;
  return (query.known == nullptr ? none : *query.known).choose(inner, topology, network);
}

/// Adds variants with fewer messages a round, and with others whose prices are close: lanes overlap
/// in ways that their price does not know.  Among many nodes these are not considered.
void add_other_vectors(const Query& query, const CollectiveRequest& inner, const Topology& nodes,
                       const plan::Network& network, const Choice& across,
                       std::vector<Variant>& variants) {
  constexpr std::size_t close_max = 2;
  const plan::PerRound& vector = across.variant().per_round;
  if (vector.empty() || nodes.rank_count > close_vectors_ranks_max) return;
  const bool is_core = across.row().takes == PerRoundIs::core;
  const std::uint32_t lane_count = variants.back().lane_count;
  std::vector<plan::PerRound> known{vector};
  for (const std::uint32_t largest : {3u, 1u}) {
    if (*std::max_element(vector.begin(), vector.end()) <= largest) continue;
    constexpr plan::CorePrices::OfRound round{.fixed = 2, .each = 1};
    plan::PerRound other =
        is_core ? plan::cheapest_core(nodes.rank_count,
                                      {.combining = round, .out = round, .largest = largest},
                                      UINT64_MAX)
                : plan::nearest_covering(nodes.rank_count, largest);
    if (other != vector) known.push_back(std::move(other));
  }
  // Events are not followed among many ranks, or across groups: prices decide there, and the vector
  // at hand has the lowest.
  if (query.topology.rank_count <= ranks_followed_max && !query.request.is_undivided) {
    const VectorPrice price = [&](const plan::PerRound& other) {
      return across.row().cost({inner, nodes, network}, {.per_round = other});
    };
    const std::uint32_t messages_max =
        messages_max_of(nodes.rank_count, query.request.partners_max);
    for (plan::PerRound& other :
         is_core ? close_cores(nodes.rank_count, messages_max, known, close_max, price)
                 : close_uniform_vectors(nodes.rank_count, messages_max, known, close_max, price))
      known.push_back(std::move(other));
  }
  for (std::size_t i = 1; i < known.size(); ++i) {
    CollectiveRequest named = inner;
    named.only = std::string(across.row().name) + " with " + text_of(known[i]) + " a round";
    if (auto choice = choice_across(query, named, nodes, network))
      variants.push_back({.lane_count = lane_count, .across = std::move(choice)});
  }
}

/// Choices of schedules that cut the part of a lane.  Their plans do not depend on its length, so
/// that those of other numbers of lanes have the same ones.
using Divided = std::map<Algorithm, std::shared_ptr<const Choice>>;

/// What a lane of so many asks for: of payloads as a whole, and of some that are cut again.
void add_across(const Query& query, Hierarchy hierarchy, std::uint32_t lane_count, Divided& before,
                std::vector<Variant>& variants) {
  CollectiveRequest inner = query.request;
  inner.only = parts_of(query.request.only).across;
  if (inner.only.empty() && !query.request.only.empty()) return;  // lanes in turns
  inner.across = Across::flat;
  inner.shares_target = false;
  // The ranks of a node give each other what the schedule across then has in partials.
  inner.zero_copy = false;
  // As long as prices go, so that those of few and of many lanes are of one payload.
  const std::size_t priced = std::max<std::size_t>(
      priced_bytes(query.request.bytes()) / std::max<std::size_t>(inner.reduction.element_bytes, 1),
      1);
  inner.element_count = (std::min(inner.element_count, priced) + lane_count - 1) / lane_count;
  inner.is_undivided = inner.algorithm == Algorithm::automatic;
  inner.one_value_only = inner.is_undivided && lane_count > 1;
  const Topology nodes{.rank_count = query.topology.node_count()};
  const plan::Network network{.between = share_of_port(query.network.between, lane_count),
                              .inside = query.network.inside};
  const std::shared_ptr<const Choice> undivided = choice_across(query, inner, nodes, network);
  const std::string why =
      undivided ? why_not_across(query, lane_count, undivided->first_plan()) : "";
  if (undivided && why.empty()) {
    variants.push_back({.lane_count = lane_count, .across = undivided});
    if (inner.only.empty() && !inner.is_asked_for() && !query.topology.shares_cpus)
      add_other_vectors(query, inner, nodes, network, *undivided, variants);
  } else if (undivided && hierarchy_of(query))  // no other one is considered
    throw Error(ErrorCode::unsupported,
                std::string(name_of(query.request.collective)) + ": across " +
                    (hierarchy == Hierarchy::lanes ? "lanes " : "leader ") + why);
  const bool may_be_cut =
      inner.is_undivided && !inner.is_asked_for() && nodes.rank_count > 1 &&
      inner.element_count >= nodes.rank_count &&
      (!query.topology.shares_cpus || query.request.bytes() >= cut_again_from_bytes);
  if (!may_be_cut) return;
  inner.is_undivided = inner.one_value_only = false;
  // None of them has fewer parts, so that with thousands of ranks no plan is built to be refused.
  const std::uint32_t parts_min = std::bit_floor(nodes.rank_count);
  if (!has_room_for_pieces(query, lane_count, parts_min)) return;
  for (const Algorithm algorithm :
       {Algorithm::chunked_fold, Algorithm::canonical_halving, Algorithm::circulant}) {
    inner.algorithm = algorithm;
    // As of schedules over all ranks: such parts take a port for as long as longer ones.
    const bool is_short =
        inner.bytes() / nodes.rank_count < bytes_of_gap(query.network.between) / 8;
    if (algorithm != Algorithm::chunked_fold && is_short && !query.topology.shares_cpus) continue;
    if (!serves_across({inner, nodes, network})) continue;
    const std::shared_ptr<const Choice> divided = choice_across(query, inner, nodes, network);
    if (!divided) continue;
    const auto known = before.find(algorithm);
    if (known != before.end()) divided->share_first_plan(*known->second);
    before.try_emplace(algorithm, divided);
    const plan::Plan& plan = divided->first_plan();
    assert(plan.parts >= parts_min);
    if (!is_possible(query, lane_count, *divided, plan)) continue;
    variants.push_back({.lane_count = lane_count, .across = divided});
    for (const std::uint32_t sub_blocks : {2u, 4u})
      if (!query.topology.shares_cpus && may_have_sub_blocks(query, lane_count, plan, sub_blocks))
        variants.push_back({.lane_count = lane_count, .sub_blocks = sub_blocks, .across = divided});
  }
}

/// By leaders, or in lanes: where nobody asks for them, in few or many.
std::vector<Variant> across_nodes(const Query& query, Hierarchy hierarchy) {
  const std::uint32_t lanes_max = lanes_max_of(query, hierarchy);
  std::vector<Variant> variants;
  Divided divided;
  if (!is_asked_for_hierarchy(query.request) && !query.topology.shares_cpus)
    for (std::uint32_t lane_count = 2; lane_count < lanes_max; lane_count *= 2)
      if (!is_too_short_to_race(query, lane_count))
        add_across(query, hierarchy, lane_count, divided, variants);
  if (lanes_max == 1 || !is_too_short_to_race(query, lanes_max))
    add_across(query, hierarchy, lanes_max, divided, variants);
  if (hierarchy == Hierarchy::lanes)
    for (Variant& variant : lanes_in_turns(query)) variants.push_back(std::move(variant));
  return variants;
}

/// What the leaders of domains or groups ask for, which are ranks of nodes.
void add_across_leaders(const Query& query, std::span<const Node> domain_of,
                        std::uint32_t group_size, std::vector<Variant>& variants) {
  Topology leaders{.node_of = plan::nodes_of_domains(query.topology.node_of, domain_of),
                   .shares_cpus = query.topology.shares_cpus};
  leaders.rank_count = static_cast<std::uint32_t>(leaders.node_of.size());
  CollectiveRequest inner = query.request;
  inner.only = parts_of(query.request.only).across;
  inner.is_undivided =
      inner.is_undivided || inner.algorithm == Algorithm::automatic;  // it is small
  inner.reads_in_place = false;  // What they pass on are partials, not users' buffers.
  const auto add = [&](std::shared_ptr<const Choice> choice) {
    variants.push_back({.group_size = group_size, .across = std::move(choice)});
  };
  const std::shared_ptr<const Choice> cheapest =
      choice_across(query, inner, leaders, query.network);
  if (!cheapest) return;
  add(cheapest);
  // The relative errors of the two prices differ, so both lanes and a single leader are raced.
  // In a single node, such a choice could not be asked for by its name.
  if (!query.request.for_race || !inner.only.empty() || query.topology.is_one_node() ||
      cheapest->row().hierarchy != Hierarchy::lanes)
    return;
  inner.across = Across::leader;
  add(choice_across(query, inner, leaders, query.network));
}

/// In groups of several sizes, where there are several of a node.  Their leaders may meet in groups
/// again.  A level needs eight ranks of a node and leaves at most a quarter of them, so that there
/// are at most six with plan::slots_max / 2 ranks a node.
std::vector<Variant> across_groups(const Query& query) {
  std::vector<Variant> variants;
  for (std::uint32_t size = group_size_min;
       size <= group_size_max && 2 * size <= query.topology.largest_node(); size *= 2)
    add_across_leaders(query, groups_of(query.topology, size), size, variants);
  return variants;
}

/// Returns how many messages with a payload follow each other at a rank: those that it sends, and
/// those that it waits for while others send.  Where some ranks send what others only receive,
/// per_round counts both, which may be four times as many as concern one rank, so the messages of
/// rank 0 are counted, which sends about as many as any other.  Where several lanes share a port,
/// the port sends messages of other lanes while one lane waits, except for a few that depend on
/// each other: the value from another cube, the one that is carried over a bit, and the result that
/// is sent back.
plan::Picoseconds messages_in_turn(const plan::Plan& plan, bool shares_port) {
  constexpr plan::Picoseconds dependent = 3;
  const plan::Picoseconds sent = std::count_if(
      plan.steps.begin(), plan.steps.end(),
      [](const plan::Step& step) { return step.action == plan::Action::put && step.payloads > 0; });
  const auto most =
      std::accumulate(plan.per_round.begin(), plan.per_round.end(), plan::Picoseconds{0});
  return std::min(most, shares_port ? sent + dependent : 2 * sent);
}

plan::Plan hierarchical_plan(const Query& query, const Variant& variant, Rank self,
                             Hierarchy hierarchy);

/// The number of chunks into which lanes cut what is priced.  It is counted only if the payload has
/// so many parts that messages are short, because each chunk has messages of its own.
std::size_t priced_chunks(const Query& query, const Variant& variant) {
  constexpr std::size_t parts_min = 512;
  constexpr std::uint32_t ranks_max = 1024;  // plans of more ranks take long to be made
  const std::size_t parts = std::size_t{variant.across->first_plan().parts} * variant.sub_blocks;
  if (query.topology.rank_count > ranks_max || parts * variant.lane_count < parts_min) return 1;
  const plan::Plan plan = hierarchical_plan(query, variant, Rank{0}, Hierarchy::lanes);
  return chunk_count(priced_bytes(query.request.bytes()), 1, plan.parts,
                     chunk_bytes_for(plan, true));
}

/// The price of the schedule across for one of `chunks` chunks.
plan::Picoseconds cost_across(const Choice& across, std::size_t chunks) {
  if (chunks == 1) return across.cost();
  CollectiveRequest request = across.query().request;
  request.element_count = std::max<std::size_t>(request.element_count / chunks, 1);
  return across.row().cost({request, across.query().topology, across.query().network},
                           across.variant());
}

/// The schedule across is priced with a lane's share of the port.  Of what a rank does in its node,
/// that of the busiest is counted, which is of a lane if all are.
template <Hierarchy hierarchy>
plan::Picoseconds cost_of_hierarchy(const Query& query, const Variant& variant) {
  using plan::Picoseconds;
  if (variant.turns > 0) return lane_turns_cost(query, variant);
  const Topology& topology = query.topology;
  const plan::NodeMemory& memory = query.network.inside;
  const bool in_stages = hierarchy == Hierarchy::domains || hierarchy == Hierarchy::groups;
  const std::size_t chunks = hierarchy == Hierarchy::lanes ? priced_chunks(query, variant) : 1;
  const Picoseconds across = cost_across(*variant.across, chunks);
  // With thousands of ranks, plans across groups take long to be made, so their pieces are not
  // counted.
  constexpr std::uint32_t ranks_max = 1024;
  static const plan::Plan none;
  const plan::Plan& plan =
      in_stages && topology.rank_count > ranks_max ? none : variant.across->first_plan();
  const auto sub_blocks = static_cast<Picoseconds>(variant.sub_blocks);
  const Picoseconds pieces = plan.parts * sub_blocks;
  const Picoseconds lanes = in_stages ? 1 : variant.lane_count;
  const auto ranks = static_cast<Picoseconds>(hierarchy == Hierarchy::groups ? variant.group_size
                                              : hierarchy == Hierarchy::domains
                                                  ? plan::largest_node_of(topology.domain_of)
                                                  : topology.largest_node());
  const bool has_payload = query.request.collective == Collective::allreduce;
  const std::uint64_t lane_bytes = has_payload ? priced_bytes(query.request.bytes()) /
                                                     (static_cast<std::uint64_t>(lanes) * chunks)
                                               : 0;
  const auto of_all = [&](Picoseconds of_chunk) {
    return static_cast<Picoseconds>(chunks) * of_chunk;
  };
  const Picoseconds store = pieces * memory.send_overhead + memory.per_byte.of(lane_bytes);
  const Picoseconds combine =
      pieces * query.network.between.work + query.network.between.work_per_byte.of(lane_bytes);
  const Picoseconds given = ranks > lanes ? lanes : lanes - 1;
  const Picoseconds taken =
      (ranks - 1) * (pieces * memory.receive_overhead + (has_payload ? combine : 0));
  const Picoseconds told = (ranks - 1) * store, heard_of = pieces * memory.receive_overhead;
  // Ranks without a lane give one piece while the lanes take another, and the other way round.
  const bool at_once = pieces > 1 && ranks > lanes && topology.has_equal_nodes() && !in_stages &&
                       !query.request.shares_target;
  const Picoseconds in =
      at_once ? std::max((lanes - 1) * store + taken, given * store) : given * store + taken;
  const Picoseconds out =
      at_once ? std::max((lanes - 1) * heard_of + told, given * heard_of) : told + given * heard_of;
  const Picoseconds hops = 2 * memory.latency;
  if (in_stages || pieces == 1) return of_all(across + in + out + hops);
  // Network and memory work at the same time: not while a round waits for its messages; and not for
  // the first piece, before which the next one is given, and for the last, whose results are heard
  // after those of the one before.  Messages of other nodes take time of the rank, too.
  const plan::LogGP network = share_of_port(query.network.between, variant.lane_count);
  const std::uint64_t piece_bytes = lane_bytes / plan.parts;
  const Picoseconds messages = messages_in_turn(plan, lanes > 1) / 2;  // in either direction
  const Picoseconds combined = network.receive_overhead + network.work_time(piece_bytes);
  const Picoseconds taken_in = messages * (network.rank_gap + combined);
  const Picoseconds heard = messages * (network.rank_gap + network.receive_overhead);
  const Picoseconds there = std::max(messages * network.port_time(piece_bytes), taken_in);
  const Picoseconds back = std::max(messages * network.port_time(piece_bytes), heard);
  const Picoseconds waits = std::max<Picoseconds>(across - there - back, 0);
  // The owner of a piece sends its result to all nodes at once, so that the port sends those of one
  // lane after those of another; and no rank of a node hears the first one of the last lane before.
  if (variant.across->row().algorithm == Algorithm::chunked_fold) {
    const Picoseconds before_last_lane = std::max(back * (lanes - 1) / lanes, heard);
    return of_all(waits + hops + std::max(in + taken_in, there + in / pieces) +
                  std::max(back + out / pieces, before_last_lane + out));
  }
  // What takes longer does not hide all of the other, however short the pieces are.
  const Picoseconds port = there + back, rank = in + out + taken_in + heard;
  const Picoseconds cost =
      waits + hops +
      std::max(port + std::max(3 * (in + out) / (2 * pieces), rank / 5), rank + port * 3 / 10);
  // Who gets many messages from one rank gives answers, which that rank waits for: with 2^k nodes
  // all do so in the same rounds, and 64 nodes take 1.15 of what these prices are for 32 and less;
  // with one node less nearly all do, and 31 and 63 nodes take 1.1 of these prices.
  const bool is_halving = variant.across->row().algorithm == Algorithm::canonical_halving;
  if (!is_halving || plan.line_slot_count == 0) return of_all(cost);
  const std::uint32_t nodes = topology.node_count();
  if (std::has_single_bit(nodes)) return of_all(cost + cost / 8);
  return of_all(std::has_single_bit(nodes + 1) ? cost + cost / 16 : cost);
}

plan::Plan hierarchical_plan(const Query& query, const Variant& variant, Rank self,
                             Hierarchy hierarchy) {
  const CollectiveRequest& request = query.request;
  const Topology& topology = query.topology;
  if (variant.turns > 0) return plan::lane_turns_allreduce(self, lane_turns_of(query, variant));
  const std::vector<Node> groups = hierarchy == Hierarchy::groups
                                       ? groups_of(topology, variant.group_size)
                                       : std::vector<Node>();
  const plan::LaneShape shape =
      hierarchy == Hierarchy::groups    ? plan::LaneShape{.rank_count = topology.rank_count,
                                                          .node_of = groups,
                                                          .one_lane = "groups"}
      : hierarchy == Hierarchy::domains ? plan::LaneShape{.rank_count = topology.rank_count,
                                                          .node_of = topology.domain_of,
                                                          .one_lane = "domains"}
                                        : lanes_of(query, variant.lane_count);
  const auto across = [&](Rank node, std::uint32_t) {
    plan::Plan plan = variant.across->plan(node);
    return variant.sub_blocks == 1 ? plan : plan::in_sub_blocks(plan, variant.sub_blocks);
  };
  if (request.collective == Collective::barrier) return plan::leader_barrier(self, shape, across);
  return plan::lanes_allreduce(
      self, shape, order_of(request.reduction), across,
      request.shares_target ? plan::Target::of_node : plan::Target::of_rank);
}

std::string why_not_unasked(const Query& query, Hierarchy hierarchy) {
  if (hierarchy == Hierarchy::domains && !goes_by_domains(query))
    return "the nodes have no domains that are taken into account";
  if (hierarchy == Hierarchy::groups && query.request.shares_target)
    return "the ranks of a node have one target";
  if (hierarchy == Hierarchy::groups && 2 * group_size_min > query.topology.largest_node())
    return "nodes have few ranks";
  if (hierarchy == Hierarchy::leader && is_open_in_node(query) && query.topology.rank_count == 2)
    return "one of two ranks would wait for the other one twice";
  return hierarchy == Hierarchy::lanes && !is_asked_for_hierarchy(query.request) &&
                 lanes_max_of(query, hierarchy) == 1
             ? "the payload is one element, or a node is one rank"
             : "";
}

template <Hierarchy hierarchy>
constexpr Row row(Collective collective, const char* name) {
  return {.collective = collective,
          .name = name,
          .also = hierarchy == Hierarchy::lanes ? "leader" : "",
          .hierarchy = hierarchy,
          .why_not = [](const Query& query) { return why_not_hierarchy(query, hierarchy); },
          .why_not_unasked = [](const Query& query) { return why_not_unasked(query, hierarchy); },
          .variants =
              [](const Query& query) {
                if (hierarchy == Hierarchy::groups) return across_groups(query);
                if (hierarchy != Hierarchy::domains) return across_nodes(query, hierarchy);
                std::vector<Variant> variants;
                add_across_leaders(query, query.topology.domain_of, 0, variants);
                return variants;
              },
          .cost = cost_of_hierarchy<hierarchy>,
          .build = [](const Query& query, const Variant& variant,
                      Rank self) { return hierarchical_plan(query, variant, self, hierarchy); }};
}

constexpr Row table[] = {
    row<Hierarchy::leader>(Collective::allreduce, "leader"),
    row<Hierarchy::lanes>(Collective::allreduce, "lanes"),
    row<Hierarchy::domains>(Collective::allreduce, "domains"),
    row<Hierarchy::groups>(Collective::allreduce, "groups"),
    row<Hierarchy::leader>(Collective::barrier, "leader"),
    row<Hierarchy::domains>(Collective::barrier, "domains"),
    row<Hierarchy::groups>(Collective::barrier, "groups"),
};

}  // namespace

std::span<const Row> hierarchy_rows() {
  return table;
}

namespace {

/// Which contribution is the left operand of a combine by reference depends on the part, and on
/// whether the call is in place.
bool may_swap_operands(const CollectiveRequest& request) {
  return request.reduction.properties.commutative &&
         (request.agreement == Agreement::relaxed || request.reduction.built_in != BuiltIn::none ||
          !order_shows_in_bits(request.reduction));
}

}  // namespace

bool is_read_in_place(const Query& query) {
  const CollectiveRequest& request = query.request;
  return request.reads_in_place && query.topology.rank_count == 2 && !request.is_asked_for() &&
         request.across == Across::automatic && may_swap_operands(request) &&
         !request.shares_target && !is_zero_copy_in_nodes(query);
}

std::optional<Hierarchy> hierarchy_of(const Query& query) {
  const CollectiveRequest& request = query.request;
  const bool is_barrier = request.collective == Collective::barrier;
  if ((!is_barrier && request.collective != Collective::allreduce) ||
      query.topology.node_of.empty() || request.algorithm == Algorithm::shared_ring ||
      (!is_barrier && is_zero_copy_in_nodes(query)))
    return Hierarchy::flat;
  if (is_open_in_node(query))
    return is_barrier || why_not_by_nodes(request, query.topology).empty()
               ? std::nullopt
               : std::optional(Hierarchy::flat);
  if (!is_barrier && is_read_in_place(query)) return Hierarchy::flat;
  if (goes_by_domains(query)) return Hierarchy::domains;
  switch (request.across) {
    case Across::automatic:
      break;
    case Across::flat:
      return Hierarchy::flat;
    case Across::leader:
      return Hierarchy::leader;
    case Across::lanes:
      return is_barrier ? Hierarchy::leader : Hierarchy::lanes;
  }
  return hierarchy_unasked(query);
}

std::string why_not_shared_target(const CollectiveRequest& request, const Topology& topology) {
  if (request.collective != Collective::allreduce) return "";  // nothing is combined
  if (request.across == Across::flat) return "across flat has every rank write its own";
  const std::string why = why_not_by_nodes(request, topology);
  return why.empty() ? why : "an allreduce node by node " + why;
}

namespace {

/// Smaller ones wait longer for entries and acknowledgements than copies take (measured,
/// docs/performance.md).
constexpr std::size_t zero_copy_broadcast_bytes_min = 256u << 10;
constexpr std::size_t zero_copy_broadcast_bytes_min_by_turns = 1u << 20;  // ranks share CPUs
constexpr std::size_t zero_copy_block_bytes_min = 64u << 10;
/// A zero-copy allgather goes directly to all nodes; among more it would connect many ranks.
constexpr std::uint32_t zero_copy_nodes_max = 9;
constexpr std::uint32_t zero_copy_ranks_max = 1024;  // it has lines for the pieces of all

/// Zero-copy broadcasts and allgathers have no chunks: a piece has to be a message.  Pieces are of
/// whole elements.
bool are_pieces_messages(const CollectiveRequest& request, std::size_t pieces) {
  const std::size_t elements = (request.element_count + pieces - 1) / pieces;
  return elements <=
         zero_copy_part_bytes_max / std::max<std::size_t>(request.reduction.element_bytes, 1);
}
bool is_zero_copy_broadcast(const Query& query) {
  const std::size_t bytes = query.request.bytes();
  const bool by_turns = query.topology.has_shared_nodes() && query.topology.shares_cpus;
  return bytes >=
             (by_turns ? zero_copy_broadcast_bytes_min_by_turns : zero_copy_broadcast_bytes_min) &&
         bytes <= zero_copy_pieces_max * zero_copy_part_bytes_max &&
         are_pieces_messages(query.request, zero_copy_pieces(bytes, query.topology.node_count()));
}
bool is_zero_copy_allgather(const Query& query) {
  const std::size_t bytes = query.request.bytes();
  const std::uint32_t rank_count = query.topology.rank_count;
  return query.topology.node_count() <= zero_copy_nodes_max && rank_count <= zero_copy_ranks_max &&
         bytes >= zero_copy_block_bytes_min &&
         bytes <= zero_copy_pieces_of_block_max(rank_count) * zero_copy_part_bytes_max &&
         are_pieces_messages(query.request, zero_copy_pieces_of_block(bytes, rank_count));
}

/// A smaller payload is in the caches, where copies cost less than lines that go from the cache of
/// one rank to that of another in each call (measured, docs/performance.md).
constexpr std::size_t zero_copy_lanes_bytes_min = 1u << 20;
/// Across nodes, so many pieces at least: with fewer, the network and the memory of nodes hardly
/// work at the same time (by the recurrence of plan/cost/makespan.hpp).
constexpr std::uint16_t zero_copy_lanes_pieces_min = 4;

/// Where reduces without copies of sources were measured to be faster (docs/performance.md).  In a
/// single node these are reduces of two ranks that have a CPU each, and of 4 to 8 ranks that share
/// CPUs.  With more ranks that have a CPU each, which was not measured, the root alone would copy
/// nearly all of the payload, while the ranks of a tree combine beside each other.  For this
/// reason, reduces over several nodes are taken only where ranks share CPUs.
constexpr std::size_t zero_copy_reduce_bytes_min = 1u << 20;
constexpr std::size_t zero_copy_reduce_bytes_min_by_turns = 512u << 10;
bool is_of_zero_copy_reduces_in_node(const Topology& topology, std::size_t bytes) {
  const std::uint32_t rank_count = topology.rank_count;
  return topology.shares_cpus
             ? rank_count >= 4 && rank_count <= 8 && bytes >= zero_copy_reduce_bytes_min_by_turns
             : rank_count == 2 && bytes >= zero_copy_reduce_bytes_min;
}

/// They were also faster over a few nodes of a few ranks each, where ranks share CPUs.  A worker
/// holds its lane four times (partials and slots, two copies of each), so the bytes of a lane are
/// limited for several operations to fit the default arena.
constexpr std::uint32_t zero_copy_reduce_nodes_max = 4, zero_copy_reduce_ranks_of_node_max = 4;
constexpr std::size_t zero_copy_reduce_lane_bytes_max = 1u << 20;
bool is_of_zero_copy_reduces_across(const Query& query) {
  const Topology& topology = query.topology;
  const std::size_t bytes = query.request.bytes();
  return topology.shares_cpus && topology.node_count() <= zero_copy_reduce_nodes_max &&
         topology.largest_node() <= zero_copy_reduce_ranks_of_node_max &&
         topology.smallest_node() > 1 && bytes >= zero_copy_reduce_bytes_min_by_turns &&
         bytes <= zero_copy_reduce_lane_bytes_max * topology.smallest_node();
}

/// Whether the registers for what goes across keep to their budget.
bool has_room_across(const Query& query, const plan::ZeroCopyLanes& shape, std::size_t part_bytes) {
  constexpr std::size_t line = 64;
  const std::size_t messages =
      (query.topology.node_count() - std::size_t{1}) * std::size_t{shape.pieces};
  return 4 * messages * (part_bytes + 2 * line) <= plan_registers_bytes;
}

}  // namespace

bool suits_zero_copy_in_nodes(const Query& query) {
  const CollectiveRequest& request = query.request;
  const Topology& topology = query.topology;
  if (request.collective != Collective::allreduce || !topology.has_shared_nodes() ||
      request.bytes() < zero_copy_lanes_bytes_min || request.is_asked_for() ||
      request.across != Across::automatic || request.shares_target || request.is_undivided ||
      !may_swap_operands(request) || is_reproducible_in_bits(request) ||
      topology.node_count() > zero_copy_nodes_max ||
      topology.node_count() - 1 > request.partners_max ||
      topology.largest_node() > 2 * topology.smallest_node())  // few ranks would work for many
    return false;
  const plan::ZeroCopyLanes shape = zero_copy_lanes_of(query);
  const std::size_t parts = plan::zero_copy_parts(shape);
  if (parts > request.element_count || !plan::is_zero_copy_allreduce(shape) ||
      (!topology.is_one_node() && shape.pieces < zero_copy_lanes_pieces_min))
    return false;
  const std::size_t part_bytes =
      (request.element_count + parts - 1) / parts * request.reduction.element_bytes;
  return part_bytes <= zero_copy_part_bytes_max && has_room_across(query, shape, part_bytes);
}

plan::ZeroCopyLanes zero_copy_lanes_of(const Query& query) {
  const Topology& topology = query.topology;
  const std::size_t parts = std::size_t{topology.smallest_node()} * topology.node_count();
  return {.rank_count = topology.rank_count,
          .node_of = topology.node_of,
          .pieces = zero_copy_pieces_of_lane(query.request.bytes() / parts, topology.node_count(),
                                             parts)};
}

bool is_zero_copy_in_nodes(const Query& query) {
  return query.request.zero_copy && !query.topology.caches_are_apart &&
         suits_zero_copy_in_nodes(query);
}

std::string why_copied_from_segments(const Query& query) {
  const bool is_reduce = query.request.collective == Collective::reduce;
  const bool would_stay = is_reduce
                              ? suits_zero_copy_reduce(query) && !is_zero_copy_reduce(query)
                              : query.topology.caches_are_apart && suits_zero_copy_in_nodes(query);
  return would_stay
             ? "not lanes_zero_copy, although buffers lie in segments: CPUs of a node share no "
               "cache (measured)"
             : "";
}

plan::ZeroCopyReduce zero_copy_reduce_of(const Query& query) {
  constexpr std::size_t pieces_in_node_max = 8;  // 16 take as long (measured)
  constexpr std::size_t pieces_across_max = 16, piece_bytes_across = 32u << 10;
  const Topology& topology = query.topology;
  const bool is_one_node = topology.is_one_node();
  const std::size_t lane_bytes = query.request.bytes() / topology.smallest_node();
  const std::size_t pieces =
      lane_bytes / (is_one_node ? chunk_bytes_of_reduce : piece_bytes_across);
  const std::size_t pieces_max = is_one_node ? pieces_in_node_max : pieces_across_max;
  return {.root = query.request.root,
          .rank_count = topology.rank_count,
          .node_of = topology.node_of,
          .pieces = static_cast<std::uint16_t>(std::clamp<std::size_t>(pieces, 1, pieces_max))};
}

bool suits_zero_copy_reduce(const Query& query) {
  const CollectiveRequest& request = query.request;
  const std::uint32_t participants = request.participant_count;
  if (request.collective != Collective::reduce || request.tree != Tree::automatic ||
      !request.per_round_by_default.empty() ||
      (participants != 0 && participants < query.topology.rank_count) ||
      !request.reduction.properties.commutative || is_reproducible_in_bits(request))
    return false;
  const bool is_suited =
      query.topology.is_one_node()
          // An element is not divided, and a rank has room for one of each piece.
          ? request.reduction.element_bytes <= chunk_bytes_of_reduce &&
                is_of_zero_copy_reduces_in_node(query.topology, request.bytes())
          : is_of_zero_copy_reduces_across(query);
  if (!is_suited) return false;
  const plan::ZeroCopyReduce shape = zero_copy_reduce_of(query);
  return plan::is_zero_copy_reduce(shape) && plan::zero_copy_parts(shape) <= request.element_count;
}

bool is_zero_copy_reduce(const Query& query) {
  const bool is_across = !query.topology.is_one_node();
  return suits_zero_copy_reduce(query) && !(is_across && query.topology.caches_are_apart);
}

bool may_be_zero_copy(const CollectiveRequest& request, const Topology& topology) {
  const Query query{request, topology, {}};
  if (request.collective == Collective::reduce) return is_zero_copy_reduce(query);
  const bool is_broadcast = request.collective == Collective::broadcast;
  if (is_broadcast || request.collective == Collective::allgather)
    return !query.topology.is_one_node() && request.per_round_by_default.empty() &&
           (is_broadcast ? is_zero_copy_broadcast(query) : is_zero_copy_allgather(query));
  if (request.collective != Collective::allreduce) return false;
  const std::uint32_t rank_count = query.topology.rank_count;
  const bool is_flat = request.across == Across::automatic || request.across == Across::flat;
  const bool is_in_parts = request.algorithm == Algorithm::automatic ||
                           request.algorithm == Algorithm::chunked_fold ||
                           request.algorithm == Algorithm::ring;
  const bool is_taken = request.algorithm != Algorithm::automatic ||
                        (!request.gives_per_round() && rank_count <= partners_unasked_max + 1);
  // Between ranks of a node nothing is written straight into a target.
  if (query.topology.has_shared_nodes())
    return !topology.caches_are_apart && suits_zero_copy_in_nodes(query);
  return rank_count > 1 && is_flat && is_in_parts && is_taken &&
         request.bytes() >= in_parts_from_bytes;
}

}  // namespace tutti::tune
