// Builder of the plans of canonical_halving.hpp: which part goes where, and when.
//
// All ranks of a cube do the same at the same point of their plans, if they have a part to do it
// with.  What they await was put at an earlier point, so no ranks wait for each other in a circle.
#include "plan/allreduce/canonical_halving.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "plan/allreduce/halving_layout.hpp"
#include "plan/core/peer_stream.hpp"
#include "plan/core/per_round.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {
namespace {

/// What two ranks of a cube send each other at one distance, in one of the two phases: halves of
/// what they hold, or results.
struct Exchange {
  OutgoingStream out;
  IncomingStream in;
};

class Builder {
 public:
  Builder(Rank self, std::uint32_t rank_count, HalvingResults results)
      : layout_(rank_count, results), results_(results) {
    const std::vector<Cube>& cubes = layout_.cubes();
    while (cube_ + 1 < cubes.size() && cubes[cube_ + 1].first <= index_of(self)) ++cube_;
    bits_ = cubes[cube_].bits;
    place_ = index_of(self) - cubes[cube_].first;
    if (carries()) entry_bits_ = layout_.entry_bits(cube_);
    at_.assign(layout_.parts(), source_register);
    carried_at_.resize(layout_.parts());
    for (std::uint32_t bit = 0; bit < bits_; ++bit) {
      const bool brings_more = carries() && bit >= entry_bits_ && (place_ >> bit) == 1;
      halving_.push_back(exchange(bit, layout_.halving_answers(bit),
                                  (brings_more ? 2 : 1) * count_like(place_, bit + 1)));
    }
    plan_ = {.self = self, .rank_count = rank_count, .algorithm = "canonical_halving"};
    plan_.all_alike = layout_.is_cube();
    plan_.parts = number_of_register(layout_.parts());
    plan_.slot_count = number_of_register(layout_.slot_count());
    plan_.line_slot_count = number_of_register(layout_.line_slot_count());
  }

  Plan build() && {
    if (plan_.rank_count == 1) {
      steps_.copy(source_register, target_register);
      return std::move(plan_);
    }
    reduce_scatter();
    if (results_ == HalvingResults::own_part) {
      tell_owners();
    } else {
      if (cube_ == 0)
        keep_result(place_);
      else
        results_from_other_cube();
      allgather();
    }
    count_messages();
    return std::move(plan_);
  }

 private:
  std::uint32_t teller_count() const { return layout_.teller_count(cube_); }
  bool carries() const { return teller_count() > 0; }
  const Cube& here() const { return layout_.cubes()[cube_]; }
  const Cube& teller(std::uint32_t i) const { return layout_.cubes()[cube_ + 1 + i]; }
  /// The cube to which this one sends what it has.
  const Cube& told() const { return layout_.cubes()[layout_.told_by(cube_)]; }
  std::uint32_t told_bits() const { return layout_.entry_bits(layout_.told_by(cube_)); }
  Rank partner(std::uint32_t bit) const { return Rank{here().first + (place_ ^ (1u << bit))}; }
  bool differs(std::uint32_t part, std::uint32_t bit) const {
    return ((part ^ place_) >> bit & 1) != 0;
  }
  std::uint32_t count_like(std::uint32_t place, std::uint32_t bits) const {
    return layout_.count_like(place, bits);
  }
  /// The i-th of the parts that have so many low bits of `place`.
  static std::uint32_t part_like(std::uint32_t place, std::uint32_t bits, std::uint32_t i) {
    return (place & ((1u << bits) - 1)) + (i << bits);
  }

  Exchange exchange(std::uint32_t bit, std::uint32_t first_answer, std::uint32_t incoming) {
    const auto answers =
        layout_.has_answers() ? std::optional(AnswerLines{.first = first_answer}) : std::nullopt;
    return {{steps_, partner(bit), answers}, {steps_, partner(bit), answers, incoming}};
  }

  Register new_partial() { return partial_register(plan_.partial_count++); }
  /// A scratch partial: it can be reused because it is never put.
  Register scratch() {
    if (unused_.empty()) return new_partial();
    const Register partial = unused_.back();
    unused_.pop_back();
    return partial;
  }

  void go_to_round(std::uint32_t round) {
    round_ = std::max(round_, round);
    steps_.set_round(round_);
  }
  /// The i-th part that is held when the round of a bit begins: what differs in it is sent, the
  /// rest is kept.
  std::uint32_t held_part(std::uint32_t bit, std::uint32_t i) const {
    return layout_.longest_way_first() ? known_part(place_, count_like(place_, bit) - 1 - i)
                                       : part_like(place_, bit, i);
  }

  /// Takes the parts of one round and sends those of the next, alternately.
  void reduce_scatter() {
    for (std::uint32_t bit = 0; bit <= bits_; ++bit) {
      if (bit < bits_) go_to_round(layout_.halving_round(bit));
      for (std::uint32_t i = 0; i < count_like(place_, bit); ++i) {
        if (bit > 0) take_halves(bit - 1, i + 1);
        const std::uint32_t part = held_part(bit, i);
        if (bit < bits_ && differs(part, bit)) send_half(bit, part);
      }
      if (!carries()) continue;
      if (bit > entry_bits_) carry(bit - 1);
      if (bit == entry_bits_ && place_ < 1u << entry_bits_) let_enter();
    }
    if (cube_ > 0) tell_other_cube();
  }

  void send_half(std::uint32_t bit, std::uint32_t part) {
    OutgoingStream& out = halving_[bit].out;
    take_halves(bit, out.to_be_taken());
    out.begin(number_of_register(part));
    if (at_[part] == source_register) {
      at_[part] = new_partial();
      steps_.copy(source_register, at_[part]);
    }
    out.put(layout_.halved(bit, part), at_[part]);
  }

  void take_halves(std::uint32_t bit, std::uint32_t count) {
    IncomingStream& in = halving_[bit].in;
    while (in.taken() < count) {
      const std::uint32_t part = held_part(bit + 1, in.taken());
      const std::uint16_t slot = layout_.halved(bit, part);
      in.await(slot, number_of_register(part));
      if ((place_ >> bit & 1) != 0)
        combine_from_left(slot, part);
      else
        combine_from_right(slot, part);
      in.finish();
    }
  }

  /// Adds what has arrived from lower ranks.
  void combine_from_left(std::uint16_t slot, std::uint32_t part) {
    if (at_[part] == source_register) {
      at_[part] = scratch();
      steps_.copy(source_register, at_[part]);
    }
    steps_.combine(slot_register(slot), at_[part]);
  }

  void combine_from_right(std::uint16_t slot, std::uint32_t part) {
    const Register sum = scratch();
    steps_.copy(slot_register(slot), sum);
    steps_.combine(at_[part], sum);
    if (at_[part].place == Place::partial) unused_.push_back(at_[part]);
    at_[part] = sum;
  }

  // Values of the cubes behind this one.

  void let_enter() {
    go_to_round(layout_.entry_round(cube_ + 1));
    for (std::uint32_t i = 0; i < teller_count(); ++i) {
      const Rank from{teller(i).first + place_ % (1u << teller(i).bits)};
      IncomingStream in(
          steps_, from,
          AnswerLines{.first = layout_.entry_answers(entry_bits_, place_ >> teller(i).bits)},
          count_like(place_, entry_bits_));
      await_carried(in, i, entry_bits_);
    }
    if (teller_count() == 1) return;
    for (std::uint32_t i = 0; i < count_like(place_, entry_bits_); ++i) {
      const std::uint32_t part = part_like(place_, entry_bits_, i);
      begin_part(part);
      const Register fold = new_partial();
      steps_.copy(carried_at_[part], fold);  // of the last one
      for (std::uint32_t other = teller_count() - 1; other-- > 0;)
        steps_.combine(slot_register(layout_.carried(other, entry_bits_, part)), fold);
      carried_at_[part] = fold;
    }
  }

  /// Carries values over a bit; the ranks below 2^bit have them by now.
  void carry(std::uint32_t bit) {
    OutgoingStream& out = halving_[bit].out;
    go_to_round(layout_.carrying_round(bit));
    if (place_ >> bit == 1) await_carried(halving_[bit].in, 0, bit + 1);
    if (place_ >> bit != 0) return;
    const std::uint32_t to = place_ ^ (1u << bit);
    for (std::uint32_t i = 0; i < count_like(to, bit + 1); ++i) {
      const std::uint32_t part = part_like(to, bit + 1, i);
      out.begin(number_of_register(part));
      const Register sent = in_partial(carried_at_[part]);
      out.put(layout_.carried(0, entry_bits_, part), sent);
    }
  }

  void await_carried(IncomingStream& in, std::uint32_t teller, std::uint32_t bits) {
    for (std::uint32_t i = 0; i < count_like(place_, bits); ++i) {
      const std::uint32_t part = part_like(place_, bits, i);
      const std::uint16_t slot = layout_.carried(teller, entry_bits_, part);
      in.await(slot, number_of_register(part));
      carried_at_[part] = slot_register(slot);
      in.finish();
    }
  }

  /// A partial with that value, which can be sent or added to.
  Register in_partial(Register value) {
    if (value.place == Place::partial) return value;
    const Register copy = new_partial();
    steps_.copy(value, copy);
    return copy;
  }

  /// A partial with what this cube and those that send to it have contributed to a part.
  Register fold_of(std::uint32_t part) {
    begin_part(part);
    if (!carries()) return in_partial(at_[part]);
    const Register fold = in_partial(carried_at_[part]);
    steps_.combine(at_[part], fold);
    return fold;
  }

  /// f(rank, place in its cube) for the ranks of the other cube that receive from this one, and
  /// send it results.
  template <class F>
  void for_told(F&& f) const {
    for (std::uint32_t place = place_; place < 1u << told_bits(); place += 1u << bits_)
      f(Rank{told().first + place}, place);
  }

  /// Sends to all ranks of the other cube at the same time.
  void tell_other_cube() {
    const std::uint32_t bits = told_bits();
    go_to_round(layout_.entry_round(cube_));
    std::vector<OutgoingStream> streams;
    for_told([&](Rank rank, std::uint32_t place) {
      streams.push_back(
          {steps_, rank, AnswerLines{.first = layout_.entry_answers(bits, place >> bits_)}});
    });
    for (std::uint32_t i = 0; i < count_like(0, bits); ++i)
      for (OutgoingStream& out : streams) {
        const std::uint32_t place = index_of(out.peer()) - told().first;
        if (i == count_like(place, bits)) continue;
        const std::uint32_t part = part_like(place, bits, i);
        out.begin(number_of_register(part));
        const Register fold = fold_of(part);
        out.put(layout_.carried(layout_.number_of_teller(cube_), bits, part), fold);
      }
  }

  // Results.

  void tell_owners() {
    const std::uint32_t core = 1u << layout_.most_bits();
    if (!layout_.is_cube()) go_to_round(layout_.first_result_round());
    if (cube_ == 0) {
      if (const std::uint32_t other = place_ + core; other < layout_.parts()) {
        const Register fold = fold_of(other);
        steps_.put(Rank{other}, layout_.own_result(), 1, fold);
      }
      steps_.copy(fold_of(place_), target_register);
      return;
    }
    begin_part(index_of(plan_.self));
    steps_.await(Rank{index_of(plan_.self) - core}, layout_.own_result(), 1);
    steps_.copy(slot_register(layout_.own_result()), target_register);
  }

  void keep_result(std::uint32_t part) {
    at_[part] = fold_of(part);
    steps_.copy(at_[part], target_register);
  }

  /// The parts in the order in which a rank of that place gets their results.
  std::uint32_t known_part(std::uint32_t place, std::uint32_t index) const {
    for (std::uint32_t bit = layout_.most_bits(); bit-- > 0; index >>= 1)
      place ^= (index & 1) << bit;
    return place;
  }
  /// How many of them it has before it sends those of the bit below.
  std::uint32_t known_count(std::uint32_t bit) const { return count_like(0, bit); }

  void await_result(IncomingStream& in, std::uint32_t part, bool is_passed_on) {
    const std::uint16_t slot = layout_.result(part);
    in.await(slot, number_of_register(part));
    at_[part] = slot_register(slot);
    if (is_passed_on) {
      at_[part] = new_partial();
      steps_.copy(slot_register(slot), at_[part]);
    }
    steps_.copy(at_[part], target_register);
    in.finish();
  }

  void put_result(OutgoingStream& out, std::uint32_t part) {
    out.begin(number_of_register(part));
    out.put(layout_.result(part), at_[part]);
  }

  void results_from_other_cube() {
    const std::uint32_t bits = told_bits();
    go_to_round(layout_.result_round(layout_.told_by(cube_), bits - 1));
    const AnswerLines answers{layout_.leaving_answers(layout_.number_of_teller(cube_), bits)};
    std::vector<IncomingStream> streams;
    for_told([&](Rank rank, std::uint32_t) {
      streams.push_back({steps_, rank, answers, known_count(bits)});
    });
    for (std::uint32_t i = 0; i < known_count(bits); ++i)
      for (IncomingStream& in : streams)
        await_result(in, known_part(index_of(in.peer()) - told().first, i), bits_ > 0);
  }

  /// Takes the results of one bit and sends those of the next, alternately.
  void allgather() {
    for (std::uint32_t bit = 0; bit < bits_; ++bit)
      gathering_.push_back(exchange(bit, layout_.result_answers(bit), known_count(bit + 1)));
    for (std::uint32_t bit = bits_; bit-- > 0;) {
      go_to_round(layout_.result_round(cube_, bit));
      OutgoingStream& out = gathering_[bit].out;
      const std::uint32_t count = known_count(bit + 1);
      for (std::uint32_t i = 0; i < count; ++i) {
        if (bit + 1 < bits_ && i >= known_count(bit + 2))
          take_results(bit + 1, i + 1 - known_count(bit + 2));
        take_results(bit, out.to_be_taken());
        put_result(out, known_part(place_, i));
      }
      if (carries() && bit + 1 == entry_bits_ && place_ < 1u << entry_bits_) tell_tellers();
    }
    if (bits_ > 0) take_results(0, known_count(1));
  }

  void take_results(std::uint32_t bit, std::uint32_t count) {
    IncomingStream& in = gathering_[bit].in;
    while (in.taken() < count)
      await_result(in, known_part(place_ ^ (1u << bit), in.taken()), bit > 0);
  }

  void tell_tellers() {
    for (std::uint32_t teller_number = 0; teller_number < teller_count(); ++teller_number) {
      const Cube& cube = teller(teller_number);
      OutgoingStream out(steps_, Rank{cube.first + place_ % (1u << cube.bits)},
                         AnswerLines{.first = layout_.leaving_answers(teller_number, entry_bits_)});
      for (std::uint32_t i = 0; i < known_count(entry_bits_); ++i)
        put_result(out, known_part(place_, i));
    }
  }

  void begin_part(std::uint32_t part) { steps_.begin_part(number_of_register(part)); }

  void count_messages() {
    std::map<Rank, std::uint32_t> incoming;
    std::uint32_t most = 0;
    for (const Step& step : plan_.steps)
      if (step.action == Action::await) most = std::max(most, ++incoming[step.peer]);
    // No rank is in the next call of an allreduce before this rank has taken its messages, because
    // it needs this rank's results.
    if (plan_.line_slot_count > 0)
      plan_.incoming_max = incoming_of_windows;
    else if (results_ == HalvingResults::everywhere)
      plan_.incoming_max = most;
    if (layout_.is_cube()) {  // every rank sends as many as this one
      plan_.per_round.assign(round_ + 1, 0);
      for (const Step& step : plan_.steps)
        if (step.action == Action::put) ++plan_.per_round[step.round];
      return;
    }
    plan_.per_round = layout_.most_in_rounds();
  }

  HalvingLayout layout_;
  HalvingResults results_;
  std::size_t cube_ = 0;
  std::uint32_t bits_ = 0, place_ = 0;     // of the own cube, and in it
  std::uint32_t entry_bits_ = 0;           // of what the next cube has
  std::vector<Register> at_, carried_at_;  // by part: the value of this cube, and of those behind
  std::vector<Register> unused_;
  std::vector<Exchange> halving_, gathering_;  // by bit
  std::uint32_t round_ = 0;
  Plan plan_;
  StepWriter steps_{plan_};
};

}  // namespace

bool is_canonical_halving(std::uint32_t rank_count) {
  return rank_count > 0 && 4 * std::uint64_t{rank_count} <= slots_max;
}

std::vector<std::uint32_t> canonical_halving_runs(std::uint32_t rank_count) {
  std::vector<std::uint32_t> runs;
  for (std::uint32_t half = std::bit_floor(rank_count) / 2; half > 0; half /= 2)
    runs.push_back(half);
  return runs;
}

std::uint32_t canonical_halving_partners_max(std::uint32_t rank_count) {
  return static_cast<std::uint32_t>(std::bit_width(rank_count - 1)) + 4;
}

Plan canonical_halving_allreduce(Rank self, std::uint32_t rank_count) {
  assert(is_canonical_halving(rank_count) && index_of(self) < rank_count);
  return Builder(self, rank_count, HalvingResults::everywhere).build();
}

Plan canonical_halving_reduce_scatter(Rank self, std::uint32_t rank_count) {
  assert(is_canonical_halving(rank_count) && index_of(self) < rank_count);
  return Builder(self, rank_count, HalvingResults::own_part).build();
}

}  // namespace tutti::plan
