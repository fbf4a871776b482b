#include "api/rooted_selection.hpp"

#include <algorithm>
#include <string>
#include <tutti/status.hpp>

#include "api/allreduce_schedules.hpp"
#include "api/asked_per_round.hpp"
#include "api/assumed_network.hpp"
#include "api/names.hpp"
#include "api/settings.hpp"
#include "plan/core/nodes.hpp"
#include "plan/rooted/rooted.hpp"
#include "plan/rooted/single_copy.hpp"

namespace tutti::api {
namespace {

void require_defined(Tree tree, const char* collective) {
  if (tree > Tree::fibonacci)
    throw Error(ErrorCode::invalid_argument,
                std::string(collective) + ": tree " + std::to_string(static_cast<unsigned>(tree)) +
                    " is none; use one of the enumerators of tutti::Tree");
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
/// (plan/cost/makespan.hpp, and the root's credits) over 2 to 512 ranks, beside the k-nomial tree
/// of the rule: broadcasts above 256 bytes take 0.86 to 0.94 in the mean of a payload, 1.10 at most
/// (14 ranks, 8 KiB), smaller ones 1.00; reduces 0.74 to 0.95, 1.08 at most (the same), and where
/// combining takes time, too, 0.74 to 1.00, 1.11 at most (129 ranks, 16 KiB).  Binary trees take
/// longer than Fibonacci trees but for 8 KiB (0.92 at least).
plan::TreeFans tree_fans(const TreeRequest& asked) {
  require_defined(asked.tree, asked.collective);
  const std::uint32_t node_count = plan::node_count_of(asked.node_of, asked.rank_count);
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

}  // namespace

plan::Plan broadcast_plan(Rank self, std::uint32_t rank_count, const BroadcastRequest& request) {
  plan::TreeFans fans = tree_fans({"broadcast", request.tree, request.per_round_by_default,
                                   rank_count, request.node_of, request.bytes, true});
  const bool by_rule = request.tree == Tree::automatic || request.tree == Tree::knomial;
  if (request.single_copy && request.tree == Tree::automatic && plan::is_single_copy(rank_count))
    return plan::single_copy_broadcast(self, rank_count, request.root);
  const std::size_t largest = plan::largest_node_of(request.node_of);
  fans.is_chain =
      request.tree == Tree::automatic && request.per_round_by_default.empty() &&
      takes_chain(fans_across({}, rank_count, request.node_of, request.bytes),
                  plan::node_count_of(request.node_of, rank_count), request.bytes, false);
  const bool is_one_node = plan::node_count_of(request.node_of, rank_count) == 1;
  if ((by_rule || !is_one_node) && largest > 1 && largest <= flat_ranks_max)
    fans.in_node = {static_cast<std::uint32_t>(largest - 1)};
  return plan::tree_broadcast(
      self,
      {.root = request.root, .rank_count = rank_count, .node_of = request.node_of, .fans = fans});
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
                                      plan::node_count_of(shape.node_of, rank_count), bytes, true);
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

}  // namespace tutti::api
