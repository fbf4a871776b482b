#include "tune/reduce_time.hpp"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <deque>
#include <tuple>
#include <utility>
#include <vector>

namespace tutti::tune {
namespace {

using plan::Picoseconds;

/// If there are more lanes, so many are followed, and their messages take a port longer in
/// proportion.
constexpr std::uint32_t lanes_max = 32;
/// About how many messages inside a node are followed.
constexpr std::uint32_t followed_in_node = 1024;

using Clocks = std::vector<Picoseconds>;

class Reduce {
 public:
  Reduce(const ReduceShape& shape, const plan::Network& network)
      : shape_(shape),
        network_(network),
        lane_count_(std::min(shape.lane_count, lanes_max)),
        work_(network.between.work_time(shape.bytes)),
        store_(network.inside.store_time(shape.bytes)),
        port_(network.between.port_time(shape.bytes) * shape.lane_count / lane_count_),
        ready_(shape.lane_count > 1 ? lanes_ready(Clocks(shape.ranks_per_node))
                                    : Clocks{tree_in_node(shape.ranks_per_node)}) {}

  Picoseconds time() { return root_ended(vertex_of(shape_.node_count).combined.back()); }

 private:
  struct Message {
    Picoseconds at;
    std::uint32_t chunk, child;
    std::size_t lane;
  };
  /// The root of a subtree.
  struct Vertex {
    std::uint32_t node_count;           // of the subtree
    std::vector<Clocks> combined = {};  // by chunk and lane: when it has combined what they have
    std::vector<Message> sent = {};     // to its parent, of no child yet
  };

  static Picoseconds times(std::uint64_t count, Picoseconds time) {
    return static_cast<Picoseconds>(count) * time;
  }

  /// When the representative of so many ranks of a node has combined what they have.
  Picoseconds tree_in_node(std::uint32_t count) const {
    const plan::NodeMemory& memory = network_.inside;
    Picoseconds clock = 0;
    for (const std::uint32_t size : subtrees(count, shape_.fans.in_node, shape_.fans.in_node_by)) {
      const Picoseconds below = memory.receive_overhead + tree_in_node(size);  // with a credit
      clock = std::max(clock, below + store_ + memory.latency) + memory.receive_overhead + work_;
    }
    return clock;
  }

  /// How many lanes a rank gives a part to: all others.
  std::uint32_t given_by(std::uint32_t seat) const {
    return seat < shape_.lane_count ? shape_.lane_count - 1 : shape_.lane_count;
  }

  /// When each rank with a lane has combined what the other ranks of its node have of that lane.  A
  /// rank awaits a credit of each rank with a lane, and then sends to them, in turn from the rank
  /// behind it on.  `begun`: when each rank begins the chunk.
  Clocks lanes_ready(const Clocks& begun) const {
    const plan::NodeMemory& memory = network_.inside;
    const std::uint32_t ranks = shape_.ranks_per_node, lanes = shape_.lane_count;
    const std::uint32_t step = 1 + ranks * lane_count_ / followed_in_node;
    const auto gives_from = [&](std::uint32_t seat) {
      return begun[seat] + times(given_by(seat), memory.receive_overhead);
    };
    Clocks ready;
    for (std::uint32_t lane = 0; lane < lane_count_; ++lane) {
      if (lane % step != 0) {
        ready.push_back(ready.back());
        continue;
      }
      Picoseconds clock = gives_from(lane) + times(given_by(lane), store_);
      for (std::uint32_t i = ranks; --i > 0;) {
        const std::uint32_t seat =
            shape_.in_rank_order ? (i > lane ? i : i - 1) : (lane + i) % ranks;
        // The lanes that it gives to before, and this one.
        const std::uint32_t before =
            seat < lane ? lane - seat : lane + 1 + (seat + 1 < lanes ? lanes - 1 - seat : 0);
        const Picoseconds there = gives_from(seat) + times(before, store_) + memory.latency;
        clock = std::max(clock, there) + memory.receive_overhead + work_;
      }
      ready.push_back(clock);
    }
    return ready;
  }

  /// The children of the root of so many nodes.
  std::vector<std::uint32_t> children(std::uint32_t node_count) const {
    return subtrees(node_count, shape_.fans.across, shape_.fans.across_by);
  }

  /// The messages of a vertex to its parent.
  std::vector<Message> sent_by(const Vertex& vertex) const {
    // The credits to its children follow the message of each lane.
    const Picoseconds credits =
        times(children(vertex.node_count).size(), network_.between.port_time(0)) *
        shape_.lane_count / lane_count_;
    std::vector<Message> messages;
    for (std::uint32_t chunk = 0; chunk < shape_.chunk_count; ++chunk)
      for (std::size_t lane = 0; lane < lane_count_; ++lane)
        messages.push_back({vertex.combined[chunk][lane], chunk, 0, lane});
    std::stable_sort(messages.begin(), messages.end(),
                     [](const Message& left, const Message& right) { return left.at < right.at; });
    Picoseconds free = 0;
    for (Message& message : messages) {
      const Picoseconds leaves = std::max(message.at, free);
      free = leaves + port_ + credits;
      message.at = leaves + network_.between.travel_time(shape_.bytes);
    }
    return messages;
  }

  /// What a vertex receives, chunk by chunk in the order in which it is combined.
  std::vector<Message> received(std::uint32_t node_count) {
    std::vector<Message> messages;
    std::uint32_t child = 0;
    for (const std::uint32_t size : children(node_count)) {
      for (Message message : vertex_of(size).sent) {
        message.child = child;
        messages.push_back(message);
      }
      ++child;
    }
    std::sort(messages.begin(), messages.end(), [](const Message& left, const Message& right) {
      return std::tie(left.at, left.child, left.lane) < std::tie(right.at, right.child, right.lane);
    });
    Picoseconds free = 0;
    for (Message& message : messages) {
      message.at = std::max(message.at, free);
      free = message.at + port_;
    }
    std::stable_sort(messages.begin(), messages.end(),
                     [this](const Message& left, const Message& right) {
                       const auto place = [this](const Message& message) {
                         return std::pair(message.chunk, shape_.as_seen ? 0 : message.child);
                       };
                       return place(left) < place(right);
                     });
    return messages;
  }

  const Vertex& vertex_of(std::uint32_t node_count) {
    for (const Vertex& vertex : known_)
      if (vertex.node_count == node_count) return vertex;
    Vertex vertex{node_count};
    const std::vector<Message> messages = received(node_count);
    auto message = messages.begin();
    for (std::uint32_t chunk = 0; chunk < shape_.chunk_count; ++chunk) {
      Clocks clocks = chunk == 0 ? ready_ : lanes_ready(ended(vertex));
      for (; message != messages.end() && message->chunk == chunk; ++message)
        clocks[message->lane] = std::max(clocks[message->lane], message->at) +
                                network_.between.receive_overhead + work_;
      vertex.combined.push_back(std::move(clocks));
    }
    if (node_count < shape_.node_count) vertex.sent = sent_by(vertex);
    known_.push_back(std::move(vertex));
    return known_.back();
  }

  /// What the credits to its children in other nodes take of a rank's time.
  Picoseconds credits_across(std::uint32_t node_count) const {
    return times(children(node_count).size(), network_.between.rank_gap);
  }

  /// When the root of the tree has the result, and has given its credits.
  Picoseconds root_ended(const Clocks& combined) const {
    const plan::NodeMemory& memory = network_.inside;
    const std::size_t told =
        shape_.lane_count > 1
            ? shape_.ranks_per_node - 1
            : subtrees(shape_.ranks_per_node, shape_.fans.in_node, shape_.fans.in_node_by).size();
    // The root has lane 0; it takes the results of the other lanes, the last lane's first.
    Picoseconds clock = combined[0];
    for (std::size_t lane = combined.size(); --lane > 0;)
      clock = std::max(clock, combined[lane] + store_ + memory.latency) + memory.receive_overhead;
    return clock + times(shape_.lane_count - lane_count_, memory.receive_overhead) +
           credits_across(shape_.node_count) + times(told, memory.send_overhead);
  }

  /// When the ranks of a node in lanes have done what they do for the first chunk.
  Clocks ended(const Vertex& vertex) const {
    const plan::NodeMemory& memory = network_.inside;
    const bool is_root = vertex.node_count == shape_.node_count;
    const Clocks& combined = vertex.combined.front();
    const Picoseconds passed_on = is_root ? store_ : network_.between.rank_gap;
    const Picoseconds credits =
        credits_across(vertex.node_count) + times(shape_.ranks_per_node - 1, memory.send_overhead);
    Clocks ended;
    for (std::uint32_t seat = 0; seat < shape_.ranks_per_node; ++seat)
      ended.push_back(seat < shape_.lane_count
                          ? combined[seat % lane_count_] + passed_on + credits
                          : times(shape_.lane_count, memory.receive_overhead + store_));
    if (is_root) ended[0] = root_ended(combined);
    return ended;
  }

  const ReduceShape& shape_;
  const plan::Network& network_;
  std::uint32_t lane_count_;
  Picoseconds work_, store_, port_;
  Clocks ready_;  // the first chunk, before messages of other nodes come
  std::deque<Vertex> known_ = {};
};

}  // namespace

plan::Picoseconds reduce_time(const ReduceShape& shape, const plan::Network& network) {
  assert(!shape.fans.is_chain && shape.node_count > 0);
  assert(shape.chunk_count == 1 || (shape.chunk_count == 2 && shape.lane_count > 1));
  return Reduce(shape, network).time();
}

std::vector<std::uint32_t> subtrees(std::uint32_t count, const plan::PerRound& fans,
                                    const plan::Branching& by) {
  if (by.rule == plan::Branching::Rule::fibonacci) return plan::subtree_sizes(count, by);
  std::vector<std::uint32_t> sizes;
  std::uint64_t stride = 1;
  for (std::size_t level = 0; stride < count; ++level) {
    const std::uint64_t fan = level < fans.size() ? fans[level] : 1;
    for (std::uint64_t digit = 1; digit <= fan && digit * stride < count; ++digit)
      sizes.push_back(static_cast<std::uint32_t>(std::min(stride, count - digit * stride)));
    stride *= fan + 1;
  }
  return sizes;
}

}  // namespace tutti::tune
