#include "tune/rooted_cost.hpp"

#include <algorithm>
#include <vector>

#include "plan/core/per_round.hpp"
#include "plan/rooted/divided_tree.hpp"
#include "tune/assumed_network.hpp"
#include "tune/chunks.hpp"

namespace tutti::tune {
namespace {

using plan::Picoseconds;

/// What a message takes in one of the nested trees: of its parent's time, and until its child, or
/// its parent, goes on with it.
struct Hop {
  Picoseconds gap;
  Picoseconds time;
};

/// What the ranks below each child of the root of a tree of `count` are, in the order in which the
/// root of a broadcast sends.
std::vector<std::uint32_t> subtrees(std::uint32_t count, const plan::PerRound& fans,
                                    const plan::Branching& by) {
  std::vector<std::uint32_t> sizes;
  if (by.rule == plan::Branching::Rule::fibonacci) {
    sizes = plan::subtree_sizes(count, by);
  } else {
    std::uint64_t stride = 1;
    for (std::size_t level = 0; stride < count; ++level) {
      const std::uint64_t fan = level < fans.size() ? fans[level] : 1;
      for (std::uint64_t digit = 1; digit <= fan && digit * stride < count; ++digit)
        sizes.push_back(static_cast<std::uint32_t>(std::min(stride, count - digit * stride)));
      stride *= fan + 1;
    }
  }
  std::reverse(sizes.begin(), sizes.end());
  return sizes;
}

/// Until the last rank of a tree has its message, if each takes `below` with it by itself.
Picoseconds time_of_tree(std::uint32_t count, const plan::PerRound& fans, const plan::Branching& by,
                         const Hop& hop, Picoseconds below) {
  Picoseconds time = below, begin = 0;
  for (const std::uint32_t size : subtrees(count, fans, by)) {
    time = std::max(time, begin + hop.time + time_of_tree(size, fans, by, hop, below));
    begin += hop.gap;
  }
  return time;
}

bool is_broadcast(const Query& query) {
  return query.request.collective == Collective::broadcast;
}

Picoseconds work_of(const Query& query, std::uint64_t bytes) {
  return is_broadcast(query) ? 0 : query.network.between.work_time(bytes);
}

Hop hop_in_node(const Query& query, std::uint64_t bytes) {
  const plan::NodeMemory& memory = query.network.inside;
  const Picoseconds store = memory.store_time(bytes);
  const Picoseconds taken = memory.receive_overhead + work_of(query, bytes);
  return {.gap = is_broadcast(query) ? store : taken, .time = store + memory.latency + taken};
}

}  // namespace

std::uint32_t latency_in_node(const Query& query) {
  const Hop hop = hop_in_node(
      query, std::min<std::uint64_t>(priced_bytes(query.request.bytes()), chunk_bytes_in_node));
  return static_cast<std::uint32_t>(
      std::clamp<Picoseconds>((hop.time + hop.gap / 2) / hop.gap, 1, plan::latency_max));
}

Picoseconds rooted_cost_on_nodes(const Query& query, const Variant& variant,
                                 const plan::Plan& plan) {
  const Topology& topology = query.topology;
  const plan::NodeMemory& memory = query.network.inside;
  const plan::LogGP& network = query.network.between;
  const bool gives = is_broadcast(query);
  const Picoseconds ranks = topology.largest_node(), lanes = variant.lane_count;

  // Messages of a lane.
  const std::uint64_t lane_bytes = priced_bytes(query.request.bytes()) / variant.lane_count;
  const std::uint64_t pieces = plan.parts / variant.lane_count;
  const std::uint64_t longest = chunk_bytes_for(plan, true);
  const std::uint64_t chunks =
      std::max<std::uint64_t>((lane_bytes + longest * pieces - 1) / (longest * pieces), 1);
  const std::uint64_t bytes = lane_bytes / (chunks * pieces);
  const auto count = static_cast<Picoseconds>(chunks * pieces);

  const Hop inside = hop_in_node(query, bytes);
  const Picoseconds store = memory.store_time(bytes);
  const Picoseconds taken = memory.receive_overhead + work_of(query, bytes);
  const Picoseconds credit = memory.receive_overhead + memory.send_overhead;

  // What the last rank of a node has to do by itself, and what the busiest rank does with each.
  Picoseconds in_node = 0, first = 0, busy = 0, credits = 0;
  if (lanes == 1) {
    const auto children = static_cast<Picoseconds>(
        subtrees(topology.largest_node(), {}, variant.fans.in_node_by).size());
    in_node = time_of_tree(topology.largest_node(), {}, variant.fans.in_node_by, inside, 0);
    busy = gives ? children * store : std::max(children * taken, store);
    credits = children;
  } else {
    const Picoseconds given = (lanes - 1) * store + (gives ? memory.latency + taken : 0);
    const Picoseconds shared = (ranks - 1) * (gives ? store : taken) + (gives ? taken : store);
    first = given;
    in_node = shared + memory.latency + (lanes - 1) * memory.receive_overhead;
    busy = (lanes - 1) * store + (ranks - 1) * (gives ? store : taken) +
           (gives ? 0 : (lanes - 1) * memory.receive_overhead);
    credits = ranks - 1;
  }
  busy += credits * credit / static_cast<Picoseconds>(pieces);

  // Across, where the lanes of a node share its port.
  const Picoseconds port = lanes * network.port_time(bytes);
  const Hop across = {
      .gap = std::max(port, gives ? 0 : network.receive_overhead + work_of(query, bytes)),
      .time = network.travel_time(bytes) + (lanes - 1) * network.port_time(bytes) +
              network.receive_overhead + work_of(query, bytes)};
  const std::uint32_t nodes = topology.node_count();
  const Picoseconds children =
      variant.fans.is_chain
          ? 1
          : static_cast<Picoseconds>(
                subtrees(nodes, variant.fans.across, variant.fans.across_by).size());
  const Picoseconds way =
      variant.fans.is_chain
          ? (nodes - Picoseconds{1}) * across.time + in_node
          : time_of_tree(nodes, variant.fans.across, variant.fans.across_by, across, in_node);
  // A sender is two chunks ahead of its receiver at most.
  const Picoseconds round_trip = (across.time + network.travel_time(0) + network.receive_overhead) /
                                 (2 * static_cast<Picoseconds>(pieces));
  return credits * memory.receive_overhead + first + way + credit +
         (count - 1) * std::max({children * port, busy, round_trip});
}

}  // namespace tutti::tune
