// See nway.hpp for the schedule.  Here: which register holds what, and when.
//
//   partials   0 .. k-1   S of each round, one each: a partial that was put is not written again
//                         (the last is unused if nobody reads that S)
//              k ..       A, and B, where they are no S; T's or the result's low part (rank order)
//   target     T, from the border of B on; otherwise the result, in the last round
//   slots      in the order of rounds and messages
//
// S grows up to the border of B in its own register, which then is B until T is joined to it.  The
// source is read once, by the first step, so it may be the target as well.
#include "plan/allreduce/nway.hpp"

#include <cassert>
#include <utility>

#include "plan/allreduce/seam.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {
namespace {

class Builder {
 public:
  Builder(Rank self, std::uint32_t rank_count, const Adaption& adaption, TakeOut take_out,
          Order order)
      : adaption_(adaption),
        recomputes_(take_out == TakeOut::recompute && adaption.taken_out > 0),
        seam_(steps_, plan_, order) {
    plan_ = {.self = self,
             .rank_count = rank_count,
             .algorithm = take_out == TakeOut::inverse ? "nway_inverse" : "nway"};
    plan_.n = adaption.n;
    plan_.takes_out = adaption.taken_out;
    plan_.partial_count = static_cast<std::uint16_t>(adaption.rounds);
    if (order == Order::rank_order && rank_count > 1) {
      plan_.payloads = 2;
      beside_ = next_partial();
    }
    for (const std::uint32_t messages : nway_rounds(adaption))
      plan_.slot_count = static_cast<std::uint16_t>(plan_.slot_count + messages);
  }

  Plan build() && {
    if (adaption_.rounds == 0) {
      steps_.copy(source_register, target_register);
      return std::move(plan_);
    }
    while (round_ + 1 < adaption_.rounds) {
      build_round();
      ++round_;
      length_ *= adaption_.n + std::uint64_t{1};
    }
    build_last();
    return std::move(plan_);
  }

 private:
  // ---- Rounds -----------------------------------------------------------------------------------

  void build_round() {
    const Partial s = begin_round(adaption_.n);
    for (std::uint32_t message = 0; message < adaption_.n; ++message)
      seam_.put(offset(message), slot(message), s);
    begin_rest_if(s);
    const bool rest_alone = t_.has_value();  // S follows when the round is over
    Partial grown = partial_of_round(round_ + 1);
    if (!rest_alone) seam_.copy(s, grown);
    for (std::uint32_t message = 0; message < adaption_.n; ++message) {
      seam_.receive(offset(message), slot(message), length_, t_ ? *t_ : grown);
      if (message + 1 < adaption_.n) keep_prefix(offset(message + 1), grown);
    }
    if (t_ && s_is_read(round_ + 1)) {
      if (rest_alone) seam_.copy(b_, grown);
      seam_.join(grown, *t_);
    }
    first_slot_ = static_cast<std::uint16_t>(first_slot_ + adaption_.n);
  }

  void build_last() {
    const std::uint32_t whole = adaption_.whole_messages;
    const std::uint32_t prefix = adaption_.prefix_sent;
    assert((whole + 1) * length_ + prefix == plan_.rank_count + std::uint64_t{adaption_.taken_out});
    const Partial s = begin_round(whole + (prefix > 0 ? 1 : 0));
    for (std::uint32_t message = 0; message < whole; ++message)
      seam_.put(offset(message), slot(message), s);
    if (prefix > 0) seam_.put(offset(whole) % plan_.rank_count, slot(whole), kept(prefix, a_));
    begin_rest_if(s);
    Partial result = t_ ? *t_ : seam_.begin_result(s, beside_);
    for (std::uint32_t message = 0; message < whole; ++message)
      seam_.receive(offset(message), slot(message), length_, result);
    if (prefix > 0) seam_.receive(offset(whole) % plan_.rank_count, slot(whole), prefix, result);
    if (adaption_.taken_out > 0 && !recomputes_) {
      steps_.take_out(kept(adaption_.taken_out, b_).low, target_register);
      result.ranks.length -= adaption_.taken_out;
    }
    seam_.finish_result(result);
  }

  Partial begin_round(std::uint32_t messages) {
    steps_.begin_round(messages);
    Partial s = partial_of_round(round_);
    s.ranks.length = length_;
    if (round_ == 0) steps_.copy(source_register, s.low);
    return s;
  }

  // ---- Prefixes ---------------------------------------------------------------------------------

  /// T begins with a round, if S is B.
  void begin_rest_if(const Partial& s) {
    if (recomputes_ && length_ == adaption_.taken_out) begin_rest(s);
  }

  void begin_rest(const Partial& b) {
    b_ = b;
    t_ =
        seam_.begin_result(rank_behind(plan_.self, adaption_.taken_out, plan_.rank_count), beside_);
  }

  /// A or B may be complete in the middle of a round.  `grown` is the prefix of `length`, or, once
  /// the border of B is passed, the prefix up to that border.
  void keep_prefix(std::uint64_t length, const Partial& grown) {
    if (length == adaption_.prefix_sent) {
      a_ = new_partial();
      seam_.copy(t_ ? b_ : grown, a_);
      if (t_) seam_.join(a_, *t_);
    }
    if (length != adaption_.taken_out) return;
    if (!recomputes_ || b_is_read_after_round()) {
      b_ = new_partial();
      seam_.copy(grown, b_);
    }
    if (recomputes_) begin_rest(b_is_read_after_round() ? b_ : grown);
  }

  /// The register of the prefix of that length: `otherwise` if it is no S.
  Partial kept(std::uint32_t length, const Partial& otherwise) const {
    std::uint64_t s_length = 1;
    for (std::uint32_t round = 0; round < adaption_.rounds; ++round) {
      if (s_length == length)
        return {partial_in(static_cast<std::uint16_t>(round), {plan_.self, s_length})};
      s_length *= adaption_.n + std::uint64_t{1};
    }
    return otherwise;
  }

  // ---- What is read -----------------------------------------------------------------------------

  /// Whether somebody reads the S that `round` begins with: it is put, or the result grows from it.
  bool s_is_read(std::uint32_t round) const {
    return round + 1 < adaption_.rounds || !recomputes_ || adaption_.whole_messages > 0 ||
           adaption_.prefix_sent == whole_length();
  }

  /// Whether B, complete within this round, is needed for S or A of a later one.
  bool b_is_read_after_round() const {
    const std::uint64_t grown_length = length_ * (adaption_.n + std::uint64_t{1});
    const bool for_s = round_ + 2 < adaption_.rounds && s_is_read(round_ + 2);
    return for_s || adaption_.prefix_sent > grown_length;
  }

  std::uint64_t whole_length() const {
    std::uint64_t length = 1;
    for (std::uint32_t round = 1; round < adaption_.rounds; ++round)
      length *= adaption_.n + std::uint64_t{1};
    return length;
  }

  // ---- Registers --------------------------------------------------------------------------------

  std::uint64_t offset(std::uint32_t message) const {
    return (message + std::uint64_t{1}) * length_;
  }
  std::uint16_t slot(std::uint32_t message) const {
    return static_cast<std::uint16_t>(first_slot_ + message);
  }
  Partial partial_of_round(std::uint32_t round) const {
    return partial_in(static_cast<std::uint16_t>(round), {plan_.self, 0});
  }
  Register next_partial() { return partial_register(plan_.partial_count++); }
  Partial new_partial() { return partial_in(plan_.partial_count++, {}); }

  const Adaption& adaption_;
  bool recomputes_;
  Plan plan_;
  StepWriter steps_{plan_};
  SeamWriter seam_;
  Register beside_ = {};      // for the low part of the result, in rank order
  Partial a_ = {};            // from its border on
  Partial b_ = {};            // from its border on
  std::optional<Partial> t_;  // from the border of B on
  std::uint32_t round_ = 0;   // the one being built
  std::uint64_t length_ = 1;  // of S in it
  std::uint16_t first_slot_ = 0;
};

}  // namespace

Plan nway_allreduce(Rank self, std::uint32_t rank_count, const Adaption& adaption, TakeOut take_out,
                    Order order) {
  assert(index_of(self) < rank_count);
  assert(order == Order::commutative || take_out == TakeOut::recompute);
  return Builder(self, rank_count, adaption, take_out, order).build();
}

Plan nway_allreduce(Rank self, std::uint32_t rank_count, std::uint32_t n, TakeOut take_out,
                    Order order) {
  const std::optional<Adaption> chosen = adaption(rank_count, n);
  assert(chosen);
  return nway_allreduce(self, rank_count, *chosen, take_out, order);
}

}  // namespace tutti::plan
