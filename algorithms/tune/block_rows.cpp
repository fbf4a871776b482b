// Rows of the collectives that move blocks, one for each rank; reduce_scatter combines them.
#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "plan/allreduce/canonical_halving.hpp"
#include "plan/allreduce/chunked_fold.hpp"
#include "plan/allreduce/circulant.hpp"
#include "plan/blocks/block_dissemination.hpp"
#include "plan/blocks/blocks.hpp"
#include "plan/blocks/bruck_alltoall.hpp"
#include "plan/blocks/node_alltoall.hpp"
#include "plan/blocks/node_blocks.hpp"
#include "plan/blocks/piecewise_allgather.hpp"
#include "plan/blocks/tree_blocks.hpp"
#include "plan/blocks/zero_copy_allgather.hpp"
#include "plan/core/nodes.hpp"
#include "tune/asked_per_round.hpp"
#include "tune/blocks_time.hpp"
#include "tune/chunks.hpp"
#include "tune/rows.hpp"
#include "tune/shared_ring_rows.hpp"
#include "tune/vectors.hpp"

namespace tutti::tune {
namespace {

using plan::Picoseconds;

plan::Transport transport_of(const Query& query) {
  return query.request.reads_in_place ? plan::Transport::by_reference : plan::Transport::copied;
}

/// Blocks up to here may be copied once more, so that those of a node are one message: longer ones
/// would not stay in the first cache between their copies.
constexpr std::size_t together_bytes_max = 1024;
/// What that may take of the arena, where blocks of many ranks have a place in each slot.
constexpr std::size_t together_registers_bytes = 1u << 20;

// allgather, allgatherv

constexpr const char* blocks_stay = "blocks stay in their users' buffers";

constexpr const char* one_target_a_node =
    "it copies blocks to each rank, and the ranks of a node have one target";

/// Up to this many other nodes, blocks go directly to all of them: dissemination would have as many
/// partners (among 9 nodes with 2 messages a round: 1, 2, 3 and 6 ahead and behind) and more hops.
/// Where there are more, it has fewer partners.
constexpr std::uint32_t direct_partners_max = 8;

constexpr std::size_t countable_bytes = std::size_t{1} << 48;  // more cannot be, and would overflow

std::vector<std::size_t> blocks_of(const Query& query) {
  return query.request.block_bytes.empty()
             ? std::vector<std::size_t>(query.topology.rank_count, query.request.bytes())
             : query.request.block_bytes;
}

/// Whether blocks that are sent whole go to all other nodes at once.  Where nodes differ in size,
/// blocks from one rank to another have no windows, and could ask for more receives than a
/// connection has: they go directly.
bool is_direct(const Query& query) {
  return (query.request.per_round_by_default.empty() &&
          query.topology.node_count() - 1 <= direct_partners_max) ||
         !query.topology.has_equal_nodes();
}

/// What a node of so many ranks has of its port where each sends single blocks.  Stores are counted
/// in full, although a rank does some of them while the port sends for others: so the first message
/// of a round does not wait for those of the others here.
plan::LogGP share_of_blocks(const Query& query) {
  plan::LogGP share = query.network.between;
  const std::uint32_t ranks = query.topology.largest_node();
  share.gap *= ranks;
  share.per_byte.time *= ranks;
  return share;
}

/// Blocks that were collected by then go one by one.
Picoseconds price_of_blocks(const plan::LogGP& share, const plan::Round& round,
                            std::uint64_t bytes) {
  return round_cost(share, round.length * round.messages - round.short_messages, 1, bytes, false);
}

/// The most partners of a rank, however few rounds that leaves: a few times the logarithm of the
/// nodes.  Ranks that share nodes have fewer partners each: their port sends for all of them, so
/// that fewer rounds hardly pay.
std::uint32_t partners_of_blocks(const Query& query) {
  const std::uint32_t times = query.topology.has_shared_nodes() ? 3 : 4;
  return times * static_cast<std::uint32_t>(std::bit_width(query.topology.node_count() - 1));
}

/// The limit for rounds that are chosen by price.
std::uint32_t partners_unasked(const Query& query) {
  return std::min({query.request.partners_max, partners_unasked_max, partners_of_blocks(query)});
}
/// Whether these rounds are possible, and connect a rank with no more than partners_unasked().
bool has_few_partners(const Query& query, const plan::PerRound& vector) {
  const std::uint32_t node_count = query.topology.node_count();
  if (!plan::is_executable(node_count, vector)) return false;
  std::uint32_t messages = 0;
  for (const plan::Round& round : plan::two_partial_rounds(node_count, vector))
    messages += round.messages;
  return messages <= messages_max_of(node_count, partners_unasked(query));
}

plan::PerRound vector_across(const Query& query) {
  const std::uint32_t node_count = query.topology.node_count();
  if (node_count == 1) return {};
  if (const auto vector = vector_in(query.request.only)) return *vector;
  if (is_direct(query)) return {node_count - 1};
  if (!query.request.per_round_by_default.empty())
    return covering(query.request.per_round_by_default, node_count);
  const std::vector<std::size_t> blocks = blocks_of(query);
  const plan::LogGP share = share_of_blocks(query);
  const std::uint64_t bytes = priced_bytes(*std::max_element(blocks.begin(), blocks.end()));
  return cheapest_vector(node_count, partners_unasked(query), [&](const plan::Round& round) {
    return price_of_blocks(share, round, bytes);
  });
}
/// Rounds overlap with each other and with stores, which the price of a round does not know: so
/// vectors of few messages a round are variants, too, and come first: of equal prices, they have
/// fewer partners.
std::vector<Variant> vectors_across(const Query& query) {
  const std::uint32_t node_count = query.topology.node_count();
  std::vector<Variant> variants;
  const auto add = [&](plan::PerRound vector) {
    const bool is_there =
        std::any_of(variants.begin(), variants.end(),
                    [&](const Variant& variant) { return variant.per_round == vector; });
    if (!is_there && plan::is_executable(node_count, vector))
      variants.push_back({.per_round = std::move(vector)});
  };
  const bool is_free = query.request.only.empty() && query.request.per_round_by_default.empty() &&
                       query.request.block_bytes.empty() && query.topology.has_equal_nodes();
  if (is_free && node_count > 1 && !query.topology.shares_cpus) {
    if (query.topology.has_shared_nodes())
      for (const std::uint32_t n : {2u, 1u}) add(plan::uniform(node_count, n));
    // More messages a round are variants where events price them, within the limit of partners.
    const bool is_priced = has_blocks_time(
        {.node_count = node_count, .ranks_per_node = query.topology.largest_node()});
    const auto add_priced = [&](plan::PerRound vector) {
      if (is_priced && has_few_partners(query, vector)) add(std::move(vector));
    };
    for (std::uint32_t n = 2; !is_direct(query) && n <= 7; ++n)
      add_priced(plan::uniform(node_count, n));
    // Where ranks share a port, vectors whose last round is one message are variants, too.  That
    // message carries half of the blocks; while it is on its way, ranks store earlier blocks for
    // each other.
    for (std::uint32_t n = 2; query.topology.has_shared_nodes() && n <= 5; ++n) {
      plan::PerRound vector = plan::uniform((node_count + 1) / 2, n);
      vector.push_back(1);
      add_priced(std::move(vector));
    }
  }
  plan::PerRound vector = vector_across(query);
  // Rounds that a user names may need any number of connections, those that a race proposes may
  // not.
  const bool is_proposed = query.request.for_race && vector_in(query.request.only).has_value();
  if (!is_proposed || is_direct(query) || has_few_partners(query, vector)) add(std::move(vector));
  return variants;
}

/// In a single node nobody is connected; without shared memory everybody is as near.
bool goes_directly(const Query& query) {
  if (query.request.shares_target) return false;
  return query.topology.is_one_node() || (!query.topology.has_shared_nodes() && is_direct(query));
}

/// Bytes that the busiest rank sends to other nodes where blocks are sent whole.  Nodes are of one
/// size, so that blocks stay with the ranks that stand where their owners do.
std::size_t most_sent(const Query& query) {
  const std::uint32_t node_count = query.topology.node_count();
  const std::vector<std::size_t> blocks = blocks_of(query);
  std::vector<std::size_t> times(node_count);  // that a block so many nodes behind is sent
  for (const plan::Step& step :
       plan::dissemination_allgather(Rank{0}, node_count, vector_across(query)).steps)
    if (step.action == plan::Action::put && step.payloads > 0)
      ++times[(node_count - step.part) % node_count];
  const auto nodes = plan::members_of_nodes(query.topology.rank_count, query.topology.node_of);
  std::size_t most = 0;
  for (std::size_t node = 0; node < node_count; ++node)
    for (std::size_t place = 0; place < nodes[node].size(); ++place) {
      std::size_t bytes = 0;
      for (std::size_t behind = 0; behind < node_count; ++behind) {
        const Rank owner = nodes[(node + node_count - behind) % node_count][place];
        bytes += times[behind] * blocks[index_of(owner)];
      }
      most = std::max(most, bytes);
    }
  return most;
}

/// About how many pieces all blocks together are cut into.  There are so many that the hops of one
/// piece take at most an eighth of the time, unless that would take too many messages or too short
/// chunks.  An empty block is one piece, too.
constexpr std::size_t pieces_aimed_at(std::uint32_t node_count) {
  return std::clamp<std::size_t>(std::size_t{8} * node_count, 128, 256);
}
constexpr std::size_t piece_bytes_min = 4096;
/// Among more ranks the timetable takes long to draw up (256 ranks: two trees 13 ms).
constexpr std::size_t piecewise_ranks_max = 256;

/// How blocks are cut, and what that is in times that are compared with each other.
struct Pieces {
  std::size_t bytes = 0;  // of a piece
  std::size_t unit = 1;   // Proportions are all that counts, and picoseconds could overflow.
  std::vector<std::uint16_t> of_rank = {};
};

std::size_t total_of(const std::vector<std::size_t>& blocks) {
  return std::accumulate(blocks.begin(), blocks.end(), std::size_t{0});
}

Pieces pieces_of(const Query& query) {
  const std::vector<std::size_t> blocks = blocks_of(query);
  const std::size_t total = total_of(blocks);
  Pieces pieces{
      .bytes = std::max(total / pieces_aimed_at(query.topology.node_count()), piece_bytes_min),
      .unit = std::max<std::size_t>(total >> 30, 1)};
  for (const std::size_t bytes : blocks)
    pieces.of_rank.push_back(static_cast<std::uint16_t>(
        std::max<std::size_t>((bytes + pieces.bytes - 1) / pieces.bytes, 1)));
  return pieces;
}

std::string why_not_in_pieces(const Query& query) {
  const CollectiveRequest& request = query.request;
  if (request.zero_copy) return blocks_stay;
  if (request.shares_target) return one_target_a_node;
  if (request.block_bytes.empty()) return "blocks are of one length";
  const auto [shortest, longest] =
      std::minmax_element(request.block_bytes.begin(), request.block_bytes.end());
  if (*shortest == *longest) return "blocks are of one length";
  if (!request.per_round_by_default.empty()) return "messages per round are asked for";
  if (query.topology.node_count() < 3) return "there are fewer than three nodes";
  if (query.topology.rank_count > piecewise_ranks_max) return "its timetable takes long to draw up";
  if (*longest > countable_bytes) return "the blocks are too long to be counted";
  if (!query.topology.has_equal_nodes()) return "nodes differ in size";
  return total_of(request.block_bytes) < in_parts_from_bytes ? "the blocks are small" : "";
}

/// What a hop of a piece takes.
Picoseconds hop_of_piece(const plan::LogGP& network, const Pieces& pieces) {
  const std::size_t parts =
      std::accumulate(pieces.of_rank.begin(), pieces.of_rank.end(), std::size_t{0});
  const std::size_t chunk =
      std::min(pieces.bytes, within_registers(chunk_bytes_of_pipeline, parts, parts));
  const auto rounds = static_cast<Picoseconds>((pieces.bytes + chunk - 1) / chunk);
  return (network.travel_time(chunk) + network.receive_overhead) * rounds /
         static_cast<Picoseconds>(pieces.unit);
}

/// What the link of a rank needs for its share of each node's blocks.
std::vector<Picoseconds> link_times(const Query& query, std::size_t unit) {
  std::vector<Picoseconds> times;
  const std::vector<std::size_t> blocks = blocks_of(query);
  for (const auto& members :
       plan::members_of_nodes(query.topology.rank_count, query.topology.node_of)) {
    std::size_t bytes = 0;
    for (const Rank rank : members) bytes += blocks[index_of(rank)];
    times.push_back(query.network.between.port_time(bytes / members.size() / unit));
  }
  return times;
}

// The prices of both routes of pieces, and of whole blocks beside them, are in proportion to each
// other.  By these the slower route is taken by 3 % or more in 19 of 211 cases (4 to 64 nodes, 256
// KiB to 8 MiB, in one to four or decreasing blocks), by 12 % at most.

/// A block has arrived at a node when the block before it has arrived, the link has had time for
/// it, and a hop has passed since it arrived at the node behind.  Even where links have no gaps, it
/// takes a few hops more than all blocks do (measured in virtual time, 1 MiB, decreasing blocks: 2
/// to 4 of up to 16 nodes, 7 of 32, 15 of 64).
Picoseconds cost_of_ring(const Query& query, const Variant&) {
  const Pieces pieces = pieces_of(query);
  const Picoseconds hop = hop_of_piece(query.network.between, pieces);
  const std::vector<Picoseconds> on_link = link_times(query, pieces.unit);
  const auto node_count = static_cast<std::uint32_t>(on_link.size());
  std::vector<Picoseconds> come(node_count), next(node_count);  // at each node
  for (std::uint32_t distance = 1; distance < node_count; ++distance) {
    for (std::uint32_t node = 0; node < node_count; ++node)
      next[node] = std::max(come[node] + on_link[(node + node_count - distance) % node_count],
                            come[(node + node_count - 1) % node_count] + hop);
    come.swap(next);
  }
  const Picoseconds all = std::accumulate(on_link.begin(), on_link.end(), Picoseconds{0});
  return std::max(all + hop * std::max(std::min(node_count, 4u), node_count / 4),
                  *std::max_element(come.begin(), come.end()));
}

/// The time of all blocks, and that of as many hops as the trees are high; and, where there are
/// several long blocks, something more (14 % of all blocks but the longest, for decreasing blocks
/// of 32 nodes).
Picoseconds cost_of_two_trees(const Query& query, const Variant&) {
  const Pieces pieces = pieces_of(query);
  const std::vector<Picoseconds> on_link = link_times(query, pieces.unit);
  const Picoseconds all = std::accumulate(on_link.begin(), on_link.end(), Picoseconds{0});
  const Picoseconds longest = *std::max_element(on_link.begin(), on_link.end());
  return all + (all - longest) / 8 +
         hop_of_piece(query.network.between, pieces) *
             (std::bit_width(query.topology.node_count()) + 1);
}

/// Until the last rank of a node has all blocks, where each goes by itself.  All ranks do alike:
/// what one of them sends at a time leaves after what the others of its node send then.  A rank's
/// own block goes out for two rounds before any other one has come.
class BlocksTime {
 public:
  BlocksTime(const plan::Network& network, std::uint32_t ranks, std::uint64_t bytes)
      : ranks_(ranks),
        others_(ranks - 1),
        port_(network.between.port_time(bytes)),
        rank_gap_(network.between.rank_gap),
        travel_(network.between.travel_time(bytes)),
        taken_(network.between.receive_overhead),
        stores_(others_ * network.inside.store_time(bytes)),
        latency_(others_ > 0 ? network.inside.latency : 0),
        taken_here_(others_ * network.inside.receive_overhead) {}

  Picoseconds of(std::uint32_t node_count, const plan::PerRound& per_round) && {
    const std::vector<plan::Round> rounds = plan::two_partial_rounds(node_count, per_round);
    std::vector<std::uint32_t> ages = {0};  // how far the nodes of blocks are behind, as these come
    for (std::size_t at = 0; at < rounds.size(); ++at) {
      const std::uint32_t length = rounds[at].length;
      const std::uint32_t grown = at + 1 < rounds.size() ? rounds[at + 1].length : node_count;
      for (std::uint32_t i = 0; i < length; ++i) {
        if (at == 1 && i == 1) take_from_others();
        const std::uint32_t count = (grown - 1 - ages[i]) / length;
        for (std::uint32_t ahead = 1; ahead <= count; ++ahead)
          ages.push_back(ages[i] + ahead * length);
        pass_on(i, count);
      }
    }
    if (rounds.empty()) pass_on(0, 0);
    if (rounds.size() < 2) take_from_others();
    while (passed_on_ < node_count) pass_on(passed_on_, 0);
    if (node_count == 1) return clock_;
    // Blocks that came to other ranks of the node, of one node after the other.
    return std::max(clock_ + (node_count - Picoseconds{2}) * taken_here_, clock_ + latency_) +
           taken_here_;
  }

 private:
  void pass_on(std::uint32_t i, std::uint32_t count) {
    const bool is_new = i == passed_on_;
    if (is_new && i > 0) clock_ = std::max(clock_, come_[i]) + taken_;
    if (count > 0) send(count);
    if (!is_new) return;
    clock_ += stores_;
    ++passed_on_;
  }
  void send(std::uint32_t count) {
    const Picoseconds begin = std::max(clock_, port_free_);
    port_free_ = begin + std::max(ranks_ * Picoseconds{count} * port_,
                                  (count - Picoseconds{1}) * rank_gap_ + ranks_ * port_);
    for (Picoseconds left = count; left > 0; --left)
      come_.push_back(std::max(port_free_ - left * port_,
                               begin + (count - left) * rank_gap_ + (ranks_ - 1) * port_) +
                      travel_);
    clock_ += count * rank_gap_;
  }
  void take_from_others() { clock_ = std::max(clock_, stores_ + latency_) + taken_here_; }

  Picoseconds ranks_, others_, port_, rank_gap_, travel_, taken_, stores_, latency_, taken_here_;
  Picoseconds clock_ = 0, port_free_ = 0;
  std::vector<Picoseconds> come_ = {0};  // blocks, in their order
  std::uint32_t passed_on_ = 0;          // of these, to the others of the node
};

Picoseconds cost_of_whole_blocks(const Query& query, const Variant& variant) {
  if (why_not_in_pieces(query).empty())
    return query.network.between.port_time(most_sent(query) / pieces_of(query).unit);
  const Topology& topology = query.topology;
  const BlocksShape shape{.node_count = topology.node_count(),
                          .ranks_per_node = topology.largest_node(),
                          .bytes = priced_bytes(query.request.bytes())};
  // No ranks share a node, or all ranks do: each sends its blocks to all others.
  if (variant.per_round.empty()) {
    const std::uint32_t others = std::max(topology.rank_count, 2u) - 1;
    return topology.is_one_node()
               ? round_cost_in_node(query.network, others, 1, shape.bytes, false)
               : round_cost(query.network.between, others, 1, shape.bytes, false);
  }
  if (topology.has_equal_nodes() && has_blocks_time(shape))
    return blocks_time(shape, variant.per_round, query.network);
  return BlocksTime(query.network, shape.ranks_per_node, shape.bytes)
      .of(shape.node_count, variant.per_round);
}

/// Blocks of a node go together, once, and all of them to each of its ranks.
Picoseconds cost_by_leaders(const Query& query, const Variant&) {
  const Topology& topology = query.topology;
  const std::uint64_t bytes = priced_bytes(query.request.bytes());
  const plan::NodeMemory& memory = query.network.inside;
  const auto others = static_cast<Picoseconds>(topology.largest_node() - 1);
  const Picoseconds in =
      memory.store_time(bytes) + memory.latency + others * memory.receive_overhead;
  const Picoseconds out = others * memory.store_time(bytes * topology.rank_count) + memory.latency +
                          memory.receive_overhead;
  return in + out +
         round_cost(query.network.between, topology.node_count() - 1, topology.largest_node(),
                    bytes, false);
}

std::string why_not_by_leaders(const Query& query) {
  const Topology& topology = query.topology;
  const CollectiveRequest& request = query.request;
  const std::size_t bytes = std::max<std::size_t>(request.bytes(), 1);
  if (request.shares_target) return one_target_a_node;
  if (request.zero_copy) return blocks_stay;
  if (transport_of(query) != plan::Transport::copied) return "blocks are read where they are";
  if (topology.is_one_node() || !topology.has_shared_nodes()) return "ranks do not share nodes";
  if (topology.shares_cpus) return "ranks share CPUs, and wait for each other's turns";
  if (!std::all_of(request.block_bytes.begin(), request.block_bytes.end(),
                   [&](std::size_t block) { return block == request.block_bytes.front(); }))
    return "blocks differ in length";
  if (!request.per_round_by_default.empty()) return "messages per round are asked for";
  if (topology.node_count() - 1 > partners_unasked_max)
    return "it would connect more ranks than are connected unasked";
  if (bytes > together_bytes_max) return "blocks are too long to be copied once more";
  const std::uint64_t slots = topology.largest_node() + topology.node_count() + 2;
  return 2 * slots * topology.rank_count * bytes > together_registers_bytes
             ? "its registers would take too much of the arena"
             : "";
}

std::vector<Variant> piece_variants(const Query& query) {
  return {{.pieces = pieces_of(query).of_rank}};
}

// gather, scatter

std::uint32_t ranks_at_root(const Query& query) {
  const std::vector<Node>& node_of = query.topology.node_of;
  const std::size_t root = index_of(query.request.root);
  if (root >= node_of.size()) return 1;
  return static_cast<std::uint32_t>(std::count(node_of.begin(), node_of.end(), node_of[root]));
}

std::string why_not_by_node(const Query& query) {
  const std::size_t nodes = query.topology.node_count(), largest = query.topology.largest_node();
  const std::size_t block_bytes = query.request.bytes();
  if (transport_of(query) != plan::Transport::copied) return "blocks are read where they are";
  if (nodes == 1) return "there is one node";
  if (!query.topology.has_shared_nodes()) return "ranks do not share nodes";
  if (block_bytes > together_bytes_max) return "blocks are too long to be copied once more";
  return 2 * (2 * nodes + largest) * largest * block_bytes > together_registers_bytes
             ? "its registers would take too much of the arena"
             : "";
}

/// The time of messages between the root and other nodes.  Messages of a gather come from different
/// ranks, each of which sends one, and all of which get an answer; those of a scatter come to
/// different ranks, each of which takes at most one.
Picoseconds cost_at_root(const Query& query, std::uint32_t messages, std::uint64_t blocks) {
  plan::LogGP network = query.network.between;
  const std::uint64_t bytes = priced_bytes(query.request.bytes());
  if (query.request.collective == Collective::scatter)
    return network.travel_time(blocks * bytes) +
           (messages - Picoseconds{1}) * network.sending_time(blocks * bytes) +
           network.receive_overhead;
  const Picoseconds answered = messages * std::exchange(network.rank_gap, 0);
  return round_cost(network, messages, blocks, bytes, false) + answered;
}

/// The time of cost_at_root(), and that in which a node joins its blocks or takes them apart.
Picoseconds cost_by_node(const Query& query, const Variant&) {
  const plan::NodeMemory& memory = query.network.inside;
  const std::uint64_t bytes = priced_bytes(query.request.bytes());
  const std::uint64_t ranks = query.topology.largest_node();
  return hop_in_node(memory, bytes) +
         static_cast<Picoseconds>(ranks - 1) *
             std::max(memory.receive_overhead, memory.store_time(bytes)) +
         cost_at_root(query, std::max(query.topology.node_count(), 2u) - 1, ranks);
}
Picoseconds cost_of_direct_root(const Query& query, const Variant&) {
  const std::uint32_t here = ranks_at_root(query);
  const std::uint32_t others = query.topology.rank_count - here;
  if (others == 0) return 0;
  const Picoseconds across = cost_at_root(query, others, 1);
  if (query.request.collective != Collective::scatter) return across;
  const plan::NodeMemory& memory = query.network.inside;
  const Picoseconds inside =
      (here - Picoseconds{1}) * memory.store_time(priced_bytes(query.request.bytes())) +
      memory.latency + memory.receive_overhead;
  return std::max(across, inside);
}

/// The root is connected with few where there are many ranks.
bool has_tree(const Query& query) {
  return transport_of(query) == plan::Transport::copied &&
         index_of(query.request.root) < query.topology.rank_count &&
         query.topology.rank_count <= passed_on_ranks_max;
}
std::string why_not_direct_root(const Query& query) {
  return has_tree(query) && query.topology.rank_count - ranks_at_root(query) > partners_unasked_max
             ? "it would connect more ranks than are connected unasked"
             : "";
}
std::string why_not_by_node_unasked(const Query& query) {
  return has_tree(query) && query.topology.node_count() - 1 > partners_unasked_max
             ? "it would connect more ranks than are connected unasked"
             : "";
}
std::string why_not_along_tree(const Query& query) {
  const bool is_last = !why_not_direct_root(query).empty() &&
                       (!why_not_by_node(query).empty() || !why_not_by_node_unasked(query).empty());
  return is_last ? "" : "the root is connected with few ranks";
}

// alltoall

std::string why_not_node_alltoall(const Query& query) {
  const std::size_t bytes = query.request.bytes();
  if (transport_of(query) != plan::Transport::copied) return "blocks are read where they are";
  if (!query.request.has_equal_blocks) return "blocks differ in length";
  if (bytes > together_bytes_max) return "blocks are too long to be copied twice more";
  if (!query.topology.has_shared_nodes()) return "ranks do not share nodes";
  if (query.topology.is_one_node()) return "all ranks share one node";
  if (!plan::is_node_alltoall(query.topology.node_of))
    return "blocks of so many ranks are more than a plan has slots for";
  const std::uint64_t block_bytes = std::max<std::size_t>(bytes, 1);
  constexpr std::uint64_t registers = 4;  // slots and partials, for two calls
  // On nodes of 32 ranks, registers for blocks of 8 bytes take 2 MiB.  Sent directly, each block
  // would be a message that takes a port for as long as its gap.
  return plan::node_alltoall_payloads(query.topology.node_of) >
                 plan_registers_bytes / (registers * block_bytes)
             ? "its registers would take too much of the arena"
             : "";
}

/// A message of one block, which any alltoall waits for.
Picoseconds cost_of_one_block(const Query& query, std::uint32_t messages = 1) {
  return round_cost(query.network.between, messages, 1, priced_bytes(query.request.bytes()));
}

/// The ranks of a node send at the same time, through the node's one port.
Picoseconds cost_of_direct_alltoall(const Query& query, const Variant&) {
  const Topology& topology = query.topology;
  if (!topology.has_shared_nodes())
    return cost_of_one_block(query, std::max(topology.rank_count, 2u) - 1);
  const plan::LogGP& network = query.network.between;
  const Picoseconds largest = topology.largest_node();
  const Picoseconds others = topology.rank_count - largest;
  const std::uint64_t bytes = priced_bytes(query.request.bytes());
  const Picoseconds sent =
      std::max((std::max<Picoseconds>(largest * others, 1) - 1) * network.port_time(bytes),
               others * network.rank_gap);
  // If sending takes a rank's time, it receives after all its sends.  If not, the port's time is
  // longer for all machines but the fastest, and prices are those of before there was such a gap.
  const Picoseconds busy =
      network.rank_gap == 0 ? 0 : others * (network.rank_gap + network.receive_overhead);
  return std::max(network.travel_time(bytes) + network.receive_overhead + sent, busy);
}

/// Two stages in memory, of a message for each rank of the node with what a rank carries.
Picoseconds cost_of_node_alltoall(const Query& query, const Variant&) {
  const Topology& topology = query.topology;
  const plan::LogGP& network = query.network.between;
  const plan::NodeMemory& memory = query.network.inside;
  const std::uint32_t others = topology.node_count() - 1;
  const std::uint32_t largest = topology.largest_node();
  const std::uint64_t bytes = priced_bytes(query.request.bytes());
  const std::uint32_t turns = (others + largest - 1) / largest;  // nodes that a rank carries to
  // Where ranks share CPUs, each stage waits for the last of a node: measured with the software
  // device, 2 CPUs, 8 bytes, medians of 7 runs: 8 ranks on nodes of 2, 9 messages saved, 1.2 of
  // direct; 12 on nodes of 3, 24, 0.87; 16 on nodes of 8, 63, 0.83.
  constexpr Picoseconds turn = 600'000;  // of the scheduler
  const Picoseconds wait = topology.shares_cpus ? turn : memory.latency;
  const Picoseconds stage =
      static_cast<Picoseconds>(largest - 1) *
          (memory.store_time(std::uint64_t{turns} * largest * bytes) + memory.receive_overhead) +
      wait;
  const std::uint64_t together = std::uint64_t{largest} * largest * bytes;
  const Picoseconds sent =
      std::max((static_cast<Picoseconds>(others) - 1) * network.port_time(together),
               (static_cast<Picoseconds>(turns) - 1) * network.rank_gap);
  return 2 * stage + network.travel_time(together) + turns * network.receive_overhead + sent;
}

/// Each n with which blocks pass through others, whole, and do not take too much of the arena.
std::vector<Variant> bruck_variants(const Query& query) {
  const std::uint32_t rank_count = query.topology.rank_count;
  const std::size_t block_bytes = std::max<std::size_t>(query.request.bytes(), 1);
  std::vector<Variant> variants;
  for (std::uint32_t n = 1; n <= messages_of_round_max && n + 1 < rank_count; ++n) {
    const auto [slots, payloads] = plan::bruck_registers(plan::bruck_rounds(rank_count, n));
    constexpr std::size_t registers = 4;  // slots and partials, for two calls
    if (registers * slots * payloads * block_bytes <= together_registers_bytes &&
        block_bytes <= within_registers(together_bytes_max, slots, rank_count, payloads))
      variants.push_back({.per_round = {n}});
  }
  return variants;
}

std::string why_not_bruck_alltoall(const Query& query) {
  if (transport_of(query) != plan::Transport::copied) return "blocks are read where they are";
  if (!query.request.has_equal_blocks) return "blocks differ in length";
  if (query.topology.has_shared_nodes()) return "it does not regard nodes, and ranks share some";
  if (query.topology.rank_count < 3) return "there is no rank that blocks could go through";
  if (query.request.bytes() > together_bytes_max)
    return "blocks are too long to be copied on their way";
  return bruck_variants(query).empty() ? "its registers would take too much of the arena" : "";
}

/// Copying a block counts as combining one.
Picoseconds cost_of_bruck_alltoall(const Query& query, const Variant& variant) {
  const std::uint64_t block_bytes = std::max<std::size_t>(query.request.bytes(), 1);
  Picoseconds sum = 0;
  for (const plan::BruckRound& round :
       plan::bruck_rounds(query.topology.rank_count, variant.per_round.front()))
    sum += round_cost(query.network.between, round.messages, round.blocks, block_bytes);
  return sum;
}

// reduce_scatter

plan::CirculantShape circulant_shape(const Query& query) {
  const Topology& topology = query.topology;
  return {.rank_count = topology.rank_count,
          .node_of = topology.has_shared_nodes() ? std::span<const Node>(topology.node_of)
                                                 : std::span<const Node>(),
          .skips = topology.node_count() - 1 <= direct_partners_max ? plan::Skips::ones
                                                                    : plan::Skips::few};
}

std::uint64_t block_price_bytes(const Query& query) {
  return priced_bytes(query.request.bytes() / query.topology.rank_count);
}

Picoseconds cost_of_direct_sums(const Query& query, const Variant&) {
  const std::uint32_t across = query.topology.rank_count - query.topology.smallest_node();
  return round_cost(network_of(query), std::max(across, 1u), 1, block_price_bytes(query));
}

/// Partial sums that a rank sends to other nodes, at most.
std::uint32_t partial_sums(const Query& query) {
  const std::uint32_t largest = query.topology.largest_node(),
                      smallest = query.topology.smallest_node();
  return (largest + smallest - 1) / smallest * (query.topology.node_count() - 1);
}
Picoseconds cost_of_partial_sums(const Query& query, const Variant&) {
  // Where ranks share nodes, each first combines what the others of its node have for its places.
  const std::uint64_t bytes = block_price_bytes(query);
  const plan::NodeMemory& memory = query.network.inside;
  const auto places = static_cast<Picoseconds>(query.topology.node_count());
  const auto others = static_cast<Picoseconds>(query.topology.largest_node() - 1);
  const Picoseconds across =
      round_cost(network_of(query), std::max(partial_sums(query), 1u), 1, bytes);
  if (others == 0) return across;
  // A rank combines those of one node after those of another, while the port sends the ones before.
  const Picoseconds combined =
      others * (memory.receive_overhead + query.network.between.work_time(bytes));
  return places * others * memory.store_time(bytes) + memory.latency + combined +
         std::max((places - 1) * combined, across);
}

bool would_connect_many(const Query& query) {
  return query.topology.rank_count - query.topology.smallest_node() > partners_unasked_max;
}

std::string why_not_partial_sums(const Query& query) {
  const Topology& topology = query.topology;
  if (topology.is_one_node()) return "there is one node";
  if (!plan::is_circulant_reduce_scatter(circulant_shape(query))) return "there are too many ranks";
  if (!topology.has_shared_nodes())
    return would_connect_many(query) ? "" : "contributions go to their owner at once";
  if (!topology.has_equal_nodes() && partial_sums(query) > partners_unasked_max)
    return "its sums would go directly, to more ranks than are connected unasked";
  return "";
}

/// The rows that send partial sums, or contributions along the canonical tree.
bool sends_partial_sums(const Query& query);

std::string why_not_canonical_halves(const Query& query) {
  if (!plan::is_canonical_halving(query.topology.rank_count)) return "there are too many ranks";
  if (!would_connect_many(query)) return "contributions go to their owner at once";
  return sends_partial_sums(query) ? "partial sums serve" : "";
}

std::string why_not_direct_sums(const Query& query) {
  return would_connect_many(query) &&
                 (sends_partial_sums(query) || why_not_canonical_halves(query).empty())
             ? "it would connect more ranks than are connected unasked"
             : "";
}

constexpr auto gather = Collective::gather;
constexpr auto scatter = Collective::scatter;
constexpr auto allgather = Collective::allgather;
constexpr auto alltoall = Collective::alltoall;
constexpr auto reduce_scatter = Collective::reduce_scatter;

plan::Plan gather_directly(const Query& query, const Variant&, Rank self) {
  return plan::direct_gather(self, query.topology.rank_count, query.request.root,
                             transport_of(query));
}
plan::Plan scatter_directly(const Query& query, const Variant&, Rank self) {
  return plan::direct_scatter(self, query.topology.rank_count, query.request.root,
                              transport_of(query), query.topology.node_of);
}

template <auto builder>
constexpr Row direct_with_root(Collective collective) {
  return {.collective = collective,
          .name = "direct",
          .also = "single_copy",
          .why_not_unasked = why_not_direct_root,
          .cost = cost_of_direct_root,
          .build = builder};
}

template <auto builder>
constexpr Row by_node_with_root(Collective collective, const char* name) {
  return {.collective = collective,
          .name = name,
          .why_not = why_not_by_node,
          .why_not_unasked = why_not_by_node_unasked,
          .cost = cost_by_node,
          .build = [](const Query& query, const Variant&, Rank self) {
            return builder(self, query.topology.node_of, query.request.root);
          }};
}

template <auto builder>
constexpr Row along_tree_with_root(Collective collective, const char* name) {
  return {.collective = collective,
          .name = name,
          .why_not_unasked = why_not_along_tree,
          .build = [](const Query& query, const Variant&, Rank self) {
            return builder(self, query.topology.rank_count, query.topology.node_of,
                           query.request.root);
          }};
}

constexpr Row table[] = {
    {.collective = allgather,
     .name = "direct",
     .also = "single_copy",
     .why_not_unasked =
         [](const Query& query) {
           return std::string(query.request.zero_copy       ? blocks_stay
                              : goes_directly(query)        ? ""
                              : query.request.shares_target ? one_target_a_node
                              : query.topology.has_shared_nodes()
                                  ? "it would send each block to each rank of a node"
                                  : "each rank would have more partners");
         },
     .cost = cost_of_whole_blocks,
     .build =
         [](const Query& query, const Variant&, Rank self) {
           return plan::direct_allgather(self, query.topology.rank_count, transport_of(query));
         }},
    {.collective = allgather,
     .name = "block_dissemination",
     .also = "node_allgather",
     .why_not_unasked =
         [](const Query& query) {
           return std::string(query.request.zero_copy ? blocks_stay
                              : goes_directly(query)  ? "all others are as near"
                                                      : "");
         },
     .variants = vectors_across,
     .cost = cost_of_whole_blocks,
     .build =
         [](const Query& query, const Variant& variant, Rank self) {
           const Topology& topology = query.topology;
           return plan::dissemination_allgather(
               self, topology.rank_count, variant.per_round,
               topology.has_shared_nodes() ? std::span<const Node>(topology.node_of)
                                           : std::span<const Node>(),
               query.request.shares_target ? plan::Target::of_node : plan::Target::of_rank);
         }},
    {.collective = allgather,
     .name = "zero_copy_allgather",
     .also = "node_allgather_zero_copy direct_allgather_zero_copy",
     .why_not =
         [](const Query& query) {
           return std::string(!query.request.zero_copy       ? "buffers are not registered"
                              : query.topology.is_one_node() ? "all ranks share one node"
                                                             : "");
         },
     .build =
         [](const Query& query, const Variant&, Rank self) {
           const std::uint32_t rank_count = query.topology.rank_count;
           return plan::zero_copy_allgather(
               self, rank_count, query.topology.node_of,
               zero_copy_pieces_of_block(query.request.bytes(), rank_count));
         }},
    {.collective = allgather,
     .name = "ring_allgather",
     .why_not = why_not_in_pieces,
     .variants = piece_variants,
     .cost = cost_of_ring,
     .build =
         [](const Query& query, const Variant& variant, Rank self) {
           return plan::piecewise_allgather(self, variant.pieces, plan::PieceRoute::ring,
                                            query.topology.node_of);
         }},
    {.collective = allgather,
     .name = "two_tree_allgather",
     .why_not = why_not_in_pieces,
     .variants = piece_variants,
     .cost = cost_of_two_trees,
     .build =
         [](const Query& query, const Variant& variant, Rank self) {
           return plan::piecewise_allgather(self, variant.pieces, plan::PieceRoute::two_trees,
                                            query.topology.node_of);
         }},
    {.collective = allgather,
     .name = "leader_allgather",
     .why_not = why_not_by_leaders,
     .cost = cost_by_leaders,
     .build = [](const Query& query, const Variant&,
                 Rank self) { return plan::leader_allgather(self, query.topology.node_of); }},
    shared_ring_row(allgather, "automatic"),
    {.collective = alltoall,
     .name = "direct",
     .also = "single_copy",
     .cost = cost_of_direct_alltoall,
     .build =
         [](const Query& query, const Variant&, Rank self) {
           return plan::direct_alltoall(self, query.topology.rank_count, transport_of(query));
         }},
    {.collective = alltoall,
     .name = "node_alltoall",
     .why_not = why_not_node_alltoall,
     .cost = cost_of_node_alltoall,
     .build = [](const Query& query, const Variant&,
                 Rank self) { return plan::node_alltoall(self, query.topology.node_of); }},
    {.collective = alltoall,
     .name = "bruck_alltoall",
     .why_not = why_not_bruck_alltoall,
     .variants = bruck_variants,
     .cost = cost_of_bruck_alltoall,
     .build =
         [](const Query& query, const Variant& variant, Rank self) {
           return plan::bruck_alltoall(self, query.topology.rank_count, variant.per_round.front());
         }},
    direct_with_root<gather_directly>(gather),
    by_node_with_root<plan::node_gather>(gather, "node_gather"),
    along_tree_with_root<plan::tree_gather>(gather, "tree_gather"),
    direct_with_root<scatter_directly>(scatter),
    by_node_with_root<plan::node_scatter>(scatter, "node_scatter"),
    along_tree_with_root<plan::tree_scatter>(scatter, "tree_scatter"),
    {.collective = reduce_scatter,
     .name = "chunked_fold",
     .why_not_unasked = why_not_direct_sums,
     .cost = cost_of_direct_sums,
     .build =
         [](const Query& query, const Variant&, Rank self) {
           return plan::chunked_fold_reduce_scatter(self, query.topology.rank_count);
         }},
    {.collective = reduce_scatter,
     .name = "circulant",
     .also = "direct node_direct node_circulant",
     .association = Association::expression,
     .keeps_rank_order = false,
     .why_not_unasked = why_not_partial_sums,
     .cost = cost_of_partial_sums,
     .build =
         [](const Query& query, const Variant&, Rank self) {
           return plan::circulant_reduce_scatter(self, circulant_shape(query));
         }},
    {.collective = reduce_scatter,
     .name = "canonical_halving",
     .why_not_unasked = why_not_canonical_halves,
     .build =
         [](const Query& query, const Variant&, Rank self) {
           return plan::canonical_halving_reduce_scatter(self, query.topology.rank_count);
         }},
    shared_ring_row(reduce_scatter, "automatic"),
};

bool sends_partial_sums(const Query& query) {
  const OperatorProperties& properties = query.request.reduction.properties;
  return properties.commutative && !is_reproducible_in_bits(query.request) &&
         why_not_partial_sums(query).empty();
}

}  // namespace

std::span<const Row> block_rows() {
  return table;
}

}  // namespace tutti::tune
