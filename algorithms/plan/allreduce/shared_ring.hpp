// The pipelined ring of nodes as a flow of chunks: what a node does with a chunk once it is there,
// whichever of its ranks finds it.  There are no rounds and no fixed partner: only this rule.
//
//   block b of N, in C sub-blocks u (>= M, the ranks of the largest node, where that many chunks
//   can be numbered, see shared_ring_sub_blocks()); a chunk is (stage, b, u).
//   node i    at first      sends reduce_scatter (i, u) to node i + 1
//   on reduce_scatter (b, u)  joins its own contribution; if b = i + 1 the chunk is complete and
//                             goes on as allgather (b, u), else as reduce_scatter (b, u)
//   on allgather (b, u)       sends it on, unless b = i + 2: node i + 1 has completed that one
//
//   N = 3, node 0:  sends RS 0 | RS 2 -> RS 2 | RS 1 -> AG 1 | AG 0 -> AG 0 | AG 2
//
// Messages: 2 (N - 1) C from each node, 2 (N - 1) C / M from each rank on average.  Bytes from a
// node: 2 B less the blocks i + 1 and i + 2, that is 2 (N - 1) / N B.  Every chunk but RS (i, *)
// and AG (i + 1, *) comes to a node once.
//
// Either half is an operation of its own (RingPhases), with C messages to a node for each block but
// one, (N - 1) C from each node:
//
//   reduce_scatter: ends when block i + 1 is complete on node i, from which its ranks take theirs.
//
//   allgather: begins with block i + 1, which is what the ranks of node i contribute.  Nothing is
//   combined.  Blocks then go around as above.
//
// In a half, block i + 1 consists of the blocks of the ranks of node i, so blocks may differ in
// length.  Each is cut into C sub-blocks.
//
// A long payload is cut into laps, each of which goes around like this, see RingLaps.
//
// After C. Simmendinger, R. Iakymchuk and others, "Interoperability strategies for GASPI and MPI in
// large-scale scientific applications", IJHPCA 2018 (pipelined rings of nodes), and M. A. Al Ahad,
// C. Simmendinger, R. Iakymchuk, E. Laure, S. Markidis, "Efficient algorithms for collective
// operations with notified communication in shared windows", PAW-ATM 2018 (shared notifications).
// Steps of both stages are counted from one number: with 0 in one and 1 in the other a block is
// sent that has not come.  The ring itself: P. Patarasuk, X. Yuan, JPDC 69 (2), 2009.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/core/plan.hpp"

namespace tutti::plan {

struct RingChunk {
  enum class Stage : std::uint8_t { reduce_scatter, allgather };
  Stage stage = Stage::reduce_scatter;
  std::uint32_t block = 0;
  std::uint32_t sub_block = 0;
  friend bool operator==(const RingChunk&, const RingChunk&) = default;
};

/// Both halves of the ring, one after the other, are an allreduce.
enum class RingPhases : std::uint8_t { both, reduce_scatter, allgather };

/// The ring as one of its nodes sees it.
struct NodeRing {
  std::uint32_t nodes = 1;
  std::uint32_t node = 0;
  std::uint32_t sub_blocks = 1;
  RingPhases phases = RingPhases::both;

  /// Parts of the payload.
  std::uint32_t parts() const noexcept { return nodes * sub_blocks; }
  std::uint32_t part_of(const RingChunk& chunk) const noexcept {
    return chunk.block * sub_blocks + chunk.sub_block;
  }
  /// How many chunks have a number: all of reduce_scatter, and all of allgather, or those that
  /// complete the block of this node.  With allgather alone, what is complete has the number of
  /// what it was completed from.
  std::uint32_t ids() const noexcept {
    switch (phases) {
      case RingPhases::both:
        return 2 * parts();
      case RingPhases::reduce_scatter:
        return parts() + sub_blocks;
      case RingPhases::allgather:
        break;
    }
    return parts();
  }
  /// Number of a chunk, below ids().
  std::uint32_t id_of(const RingChunk& chunk) const noexcept {
    if (chunk.stage == RingChunk::Stage::reduce_scatter || phases == RingPhases::allgather)
      return part_of(chunk);
    return parts() + (phases == RingPhases::both ? part_of(chunk) : chunk.sub_block);
  }
  /// Copies of everything that a lap needs, for each lap in flight (engine/shared_ring.hpp).
  std::uint32_t copies_each() const noexcept { return phases == RingPhases::both ? 1 : 2; }

  /// The block that this node completes, and that its ranks are to have, or bring.
  std::uint32_t own_block() const noexcept { return (node + 1) % nodes; }
  /// The node that completes a block.
  std::uint32_t node_of(std::uint32_t block) const noexcept { return (block + nodes - 1) % nodes; }
  bool begins_with(const RingChunk& chunk) const noexcept {
    return chunk.stage == RingChunk::Stage::reduce_scatter &&
           chunk.block == (phases == RingPhases::allgather ? own_block() : node);
  }
  bool completes(const RingChunk& chunk) const noexcept {
    return chunk.stage == RingChunk::Stage::reduce_scatter && chunk.block == own_block();
  }
  bool next_completes(const RingChunk& chunk) const noexcept {
    return chunk.stage == RingChunk::Stage::reduce_scatter && chunk.block == (node + 2) % nodes;
  }
  /// Whether chunks have a node to go to.
  bool has_next() const noexcept { return nodes > 1; }
  /// Whether a chunk that lies here, and is complete or not, goes on.
  bool goes_on(const RingChunk& chunk) const noexcept {
    return has_next() && (chunk.stage == RingChunk::Stage::reduce_scatter ||
                          phases != RingPhases::reduce_scatter);
  }
  /// Whether a chunk comes over the network.
  bool comes(const RingChunk& chunk) const noexcept {
    return chunk.stage == RingChunk::Stage::allgather
               ? phases != RingPhases::reduce_scatter && chunk.block != own_block()
               : phases != RingPhases::allgather && chunk.block != node;
  }

  /// Chunks of reduce_scatter that this node joins, which are its first tasks.
  std::uint32_t join_count() const noexcept {
    return phases == RingPhases::allgather ? sub_blocks : parts();
  }
  /// Chunks that this node does something about: what it joins, and what it forwards.
  std::uint32_t task_count() const noexcept {
    return join_count() +
           (nodes > 2 && phases != RingPhases::reduce_scatter ? (nodes - 2) * sub_blocks : 0);
  }
  /// The chunks in the order in which they are expected.  Sub-blocks are in turn, from `first` on:
  /// ranks that begin with different ones do not all go for the same chunk.
  RingChunk task(std::uint32_t index, std::uint32_t first) const noexcept {
    const std::uint32_t step = index / sub_blocks;
    const std::uint32_t u = (index + first) % sub_blocks;
    const std::uint32_t joins = join_count() / sub_blocks;
    if (step >= joins) return {RingChunk::Stage::allgather, behind(step - joins), u};
    return {RingChunk::Stage::reduce_scatter,
            phases == RingPhases::allgather ? own_block() : behind(step), u};
  }
  /// Parts that the ranks of this node get: all, or those of their own block.
  std::uint32_t result_count() const noexcept {
    return phases == RingPhases::reduce_scatter ? sub_blocks : parts();
  }
  /// The parts of the result as they are expected, as chunks of allgather; below result_count().
  RingChunk result(std::uint32_t index) const noexcept {
    const std::uint32_t step = index / sub_blocks;
    return {RingChunk::Stage::allgather, step == 0 ? own_block() : behind(step - 1),
            index % sub_blocks};
  }

 private:
  std::uint32_t behind(std::uint32_t steps) const noexcept {
    return (node + nodes - steps % nodes) % nodes;
  }
};

/// A long payload goes around in laps of N C chunks, one after the other, of which few are in
/// flight: memory is needed for these only (engine/shared_ring.hpp has the rule by which they
/// follow each other).
struct RingLaps {
  std::uint32_t count = 1;      // of a call
  std::uint32_t in_flight = 1;  // at once
};

/// Whether the ring is asked for, or taken because it costs least.  Then half as much is in flight,
/// which costs half as much memory, and no time (FDR, 4 to 16 nodes: 0.3 % at most).
enum class RingAsked : std::uint8_t { by_name, unasked };

struct RingLapLimits {
  std::uint64_t chunk_bytes = 64u << 10;     // of a chunk, if an element is not longer
  std::uint64_t window_bytes = 2u << 20;     // of the laps in flight, if N C elements are not more
  std::uint32_t in_flight_max = UINT32_MAX;  // by what connections promise
};

/// At least so many laps, if a payload has them and connections promise as much, are in flight:
/// while lap e goes around, lap e + 1 keeps the network busy where e has already passed.
inline constexpr std::uint32_t ring_laps_in_flight = 2;

/// The laps of a payload that goes around in `parts` chunks a lap.  They are alike on all ranks.
RingLaps shared_ring_laps(std::uint32_t parts, std::uint64_t element_count,
                          std::uint64_t element_bytes, const RingLapLimits& limits);

/// What the first rank of a node of so many keeps in its arena, as engine::SharedRingLayout lays it
/// out: two copies of the laps in flight and of the blocks that its node completes, lines of words,
/// and its contributions to the laps in flight.  Other ranks keep only their contributions.
std::uint64_t shared_ring_arena_bytes(const RingLaps& laps, std::uint32_t nodes,
                                      std::uint32_t sub_blocks, std::uint32_t members,
                                      std::uint64_t element_count,
                                      std::uint64_t element_bytes) noexcept;
/// What one half of the ring keeps, with so many elements in each node's block.  An allgather
/// keeps no block apart.
std::uint64_t shared_ring_arena_bytes(const RingLaps& laps, const NodeRing& ring,
                                      std::uint32_t members,
                                      std::span<const std::size_t> block_elements,
                                      std::uint64_t element_bytes) noexcept;

/// Elements of the longest lap that consists of a share of each node's block.
std::uint64_t longest_lap(const RingLaps& laps,
                          std::span<const std::size_t> block_elements) noexcept;

/// Elements of the blocks of the nodes, by their numbers in the ring: block i + 1 is that of the
/// ranks of node i.  `of_rank` has those of each rank.
std::vector<std::size_t> blocks_of_ring(std::uint32_t rank_count, std::span<const Node> node_of,
                                        std::span<const std::size_t> of_rank);

/// By how many elements a payload of such blocks is cut into laps and sub-blocks: as if all were as
/// long as the longest, so that no chunk is longer than it may be.
std::size_t ring_elements_to_cut(std::span<const std::size_t> block_elements) noexcept;

/// How many chunks of a lap can have come to a node and wait to be looked at: 2 (N - 1) C.  Any of
/// them may come from one rank of node i - 1.
/// Where F laps are in flight these are F times as many, as no chunk waits together with itself of
/// F laps later.  Node i - 1 sends chunks of reduce_scatter of lap e + F once it has consumed lap
/// e, for which node i had to look at all chunks of reduce_scatter of e; and chunks of allgather
/// once all nodes have joined e + F, for which node i had to look at all chunks of e.
/// With one half of the ring there are (N - 1) C of a lap, and twice as many laps: a node may send
/// those of lap e + F once it has consumed lap e, when the next one has consumed e - F.
constexpr std::uint64_t shared_ring_waiting_max(std::uint32_t nodes,
                                                std::uint32_t sub_blocks) noexcept {
  return 2 * std::uint64_t{nodes - 1} * sub_blocks;
}

/// The most chunks of a lap, because an immediate has 15 bits for the number of a chunk.
inline constexpr std::uint32_t shared_ring_ids_max = 1u << 15;

/// Sub-blocks for ranks on these nodes: one for each rank of the largest, and for a large payload
/// enough that the ring is kept full while chunks are combined.  But no more, if one does it, than
/// can be numbered: with fewer than ranks, these share the work less evenly.
std::uint32_t shared_ring_sub_blocks(std::uint32_t rank_count, std::span<const Node> node_of,
                                     std::uint64_t payload_bytes,
                                     RingPhases phases = RingPhases::both);

/// How a payload is cut by default.  In nodes of several ranks, the port is idle until all of them
/// have contributed to the first block, which therefore is a thirty-second of the payload at most.
/// But there are no more than 8 laps for it, and chunks of less than 8 KiB, which take about as
/// long to copy as a message is on its way, would gain nothing.
RingLapLimits shared_ring_limits(std::uint32_t nodes, std::uint32_t sub_blocks,
                                 std::uint32_t largest_node, std::uint64_t payload_bytes,
                                 RingAsked asked = RingAsked::by_name) noexcept;

/// Whether chunks can be numbered: 2 N C are at most shared_ring_ids_max; with reduce_scatter alone
/// 2 (N + 1) C, of two laps.
bool is_shared_ring(std::uint32_t nodes, std::uint32_t sub_blocks,
                    RingPhases phases = RingPhases::both) noexcept;

/// Whom `self` has to do with, not what is sent: it awaits the ranks of its node in round 0, then
/// the ranks of the node before that send to it, and puts to one of the next node.  The rank of
/// local number j sends to that of j mod M' where the next node has M' ranks.
Plan shared_ring_plan(Rank self, std::uint32_t rank_count, std::span<const Node> node_of,
                      std::uint32_t sub_blocks, RingPhases phases = RingPhases::both);

}  // namespace tutti::plan
