#include "api/block_selection.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "api/allreduce_schedules.hpp"
#include "api/asked_per_round.hpp"
#include "api/assumed_network.hpp"
#include "api/selection.hpp"
#include "api/settings.hpp"
#include "plan/allreduce/canonical_halving.hpp"
#include "plan/allreduce/chunked_fold.hpp"
#include "plan/allreduce/circulant.hpp"
#include "plan/allreduce/lanes.hpp"
#include "plan/blocks/block_dissemination.hpp"
#include "plan/blocks/node_alltoall.hpp"
#include "plan/blocks/node_blocks.hpp"
#include "plan/blocks/piecewise_allgather.hpp"
#include "plan/blocks/tree_blocks.hpp"
#include "plan/core/nodes.hpp"

namespace tutti::api {
namespace {

/// Blocks go directly to so many nodes: there dissemination has as many partners (of 9 nodes with 2
/// messages a round: 1, 2, 3 and 6 ahead and behind), and more hops.  Of more nodes it has fewer.
constexpr std::uint32_t direct_partners_max = 8;

/// Where nodes differ in size, blocks from one rank to another have no windows, and could ask for
/// more receives than a connection has: they go directly.
bool are_of_one_size(std::span<const Node> node_of, std::uint32_t rank_count) {
  return plan::largest_node_of(node_of) * plan::node_count_of(node_of, rank_count) == rank_count;
}

constexpr std::size_t countable_bytes = std::size_t{1} << 48;  // more cannot be, and would run over

std::size_t longest_of(const AllgatherRequest& request) {
  return *std::max_element(request.block_bytes.begin(), request.block_bytes.end());
}

/// Of blocks that are sent whole.
bool is_direct(const AllgatherRequest& request, std::uint32_t node_count) {
  return (request.per_round_by_default.empty() && node_count - 1 <= direct_partners_max) ||
         !are_of_one_size(request.node_of, static_cast<std::uint32_t>(request.block_bytes.size()));
}
plan::PerRound vector_across(const AllgatherRequest& request, std::uint32_t node_count) {
  if (is_direct(request, node_count)) return {node_count - 1};
  return fans_across(request.per_round_by_default,
                     static_cast<std::uint32_t>(request.block_bytes.size()), request.node_of,
                     longest_of(request));
}

/// Bytes that the busiest rank sends to other nodes where blocks are sent whole.  Nodes are of one
/// size, so that blocks stay with the ranks that stand where their owners do.
std::size_t most_sent(const AllgatherRequest& request, std::uint32_t node_count) {
  std::vector<std::size_t> times(node_count);  // that a block so many nodes behind is sent
  for (const plan::Step& step :
       plan::dissemination_allgather(Rank{0}, node_count, vector_across(request, node_count)).steps)
    if (step.action == plan::Action::put && step.payloads > 0)
      ++times[(node_count - step.part) % node_count];
  const auto rank_count = static_cast<std::uint32_t>(request.block_bytes.size());
  const auto nodes = plan::members_of_nodes(rank_count, request.node_of);
  std::size_t most = 0;
  for (std::size_t node = 0; node < node_count; ++node)
    for (std::size_t place = 0; place < nodes[node].size(); ++place) {
      std::size_t bytes = 0;
      for (std::size_t behind = 0; behind < node_count; ++behind) {
        const Rank owner = nodes[(node + node_count - behind) % node_count][place];
        bytes += times[behind] * request.block_bytes[index_of(owner)];
      }
      most = std::max(most, bytes);
    }
  return most;
}

/// What passing on takes, of pieces that need so long for a hop, in proportion to the rest.
struct PassingTimes {
  plan::Picoseconds ring = 0;
  plan::Picoseconds two_trees = 0;
};

/// Along rings: a block has come when the one before it has and the link had time for it, and a hop
/// after it came to the node behind.  A rank carries its share of each node's blocks.  Even where
/// links have no gaps, it takes a few hops more than all blocks do (measured in virtual time, 1
/// MiB, decreasing blocks: 2 to 4 of up to 16 nodes, 7 of 32, 15 of 64).  Down trees: their height
/// more, and something where there are several long blocks (14 % of all but the longest, decreasing
/// blocks of 32 nodes).  By this the slower route is taken by 3 % or more in 19 of 211 cases (4 to
/// 64 nodes, 256 KiB to 8 MiB, in one to four or decreasing blocks), by 12 % at most.
PassingTimes passing_times(const AllgatherRequest& request, std::uint32_t node_count,
                           std::size_t unit, plan::Picoseconds hop) {
  const auto rank_count = static_cast<std::uint32_t>(request.block_bytes.size());
  std::vector<plan::Picoseconds> on_link;  // of each node's blocks
  plan::Picoseconds all = 0;
  for (const auto& members : plan::members_of_nodes(rank_count, request.node_of)) {
    std::size_t bytes = 0;
    for (const Rank rank : members) bytes += request.block_bytes[index_of(rank)];
    on_link.push_back(assumed_network.port_time(bytes / members.size() / unit));
    all += on_link.back();
  }
  std::vector<plan::Picoseconds> come(node_count), next(node_count);  // at each node
  for (std::uint32_t distance = 1; distance < node_count; ++distance) {
    for (std::uint32_t node = 0; node < node_count; ++node)
      next[node] = std::max(come[node] + on_link[(node + node_count - distance) % node_count],
                            come[(node + node_count - 1) % node_count] + hop);
    come.swap(next);
  }
  const plan::Picoseconds longest = *std::max_element(on_link.begin(), on_link.end());
  return {.ring = std::max(all + hop * std::max(std::min(node_count, 4u), node_count / 4),
                           *std::max_element(come.begin(), come.end())),
          .two_trees = all + (all - longest) / 8 + hop * (std::bit_width(node_count) + 1)};
}

/// Of all blocks, about, so that hops of a piece take an eighth of the time at most, where messages
/// are not too many and chunks not too short for that; a block of nothing has one, too.
constexpr std::size_t pieces_aimed_at(std::uint32_t node_count) {
  return std::clamp<std::size_t>(std::size_t{8} * node_count, 128, 256);
}
constexpr std::size_t piece_bytes_min = 4096;
/// Of more ranks the timetable takes long to draw up (256 ranks: two trees 13 ms).
constexpr std::size_t piecewise_ranks_max = 256;

}  // namespace

void cut_into_pieces(AllgatherRequest& request) {
  const auto rank_count = static_cast<std::uint32_t>(request.block_bytes.size());
  const std::uint32_t node_count = plan::node_count_of(request.node_of, rank_count);
  const auto [shortest, longest] =
      std::minmax_element(request.block_bytes.begin(), request.block_bytes.end());
  if (!request.per_round_by_default.empty() || node_count < 3 || rank_count > piecewise_ranks_max ||
      *shortest == *longest || *longest > countable_bytes ||
      !are_of_one_size(request.node_of, rank_count))
    return;
  const std::size_t total =
      std::accumulate(request.block_bytes.begin(), request.block_bytes.end(), std::size_t{0});
  if (total < in_parts_from_bytes) return;
  const std::size_t piece = std::max(total / pieces_aimed_at(node_count), piece_bytes_min);
  std::vector<std::uint16_t> pieces;
  for (const std::size_t bytes : request.block_bytes)
    pieces.push_back(
        static_cast<std::uint16_t>(std::max<std::size_t>((bytes + piece - 1) / piece, 1)));

  const std::size_t parts = std::accumulate(pieces.begin(), pieces.end(), std::size_t{0});
  const std::size_t chunk =
      std::min(piece, within_registers(chunk_bytes_of_pipeline, parts, parts));
  // Proportions are all that counts, and picoseconds could run over.
  const std::size_t unit = std::max<std::size_t>(total >> 30, 1);
  const auto rounds = static_cast<plan::Picoseconds>((piece + chunk - 1) / chunk);
  const plan::Picoseconds hop =
      (assumed_network.travel_time(chunk) + assumed_network.receive_overhead) * rounds /
      static_cast<plan::Picoseconds>(unit);
  const PassingTimes times = passing_times(request, node_count, unit, hop);
  if (assumed_network.port_time(most_sent(request, node_count) / unit) <=
      std::min(times.ring, times.two_trees))
    return;
  request.pieces = std::move(pieces);
  request.route =
      times.two_trees < times.ring ? plan::PieceRoute::two_trees : plan::PieceRoute::ring;
}

plan::Plan allgather_plan(Rank self, const AllgatherRequest& request) {
  if (!request.pieces.empty())
    return plan::piecewise_allgather(self, request.pieces, request.route, request.node_of);
  const auto rank_count = static_cast<std::uint32_t>(request.block_bytes.size());
  const std::uint32_t node_count = plan::node_count_of(request.node_of, rank_count);
  // In a single node nobody is connected; without shared memory everybody is as near.
  if (node_count == 1 || (node_count == rank_count && is_direct(request, node_count)))
    return plan::direct_allgather(self, rank_count, request.transport);
  return plan::dissemination_allgather(
      self, rank_count, vector_across(request, node_count),
      node_count < rank_count ? request.node_of : std::span<const Node>());
}

namespace {

/// Blocks up to here may be copied once more, so that those of a node are one message (a first
/// guess: copying so many takes less than a message of the assumed network).
constexpr std::size_t together_bytes_max = 1024;
/// What that may take of the arena, where blocks of many ranks have a place in each slot.
constexpr std::size_t together_registers_bytes = 1u << 20;

/// The root's node has.
std::uint32_t ranks_at_root(const RootedBlocksRequest& request) {
  if (request.node_of.empty()) return 1;
  return static_cast<std::uint32_t>(std::count(request.node_of.begin(), request.node_of.end(),
                                               request.node_of[index_of(request.root)]));
}

bool go_together(std::uint32_t rank_count, const RootedBlocksRequest& request) {
  const std::size_t nodes = plan::node_count_of(request.node_of, rank_count);
  const std::size_t largest = plan::largest_node_of(request.node_of);
  if (request.block_bytes > together_bytes_max || nodes == 1 ||
      2 * (2 * nodes + largest) * largest * request.block_bytes > together_registers_bytes)
    return false;
  const auto saved =
      static_cast<plan::Picoseconds>(rank_count - nodes + 1) - ranks_at_root(request);
  return saved * assumed_network.gap > hop_in_memory;  // messages at the root, for a hop more
}

/// How blocks get from all ranks to the root, or the other way.
enum class Way : std::uint8_t { direct, by_node, along_tree };

Way way_of(std::uint32_t rank_count, const RootedBlocksRequest& request) {
  if (request.transport != plan::Transport::copied || index_of(request.root) >= rank_count)
    return Way::direct;
  const bool together = go_together(rank_count, request);
  const std::uint32_t partners =
      together ? plan::node_count_of(request.node_of, rank_count) - 1
               : rank_count - ranks_at_root(request);  // of the root, in other nodes
  if (partners > partners_unasked_max && rank_count <= passed_on_ranks_max) return Way::along_tree;
  return together ? Way::by_node : Way::direct;
}

/// Of an alltoall, where the ranks of a node send at the same time, by its port: what that takes
/// less is more than the two stages in memory, in each of which a rank copies all that it carries.
/// Each counts as two hops, as it waits for the last of a node (measured with the software device,
/// 2 CPUs, 8 bytes, medians of 7 runs: 8 ranks on nodes of 2, 9 messages saved, 1.2 of direct; 12
/// on nodes of 3, 24, 0.87; 16 on nodes of 8, 63, 0.83; on emulated FDR 1.1, 0.76 and 0.55).
bool go_together(std::uint32_t rank_count, const AlltoallRequest& request) {
  if (request.transport != plan::Transport::copied || request.block_bytes > together_bytes_max ||
      !plan::is_node_alltoall(request.node_of))
    return false;
  const std::uint64_t block_bytes = std::max<std::size_t>(request.block_bytes, 1);
  constexpr std::uint64_t registers = 4;  // slots and partials, for two calls
  if (plan::node_alltoall_payloads(request.node_of) >
      together_registers_bytes / (registers * block_bytes))
    return false;
  const std::uint64_t others = plan::node_count_of(request.node_of, rank_count) - 1;
  const std::uint64_t largest = plan::largest_node_of(request.node_of);
  const auto saved = static_cast<plan::Picoseconds>(largest * (rank_count - largest) - others);
  const std::uint64_t carried = (others + largest - 1) / largest * largest * largest;
  return saved * assumed_network.gap >
         2 * (2 * hop_in_memory + assumed_network.work_per_byte.of(carried * block_bytes));
}

}  // namespace

plan::Plan gather_plan(Rank self, std::uint32_t rank_count, const RootedBlocksRequest& request) {
  switch (way_of(rank_count, request)) {
    case Way::by_node:
      return plan::node_gather(self, request.node_of, request.root);
    case Way::along_tree:
      return plan::tree_gather(self, rank_count, request.node_of, request.root);
    case Way::direct:
      break;
  }
  return plan::direct_gather(self, rank_count, request.root, request.transport);
}

plan::Plan scatter_plan(Rank self, std::uint32_t rank_count, const RootedBlocksRequest& request) {
  switch (way_of(rank_count, request)) {
    case Way::by_node:
      return plan::node_scatter(self, request.node_of, request.root);
    case Way::along_tree:
      return plan::tree_scatter(self, rank_count, request.node_of, request.root);
    case Way::direct:
      break;
  }
  return plan::direct_scatter(self, rank_count, request.root, request.transport);
}

bool is_reduce_scatter(std::uint32_t rank_count) noexcept {
  return plan::is_chunked_fold(rank_count);
}

namespace {

/// Whether the bits may be those of any order.
bool takes_partial_sums(const ReduceScatterRequest& request) {
  return request.reduction.properties.commutative &&
         (request.agreement != Agreement::reproducible || !order_shows_in_bits(request.reduction));
}

}  // namespace

plan::Plan reduce_scatter_plan(Rank self, std::uint32_t rank_count,
                               const ReduceScatterRequest& request) {
  const std::uint32_t nodes = plan::node_count_of(request.node_of, rank_count);
  const plan::CirculantShape shape{
      .rank_count = rank_count,
      .node_of = nodes < rank_count ? request.node_of : std::span<const Node>(),
      .skips = nodes - 1 <= direct_partners_max ? plan::Skips::ones : plan::Skips::few};
  const auto smallest = static_cast<std::uint32_t>(plan::lanes_max(rank_count, request.node_of));
  const auto largest = static_cast<std::uint32_t>(plan::largest_node_of(request.node_of));
  const bool would_connect_many = rank_count - smallest > partners_unasked_max;
  const auto sends_partial_sums = [&] {
    if (nodes == 1 || !takes_partial_sums(request) || !plan::is_circulant_reduce_scatter(shape))
      return false;
    if (nodes == rank_count) return would_connect_many;
    const std::uint64_t block = priced_bytes(request.bytes / rank_count);
    const std::uint32_t sums = (largest + smallest - 1) / smallest * (nodes - 1);  // at most
    if (smallest < largest && sums > partners_unasked_max) return false;  // they would go directly
    return hop_in_memory + round_cost(sums, 1, block) < round_cost(rank_count - smallest, 1, block);
  };
  if (sends_partial_sums()) return plan::circulant_reduce_scatter(self, shape);
  return would_connect_many && plan::is_canonical_halving(rank_count)
             ? plan::canonical_halving_reduce_scatter(self, rank_count)
             : plan::chunked_fold_reduce_scatter(self, rank_count);
}

plan::Plan alltoall_plan(Rank self, std::uint32_t rank_count, const AlltoallRequest& request) {
  return go_together(rank_count, request)
             ? plan::node_alltoall(self, request.node_of)
             : plan::direct_alltoall(self, rank_count, request.transport);
}

}  // namespace tutti::api
