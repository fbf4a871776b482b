// What a payload takes along the shared ring (plan/allreduce/shared_ring.hpp), which has no plan
// whose events could be followed.
//
// With N nodes of M ranks, C sub-blocks, and L laps of N C chunks of c bytes, of which F are in
// flight, two things work at the same time, and the longer one counts:
//
//   the network   One lap has N - 1 hops there and N - 1 back.  A hop takes the longest of C
//                 chunks through a port; the way of one chunk; and, there, combining it or a block.
//                 Several laps take their bytes through a port, or L / F times the hops of one.
//   the ranks     where ranks share nodes: each stores its contribution and copies all results, and
//                 combines M contributions to each M-th chunk
//
// Before it, the first contribution is stored and combined; after it, the last result is copied.
// A rank that copies does not see what comes, so half a copy is added to each hop.  Where network
// and ranks take about as long, up to 0.15 of the shorter time is added, as measured.  In a node of
// several ranks, the rank that is notified of a chunk tells the others by a word in memory; this is
// added to each hop, too, although devices that write the word themselves do without it.
//
// Measured in virtual time (FDR, combining at 8 GB/s, 64 KiB to 4 MiB): price over time of the
// ring is 0.96 to 1.00 on 3 to 32 nodes of one rank, 0.9 to 1.1 on 3 to 16 nodes of 2 to 8, and
// 0.8 to 0.9 on nodes of 32.
//
// One half of the ring has N - 1 hops.  Where blocks differ, a node sends all but the shortest, and
// the longest goes all the way in each window of laps, with nothing beside it.  Measured likewise,
// by name, 64 KiB to 8 MiB: 0.97 to 1.00 on 2 to 32 nodes of one rank, 0.94 to 1.09 if one of them
// has all bytes, and 0.86 to 1.1 on 3 to 8 nodes of 2 to 32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "plan/allreduce/shared_ring.hpp"
#include "plan/cost/network.hpp"

namespace tutti::plan {

struct RingShape {
  std::uint32_t nodes = 1;
  std::uint32_t members = 1;  // ranks of a node; of the largest, if they differ
  std::uint32_t sub_blocks = 1;
};

Picoseconds shared_ring_time(const RingShape& shape, const RingLaps& laps,
                             std::uint64_t payload_bytes, const Network& network);

/// What one half of the ring takes, with blocks of so many bytes, by their numbers in the ring,
/// and so many ranks in the largest node.
Picoseconds shared_ring_time(const NodeRing& ring, std::uint32_t members, const RingLaps& laps,
                             std::span<const std::size_t> block_bytes, const Network& network);

}  // namespace tutti::plan
