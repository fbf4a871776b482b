#include "tune/rooted_cost.hpp"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "plan/core/per_round.hpp"
#include "plan/rooted/divided_tree.hpp"
#include "tune/chunks.hpp"
#include "tune/prices.hpp"

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

/// Until the last rank of a tree has its message, if each takes `below` with it by itself.  Many of
/// its subtrees are of one size.
class TimeOfTree {
 public:
  TimeOfTree(const plan::PerRound& fans, const plan::Branching& by, const Hop& hop,
             Picoseconds below)
      : fans_(fans), by_(by), hop_(hop), below_(below) {}

  Picoseconds of(std::uint32_t count) {
    if (const auto place = known_.find(count); place != known_.end()) return place->second;
    Picoseconds time = below_, begin = 0;
    for (const std::uint32_t size : subtrees(count, fans_, by_)) {
      time = std::max(time, begin + hop_.time + of(size));
      begin += hop_.gap;
    }
    return known_[count] = time;
  }

 private:
  const plan::PerRound& fans_;
  const plan::Branching& by_;
  const Hop& hop_;
  Picoseconds below_;
  std::unordered_map<std::uint32_t, Picoseconds> known_;
};

Picoseconds time_of_tree(std::uint32_t count, const plan::PerRound& fans, const plan::Branching& by,
                         const Hop& hop, Picoseconds below) {
  return TimeOfTree(fans, by, hop, below).of(count);
}

bool is_broadcast(const Query& query) {
  return query.request.collective == Collective::broadcast;
}

Picoseconds work_of(const Query& query, std::uint64_t bytes) {
  return is_broadcast(query) ? 0 : query.network.between.work_time(bytes);
}

Hop hop_of_tree(const Query& query, std::uint64_t bytes) {
  const plan::NodeMemory& memory = query.network.inside;
  const Picoseconds store = memory.store_time(bytes);
  const Picoseconds taken = memory.receive_overhead + work_of(query, bytes);
  return {.gap = is_broadcast(query) ? store : taken, .time = store + memory.latency + taken};
}

}  // namespace

std::uint32_t latency_in_node(const Query& query) {
  const Hop hop = hop_of_tree(
      query, std::min<std::uint64_t>(priced_bytes(query.request.bytes()), chunk_bytes_in_node));
  const Picoseconds gap = std::max<Picoseconds>(hop.gap, 1);
  return static_cast<std::uint32_t>(
      std::clamp<Picoseconds>((hop.time + gap / 2) / gap, 1, plan::latency_max));
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
  const std::uint64_t longest = chunk_bytes_for(plan, topology.has_shared_nodes());
  const std::uint64_t chunks =
      std::max<std::uint64_t>((lane_bytes + longest * pieces - 1) / (longest * pieces), 1);
  const std::uint64_t bytes = lane_bytes / (chunks * pieces);
  const auto count = static_cast<Picoseconds>(chunks * pieces);

  const Hop inside = hop_of_tree(query, bytes);
  const Picoseconds store = memory.store_time(bytes);
  const Picoseconds taken = memory.receive_overhead + work_of(query, bytes);
  const Picoseconds port = network.port_time(bytes);  // lanes share that of their node
  const auto per_piece = [&](Picoseconds awaited, Picoseconds given) {
    return (awaited * memory.receive_overhead + given * memory.send_overhead) /
           static_cast<Picoseconds>(pieces);
  };
  const auto children_of = [&](std::uint32_t vertices, const plan::PerRound& fans,
                               const plan::Branching& by) {
    return static_cast<Picoseconds>(subtrees(vertices, fans, by).size());
  };
  const std::uint32_t nodes = topology.node_count();
  const Picoseconds children =
      variant.fans.is_chain ? 1 : children_of(nodes, variant.fans.across, variant.fans.across_by);
  const Picoseconds combined = network.receive_overhead + work_of(query, bytes);

  // Before the last lane goes across, in the node of the last rank, and of the busiest rank's time.
  Picoseconds before = 0, in_node = 0, busy = 0, credits = 0;
  if (lanes == 1) {
    credits = children_of(topology.largest_node(), {}, variant.fans.in_node_by);
    in_node = time_of_tree(topology.largest_node(), {}, variant.fans.in_node_by, inside, 0);
    busy = gives ? credits * store + per_piece(credits, 1)
                 : std::max(credits * taken + children * combined + per_piece(0, credits),
                            ranks > 1 ? store + per_piece(1, 0) : 0);
  } else if (gives) {
    // A lane of the root's node sends to all its children before the next one does.
    credits = ranks - 1;
    before = std::max((lanes - 1) * store + memory.latency + taken, (lanes - 1) * children * port);
    in_node = credits * store + taken + memory.latency + (lanes - 1) * memory.receive_overhead;
    busy = (lanes - 1 + credits) * store + per_piece(credits, lanes);
  } else {
    credits = ranks - 1;
    before = (ranks > lanes ? lanes : lanes - 1) * store + memory.latency + credits * taken +
             (lanes - 1) * port;
    in_node = store + memory.latency + lanes * memory.receive_overhead;
    busy = lanes * store + credits * taken + children * combined + per_piece(lanes, credits);
  }

  const Hop across = {.gap = gives ? port : std::max(lanes * port, combined),
                      .time = network.travel_time(bytes) + combined};
  const Picoseconds way =
      variant.fans.is_chain
          ? (nodes - Picoseconds{1}) * across.time + in_node
          : time_of_tree(nodes, variant.fans.across, variant.fans.across_by, across, in_node);
  // A sender is two chunks ahead of its receiver at most.
  const Picoseconds round_trip = (across.time + network.travel_time(0) + network.receive_overhead) /
                                 (2 * static_cast<Picoseconds>(pieces));
  return before + way + per_piece(credits + 1, 1) * static_cast<Picoseconds>(pieces) +
         (count - 1) * std::max({children * lanes * port, busy, round_trip});
}

}  // namespace tutti::tune
