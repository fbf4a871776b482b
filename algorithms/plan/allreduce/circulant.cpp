// See circulant.hpp.
//
//   slots   of each other rank of the node, by how far behind it stands: one for each sum held here
//           then of other nodes, by how far ahead of the sender the owner's node is: 1 .. N-1
//           then results, by how far ahead of this rank their owners are
//           then answers, of each run of sums, and of results
#include "plan/allreduce/circulant.hpp"

#include <algorithm>
#include <cassert>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "plan/core/node_shares.hpp"
#include "plan/core/peer_stream.hpp"
#include "plan/core/per_round.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {
namespace {

enum class Results { own_part, everywhere };

/// The distances of blocks that a rank adds up, and their owners.
std::vector<std::pair<std::uint32_t, Rank>> held_by(const NodeShares& shares, Rank rank) {
  const std::uint32_t node = shares.node_of(rank);
  std::vector<std::pair<std::uint32_t, Rank>> held;
  for (std::uint32_t distance = 0; distance < shares.node_count(); ++distance)
    shares.for_held(rank, shares.ahead(node, distance), [&](Rank owner) {
      held.push_back({distance, owner});
    });
  return held;
}

/// Numbers of blocks and messages, of the rank that has most.
struct Extent {
  std::size_t held = 0;          // blocks that it adds up
  std::size_t held_in_node = 0;  // likewise, of ranks that share a node
  std::size_t sent_in_node = 0;  // messages to the others of its node, or from them
  std::size_t slots_in_node = 0;
};

Extent extent_of(const NodeShares& shares) {
  Extent extent;
  for (std::uint32_t node = 0; node < shares.node_count(); ++node) {
    // The first member holds most, the last one least.
    const std::span<const Rank> members = shares.members(node);
    const std::size_t held = held_by(shares, members.front()).size();
    extent.held = std::max(extent.held, held);
    if (members.size() == 1) {
      if (shares.are_of_one_size()) break;
      continue;
    }
    extent.held_in_node = std::max(extent.held_in_node, held);
    extent.sent_in_node = std::max({extent.sent_in_node, (members.size() - 1) * held,
                                    shares.rank_count() - held_by(shares, members.back()).size()});
    if (shares.are_of_one_size()) break;  // all nodes are alike
  }
  extent.slots_in_node = (shares.largest() - 1) * extent.held_in_node;
  return extent;
}

class Builder {
 public:
  Builder(Rank self, const CirculantShape& shape, Results results)
      : shares_(shape.rank_count, shape.node_of),
        extent_(extent_of(shares_)),
        results_(results),
        node_(shares_.node_of(self)),
        place_(shares_.place_of(self)) {
    first_.assign(nodes() + 1, 0);
    for (const auto& [distance, owner] : held_by(shares_, self)) {
      sums_.push_back({.owner = owner, .at = {}});
      first_[distance + 1] = sums_.size();
    }
    std::partial_sum(first_.begin(), first_.end(), first_.begin(),
                     [](std::size_t before, std::size_t next) { return std::max(before, next); });
    const Skips skips = shares_.are_of_one_size() ? shape.skips : Skips::ones;
    plan_.self = self;
    plan_.rank_count = shape.rank_count;
    plan_.algorithm =
        std::string(shares_nodes() ? "node_" : "") +
        (skips == Skips::ones && results == Results::own_part ? "direct" : "circulant");
    plan_.all_alike = shares_.are_of_one_size();
    plan_.parts = static_cast<std::uint16_t>(shape.rank_count);
    make_schedule(skips);
  }

  Plan build() && {
    tell_node();
    for (std::size_t distance = nodes(); distance-- > 0;) {
      add_up(distance);
      tell_complete();
    }
    for (Run& run : runs_)
      while (run.in.taken() < run.length) {
        take(run);
        tell_complete();
      }
    if (results_ == Results::everywhere) allgather();
    count_messages();
    if (results_ == Results::everywhere && plan_.incoming_max == 0)
      plan_.incoming_max = most_from_one();
    return std::move(plan_);
  }

 private:
  struct Sum {
    Rank owner;
    Register at;
    bool is_there = false;
  };
  /// The sums for the node `skip` ahead, with the distances skip + length - 1 down to skip, and in
  /// an allreduce their results, which come back from there.
  struct Run {
    std::size_t skip;
    std::uint32_t length;
    std::uint32_t round;
    OutgoingStream out;  // sums, ahead
    IncomingStream in;
    OutgoingStream results_out;  // behind
    IncomingStream results_in;

    std::size_t distance(std::uint32_t i) const { return skip + length - 1 - i; }
  };

  std::span<const Rank> here() const { return shares_.members(node_); }
  std::size_t nodes() const { return shares_.node_count(); }
  bool shares_nodes() const { return shares_.node_count() < shares_.rank_count(); }
  Register next_partial() { return partial_register(plan_.partial_count++); }

  void make_schedule(Skips skips) {
    waiting_for_.assign(nodes(), 0);
    std::size_t left = nodes();
    std::uint32_t round = shares_nodes() ? 1 : 0;
    std::size_t slots = extent_.slots_in_node + halves() * (nodes() - 1);
    std::uint32_t longest = 0;
    for (const std::uint32_t length : circulant_runs(static_cast<std::uint32_t>(left), skips)) {
      left -= length;
      // If any of these sums waits for another round, the one of the smallest distance does.
      if (waiting_for_[left] > 0) ++round;
      const auto first_answer = static_cast<std::uint32_t>(slots);
      const AnswerLines answers{first_answer}, result_answers{first_answer + answer_count(length)};
      const auto skip = static_cast<std::uint32_t>(left);
      const Rank ahead = alike(shares_.ahead(node_, skip));
      const Rank behind = alike(shares_.behind(node_, skip));
      runs_.push_back({.skip = left,
                       .length = length,
                       .round = round,
                       .out = {steps_, ahead, answers},
                       .in = {steps_, behind, answers, length},
                       .results_out = {steps_, behind, result_answers},
                       .results_in = {steps_, ahead, result_answers, length}});
      for (std::uint32_t i = 0; i < length; ++i) ++waiting_for_[i];
      slots += halves() * answer_count(length);
      longest = std::max(longest, length);
    }
    const std::size_t lines = slots - extent_.slots_in_node - halves() * (nodes() - 1);
    plan_.slot_count = static_cast<std::uint16_t>(slots);
    plan_.line_slot_count = static_cast<std::uint16_t>(lines);
    next_ = nodes() - 1;
    if (longest > windows_in_flight * window) plan_.incoming_max = incoming_of_windows;
  }

  std::size_t halves() const { return results_ == Results::everywhere ? 2 : 1; }
  std::uint16_t slot_in_node(std::size_t offset, std::size_t held) const {
    return static_cast<std::uint16_t>((offset - 1) * extent_.held_in_node + held);
  }
  /// The slot of a sum with that distance at its sender.
  std::uint16_t slot_across(std::size_t distance) const {
    return static_cast<std::uint16_t>(extent_.slots_in_node + distance - 1);
  }
  /// The slot of a result with that distance at its receiver.
  std::uint16_t result_slot(std::size_t distance) const {
    return static_cast<std::uint16_t>(slot_across(distance) + nodes() - 1);
  }

  /// Goes to a round, or stays in a later one in which something was sent already.
  void go_to_round(std::uint32_t round) {
    round_ = std::max(round_, round);
    steps_.set_round(round_);
  }

  /// Sends each of the others of the node what it adds up, the farthest blocks first.
  void tell_node() {
    std::vector<std::vector<std::pair<std::uint32_t, Rank>>> held(here().size());
    for (std::size_t offset = 1; offset < here().size(); ++offset)
      held[offset] = held_by(shares_, here()[(place_ + offset) % here().size()]);
    for (std::size_t i = extent_.held_in_node; i-- > 0;)
      for (std::size_t offset = 1; offset < here().size(); ++offset) {
        if (i >= held[offset].size()) continue;
        const Register own = next_partial();
        steps_.begin_part(part_of(held[offset][i].second));
        steps_.copy(source_register, own);
        steps_.put(here()[(place_ + offset) % here().size()], slot_in_node(offset, i), 1, own);
      }
  }

  /// Adds up what this node contributes to the blocks of a distance, once.
  void add_up(std::size_t distance) {
    for (std::size_t i = first_[distance]; i < first_[distance + 1]; ++i) {
      Sum& sum = sums_[i];
      if (sum.is_there) continue;
      sum.is_there = true;
      sum.at = distance == 0 && results_ == Results::own_part ? target_register : next_partial();
      steps_.begin_part(part_of(sum.owner));
      steps_.copy(source_register, sum.at);
      for (std::size_t offset = 1; offset < here().size(); ++offset) {
        const Rank other = here()[(place_ + here().size() - offset) % here().size()];
        steps_.await(other, slot_in_node(offset, i), 1);
        steps_.combine(slot_register(slot_in_node(offset, i)), sum.at);
      }
    }
  }

  std::span<const Sum> sums_of(std::size_t distance) const {
    return std::span(sums_).subspan(first_[distance], first_[distance + 1] - first_[distance]);
  }

  /// The sum of a distance: where nodes have one size there is one, and for the own block.
  Sum& sum_of(std::size_t distance) { return sums_[first_[distance]]; }

  /// Sends the sums that are complete, the farthest first: a nearer sum is never complete before a
  /// farther one.
  void tell_complete() {
    for (; next_ > 0 && waiting_for_[next_] == 0; --next_) {
      const std::span<const Sum> sums = sums_of(next_);
      if (!std::all_of(sums.begin(), sums.end(), [](const Sum& sum) { return sum.is_there; }))
        return;
      tell(next_);
    }
  }

  void tell(std::size_t distance) {
    while (distance < runs_[run_].skip) ++run_;
    Run& run = runs_[run_];
    go_to_round(run.round);
    if (!shares_.are_of_one_size()) {  // all go directly
      for (const Sum& sum : sums_of(distance)) {
        steps_.begin_part(part_of(sum.owner));
        steps_.put(sum.owner, slot_across(distance), 1, sum.at);
      }
      return;
    }
    while (run.in.taken() < run.out.to_be_taken()) take(run);
    const Sum& sum = sum_of(distance);
    run.out.begin(part_of(sum.owner));
    run.out.put(slot_across(distance), sum.at);
  }

  /// Takes the next sum from behind; where nodes differ in size, only the own block comes.  All
  /// ranks do the same at the same point, so it was sent before what this rank sends next: nobody
  /// waits in a circle.
  void take(Run& run) {
    const std::size_t distance = run.distance(run.in.taken()), there = distance - run.skip;
    add_up(there);
    go_to_round(run.round);
    const Sum& sum = sum_of(there);
    run.in.await(slot_across(distance), part_of(sum.owner));
    steps_.combine(slot_register(slot_across(distance)), sum.at);
    --waiting_for_[there];
    run.in.finish();
  }

  /// The rank of another node that stands where this one does.
  Rank alike(std::uint32_t node) const { return shares_.holder(plan_.self, node); }

  /// Sends results back along the skips to the ranks that have sent the sums.
  void allgather() {
    result_at_.resize(nodes());
    result_at_[0] = sums_.front().at;
    steps_.begin_part(part_of(plan_.self));
    steps_.copy(*result_at_[0], target_register);
    back_ = runs_.size();
    if (back_ > 0) go_back();
    tell_results();
    for (std::size_t run = runs_.size(); run-- > 0;)
      while (runs_[run].results_in.taken() < runs_[run].length) {
        take_result(run);
        tell_results();
      }
  }

  void go_back() {
    --back_;
    told_ = 0;
    runs_[back_].round = round_ + 1;
  }

  /// Sends the results that are known, run after run, the nearest first.
  void tell_results() {
    while (back_ < runs_.size()) {
      Run& run = runs_[back_];
      if (told_ == run.length) {
        if (back_ == 0) return;
        go_back();
        continue;
      }
      if (!result_at_[told_]) return;
      go_to_round(run.round);
      while (run.results_in.taken() < run.results_out.to_be_taken()) take_result(back_);
      run.results_out.begin(part_of(owner_at(told_)));
      run.results_out.put(result_slot(told_ + run.skip), *result_at_[told_]);
      ++told_;
    }
  }

  /// Takes the next result of a run.
  void take_result(std::size_t of_run) {
    Run& run = runs_[of_run];
    const std::size_t distance = run.skip + run.results_in.taken();
    const std::uint16_t slot = result_slot(distance);
    go_to_round(run.round);
    run.results_in.await(slot, part_of(owner_at(distance)));
    Register at = slot_register(slot);
    if (std::any_of(runs_.begin(), runs_.begin() + static_cast<std::ptrdiff_t>(of_run),
                    [&](const Run& earlier) { return distance < earlier.length; })) {
      at = next_partial();  // to be passed on
      steps_.copy(slot_register(slot), at);
    }
    steps_.copy(at, target_register);
    result_at_[distance] = at;
    run.results_in.finish();
  }

  Rank owner_at(std::size_t distance) const {
    return shares_.members(shares_.ahead(node_, static_cast<std::uint32_t>(distance))).front();
  }

  void count_messages() {
    plan_.per_round.assign(plan_.rank_count > 1 ? round_ + 1 : 0, 0);
    if (shares_.are_of_one_size()) {  // every rank sends as many as this one
      for (const Step& step : plan_.steps)
        if (step.action == Action::put) ++plan_.per_round[step.round];
      return;
    }
    plan_.per_round = {static_cast<std::uint32_t>(extent_.sent_in_node),
                       static_cast<std::uint32_t>(extent_.held - 1)};
  }

  /// The most messages of one peer in a call.  No rank is in the next call of an allreduce before
  /// this rank has taken them, because it needs this rank's results.
  std::uint32_t most_from_one() const {
    std::map<Rank, std::uint32_t> messages;
    std::uint32_t most = 0;
    for (const Step& step : plan_.steps)
      if (step.action == Action::await) most = std::max(most, ++messages[step.peer]);
    return most;
  }

  NodeShares shares_;
  Extent extent_;
  Results results_;
  std::uint32_t node_, place_;
  std::vector<Sum> sums_;           // held here, by distance
  std::vector<std::size_t> first_;  // of each distance, and behind the last
  std::vector<Run> runs_;
  std::vector<std::size_t> waiting_for_;            // by distance: what comes before it goes
  std::size_t next_ = 0, run_ = 0;                  // the distance that is sent next, and its run
  std::vector<std::optional<Register>> result_at_;  // by distance, as far as they are known
  std::size_t back_ = 0;  // the run whose results are sent, and how many were
  std::uint32_t told_ = 0;
  std::uint32_t round_ = 0;
  Plan plan_;
  StepWriter steps_{plan_};
};

}  // namespace

std::vector<std::uint32_t> circulant_runs(std::uint32_t rank_count, Skips skips) {
  // Runs are short enough to need no answers if that takes at most 12 partners more than halves: in
  // virtual time (FDR) the answers of halves cost an eighth for 64 ranks and 1 MiB.
  const std::uint32_t longest = std::max(windows_in_flight * window, rank_count / 12);
  std::vector<std::uint32_t> runs;
  for (std::uint32_t left = rank_count; left > 1; left -= runs.back())
    runs.push_back(skips == Skips::few ? std::min(left / 2, longest) : 1);
  return runs;
}

bool is_circulant_reduce_scatter(const CirculantShape& shape) {
  if (shape.rank_count > slots_max) return false;
  const NodeShares shares(shape.rank_count, shape.node_of);
  return 2 * (extent_of(shares).slots_in_node + shares.node_count() - 1) <= slots_max;
}

Plan circulant_reduce_scatter(Rank self, const CirculantShape& shape) {
  assert(is_circulant_reduce_scatter(shape) && index_of(self) < shape.rank_count);
  return Builder(self, shape, Results::own_part).build();
}

bool is_circulant_allreduce(std::uint32_t rank_count) {
  return rank_count > 0 && 4 * (rank_count - std::uint64_t{1}) <= slots_max;
}

Plan circulant_allreduce(Rank self, std::uint32_t rank_count) {
  assert(is_circulant_allreduce(rank_count) && index_of(self) < rank_count);
  return Builder(self, {.rank_count = rank_count}, Results::everywhere).build();
}

}  // namespace tutti::plan
