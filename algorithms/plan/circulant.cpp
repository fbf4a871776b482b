// See circulant.hpp.
//
//   slots   of each other rank of the node, by how far behind it stands: one for each sum held here
//           then of other nodes, by how far ahead of the sender the owner's node is: 1 .. N-1
//           then results, by how far ahead of this rank their owners are
#include "plan/circulant.hpp"

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>
#include <vector>

#include "plan/nodes.hpp"
#include "plan/per_round.hpp"
#include "plan/steps.hpp"

namespace tutti::plan {
namespace {

using Members = std::vector<Rank>;

enum class Results { own_part, everywhere };

/// Who adds up what, alike on all ranks.
class Deal {
 public:
  explicit Deal(const CirculantShape& shape)
      : members_(members_of_nodes(shape.rank_count, shape.node_of)) {
    const auto by_size = [](const Members& a, const Members& b) { return a.size() < b.size(); };
    const auto [smallest, largest] = std::minmax_element(members_.begin(), members_.end(), by_size);
    is_even_ = smallest->size() == largest->size();
    others_max_ = largest->size() - 1;
    for (const Members& node : members_) {
      const std::size_t held = held_count(node.size(), 0);
      most_held_ = std::max(most_held_, held);
      if (node.size() == 1) continue;
      held_in_node_ = std::max(held_in_node_, held);
      most_in_node_ = std::max({most_in_node_, (node.size() - 1) * held,
                                shape.rank_count - held_count(node.size(), node.size() - 1)});
    }
  }

  std::size_t node_count() const { return members_.size(); }
  const Members& members(std::size_t node) const { return members_[node]; }
  const Members& ahead(std::size_t node, std::size_t distance) const {
    return members_[(node + distance) % node_count()];
  }
  const Members& behind(std::size_t node, std::size_t distance) const {
    return members_[(node + node_count() - distance) % node_count()];
  }

  /// The distances of blocks that the rank at `place` of a node adds up, and their owners.
  std::vector<std::pair<std::size_t, Rank>> held_by(std::size_t node, std::size_t place) const {
    std::vector<std::pair<std::size_t, Rank>> held;
    for (std::size_t distance = 0; distance < node_count(); ++distance) {
      const Members& there = ahead(node, distance);
      for (std::size_t at = place; at < there.size(); at += members(node).size())
        held.push_back({distance, there[at]});
    }
    return held;
  }

  bool is_even() const { return is_even_; }
  std::size_t most_held() const { return most_held_; }
  /// Messages to the others of its node, or from them, of the rank that has most.
  std::size_t most_in_node() const { return most_in_node_; }
  /// By a rank of a node with others.
  std::size_t held_in_node() const { return held_in_node_; }
  std::size_t slots_in_node() const { return others_max_ * held_in_node_; }
  std::size_t slot_count() const { return slots_in_node() + node_count() - 1; }

 private:
  std::size_t held_count(std::size_t size, std::size_t place) const {
    std::size_t held = 0;
    for (const Members& node : members_)
      if (node.size() > place) held += (node.size() - place + size - 1) / size;
    return held;
  }

  std::vector<Members> members_;
  bool is_even_;
  std::size_t others_max_;
  std::size_t most_held_ = 0, most_in_node_ = 0, held_in_node_ = 0;
};

class Builder {
 public:
  Builder(Rank self, const CirculantShape& shape, Results results)
      : deal_(shape), results_(results) {
    const auto found = [&] { return std::find(here().begin(), here().end(), self); };
    while (found() == here().end()) ++node_;
    place_ = static_cast<std::size_t>(found() - here().begin());
    for (const auto& [distance, owner] : deal_.held_by(node_, place_))
      sums_.push_back({distance, owner, {}});
    const bool shares = deal_.node_count() < shape.rank_count;
    plan_.self = self;
    plan_.rank_count = shape.rank_count;
    plan_.all_alike = deal_.is_even();
    plan_.parts = static_cast<std::uint16_t>(shape.rank_count);
    plan_.slot_count = static_cast<std::uint16_t>(deal_.slot_count());
    if (shares) plan_.per_round = {static_cast<std::uint32_t>(deal_.most_in_node())};
    make_schedule(deal_.is_even() ? shape.run : 1);
    plan_.algorithm = std::string(shares ? "node_" : "") + (is_direct_ ? "direct" : "circulant");
    if (results_ == Results::own_part) return;
    plan_.algorithm = "circulant";
    plan_.slot_count = static_cast<std::uint16_t>(plan_.slot_count + deal_.node_count() - 1);
    // Nobody is in the next call before this rank has looked: without, it has no result to tell.
    for (const Run& one : runs_)
      plan_.incoming_max = std::max(plan_.incoming_max, static_cast<std::uint32_t>(2 * one.length));
  }

  Plan build() && {
    tell_node();
    if (deal_.node_count() > 1) go_to_round(round_across_);
    for (std::size_t distance = deal_.node_count(); distance-- > 0;) {
      add_up(distance);
      if (waiting_for_[distance] == 0) tell(distance);
    }
    for (const Arrival& arrival : arrivals_) receive(arrival);
    if (results_ == Results::everywhere) allgather();
    return std::move(plan_);
  }

 private:
  struct Sum {
    std::size_t distance;
    Rank owner;
    Register at;
  };
  /// From `skip` nodes behind: what is added to the sum of `distance`.
  struct Arrival {
    std::size_t skip;
    std::size_t distance;
    std::uint32_t round;
  };

  static std::uint16_t part_of(Rank rank) { return static_cast<std::uint16_t>(index_of(rank)); }
  const Members& here() const { return deal_.members(node_); }

  /// Which way each distance goes, in which round, and what comes before.
  void make_schedule(std::uint32_t run) {
    const std::size_t nodes = deal_.node_count();
    round_across_ = static_cast<std::uint32_t>(plan_.per_round.size());
    skip_of_.assign(nodes, 0);
    waiting_for_.assign(nodes, 0);
    round_of_.assign(nodes, 0);
    std::uint32_t round = round_across_;
    std::size_t left = nodes;
    for (const std::uint32_t length : circulant_runs(static_cast<std::uint32_t>(nodes), run)) {
      const std::size_t skip = left - length;
      runs_.push_back({skip, length});
      // Of those that go now the smallest distance waits if any does.
      if (waiting_for_[skip] > 0) ++round;
      plan_.per_round.resize(round + 1);
      plan_.per_round[round] += length;
      for (std::size_t distance = left; distance-- > skip;) {
        skip_of_[distance] = skip;
        round_of_[distance] = round;
        arrivals_.push_back({skip, distance - skip, round});
        ++waiting_for_[distance - skip];
      }
      is_direct_ = is_direct_ && length == 1;
      left = skip;
    }
    if (!deal_.is_even())
      plan_.per_round.back() = static_cast<std::uint32_t>(deal_.most_held() - 1);
  }

  std::uint16_t slot_in_node(std::size_t offset, std::size_t held) const {
    return static_cast<std::uint16_t>((offset - 1) * deal_.held_in_node() + held);
  }
  /// Of what was of that distance at its sender.
  std::uint16_t slot_across(std::size_t distance) const {
    return static_cast<std::uint16_t>(deal_.slots_in_node() + distance - 1);
  }

  /// Or stays in a later one, to which it has sent already.
  void go_to_round(std::uint32_t round) {
    round_ = std::max(round_, round);
    steps_.set_round(round_);
  }

  /// Each of the others what it adds up, the farthest first.
  void tell_node() {
    std::vector<std::vector<std::pair<std::size_t, Rank>>> held(here().size());
    for (std::size_t offset = 1; offset < here().size(); ++offset)
      held[offset] = deal_.held_by(node_, (place_ + offset) % here().size());
    for (std::size_t i = deal_.held_in_node(); i-- > 0;)
      for (std::size_t offset = 1; offset < here().size(); ++offset) {
        if (i >= held[offset].size()) continue;
        const Register own = next_partial();
        steps_.begin_part(part_of(held[offset][i].second));
        steps_.copy(source_register, own);
        steps_.put(here()[(place_ + offset) % here().size()], slot_in_node(offset, i), 1, own);
      }
  }

  /// What this node contributes to the blocks of a distance.
  void add_up(std::size_t distance) {
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      if (sums_[i].distance != distance) continue;
      sums_[i].at =
          distance == 0 && results_ == Results::own_part ? target_register : next_partial();
      steps_.begin_part(part_of(sums_[i].owner));
      steps_.copy(source_register, sums_[i].at);
      for (std::size_t offset = 1; offset < here().size(); ++offset) {
        const Rank other = here()[(place_ + here().size() - offset) % here().size()];
        steps_.await(other, slot_in_node(offset, i), 1);
        steps_.combine(slot_register(slot_in_node(offset, i)), sums_[i].at);
      }
    }
  }

  /// Sends the sums of a distance, unless they have arrived.
  void tell(std::size_t distance) {
    if (distance == 0) return;
    go_to_round(round_of_[distance]);
    const std::size_t skip = skip_of_[distance];
    for (const Sum& sum : sums_) {
      if (sum.distance != distance) continue;
      steps_.begin_part(part_of(sum.owner));
      // Where nodes differ, all go directly.
      const Rank peer = skip == distance ? sum.owner : deal_.ahead(node_, skip)[place_];
      steps_.put(peer, slot_across(distance), 1, sum.at);
    }
  }

  /// Of nodes that differ in size only the own block comes from others.
  void receive(const Arrival& arrival) {
    const Members& there = deal_.behind(node_, arrival.skip);
    const std::uint16_t slot = slot_across(arrival.distance + arrival.skip);
    const auto sum = std::find_if(sums_.begin(), sums_.end(), [&](const Sum& one) {
      return arrival.distance == 0 ? one.owner == plan_.self : one.distance == arrival.distance;
    });
    go_to_round(arrival.round);
    steps_.begin_part(part_of(sum->owner));
    steps_.await(there[place_ % there.size()], slot, 1);
    steps_.combine(slot_register(slot), sum->at);
    if (--waiting_for_[arrival.distance] == 0) tell(arrival.distance);
  }

  /// Back along the skips: who had a sum from this rank tells it the result.
  void allgather() {
    std::vector<Register> results{sums_.front().at};  // by distance
    steps_.begin_part(part_of(plan_.self));
    steps_.copy(results.front(), target_register);
    for (std::size_t i = runs_.size(); i-- > 0;) {
      if (i + 1 == runs_.size()) {
        plan_.per_round.push_back(0);
        tell_result(i, 0, results.front());
      }
      if (i > 0) {
        plan_.per_round.push_back(0);
        for (std::size_t distance = 0; distance < results.size(); ++distance)
          tell_result(i - 1, distance, results[distance]);
      }
      const std::size_t skip = runs_[i].skip;
      for (std::size_t distance = skip; distance < skip + runs_[i].length; ++distance) {
        const Rank owner = deal_.ahead(node_, distance).front();
        const std::uint16_t slot = result_slot(distance);
        steps_.begin_part(part_of(owner));
        steps_.await(deal_.ahead(node_, skip).front(), slot, 1);
        results.push_back(slot_register(slot));
        if (is_passed_on(i, distance)) {
          results.back() = next_partial();
          steps_.copy(slot_register(slot), results.back());
        }
        if (i > 0) tell_result(i - 1, distance, results.back());
        steps_.copy(results.back(), target_register);
      }
    }
  }

  /// What comes back by run `i`, by an earlier one.
  bool is_passed_on(std::size_t i, std::size_t distance) const {
    while (i-- > 0)
      if (distance < runs_[i].length) return true;
    return false;
  }

  /// In the last round that was begun, if the rank that run `i` goes back to had that sum.
  void tell_result(std::size_t i, std::size_t distance, const Register& result) {
    if (distance >= runs_[i].length) return;
    go_to_round(static_cast<std::uint32_t>(plan_.per_round.size() - 1));
    ++plan_.per_round.back();
    steps_.begin_part(part_of(deal_.ahead(node_, distance).front()));
    steps_.put(deal_.behind(node_, runs_[i].skip).front(), result_slot(distance + runs_[i].skip), 1,
               result);
  }

  std::uint16_t result_slot(std::size_t distance) const {
    return static_cast<std::uint16_t>(slot_across(distance) + deal_.node_count() - 1);
  }
  Register next_partial() { return partial_register(plan_.partial_count++); }

  /// What goes to one node: the sums of the distances skip .. skip + length - 1.
  struct Run {
    std::size_t skip, length;
  };

  Deal deal_;
  Results results_;
  std::vector<Run> runs_;
  std::size_t node_ = 0, place_ = 0;
  std::vector<Sum> sums_;  // held here, by distance
  std::uint32_t round_across_ = 0, round_ = 0;
  bool is_direct_ = true;
  std::vector<Arrival> arrivals_;
  // Of each distance:
  std::vector<std::size_t> skip_of_, waiting_for_;
  std::vector<std::uint32_t> round_of_;
  Plan plan_;
  StepWriter steps_{plan_};
};

}  // namespace

std::vector<std::uint32_t> circulant_runs(std::uint32_t rank_count, std::uint32_t run) {
  std::vector<std::uint32_t> runs;
  for (std::uint32_t left = rank_count; left > 1; left -= runs.back())
    runs.push_back(std::min(left / 2, run));
  return runs;
}

bool is_circulant_reduce_scatter(const CirculantShape& shape) {
  return shape.rank_count <= slots_max && Deal(shape).slot_count() <= slots_max;
}

Plan circulant_reduce_scatter(Rank self, const CirculantShape& shape) {
  assert(is_circulant_reduce_scatter(shape) && index_of(self) < shape.rank_count && shape.run > 0);
  return Builder(self, shape, Results::own_part).build();
}

bool is_circulant_allreduce(std::uint32_t rank_count) {
  return rank_count > 0 && 2 * (rank_count - std::uint64_t{1}) <= slots_max;
}

Plan circulant_allreduce(Rank self, std::uint32_t rank_count, std::uint32_t run) {
  assert(is_circulant_allreduce(rank_count) && index_of(self) < rank_count && run > 0);
  return Builder(self, {.rank_count = rank_count, .run = run}, Results::everywhere).build();
}

}  // namespace tutti::plan
