#include "api/selection.hpp"

#include <algorithm>
#include <bit>
#include <string>
#include <tutti/status.hpp>

#include "api/allreduce_schedules.hpp"
#include "api/asked_per_round.hpp"
#include "api/assumed_network.hpp"
#include "api/names.hpp"
#include "api/settings.hpp"
#include "plan/allreduce/canonical_dissemination.hpp"
#include "plan/allreduce/canonical_halving.hpp"
#include "plan/allreduce/chunked_fold.hpp"
#include "plan/allreduce/circulant.hpp"
#include "plan/allreduce/decomposition.hpp"
#include "plan/allreduce/dissemination.hpp"
#include "plan/allreduce/gather_fold.hpp"
#include "plan/allreduce/lanes.hpp"
#include "plan/allreduce/nway.hpp"
#include "plan/allreduce/rabenseifner.hpp"
#include "plan/allreduce/recursive_multiplying.hpp"
#include "plan/allreduce/ring.hpp"
#include "plan/allreduce/shared_ring.hpp"
#include "plan/allreduce/two_partial.hpp"
#include "plan/core/copies.hpp"
#include "plan/core/nodes.hpp"
#include "plan/rooted/single_copy.hpp"

namespace tutti::api {
namespace {

/// Not of the table: it has no plan.
constexpr Schedule shared_ring{.algorithm = Algorithm::shared_ring,
                               .agreement = Agreement::identical,
                               .keeps_rank_order = false,
                               .takes = PerRoundIs::nothing};

// Provisional: measured in one run each with 2 to 8 ranks on 2 CPUs (README.md of this folder), not
// on a network.
constexpr std::size_t lanes_from_bytes = 8192;
constexpr std::size_t lane_bytes_min = 1024;  // of a lane

void require_defined(Across across, const char* collective) {
  if (across > Across::lanes)
    throw Error(ErrorCode::invalid_argument,
                std::string(collective) + ": across " +
                    std::to_string(static_cast<unsigned>(across)) +
                    " is none; use one of the enumerators of tutti::Across");
}

/// Whether nodes are divided further, into domains whose ranks and leaders have slots.
bool has_domains(std::span<const Node> node_of, std::span<const Node> domain_of) {
  if (domain_of.empty() || plan::node_count_of(domain_of, 0) == plan::node_count_of(node_of, 0))
    return false;
  const std::size_t leaders =
      plan::largest_node_of(plan::nodes_of_domains(node_of, domain_of));  // of a node
  return plan::largest_node_of(domain_of) + leaders < plan::slots_max / 2;
}

/// With the domains of nodes as nodes.
plan::LaneShape domain_shape(std::uint32_t rank_count, std::span<const Node> domain_of) {
  return {.rank_count = rank_count, .node_of = domain_of, .one_lane = "domains"};
}

/// Why the ranks of a node cannot be combined first; empty: they can.
std::string why_not_by_nodes(const AllreduceRequest& request) {
  const Reduction& reduction = request.reduction;
  if (request.agreement == Agreement::reproducible && order_shows_in_bits(reduction))
    return "gives results that depend on the shape of the nodes, and reproducible ones are asked "
           "for";
  if (!reduction.properties.commutative && !plan::nodes_are_runs(request.node_of))
    return std::string(
               "combines the ranks of each node first, which do not follow each other, and ") +
           name_of(reduction.built_in) + " does not commute";
  return {};
}

/// Lanes for that way across: none of them without an element.
plan::LaneShape lane_shape(const AllreduceRequest& request, std::uint32_t rank_count,
                           Across across) {
  const std::size_t lanes_max =
      across == Across::lanes ? plan::lanes_max(rank_count, request.node_of) : 1;
  const std::size_t lanes = std::min(lanes_max, std::max<std::size_t>(request.element_count, 1));
  return {.rank_count = rank_count,
          .node_of = request.node_of,
          .lane_count = static_cast<std::uint32_t>(lanes)};
}

/// Whether ranks share nodes, and there are several nodes or `of_one` will do.
bool has_stages(std::span<const Node> node_of, std::uint32_t rank_count, bool of_one) {
  const std::uint32_t node_count = plan::node_count_of(node_of, rank_count);
  return node_count < rank_count && (of_one || node_count > 1);
}

/// What is asked for, or the rule.  A schedule or a vector that is asked for is one of all ranks
/// where the call does not say otherwise.
Across across_of(const AllreduceRequest& request, std::uint32_t rank_count) {
  if (request.node_of.empty()) return Across::flat;  // nothing to regard
  if (request.across != Across::automatic) return request.across;
  if (request.shares_target)
    return payload_bytes_of(request) >= lanes_from_bytes ? Across::lanes : Across::leader;
  const bool is_given = !request.per_round.empty() || !request.per_round_by_default.empty() ||
                        request.algorithm != Algorithm::automatic;
  if (is_given || !why_not_by_nodes(request).empty()) return Across::flat;
  const std::size_t bytes = payload_bytes_of(request);
  const bool is_large = bytes >= lanes_from_bytes;
  if (!has_stages(request.node_of, rank_count, is_large)) return Across::flat;
  const Across across = is_large ? Across::lanes : Across::leader;
  const plan::LaneShape shape = lane_shape(request, rank_count, across);
  if (!plan::is_lane_shape(shape)) return Across::flat;
  // A leader's slots hold the payloads of its whole node, and it combines them alone.
  const bool is_worth_it =
      !is_large || (shape.lane_count > 1 && bytes / shape.lane_count >= lane_bytes_min);
  return is_worth_it ? across : Across::flat;
}

/// Whether ranks of a domain meet first: small payloads, unless it is said how.
bool goes_by_domains(const AllreduceRequest& request) {
  if (request.shares_target) return false;  // of a node
  const bool is_given = !request.per_round.empty() || !request.per_round_by_default.empty() ||
                        request.algorithm != Algorithm::automatic ||
                        request.across != Across::automatic;
  if (is_given || payload_bytes_of(request) >= lanes_from_bytes) return false;
  AllreduceRequest by_domains = request;
  by_domains.node_of = request.domain_of;
  return has_domains(request.node_of, request.domain_of) && why_not_by_nodes(by_domains).empty();
}

plan::Plan plan_by_domains(Rank self, std::uint32_t rank_count, const AllreduceRequest& request) {
  const std::vector<Node> nodes = plan::nodes_of_domains(request.node_of, request.domain_of);
  AllreduceRequest inner = request;
  inner.node_of = nodes;
  inner.domain_of = {};
  inner.single_copy = false;  // What is passed on between domains are partials, no users' buffers.
  const plan::Order order =
      request.reduction.properties.commutative ? plan::Order::commutative : plan::Order::rank_order;
  return plan::lanes_allreduce(self, domain_shape(rank_count, request.domain_of), order,
                               [&](Rank domain, std::uint32_t domain_count) {
                                 return allreduce_plan(domain, domain_count, inner);
                               });
}

plan::Buffers buffers_of(const AllreduceRequest& request) {
  return request.zero_copy ? plan::Buffers::registered : plan::Buffers::anywhere;
}

plan::Plan chunked_fold_plan(Rank self, std::uint32_t rank_count, const AllreduceRequest& request) {
  if (!request.per_round.empty())
    refuse_vector(request.per_round,
                  ": algorithm chunked_fold has two rounds of P - 1 messages whatever is asked "
                  "for; leave per_round out, or use canonical_dissemination");
  if (!serves_chunked_fold(rank_count, request))
    throw Error(ErrorCode::unsupported,
                "allreduce: algorithm chunked_fold connects every rank to all others and needs "
                "2 (P - 1) of " +
                    std::to_string(plan::slots_max) + " messages, P is " +
                    std::to_string(rank_count) +
                    (request.partners_max == UINT32_MAX
                         ? std::string()
                         : " and a context holds " + std::to_string(request.partners_max) +
                               " connections") +
                    "; use canonical_dissemination");
  return plan::chunked_fold_allreduce(self, rank_count, buffers_of(request));
}

/// Of a block of the ring: while one is combined, the other is on its way.  Among many ranks there
/// are messages enough without.
std::uint32_t ring_sub_blocks(std::uint32_t rank_count) {
  return rank_count <= 64 ? 2 : 1;
}

plan::Plan ring_plan(Rank self, std::uint32_t rank_count, const AllreduceRequest& request) {
  if (!request.per_round.empty())
    refuse_vector(request.per_round,
                  ": algorithm ring has 2 (P - 1) rounds whatever is asked for; leave per_round "
                  "out, or use recursive_multiplying");
  if (!plan::is_ring(rank_count, ring_sub_blocks(rank_count)))
    throw Error(ErrorCode::unsupported, "allreduce: algorithm ring needs 2 P of " +
                                            std::to_string(plan::slots_max) + " messages, P is " +
                                            std::to_string(rank_count) +
                                            "; use recursive_multiplying");
  return plan::ring_allreduce(self, rank_count, ring_sub_blocks(rank_count), request.node_of,
                              buffers_of(request));
}

plan::Plan rabenseifner_plan(Rank self, std::uint32_t rank_count, const AllreduceRequest& request) {
  if (!request.per_round.empty())
    refuse_vector(request.per_round,
                  ": algorithm rabenseifner has 2 log2 P rounds whatever is asked for; leave "
                  "per_round out, or use recursive_multiplying");
  if (!plan::is_rabenseifner(rank_count))
    throw Error(ErrorCode::unsupported, "allreduce: algorithm rabenseifner needs about P of " +
                                            std::to_string(plan::slots_max) + " messages, P is " +
                                            std::to_string(rank_count) +
                                            "; use recursive_multiplying");
  return plan::rabenseifner_allreduce(self, rank_count);
}

plan::Plan circulant_plan(Rank self, std::uint32_t rank_count, const AllreduceRequest& request) {
  if (!request.per_round.empty())
    refuse_vector(request.per_round,
                  ": algorithm circulant has 2 (P - 1) messages along its skips whatever is asked "
                  "for; leave per_round out, or use recursive_multiplying");
  if (!plan::is_circulant_allreduce(rank_count))
    throw Error(ErrorCode::unsupported, "allreduce: algorithm circulant needs 4 (P - 1) of " +
                                            std::to_string(plan::slots_max) + " messages, P is " +
                                            std::to_string(rank_count) +
                                            "; use recursive_multiplying");
  return plan::circulant_allreduce(self, rank_count);
}

plan::Plan canonical_halving_plan(Rank self, std::uint32_t rank_count,
                                  const AllreduceRequest& request) {
  if (!request.per_round.empty())
    refuse_vector(request.per_round,
                  ": algorithm canonical_halving has about 2 (P - 1) messages in 2 log2 P rounds "
                  "whatever is asked for; leave per_round out, or use canonical_dissemination");
  if (!plan::is_canonical_halving(rank_count))
    throw Error(ErrorCode::unsupported, "allreduce: algorithm canonical_halving needs 4 P of " +
                                            std::to_string(plan::slots_max) + " messages, P is " +
                                            std::to_string(rank_count) +
                                            "; use canonical_dissemination");
  return plan::canonical_halving_allreduce(self, rank_count);
}

plan::Plan gather_fold_plan(Rank self, std::uint32_t rank_count, const plan::PerRound& vector) {
  if (!plan::is_gather_fold(rank_count, vector))
    throw Error(ErrorCode::unsupported,
                "allreduce: algorithm gather_fold keeps the contributions of all ranks, of at most "
                "65535, P is " +
                    std::to_string(rank_count) + "; use canonical_dissemination");
  return plan::gather_fold_allreduce(self, rank_count, vector);
}

[[noreturn]] void refuse_nodes(const std::string& refusal) {
  throw Error(ErrorCode::unsupported,
              refusal + "has a message for each rank of a node, and others across, of at most " +
                  std::to_string(plan::slots_max / 2) +
                  " each; use flat, or nodes of fewer ranks (TUTTI_RANKS_PER_NODE)");
}

plan::Plan plan_by_nodes(Rank self, std::uint32_t rank_count, const AllreduceRequest& request,
                         Across across) {
  const std::string refusal = std::string("allreduce: across ") + name_of(across) + " ";
  if (const std::string why = why_not_by_nodes(request); !why.empty())
    throw Error(ErrorCode::unsupported, refusal + why + "; use automatic or flat");
  const plan::LaneShape shape = lane_shape(request, rank_count, across);
  if (!plan::is_lane_shape(shape)) refuse_nodes(refusal);
  AllreduceRequest inner = request;
  inner.across = Across::flat;
  inner.node_of = {};
  inner.element_count = (request.element_count + shape.lane_count - 1) / shape.lane_count;
  // Automatic: none that cuts the payload once more.
  if (inner.algorithm == Algorithm::automatic) inner.partners_max = 0;
  // Messages of one payload are needed where it is cut.
  const Reduction& reduction = request.reduction;
  const bool is_ordered = !reduction.properties.commutative;
  const bool is_cut = shape.lane_count > 1;
  if (is_cut && inner.algorithm == Algorithm::automatic &&
      (is_ordered || (order_shows_in_bits(reduction) && request.agreement == Agreement::identical)))
    inner.algorithm = Algorithm::recursive_multiplying;
  const auto schedule = [&](Rank node, std::uint32_t node_count) {
    plan::Plan plan = allreduce_plan(node, node_count, inner);
    if (plan.slot_count > plan::slots_max / 2) refuse_nodes(refusal);
    if (plan.parts > 1 || (is_cut && plan.payloads > 1))
      throw Error(ErrorCode::unsupported, refusal + "does not go with algorithm " + plan.algorithm +
                                              ", whose messages are several parts or payloads; use "
                                              "recursive_multiplying");
    return plan;
  };
  return plan::lanes_allreduce(
      self, shape, is_ordered ? plan::Order::rank_order : plan::Order::commutative, schedule,
      request.shares_target ? plan::Target::of_node : plan::Target::of_rank);
}

}  // namespace

std::size_t payload_bytes_of(const AllreduceRequest& request) noexcept {
  return request.element_count * request.reduction.element_bytes;
}

bool order_shows_in_bits(const Reduction& reduction) noexcept {
  if (reduction.element_type == ElementType::other) return true;
  return is_floating(reduction.element_type) && reduction.built_in != BuiltIn::min &&
         reduction.built_in != BuiltIn::max;
}

std::string why_not_shared_target(const AllreduceRequest& request) {
  if (request.across == Across::flat) return "across flat has every rank write its own";
  const std::string why = why_not_by_nodes(request);
  return why.empty() ? why : "an allreduce node by node " + why;
}

bool may_be_zero_copy(const AllreduceRequest& request) noexcept {
  const bool is_flat = request.across == Across::automatic || request.across == Across::flat;
  const bool is_in_parts = request.algorithm == Algorithm::automatic ||
                           request.algorithm == Algorithm::chunked_fold ||
                           request.algorithm == Algorithm::ring;
  // Between ranks of a node nothing is written straight into a target.
  const bool all_apart = plan::node_count_of(request.node_of, 0) == request.node_of.size();
  const bool is_taken = request.algorithm != Algorithm::automatic ||
                        (request.per_round.empty() && request.per_round_by_default.empty() &&
                         request.node_of.size() <= chunked_fold_ranks_max);
  return all_apart && request.node_of.size() > 1 && is_flat && is_in_parts && is_taken &&
         payload_bytes_of(request) >= in_parts_from_bytes;
}

bool takes_any_order(const AllreduceRequest& request) noexcept {
  return request.reduction.properties.commutative &&
         (request.agreement == Agreement::relaxed || !order_shows_in_bits(request.reduction));
}

std::size_t chunk_count(std::size_t element_count, std::size_t element_bytes,
                        std::size_t part_count, std::size_t chunk_bytes) noexcept {
  if (element_count == 0 || element_bytes == 0) return 1;
  const std::size_t elements = std::max<std::size_t>(chunk_bytes / element_bytes, 1) * part_count;
  const std::size_t count = (element_count + elements - 1) / elements;
  return std::clamp<std::size_t>(count, 1, std::max<std::size_t>(element_count / part_count, 1));
}

std::size_t within_registers(std::size_t chunk_bytes, std::size_t slots, std::size_t parts,
                             std::size_t payloads) noexcept {
  // Partials are about as many as slots and parts; how many, may differ by rank.
  const std::size_t registers = 2 * std::max<std::size_t>(payloads, 1) * (2 * slots + parts);
  constexpr std::size_t least = 512;
  return std::clamp(plan_registers_bytes / registers, least, std::max(least, chunk_bytes));
}

std::size_t chunk_bytes_for(const plan::Plan& plan, bool shares_nodes, std::size_t asked) noexcept {
  if (asked != 0 && !plan.is_pipeline) return asked;
  if (plan::is_by_reference(plan)) return by_reference_bytes;
  const std::size_t bytes = asked != 0         ? asked
                            : plan.is_pipeline ? chunk_bytes_of_pipeline
                            : plan.zero_copy   ? chunk_bytes_zero_copy
                            : shares_nodes     ? chunk_bytes_in_node
                                               : chunk_bytes_across;
  const std::size_t slots = std::size_t{plan.slot_count} - plan.line_slot_count;
  return std::min(bytes, within_registers(bytes, slots, plan.parts, plan.payloads));
}

plan::Plan scan_plan(Rank self, std::uint32_t rank_count, const ScanRequest& request) {
  const std::uint32_t nodes = plan::node_count_of(request.node_of, rank_count);
  // The ranks of a node send at the same time, in each round across nodes; one alone needs a hop
  // more.  (The bits of a scan depend on the number of ranks alone.)
  const auto rounds = static_cast<plan::Picoseconds>(std::bit_width(nodes - 1));
  const auto others = static_cast<plan::Picoseconds>(plan::largest_node_of(request.node_of)) - 1;
  const bool by_nodes = others * rounds * assumed_network.gap > hop_in_memory &&
                        plan::nodes_are_runs(request.node_of) &&
                        !order_shows_in_bits(request.reduction);
  return by_nodes ? plan::node_scan(self, request.node_of, request.kind)
                  : plan::doubling_scan(self, rank_count, request.kind);
}

plan::Plan barrier_plan(Rank self, std::uint32_t rank_count, const BarrierRequest& request) {
  const plan::PerRound& vector =
      request.per_round.empty() ? request.per_round_by_default : request.per_round;
  const auto dissemination = [&](Rank rank, std::uint32_t count) {
    return plan::dissemination_barrier(rank, count, covering(vector, count, 0));
  };
  if (request.algorithm != Algorithm::automatic && request.algorithm != Algorithm::dissemination)
    throw Error(ErrorCode::unsupported, std::string("barrier: algorithm ") +
                                            name_of(request.algorithm) +
                                            " is not offered; use automatic or dissemination");
  require_defined(request.across, "barrier");
  if (request.node_of.empty()) return dissemination(self, rank_count);
  const bool is_given = !request.per_round.empty() || !request.per_round_by_default.empty() ||
                        request.algorithm != Algorithm::automatic;
  if (!is_given && request.across == Across::automatic &&
      has_domains(request.node_of, request.domain_of)) {
    const std::vector<Node> nodes = plan::nodes_of_domains(request.node_of, request.domain_of);
    return plan::leader_barrier(self, domain_shape(rank_count, request.domain_of),
                                [&](Rank domain, std::uint32_t domain_count) {
                                  return barrier_plan(domain, domain_count, {.node_of = nodes});
                                });
  }
  const bool is_asked_for = request.across == Across::leader || request.across == Across::lanes;
  const plan::LaneShape shape{.rank_count = rank_count, .node_of = request.node_of};
  const bool is_possible = plan::is_lane_shape(shape);
  if (is_asked_for && !is_possible) refuse_nodes("barrier: across leader ");
  const bool has_leaders =
      is_asked_for || (request.across == Across::automatic && !is_given && is_possible &&
                       has_stages(request.node_of, rank_count, false));
  if (has_leaders) return plan::leader_barrier(self, shape, dissemination);
  return dissemination(self, rank_count);
}

plan::Plan stale_plan(Rank self, std::uint32_t rank_count, std::size_t payload_bytes,
                      const std::vector<std::uint32_t>& per_round, std::uint32_t slack) {
  const plan::Plan plan = plan::two_partial_allreduce(
      self, rank_count, covering(per_round, rank_count, payload_bytes), plan::Order::commutative);
  if (slack == UINT32_MAX || !plan::has_room_for_copies(plan, slack + 1))
    throw Error(
        ErrorCode::invalid_argument,
        "allreduce_ssp: slack " + std::to_string(slack) + ": expected at most " +
            std::to_string(plan::slots_max / std::max<std::size_t>(plan.slot_count, 1) - 1) +
            " with " + std::to_string(rank_count) + " ranks");
  return plan::in_copies(plan, slack + 1);
}

/// Whether every rank combines its part where the others have it.
bool goes_by_single_copy(const AllreduceRequest& request, std::uint32_t rank_count) {
  const bool is_asked_for = request.algorithm != Algorithm::automatic ||
                            request.across != Across::automatic || !request.per_round.empty() ||
                            !request.per_round_by_default.empty();
  // Which contribution is the left one depends on the part, and on whether the call is in place.
  const bool serves =
      request.reduction.properties.commutative &&
      (request.agreement == Agreement::relaxed || request.reduction.built_in != BuiltIn::none ||
       !order_shows_in_bits(request.reduction));
  return request.single_copy && rank_count == 2 && !is_asked_for && serves &&
         !request.shares_target;
}

plan::Plan allreduce_plan(Rank self, std::uint32_t rank_count, const AllreduceRequest& request) {
  require_defined(request.across, "allreduce");
  if (goes_by_single_copy(request, rank_count)) return plan::single_copy_allreduce(self);
  if (request.algorithm == Algorithm::shared_ring)
    throw Error(ErrorCode::unsupported,
                "allreduce: algorithm shared_ring has no fixed plan: chunks go around the ring of "
                "the nodes, and each is taken by whichever rank of a node finds it "
                "(algorithms/plan/allreduce/shared_ring.hpp); ring is one with a plan");
  if (goes_by_domains(request)) return plan_by_domains(self, rank_count, request);
  if (const Across across = across_of(request, rank_count); across != Across::flat)
    return plan_by_nodes(self, rank_count, request, across);
  const std::size_t bytes = payload_bytes_of(request);
  const plan::Order order =
      request.reduction.properties.commutative ? plan::Order::commutative : plan::Order::rank_order;
  const Algorithm algorithm = request.algorithm == Algorithm::automatic
                                  ? automatic_schedule(request, rank_count)
                                  : request.algorithm;
  const Schedule& schedule = schedule_of(algorithm);
  require_service(schedule, request);
  const plan::PerRound& asked = vector_for(schedule, request);
  switch (algorithm) {
    case Algorithm::dissemination:
      return plan::dissemination_allreduce(self, rank_count, covering(asked, rank_count, bytes));
    case Algorithm::recursive_multiplying:
      return plan::recursive_multiplying_allreduce(self, rank_count,
                                                   core(asked, rank_count, bytes));
    case Algorithm::nway:
      return plan::nway_allreduce(self, rank_count, nway_n(asked, rank_count, bytes, algorithm),
                                  plan::TakeOut::recompute, order);
    case Algorithm::nway_inverse:
      return plan::nway_allreduce(self, rank_count, nway_n(asked, rank_count, bytes, algorithm),
                                  plan::TakeOut::inverse, order);
    case Algorithm::decomposition:
    case Algorithm::decomposition_digits: {
      const plan::Digits digits =
          algorithm == Algorithm::decomposition ? plan::Digits::joined : plan::Digits::separate;
      return plan::decomposition_allreduce(
          self, rank_count, decomposition_n(asked, rank_count, bytes, algorithm, digits), digits,
          order);
    }
    case Algorithm::canonical_dissemination:
      return plan::canonical_dissemination_allreduce(self, rank_count,
                                                     covering(asked, rank_count, bytes));
    case Algorithm::gather_fold:
      return gather_fold_plan(self, rank_count, covering(asked, rank_count, bytes));
    case Algorithm::chunked_fold:
      return chunked_fold_plan(self, rank_count, request);
    case Algorithm::ring:
      return ring_plan(self, rank_count, request);
    case Algorithm::rabenseifner:
      return rabenseifner_plan(self, rank_count, request);
    case Algorithm::circulant:
      return circulant_plan(self, rank_count, request);
    case Algorithm::canonical_halving:
      return canonical_halving_plan(self, rank_count, request);
    case Algorithm::automatic:
    case Algorithm::two_partial:
    case Algorithm::shared_ring:
      break;
  }
  return plan::two_partial_allreduce(self, rank_count, covering(asked, rank_count, bytes), order);
}

plan::Plan shared_ring_partners(Rank self, std::uint32_t rank_count,
                                const AllreduceRequest& request,
                                std::optional<std::uint32_t> receives_max) {
  require_defined(request.across, "allreduce");
  require_service(shared_ring, request);
  if (!request.per_round.empty())
    refuse_vector(request.per_round,
                  ": algorithm shared_ring has one node to send to, whatever is asked for; leave "
                  "per_round out, or use recursive_multiplying");
  if (request.across == Across::leader || request.across == Across::lanes)
    throw Error(ErrorCode::unsupported,
                std::string("allreduce: across ") + name_of(request.across) +
                    " does not go with algorithm shared_ring, which goes by nodes itself; leave "
                    "across out");
  const std::uint32_t nodes = plan::node_count_of(request.node_of, rank_count);
  // Half of what a connection promises, so that another operation has room there, too.
  const std::uint32_t sub_blocks =
      plan::shared_ring_sub_blocks(rank_count, request.node_of, payload_bytes_of(request),
                                   receives_max ? *receives_max / 2 : UINT64_MAX);
  if (const std::uint64_t waiting = plan::shared_ring_waiting_max(nodes, sub_blocks);
      receives_max && waiting > *receives_max)
    throw Error(ErrorCode::unsupported,
                "allreduce: algorithm shared_ring republishes what comes, and of " +
                    std::to_string(nodes) + " nodes 2 (N - 1) = " + std::to_string(waiting) +
                    " messages can wait in one connection, which promises " +
                    std::to_string(*receives_max) + " receives: expected at most " +
                    std::to_string(*receives_max / 2 + 1) + " nodes; use ring");
  if (!plan::is_shared_ring(nodes, sub_blocks))
    throw Error(ErrorCode::unsupported,
                "allreduce: algorithm shared_ring numbers 2 N C chunks, at most 65536: " +
                    std::to_string(nodes) + " nodes with " + std::to_string(sub_blocks) +
                    " sub-blocks each (the ranks of the largest) are more; use ring");
  return plan::shared_ring_plan(self, rank_count, request.node_of, sub_blocks);
}

}  // namespace tutti::api
