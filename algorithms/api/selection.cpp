#include "api/selection.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <tutti/status.hpp>

#include "api/names.hpp"
#include "api/settings.hpp"
#include "plan/block_dissemination.hpp"
#include "plan/blocks.hpp"
#include "plan/canonical_dissemination.hpp"
#include "plan/chunked_fold.hpp"
#include "plan/copies.hpp"
#include "plan/cost_model.hpp"
#include "plan/decomposition.hpp"
#include "plan/dissemination.hpp"
#include "plan/gather_fold.hpp"
#include "plan/lanes.hpp"
#include "plan/nodes.hpp"
#include "plan/nway.hpp"
#include "plan/rabenseifner.hpp"
#include "plan/recursive_multiplying.hpp"
#include "plan/ring.hpp"
#include "plan/rooted.hpp"
#include "plan/shared_ring.hpp"
#include "plan/single_copy.hpp"
#include "plan/two_partial.hpp"

namespace tutti::api {
namespace {

constexpr Schedule schedules[] = {
    {.algorithm = Algorithm::dissemination, .keeps_rank_order = false, .needs_idempotent = true},
    {.algorithm = Algorithm::two_partial},
    {.algorithm = Algorithm::recursive_multiplying,
     .agreement = Agreement::identical,
     .takes = PerRoundIs::core},
    {.algorithm = Algorithm::nway, .takes = PerRoundIs::uniform},
    {.algorithm = Algorithm::nway_inverse,
     .keeps_rank_order = false,
     .needs_inverse = true,
     .takes = PerRoundIs::uniform},
    {.algorithm = Algorithm::decomposition, .takes = PerRoundIs::uniform},
    {.algorithm = Algorithm::decomposition_digits, .takes = PerRoundIs::uniform},
    {.algorithm = Algorithm::canonical_dissemination, .agreement = Agreement::reproducible},
    {.algorithm = Algorithm::gather_fold, .agreement = Agreement::reproducible},
    {.algorithm = Algorithm::chunked_fold,
     .agreement = Agreement::reproducible,
     .takes = PerRoundIs::nothing},
    {.algorithm = Algorithm::ring,
     .agreement = Agreement::identical,
     .keeps_rank_order = false,
     .takes = PerRoundIs::nothing},
    {.algorithm = Algorithm::rabenseifner,
     .agreement = Agreement::identical,
     .takes = PerRoundIs::nothing},
};

/// Not of the table: it has no plan.
constexpr Schedule shared_ring{.algorithm = Algorithm::shared_ring,
                               .agreement = Agreement::identical,
                               .keeps_rank_order = false,
                               .takes = PerRoundIs::nothing};

std::string text_of(const plan::PerRound& vector) {
  std::string text;
  for (const std::uint32_t entry : vector)
    text += (text.empty() ? "" : ",") + std::to_string(entry);
  return text;
}

/// How much an agreement promises.
int strength(Agreement agreement) {
  return agreement == Agreement::relaxed ? 0 : agreement == Agreement::identical ? 1 : 2;
}

bool serves(const Schedule& schedule, const AllreduceRequest& request) {
  const Reduction& reduction = request.reduction;
  if (schedule.needs_idempotent && !reduction.properties.idempotent) return false;
  if (!schedule.keeps_rank_order && !reduction.properties.commutative) return false;
  if (schedule.needs_inverse && reduction.inverse == nullptr) return false;
  return !order_shows_in_bits(reduction) ||
         strength(schedule.agreement) >= strength(request.agreement);
}

std::string why_not(const Schedule& schedule, const AllreduceRequest& request) {
  const Reduction& reduction = request.reduction;
  const std::string name = name_of(reduction.built_in);
  if (schedule.needs_idempotent && !reduction.properties.idempotent)
    return "lets contributions enter more than once, and " + name + " is not idempotent";
  if (!schedule.keeps_rank_order && !reduction.properties.commutative)
    return "does not keep rank order, and " + name + " does not commute";
  if (schedule.needs_inverse && reduction.inverse == nullptr)
    return "takes contributions out again, and " + name + " of " + name_of(reduction.element_type) +
           " has no inverse";
  return std::string("promises no more than ") + name_of(schedule.agreement) + " results for " +
         name + " of " + name_of(reduction.element_type) + ", and " + name_of(request.agreement) +
         " is asked for";
}

void require_service(const Schedule& schedule, const AllreduceRequest& request) {
  if (serves(schedule, request)) return;
  std::string others;
  for (const Schedule& other : schedules)
    if (serves(other, request))
      others += (others.empty() ? "" : ", ") + std::string(name_of(other.algorithm));
  throw Error(ErrorCode::unsupported,
              std::string("allreduce: algorithm ") + name_of(schedule.algorithm) + " " +
                  why_not(schedule, request) + "; use automatic, " + others);
}

[[noreturn]] void refuse_vector(const plan::PerRound& vector, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, "per_round " + text_of(vector) + why);
}

void require_entries(const plan::PerRound& vector) {
  if (std::find(vector.begin(), vector.end(), 0u) != vector.end())
    refuse_vector(vector, ": every entry must be 1 or more");
}

[[noreturn]] void refuse_length(const plan::PerRound& vector, std::uint32_t rank_count) {
  refuse_vector(vector, " needs more than " + std::to_string(plan::slots_max) + " messages for " +
                            std::to_string(rank_count) + " ranks; use smaller entries");
}

/// The vector asked for, which has to cover the ranks; where there is none, the rule's.
plan::PerRound covering(const plan::PerRound& asked, std::uint32_t rank_count,
                        std::size_t payload_bytes) {
  if (asked.empty()) return plan::default_per_round(rank_count, payload_bytes);
  require_entries(asked);
  if (!plan::covers(rank_count, asked)) {
    // So that two rounds of that many messages still have a slot each.
    const auto largest = static_cast<std::uint32_t>(std::min<std::uint64_t>(
        *std::max_element(asked.begin(), asked.end()), plan::slots_max / 2));
    refuse_vector(asked, " does not cover " + std::to_string(rank_count) +
                             " ranks (the product of n+1 is too small); use " +
                             text_of(plan::nearest_covering(rank_count, largest)));
  }
  if (!plan::is_executable(rank_count, asked)) refuse_length(asked, rank_count);
  return asked;
}

plan::PerRound core(const plan::PerRound& asked, std::uint32_t rank_count,
                    std::size_t payload_bytes) {
  if (asked.empty()) return plan::per_round_for_recursive_multiplying(rank_count, payload_bytes);
  return plan::per_round_for_recursive_multiplying(rank_count, payload_bytes,
                                                   covering(asked, rank_count, payload_bytes));
}

/// What the call asks for, else what the context has by default where the schedule can follow it.
const plan::PerRound& vector_for(const Schedule& schedule, const AllreduceRequest& request) {
  static const plan::PerRound none;
  if (!request.per_round.empty()) return request.per_round;
  const plan::PerRound& vector = request.per_round_by_default;
  const bool mixed =
      std::adjacent_find(vector.begin(), vector.end(), std::not_equal_to<>()) != vector.end();
  if (schedule.takes == PerRoundIs::nothing || (schedule.takes == PerRoundIs::uniform && mixed))
    return none;
  return vector;
}

/// One n for all rounds; where none is asked for, that of the rule's first round.
std::uint32_t uniform(const plan::PerRound& asked, std::uint32_t rank_count,
                      std::size_t payload_bytes, Algorithm algorithm) {
  if (asked.empty()) {
    const plan::PerRound rule = plan::default_per_round(rank_count, payload_bytes);
    return rule.empty() ? 1 : *std::max_element(rule.begin(), rule.end());
  }
  require_entries(asked);
  if (std::adjacent_find(asked.begin(), asked.end(), std::not_equal_to<>()) != asked.end())
    refuse_vector(asked, std::string(": algorithm ") + name_of(algorithm) +
                             " has one n for all rounds; use " +
                             std::to_string(plan::nearest_adaptable_n(rank_count, asked[0])));
  return asked[0];
}

std::uint32_t nway_n(const plan::PerRound& asked, std::uint32_t rank_count,
                     std::size_t payload_bytes, Algorithm algorithm) {
  const std::uint32_t n = uniform(asked, rank_count, payload_bytes, algorithm);
  if (plan::is_adaptable(rank_count, n)) return n;
  const std::uint32_t nearest = plan::nearest_adaptable_n(rank_count, n);
  if (asked.empty()) return nearest;
  const std::uint64_t full_rounds = plan::uniform(rank_count, n).size() - 1;
  if (full_rounds * n >= plan::slots_max) refuse_length(asked, rank_count);
  refuse_vector(asked, ": n-way dissemination with n = " + std::to_string(n) +
                           " cannot be adapted to " + std::to_string(rank_count) +
                           " ranks (none of its partials ends where the ring closes); the nearest "
                           "n that can is " +
                           std::to_string(nearest));
}

std::uint32_t decomposition_n(const plan::PerRound& asked, std::uint32_t rank_count,
                              std::size_t payload_bytes, Algorithm algorithm, plan::Digits digits) {
  const std::uint32_t n = uniform(asked, rank_count, payload_bytes, algorithm);
  if (!plan::is_decomposable(rank_count, n, digits)) refuse_length({n}, rank_count);
  return n;
}

const Schedule& schedule_of(Algorithm algorithm) {
  const auto found = std::find_if(std::begin(schedules), std::end(schedules),
                                  [&](const Schedule& one) { return one.algorithm == algorithm; });
  if (found == std::end(schedules))
    throw Error(ErrorCode::invalid_argument,
                "algorithm " + std::to_string(static_cast<unsigned>(algorithm)) +
                    " is none; use one of the enumerators of tutti::Algorithm");
  return *found;
}

std::size_t payload_bytes_of(const AllreduceRequest& request) {
  return request.element_count * request.reduction.element_bytes;
}

/// Every rank talks to every other one.
bool serves_chunked_fold(std::uint32_t rank_count, const AllreduceRequest& request) {
  return plan::is_chunked_fold(rank_count) && rank_count - 1 <= request.partners_max;
}

// Measured (README.md of this folder).
constexpr std::size_t lanes_from_bytes = 8192;
constexpr std::size_t lane_bytes_min = 1024;  // of a lane

/// Like FDR InfiniBand; used until the network has been measured.
constexpr plan::LogGP assumed_network{.latency = 700'000,
                                      .send_overhead = 150'000,
                                      .receive_overhead = 50'000,
                                      .gap = 100'000,
                                      .per_byte = {.time = 10'000, .bytes = 68},
                                      .work = 10'000,
                                      .work_per_byte = {.time = 125}};

/// What a round costs on the assumed network: messages of so many payloads.
plan::Picoseconds round_cost(std::uint32_t messages, std::uint64_t payloads, std::uint64_t payload,
                             bool combines = true) {
  plan::LogGP network = assumed_network;
  network.work *= combines ? static_cast<plan::Picoseconds>(payloads) : 0;
  if (!combines) network.work_per_byte = {};
  return plan::round_time(messages, payloads * payload, network, plan::Combining::while_arriving);
}

/// The payload, for costs.  Beyond some MiB their proportions do not change any more, and
/// picoseconds would run over.
std::uint64_t priced_bytes(std::size_t payload_bytes) {
  constexpr std::uint64_t bytes_max = 4u << 20;
  return std::clamp<std::uint64_t>(payload_bytes, 1, bytes_max);
}
std::uint64_t priced_bytes(const AllreduceRequest& request) {
  return priced_bytes(payload_bytes_of(request));
}

struct Priced {
  Algorithm algorithm;
  plan::Picoseconds cost;
};

/// The cheaper of the two disseminations along the canonical tree.
Priced dissemination_along_the_tree(const AllreduceRequest& request, std::uint32_t rank_count) {
  const std::uint64_t bytes = priced_bytes(request);
  const plan::PerRound vector =
      covering(vector_for(schedule_of(Algorithm::canonical_dissemination), request), rank_count,
               payload_bytes_of(request));
  const bool gathers = plan::is_gather_fold(rank_count, vector);
  plan::Picoseconds blocks = 0, contributions = 0;
  for (const plan::Round& one : plan::two_partial_rounds(rank_count, vector)) {
    // In the mean; counted.
    const auto blocks_of_message = 1u + static_cast<std::uint32_t>(std::bit_width(one.length)) / 2;
    blocks += round_cost(one.messages, std::min(one.length, blocks_of_message), bytes);
    if (gathers) contributions += round_cost(one.messages, one.length, bytes);
  }
  if (gathers && contributions <= blocks) return {Algorithm::gather_fold, contributions};
  return {Algorithm::canonical_dissemination, blocks};
}

/// Recursive multiplying, whose rounds are as few as can be where the ranks are a product.  Where
/// they have to be folded, the canonical tree may take fewer.
Priced identical_rule(const AllreduceRequest& request, std::uint32_t rank_count) {
  const plan::PerRound product =
      core(vector_for(schedule_of(Algorithm::recursive_multiplying), request), rank_count,
           payload_bytes_of(request));
  const plan::PerRound rounds = plan::recursive_multiplying_rounds(rank_count, product);
  const bool factors = rounds.size() == product.size();
  plan::Picoseconds cost = 0;
  for (std::size_t i = 0; i < rounds.size(); ++i)
    cost += round_cost(rounds[i], 1, priced_bytes(request), factors || i + 1 < rounds.size());
  const Priced product_rule{Algorithm::recursive_multiplying, cost};
  if (factors) return product_rule;
  const Priced tree = dissemination_along_the_tree(request, rank_count);
  return tree.cost < cost ? tree : product_rule;
}

/// Two-partial dissemination, or without trimming where contributions may enter twice.
Priced relaxed_rule(const AllreduceRequest& request, std::uint32_t rank_count) {
  const Reduction& reduction = request.reduction;
  const bool may_repeat = reduction.properties.commutative && reduction.properties.idempotent;
  const Algorithm algorithm = may_repeat ? Algorithm::dissemination : Algorithm::two_partial;
  plan::Picoseconds cost = 0;
  const std::uint64_t payloads = reduction.properties.commutative ? 1 : 2;
  for (const plan::Round& round :
       plan::two_partial_rounds(rank_count, covering(vector_for(schedule_of(algorithm), request),
                                                     rank_count, payload_bytes_of(request))))
    cost += round_cost(round.messages, payloads, priced_bytes(request));
  return {algorithm, cost};
}

/// Schedules that cut the payload into a part for each rank send less of it in more messages.
/// Provisional, until measured on networks.
constexpr std::size_t in_parts_from_bytes = 64u << 10;
/// More ranks than that are not all connected with each other unasked.
constexpr std::uint32_t chunked_fold_ranks_max = 32;

plan::Picoseconds cost_of_chunked_fold(const AllreduceRequest& request, std::uint32_t rank_count) {
  const std::uint64_t part = (priced_bytes(request) + rank_count - 1) / rank_count;
  return round_cost(rank_count - 1, 1, part) + round_cost(rank_count - 1, 1, part, false);
}

/// `whole`, or what is cheaper for a large payload.
Algorithm or_in_parts(const Priced& whole, const AllreduceRequest& request,
                      std::uint32_t rank_count) {
  const bool is_given = !request.per_round.empty() || !request.per_round_by_default.empty();
  if (rank_count == 1 || is_given || payload_bytes_of(request) < in_parts_from_bytes)
    return whole.algorithm;
  if (rank_count > chunked_fold_ranks_max || !serves_chunked_fold(rank_count, request))
    return whole.algorithm;
  if (cost_of_chunked_fold(request, rank_count) >= whole.cost) return whole.algorithm;
  // Of two ranks, the ring without copies has none at all, and the fold one of its result.
  return request.zero_copy && rank_count == 2 && request.reduction.properties.commutative
             ? Algorithm::ring
             : Algorithm::chunked_fold;
}

/// The cheapest along the canonical tree.  Where the call asks for a vector, one that follows it.
Algorithm reproducible_rule(const AllreduceRequest& request, std::uint32_t rank_count) {
  const Priced whole = dissemination_along_the_tree(request, rank_count);
  if (rank_count == 1 || !request.per_round.empty() || !serves_chunked_fold(rank_count, request))
    return whole.algorithm;
  return cost_of_chunked_fold(request, rank_count) < whole.cost ? Algorithm::chunked_fold
                                                                : whole.algorithm;
}

void require_defined(Across across, const char* collective) {
  if (across > Across::lanes)
    throw Error(ErrorCode::invalid_argument,
                std::string(collective) + ": across " +
                    std::to_string(static_cast<unsigned>(across)) +
                    " is none; use one of the enumerators of tutti::Across");
}

void require_defined(Tree tree, const char* collective) {
  if (tree > Tree::fibonacci)
    throw Error(ErrorCode::invalid_argument,
                std::string(collective) + ": tree " + std::to_string(static_cast<unsigned>(tree)) +
                    " is none; use one of the enumerators of tutti::Tree");
}

std::uint32_t node_count_of(std::span<const Node> node_of, std::uint32_t rank_count) {
  if (node_of.empty()) return rank_count;
  return 1 + index_of(*std::max_element(node_of.begin(), node_of.end()));
}

std::size_t largest_node_of(std::span<const Node> node_of) {
  std::vector<std::size_t> size(node_count_of(node_of, 0));
  for (const Node node : node_of) ++size[index_of(node)];
  return size.empty() ? 1 : *std::max_element(size.begin(), size.end());
}

/// Blocks go directly to so many nodes: there dissemination has as many partners (of 9 nodes with 2
/// messages a round: 1, 2, 3 and 6 ahead and behind), and more hops.  Of more nodes it has fewer.
constexpr std::uint32_t direct_partners_max = 8;

/// Where nodes differ in size, blocks from one rank to another have no windows, and could ask for
/// more receives than a connection has: they go directly.
bool are_of_one_size(std::span<const Node> node_of, std::uint32_t rank_count) {
  return largest_node_of(node_of) * node_count_of(node_of, rank_count) == rank_count;
}

/// Whether nodes are divided further, into domains whose ranks and leaders have slots.
bool has_domains(std::span<const Node> node_of, std::span<const Node> domain_of) {
  if (domain_of.empty() || node_count_of(domain_of, 0) == node_count_of(node_of, 0)) return false;
  const std::size_t leaders =
      largest_node_of(plan::nodes_of_domains(node_of, domain_of));  // of a node
  return largest_node_of(domain_of) + leaders < plan::slots_max / 2;
}

/// With the domains of nodes as nodes.
plan::LaneShape domain_shape(std::uint32_t rank_count, std::span<const Node> domain_of) {
  return {.rank_count = rank_count, .node_of = domain_of, .one_lane = "domains"};
}

/// Messages that a rank of the assumed network sends while one is on its way.  The root of a
/// broadcast sees credits before it sends, which takes 0.1 us for each child (tutti-bench
/// --virtual-time).  Combining is left out: a latency that is too long costs more than one that is
/// too short.
std::uint32_t latency_in_messages(std::size_t payload_bytes, bool is_broadcast) {
  const plan::LogGP& network = assumed_network;
  const std::uint64_t bytes = priced_bytes(payload_bytes);
  const plan::Picoseconds credits = is_broadcast ? 2 * network.receive_overhead : 0;
  const plan::Picoseconds gap = std::max(network.per_byte.of(bytes), network.gap + credits);
  const plan::Picoseconds latency = network.travel_time(bytes) + network.receive_overhead;
  return static_cast<std::uint32_t>(
      std::clamp<plan::Picoseconds>((latency + gap / 2) / gap, 1, plan::latency_max));
}

/// Where the payload is smaller, a root with the many children of a Fibonacci tree gains nothing.
constexpr std::size_t fibonacci_broadcast_bytes_min = 257;

/// Over which ranks a tree carries payloads.
struct TreeRequest {
  const char* collective;
  Tree tree;
  const plan::PerRound& per_round;
  std::uint32_t rank_count;
  std::span<const Node> node_of;
  std::size_t payload_bytes;
  bool is_broadcast;
};

/// The tree over the nodes; one that is named, over the ranks of the only node, too.
///
/// Automatic: Fibonacci, whose ranks are never idle.  By the recurrence on the assumed network
/// (plan/makespan.hpp, and the root's credits) over 2 to 512 ranks, beside the k-nomial tree of the
/// rule: broadcasts above 256 bytes take 0.86 to 0.94 in the mean of a payload, 1.10 at most (14
/// ranks, 8 KiB), smaller ones 1.00; reduces 0.74 to 0.95, 1.08 at most (the same), and where
/// combining takes time, too, 0.74 to 1.00, 1.11 at most (129 ranks, 16 KiB).  Binary trees take
/// longer than Fibonacci trees but for 8 KiB (0.92 at least).
plan::TreeFans tree_fans(const TreeRequest& asked) {
  require_defined(asked.tree, asked.collective);
  const std::uint32_t node_count = node_count_of(asked.node_of, asked.rank_count);
  const bool is_automatic = asked.tree == Tree::automatic;
  const bool is_tiny = asked.is_broadcast && asked.payload_bytes < fibonacci_broadcast_bytes_min;
  const Tree rule = asked.per_round.empty() && !is_tiny ? Tree::fibonacci : Tree::knomial;
  plan::TreeFans fans;
  plan::Branching& by = node_count == 1 && !is_automatic ? fans.in_node_by : fans.across_by;
  by.latency = latency_in_messages(asked.payload_bytes, asked.is_broadcast);
  switch (is_automatic ? rule : asked.tree) {
    case Tree::automatic:
    case Tree::binomial:
      break;  // ones
    case Tree::knomial:
      fans.across = covering(asked.per_round, node_count, asked.payload_bytes);
      break;
    case Tree::binary:
      by.rule = plan::Branching::Rule::binary;
      break;
    case Tree::fibonacci:
      by.rule = plan::Branching::Rule::fibonacci;
      break;
  }
  return fans;
}

/// Of a tree over the nodes, or of dissemination among them.
plan::PerRound fans_across(const plan::PerRound& asked, std::uint32_t rank_count,
                           std::span<const Node> node_of, std::size_t payload_bytes) {
  return covering(asked, node_count_of(node_of, rank_count), payload_bytes);
}

/// Whether a payload goes along a chain of the nodes, piece after piece, instead of a tree of these
/// fans: (N - 1) hops of a piece and once the time of all bytes, where each level of a tree takes
/// the latter as often as its fan says.  In virtual time (FDR, algorithms/README.md) the chain is
/// faster where this says so.
bool takes_chain(const plan::PerRound& fans, std::uint32_t node_count, std::uint64_t bytes,
                 bool combines) {
  if (bytes < in_parts_from_bytes) return false;
  constexpr std::uint64_t bytes_max = 4u << 20;  // for costs: see priced_bytes()
  bytes = std::min(bytes, bytes_max);
  const std::uint64_t piece = std::min<std::uint64_t>(bytes / 4, chunk_bytes_of_pipeline);
  const plan::Picoseconds chain =
      (node_count - plan::Picoseconds{1}) * round_cost(1, 1, piece, combines) +
      round_cost(1, 1, bytes, combines) - round_cost(1, 1, piece, combines);
  plan::Picoseconds tree = 0;
  for (const std::uint32_t fan : fans) tree += round_cost(fan, 1, bytes, combines);
  return chain < tree;
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
  const std::uint32_t node_count = node_count_of(node_of, rank_count);
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
  const plan::Order order =
      request.reduction.properties.commutative ? plan::Order::commutative : plan::Order::rank_order;
  return plan::lanes_allreduce(self, domain_shape(rank_count, request.domain_of), order,
                               [&](Rank domain, std::uint32_t domain_count) {
                                 return allreduce_plan(domain, domain_count, inner);
                               });
}

Algorithm rule(const AllreduceRequest& request, std::uint32_t rank_count) {
  const bool shows = order_shows_in_bits(request.reduction);
  if (shows && request.agreement == Agreement::reproducible)
    return reproducible_rule(request, rank_count);
  const bool is_identical = shows && request.agreement == Agreement::identical;
  return or_in_parts(
      is_identical ? identical_rule(request, rank_count) : relaxed_rule(request, rank_count),
      request, rank_count);
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
    if (plan.parts > 1 || (is_cut && plan.segments > 1))
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

std::span<const Schedule> allreduce_schedules() noexcept {
  return schedules;
}

bool order_shows_in_bits(const Reduction& reduction) noexcept {
  if (reduction.element_type == ElementType::other) return true;
  return is_floating(reduction.element_type) && reduction.built_in != BuiltIn::min &&
         reduction.built_in != BuiltIn::max;
}

std::string why_not_shared_target(const AllreduceRequest& request) {
  if (request.across == Across::flat) return "across flat has every rank write its own";
  return why_not_by_nodes(request);
}

bool may_be_zero_copy(const AllreduceRequest& request) noexcept {
  const bool is_flat = request.across == Across::automatic || request.across == Across::flat;
  const bool is_in_parts = request.algorithm == Algorithm::automatic ||
                           request.algorithm == Algorithm::chunked_fold ||
                           request.algorithm == Algorithm::ring;
  // Between ranks of a node nothing is written straight into a target.
  const bool all_apart = node_count_of(request.node_of, 0) == request.node_of.size();
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

std::size_t chunk_bytes_for(const plan::Plan& plan, bool one_node) noexcept {
  if (plan::is_by_reference(plan)) return by_reference_bytes;
  const std::size_t bytes = plan.is_pipeline ? chunk_bytes_of_pipeline
                            : one_node       ? chunk_bytes_in_node
                                             : chunk_bytes_across;
  // Partials are about as many as slots and parts; how many, may differ by rank.
  const std::size_t slots = std::size_t{plan.slot_count} - plan.line_slot_count;
  const std::size_t registers =
      2 * std::max<std::size_t>(plan.segments, 1) * (2 * slots + plan.parts);
  constexpr std::size_t least = 4096;
  return std::clamp(plan_registers_bytes / registers, least, bytes);
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

plan::Plan broadcast_plan(Rank self, std::uint32_t rank_count, const BroadcastRequest& request) {
  plan::TreeFans fans = tree_fans({"broadcast", request.tree, request.per_round_by_default,
                                   rank_count, request.node_of, request.bytes, true});
  const bool by_rule = request.tree == Tree::automatic || request.tree == Tree::knomial;
  if (request.single_copy && request.tree == Tree::automatic && plan::is_single_copy(rank_count))
    return plan::single_copy_broadcast(self, rank_count, request.root);
  const std::size_t largest = largest_node_of(request.node_of);
  fans.is_chain = request.tree == Tree::automatic && request.per_round_by_default.empty() &&
                  takes_chain(fans_across({}, rank_count, request.node_of, request.bytes),
                              node_count_of(request.node_of, rank_count), request.bytes, false);
  const bool is_one_node = node_count_of(request.node_of, rank_count) == 1;
  if ((by_rule || !is_one_node) && largest > 1 && largest <= flat_ranks_max)
    fans.in_node = {static_cast<std::uint32_t>(largest - 1)};
  return plan::tree_broadcast(
      self,
      {.root = request.root, .rank_count = rank_count, .node_of = request.node_of, .fans = fans});
}

plan::Plan allgather_plan(Rank self, std::uint32_t rank_count, const AllgatherRequest& request) {
  const std::uint32_t node_count = node_count_of(request.node_of, rank_count);
  const bool is_direct =
      (request.per_round_by_default.empty() && node_count - 1 <= direct_partners_max) ||
      !are_of_one_size(request.node_of, rank_count);
  // In a single node nobody is connected; without shared memory everybody is as near.
  if (node_count == 1 || (is_direct && node_count == rank_count))
    return plan::direct_allgather(self, rank_count, request.transport);
  const plan::PerRound vector = is_direct ? plan::PerRound{node_count - 1}
                                          : fans_across(request.per_round_by_default, rank_count,
                                                        request.node_of, request.block_bytes);
  return plan::dissemination_allgather(
      self, rank_count, vector,
      node_count < rank_count ? request.node_of : std::span<const Node>());
}

plan::Plan reduce_plan(Rank self, std::uint32_t rank_count, const ReduceRequest& request) {
  const AllreduceRequest& combines = request.combines;
  const bool one_expression =
      combines.agreement == Agreement::reproducible && order_shows_in_bits(combines.reduction);
  const bool ordered = one_expression || !combines.reduction.properties.commutative;
  const plan::Order order = ordered ? plan::Order::rank_order : plan::Order::commutative;
  const bool some_only = request.participant_count > 0 && request.participant_count < rank_count;
  plan::RootedShape shape{.root = request.root, .rank_count = rank_count};
  if (!one_expression) {  // else along the canonical tree, which is binomial
    // In rank order nodes count only if they are runs of ranks, and the result comes from rank 0,
    // which another root would wait for, chunk by chunk.
    if (!ordered || plan::nodes_are_runs(combines.node_of)) shape.node_of = combines.node_of;
    const std::size_t bytes = payload_bytes_of(combines);
    shape.fans = tree_fans({"reduce", request.tree, combines.per_round_by_default, rank_count,
                            shape.node_of, bytes, false});
    shape.fans.is_chain = request.tree == Tree::automatic &&
                          combines.per_round_by_default.empty() && !some_only &&
                          (!ordered || request.root == Rank{0}) &&
                          takes_chain(fans_across({}, rank_count, shape.node_of, bytes),
                                      node_count_of(shape.node_of, rank_count), bytes, true);
  } else if (request.tree != Tree::automatic && request.tree != Tree::binomial) {
    require_defined(request.tree, "reduce");
    throw Error(ErrorCode::unsupported,
                std::string("reduce: tree ") + name_of(request.tree) +
                    " gives other bits than the canonical tree, and reproducible ones are asked "
                    "for; use automatic or binomial");
  }
  if (some_only) return plan::tree_reduce_of(request.participant_count, self, shape, order);
  if (request.single_copy && request.tree == Tree::automatic && !ordered && rank_count == 2)
    return plan::single_copy_reduce(self, request.root);
  return plan::tree_reduce(self, shape, order);
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
                "(algorithms/plan/shared_ring.hpp); ring is one with a plan");
  if (goes_by_domains(request)) return plan_by_domains(self, rank_count, request);
  if (const Across across = across_of(request, rank_count); across != Across::flat)
    return plan_by_nodes(self, rank_count, request, across);
  const std::size_t bytes = payload_bytes_of(request);
  const plan::Order order =
      request.reduction.properties.commutative ? plan::Order::commutative : plan::Order::rank_order;
  const Algorithm algorithm =
      request.algorithm == Algorithm::automatic ? rule(request, rank_count) : request.algorithm;
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
  const std::uint32_t nodes = node_count_of(request.node_of, rank_count);
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
