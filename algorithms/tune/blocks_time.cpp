#include "tune/blocks_time.hpp"

#include <algorithm>
#include <vector>

#include "plan/blocks/block_dissemination.hpp"

namespace tutti::tune {
namespace {

using plan::Action, plan::Picoseconds, plan::Step;

/// Follows the ranks of one node.  Each goes through the plan of a rank that is a node of its own,
/// and also stores each block that is new in the node for the other ranks.  All nodes do the same,
/// so the messages that a rank sends arrive at the rank itself, as those of another node would.
class FollowedBlocks {
 public:
  FollowedBlocks(const BlocksShape& shape, const plan::Plan& plan, const plan::Network& network)
      : network_(network),
        steps_(plan.steps),
        node_count_(shape.node_count),
        others_(shape.ranks_per_node - Picoseconds{1}),
        port_(network.between.port_time(shape.bytes)),
        travel_(network.between.travel_time(shape.bytes)),
        port_of_answer_(network.between.port_time(0)),
        travel_of_answer_(network.between.travel_time(0)),
        stores_(others_ * network.inside.store_time(shape.bytes)),
        taken_here_(others_ * network.inside.receive_overhead),
        places_(shape.ranks_per_node) {
    for (Place& place : places_) place.message_of.assign(plan.slot_count, none);
  }

  Picoseconds time() {
    // The rank with the earliest clock acts until its clock moves: others may use the port before.
    for (;;) {
      Place* first = nullptr;
      for (Place& place : places_)
        if (place.next < steps_.size() && (first == nullptr || place.clock < first->clock))
          first = &place;
      if (first == nullptr) break;
      const Picoseconds now = first->clock;
      while (first->next < steps_.size() && first->clock == now) run(*first);
    }
    Picoseconds last = 0, ends = 0;
    for (Place& place : places_) {
      if (!place.has_taken) take_from_others(place);
      last = std::max(last, place.clock);
    }
    // A rank also takes what the other ranks of its node have received, node by node.
    for (const Place& place : places_) {
      Picoseconds end = place.clock;
      if (node_count_ > 1 && others_ > 0)
        end = std::max(end + (node_count_ - Picoseconds{2}) * taken_here_,
                       last + network_.inside.latency) +
              taken_here_;
      ends = std::max(ends, end);
    }
    return ends;
  }

 private:
  static constexpr std::size_t none = SIZE_MAX;

  struct Place {
    Picoseconds clock = 0;
    std::size_t next = 0;                      // step
    bool has_taken = false;                    // the own blocks of the others of its node
    std::size_t seen = 0;                      // messages that it has polled
    std::vector<Picoseconds> come = {};        // all that are sent to it, in their order
    std::vector<std::size_t> message_of = {};  // by slot
  };

  void run(Place& place) {
    const Step& step = steps_[place.next];
    if (step.action == Action::put) {
      send(place, step);
    } else if (step.action == Action::await) {
      if (!place.has_taken) return take_from_others(place);
      await(place, place.message_of[step.slot]);
    } else if (step.action == Action::copy && step.into.place == plan::Place::target) {
      place.clock += stores_;
    }
    ++place.next;
  }

  /// Slots of blocks are nodes.  Node 0 sends the block of node `slot` to node `peer` when it
  /// receives that of node `slot - peer`, because all nodes do the same.
  void send(Place& place, const Step& step) {
    const bool is_block = step.payloads > 0;
    const std::uint32_t slot =
        is_block ? (step.slot + node_count_ - index_of(step.peer)) % node_count_ : step.slot;
    const Picoseconds leaves = std::max(place.clock, port_free_);
    port_free_ = leaves + (is_block ? port_ : port_of_answer_);
    place.message_of[slot] = place.come.size();
    place.come.push_back(leaves + (is_block ? travel_ : travel_of_answer_));
    place.clock += network_.between.rank_gap;
  }

  /// Waits for the message, and also polls all others that have arrived by then.
  void await(Place& place, std::size_t message) {
    while (place.seen <= message && place.seen < place.come.size()) {
      place.clock = std::max(place.clock, place.come[place.seen]);
      Picoseconds count = 0;
      for (; place.seen < place.come.size() && place.come[place.seen] <= place.clock; ++place.seen)
        ++count;
      place.clock += count * network_.between.receive_overhead;
    }
  }

  void take_from_others(Place& place) {
    place.has_taken = true;
    if (others_ > 0)
      place.clock = std::max(place.clock, stores_ + network_.inside.latency) + taken_here_;
  }

  const plan::Network& network_;
  const std::vector<Step>& steps_;
  std::uint32_t node_count_;
  Picoseconds others_, port_, travel_, port_of_answer_, travel_of_answer_, stores_, taken_here_;
  std::vector<Place> places_;
  Picoseconds port_free_ = 0;
};

}  // namespace

bool has_blocks_time(const BlocksShape& shape) {
  constexpr std::uint64_t ranks_max = 1024, turns_max = 1u << 15;
  const std::uint64_t ranks = std::uint64_t{shape.node_count} * shape.ranks_per_node;
  return ranks <= ranks_max && ranks * shape.ranks_per_node <= turns_max;
}

plan::Picoseconds blocks_time(const BlocksShape& shape, const plan::PerRound& per_round,
                              const plan::Network& network) {
  const plan::Plan plan = plan::dissemination_allgather(Rank{0}, shape.node_count, per_round);
  return FollowedBlocks(shape, plan, network).time();
}

}  // namespace tutti::tune
