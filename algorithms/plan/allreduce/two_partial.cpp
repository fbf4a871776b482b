// See two_partial.hpp for the schedule.  Here: which register holds what, and when.
//
//   partials   0 .. K-1   W of each round, one each: a partial that was put is not written again
//                         (unused if nobody reads that W)
//              K ..       V of each round that sends it; a V that is not sent grows in place
//              last       low part of the result (rank order only), if it has to be accumulated
//   slots      in the order of rounds and messages, W's and V's alike
//
// The source is read once, by the first step, so it may be the target as well.
#include "plan/allreduce/two_partial.hpp"

#include <algorithm>
#include <cassert>
#include <optional>

#include "plan/allreduce/seam.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {
namespace {

class Builder {
 public:
  Builder(Rank self, std::uint32_t rank_count, const PerRound& per_round, Order order)
      : rounds_(two_partial_rounds(rank_count, per_round)), seam_(steps_, plan_, order) {
    plan_ = {.self = self, .rank_count = rank_count, .algorithm = "two_partial_dissemination"};
    plan_.payloads = order == Order::rank_order && rank_count > 1 ? 2 : 1;
    for (const Round& round : rounds_) {
      plan_.partial_count = next(plan_.partial_count);
      if (round.short_messages > 0) plan_.partial_count = next(plan_.partial_count);
      plan_.slot_count = static_cast<std::uint16_t>(plan_.slot_count + round.messages);
    }
    if (plan_.payloads == 2) plan_.partial_count = next(plan_.partial_count);
    next_partial_ = static_cast<std::uint16_t>(rounds_.size());
  }

  Plan build() && {
    if (rounds_.empty()) {
      steps_.copy(source_register, target_register);
      return std::move(plan_);
    }
    for (std::uint32_t round = 0; round < rounds_.size(); ++round) build_round(round);
    return std::move(plan_);
  }

 private:
  static std::uint16_t next(std::uint16_t index) { return static_cast<std::uint16_t>(index + 1); }

  void build_round(std::uint32_t index) {
    const Round& round = rounds_[index];
    steps_.begin_round(round.messages);
    const Partial w = partial_in(static_cast<std::uint16_t>(index), {plan_.self, round.length});
    if (index == 0) steps_.copy(source_register, w.low);
    put_pieces(round, w);
    if (index + 1 == rounds_.size())
      finish(round, w);
    else if (trims_after(index))
      grow_both(round, static_cast<std::uint16_t>(index + 1));
    else
      grow_whole(round, w, static_cast<std::uint16_t>(index + 1));
    first_slot_ = static_cast<std::uint16_t>(first_slot_ + round.messages);
  }

  /// Everything that can be sent is, before anything else is done.
  void put_pieces(const Round& round, const Partial& w) {
    for (std::uint32_t message = 0; message < round.messages; ++message) {
      const bool whole = message < round.messages - round.short_messages;
      seam_.put(offset(round, message), slot(message), whole ? w : *v_);
    }
  }

  /// W only: no later round trims, V is dead.
  void grow_whole(const Round& round, const Partial& w, std::uint16_t next_w) {
    Partial grown = partial_in(next_w, {});
    seam_.copy(w, grown);
    receive(round, grown);
  }

  /// V is needed later: the messages go into V, and W follows by one more combination, unless the
  /// next round sends V's only and W would be overtaken unread.
  void grow_both(const Round& round, std::uint16_t next_w) {
    Partial w = partial_in(next_w, {plan_.self, 1});
    const Round& next_round = rounds_[next_w];
    const bool w_is_read = next_round.short_messages < next_round.messages || !trims_after(next_w);
    if (w_is_read) steps_.copy(partial_register(0), w.low);  // the own contribution
    if (!v_) {
      v_ = partial_in(next_partial_, {rank_behind(plan_.self, 1, plan_.rank_count), 0});
      next_partial_ = next(next_partial_);
    } else if (round.short_messages > 0) {  // V was put: it must stay as it is
      Partial grown = partial_in(next_partial_, {});
      next_partial_ = next(next_partial_);
      seam_.copy(*v_, grown);
      v_ = grown;
    }
    receive(round, *v_);
    if (w_is_read) seam_.join(w, *v_);
  }

  /// The last round goes into the target.
  void finish(const Round& round, const Partial& w) {
    Partial result = seam_.begin_result(
        w, partial_register(static_cast<std::uint16_t>(plan_.partial_count - 1)));
    receive(round, result);
    seam_.finish_result(result);
  }

  /// Awaits the messages of the round in slot order and joins each to the left of `into`.
  void receive(const Round& round, Partial& into) {
    for (std::uint32_t message = 0; message < round.messages; ++message) {
      const bool whole = message < round.messages - round.short_messages;
      seam_.receive(offset(round, message), slot(message), round.length, into, whole ? 0 : 1);
    }
  }

  /// Distance to the peer of a message: whole pieces lie `length` apart; a short one is sent by the
  /// rank just right of the interval that it brings, which is V's owner.
  static std::uint64_t offset(const Round& round, std::uint32_t message) {
    const std::uint64_t length = round.length;
    const std::uint64_t whole = round.messages - round.short_messages;
    if (message < whole) return (message + std::uint64_t{1}) * length;
    return (whole + 1) * length + (message - whole) * (length - 1) - 1;
  }

  bool trims_after(std::uint32_t index) const {
    return std::any_of(rounds_.begin() + index + 1, rounds_.end(),
                       [](const Round& round) { return round.short_messages > 0; });
  }

  std::uint16_t slot(std::uint32_t message) const {
    return static_cast<std::uint16_t>(first_slot_ + message);
  }

  std::vector<Round> rounds_;
  Plan plan_;
  StepWriter steps_{plan_};
  SeamWriter seam_;
  std::optional<Partial> v_;  // from the first round that has to keep it
  std::uint16_t next_partial_ = 0;
  std::uint16_t first_slot_ = 0;  // of the round being built
};

}  // namespace

Plan two_partial_allreduce(Rank self, std::uint32_t rank_count, const PerRound& per_round,
                           Order order) {
  assert(is_executable(rank_count, per_round) && index_of(self) < rank_count);
  return Builder(self, rank_count, per_round, order).build();
}

}  // namespace tutti::plan
