// Which plan collectives of blocks take, by what the blocks weigh: pure, as selection.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <tutti/reduction.hpp>
#include <tutti/types.hpp>
#include <vector>

#include "plan/blocks/blocks.hpp"
#include "plan/blocks/piece_timetable.hpp"
#include "plan/core/per_round.hpp"
#include "plan/core/plan.hpp"

namespace tutti::api {

/// Also of allgatherv.
struct AllgatherRequest {
  std::vector<std::size_t> block_bytes = {};  // of each rank
  std::vector<std::uint16_t> pieces = {};     // of each; empty: blocks are sent whole
  plan::PieceRoute route = plan::PieceRoute::ring;
  plan::PerRound per_round_by_default = {};
  std::span<const Node> node_of = {};
  plan::Transport transport = plan::Transport::copied;  // of ranks that share one node
};

/// Sets `pieces`, into how many parts of a plan each rank's block is cut, and their `route`, by the
/// rest and alike on all ranks, where some blocks are so much longer than others that it takes less
/// time to pass on pieces from node to node; elsewhere leaves them.
void cut_into_pieces(AllgatherRequest& request);

/// `self`'s plan.  Throws Error{invalid_argument} for a vector that does not cover the nodes, with
/// the nearest that does.
plan::Plan allgather_plan(Rank self, const AllgatherRequest& request);

/// Also of gatherv, scatter and scatterv.
struct RootedBlocksRequest {
  Rank root{0};
  std::size_t block_bytes = 0;  // of the longest
  std::span<const Node> node_of = {};
  plan::Transport transport = plan::Transport::copied;
};

plan::Plan gather_plan(Rank self, std::uint32_t rank_count, const RootedBlocksRequest& request);
plan::Plan scatter_plan(Rank self, std::uint32_t rank_count, const RootedBlocksRequest& request);

/// Of blocks of one length.
struct AlltoallRequest {
  std::size_t block_bytes = 0;
  std::span<const Node> node_of = {};
  plan::Transport transport = plan::Transport::copied;
};

plan::Plan alltoall_plan(Rank self, std::uint32_t rank_count, const AlltoallRequest& request);

struct ReduceScatterRequest {
  std::size_t bytes = 0;  // of all blocks together
  Reduction reduction = {};
  Agreement agreement = Agreement::identical;
  std::span<const Node> node_of = {};
};

/// Whether there are slots for so many ranks, whatever is asked.
bool is_reduce_scatter(std::uint32_t rank_count) noexcept;

plan::Plan reduce_scatter_plan(Rank self, std::uint32_t rank_count,
                               const ReduceScatterRequest& request);

}  // namespace tutti::api
