#include "tune/halving_time.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/allreduce/canonical_halving.hpp"
#include "plan/allreduce/halving_layout.hpp"

namespace tutti::tune {
namespace {

using plan::Action, plan::Cube, plan::Picoseconds, plan::Step;

/// The nodes that are followed, by their first ranks, and which of them stands for each other one.
/// In a cube that hears from others, values enter at the first 2^e ranks and are carried over each
/// further bit, so that receivers are behind senders: one of its nodes is followed, and one more
/// for each such bit.  Of other cubes, whose ranks do alike, one is.
class FollowedNodes {
 public:
  FollowedNodes(std::uint32_t rank_count) : layout_(rank_count, plan::HalvingResults::everywhere) {
    const std::vector<Cube>& cubes = layout_.cubes();
    of_cube_.resize(cubes.size());
    std::uint32_t place = 0;  // of the rank that is furthest behind in the cube behind this one
    for (std::size_t cube = cubes.size(); cube-- > 0;) {
      const bool hears = layout_.teller_count(cube) > 0;
      if (!hears) place = 0;
      of_cube_[cube] = {.place = place,
                        .alike = hears ? layout_.entry_bits(cube) : cubes[cube].bits};
      place += (1u << cubes[cube].bits) - (1u << of_cube_[cube].alike);
    }
    // The order of ranks decides what comes first at one instant.
    for (std::size_t cube = 0; cube < cubes.size(); ++cube) {
      of_cube_[cube].node = ranks_.size();
      const std::uint32_t ahead = cubes[cube].first + of_cube_[cube].place;
      ranks_.push_back(ahead);
      for (std::uint32_t bit = of_cube_[cube].alike; bit < cubes[cube].bits; ++bit)
        ranks_.push_back(ahead + (2u << bit) - (1u << of_cube_[cube].alike));
    }
  }

  const std::vector<std::uint32_t>& ranks() const { return ranks_; }

  /// Whether a slot is of halves, carried values, results, or answers to one of these.  Messages of
  /// one kind between two ranks are awaited in the order in which they are sent.
  std::uint32_t kind_of(std::uint16_t slot) const {
    const std::uint32_t ends[] = {layout_.carried(0, 0, 0),   layout_.result(0),
                                  layout_.halving_answers(0), layout_.entry_answers(0, 0),
                                  layout_.result_answers(0),  layout_.leaving_answers(0, 0)};
    return static_cast<std::uint32_t>(std::count_if(
        std::begin(ends), std::end(ends), [&](std::uint32_t end) { return slot >= end; }));
  }

  std::size_t stand_in(std::uint32_t rank) const {
    const std::size_t cube = cube_of(rank);
    const OfCube& of = of_cube_[cube];
    const std::uint32_t above = (rank - layout_.cubes()[cube].first) >> of.alike;
    return of.node + static_cast<std::size_t>(std::bit_width(above));
  }

  /// The receiver to which the stand-in of `peer` sends what `peer` would send to `self`.
  std::uint32_t counterpart(std::uint32_t self, std::uint32_t peer) const {
    const std::vector<Cube>& cubes = layout_.cubes();
    const std::size_t of_self = cube_of(self), of_peer = cube_of(peer);
    const std::uint32_t stand_in_place = ranks_[stand_in(peer)] - cubes[of_peer].first;
    const std::uint32_t place = self - cubes[of_self].first;
    const std::uint32_t peer_place = peer - cubes[of_peer].first;
    if (of_self == of_peer) return cubes[of_self].first + (stand_in_place ^ place ^ peer_place);
    const std::uint32_t size = 1u << cubes[of_self].bits;
    return cubes[of_self].first +
           (of_self > of_peer ? stand_in_place % size : stand_in_place + place - peer_place);
  }

 private:
  struct OfCube {
    std::size_t node = 0;     // the first one that is followed
    std::uint32_t place = 0;  // of its first rank
    std::uint32_t alike = 0;  // the first 2^alike ranks of the cube do alike
  };
  std::size_t cube_of(std::uint32_t rank) const {
    const std::vector<Cube>& cubes = layout_.cubes();
    std::size_t cube = 0;
    while (cube + 1 < cubes.size() && cubes[cube + 1].first <= rank) ++cube;
    return cube;
  }

  plan::HalvingLayout layout_;
  std::vector<OfCube> of_cube_ = {};
  std::vector<std::uint32_t> ranks_ = {};
};

class Halving {
 public:
  Halving(const CanonicalShape& shape, const plan::Network& network)
      : ranks_per_node_(shape.ranks_per_node), between_(network.between), inside_(network.inside) {
    const FollowedNodes followed(shape.rank_count);
    std::vector<plan::Plan> plans;
    for (const std::uint32_t rank : followed.ranks())
      plans.push_back(plan::canonical_halving_allreduce(Rank{rank}, shape.rank_count));
    // If the payload has fewer elements than parts, some parts are empty.
    const std::uint64_t parts = plans.front().parts;
    const std::uint64_t bytes = (shape.bytes + parts - 1) / parts;
    part_ = times_of(bytes);
    empty_ = times_of(0);
    work_ = between_.work_time(bytes);
    for (const plan::Plan& plan : plans) add_node(followed, plan);
    for (std::size_t node = 0; node < nodes_.size(); ++node) connect(followed, node, plans[node]);
  }

  /// Returns nothing if a rank waits for a message that nobody sends: the model does not hold then.
  std::optional<Picoseconds> time() {
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) take_turn_at(rank, 0);
    while (!coming_.empty()) {
      const Coming next = coming_.top();
      coming_.pop();
      if (next.is_turn())
        go_on(next.rank, next.at);
      else
        receive(next);
    }
    Picoseconds longest = 0;
    for (const RankState& rank : ranks_) {
      if (rank.next < nodes_[rank.node].events.size()) return {};
      longest = std::max(longest, rank.clock);
    }
    return longest;
  }

 private:
  struct Times {
    Picoseconds store = 0, port = 0, travel = 0;
  };
  Times times_of(std::uint64_t bytes) const {
    return {.store = inside_.store_time(bytes),
            .port = between_.port_time(bytes),
            .travel = between_.travel_time(bytes)};
  }

  enum class Kind : std::uint8_t { put, await, work };
  /// A step of the first rank of a node.  Each other rank of the node makes it, too, with a peer
  /// that differs from it in the same bits.
  struct Event {
    Kind kind;
    bool is_inside = false, is_part = false;
    std::uint32_t other = 0;           // inside the node: bits in which the peer differs
    std::uint32_t number = 0;          // of an await: its number in the node
    std::uint32_t first = 0, end = 0;  // of a put: its receivers
  };
  struct Receiver {
    std::uint32_t node, await;
  };
  struct Node {
    std::vector<Event> events = {};
    std::vector<Receiver> receivers = {};
    std::uint32_t awaits = 0;
    Picoseconds transmit_free = 0, receive_free = 0;
  };
  struct Message {
    Picoseconds at;  // when it has passed the port
    std::uint32_t await;
  };
  struct RankState {
    std::size_t node;
    std::uint32_t place;
    std::size_t next = 0;
    Picoseconds clock = 0;
    bool waits = false;
    std::vector<Picoseconds> visible = {};  // by numbers of awaits
    std::vector<Message> coming = {};
    std::size_t seen = 0;  // how many of `coming`
  };
  /// An event in the queue: a message reaches its receiver's port, or a rank goes on.
  struct Coming {
    Picoseconds at;
    std::uint32_t from;  // at one instant, lower ranks come first, each with its turn first
    std::uint32_t rank;
    std::uint32_t await;
    bool is_part;

    static constexpr std::uint32_t of_turn = UINT32_MAX;
    bool is_turn() const { return await == of_turn; }
    /// A total order, so that no library's heap decides.  Messages of one rank to another at one
    /// instant stand for those of several ranks: the one awaited first comes last.  (If it comes
    /// first, some halvings take 0.93 of the recurrence, else at least 0.97.)
    friend bool operator>(const Coming& left, const Coming& right) {
      const auto key = [](const Coming& one) {
        return std::tuple(one.at, one.from, !one.is_turn(), one.rank, ~one.await);
      };
      return key(left) > key(right);
    }
  };
  // Values of `visible` that are no instants.
  static constexpr Picoseconds not_sent = -1, is_seen = -2;

  void add_node(const FollowedNodes& followed, const plan::Plan& plan) {
    Node node;
    const std::uint32_t self = index_of(plan.self);
    for (const Step& step : plan.steps) {
      Event event{.kind = Kind::work};
      if (step.action == Action::put || step.action == Action::await) {
        const std::uint32_t peer = index_of(step.peer);
        event.kind = step.action == Action::put ? Kind::put : Kind::await;
        event.is_inside = peer / ranks_per_node_ == self / ranks_per_node_;
        event.is_part = step.payloads > 0;
        event.other = event.is_inside ? peer ^ self : 0;
        if (event.kind == Kind::await) event.number = node.awaits++;
      } else if (step.action != Action::combine) {
        continue;
      }
      node.events.push_back(event);
    }
    for (std::uint32_t place = 0; place < ranks_per_node_; ++place)
      ranks_.push_back({.node = nodes_.size(),
                        .place = place,
                        .visible = std::vector<Picoseconds>(node.awaits, not_sent)});
    nodes_.push_back(std::move(node));
    Streams& puts = puts_.emplace_back();
    std::uint32_t at = 0;
    for (const Step& step : plan.steps) {
      if (step.action == Action::put)
        puts[{index_of(step.peer), followed.kind_of(step.slot)}].push_back(at);
      at += step.action == Action::put || step.action == Action::await ||
                    step.action == Action::combine
                ? 1
                : 0;
    }
  }

  /// Finds for each message that a node awaits the one that stands for it.
  void connect(const FollowedNodes& followed, std::size_t number, const plan::Plan& plan) {
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> counts;
    std::uint32_t await = 0;
    for (const Step& step : plan.steps) {
      if (step.action != Action::await) continue;
      const std::uint32_t peer = index_of(step.peer);
      const std::uint32_t kind = followed.kind_of(step.slot);
      const std::uint32_t index = counts[{peer, kind}]++;
      const std::size_t from = followed.stand_in(peer);
      const auto& puts = puts_[from][{followed.counterpart(index_of(plan.self), peer), kind}];
      // A rank that sends carried values gets more answers than its stand-in sends.
      if (index >= puts.size())
        for (std::uint32_t place = 0; place < ranks_per_node_; ++place)
          ranks_[number * ranks_per_node_ + place].visible[await] = is_seen;
      else
        awaited_.push_back({from, puts[index], {static_cast<std::uint32_t>(number), await}});
      ++await;
    }
    if (number + 1 < nodes_.size()) return;
    std::sort(awaited_.begin(), awaited_.end(), [](const Awaited& left, const Awaited& right) {
      const auto key = [](const Awaited& one) {
        return std::tuple(one.node, one.put, one.receiver.node, one.receiver.await);
      };
      return key(left) < key(right);
    });
    for (const Awaited& awaited : awaited_) {
      Node& node = nodes_[awaited.node];
      Event& put = node.events[awaited.put];
      if (put.end == 0) put.first = static_cast<std::uint32_t>(node.receivers.size());
      node.receivers.push_back(awaited.receiver);
      put.end = static_cast<std::uint32_t>(node.receivers.size());
    }
  }

  void take_turn_at(std::uint32_t number, Picoseconds at) {
    coming_.push({at, number, number, Coming::of_turn, false});
  }
  /// Whether the queue has an event before that instant.
  bool is_behind(Picoseconds at, Picoseconds now) const {
    return at > now && !coming_.empty() && coming_.top().at < at;
  }

  void go_on(std::uint32_t number, Picoseconds now) {
    RankState& rank = ranks_[number];
    const Node& node = nodes_[rank.node];
    rank.waits = false;
    for (; rank.next < node.events.size(); ++rank.next) {
      const Event& event = node.events[rank.next];
      if (event.kind == Kind::work) {
        rank.clock += work_;
        continue;
      }
      if (event.kind == Kind::put && event.is_inside) {
        store(rank, event);
        continue;
      }
      if (event.kind == Kind::await && rank.visible[event.number] == is_seen) continue;
      if (is_behind(rank.clock, now)) return take_turn_at(number, rank.clock);
      now = std::max(now, rank.clock);
      if (event.kind == Kind::put)
        send(number, event);
      else if (!(event.is_inside ? look(number, event, now) : poll_for(number, event, now)))
        return;
    }
  }

  void wake(std::uint32_t number, Picoseconds at) {
    RankState& rank = ranks_[number];
    if (!rank.waits) return;
    rank.waits = false;
    take_turn_at(number, std::max(at, rank.clock));
  }

  void store(RankState& rank, const Event& event) {
    rank.clock += (event.is_part ? part_ : empty_).store;
    const Picoseconds visible = rank.clock + inside_.latency;
    const Node& node = nodes_[rank.node];
    for (std::uint32_t i = event.first; i < event.end; ++i) {
      const Receiver& receiver = node.receivers[i];
      const std::uint32_t to = receiver.node * ranks_per_node_ + (rank.place ^ event.other);
      ranks_[to].visible[receiver.await] = visible;
      wake(to, visible);
    }
  }

  void send(std::uint32_t number, const Event& event) {
    RankState& rank = ranks_[number];
    const Times& times = event.is_part ? part_ : empty_;
    Node& node = nodes_[rank.node];
    const Picoseconds leaves = std::max(rank.clock, node.transmit_free);
    node.transmit_free = leaves + times.port;
    for (std::uint32_t i = event.first; i < event.end; ++i) {
      const Receiver& receiver = node.receivers[i];
      coming_.push({leaves + times.travel, number, receiver.node * ranks_per_node_ + rank.place,
                    receiver.await, event.is_part});
    }
    rank.clock += between_.rank_gap;
  }

  void receive(const Coming& message) {
    RankState& rank = ranks_[message.rank];
    Picoseconds& free = nodes_[rank.node].receive_free;
    const Picoseconds at = std::max(message.at, free);
    free = at + (message.is_part ? part_ : empty_).port;
    rank.coming.push_back({at, message.await});
    wake(message.rank, at);
  }

  /// The rank sees the messages that have come by then.
  void poll(RankState& rank, Picoseconds now) const {
    rank.clock = now;
    for (; rank.seen < rank.coming.size() && rank.coming[rank.seen].at <= now; ++rank.seen) {
      rank.visible[rank.coming[rank.seen].await] = is_seen;
      rank.clock += between_.receive_overhead;
    }
  }
  Picoseconds next_delivery(const RankState& rank) const {
    return rank.seen == rank.coming.size() ? std::numeric_limits<Picoseconds>::max()
                                           : std::max(rank.clock, rank.coming[rank.seen].at);
  }

  /// Returns whether the rank has taken a message of its own node; if not, it waits for it.
  bool look(std::uint32_t number, const Event& event, Picoseconds now) {
    RankState& rank = ranks_[number];
    const Picoseconds visible = rank.visible[event.number];
    if (visible == not_sent) {
      rank.waits = true;
      return false;
    }
    if (is_behind(visible, now)) {
      take_turn_at(number, visible);
      return false;
    }
    while (rank.clock < visible && next_delivery(rank) < visible) poll(rank, next_delivery(rank));
    rank.clock = std::max(rank.clock, visible) + inside_.receive_overhead;
    return true;
  }

  /// Returns whether the rank has seen a message of another node; if not, it waits for it.
  bool poll_for(std::uint32_t number, const Event& event, Picoseconds now) {
    RankState& rank = ranks_[number];
    while (rank.visible[event.number] != is_seen) {
      const Picoseconds next = next_delivery(rank);
      if (next == std::numeric_limits<Picoseconds>::max()) {
        rank.waits = true;
        return false;
      }
      if (is_behind(next, now)) {
        take_turn_at(number, next);
        return false;
      }
      poll(rank, next);
      now = std::max(now, next);
    }
    return true;
  }

  /// The puts of a node, by receiver and kind.
  using Streams = std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::uint32_t>>;
  struct Awaited {
    std::size_t node;
    std::uint32_t put;
    Receiver receiver;
  };

  std::uint32_t ranks_per_node_;
  const plan::LogGP& between_;
  const plan::NodeMemory& inside_;
  Times empty_ = {}, part_ = {};
  Picoseconds work_ = 0;
  std::vector<Node> nodes_ = {};
  std::vector<RankState> ranks_ = {};
  std::vector<Streams> puts_ = {};
  std::vector<Awaited> awaited_ = {};
  std::priority_queue<Coming, std::vector<Coming>, std::greater<>> coming_ = {};
};

}  // namespace

std::optional<Picoseconds> halving_time(const CanonicalShape& shape, const plan::Network& network) {
  return Halving(shape, network).time();
}

}  // namespace tutti::tune
