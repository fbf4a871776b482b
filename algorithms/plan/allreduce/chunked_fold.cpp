// See chunked_fold.hpp for the schedule.  Here: which register holds what.
//
// Without copies partial 0 is the result, and those behind it scratch.  Else:
//
//   partials   0 .. P-2   parts of the contribution, for the ranks 1 .. P-1 ahead
//              P-1        the result of the own part
//              P ..       scratch of the fold
//   slots      0 .. P-2   the own part, from the ranks 1 .. P-1 behind
//              P-1 ..     results, from the same ranks, if they are sent
//
// The source is read before the target is written, part by part, so they may be the same memory.
#include "plan/allreduce/chunked_fold.hpp"

#include <cassert>
#include <utility>

#include "plan/allreduce/canonical_fold.hpp"
#include "plan/allreduce/canonical_tree.hpp"
#include "plan/core/per_round.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {
namespace {

enum class Results { everywhere, own_part };

class Builder {
 public:
  Builder(Rank self, std::uint32_t rank_count, Results results, Buffers buffers)
      : results_(results),
        zero_copy_(buffers == Buffers::registered),
        others_(static_cast<std::uint16_t>(rank_count - 1)),
        scratch_(static_cast<std::uint16_t>(index_of_result() + 1), 1) {
    plan_ = {.self = self,
             .rank_count = rank_count,
             .algorithm = zero_copy_ ? "chunked_fold_zero_copy" : "chunked_fold"};
    plan_.parts = static_cast<std::uint16_t>(rank_count);
    plan_.slot_count =
        static_cast<std::uint16_t>(results == Results::everywhere ? 2 * others_ : others_);
    plan_.zero_copy = zero_copy_;
    if (zero_copy_) plan_.line_slot_count = static_cast<std::uint16_t>(plan_.slot_count - others_);
  }

  Plan build() && {
    if (others_ == 0) {
      steps_.copy(source_register, target_register);
      return std::move(plan_);
    }
    steps_.begin_round(others_);
    send_contributions();
    fold_own_part();
    if (results_ == Results::everywhere) {
      steps_.begin_round(others_);
      send_result();
    }
    steps_.copy(result(), target_register);
    if (results_ == Results::everywhere) receive_results();
    plan_.partial_count = scratch_.partial_count();
    return std::move(plan_);
  }

 private:
  void send_contributions() {
    for (std::uint16_t i = 0; i < others_; ++i) {
      const Rank peer = rank_ahead(plan_.self, i + 1u, plan_.rank_count);
      steps_.begin_part(part_of(peer));
      if (!zero_copy_) steps_.copy(source_register, partial_register(i));
      steps_.put(peer, i, 1, zero_copy_ ? source_register : partial_register(i));
    }
  }

  /// Takes contributions from the nearest rank behind on, which has sent to this one first.
  void fold_own_part() {
    steps_.begin_part(part_of(plan_.self));
    CanonicalFold fold(CanonicalTree(plan_.rank_count), steps_, scratch_);
    fold.want({0, plan_.rank_count}, result());
    fold.add({index_of(plan_.self)}, source_register);
    for (std::uint16_t i = 0; i < others_; ++i) {
      const Rank peer = rank_behind(plan_.self, i + 1u, plan_.rank_count);
      steps_.await(peer, i, 1);
      fold.add({index_of(peer)}, slot_register(i));
    }
  }

  void send_result() {
    for (std::uint16_t i = 0; i < others_; ++i) {
      const Rank peer = rank_ahead(plan_.self, i + 1u, plan_.rank_count);
      if (zero_copy_)
        steps_.put_into_target(peer, result_slot(i), result());
      else
        steps_.put(peer, result_slot(i), 1, result());
    }
  }

  void receive_results() {
    for (std::uint16_t i = 0; i < others_; ++i) {
      const Rank peer = rank_behind(plan_.self, i + 1u, plan_.rank_count);
      steps_.begin_part(part_of(peer));
      if (zero_copy_) {
        steps_.await_in_target(peer, result_slot(i));
        continue;
      }
      steps_.await(peer, result_slot(i), 1);
      steps_.copy(slot_register(result_slot(i)), target_register);
    }
  }

  std::uint16_t index_of_result() const { return zero_copy_ ? std::uint16_t{0} : others_; }
  Register result() const { return partial_register(index_of_result()); }
  std::uint16_t result_slot(std::uint16_t i) const {
    return static_cast<std::uint16_t>(others_ + i);
  }

  Results results_;
  bool zero_copy_;
  std::uint16_t others_;
  Plan plan_;
  StepWriter steps_{plan_};
  ScratchPayloads scratch_;
};

}  // namespace

bool is_chunked_fold(std::uint32_t rank_count) {
  return rank_count > 0 && 2 * (rank_count - std::uint64_t{1}) <= slots_max;
}

Plan chunked_fold_allreduce(Rank self, std::uint32_t rank_count, Buffers buffers) {
  assert(is_chunked_fold(rank_count) && index_of(self) < rank_count);
  return Builder(self, rank_count, Results::everywhere, buffers).build();
}

Plan chunked_fold_reduce_scatter(Rank self, std::uint32_t rank_count) {
  assert(is_chunked_fold(rank_count) && index_of(self) < rank_count);
  return Builder(self, rank_count, Results::own_part, Buffers::anywhere).build();
}

}  // namespace tutti::plan
