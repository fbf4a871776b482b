// See gather_fold.hpp for the schedule.  Here: which register holds what.
//
//   partials   0         the contributions to send on, newest first; written in pieces, each before
//                        it is first put
//              1 ..      scratch of the fold
//   slots      in the order of rounds and messages
//
// The source is read once, by the first step, so it may be the target as well.
#include "plan/allreduce/gather_fold.hpp"

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

#include "plan/allreduce/canonical_fold.hpp"
#include "plan/allreduce/canonical_tree.hpp"
#include "plan/allreduce/two_partial.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {
namespace {

class Builder {
 public:
  Builder(Rank self, std::uint32_t rank_count, const PerRound& per_round)
      : rounds_(two_partial_rounds(rank_count, per_round)),
        scratch_(1, payloads_of(rounds_)),
        fold_(CanonicalTree(rank_count), steps_, scratch_) {
    plan_.self = self;
    plan_.rank_count = rank_count;
    plan_.algorithm = "gather_fold";
    plan_.payloads = payloads_of(rounds_);
    for (const Round& round : rounds_)
      plan_.slot_count = static_cast<std::uint16_t>(plan_.slot_count + round.messages);
    fold_.want({0, rank_count}, target_register);
  }

  Plan build() && {
    if (rounds_.empty()) {
      steps_.copy(source_register, target_register);
      return std::move(plan_);
    }
    steps_.copy(source_register, partial_register(0));
    for (std::uint32_t round = 0; round < rounds_.size(); ++round) build_round(round);
    plan_.partial_count = scratch_.partial_count();
    return std::move(plan_);
  }

 private:
  /// A message of the last round, which is the longest, brings what was held before it.
  static std::uint16_t payloads_of(const std::vector<Round>& rounds) {
    return static_cast<std::uint16_t>(rounds.empty() ? 1 : rounds.back().length);
  }

  void build_round(std::uint32_t index) {
    const Round& round = rounds_[index];
    const bool is_last = index + 1 == rounds_.size();
    steps_.begin_round(round.messages);
    for (std::uint32_t message = 1; message <= round.messages; ++message)
      steps_.put(rank_ahead(plan_.self, offset(round, message), plan_.rank_count), slot(message),
                 payloads(round, message), partial_register(0));
    fold_until(round.length);
    for (std::uint32_t message = 1; message <= round.messages; ++message) {
      const Rank peer = rank_behind(plan_.self, offset(round, message), plan_.rank_count);
      const std::uint16_t arrived = payloads(round, message);
      steps_.await(peer, slot(message), arrived);
      if (is_last)
        fold(peer, slot_register(slot(message)), arrived);
      else
        steps_.copy(slot_register(slot(message)), held(offset(round, message)), arrived);
    }
    first_slot_ = static_cast<std::uint16_t>(first_slot_ + round.messages);
  }

  /// What was held when the round began is folded while its messages are on their way.
  void fold_until(std::uint32_t length) {
    fold(rank_behind(plan_.self, folded_, plan_.rank_count), held(folded_), length - folded_);
    folded_ = length;
  }

  /// `count` contributions side by side: of `newest` and the ranks before it.
  void fold(Rank newest, Register at, std::uint32_t count) {
    for (std::uint32_t age = 0; age < count; ++age, ++at.payload)
      fold_.add({index_of(rank_behind(newest, age, plan_.rank_count))}, at);
  }

  static std::uint64_t offset(const Round& round, std::uint32_t message) {
    return std::uint64_t{message} * round.length;
  }

  /// The last message is trimmed by what all messages together would bring too much.
  static std::uint16_t payloads(const Round& round, std::uint32_t message) {
    const bool trims = message == round.messages;
    return static_cast<std::uint16_t>(round.length - (trims ? round.short_messages : 0));
  }

  static Register held(std::uint64_t age) {
    return partial_register(0, static_cast<std::uint16_t>(age));
  }

  std::uint16_t slot(std::uint32_t message) const {
    return static_cast<std::uint16_t>(first_slot_ + message - 1);
  }

  std::vector<Round> rounds_;
  Plan plan_;
  StepWriter steps_{plan_};
  ScratchPayloads scratch_;
  CanonicalFold fold_;
  std::uint32_t folded_ = 0;      // contributions
  std::uint16_t first_slot_ = 0;  // of the round being built
};

}  // namespace

bool is_gather_fold(std::uint32_t rank_count, const PerRound& per_round) {
  return rank_count <= UINT16_MAX && is_executable(rank_count, per_round);
}

Plan gather_fold_allreduce(Rank self, std::uint32_t rank_count, const PerRound& per_round) {
  assert(is_gather_fold(rank_count, per_round) && index_of(self) < rank_count);
  return Builder(self, rank_count, per_round).build();
}

}  // namespace tutti::plan
