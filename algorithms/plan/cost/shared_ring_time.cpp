// See shared_ring_time.hpp.
#include "plan/cost/shared_ring_time.hpp"

#include <algorithm>
#include <cassert>

namespace tutti::plan {
namespace {

/// What two things take at the same time: the longer of them, plus the shorter times
/// 0.6 (shorter / longer - 0.75), where that is more than nothing.
Picoseconds beside(Picoseconds left, Picoseconds right) {
  const Picoseconds longer = std::max(left, right), shorter = std::min(left, right);
  if (shorter == 0) return longer;
  const Picoseconds share = shorter / std::max<Picoseconds>(longer / 1000, 1);  // in thousandths
  return longer + shorter / 1000 * std::max<Picoseconds>(share - 750, 0) * 3 / 5;
}

}  // namespace

Picoseconds shared_ring_time(const RingShape& shape, const RingLaps& laps,
                             std::uint64_t payload_bytes, const Network& network) {
  assert(shape.nodes > 0 && shape.members > 0 && shape.sub_blocks > 0);
  assert(laps.count > 0 && laps.in_flight > 0);
  const LogGP& between = network.between;
  const NodeMemory& inside = network.inside;
  const std::uint64_t chunks = std::uint64_t{laps.count} * shape.nodes * shape.sub_blocks;
  const std::uint64_t bytes = (payload_bytes + chunks - 1) / chunks;
  const Picoseconds members = shape.members, hops = shape.nodes - 1, lap_count = laps.count;
  const Picoseconds joined = members * between.work_time(bytes);
  const Picoseconds result = inside.receive_overhead + inside.read_per_byte.of(bytes);

  const Picoseconds block = shape.sub_blocks * std::max(between.gap, between.per_byte.of(bytes));
  const Picoseconds last =
      hops == 0 ? 0 : between.send_overhead + between.latency + between.receive_overhead;
  const Picoseconds back = last + between.per_byte.of(bytes) + (members > 1 ? result / 2 : 0);
  const Picoseconds there = back + joined;
  const Picoseconds along =
      lap_count == 1
          ? hops * (std::max(block, there) + std::max(block, back)) + (block > back ? last : 0)
          : std::max(lap_count * 2 * hops * block + last,
                     lap_count * hops * (there + back) / laps.in_flight);
  if (members == 1) return along;

  // A rank combines every M-th chunk, and sees it twice: as a contribution and as a result.  In one
  // of N blocks its node is the first, which begins with a copy and combines one less.
  const Picoseconds combined = joined - between.work_time(bytes) / shape.nodes;
  const Picoseconds of_chunk =
      inside.per_byte.of(bytes) + result +
      (combined + 2 * inside.receive_overhead + 2 * between.receive_overhead) / members;
  const Picoseconds before = inside.store_time(bytes) + inside.latency + joined;
  return before + beside(along, static_cast<Picoseconds>(chunks) * of_chunk) + result;
}

Picoseconds shared_ring_time(const NodeRing& ring, std::uint32_t members, const RingLaps& laps,
                             std::span<const std::size_t> block_bytes, const Network& network) {
  assert(ring.phases != RingPhases::both && block_bytes.size() == ring.nodes && members > 0);
  const bool combines = ring.phases == RingPhases::reduce_scatter;
  const LogGP& between = network.between;
  const NodeMemory& inside = network.inside;
  const std::uint64_t chunks_of_block = std::uint64_t{laps.count} * ring.sub_blocks;
  const auto chunk_of = [&](std::size_t bytes) {
    return (std::uint64_t{bytes} + chunks_of_block - 1) / chunks_of_block;
  };
  const auto port_of = [&](std::size_t bytes) {
    return static_cast<Picoseconds>(chunks_of_block) *
           std::max(between.gap, between.per_byte.of(chunk_of(bytes)));
  };
  const std::uint64_t longest = chunk_of(*std::max_element(block_bytes.begin(), block_bytes.end()));
  const Picoseconds hops = ring.nodes - 1, lap_count = laps.count;
  const Picoseconds joined =
      combines ? static_cast<Picoseconds>(members) * between.work_time(longest) : 0;
  const Picoseconds result = inside.receive_overhead + inside.read_per_byte.of(longest);
  const Picoseconds last =
      hops == 0 ? 0 : between.send_overhead + between.latency + between.receive_overhead;
  const Picoseconds hop =
      last + between.per_byte.of(longest) + joined + (members > 1 ? result / 2 : 0);

  // A node sends all blocks but one.
  Picoseconds sent = 0, least = 0;
  for (const std::size_t bytes : block_bytes) {
    const Picoseconds port = port_of(bytes);
    least = sent == 0 ? port : std::min(least, port);
    sent += port;
  }
  sent = hops == 0 ? 0 : sent - least;
  const Picoseconds way = hops * hop;  // of a chunk
  const Picoseconds along = std::max(sent + (sent > way ? last + joined : 0),
                                     std::max(way, lap_count * way / laps.in_flight));
  if (members == 1) return along;

  const Picoseconds mine = inside.store_time(longest) + inside.latency + joined;
  return mine + along + result;
}

}  // namespace tutti::plan
