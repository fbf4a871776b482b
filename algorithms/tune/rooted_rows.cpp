// Rows of broadcast and reduce: which tree they go along, or a chain of the nodes.
#include <algorithm>
#include <span>
#include <utility>

#include "plan/allreduce/lanes.hpp"
#include "plan/core/nodes.hpp"
#include "plan/rooted/rooted.hpp"
#include "plan/rooted/single_copy.hpp"
#include "plan/rooted/zero_copy_broadcast.hpp"
#include "plan/rooted/zero_copy_reduce.hpp"
#include "tune/asked_per_round.hpp"
#include "tune/chunks.hpp"
#include "tune/hierarchy.hpp"
#include "tune/plan_time.hpp"
#include "tune/prices.hpp"
#include "tune/rooted_cost.hpp"
#include "tune/rows.hpp"

namespace tutti::tune {
namespace {

using plan::Picoseconds;

/// Where nothing is priced: a broadcast of less goes along a k-nomial tree, because a root with the
/// many children of a Fibonacci tree gains nothing.
constexpr std::size_t fibonacci_broadcast_bytes_min = 257;
/// A representative sends to its node of so many ranks, itself among them, one by one: a guess.
constexpr std::uint32_t flat_ranks_max = 16;

bool is_broadcast(const Query& query) {
  return query.request.collective == Collective::broadcast;
}

/// Whether the result of a reduce is one expression, that of the canonical tree.
bool is_canonical(const Query& query) {
  return !is_broadcast(query) && is_reproducible_in_bits(query.request);
}
bool is_ordered(const Query& query) {
  return is_canonical(query) || !query.request.reduction.properties.commutative;
}
bool has_all_participants(const Query& query) {
  const std::uint32_t count = query.request.participant_count;
  return count == 0 || count >= query.topology.rank_count;
}

/// The nodes that the tree takes into account.  In rank order these are none unless each node's
/// ranks follow each other and the root is rank 0: the result comes from rank 0, and another root
/// would wait for it, chunk by chunk.
std::span<const Node> nodes_of(const Query& query) {
  const bool is_regarded = is_broadcast(query) || !is_ordered(query) ||
                           (!is_canonical(query) && query.topology.has_runs());
  return is_regarded ? std::span<const Node>(query.topology.node_of) : std::span<const Node>();
}

/// Whether all ranks are on one node, and nodes are taken into account.
bool is_inside_node(const Query& query) {
  return plan::node_count_of(nodes_of(query), query.topology.rank_count) == 1;
}

/// Whether prices decide: not in a single node, or where nodes are not taken into account although
/// ranks share them, or the caller says how it is done, or every further message costs turns of the
/// scheduler, or the ranks of a node have one target, or read each other's.
bool is_priced(const Query& query) {
  const CollectiveRequest& request = query.request;
  const Topology& topology = query.topology;
  return (!nodes_of(query).empty() || !topology.has_shared_nodes()) && !topology.is_one_node() &&
         !topology.shares_cpus && !request.shares_target && !request.zero_copy &&
         request.tree == Tree::automatic && request.per_round_by_default.empty() &&
         has_all_participants(query);
}
/// Whether schedules other than that of the rule are considered in a single node.
bool is_open(const Query& query) {
  return is_open_in_node(query) && !is_canonical(query) && !nodes_of(query).empty() &&
         has_all_participants(query);
}
/// Whether lanes are considered, too.
bool is_priced_on_nodes(const Query& query) {
  return is_priced(query) && query.topology.has_shared_nodes();
}

/// Returns the fans that are asked for, else those in the name, else the cheapest, as if each level
/// were a round.
plan::PerRound fans_across(const Query& query, std::uint32_t node_count) {
  const CollectiveRequest& request = query.request;
  if (auto vector = vector_in(request.only)) return *vector;
  if (!request.per_round_by_default.empty())
    return covering(request.per_round_by_default, node_count);
  const std::uint64_t bytes = priced_bytes(request.bytes());
  return cheapest_vector(node_count, UINT32_MAX, [&](const plan::Round& round) {
    return round_cost(query.network.between, round.messages, 1, bytes, !is_broadcast(query));
  });
}

/// Messages of a lane that a rank sends, or takes, while one is on its way; lanes share the port of
/// their node.  The root of a broadcast sees credits before it sends, which takes 0.1 us for each
/// child (tutti-bench --virtual-time); without `sees_credits` that is left out.
std::uint32_t latency_in_messages(const Query& query, std::uint32_t lane_count,
                                  bool sees_credits = true) {
  const plan::LogGP& network = query.network.between;
  const std::uint64_t bytes = priced_bytes(query.request.bytes()) / lane_count;
  const Picoseconds taken =  // by a parent, with the answer
      network.receive_overhead + network.work_time(bytes) + network.rank_gap;
  const Picoseconds port = Picoseconds{lane_count} * network.port_time(bytes);
  const Picoseconds credits = sees_credits ? network.gap + 2 * network.receive_overhead : 0;
  const Picoseconds gap =
      std::max(port, is_broadcast(query) ? std::max(credits, network.rank_gap) : taken);
  const Picoseconds latency = network.travel_time(bytes) + network.receive_overhead;
  return static_cast<std::uint32_t>(
      std::clamp<Picoseconds>((latency + gap / 2) / gap, 1, plan::latency_max));
}

/// Whether the root of a reduce takes what all others of its node send.  Where four or more of them
/// share CPUs, each level of a tree would wait for turns of the scheduler (docs/performance.md).
bool is_flat_reduce(const Query& query) {
  constexpr std::size_t bytes_max = 16u << 10;
  constexpr std::uint32_t ranks_min = 4;
  return query.topology.shares_cpus && query.topology.is_one_node() &&
         query.topology.rank_count >= ranks_min && query.request.bytes() <= bytes_max;
}

/// Whether one rank of a node sends to, or takes from, all others at once, by a rule that holds
/// where nothing is priced and no tree is asked for.
bool is_flat_inside(const Query& query) {
  const std::uint32_t largest = query.topology.largest_node();
  return (is_broadcast(query) || is_flat_reduce(query)) && largest > 1 && largest <= flat_ranks_max;
}

/// Whether several trees are considered, because a single node has few ranks.
bool is_few_and_open(const Query& query) {
  return is_open(query) && query.topology.rank_count <= flat_ranks_max;
}

/// The tree over the nodes, or over the ranks of the only one.
plan::TreeFans fans_of(const Query& query, Tree tree, std::uint32_t lane_count = 1) {
  const CollectiveRequest& request = query.request;
  const std::span<const Node> nodes = nodes_of(query);
  const std::uint32_t node_count = plan::node_count_of(nodes, query.topology.rank_count);
  const bool is_inside = is_inside_node(query);
  plan::TreeFans fans;
  plan::Branching& by = is_inside ? fans.in_node_by : fans.across_by;
  by.latency = is_inside ? best_latency_in_node(query) : latency_in_messages(query, lane_count);
  switch (tree) {
    case Tree::automatic:
    case Tree::binomial:
      break;  // ones
    case Tree::knomial:
      if (!is_inside)
        fans.across = fans_across(query, node_count);
      else if (const auto named = vector_in(request.only))
        fans.in_node = *named;
      else if (is_flat_inside(query) || is_few_and_open(query))
        fans.in_node = {query.topology.largest_node() - 1};
      break;
    case Tree::fibonacci:
      by.rule = plan::Branching::Rule::fibonacci;
      break;
  }
  if (is_priced(query)) {
    if (query.topology.has_shared_nodes())
      fans.in_node_by = {plan::Branching::Rule::fibonacci, latency_in_node(query)};
    return fans;
  }
  if (is_flat_inside(query) && !is_inside) fans.in_node = {query.topology.largest_node() - 1};
  return fans;
}

std::string why_not_tree(const Query& query, Tree tree) {
  const CollectiveRequest& request = query.request;
  if (is_canonical(query)) return "gives other bits than the canonical tree";
  if (request.tree == tree) return "";
  if (request.tree != Tree::automatic) return "another tree is asked for";
  if (is_priced(query)) return tree == Tree::binomial ? "it is a k-nomial one" : "";
  const bool is_tiny = is_broadcast(query) && request.bytes() < fibonacci_broadcast_bytes_min;
  const bool is_rounds = is_tiny || !request.per_round_by_default.empty();
  const Tree rule = !is_inside_node(query)  ? (is_rounds ? Tree::knomial : Tree::fibonacci)
                    : is_flat_inside(query) ? Tree::knomial
                                            : Tree::binomial;
  // Trees that the rule does not take are considered among few ranks, if these are enough for the
  // tree to differ from it.
  const std::uint32_t ranks_min = tree == Tree::fibonacci ? 5 : is_broadcast(query) ? 4 : 3;
  if (is_few_and_open(query) && query.topology.rank_count >= ranks_min) return "";
  return rule == tree ? "" : "it is taken by name only, or where it is faster by a rule";
}

/// Whether the payload may go piece after piece along the nodes.
std::string why_not_chain(const Query& query) {
  const CollectiveRequest& request = query.request;
  if (request.tree != Tree::automatic || !request.per_round_by_default.empty())
    return "a tree is asked for";
  if (is_canonical(query)) return "gives other bits than the canonical tree";
  if (!is_broadcast(query) && !has_all_participants(query)) return "some ranks contribute alone";
  if (!is_broadcast(query) && is_ordered(query) && request.root != Rank{0})
    return "the result is that of rank 0 first";
  if (is_inside_node(query) && !is_open(query)) return "there is one node";
  if (is_priced(query)) return "";
  const std::size_t least = is_open(query) ? 2 * chunk_bytes_of_pipeline : in_parts_from_bytes;
  return request.bytes() < least ? "the payload is small" : "";
}

constexpr std::size_t chain_priced_bytes_max = 4u << 20;  // see priced_bytes()

using PlanOfVariant = plan::Plan(const Query&, const Variant&, Rank self);
PlanOfVariant tree_plan;

/// The price in a single node, where only a race compares schedules: by events if ranks are few.
Picoseconds cost_in_node(const Query& query, const Variant& variant, PlanOfVariant* plan_of) {
  constexpr std::uint32_t ranks_max = 64;
  if (query.topology.rank_count > ranks_max)
    return rooted_cost_on_nodes(query, variant, plan_of(query, variant, Rank{0}));
  return priced_plan_time(query, [&](Rank self) { return plan_of(query, variant, self); });
}

Picoseconds cost_of_tree(const Query& query, const Variant& variant) {
  if (is_priced(query))
    return rooted_cost_on_nodes(query, variant, tree_plan(query, variant, Rank{0}));
  if (is_open(query)) return cost_in_node(query, variant, tree_plan);
  const std::uint64_t bytes =
      std::clamp<std::uint64_t>(query.request.bytes(), 1, chain_priced_bytes_max);
  Picoseconds cost = 0;
  for (const std::uint32_t fan :
       fans_across(query, plan::node_count_of(nodes_of(query), query.topology.rank_count)))
    cost += round_cost(query.network.between, fan, 1, bytes, !is_broadcast(query));
  return cost;
}

Picoseconds cost_of_chain(const Query& query, const Variant& variant) {
  if (is_priced(query))
    return rooted_cost_on_nodes(query, variant, tree_plan(query, variant, Rank{0}));
  if (is_open(query)) return cost_in_node(query, variant, tree_plan);
  const bool combines = !is_broadcast(query);
  const std::uint64_t bytes =
      std::min<std::uint64_t>(query.request.bytes(), chain_priced_bytes_max);
  const std::uint64_t piece = std::min<std::uint64_t>(bytes / 4, chunk_bytes_of_pipeline);
  const Picoseconds hops =
      plan::node_count_of(nodes_of(query), query.topology.rank_count) - Picoseconds{1};
  return hops * round_cost(query.network.between, 1, 1, piece, combines) +
         round_cost(query.network.between, 1, 1, bytes, combines) -
         round_cost(query.network.between, 1, 1, piece, combines);
}

/// The number of pieces of a broadcast that goes from its root directly to the other ranks of a
/// single node; 1 for other calls.
std::uint16_t pieces_of(const Query& query, const Variant& variant) {
  const CollectiveRequest& request = query.request;
  const std::uint32_t rank_count = query.topology.rank_count;
  const bool is_flat = query.topology.is_one_node() && rank_count > 1 && !variant.fans.is_chain &&
                       variant.fans.in_node == plan::PerRound{rank_count - 1};
  if (!is_broadcast(query) || !is_flat || request.shares_target || request.zero_copy) return 1;
  return node_broadcast_pieces(request.bytes());
}

plan::Plan tree_plan(const Query& query, const Variant& variant, Rank self) {
  const CollectiveRequest& request = query.request;
  const plan::RootedShape shape{
      .root = request.root,
      .rank_count = query.topology.rank_count,
      .node_of = nodes_of(query),
      .fans = variant.fans,
      .target = request.shares_target ? plan::Target::of_node : plan::Target::of_rank,
      .pieces = pieces_of(query, variant)};
  if (is_broadcast(query) && request.zero_copy)
    return plan::zero_copy_broadcast(
        self, shape, zero_copy_pieces(request.bytes(), query.topology.node_count()));
  if (is_broadcast(query)) return plan::tree_broadcast(self, shape);
  const plan::Order order = is_ordered(query) ? plan::Order::rank_order : plan::Order::commutative;
  return has_all_participants(query)
             ? plan::tree_reduce(self, shape, order)
             : plan::tree_reduce_of(request.participant_count, self, shape, order);
}

/// Adds Fibonacci trees over few nodes, with the latencies of the least prices, because quotients
/// are rounded and ports are shared; or with every latency, if one of them is named.
void add_latencies(const Query& query, const Variant& given, const plan::Plan& plan,
                   std::vector<Variant>& variants) {
  constexpr std::size_t count_max = 3;
  const std::uint32_t first = given.fans.across_by.latency;
  const std::uint32_t last =
      std::max(first + 4, latency_in_messages(query, given.lane_count, false) + 1);
  const bool is_named = !query.request.only.empty();
  std::vector<std::pair<Picoseconds, Variant>> priced;
  const auto add = [&](std::uint32_t latency) {
    Variant variant = given;
    variant.fans.across_by.latency = latency;
    if (is_named)
      variants.push_back(std::move(variant));
    else
      priced.emplace_back(rooted_cost_on_nodes(query, variant, plan), std::move(variant));
  };
  add(first);  // of equal trees the one that is kept
  for (std::uint32_t latency = 1; latency <= plan::latency_max; ++latency) {
    const bool is_near = latency + 3 >= first && latency <= last;
    if (latency != first && (is_named || is_near)) add(latency);
  }
  std::stable_sort(priced.begin(), priced.end(),
                   [](const auto& left, const auto& right) { return left.first < right.first; });
  // Trees with equal prices are equal.
  priced.erase(
      std::unique(priced.begin(), priced.end(),
                  [](const auto& left, const auto& right) { return left.first == right.first; }),
      priced.end());
  for (std::size_t i = 0; i < std::min(priced.size(), count_max); ++i)
    variants.push_back(std::move(priced[i].second));
}

/// With more nodes, there is a single latency to choose from.
constexpr std::uint32_t nodes_max = 128;

std::vector<Variant> tree_variants(const Query& query, Tree tree) {
  if (const auto named = vector_in(query.request.only); named && tree == Tree::knomial) {
    const std::uint32_t ranks = query.topology.rank_count;
    const std::uint32_t vertices =
        is_inside_node(query) ? ranks : plan::node_count_of(nodes_of(query), ranks);
    if (!plan::is_executable(vertices, *named)) return {};
  }
  const Variant variant{.fans = fans_of(query, tree)};
  const bool is_named = !query.request.only.empty();
  std::vector<Variant> variants;
  if (tree == Tree::fibonacci && is_named && is_open(query)) {
    // A tuning file may name a tree by another latency than this machine has.
    for (std::uint32_t latency = 1; latency <= plan::latency_max; ++latency) {
      variants.push_back(variant);
      variants.back().fans.in_node_by.latency = latency;
    }
    return variants;
  }
  if (tree != Tree::fibonacci || !is_priced(query) ||
      (!is_named && query.topology.node_count() > nodes_max))
    return {variant};
  if (is_named || has_close_prices(query.topology)) {
    add_latencies(query, variant, tree_plan(query, variant, Rank{0}), variants);
    return variants;
  }
  variants.push_back(variant);
  const std::uint32_t latency = variant.fans.across_by.latency;
  for (const std::uint32_t other : {latency - 1, latency + 1, latency + 3}) {
    if (other == 0 || other > plan::latency_max) continue;
    variants.push_back(variant);
    variants.back().fans.across_by.latency = other;
  }
  return variants;
}

template <Tree tree>
constexpr Row tree_row(Collective collective, const char* name) {
  return {.collective = collective,
          .name = name,
          .also =
              "knomial_tree binomial_tree flat_tree knomial_tree_zero_copy binomial_tree_zero_copy "
              "flat_tree_zero_copy fibonacci_tree_zero_copy",
          .tree = tree,
          .has_other_bits = collective == Collective::reduce,
          .why_not_unasked = [](const Query& query) { return why_not_tree(query, tree); },
          .variants = [](const Query& query) { return tree_variants(query, tree); },
          .cost = cost_of_tree,
          .build = tree_plan};
}

constexpr Row chain_row(Collective collective) {
  return {.collective = collective,
          .name = "pipelined_chain",
          .also = "pipelined_chain_zero_copy",
          .has_other_bits = collective == Collective::reduce,
          .why_not_unasked = why_not_chain,
          .variants =
              [](const Query& query) {
                plan::TreeFans fans = fans_of(query, Tree::fibonacci);
                fans.is_chain = true;
                return std::vector<Variant>{{.fans = fans}};
              },
          .cost = cost_of_chain,
          .build = tree_plan};
}

std::string why_not_lanes(const Query& query) {
  if (query.request.zero_copy) return "payloads stay in their users' buffers";
  if (!is_priced_on_nodes(query) && !is_open(query))
    return "there are not several nodes of several ranks, or a tree is asked for, or ranks share "
           "CPUs or a target";
  if (!is_broadcast(query) && is_ordered(query) && query.request.root != Rank{0})
    return "the result is that of rank 0 first";
  if (is_broadcast(query) && query.topology.is_one_node() && query.topology.rank_count == 2)
    return "there is one rank to send to";
  return std::min<std::size_t>(query.topology.smallest_node(), query.request.element_count) < 2
             ? "the payload is one element, or a node is one rank"
             : "";
}

constexpr std::uint32_t pieces_of_lane_max = 4;  // those of a chain

plan::Plan lanes_plan(const Query& query, const Variant& variant, Rank self) {
  const Rank root = query.request.root;
  const plan::LaneShape shape = lanes_of(query, variant.lane_count);
  const plan::Order order = order_of(query.request.reduction);
  const auto across = [&](Rank node, std::uint32_t node_count) {
    const plan::RootedShape nodes{.root = Rank{index_of(query.topology.node_of[index_of(root)])},
                                  .rank_count = node_count,
                                  .fans = variant.fans};
    return is_broadcast(query) ? plan::tree_broadcast(node, nodes)
                               : plan::tree_reduce(node, nodes, order);
  };
  return is_broadcast(query) ? plan::lanes_broadcast(self, root, shape, across)
                             : plan::lanes_reduce(self, root, shape, order, across);
}

/// Trees and chains of few or many lanes.
std::vector<Variant> in_lanes(const Query& query) {
  const auto lanes_max = static_cast<std::uint32_t>(
      std::min<std::size_t>(query.topology.smallest_node(), query.request.element_count));
  std::vector<Variant> variants;
  const auto add = [&](std::uint32_t lane_count) {
    if (!may_be_lanes(query, lane_count, pieces_of_lane_max)) return;
    if (query.topology.is_one_node()) {  // nothing goes across
      if (!is_too_short_to_race(query, lane_count)) variants.push_back({.lane_count = lane_count});
      return;
    }
    Variant variant{.fans = fans_of(query, Tree::fibonacci, lane_count), .lane_count = lane_count};
    const bool has_one =
        query.topology.node_count() > nodes_max || !has_close_prices(query.topology);
    if (has_one && query.request.only.empty())
      variants.push_back(variant);
    else
      add_latencies(query, variant, lanes_plan(query, variant, Rank{0}), variants);
    variant.fans.is_chain = true;
    if (why_not_chain(query).empty()) variants.push_back(variant);
  };
  for (std::uint32_t lane_count = 2; lane_count < lanes_max; lane_count *= 2) add(lane_count);
  add(lanes_max);
  return variants;
}

constexpr Row lanes_row(Collective collective) {
  return {.collective = collective,
          .name = "lanes",
          .has_other_bits = collective == Collective::reduce,
          .why_not_unasked = why_not_lanes,
          .variants = in_lanes,
          .cost =
              [](const Query& query, const Variant& variant) {
                if (is_open(query)) return cost_in_node(query, variant, lanes_plan);
                return rooted_cost_on_nodes(query, variant, lanes_plan(query, variant, Rank{0}));
              },
          .build = lanes_plan};
}

/// Reading was measured to be the faster way: the first row, and nothing costs less.
constexpr Row single_copy_row(Collective collective) {
  return {
      .collective = collective,
      .name = "single_copy",
      .has_other_bits = collective == Collective::reduce,
      .why_not_unasked =
          [](const Query& query) {
            const CollectiveRequest& request = query.request;
            const std::uint32_t rank_count = query.topology.rank_count;
            if (request.shares_target) return std::string("the ranks of a node have one target");
            const bool serves = is_broadcast(query) ? plan::is_single_copy(rank_count)
                                                    : rank_count == 2 && !is_ordered(query) &&
                                                          has_all_participants(query);
            return std::string(request.reads_in_place && request.tree == Tree::automatic && serves
                                   ? ""
                                   : "the ranks do not read each other's buffers");
          },
      .cost = [](const Query&, const Variant&) { return Picoseconds{0}; },
      .build =
          [](const Query& query, const Variant&, Rank self) {
            return is_broadcast(query) ? plan::single_copy_broadcast(
                                             self, query.topology.rank_count, query.request.root)
                                       : plan::single_copy_reduce(self, query.request.root);
          }};
}

constexpr Row table[] = {
    single_copy_row(Collective::broadcast),
    tree_row<Tree::knomial>(Collective::broadcast, "knomial_tree"),
    tree_row<Tree::binomial>(Collective::broadcast, "binomial_tree"),
    tree_row<Tree::fibonacci>(Collective::broadcast, "fibonacci_tree"),
    chain_row(Collective::broadcast),
    lanes_row(Collective::broadcast),
    {.collective = Collective::reduce,
     .name = "lanes_zero_copy",
     .keeps_rank_order = false,
     .has_other_bits = true,
     .is_in_place = true,
     .takes = PerRoundIs::nothing,
     .why_not_unasked =
         [](const Query& query) {
           return std::string(query.request.zero_copy && is_zero_copy_reduce(query)
                                  ? ""
                                  : "the sources are not all in segments, or the payload does not "
                                    "suit it");
         },
     .cost = [](const Query&, const Variant&) { return Picoseconds{0}; },  // measured: the faster
     .build = [](const Query& query, const Variant&,
                 Rank self) { return plan::zero_copy_reduce(self, zero_copy_reduce_of(query)); }},
    single_copy_row(Collective::reduce),
    tree_row<Tree::knomial>(Collective::reduce, "knomial_tree"),
    tree_row<Tree::binomial>(Collective::reduce, "binomial_tree"),
    tree_row<Tree::fibonacci>(Collective::reduce, "fibonacci_tree"),
    chain_row(Collective::reduce),
    lanes_row(Collective::reduce),
    {.collective = Collective::reduce,
     .name = "canonical_tree",
     .also = "knomial_tree binomial_tree flat_tree",
     .why_not_unasked =
         [](const Query& query) {
           return std::string(is_canonical(query) ? "" : "nobody asks for the canonical tree");
         },
     .build = [](const Query& query, const Variant& variant,
                 Rank self) { return tree_plan(query, variant, self); }},
};

}  // namespace

std::span<const Row> rooted_rows() {
  return table;
}

}  // namespace tutti::tune
