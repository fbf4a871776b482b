#include "tune/rooted_cost.hpp"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "plan/core/per_round.hpp"
#include "tune/chunks.hpp"
#include "tune/prices.hpp"
#include "tune/reduce_time.hpp"

namespace tutti::tune {
namespace {

using plan::Picoseconds;

/// What a message takes in one of the nested trees: of its parent's time, and until its child, or
/// its parent, goes on with it.
struct Hop {
  Picoseconds gap;
  Picoseconds time;
  Picoseconds credit = 0;  // what a parent takes for the credit of each child
};

/// Until the last rank of a tree has its message, if each takes `below` with it by itself.
class TreeTime {
 public:
  TreeTime(const plan::PerRound& fans, const plan::Branching& by, const Hop& hop, Picoseconds below)
      : fans_(fans), by_(by), hop_(hop), below_(below) {}

  Picoseconds of(std::uint32_t count) {
    for (const auto& [vertices, time] : known_)
      if (vertices == count) return time;
    const std::vector<std::uint32_t> sizes = subtrees(count, fans_, by_);
    Picoseconds time = below_, begin = 0;
    for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {  // the largest one first
      time = std::max(time, begin + hop_.time + of(*size));
      begin += hop_.gap;
    }
    if (hop_.credit > 0)
      time = std::max(time, begin + static_cast<Picoseconds>(sizes.size()) * hop_.credit);
    known_.emplace_back(count, time);
    return time;
  }

 private:
  const plan::PerRound& fans_;
  const plan::Branching& by_;
  Hop hop_;
  Picoseconds below_;
  std::vector<std::pair<std::uint32_t, Picoseconds>> known_ = {};  // few sizes differ
};

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

Hop hop_in_node(const Query& query) {
  return hop_of_tree(
      query, std::min<std::uint64_t>(priced_bytes(query.request.bytes()), chunk_bytes_in_node));
}

/// The first one of those with which a Fibonacci tree over the largest node takes least.
std::uint32_t fastest_latency(const Query& query, const Hop& hop,
                              const std::vector<std::uint32_t>& latencies) {
  const plan::PerRound no_fans;
  std::uint32_t best = latencies.front();
  Picoseconds least = INT64_MAX;
  for (const std::uint32_t latency : latencies) {
    const plan::Branching by{plan::Branching::Rule::fibonacci, latency};
    const Picoseconds time = TreeTime(no_fans, by, hop, 0).of(query.topology.largest_node());
    if (time >= least) continue;
    best = latency;
    least = time;
  }
  return best;
}

}  // namespace

bool has_close_prices(const Topology& topology) {
  constexpr std::uint32_t ranks_max = 1024;
  return topology.has_equal_nodes() && topology.rank_count <= ranks_max;
}

std::uint32_t latency_in_node(const Query& query) {
  const Hop hop = hop_in_node(query);
  const Picoseconds gap = std::max<Picoseconds>(hop.gap, 1);
  const auto quotient = static_cast<std::uint32_t>(
      std::clamp<Picoseconds>((hop.time + gap / 2) / gap, 1, plan::latency_max));
  // Among few ranks the rounded quotient is not always the best one.
  return fastest_latency(
      query, hop,
      {quotient, std::max(quotient - 1, 1u), std::min(quotient + 1, plan::latency_max)});
}

std::uint32_t best_latency_in_node(const Query& query) {
  Hop hop = hop_in_node(query);
  if (is_broadcast(query)) hop.credit = query.network.inside.receive_overhead;
  std::vector<std::uint32_t> all(plan::latency_max);
  std::iota(all.begin(), all.end(), 1u);
  return fastest_latency(query, hop, all);
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

  const plan::PerRound no_fans;
  // Before the last lane goes across, in the node of the last rank, and of the busiest rank's time.
  Picoseconds before = 0, in_node = 0, busy = 0, credits = 0;
  if (lanes == 1) {
    credits = children_of(topology.largest_node(), no_fans, variant.fans.in_node_by);
    in_node = TreeTime(no_fans, variant.fans.in_node_by, inside, 0).of(topology.largest_node());
    busy = gives ? credits * store + children * network.rank_gap + per_piece(credits, 1)
                 : std::max(credits * taken + children * (combined + network.rank_gap) +
                                per_piece(0, credits),
                            ranks > 1 ? store + per_piece(1, 0) : 0);
  } else if (gives) {
    // A lane of the root's node sends to all its children before the next one does.
    credits = ranks - 1;
    before = std::max((lanes - 1) * store + memory.latency + taken, (lanes - 1) * children * port);
    in_node = credits * store + taken + memory.latency + (lanes - 1) * memory.receive_overhead;
    busy = (lanes - 1 + credits) * store + children * network.rank_gap + per_piece(credits, lanes);
  } else {
    credits = ranks - 1;
    before = (ranks > lanes ? lanes : lanes - 1) * store + memory.latency + credits * taken +
             (lanes - 1) * port;
    in_node = store + memory.latency + lanes * memory.receive_overhead;
    busy = lanes * store + credits * taken + children * (combined + network.rank_gap) +
           per_piece(lanes, credits);
  }

  const Hop across = {.gap = gives ? network.sending_time(bytes) : std::max(lanes * port, combined),
                      .time = network.travel_time(bytes) + combined};
  const Picoseconds way =
      variant.fans.is_chain
          ? (nodes - Picoseconds{1}) * across.time + in_node
          : TreeTime(variant.fans.across, variant.fans.across_by, across, in_node).of(nodes);
  // A sender is two chunks ahead of its receiver at most.
  const Picoseconds round_trip = (across.time + network.travel_time(0) + network.receive_overhead) /
                                 (2 * static_cast<Picoseconds>(pieces));
  // A rank hears what all other lanes have of a piece before it goes on with later ones.  By the
  // events this delays the pieces of a single chunk; of several chunks, ports and memory catch up.
  const Picoseconds heard = gives && lanes > 1 && chunks == 1 ? before + in_node : 0;
  const Picoseconds period = std::max({children * lanes * port, busy, round_trip, heard});
  if (!gives && !variant.fans.is_chain && has_close_prices(topology)) {
    // In lanes, messages of the second chunk reach ports before the last ones of the first chunk.
    // Later chunks wait for credits, so that the busiest port or rank tells what they take.
    const Picoseconds followed = lanes > 1 ? std::min<Picoseconds>(count, 2) : 1;
    return reduce_time({.node_count = nodes,
                        .ranks_per_node = topology.largest_node(),
                        .lane_count = variant.lane_count,
                        .fans = variant.fans,
                        .bytes = bytes,
                        .chunk_count = static_cast<std::uint32_t>(followed),
                        .in_rank_order = !query.request.reduction.properties.commutative,
                        .as_seen = takes_any_order(query.request)},
                       query.network) +
           (count - followed) * period;
  }
  return before + way + per_piece(credits + 1, 1) * static_cast<Picoseconds>(pieces) +
         (count - 1) * period;
}

}  // namespace tutti::tune
