// See shared_ring.hpp.
#include "plan/allreduce/shared_ring.hpp"

#include <algorithm>
#include <cassert>

#include "plan/core/nodes.hpp"
#include "plan/cost/step_bytes.hpp"

namespace tutti::plan {
std::uint32_t shared_ring_sub_blocks(std::uint32_t rank_count, std::span<const Node> node_of,
                                     std::uint64_t payload_bytes, RingPhases phases) {
  // By LogGP the ring is bound by bandwidth once C blocks take longer than one hop with its
  // combining: 2 to 4 sub-blocks for 1 MiB over up to 32 nodes.  Of smaller payloads, nodes of one
  // rank have so many that chunks have 8 KiB, which take 1.2 us of a port (FDR); in nodes of
  // several ranks, laps are shorter instead.  Between two nodes, where the ring is taken by name
  // only, further chunks have not been measured.
  constexpr std::uint64_t large_payload_bytes = 1u << 20, chunk_bytes = 8u << 10;
  constexpr std::uint32_t of_large_payload = 4;
  const auto ranks = static_cast<std::uint32_t>(largest_node_of(node_of));
  const std::uint32_t node_count = node_count_of(node_of, rank_count);
  std::uint64_t wanted = ranks;
  if (payload_bytes >= large_payload_bytes)
    wanted = std::max(ranks, of_large_payload);
  else if (ranks == 1 && node_count > 2)
    wanted =
        std::clamp<std::uint64_t>(payload_bytes / node_count / chunk_bytes, 1, of_large_payload);
  // Chunks of one block more are numbered in a reduce_scatter.
  const std::uint64_t numbered =
      std::uint64_t{node_count} + (phases == RingPhases::reduce_scatter ? 1 : 0);
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(shared_ring_ids_max / 2 / numbered, 1, wanted));
}

RingLapLimits shared_ring_limits(std::uint32_t nodes, std::uint32_t sub_blocks,
                                 std::uint32_t largest_node, std::uint64_t payload_bytes,
                                 RingAsked asked) noexcept {
  assert(nodes > 0 && sub_blocks > 0 && largest_node > 0);
  RingLapLimits limits;
  if (asked == RingAsked::unasked) limits.window_bytes /= 2;
  if (largest_node == 1) return limits;
  constexpr std::uint64_t shortest = 8u << 10;
  const std::uint64_t blocks_of_payload = std::min(std::uint64_t{8} * nodes, std::uint64_t{32});
  limits.chunk_bytes =
      std::clamp(payload_bytes / blocks_of_payload / sub_blocks, shortest, limits.chunk_bytes);
  return limits;
}

RingLaps shared_ring_laps(std::uint32_t parts, std::uint64_t element_count,
                          std::uint64_t element_bytes, const RingLapLimits& limits) {
  assert(parts > 0 && element_bytes > 0 && limits.in_flight_max > 0);
  // As many laps as fill the window when chunks are no longer than they may be; then a payload that
  // fits the window is in flight as a whole.
  const std::uint64_t longest = std::max<std::uint64_t>(parts * limits.chunk_bytes, 1);
  const std::uint64_t in_window = std::max<std::uint64_t>(
      limits.window_bytes / longest + (limits.window_bytes % longest != 0 ? 1 : 0),
      ring_laps_in_flight);
  const std::uint64_t lap_bytes =
      limits.window_bytes / in_window + (limits.window_bytes % in_window != 0 ? 1 : 0);
  constexpr std::uint64_t count_max = 1u << 24;  // whatever chunks are asked for
  const std::uint64_t elements =
      std::max({lap_bytes / element_bytes + (lap_bytes % element_bytes != 0 ? 1 : 0),
                std::uint64_t{parts}, element_count / count_max + 1});
  const std::uint64_t count =
      element_count / elements + (element_count % elements != 0 || element_count == 0 ? 1 : 0);
  RingLaps laps;
  laps.count = static_cast<std::uint32_t>(count);
  laps.in_flight = static_cast<std::uint32_t>(
      std::min<std::uint64_t>({in_window, limits.in_flight_max, laps.count}));
  return laps;
}

namespace {

std::uint64_t quotient_up(std::uint64_t number, std::uint64_t divisor) noexcept {
  return number / divisor + (number % divisor != 0 ? 1 : 0);
}
std::uint64_t whole_lines(std::uint64_t bytes) noexcept {
  return quotient_up(bytes, line_bytes) * line_bytes;
}

}  // namespace

std::uint64_t shared_ring_arena_bytes(const RingLaps& laps, std::uint32_t nodes,
                                      std::uint32_t sub_blocks, std::uint32_t members,
                                      std::uint64_t element_count,
                                      std::uint64_t element_bytes) noexcept {
  const std::uint64_t parts = std::uint64_t{nodes} * sub_blocks;
  const std::uint64_t elements = quotient_up(element_count, laps.count);
  const std::uint64_t lap = whole_lines(elements * element_bytes);
  const std::uint64_t block =
      whole_lines(quotient_up(elements, parts) * sub_blocks * element_bytes);
  const std::uint64_t words_of_chunks = 4 * parts, words_of_rank = 3;
  return (laps.in_flight * words_of_chunks + members * words_of_rank) * line_bytes +
         laps.in_flight * (3 * lap + 2 * block);
}

std::uint64_t longest_lap(const RingLaps& laps,
                          std::span<const std::size_t> block_elements) noexcept {
  std::uint64_t elements = 0;
  for (const std::size_t block : block_elements) elements += quotient_up(block, laps.count);
  return elements;
}

std::uint64_t shared_ring_arena_bytes(const RingLaps& laps, const NodeRing& ring,
                                      std::uint32_t members,
                                      std::span<const std::size_t> block_elements,
                                      std::uint64_t element_bytes) noexcept {
  assert(ring.phases != RingPhases::both && block_elements.size() == ring.nodes);
  const std::uint64_t lap = whole_lines(longest_lap(laps, block_elements) * element_bytes);
  const std::uint64_t longest = *std::max_element(block_elements.begin(), block_elements.end());
  const std::uint64_t block = ring.phases == RingPhases::allgather
                                  ? 0
                                  : whole_lines(quotient_up(longest, laps.count) * element_bytes);
  const std::uint64_t copies = std::uint64_t{ring.copies_each()} * laps.in_flight;
  constexpr std::uint64_t words_of_chunk = 2, words_of_rank = 3;
  return (copies * words_of_chunk * ring.ids() + members * words_of_rank) * line_bytes +
         copies * (lap + block) + laps.in_flight * lap;
}

std::vector<std::size_t> blocks_of_ring(std::uint32_t rank_count, std::span<const Node> node_of,
                                        std::span<const std::size_t> of_rank) {
  assert(of_rank.size() == rank_count);
  std::vector<std::size_t> blocks(node_count_of(node_of, rank_count));
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
    const std::uint32_t node = node_of.empty() ? rank : index_of(node_of[rank]);
    blocks[(node + 1) % blocks.size()] += of_rank[rank];
  }
  return blocks;
}

std::size_t ring_elements_to_cut(std::span<const std::size_t> block_elements) noexcept {
  assert(!block_elements.empty());
  const std::size_t longest = *std::max_element(block_elements.begin(), block_elements.end());
  const std::size_t most = SIZE_MAX / 16 / block_elements.size();
  return block_elements.size() * std::min(longest, most);
}

bool is_shared_ring(std::uint32_t nodes, std::uint32_t sub_blocks, RingPhases phases) noexcept {
  const std::uint64_t numbered =
      std::uint64_t{nodes} + (phases == RingPhases::reduce_scatter ? 1 : 0);
  return nodes > 0 && sub_blocks > 0 && 2 * numbered * sub_blocks <= shared_ring_ids_max;
}

Plan shared_ring_plan(Rank self, std::uint32_t rank_count, std::span<const Node> node_of,
                      std::uint32_t sub_blocks, RingPhases phases) {
  const std::vector<std::vector<Rank>> nodes = members_of_nodes(rank_count, node_of);
  const auto node_count = static_cast<std::uint32_t>(nodes.size());
  assert(is_shared_ring(node_count, sub_blocks, phases) && index_of(self) < rank_count);
  const std::uint32_t own = node_of.empty() ? index_of(self) : index_of(node_of[index_of(self)]);
  const std::vector<Rank>& here = nodes[own];
  Plan plan;
  plan.self = self;
  plan.rank_count = rank_count;
  plan.algorithm = "shared_ring";
  plan.parts = static_cast<std::uint16_t>(std::min(node_count * sub_blocks, 65535u));
  plan.payloads = 0;  // what chunks hold is no business of these steps
  plan.all_alike = false;
  plan.per_round.assign((phases == RingPhases::both ? std::size_t{2} : 1) * (node_count - 1),
                        sub_blocks);
  const auto await = [&](Rank peer, std::uint32_t round) {
    plan.steps.push_back(
        {.action = Action::await, .slot = plan.slot_count++, .round = round, .peer = peer});
  };
  for (const Rank rank : here)
    if (rank != self) await(rank, 0);
  if (node_count == 1) return plan;
  const auto local =
      static_cast<std::size_t>(std::find(here.begin(), here.end(), self) - here.begin());
  const std::vector<Rank>& before = nodes[(own + node_count - 1) % node_count];
  for (std::size_t j = 0; j < before.size(); ++j)
    if (j % here.size() == local) await(before[j], 1);
  const std::vector<Rank>& next = nodes[(own + 1) % node_count];
  plan.steps.push_back({.action = Action::put, .round = 1, .peer = next[local % next.size()]});
  return plan;
}

}  // namespace tutti::plan
