#include "tune/hierarchy.hpp"

#include <algorithm>
#include <set>
#include <tutti/detail/names.hpp>

#include "plan/allreduce/lanes.hpp"
#include "plan/core/nodes.hpp"
#include "tune/assumed_network.hpp"
#include "tune/choose.hpp"
#include "tune/rows.hpp"

namespace tutti::tune {
namespace {

// Provisional: measured in one run each with 2 to 8 ranks on 2 CPUs (runtime/README.md), not on a
// network.
constexpr std::size_t lanes_from_bytes = 8192;
constexpr std::size_t lane_bytes_min = 1024;  // of a lane
// Below this, the further messages of a part that is cut again cost more than they save where ranks
// share CPUs (16 KiB of 8 ranks on 2 CPUs took 1.3 of the time).
constexpr std::size_t cut_again_from_bytes = 32 << 10;
// Slots of pieces.  With more, chunks would be so short that messages of less than a KiB cross the
// network, or the registers would not fit the default arena.
constexpr std::uint64_t pieces_slots_max = 1024;

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

/// Lanes of a hierarchy: none of them is without an element.
plan::LaneShape shape_of(const Query& query, Hierarchy hierarchy) {
  const Topology& topology = query.topology;
  if (hierarchy == Hierarchy::domains)
    return {
        .rank_count = topology.rank_count, .node_of = topology.domain_of, .one_lane = "domains"};
  const std::size_t lanes_max = hierarchy == Hierarchy::lanes ? topology.smallest_node() : 1;
  const std::size_t lanes =
      std::min(lanes_max, std::max<std::size_t>(query.request.element_count, 1));
  return {.rank_count = topology.rank_count,
          .node_of = topology.node_of,
          .lane_count = static_cast<std::uint32_t>(lanes)};
}

/// The schedule across may cut the part of a lane again.
plan::LaneShape shape_of(const Query& query, Hierarchy hierarchy, const plan::Plan& across) {
  plan::LaneShape shape = shape_of(query, hierarchy);
  shape.pieces = across.parts;
  return shape;
}

/// Slots for each rank of a node, besides those of the schedule across.
std::string too_many_of_a_node() {
  return "has a message for each rank of a node, and others across, of at most " +
         std::to_string(plan::slots_max / 2) +
         " each; use flat, or nodes of fewer ranks (TUTTI_RANKS_PER_NODE)";
}

std::string why_not_hierarchy(const Query& query, Hierarchy hierarchy) {
  if (query.request.collective == Collective::allreduce) {
    if (hierarchy == Hierarchy::domains && query.request.bytes() >= lanes_from_bytes)
      return "has leaders combine whole payloads, which takes long; use automatic";
    const Topology domains{.rank_count = query.topology.rank_count,
                           .node_of = query.topology.domain_of};
    const std::string why =
        why_not_by_nodes(query.request, hierarchy == Hierarchy::domains ? domains : query.topology);
    if (!why.empty()) return why + "; use automatic or flat";
  }
  return plan::is_lane_shape(shape_of(query, hierarchy)) ? "" : too_many_of_a_node();
}

/// Whether small payloads and barriers meet by domains first.
bool goes_by_domains(const Query& query) {
  const CollectiveRequest& request = query.request;
  return !request.is_asked_for() && request.across == Across::automatic && !request.shares_target &&
         query.topology.has_domains() && why_not_hierarchy(query, Hierarchy::domains).empty();
}

/// The rule of allreduce, where nothing is said.
Hierarchy rule_of_allreduce(const Query& query) {
  const CollectiveRequest& request = query.request;
  const std::size_t bytes = request.bytes();
  const bool is_large = bytes >= lanes_from_bytes;
  const Hierarchy hierarchy = is_large ? Hierarchy::lanes : Hierarchy::leader;
  if (request.shares_target) return hierarchy;
  if (request.is_asked_for() || !why_not_by_nodes(request, query.topology).empty() ||
      !query.topology.has_shared_nodes() || (query.topology.is_one_node() && !is_large))
    return Hierarchy::flat;
  const plan::LaneShape shape = shape_of(query, hierarchy);
  if (!plan::is_lane_shape(shape)) return Hierarchy::flat;
  // A leader's slots hold the payloads of its whole node, and it combines them alone.
  const bool is_worth_it =
      !is_large || (shape.lane_count > 1 && bytes / shape.lane_count >= lane_bytes_min);
  return is_worth_it ? hierarchy : Hierarchy::flat;
}

Hierarchy rule_of_barrier(const Query& query) {
  const bool has_leaders = !query.request.is_asked_for() && query.topology.has_shared_nodes() &&
                           !query.topology.is_one_node() &&
                           plan::is_lane_shape(shape_of(query, Hierarchy::leader));
  return has_leaders ? Hierarchy::leader : Hierarchy::flat;
}

/// Throws Error{unsupported} if the schedule across the nodes does not go with the hierarchy.
void require_room(const Query& query, Hierarchy hierarchy, const plan::Plan& across) {
  const std::string refusal = std::string(name_of(query.request.collective)) + ": across " +
                              (hierarchy == Hierarchy::lanes ? "lanes " : "leader ");
  if (across.slot_count > plan::slots_max / 2)
    throw Error(ErrorCode::unsupported, refusal + too_many_of_a_node());
  if (!plan::is_lane_shape(shape_of(query, hierarchy, across)))
    throw Error(ErrorCode::unsupported, refusal + too_many_of_a_node());
  const bool is_cut = shape_of(query, hierarchy).lane_count > 1 || across.parts > 1;
  if (across.flow_control != plan::FlowControl::synchronising || (is_cut && across.payloads > 1))
    throw Error(ErrorCode::unsupported,
                refusal + "does not go with algorithm " + across.algorithm +
                    ", whose messages are several payloads or need credits; use "
                    "recursive_multiplying");
}

/// How many ranks a rank is connected with.
std::size_t partners_of(const plan::Plan& plan) {
  std::set<Rank> partners;
  for (const plan::Step& step : plan.steps)
    if (step.peer != no_rank) partners.insert(step.peer);
  return partners.size();
}

/// Whether a schedule that cuts the part of a lane goes with the hierarchy.
bool is_possible(const Query& query, Hierarchy hierarchy, const Choice& across) {
  const plan::Plan plan = across.plan(Rank{0});
  if (plan.parts == 1 || plan.payloads != 1 ||
      plan.flow_control != plan::FlowControl::synchronising)
    return false;
  const plan::LaneShape shape = shape_of(query, hierarchy, plan);
  const std::uint64_t slots =
      (std::uint64_t{query.topology.largest_node()} + shape.lane_count) * shape.pieces;
  return slots <= pieces_slots_max && plan::is_lane_shape(shape) &&
         partners_of(plan) <= query.request.partners_max;
}

/// Whether the schedule that is asked for can be chosen across the nodes without being asked for by
/// the caller.
bool serves_across(const Query& query) {
  const Row& row = row_of(query.request.algorithm);
  const bool connects_all = row.algorithm == Algorithm::chunked_fold;
  return serves(row, query.request) && (row.why_not == nullptr || row.why_not(query).empty()) &&
         (!connects_all || query.topology.rank_count <= partners_unasked_max + 1);
}

/// What a lane, or the leaders, ask for: of payloads as a whole, and of some that are cut again.
std::vector<Variant> across_nodes(const Query& query, Hierarchy hierarchy) {
  const std::uint32_t lane_count = shape_of(query, hierarchy).lane_count;
  CollectiveRequest inner = query.request;
  inner.across = Across::flat;
  inner.shares_target = false;
  // The ranks of a node give each other what the schedule across then has in partials.
  inner.zero_copy = inner.zero_copy && !query.topology.has_shared_nodes();
  inner.element_count = (inner.element_count + lane_count - 1) / lane_count;
  inner.is_undivided = inner.algorithm == Algorithm::automatic;
  inner.one_value_only = inner.is_undivided && lane_count > 1;
  const Topology nodes{.rank_count = query.topology.node_count()};
  const Choice undivided = choose(inner, nodes);
  require_room(query, hierarchy, undivided.plan(Rank{0}));
  std::vector<Variant> variants{{.across = std::make_shared<const Choice>(undivided)}};
  const bool may_be_cut = inner.is_undivided && !inner.is_asked_for() && nodes.rank_count > 1 &&
                          inner.element_count >= nodes.rank_count &&
                          query.request.bytes() >= cut_again_from_bytes;
  if (!may_be_cut) return variants;
  inner.is_undivided = inner.one_value_only = false;
  for (const Algorithm algorithm :
       {Algorithm::chunked_fold, Algorithm::circulant, Algorithm::canonical_halving}) {
    inner.algorithm = algorithm;
    if (!serves_across({inner, nodes})) continue;
    if (Choice divided = choose(inner, nodes); is_possible(query, hierarchy, divided))
      variants.push_back({.across = std::make_shared<const Choice>(std::move(divided))});
  }
  return variants;
}

/// What the leaders of domains ask for, which are ranks of nodes.
Variant across_domains(const Query& query) {
  const Topology& topology = query.topology;
  Topology leaders{.node_of = plan::nodes_of_domains(topology.node_of, topology.domain_of)};
  leaders.rank_count = static_cast<std::uint32_t>(leaders.node_of.size());
  CollectiveRequest inner = query.request;
  inner.reads_in_place = false;  // What they pass on are partials, not users' buffers.
  return {.across = std::make_shared<const Choice>(choose(inner, leaders))};
}

/// The lanes of a node share its port: each message takes it as often as there are lanes.
template <Hierarchy hierarchy>
plan::Picoseconds cost_of_hierarchy(const Query& query, const Variant& variant) {
  const plan::Picoseconds in_node = 2 * hop_in_memory;
  if (hierarchy == Hierarchy::domains) return variant.across->cost() + in_node;
  const std::uint32_t lane_count = shape_of(query, hierarchy).lane_count;
  const plan::Plan plan = variant.across->plan(Rank{0});
  const std::uint64_t lane_bytes = priced_bytes(query.request.bytes()) / lane_count;
  const std::uint64_t part_bytes = (lane_bytes + plan.parts - 1) / plan.parts;
  const plan::LogGP& network = assumed_network;
  plan::Picoseconds cost = in_node + static_cast<plan::Picoseconds>(plan.per_round.size()) *
                                         (network.travel_time(0) + network.receive_overhead);
  for (const plan::Step& step : plan.steps)
    if (step.action == plan::Action::put)
      cost += lane_count * network.port_time(step.payloads * part_bytes);
    else if (step.action == plan::Action::combine)
      cost += network.work_time(part_bytes);
  // A fold by owners needs every piece before its first round is through: what goes through memory
  // is hidden behind little of what goes through the port.  Few nodes gain less by other schedules
  // (a tenth at most, by the recurrence) than their further rounds cost where ranks share CPUs.
  if (variant.across->row().algorithm == Algorithm::chunked_fold && plan.parts > 4)
    cost += (lane_count - 1) * (plan.parts * store_overhead + store_per_byte.of(lane_bytes));
  return cost;
}

plan::Plan hierarchical_plan(const Query& query, const Variant& variant, Rank self,
                             Hierarchy hierarchy) {
  const CollectiveRequest& request = query.request;
  const plan::LaneShape shape = shape_of(query, hierarchy);
  const auto across = [&](Rank node, std::uint32_t) { return variant.across->plan(node); };
  if (request.collective == Collective::barrier) return plan::leader_barrier(self, shape, across);
  return plan::lanes_allreduce(
      self, shape, order_of(request.reduction), across,
      request.shares_target ? plan::Target::of_node : plan::Target::of_rank);
}

template <Hierarchy hierarchy>
constexpr Row row(Collective collective, const char* name) {
  return {.collective = collective,
          .name = name,
          .also = hierarchy == Hierarchy::lanes ? "leader" : "",
          .hierarchy = hierarchy,
          .why_not = [](const Query& query) { return why_not_hierarchy(query, hierarchy); },
          .variants =
              [](const Query& query) {
                return hierarchy == Hierarchy::domains ? std::vector<Variant>{across_domains(query)}
                                                       : across_nodes(query, hierarchy);
              },
          .cost = cost_of_hierarchy<hierarchy>,
          .build = [](const Query& query, const Variant& variant,
                      Rank self) { return hierarchical_plan(query, variant, self, hierarchy); }};
}

constexpr Row table[] = {
    row<Hierarchy::leader>(Collective::allreduce, "leader"),
    row<Hierarchy::lanes>(Collective::allreduce, "lanes"),
    row<Hierarchy::domains>(Collective::allreduce, "domains"),
    row<Hierarchy::leader>(Collective::barrier, "leader"),
    row<Hierarchy::domains>(Collective::barrier, "domains"),
};

}  // namespace

std::span<const Row> hierarchy_rows() {
  return table;
}

bool is_read_in_place(const Query& query) {
  const CollectiveRequest& request = query.request;
  // Which contribution is the left operand depends on the part, and on whether the call is in
  // place.
  const bool may_swap_operands =
      request.reduction.properties.commutative &&
      (request.agreement == Agreement::relaxed || request.reduction.built_in != BuiltIn::none ||
       !order_shows_in_bits(request.reduction));
  return request.reads_in_place && query.topology.rank_count == 2 && !request.is_asked_for() &&
         request.across == Across::automatic && may_swap_operands && !request.shares_target;
}

Hierarchy hierarchy_of(const Query& query) {
  const CollectiveRequest& request = query.request;
  const bool is_barrier = request.collective == Collective::barrier;
  if ((!is_barrier && request.collective != Collective::allreduce) ||
      query.topology.node_of.empty() || request.algorithm == Algorithm::shared_ring ||
      (!is_barrier && is_read_in_place(query)))
    return Hierarchy::flat;
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
  return is_barrier ? rule_of_barrier(query) : rule_of_allreduce(query);
}

std::string why_not_shared_target(const Query& query) {
  if (query.request.across == Across::flat) return "across flat has every rank write its own";
  const std::string why = why_not_by_nodes(query.request, query.topology);
  return why.empty() ? why : "an allreduce node by node " + why;
}

bool may_be_zero_copy(const Query& query) {
  const CollectiveRequest& request = query.request;
  const std::uint32_t rank_count = query.topology.rank_count;
  const bool is_flat = request.across == Across::automatic || request.across == Across::flat;
  const bool is_in_parts = request.algorithm == Algorithm::automatic ||
                           request.algorithm == Algorithm::chunked_fold ||
                           request.algorithm == Algorithm::ring;
  const bool is_taken = request.algorithm != Algorithm::automatic ||
                        (!request.gives_per_round() && rank_count <= partners_unasked_max + 1);
  // Between ranks of a node nothing is written straight into a target.
  return !query.topology.has_shared_nodes() && rank_count > 1 && is_flat && is_in_parts &&
         is_taken && request.bytes() >= in_parts_from_bytes;
}

}  // namespace tutti::tune
