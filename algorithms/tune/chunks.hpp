// Into which chunks a payload is cut on its way through a plan; pure, and alike on all ranks.
#pragma once

#include <cstddef>

#include "plan/core/plan.hpp"

namespace tutti::tune {

/// The default sizes of chunks: of those that the ranks of a node pass to each other, and of those
/// between nodes of one rank.  A chunk is written to a partial, sent, combined and copied out while
/// it is in the second cache; smaller ones have more rounds to wait for (measured,
/// engine/README.md).
inline constexpr std::size_t chunk_bytes_in_node = 64u << 10;
inline constexpr std::size_t chunk_bytes_across = 128u << 10;
/// A chunk of the blocks that the ranks of a single node send each other directly; smaller if a
/// rank's partials would take more than node_blocks_partials_bytes, or more than the divisor's
/// share of the arena.  With long chunks ranks wait for each other less often.  Where only one side
/// sends, the other copies a chunk meanwhile, so they are shorter (measured, docs/performance.md).
inline constexpr std::size_t chunk_bytes_of_exchanges = 512u << 10;
inline constexpr std::size_t chunk_bytes_of_node_blocks = 256u << 10;
inline constexpr std::size_t node_blocks_partials_bytes = 1u << 20;
inline constexpr std::size_t node_arena_divisor = 16;
/// The longest chunk of a long broadcast from its root directly to the other ranks of a single
/// node, and how many chunks it has if these are shorter: all ranks wait for the first chunk, so it
/// has to be short beside the rest (measured, docs/performance.md).
inline constexpr std::size_t chunk_bytes_of_node_broadcast = 512u << 10;
inline constexpr std::size_t node_broadcast_chunks = 4;
/// The longest part of a reduce without copies of sources: the root soon has one to copy, and there
/// is little to tell.
inline constexpr std::size_t chunk_bytes_of_reduce = 64u << 10;
/// Where most of it stays in the users' buffers.
inline constexpr std::size_t chunk_bytes_zero_copy = 1u << 20;
/// A part of a plan without any register is sent whole, and no longer than the shortest message
/// limit of a device that is known (soft-RoCE); larger payloads go by other plans.
inline constexpr std::size_t zero_copy_part_bytes_max = 8u << 20;
/// Chunk of a pipeline: its transfer takes about as long as one message's latency.
inline constexpr std::size_t chunk_bytes_of_pipeline = 8u << 10;

/// Where plans have many slots, chunks are so small that the registers need about this much of the
/// arena.
inline constexpr std::size_t plan_registers_bytes = 8u << 20;

/// What a part has at least, where messages carry several parts: a line.
inline constexpr std::size_t part_bytes_min = 64;

/// A payload that is read in place takes no room; it is cut so that time limits are looked at
/// between its chunks.
inline constexpr std::size_t by_reference_bytes = 16u << 20;

/// How many chunks a payload has in a plan that cuts it into `part_count` parts.  No chunk has more
/// than `chunk_bytes` of a part, unless one element is longer, and each has an element of every
/// part.
std::size_t chunk_count(std::size_t element_count, std::size_t element_bytes,
                        std::size_t part_count, std::size_t chunk_bytes) noexcept;

/// Into how many pieces a zero-copy broadcast over so many nodes cuts its payload: so many that the
/// hops between nodes take a sixteenth of the time or less, unless pieces would be short or very
/// many.
std::uint16_t zero_copy_pieces(std::size_t bytes, std::uint32_t node_count) noexcept;
inline constexpr std::size_t zero_copy_pieces_max = 128;

/// Into how many pieces a zero-copy allgather cuts each block: a few, so that the ranks of a node
/// read while the network works.
std::uint16_t zero_copy_pieces_of_block(std::size_t bytes, std::uint32_t rank_count) noexcept;
/// Into how many at most.
std::size_t zero_copy_pieces_of_block_max(std::uint32_t rank_count) noexcept;

/// Into how many pieces a zero-copy allreduce over ranks that share nodes cuts each of its
/// `part_count` parts: they stay in the second cache while one contribution after the other is
/// combined, and the network and the memory of nodes work at the same time.
std::uint16_t zero_copy_pieces_of_lane(std::size_t part_bytes, std::uint32_t node_count,
                                       std::size_t part_count) noexcept;

/// `chunk_bytes`, or less where a plan of so many slots, parts, and payloads in each would take
/// more of the arena than it should.
std::size_t within_registers(std::size_t chunk_bytes, std::size_t slots, std::size_t parts,
                             std::size_t payloads = 1) noexcept;

/// What goes through a plan at a time, of each of its parts.  `shares_nodes`: whether any two ranks
/// are on one node.  `asked`: what the context's options say, if they do; for plans that have
/// many registers, the arena may allow less.
std::size_t chunk_bytes_for(const plan::Plan& plan, bool shares_nodes,
                            std::size_t asked = 0) noexcept;

/// Whether the plan sends each block directly to whom it is for, through partials.
bool sends_blocks_directly(const plan::Plan& plan) noexcept;

/// The number of pieces into which a broadcast cuts each chunk if it goes directly from its root to
/// the other ranks of a single node: they copy one piece while the root writes the next.
std::uint16_t node_broadcast_pieces(std::size_t bytes) noexcept;

/// Whether the root of this broadcast sends the payload directly to all other ranks, and the
/// payload is copied: it does not stay in the users' buffers.
bool is_flat_broadcast(const plan::Plan& plan) noexcept;

/// As chunk_bytes_for(), where all ranks are on one node.  `arena_bytes`: the smallest of their
/// arenas.  `broadcast_bytes`: the payload if the plan is of a broadcast, else 0.
std::size_t chunk_bytes_in_one_node(const plan::Plan& plan, std::size_t asked,
                                    std::size_t arena_bytes,
                                    std::size_t broadcast_bytes = 0) noexcept;

}  // namespace tutti::tune
