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

/// The time until the ranks of a node see a chunk, after one of them was notified.
Picoseconds told(const NodeMemory& inside) {
  return inside.latency + inside.receive_overhead;
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

  const Picoseconds block =
      shape.sub_blocks * std::max(between.port_time(bytes), between.rank_gap / members);
  const Picoseconds last =
      hops == 0 ? 0 : between.send_overhead + between.latency + between.receive_overhead;
  const Picoseconds back =
      last + between.per_byte.of(bytes) + (members > 1 ? result / 2 + told(inside) : 0);
  const Picoseconds there = back + joined;
  const Picoseconds combining = shape.sub_blocks * joined / members;  // all ranks combine a block
  const Picoseconds along =
      lap_count == 1 ? hops * (std::max({block, there, combining}) + std::max(block, back)) +
                           (block > back ? last : 0)
                     : std::max({lap_count * 2 * hops * block + last,
                                 lap_count * hops * (there + back) / laps.in_flight,
                                 lap_count * hops * combining + hops * block});
  if (members == 1) return along;

  // A rank combines every M-th chunk, and sees it twice: as a contribution and as a result.  In one
  // of N blocks its node is the first, which begins with a copy and combines one less.
  const Picoseconds combined = joined - between.work_time(bytes) / shape.nodes;
  const Picoseconds of_chunk =
      inside.per_byte.of(bytes) + result +
      (combined + 2 * (inside.receive_overhead + between.receive_overhead + between.rank_gap)) /
          members;
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
           std::max(between.port_time(chunk_of(bytes)), between.rank_gap / members);
  };
  const std::uint64_t longest = chunk_of(*std::max_element(block_bytes.begin(), block_bytes.end()));
  const Picoseconds hops = ring.nodes - 1, lap_count = laps.count, sub_blocks = ring.sub_blocks;
  const Picoseconds joined =
      combines ? static_cast<Picoseconds>(members) * between.work_time(longest) : 0;
  const Picoseconds result = inside.receive_overhead + inside.read_per_byte.of(longest);
  const Picoseconds last =
      hops == 0 ? 0 : between.send_overhead + between.latency + between.receive_overhead;
  const Picoseconds hop =
      last + between.per_byte.of(longest) + joined + (members > 1 ? result / 2 + told(inside) : 0);

  // A node sends all blocks but one.
  Picoseconds sent = 0, least = 0, most = 0;
  std::uint64_t total = 0;
  for (const std::size_t bytes : block_bytes) {
    const Picoseconds port = port_of(bytes);
    least = sent == 0 ? port : std::min(least, port);
    most = std::max(most, port);
    sent += port;
    total += bytes;
  }
  if (hops == 0) sent = most = 0;
  sent -= hops == 0 ? 0 : least;
  const Picoseconds each = std::max(between.port_time(longest), between.rank_gap / members);
  const Picoseconds way = hops * hop;  // of a chunk
  const Picoseconds work = lap_count * hops * sub_blocks * joined / members;
  const Picoseconds busy = std::max(sent, work);
  // Blocks that are alike follow each other.  Behind a long one all wait, in every window: for two
  // thirds of its way, which is measured.
  const Picoseconds behind_longest =
      most - std::min(each, most) + std::max(way, lap_count * way / laps.in_flight * 2 / 3);
  Picoseconds along = std::max(
      {busy + (busy > way ? last + joined : 0), behind_longest, lap_count * way / laps.in_flight});
  if (combines && lap_count > 1 && ring.nodes > 2 && sent > work) {
    // A node that combines its own block, of a lap, sends nothing.  Its port goes on with what is
    // left to send of the other laps in flight.
    const Picoseconds held = sub_blocks * joined - (static_cast<Picoseconds>(laps.in_flight) - 1) *
                                                       (sent - work) / lap_count;
    along += std::max<Picoseconds>(held, 0) * (2 * lap_count - 1) / 2;
  }
  if (members == 1) return along;

  // A rank stores what it contributes, copies what it gets, and combines every M-th chunk.
  const std::uint64_t own = total / ring.nodes / members;
  const Picoseconds chunks = lap_count * ring.parts();
  const Picoseconds combined = combines
                                   ? (Picoseconds{members} * ring.nodes - 1) *
                                         (chunks * between.work + between.work_per_byte.of(total)) /
                                         ring.nodes / members
                                   : 0;
  const Picoseconds taken = combines ? lap_count * ring.sub_blocks : chunks;
  const Picoseconds ranks =
      inside.per_byte.of(combines ? total : own) + inside.read_per_byte.of(combines ? own : total) +
      combined + taken * inside.receive_overhead +
      chunks * (2 * (inside.receive_overhead + between.receive_overhead) + between.rank_gap) /
          members;
  const Picoseconds mine = inside.store_time(longest) + inside.latency + joined;
  return mine + beside(along, ranks) + result;
}

}  // namespace tutti::plan
