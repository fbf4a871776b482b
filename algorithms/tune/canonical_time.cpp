#include "tune/canonical_time.hpp"

#include <algorithm>
#include <cassert>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/allreduce/canonical_tree.hpp"

namespace tutti::tune {
namespace {

using plan::Picoseconds;

/// So many nodes are followed that they have at least this many ranks together.
constexpr std::uint32_t ranks_followed = 32;

/// The ranks of one node.  If other nodes are not followed, they are assumed to send to it when it
/// sends to them, because all do alike.
class FollowedNode {
 public:
  FollowedNode(const CanonicalShape& shape, const plan::Network& network, std::uint32_t number)
      : shape_(shape),
        network_(network),
        tree_(shape.rank_count),
        first_(number * shape.ranks_per_node),
        work_(network.between.work_time(shape.bytes)),
        clocks_(shape.ranks_per_node),
        known_(shape.ranks_per_node, 1) {}

  void send(const plan::Round& round, std::uint32_t grown) {
    round_ = round;
    grown_ = grown;
    send();
  }
  /// `all` holds all nodes if all are followed, else this node alone.
  void receive(std::span<const FollowedNode> all) {
    receive_from(all);
    for (std::uint32_t place = 0; place < clocks_.size(); ++place) take(place);
  }

  Picoseconds time() const { return *std::max_element(clocks_.begin(), clocks_.end()); }

 private:
  struct Message {
    Picoseconds at;  // when it is sent; later, when it is at its receiver's port, or visible
    std::uint32_t place;
    std::uint32_t number;  // of the messages of a round, from 1 on
    bool is_inside;
  };

  /// Message i travels i lengths, the last one no further than needed.
  std::uint32_t offset(std::uint32_t number) const {
    const std::uint64_t lengths = std::uint64_t{number} * round_.length;
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(lengths, grown_ - round_.length));
  }
  std::uint32_t behind(std::uint32_t rank, std::uint32_t distance) const {
    return rank >= distance ? rank - distance : rank + shape_.rank_count - distance;
  }
  bool is_here(std::uint32_t rank) const {
    return rank >= first_ && rank - first_ < shape_.ranks_per_node;
  }
  std::uint64_t bytes_of(std::uint32_t rank) const {
    return tree_.block_count(Rank{rank}, round_.length) * shape_.bytes;
  }
  Picoseconds& sent(std::uint32_t place, std::uint32_t number) {
    return sent_[std::size_t{place} * round_.messages + number - 1];
  }
  Picoseconds sent(std::uint32_t place, std::uint32_t number) const {
    return sent_[std::size_t{place} * round_.messages + number - 1];
  }

  /// Messages pass the port in the order in which they are sent, also while a rank stores others.
  void send() {
    sent_.assign(clocks_.size() * round_.messages, 0);
    leaving_.clear();
    for (std::uint32_t place = 0; place < clocks_.size(); ++place) {
      const Picoseconds store = network_.inside.store_time(bytes_of(first_ + place));
      Picoseconds& clock = clocks_[place];
      for (std::uint32_t number = 1; number <= round_.messages; ++number) {
        const std::uint64_t to = std::uint64_t{first_} + place + offset(number);
        const bool is_inside = is_here(static_cast<std::uint32_t>(to % shape_.rank_count));
        if (is_inside)
          sent(place, number) = clock += store;
        else
          leaving_.push_back(
              {std::exchange(clock, clock + network_.between.rank_gap), place, number, false});
      }
    }
    std::stable_sort(leaving_.begin(), leaving_.end(),
                     [](const Message& left, const Message& right) { return left.at < right.at; });
    for (const Message& message : leaving_) {
      const Picoseconds leaves = std::max(message.at, transmit_free_);
      transmit_free_ = leaves + network_.between.port_time(bytes_of(first_ + message.place));
      sent(message.place, message.number) = leaves;
    }
  }

  /// If other nodes are not followed, a message from one of them comes when that of this node's
  /// rank at the same place would come there.
  void receive_from(std::span<const FollowedNode> all) {
    messages_.clear();
    for (std::uint32_t place = 0; place < clocks_.size(); ++place)
      for (std::uint32_t number = 1; number <= round_.messages; ++number) {
        const std::uint32_t from = behind(first_ + place, offset(number));
        const FollowedNode& sender = all.size() == 1 ? *this : all[from / shape_.ranks_per_node];
        const Picoseconds leaves = sender.sent(from % shape_.ranks_per_node, number);
        const bool is_inside = is_here(from);
        const Picoseconds travels =
            is_inside ? network_.inside.latency : network_.between.travel_time(bytes_of(from));
        messages_.push_back({leaves + travels, place, number, is_inside});
      }
    std::sort(messages_.begin(), messages_.end(), [](const Message& left, const Message& right) {
      return std::tie(left.at, left.place, left.number) <
             std::tie(right.at, right.place, right.number);
    });
    for (Message& message : messages_) {
      if (message.is_inside) continue;
      const std::uint32_t from = behind(first_ + message.place, offset(message.number));
      message.at = std::max(message.at, receive_free_);
      receive_free_ = message.at + network_.between.port_time(bytes_of(from));
    }
    std::stable_sort(
        messages_.begin(), messages_.end(),
        [](const Message& left, const Message& right) { return left.place < right.place; });
  }

  /// Awaits its messages in their order, and combines what can be after each.
  void take(std::uint32_t place) {
    Picoseconds& clock = clocks_[place];
    const std::uint32_t self = first_ + place;
    here_.assign(round_.messages + 1, {});
    coming_.clear();
    for (std::uint32_t i = 0; i < round_.messages; ++i) {
      const Message& message = messages_[std::size_t{place} * round_.messages + i];
      if (message.is_inside)
        here_[message.number] = {.at = message.at, .is_inside = true};
      else
        coming_.push_back(message);
    }
    std::size_t seen = 0;
    const auto poll = [&](Picoseconds now) {
      Picoseconds taken = 0;
      for (; seen < coming_.size() && coming_[seen].at <= now; ++seen) {
        here_[coming_[seen].number].is_seen = true;
        taken += network_.between.receive_overhead;
      }
      return taken;
    };
    std::uint32_t length = round_.length;
    std::uint32_t& blocks = known_[place];
    for (std::uint32_t number = 1; number <= round_.messages; ++number) {
      const Here& awaited = here_[number];
      if (awaited.is_inside) {
        while (clock < awaited.at) {
          const Picoseconds next =
              seen < coming_.size() ? std::max(clock, coming_[seen].at) : awaited.at;
          if (next >= awaited.at) {
            clock = awaited.at;
            break;
          }
          clock = next;
          clock += poll(next);
        }
        clock += network_.inside.receive_overhead;
      } else {
        while (!awaited.is_seen) {
          clock = std::max(clock, coming_[seen].at);
          clock += poll(clock);
        }
      }
      const std::uint32_t longer = offset(number) + round_.length;
      const Picoseconds brought = brought_by(self, number, length);
      const std::uint32_t left = tree_.block_count(Rank{self}, longer);
      clock += (Picoseconds{blocks} + brought - left) * work_;
      blocks = left;
      length = longer;
    }
  }

  /// How many blocks a message adds to the `known` ranks that end at `self`.  If both overlap,
  /// blocks that lie within others are left unread, also known ones.
  Picoseconds brought_by(std::uint32_t self, std::uint32_t number, std::uint32_t known) const {
    const Rank from{behind(self, offset(number))};
    if (offset(number) == known) return tree_.block_count(from, round_.length);
    const std::vector<plan::Block> before = tree_.blocks_of(Rank{self}, known);
    const std::vector<plan::Block> blocks = tree_.blocks_of(from, round_.length);
    const auto within = [](const plan::Block& one, const plan::Block& other) {
      return one.first >= other.first && one.end() <= other.end();
    };
    auto brought = static_cast<Picoseconds>(blocks.size());
    for (const plan::Block& one : blocks)
      for (const plan::Block& other : before)
        brought -= within(one, other) || within(other, one) ? 1 : 0;
    return brought;
  }

  struct Here {
    Picoseconds at = 0;
    bool is_inside = false, is_seen = false;
  };

  const CanonicalShape& shape_;
  const plan::Network& network_;
  plan::CanonicalTree tree_;
  std::uint32_t first_;
  Picoseconds work_;
  plan::Round round_ = {};
  std::uint32_t grown_ = 0;
  std::vector<Picoseconds> clocks_;
  std::vector<std::uint32_t> known_;  // blocks of each rank
  Picoseconds transmit_free_ = 0, receive_free_ = 0;
  std::vector<Picoseconds> sent_ = {};  // by places and messages
  std::vector<Message> leaving_ = {}, messages_ = {}, coming_ = {};
  std::vector<Here> here_ = {};
};

/// The blocks that the first and the last rank of a node send, as a measure of its port's work.
std::uint64_t blocks_at_port(const CanonicalShape& shape, const plan::CanonicalTree& tree,
                             const std::vector<plan::Round>& rounds, std::uint32_t node) {
  const std::uint32_t ranks = shape.ranks_per_node, first = node * ranks;
  std::uint64_t blocks = 0;
  for (const plan::Round& round : rounds)
    for (const std::uint32_t place : {0u, ranks - 1})
      blocks += std::uint64_t{round.messages} * tree.block_count(Rank{first + place}, round.length);
  return blocks;
}

/// The nodes that are followed: those with the longest messages, which take the longest.
std::vector<std::uint32_t> followed_nodes(const CanonicalShape& shape,
                                          const std::vector<plan::Round>& rounds) {
  const std::uint32_t nodes = shape.rank_count / shape.ranks_per_node;
  const std::uint32_t followed =
      std::min(nodes, (ranks_followed + shape.ranks_per_node - 1) / shape.ranks_per_node);
  std::vector<std::uint32_t> numbers(nodes);
  for (std::uint32_t node = 0; node < nodes; ++node) numbers[node] = node;
  if (followed == nodes) return numbers;
  const plan::CanonicalTree tree(shape.rank_count);
  std::vector<std::uint64_t> blocks(nodes);
  for (std::uint32_t node = 0; node < nodes; ++node)
    blocks[node] = blocks_at_port(shape, tree, rounds, node);
  std::partial_sort(numbers.begin(), numbers.begin() + followed, numbers.end(),
                    [&](std::uint32_t left, std::uint32_t right) {
                      return blocks[left] != blocks[right] ? blocks[left] > blocks[right]
                                                           : left < right;
                    });
  numbers.resize(followed);
  return numbers;
}

std::uint32_t grown_after(const CanonicalShape& shape, const std::vector<plan::Round>& rounds,
                          std::size_t index) {
  return index + 1 == rounds.size() ? shape.rank_count : rounds[index + 1].length;
}

}  // namespace

Picoseconds canonical_time(const CanonicalShape& shape, const plan::PerRound& per_round,
                           const plan::Network& network) {
  if (shape.rank_count <= canonical_ranks_of_all)
    return canonical_time_of_all(shape, per_round, network);
  assert(shape.rank_count % shape.ranks_per_node == 0);
  const std::vector<plan::Round> rounds = plan::two_partial_rounds(shape.rank_count, per_round);
  Picoseconds longest = 0;
  for (const std::uint32_t number : followed_nodes(shape, rounds)) {
    FollowedNode node(shape, network, number);
    for (std::size_t index = 0; index < rounds.size(); ++index) {
      node.send(rounds[index], grown_after(shape, rounds, index));
      node.receive({&node, 1});
    }
    longest = std::max(longest, node.time());
  }
  return longest;
}

Picoseconds canonical_time_of_all(const CanonicalShape& shape, const plan::PerRound& per_round,
                                  const plan::Network& network) {
  assert(shape.rank_count % shape.ranks_per_node == 0);
  const std::vector<plan::Round> rounds = plan::two_partial_rounds(shape.rank_count, per_round);
  const std::uint32_t node_count = shape.rank_count / shape.ranks_per_node;
  std::vector<FollowedNode> nodes;
  nodes.reserve(node_count);
  for (std::uint32_t number = 0; number < node_count; ++number)
    nodes.emplace_back(shape, network, number);
  for (std::size_t index = 0; index < rounds.size(); ++index) {
    for (FollowedNode& node : nodes) node.send(rounds[index], grown_after(shape, rounds, index));
    for (FollowedNode& node : nodes) node.receive(nodes);
  }
  Picoseconds longest = 0;
  for (const FollowedNode& node : nodes) longest = std::max(longest, node.time());
  return longest;
}

}  // namespace tutti::tune
