// The rows of the registry, by the files that define them; and what several of these need.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "plan/allreduce/lanes.hpp"
#include "tune/names.hpp"
#include "tune/prices.hpp"
#include "tune/registry.hpp"
#include "tune/vectors.hpp"

namespace tutti::tune {

std::span<const Row> allreduce_rows();
std::span<const Row> hierarchy_rows();  // of allreduce and barrier, node by node
std::span<const Row> rooted_rows();     // broadcast, reduce
std::span<const Row> block_rows();      // allgather, alltoall, gather, scatter, reduce_scatter
std::span<const Row> other_rows();      // barrier, allreduce_ssp, scan, exscan

/// Where ranks share CPUs, and in a single node, schedules that cut the payload into a part for
/// each rank are considered from this size on.  They send fewer bytes, but in more messages, each
/// of which costs turns of the scheduler, or a round through memory (measured with 2 ranks of a
/// node). Elsewhere prices decide.
inline constexpr std::size_t in_parts_from_bytes = 64u << 10;
/// Below this, the further messages of a lane's part that is cut again cost more than they save
/// where ranks share CPUs (16 KiB of 8 ranks on 2 CPUs took 1.3 of the time).
inline constexpr std::size_t cut_again_from_bytes = 32 << 10;
/// A race in a single node has them from this size on, and lanes of at least so many bytes.
inline constexpr std::size_t raced_in_parts_from_bytes = 4u << 10;
inline constexpr std::size_t raced_lane_bytes_min = 512;
/// From this size on, the ranks tell each other whether they have room for a shared ring: that is
/// one exchange more when an operation is made, and by price no smaller payload goes along it.
inline constexpr std::size_t shared_ring_from_bytes = 64u << 10;
/// A rank is connected with no more than this many ranks of other nodes if nobody asks for the
/// schedule by name and there is one that needs fewer connections.
inline constexpr std::uint32_t partners_unasked_max = 31;
/// Schedules that pass parts on have registers for one part of each rank.  With more ranks than
/// this, the registers would not fit into an arena of the default size.
inline constexpr std::uint32_t passed_on_ranks_max = 4096;

/// Whether all schedules that a single node can run are considered, and not only what a rule takes:
/// for a race, or because a choice is named, as a finding does.
inline bool is_open_in_node(const Query& query) {
  const CollectiveRequest& request = query.request;
  const Topology& topology = query.topology;
  return (request.for_race || !request.only.empty()) && topology.rank_count > 1 &&
         topology.is_one_node() && !topology.shares_cpus && !request.is_asked_for() &&
         request.across == Across::automatic && request.tree == Tree::automatic &&
         !request.shares_target && !request.zero_copy;
}

/// Whether parts are too short for a race to be worth its time.
inline bool is_too_short_to_race(const Query& query, std::uint32_t part_count) {
  return query.request.for_race && query.topology.is_one_node() &&
         query.request.bytes() < raced_lane_bytes_min * part_count;
}

/// What a rank has of the network, if the ranks of its node send at the same time.
inline plan::LogGP network_of(const Query& query) {
  const Topology& topology = query.topology;
  return share_of_port(query.network.between, topology.is_one_node() ? 1 : topology.largest_node());
}

/// A vector that is given by the name of the only choice, if it serves so many ranks.
inline std::vector<Variant> covering_named(const plan::PerRound& vector, std::uint32_t rank_count) {
  if (!plan::is_executable(rank_count, vector)) return {};
  return {{.per_round = vector}};
}

/// By how much the last of so many lanes is behind the first, if they differ in a round in which
/// their port sends for `at_port`, and one of them alone takes `alone`.
inline plan::Picoseconds lag_of_lanes(plan::Picoseconds lanes, plan::Picoseconds at_port,
                                      plan::Picoseconds alone) {
  const plan::Picoseconds of_lane = at_port / lanes;
  return std::min(alone - of_lane, (lanes - 1) * of_lane);
}

/// Prices of rounds that all ranks have alike, through the ports of their nodes or in the only one.
/// Made once for a query, because a vector is found by thousands of prices; of one thread.
class RoundPrices {
 public:
  explicit RoundPrices(const Query& query);

  plan::Picoseconds of(std::uint32_t messages, std::uint64_t values, std::uint64_t value_bytes,
                       bool combines = true) const;
  /// A round of a schedule over all ranks, the k-th of whose messages goes k times `round.length`
  /// ranks ahead: where ranks share nodes, some of them stay there.  For lanes, it is the
  /// time until a lane begins its next round.
  plan::Picoseconds ahead(const plan::Round& round, std::uint64_t values, std::uint64_t value_bytes,
                          bool combines = true) const;
  /// By how much the last of several lanes is behind the first, if they differ in this round; the
  /// most of all rounds is what these take besides.  0: there is one lane.
  plan::Picoseconds lag(std::uint32_t messages, std::uint64_t values, std::uint64_t value_bytes,
                        bool combines = true) const;

 private:
  /// What does not depend on the number of messages.
  struct Terms {
    bool is_known = false;
    bool combines = false;
    std::uint64_t values = 0, value_bytes = 0;
    plan::Picoseconds one = 0, further = 0;          // messages of ranks that all send alike
    plan::Picoseconds first = 0, next = 0;           // of one lane, if the others do not send
    plan::Picoseconds store = 0, taken = 0;          // inside a node
    plan::Picoseconds last = 0, port = 0, busy = 0;  // of the messages of a node
    plan::Picoseconds own = 0;  // of a rank's time, each that it sends and takes
  };
  const Terms& terms_of(std::uint64_t values, std::uint64_t value_bytes, bool combines) const;
  plan::Picoseconds in_node(std::uint32_t messages, const Terms& terms) const;
  static plan::Picoseconds alone(std::uint32_t messages, const Terms& terms) {
    return std::max(terms.first + (plan::Picoseconds{messages} - 1) * terms.next,
                    plan::Picoseconds{messages} * terms.own);
  }

  plan::Network network_;
  plan::LogGP share_;  // of the port of a node
  std::uint64_t ranks_, nodes_;
  plan::Picoseconds lanes_;
  bool is_one_node_, is_shared_, has_runs_;
  mutable std::array<Terms, 16> terms_;  // by values
};

/// Whether it is across nodes, and several lanes of each share a port.
inline bool have_lanes_across(const Query& query) {
  return query.network.between.ranks_at_port > 1 && !query.topology.is_one_node() &&
         !query.topology.has_shared_nodes();
}

/// One lane of those that share a port, as if it had that for itself.
inline plan::LogGP of_one_lane(const plan::LogGP& network) {
  plan::LogGP alone = network;
  alone.ranks_at_port = 1;
  return alone;
}

/// The connections that a vector may need: none in a single node.
inline std::uint32_t partners_max_of(const Query& query) {
  return query.topology.is_one_node() ? UINT32_MAX : query.request.partners_max;
}

/// Lanes of the nodes, each of whose parts the schedule across may cut into so many pieces.
inline plan::LaneShape lanes_of(const Query& query, std::uint32_t lane_count,
                                std::uint32_t pieces = 1) {
  return {.rank_count = query.topology.rank_count,
          .node_of = query.topology.node_of,
          .lane_count = lane_count,
          .pieces = pieces};
}

/// Whether there is such a shape.
inline bool may_be_lanes(const Query& query, std::uint32_t lane_count, std::uint32_t pieces = 1) {
  return plan::is_lane_shape(lanes_of(query, lane_count, pieces), query.topology.counts());
}

/// Whether the prices of an allreduce over all ranks that is reproducible follow its events round
/// by round (canonical_time.hpp), so that they may be compared with what plans take.
bool has_canonical_time(const Query& query);

/// Whether the payload of an allreduce is worth dividing; alike for all schedules that do.
std::string why_not_divided(const Query& query);

inline bool is_reproducible_in_bits(const CollectiveRequest& request) {
  return request.agreement == Agreement::reproducible && order_shows_in_bits(request.reduction);
}
inline plan::Order order_of(const Reduction& reduction) {
  return reduction.properties.commutative ? plan::Order::commutative : plan::Order::rank_order;
}

}  // namespace tutti::tune
