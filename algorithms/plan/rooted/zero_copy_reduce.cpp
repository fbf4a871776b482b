// See zero_copy_reduce.hpp.  All slots are lines: references to sources, by the rank that gives
// them and then by turn; references to results, by the rank that has combined them and then by
// turn; the acknowledgement.
#include "plan/rooted/zero_copy_reduce.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "plan/core/per_round.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {
namespace {

enum Round : std::uint32_t { given, combined, acknowledged, round_count };

std::uint64_t slots_of(const ZeroCopyReduce& shape) {
  return 2 * std::uint64_t{shape.rank_count} * shape.turns + 1;
}

class Builder {
 public:
  Builder(Rank self, const ZeroCopyReduce& shape) : self_(self), shape_(shape) {
    plan_ = {.self = self, .rank_count = shape.rank_count, .algorithm = "lanes_zero_copy"};
    plan_.all_alike = false;
    plan_.zero_copy = true;
    plan_.flow_control = FlowControl::acknowledged;
    plan_.parts = static_cast<std::uint16_t>(zero_copy_parts(shape));
    plan_.partial_count = self == shape.root ? std::uint16_t{0} : shape.turns;
    plan_.partials_max = shape.turns;
    plan_.slot_count = plan_.line_slot_count = static_cast<std::uint16_t>(slots_of(shape));
    plan_.per_round = PerRound(round_count);
    plan_.per_round[given] = plan_.parts;
    plan_.per_round[combined] = plan_.parts;
    plan_.per_round[acknowledged] = shape.rank_count - 1;
  }

  Plan build() && {
    for_parts([&](std::uint16_t turn, Rank worker) {
      if (worker == self_) return;
      begin(given, turn, worker);
      steps_.put_reference(worker, slot_of_source(self_, turn), source_register);
    });
    for_parts([&](std::uint16_t turn, Rank worker) {
      begin(given, turn, worker);
      if (worker == self_)
        combine(turn);
      else if (self_ == shape_.root)
        take(turn, worker);
    });
    acknowledge();
    return std::move(plan_);
  }

 private:
  /// f(turn, rank that combines) for each part, in the order of the parts.
  template <class F>
  void for_parts(F&& f) const {
    for (std::uint16_t turn = 0; turn < shape_.turns; ++turn)
      for (std::uint32_t ahead = 0; ahead < shape_.rank_count; ++ahead)
        f(turn, rank_ahead(shape_.root, ahead, shape_.rank_count));
  }

  void begin(Round round, std::uint16_t turn, Rank worker) {
    const std::uint32_t ahead =
        (index_of(worker) + shape_.rank_count - index_of(shape_.root)) % shape_.rank_count;
    steps_.begin_part(static_cast<std::uint16_t>(turn * shape_.rank_count + ahead));
    steps_.set_round(round);
  }

  std::uint16_t slot_of_source(Rank giver, std::uint16_t turn) const {
    return static_cast<std::uint16_t>(index_of(giver) * shape_.turns + turn);
  }
  std::uint16_t slot_of_result(Rank worker, std::uint16_t turn) const {
    return static_cast<std::uint16_t>(shape_.rank_count * shape_.turns +
                                      slot_of_source(worker, turn));
  }
  std::uint16_t slot_of_end() const { return static_cast<std::uint16_t>(plan_.slot_count - 1); }

  void combine(std::uint16_t turn) {
    const bool is_root = self_ == shape_.root;
    const Register into = is_root ? target_register : partial_register(turn);
    bool grows = false;
    for (std::uint32_t ahead = 1; ahead < shape_.rank_count; ++ahead) {
      const Rank giver = rank_ahead(self_, ahead, shape_.rank_count);
      const std::uint16_t slot = slot_of_source(giver, turn);
      steps_.await_reference(giver, slot);
      if (std::exchange(grows, true))
        steps_.grow_by_referenced(giver, slot, into);
      else
        steps_.combine_referenced(giver, slot, into);
    }
    if (is_root) return;
    steps_.set_round(combined);
    steps_.put_reference(shape_.root, slot_of_result(self_, turn), into);
  }

  void take(std::uint16_t turn, Rank worker) {
    const std::uint16_t slot = slot_of_result(worker, turn);
    steps_.set_round(combined);
    steps_.await_reference(worker, slot);
    steps_.copy_referenced(worker, slot, target_register);
  }

  void acknowledge() {
    steps_.begin_part(0);
    steps_.set_round(acknowledged);
    if (self_ != shape_.root) return steps_.await(shape_.root, slot_of_end(), 0);
    for (std::uint32_t ahead = 1; ahead < shape_.rank_count; ++ahead)
      steps_.put(rank_ahead(self_, ahead, shape_.rank_count), slot_of_end(), 0);
  }

  Rank self_;
  ZeroCopyReduce shape_;
  Plan plan_;
  StepWriter steps_{plan_};
};

}  // namespace

std::uint32_t zero_copy_parts(const ZeroCopyReduce& shape) {
  return shape.rank_count * shape.turns;
}

bool is_zero_copy_reduce(const ZeroCopyReduce& shape) {
  return shape.rank_count > 1 && shape.turns > 0 && slots_of(shape) <= slots_max;
}

Plan zero_copy_reduce(Rank self, const ZeroCopyReduce& shape) {
  assert(is_zero_copy_reduce(shape) && index_of(self) < shape.rank_count &&
         index_of(shape.root) < shape.rank_count);
  return Builder(self, shape).build();
}

}  // namespace tutti::plan
