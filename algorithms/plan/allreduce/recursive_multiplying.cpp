// See recursive_multiplying.hpp for the schedule.  Here: which register holds what, and when.
//
//   partials   0 .. k-1   what a leader sends in each round of the core, one each
//              k          the result, where it has to be sent to others of the group
//              0          of a rank that is no leader: its contribution
//   slots      0 ..       of the round in, if there is a fold, the highest rank of a group first
//              then       of the core in the order of rounds, the highest digit first
//              last       of the round out
//
// Slots are in the order in which values are joined, from right to left.  The source is last read
// before the target is first written, so they may be the same memory.
#include "plan/allreduce/recursive_multiplying.hpp"

#include <algorithm>
#include <cassert>

#include "plan/core/steps.hpp"

namespace tutti::plan {
namespace {

/// Ranks of the core; more than `rank_count` if it has too many.
std::uint64_t product_of(const PerRound& core, std::uint32_t rank_count) {
  std::uint64_t product = 1;
  for (const std::uint32_t entry : core) {
    product *= entry + std::uint64_t{1};
    if (product > rank_count) break;  // both factors were below 2^32 + 1
  }
  return product;
}

/// Ranks of the largest group.
std::uint64_t group_size_max(std::uint32_t rank_count, std::uint64_t groups) {
  return (rank_count + groups - 1) / groups;
}

std::uint64_t slots_needed(std::uint32_t rank_count, const PerRound& core) {
  const std::uint64_t groups = product_of(core, rank_count);
  std::uint64_t slots = groups == rank_count ? 0 : group_size_max(rank_count, groups);
  for (const std::uint32_t entry : core) slots += entry;
  return slots;
}

/// `rank_count` ranks in even groups of consecutive ranks, the larger ones first.
class Groups {
 public:
  Groups(std::uint32_t rank_count, std::uint64_t count)
      : small_(static_cast<std::uint32_t>(rank_count / count)),
        large_count_(static_cast<std::uint32_t>(rank_count % count)) {}

  std::uint32_t of(Rank rank) const {
    const std::uint64_t in_large = std::uint64_t{large_count_} * (small_ + std::uint64_t{1});
    const std::uint32_t index = index_of(rank);
    if (index < in_large) return static_cast<std::uint32_t>(index / (small_ + std::uint64_t{1}));
    return static_cast<std::uint32_t>(large_count_ + (index - in_large) / small_);
  }
  Rank leader(std::uint64_t group) const {
    return Rank{
        static_cast<std::uint32_t>(group * small_ + std::min<std::uint64_t>(group, large_count_))};
  }
  std::uint32_t size(std::uint32_t group) const { return small_ + (group < large_count_ ? 1 : 0); }

 private:
  std::uint32_t small_;
  std::uint32_t large_count_;
};

class Builder {
 public:
  Builder(Rank self, std::uint32_t rank_count, const PerRound& core)
      : core_(core),
        groups_(rank_count, product_of(core, rank_count)),
        group_(groups_.of(self)),
        leader_(groups_.leader(group_)),
        size_(groups_.size(group_)) {
    const std::uint64_t count = product_of(core, rank_count);
    largest_ = static_cast<std::uint32_t>(group_size_max(rank_count, count));
    plan_ = {.self = self, .rank_count = rank_count, .algorithm = "recursive_multiplying"};
    plan_.all_alike = count == rank_count;
    plan_.slot_count = static_cast<std::uint16_t>(slots_needed(rank_count, core));
  }

  Plan build() && {
    if (largest_ == 1)
      build_core();
    else if (plan_.self == leader_)
      build_leader();
    else
      build_follower();
    return std::move(plan_);
  }

 private:
  std::uint16_t out_slot() const { return static_cast<std::uint16_t>(plan_.slot_count - 1); }
  Rank member(std::uint32_t index) const { return Rank{index_of(leader_) + index}; }

  void build_follower() {
    const std::uint32_t index = index_of(plan_.self) - index_of(leader_);
    const Register own = partial_register(plan_.partial_count++);
    steps_.begin_round(largest_ - 1);
    steps_.copy(source_register, own);
    steps_.put(leader_, static_cast<std::uint16_t>(size_ - 1 - index), 1, own);
    for (const std::uint32_t messages : core_) steps_.begin_round(messages);
    steps_.begin_round(largest_ - 1);
    steps_.await(leader_, out_slot(), 1);
    steps_.copy(slot_register(out_slot()), target_register);
  }

  void build_leader() {
    steps_.begin_round(largest_ - 1);
    first_slot_ = static_cast<std::uint16_t>(largest_ - 1);
    gather_group(next_register(0));
    build_rounds();
    steps_.begin_round(largest_ - 1);
    if (size_ == 1) return;
    const Register result = partial_register(static_cast<std::uint16_t>(plan_.partial_count - 1));
    for (std::uint32_t index = 1; index < size_; ++index)
      steps_.put(member(index), out_slot(), 1, result);
    steps_.copy(result, target_register);
  }

  void gather_group(Register into) {
    if (size_ == 1) return steps_.copy(source_register, into);
    for (std::uint32_t index = size_ - 1; index > 0; --index) {
      const auto slot = static_cast<std::uint16_t>(size_ - 1 - index);
      steps_.await(member(index), slot, 1);
      join(slot_register(slot), into, index == size_ - 1);
    }
    steps_.combine(source_register, into);
  }

  void build_core() {
    if (core_.empty()) return steps_.copy(source_register, target_register);
    build_rounds();
  }

  void build_rounds() {
    std::uint64_t stride = 1;
    for (std::uint32_t index = 0; index < core_.size(); ++index) {
      steps_.begin_round(core_[index]);
      build_round(index, stride);
      first_slot_ = static_cast<std::uint16_t>(first_slot_ + core_[index]);
      stride *= core_[index] + std::uint64_t{1};
    }
  }

  void build_round(std::uint32_t index, std::uint64_t stride) {
    const std::uint32_t top = core_[index];
    const auto own = static_cast<std::uint32_t>(group_ / stride % (top + std::uint64_t{1}));
    const auto peer = [&](std::uint32_t digit) {
      return groups_.leader(group_ - own * stride + digit * stride);
    };
    const Register w = index == 0 && largest_ == 1 ? next_register(0) : current_;
    if (index == 0 && largest_ == 1) steps_.copy(source_register, w);
    // Each begins with its successor, so that not all send to one rank at the same time.
    for (std::uint32_t message = 1; message <= top; ++message) {
      const auto digit =
          static_cast<std::uint32_t>((own + std::uint64_t{message}) % (top + std::uint64_t{1}));
      steps_.put(peer(digit), slot_of(top, own, digit), 1, w);
    }
    const Register grown = next_register(index + 1);
    for (std::uint32_t digit = top + 1; digit-- > 0;) {
      if (digit == own) {
        join(w, grown, digit == top);
        continue;
      }
      const std::uint16_t slot = slot_of(top, digit, own);
      steps_.await(peer(digit), slot, 1);
      join(slot_register(slot), grown, digit == top);
    }
  }

  /// The slot in which the member `at` receives the value of the member with `digit`.  Slots are in
  /// falling order of digits; the own digit has none.
  std::uint16_t slot_of(std::uint32_t top, std::uint32_t digit, std::uint32_t at) const {
    return static_cast<std::uint16_t>(first_slot_ + top - digit - (digit < at ? 1 : 0));
  }

  void join(Register from, Register into, bool first) {
    if (first)
      steps_.copy(from, into);
    else
      steps_.combine(from, into);
  }

  /// The register that round `index` of the core sends, or that of the result after the last round:
  /// a partial if it is sent, and never one that was, because the NIC may still be reading that.
  Register next_register(std::uint32_t index) {
    const bool is_put = index < core_.size() || size_ > 1;
    current_ = is_put ? partial_register(plan_.partial_count++) : target_register;
    return current_;
  }

  const PerRound& core_;
  Groups groups_;
  std::uint32_t group_;
  Rank leader_;            // of the own group
  std::uint32_t size_;     // of the own group
  std::uint32_t largest_;  // size of the largest group; 1: P is the product
  Plan plan_;
  StepWriter steps_{plan_};
  Register current_ = {};
  std::uint16_t first_slot_ = 0;  // of the round being built
};

}  // namespace

bool is_core(std::uint32_t rank_count, const PerRound& core) {
  return rank_count > 0 && std::find(core.begin(), core.end(), 0u) == core.end() &&
         product_of(core, rank_count) <= rank_count && slots_needed(rank_count, core) <= slots_max;
}

PerRound recursive_multiplying_rounds(std::uint32_t rank_count, const PerRound& core) {
  assert(is_core(rank_count, core));
  const std::uint64_t groups = product_of(core, rank_count);
  if (groups == rank_count) return core;
  const auto folded = static_cast<std::uint32_t>(group_size_max(rank_count, groups) - 1);
  PerRound rounds{folded};
  rounds.insert(rounds.end(), core.begin(), core.end());
  rounds.push_back(folded);
  return rounds;
}

Plan recursive_multiplying_allreduce(Rank self, std::uint32_t rank_count, const PerRound& core) {
  assert(is_core(rank_count, core) && index_of(self) < rank_count);
  return Builder(self, rank_count, core).build();
}

}  // namespace tutti::plan
