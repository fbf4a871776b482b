// The shared ring (plan/allreduce/shared_ring.hpp) as what can be chosen: for allreduce, and for
// allgather and reduce_scatter, which are one half of it each.
#include "tune/shared_ring_rows.hpp"

#include <algorithm>
#include <string>
#include <tutti/detail/names.hpp>
#include <vector>

#include "plan/allreduce/shared_ring.hpp"
#include "plan/cost/shared_ring_time.hpp"
#include "tune/choose.hpp"
#include "tune/chunks.hpp"
#include "tune/rows.hpp"

namespace tutti::tune {
namespace {

using plan::Picoseconds, plan::RingPhases;

/// What goes along the ring.
struct RingPayload {
  plan::NodeRing ring = {};
  std::size_t element_count = 0, element_bytes = 1;  // by which it is cut
  std::vector<std::size_t> blocks = {};              // elements of each node's, of one half

  std::size_t bytes() const noexcept { return element_count * element_bytes; }
};

/// The blocks of all ranks.  Those of a reduce_scatter are taken to be alike.
std::vector<std::size_t> blocks_of_ranks(const Query& query) {
  const CollectiveRequest& request = query.request;
  const std::uint32_t ranks = query.topology.rank_count;
  if (!request.block_bytes.empty()) return request.block_bytes;
  if (request.collective == Collective::allgather)
    return std::vector<std::size_t>(ranks, request.bytes());
  std::vector<std::size_t> blocks(ranks, request.element_count / ranks);
  for (std::size_t rank = 0; rank < request.element_count % ranks; ++rank) ++blocks[rank];
  return blocks;
}

RingPayload payload_of(const Query& query) {
  const CollectiveRequest& request = query.request;
  const Topology& topology = query.topology;
  RingPayload payload;
  payload.ring = {.nodes = topology.node_count(), .phases = phases_of(request.collective)};
  if (request.collective != Collective::allgather)
    payload.element_bytes = std::max<std::size_t>(request.reduction.element_bytes, 1);
  if (payload.ring.phases == RingPhases::both) {
    payload.element_count = request.element_count;
  } else {
    payload.blocks =
        plan::blocks_of_ring(topology.rank_count, topology.node_of, blocks_of_ranks(query));
    payload.element_count = plan::ring_elements_to_cut(payload.blocks);
  }
  payload.ring.sub_blocks = plan::shared_ring_sub_blocks(topology.rank_count, topology.node_of,
                                                         payload.bytes(), payload.ring.phases);
  return payload;
}

/// As they are cut where nobody asks for chunks.
plan::RingLaps laps_of(const Query& query, const RingPayload& payload) {
  const auto asked = query.request.algorithm == Algorithm::shared_ring ? plan::RingAsked::by_name
                                                                       : plan::RingAsked::unasked;
  return plan::shared_ring_laps(
      payload.ring.parts(), payload.element_count, payload.element_bytes,
      plan::shared_ring_limits(payload.ring.nodes, payload.ring.sub_blocks,
                               query.topology.largest_node(), payload.bytes(), asked));
}

std::string why_not_cut(const Query& query) {
  if (phases_of(query.request.collective) == RingPhases::both) return why_not_divided(query);
  return query.topology.rank_count == 1    ? "there is one rank"
         : query.request.gives_per_round() ? "messages per round are asked for"
                                           : "";
}

std::uint64_t arena_bytes(const Query& query) {
  const RingPayload payload = payload_of(query);
  const plan::RingLaps laps = laps_of(query, payload);
  const std::uint32_t members = query.topology.largest_node();
  return payload.ring.phases == RingPhases::both
             ? plan::shared_ring_arena_bytes(laps, payload.ring.nodes, payload.ring.sub_blocks,
                                             members, payload.element_count, payload.element_bytes)
             : plan::shared_ring_arena_bytes(laps, payload.ring, members, payload.blocks,
                                             payload.element_bytes);
}

/// The query with blocks of bytes for which other schedules have prices.
CollectiveRequest priced_request(const Query& query) {
  CollectiveRequest request = query.request;
  if (!request.block_bytes.empty()) return request;
  const std::size_t blocks =
      request.collective == Collective::reduce_scatter ? query.topology.rank_count : 1;
  request.element_count = blocks * priced_bytes(request.bytes() / blocks);
  request.reduction.element_bytes = 1;
  return request;
}

}  // namespace

plan::RingPhases phases_of(Collective collective) noexcept {
  return collective == Collective::allgather        ? RingPhases::allgather
         : collective == Collective::reduce_scatter ? RingPhases::reduce_scatter
                                                    : RingPhases::both;
}

std::size_t shared_ring_bytes(const CollectiveRequest& request, const Topology& topology) {
  return payload_of({request, topology, {}}).bytes();
}

std::uint64_t shared_ring_arena_bytes(const CollectiveRequest& request, const Topology& topology) {
  return arena_bytes({request, topology, {}});
}

std::string why_not_shared_ring(const Query& query) {
  const CollectiveRequest& request = query.request;
  if (request.across == Across::leader || request.across == Across::lanes)
    return std::string("goes by nodes itself, and not across ") + name_of(request.across) +
           "; leave across out";
  if (request.collective == Collective::allgather && request.shares_target)
    return "copies all blocks to each rank, and the ranks of a node have one target; give each "
           "rank "
           "a target of its own, or use automatic";
  const plan::NodeRing ring = payload_of(query).ring;
  if (!plan::is_shared_ring(ring.nodes, ring.sub_blocks, ring.phases))
    return "numbers 2 N C chunks, at most " + std::to_string(plan::shared_ring_ids_max) + ": " +
           std::to_string(ring.nodes) + " nodes are more";
  return "";
}

std::string why_not_shared_ring_unasked(const Query& query) {
  const CollectiveRequest& request = query.request;
  if (std::string why = why_not_cut(query); !why.empty()) return why;
  const std::size_t bytes = shared_ring_bytes(request, query.topology);
  if (bytes < shared_ring_from_bytes) return "the payload is small";
  if (query.topology.is_one_node()) return "there is one node, around which nothing goes";
  // Measured on the software device, although the ring's price is 0.64 to 0.83 of the other's.
  if (query.topology.rank_count == 2)
    return "two ranks exchange halves directly, for which each copies less";
  if (request.across != Across::automatic || request.shares_target)
    return "it is asked how nodes enter, or the ranks of a node have one target";
  if (request.zero_copy) return "payloads stay in their users' buffers, and it copies them";
  if (query.topology.shares_cpus) return "ranks share CPUs, and each would have to run in each lap";
  const auto needs = [&] {
    return "it takes " + std::to_string(arena_bytes(query)) +
           " bytes of the arena of the first rank of a node";
  };
  switch (request.ring_room) {
    case RingRoom::not_told:
      return needs() + ", and no rank has told whether it has them";
    case RingRoom::missing:
      return needs() +
             ", and some rank has not twice as much, has used a quarter of its receives, waits by "
             "sleeping "
             "(TUTTI_WAIT=block), or is given chunks (TUTTI_CHUNK_BYTES)";
    case RingRoom::there:
      break;
  }
  return "";
}

Picoseconds cost_of_shared_ring(const Query& query, const Variant&) {
  if (phases_of(query.request.collective) == RingPhases::both) {
    const RingPayload payload = payload_of(query);
    const std::uint64_t bytes = priced_bytes(query.request.bytes());
    RingPayload priced = payload;
    priced.element_count = bytes;
    priced.element_bytes = 1;
    return plan::shared_ring_time({.nodes = payload.ring.nodes,
                                   .members = query.topology.largest_node(),
                                   .sub_blocks = payload.ring.sub_blocks},
                                  laps_of(query, priced), bytes, query.network);
  }
  const CollectiveRequest request = priced_request(query);
  const Query priced{request, query.topology, query.network};
  RingPayload payload = payload_of(priced);
  payload.ring.sub_blocks = payload_of(query).ring.sub_blocks;
  const plan::RingLaps laps = laps_of(priced, payload);
  for (std::size_t& elements : payload.blocks) elements *= payload.element_bytes;
  return plan::shared_ring_time(payload.ring, query.topology.largest_node(), laps, payload.blocks,
                                query.network);
}

plan::Plan build_shared_ring(const Query& query, const Variant&, Rank self) {
  const plan::NodeRing ring = payload_of(query).ring;
  return plan::shared_ring_plan(self, query.topology.rank_count, query.topology.node_of,
                                ring.sub_blocks, ring.phases);
}

}  // namespace tutti::tune
