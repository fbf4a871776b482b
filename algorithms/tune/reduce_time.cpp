#include "tune/reduce_time.hpp"

#include <algorithm>
#include <cassert>
#include <deque>
#include <tuple>
#include <vector>

namespace tutti::tune {
namespace {

using plan::Picoseconds;

/// More lanes than that are taken to be this many, which send more in proportion.
constexpr std::uint32_t lanes_max = 32;
/// Messages inside a node that are followed, about.
constexpr std::uint32_t followed_in_node = 1024;

class Reduce {
 public:
  Reduce(const ReduceShape& shape, const plan::Network& network)
      : shape_(shape),
        network_(network),
        lane_count_(std::min(shape.lane_count, lanes_max)),
        work_(network.between.work_time(shape.bytes)),
        store_(network.inside.store_time(shape.bytes)),
        port_(network.between.port_time(shape.bytes) * shape.lane_count / lane_count_),
        ready_(shape.lane_count > 1 ? lanes_ready()
                                    : std::vector{tree_in_node(shape.ranks_per_node)}) {}

  Picoseconds time() {
    const std::vector<Picoseconds> clocks = combined(shape_.node_count);
    const plan::NodeMemory& memory = network_.inside;
    const auto children = static_cast<Picoseconds>(
        subtrees(shape_.node_count, shape_.fans.across, shape_.fans.across_by).size());
    const Picoseconds answered = children * network_.between.rank_gap;  // by the root
    if (shape_.lane_count == 1) {
      const std::size_t told =
          subtrees(shape_.ranks_per_node, shape_.fans.in_node, shape_.fans.in_node_by).size();
      return clocks[0] + answered + static_cast<Picoseconds>(told) * memory.send_overhead;
    }
    // The rank of lane 0 is the root; it takes the others' results from the last one on.
    Picoseconds clock = clocks[0];
    for (std::size_t lane = clocks.size(); --lane > 0;)
      clock = std::max(clock, clocks[lane] + store_ + memory.latency) + memory.receive_overhead;
    const auto further = static_cast<Picoseconds>(shape_.lane_count - lane_count_);
    return clock + answered + further * memory.receive_overhead +
           static_cast<Picoseconds>(shape_.ranks_per_node - 1) * memory.send_overhead;
  }

 private:
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

  /// When the ranks of a node that have a lane have combined its part of all others.  Each rank
  /// awaits a credit of those with a lane, and gives to them from the next rank on.
  std::vector<Picoseconds> lanes_ready() const {
    const plan::NodeMemory& memory = network_.inside;
    const std::uint32_t ranks = shape_.ranks_per_node, lanes = shape_.lane_count;
    const auto given_by = [&](std::uint32_t seat) { return seat < lanes ? lanes - 1 : lanes; };
    const auto of = [&](std::uint32_t count, Picoseconds time) {
      return static_cast<Picoseconds>(count) * time;
    };
    const std::uint32_t step = 1 + ranks * lane_count_ / followed_in_node;
    std::vector<Picoseconds> ready;
    for (std::uint32_t lane = 0; lane < lane_count_; ++lane) {
      if (lane % step != 0) {
        ready.push_back(ready.back());
        continue;
      }
      Picoseconds clock = of(given_by(lane), memory.receive_overhead + store_);
      for (std::uint32_t i = ranks; --i > 0;) {
        const std::uint32_t seat =
            shape_.in_rank_order ? (i > lane ? i : i - 1) : (lane + i) % ranks;
        // The lanes that it gives to before, and this one.
        const std::uint32_t before =
            seat < lane ? lane - seat : lane + 1 + (seat + 1 < lanes ? lanes - 1 - seat : 0);
        const Picoseconds there =
            of(given_by(seat), memory.receive_overhead) + of(before, store_) + memory.latency;
        clock = std::max(clock, there) + memory.receive_overhead + work_;
      }
      ready.push_back(clock);
    }
    return ready;
  }

  struct Subtree {
    std::uint32_t count;
    std::vector<Picoseconds> sent;  // when the message of each lane is at its parent's port
  };
  const std::vector<Picoseconds>& sent_by(std::uint32_t count) {
    for (const Subtree& subtree : known_)
      if (subtree.count == count) return subtree.sent;
    const std::vector<Picoseconds> clocks = combined(count);
    // Behind the message of a lane go its credits to the children.
    const auto children =
        static_cast<Picoseconds>(subtrees(count, shape_.fans.across, shape_.fans.across_by).size());
    const Picoseconds credits =
        children * network_.between.port_time(0) * shape_.lane_count / lane_count_;
    std::vector<std::size_t> lanes(clocks.size());
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) lanes[lane] = lane;
    std::stable_sort(lanes.begin(), lanes.end(), [&](std::size_t left, std::size_t right) {
      return clocks[left] < clocks[right];
    });
    std::vector<Picoseconds> sent(clocks.size());
    Picoseconds free = 0;
    for (const std::size_t lane : lanes) {
      const Picoseconds leaves = std::max(clocks[lane], free);
      free = leaves + port_ + credits;
      sent[lane] = leaves + network_.between.travel_time(shape_.bytes);
    }
    known_.push_back({count, std::move(sent)});
    return known_.back().sent;
  }

  /// When the ranks of the lanes of a vertex have combined what so many nodes have.
  std::vector<Picoseconds> combined(std::uint32_t count) {
    struct Message {
      Picoseconds at;
      std::uint32_t child;
      std::size_t lane;
    };
    std::vector<Message> messages;
    std::uint32_t child = 0;
    for (const std::uint32_t size : subtrees(count, shape_.fans.across, shape_.fans.across_by)) {
      const std::vector<Picoseconds>& sent = sent_by(size);
      for (std::size_t lane = 0; lane < sent.size(); ++lane)
        messages.push_back({sent[lane], child, lane});
      ++child;
    }
    const auto in_order = [](const Message& message) {
      return std::tie(message.at, message.child, message.lane);
    };
    std::sort(messages.begin(), messages.end(), [&](const Message& left, const Message& right) {
      return in_order(left) < in_order(right);
    });
    Picoseconds free = 0;
    for (Message& message : messages) {
      message.at = std::max(message.at, free);
      free = message.at + port_;
    }
    if (!shape_.as_seen)
      std::stable_sort(
          messages.begin(), messages.end(),
          [](const Message& left, const Message& right) { return left.child < right.child; });
    std::vector<Picoseconds> clocks = ready_;
    for (const Message& message : messages)
      clocks[message.lane] =
          std::max(clocks[message.lane], message.at) + network_.between.receive_overhead + work_;
    return clocks;
  }

  const ReduceShape& shape_;
  const plan::Network& network_;
  std::uint32_t lane_count_;
  Picoseconds work_, store_, port_;
  std::vector<Picoseconds> ready_;  // each lane, before messages of other nodes come
  std::deque<Subtree> known_ = {};
};

}  // namespace

plan::Picoseconds reduce_time(const ReduceShape& shape, const plan::Network& network) {
  assert(!shape.fans.is_chain && shape.node_count > 0);
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
