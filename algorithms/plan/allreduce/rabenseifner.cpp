// See rabenseifner.hpp.  Here: which part comes where.
//
//   slots   of the first half: P' / 2^(i+1) for round i, by the bits of the part above i
//           then of the second, likewise
//           then of what the first rank of a group hears: P' for each other one
//           then of what it tells: P'
//
// Parts are ordered by what differs from the own number, the lowest bit counting most, differing
// ones first: so those to be sent first are there first, and with those of the partner alike.
#include "plan/allreduce/rabenseifner.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>
#include <vector>

#include "plan/core/per_round.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {
namespace {

constexpr std::uint32_t parts_max = 64;

std::uint32_t core_of(std::uint32_t rank_count) {
  return std::min(std::bit_floor(rank_count), parts_max);
}

/// Of the largest group.
std::uint32_t group_size_max(std::uint32_t rank_count) {
  const std::uint32_t core = core_of(rank_count);
  return rank_count / core + (rank_count % core > 0 ? 1 : 0);
}

class Builder {
 public:
  Builder(Rank self, std::uint32_t rank_count)
      : core_(core_of(rank_count)),
        bits_(static_cast<std::uint32_t>(std::bit_width(core_) - 1)),
        small_(rank_count / core_),
        large_count_(rank_count % core_),
        largest_(group_size_max(rank_count)) {
    while (group_ + 1 < core_ && index_of(leader(group_ + 1)) <= index_of(self)) ++group_;
    size_ = small_ + (group_ < large_count_ ? 1 : 0);
    plan_.self = self;
    plan_.rank_count = rank_count;
    plan_.algorithm = "rabenseifner";
    plan_.all_alike = largest_ == 1;
    plan_.parts = static_cast<std::uint16_t>(core_);
    if (rank_count == 1) return;
    if (folds()) plan_.per_round.push_back((largest_ - 1) * core_);
    for (std::uint32_t bit = 0; bit < bits_; ++bit) plan_.per_round.push_back(core_ >> (bit + 1));
    for (std::uint32_t bit = bits_; bit-- > 0;) plan_.per_round.push_back(core_ >> (bit + 1));
    if (folds()) plan_.per_round.push_back((largest_ - 1) * core_);
    // Nobody is in the next call before this rank has looked, without which it has no result.
    plan_.incoming_max = core_;
    plan_.slot_count =
        static_cast<std::uint16_t>(2 * (core_ - 1) + (folds() ? largest_ * core_ : 0));
  }

  Plan build() && {
    if (plan_.rank_count == 1) {
      steps_.copy(source_register, target_register);
    } else if (plan_.self == leader(group_)) {
      order_parts();
      reduce_scatter();
      allgather();
    } else {
      follow();
    }
    return std::move(plan_);
  }

 private:
  struct Held {
    std::uint32_t part;
    Register at;
  };

  bool folds() const { return largest_ > 1; }
  Rank leader(std::uint32_t group) const {
    return Rank{group * small_ + std::min(group, large_count_)};
  }
  Rank member(std::uint32_t index) const { return Rank{index_of(leader(group_)) + index}; }
  Rank partner(std::uint32_t bit) const { return leader(group_ ^ (1u << bit)); }
  bool differs(std::uint32_t part, std::uint32_t bit) const {
    return ((part ^ group_) >> bit & 1) != 0;
  }
  Register next_partial() { return partial_register(plan_.partial_count++); }
  void begin_part(std::uint32_t part) { steps_.begin_part(static_cast<std::uint16_t>(part)); }
  /// Rounds of the core begin after that in which groups are folded.
  void set_round(std::uint32_t round) { steps_.set_round(round + (folds() ? 1 : 0)); }

  /// Those of the rounds before `bit` first.
  std::uint16_t slot_scattered(std::uint32_t bit, std::uint32_t part) const {
    return static_cast<std::uint16_t>(core_ - (core_ >> bit) + (part >> (bit + 1)));
  }
  std::uint16_t slot_gathered(std::uint32_t bit, std::uint32_t part) const {
    return static_cast<std::uint16_t>(core_ - 1 + slot_scattered(bit, part));
  }
  std::uint16_t slot_in(std::uint32_t index, std::uint32_t part) const {
    return static_cast<std::uint16_t>(2 * (core_ - 1) + (index - 1) * core_ + part);
  }
  std::uint16_t slot_out(std::uint32_t part) const {
    return static_cast<std::uint16_t>(2 * (core_ - 1) + (largest_ - 1) * core_ + part);
  }

  void order_parts() {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> keys;
    for (std::uint32_t part = 0; part < core_; ++part) {
      std::uint32_t key = 0;
      for (std::uint32_t bit = 0; bit < bits_; ++bit) key = 2 * key + (differs(part, bit) ? 0 : 1);
      keys.push_back({key, part});
    }
    std::sort(keys.begin(), keys.end());
    for (const auto& [key, part] : keys) held_.push_back({part, {}});
  }

  void follow() {
    const std::uint32_t index = index_of(plan_.self) - index_of(leader(group_));
    for (std::uint32_t part = 0; part < core_; ++part) {
      begin_part(part);
      const Register own = next_partial();
      steps_.copy(source_register, own);
      steps_.put(leader(group_), slot_in(index, part), 1, own);
    }
    steps_.set_round(static_cast<std::uint32_t>(plan_.per_round.size() - 1));
    for (std::uint32_t part = 0; part < core_; ++part) {
      begin_part(part);
      steps_.await(leader(group_), slot_out(part), 1);
      steps_.copy(slot_register(slot_out(part)), target_register);
    }
  }

  /// The contributions of the group, from right to left.
  Register folded(std::uint32_t part) {
    const Register sum = next_partial();
    for (std::uint32_t index = size_ - 1; index > 0; --index) {
      const std::uint16_t slot = slot_in(index, part);
      steps_.await(member(index), slot, 1);
      if (index == size_ - 1)
        steps_.copy(slot_register(slot), sum);
      else
        steps_.combine(slot_register(slot), sum);
    }
    if (size_ == 1)
      steps_.copy(source_register, sum);
    else
      steps_.combine(source_register, sum);
    return sum;
  }

  /// What is held of a part, with what the partner of a round has told: lower ranks to the left.
  Register grown(const Held& held, std::uint32_t bit) {
    const std::uint16_t slot = slot_scattered(bit, held.part);
    steps_.await(partner(bit), slot, 1);
    if ((group_ >> bit & 1) != 0) {
      steps_.combine(slot_register(slot), held.at);
      return held.at;
    }
    const Register sum = next_partial();
    steps_.copy(slot_register(slot), sum);
    steps_.combine(held.at, sum);
    return sum;
  }

  /// Where ranks are folded, round after round; else parts go on at once.
  void reduce_scatter() {
    for (std::uint32_t bit = 0; bit <= bits_; ++bit) {
      const auto obtain = [&](Held& held) {
        begin_part(held.part);
        held.at = bit == 0 ? folded(held.part) : grown(held, bit - 1);
      };
      if (folds()) {
        steps_.set_round(bit);
        std::for_each(held_.begin(), held_.end(), obtain);
      }
      set_round(bit);
      std::vector<Held> kept;
      for (Held& held : held_) {
        if (!folds()) obtain(held);
        begin_part(held.part);
        if (bit < bits_ && differs(held.part, bit))
          steps_.put(partner(bit), slot_scattered(bit, held.part), 1, held.at);
        else
          kept.push_back(held);
      }
      held_ = std::move(kept);
    }
    steps_.copy(held_.front().at, target_register);  // the own part
  }

  void allgather() {
    for (std::uint32_t bit = bits_; bit-- > 0;) {
      set_round(2 * bits_ - 1 - bit);
      for (const Held& held : held_) tell(held, bit);
      if (folds())
        receive(bit, bits_);
      else if (bit + 1 < bits_)
        receive(bit + 1, bit);
    }
    if (!folds()) return receive(0, bits_);
    steps_.set_round(static_cast<std::uint32_t>(plan_.per_round.size() - 1));
    for (const Held& held : held_)
      for (std::uint32_t index = 1; index < size_; ++index) {
        begin_part(held.part);
        steps_.put(member(index), slot_out(held.part), 1, held.at);
      }
  }

  /// What the partner of `bit` has told: its likes of what is held here, in the same order.  Passes
  /// it on to that of `next`, if that is one.
  void receive(std::uint32_t bit, std::uint32_t next) {
    for (std::size_t i = 0, count = held_.size(); i < count; ++i) {
      Held one{held_[i].part ^ (1u << bit), {}};
      const std::uint16_t slot = slot_gathered(bit, one.part);
      begin_part(one.part);
      steps_.await(partner(bit), slot, 1);
      one.at = slot_register(slot);
      if (bit > 0 || size_ > 1) {
        one.at = next_partial();
        steps_.copy(slot_register(slot), one.at);
      }
      if (next < bits_) tell(one, next);
      steps_.copy(one.at, target_register);
      held_.push_back(one);
    }
  }

  void tell(const Held& held, std::uint32_t bit) {
    begin_part(held.part);
    steps_.put(partner(bit), slot_gathered(bit, held.part), 1, held.at);
  }

  std::uint32_t core_, bits_;
  std::uint32_t small_, large_count_, largest_;
  std::uint32_t group_ = 0, size_ = 1;
  std::vector<Held> held_;  // parts, in the order in which they are told
  Plan plan_;
  StepWriter steps_{plan_};
};

}  // namespace

bool is_rabenseifner(std::uint32_t rank_count) noexcept {
  return rank_count > 0 &&
         (group_size_max(rank_count) + std::uint64_t{2}) * core_of(rank_count) <= slots_max;
}

Plan rabenseifner_allreduce(Rank self, std::uint32_t rank_count) {
  assert(is_rabenseifner(rank_count) && index_of(self) < rank_count);
  return Builder(self, rank_count).build();
}

}  // namespace tutti::plan
