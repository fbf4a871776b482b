// See canonical_halving.hpp.  Here: which part comes where, and when.
//
//   slots   of each round, by the bits of the part above that of the round
//           then what is carried, by the bits of the part above those of the ranks where it enters
//           then results: of an allreduce one for each part, of a reduce-scatter one
//           then answers: of each round; of what enters the cube before; of results, likewise
//
// All ranks of a cube do the same at the same point, if there is a part to do it with, and what
// they await was put at an earlier one: so nobody waits in a circle.
#include "plan/canonical_halving.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <map>
#include <utility>
#include <vector>

#include "plan/per_round.hpp"
#include "plan/steps.hpp"
#include "plan/windows.hpp"

namespace tutti::plan {
namespace {

/// Cubes of fewer bits tell what they have to 2^3 ranks of one that has as many, if there is any.
constexpr std::uint32_t large_bits_min = 3;

enum class Results { everywhere, own_part };

struct Cube {
  std::uint32_t first;  // rank
  std::uint32_t bits;
};

std::vector<Cube> cubes_of(std::uint32_t rank_count) {
  std::vector<Cube> cubes;
  for (std::uint32_t first = 0; first < rank_count; first += 1u << cubes.back().bits)
    cubes.push_back({first, static_cast<std::uint32_t>(std::bit_width(rank_count - first) - 1)});
  return cubes;
}

std::uint16_t number(std::uint32_t value) {
  assert(value <= UINT16_MAX);
  return static_cast<std::uint16_t>(value);
}

/// Slots, alike on all ranks.
class Layout {
 public:
  Layout(std::uint32_t rank_count, Results results)
      : cubes_(cubes_of(rank_count)),
        last_large_(std::max<std::size_t>(
                        static_cast<std::size_t>(std::popcount(rank_count >> large_bits_min)), 1) -
                    1),
        parts_(results == Results::everywhere ? 1u << cubes_[0].bits : rank_count),
        least_entry_bits_(cubes_[0].bits) {
    std::uint32_t next = 0;
    const auto append = [&](std::uint32_t count) { return std::exchange(next, next + count); };
    for (std::uint32_t bit = 0; bit < cubes_[0].bits; ++bit)
      halved_.push_back(append(count_like(0, bit + 1)));
    std::uint32_t carried = 0, entering = 0, leaving = 0;
    for (std::size_t cube = 1; cube < cubes_.size(); ++cube) {
      const std::uint32_t bits = entry_bits(told_by(cube));
      least_entry_bits_ = std::min(least_entry_bits_, bits);
      const std::uint32_t parts = count_like(0, bits), answers = answer_count(parts);
      const std::uint32_t before = number_of_teller(cube);
      carried = std::max(carried, (before + 1) * parts);
      entering = std::max(entering, answers << (bits - cubes_[cube].bits));
      leaving = std::max(leaving, (before + 1) * answers);
    }
    carried_ = append(carried);
    const bool everywhere = results == Results::everywhere;
    results_ = append(everywhere ? parts_ : is_cube() ? 0 : 1);
    line_first_ = next;
    for (std::uint32_t bit = 0; bit < cubes_[0].bits; ++bit)
      halving_answers_.push_back(
          append(answer_count((is_cube() ? 1 : 2) * count_like(0, bit + 1))));
    entry_answers_ = append(entering);
    for (std::uint32_t bit = 0; everywhere && bit < cubes_[0].bits; ++bit)
      result_answers_.push_back(append(answer_count(count_like(0, bit + 1))));
    leaving_answers_ = append(everywhere ? leaving : 0);
    slot_count_ = next;
  }

  const std::vector<Cube>& cubes() const { return cubes_; }
  /// To which a cube tells what it and those that tell it have, and as which of those that do.
  std::size_t told_by(std::size_t cube) const { return std::min(cube - 1, last_large_); }
  std::uint32_t number_of_teller(std::size_t cube) const {
    return static_cast<std::uint32_t>(cube - 1 - told_by(cube));
  }
  bool is_large(std::size_t cube) const { return cube <= last_large_; }
  /// Whether the second cube is half as large as the first one.
  bool has_half() const {
    return cubes_.size() > 1 && is_large(1) && cubes_[1].bits + 1 == cubes_[0].bits;
  }
  /// Cubes from the first one to this, each told by the next.
  std::uint32_t depth(std::size_t cube) const {
    return static_cast<std::uint32_t>(std::min(cube, last_large_ + 1));
  }
  /// How many tell a cube: from the one behind it on.
  std::uint32_t teller_count(std::size_t cube) const {
    return static_cast<std::uint32_t>(cube > last_large_    ? 0
                                      : cube == last_large_ ? cubes_.size() - 1 - cube
                                                            : 1);
  }
  /// They tell its first 2^bits ranks.
  std::uint32_t entry_bits(std::size_t cube) const {
    return cube < last_large_ ? cubes_[cube + 1].bits : std::min(cubes_[cube].bits, large_bits_min);
  }
  bool is_cube() const { return cubes_.size() == 1; }
  std::uint32_t least_entry_bits() const { return least_entry_bits_; }
  std::uint32_t parts() const { return parts_; }
  /// Parts that have so many low bits of `place`; of place 0 there are most.
  std::uint32_t count_like(std::uint32_t place, std::uint32_t bits) const {
    const std::uint32_t first = place & ((1u << bits) - 1);
    return ((parts_ - 1 - first) >> bits) + 1;
  }

  std::uint16_t halved(std::uint32_t bit, std::uint32_t part) const {
    return number(halved_[bit] + (part >> (bit + 1)));
  }
  std::uint16_t carried(std::uint32_t teller, std::uint32_t bits, std::uint32_t part) const {
    return number(carried_ + teller * count_like(0, bits) + (part >> bits));
  }
  std::uint16_t result(std::uint32_t part) const { return number(results_ + part); }
  std::uint16_t own_result() const { return number(results_); }
  std::uint32_t halving_answers(std::uint32_t bit) const { return halving_answers_[bit]; }
  std::uint32_t entry_answers(std::uint32_t bits, std::uint32_t rank) const {
    return entry_answers_ + rank * answer_count(count_like(0, bits));
  }
  std::uint32_t result_answers(std::uint32_t bit) const { return result_answers_[bit]; }
  std::uint32_t leaving_answers(std::uint32_t teller, std::uint32_t bits) const {
    return leaving_answers_ + teller * answer_count(count_like(0, bits));
  }
  std::uint32_t slot_count() const { return slot_count_; }
  std::uint32_t line_slot_count() const { return slot_count_ - line_first_; }

 private:
  std::vector<Cube> cubes_;
  std::size_t last_large_;
  std::uint32_t parts_, least_entry_bits_;
  std::vector<std::uint32_t> halved_, halving_answers_, result_answers_;
  std::uint32_t carried_ = 0, results_ = 0, line_first_ = 0;
  std::uint32_t entry_answers_ = 0, leaving_answers_ = 0, slot_count_ = 0;
};

/// Messages to and from one rank, counted; windows are answered.
class Channel {
 public:
  Channel(StepWriter& steps, Rank peer, std::uint32_t first_answer, std::uint32_t incoming)
      : steps_(&steps), peer_(peer), first_answer_(first_answer), incoming_(incoming) {}

  Rank peer() const { return peer_; }
  std::uint32_t taken() const { return taken_; }
  /// So many have to be taken before the next one is sent, in which the peer does the same.
  std::uint32_t to_be_taken() const {
    const auto next = static_cast<std::uint32_t>(sent_.size());
    return awaits_answer(next) ? taken_before(next) : 0;
  }

  /// About the part that is put then.  An answer is about the last part that it is for.
  void before_put(std::uint32_t part) {
    const auto next = static_cast<std::uint32_t>(sent_.size());
    if (awaits_answer(next)) {
      steps_->begin_part(number(sent_[taken_before(next) - 1]));
      steps_->await(peer_, answer(answer_before(next)), 0);
    }
    steps_->begin_part(number(part));
    sent_.push_back(part);
  }
  void after_await() {
    if (is_answered(taken_, incoming_)) steps_->put(peer_, answer(taken_ / window), 0);
    ++taken_;
  }

 private:
  std::uint16_t answer(std::uint32_t index) const { return number(first_answer_ + index); }

  StepWriter* steps_;
  Rank peer_;
  std::uint32_t first_answer_, incoming_;
  std::vector<std::uint32_t> sent_;  // parts
  std::uint32_t taken_ = 0;
};

class Builder {
 public:
  Builder(Rank self, std::uint32_t rank_count, Results results)
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
      halving_.push_back({steps_, partner(bit), layout_.halving_answers(bit),
                          (brings_more ? 2 : 1) * count_like(place_, bit + 1)});
    }
    plan_.self = self;
    plan_.rank_count = rank_count;
    plan_.algorithm = "canonical_halving";
    plan_.all_alike = layout_.is_cube();
    plan_.parts = number(layout_.parts());
    plan_.slot_count = number(layout_.slot_count());
    plan_.line_slot_count = number(layout_.line_slot_count());
  }

  Plan build() && {
    if (plan_.rank_count == 1) {
      steps_.copy(source_register, target_register);
      return std::move(plan_);
    }
    reduce_scatter();
    if (results_ == Results::own_part) {
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
  /// Where what this cube has enters another.
  const Cube& told() const { return layout_.cubes()[layout_.told_by(cube_)]; }
  std::uint32_t told_bits() const { return layout_.entry_bits(layout_.told_by(cube_)); }
  Rank partner(std::uint32_t bit) const { return Rank{here().first + (place_ ^ (1u << bit))}; }
  bool differs(std::uint32_t part, std::uint32_t bit) const {
    return ((part ^ place_) >> bit & 1) != 0;
  }
  std::uint32_t count_like(std::uint32_t place, std::uint32_t bits) const {
    return layout_.count_like(place, bits);
  }
  /// The i-th of these.
  static std::uint32_t part_like(std::uint32_t place, std::uint32_t bits, std::uint32_t i) {
    return (place & ((1u << bits) - 1)) + (i << bits);
  }

  Register new_partial() { return partial_register(plan_.partial_count++); }
  /// That nobody was sent.
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
  std::uint32_t most_bits() const { return layout_.cubes()[0].bits; }
  /// What is carried has rounds between those of the halves: it goes over a bit after the halves of
  /// the next one, so that it is not the second message about its part.
  std::uint32_t halving_round(std::uint32_t bit) const {
    const std::uint32_t first_carried = layout_.least_entry_bits() + 1;
    return bit + (bit > first_carried ? bit - first_carried : 0);
  }
  std::uint32_t carrying_round(std::uint32_t bit) const {
    return halving_round(bit + 1) + (bit + 1 < most_bits() || layout_.has_half() ? 1 : 0);
  }
  /// What a cube has goes when it has all, and is carried later.
  std::uint32_t entry_round(std::size_t cube) const {
    const std::uint32_t bits = layout_.entry_bits(layout_.told_by(cube));
    return layout_.is_large(cube) ? halving_round(bits + 1) : bits - 1;
  }
  std::uint32_t first_result_round() const {
    return layout_.is_cube() ? most_bits() : carrying_round(most_bits() - 1) + 1;
  }
  /// Each cube is told a round after that which tells it.
  std::uint32_t result_round(std::size_t cube, std::uint32_t bit) const {
    return first_result_round() + most_bits() - 1 - bit + layout_.depth(cube);
  }

  /// While what came in one round is taken, what goes in the next is sent.
  void reduce_scatter() {
    for (std::uint32_t bit = 0; bit <= bits_; ++bit) {
      if (bit < bits_) go_to_round(halving_round(bit));
      for (std::uint32_t i = 0; i < count_like(place_, bit); ++i) {
        if (bit > 0) take_halves(bit - 1, i + 1);
        const std::uint32_t part = part_like(place_, bit, i);
        if (bit < bits_ && differs(part, bit)) send_half(bit, part);
      }
      if (!carries()) continue;
      if (bit > entry_bits_) carry(bit - 1);
      if (bit == entry_bits_ && place_ < 1u << entry_bits_) let_enter();
    }
    if (cube_ > 0) tell_other_cube();
  }

  void send_half(std::uint32_t bit, std::uint32_t part) {
    Channel& channel = halving_[bit];
    take_halves(bit, channel.to_be_taken());
    channel.before_put(part);
    if (at_[part] == source_register) {
      at_[part] = new_partial();
      steps_.copy(source_register, at_[part]);
    }
    steps_.put(channel.peer(), layout_.halved(bit, part), 1, at_[part]);
  }

  void take_halves(std::uint32_t bit, std::uint32_t count) {
    Channel& channel = halving_[bit];
    while (channel.taken() < count) {
      const std::uint32_t part = part_like(place_, bit + 1, channel.taken());
      begin_part(part);
      const std::uint16_t slot = layout_.halved(bit, part);
      steps_.await(channel.peer(), slot, 1);
      if ((place_ >> bit & 1) != 0)
        combine_from_left(slot, part);
      else
        combine_from_right(slot, part);
      channel.after_await();
    }
  }

  /// What has arrived is of lower ranks.
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

  // What the cubes behind this one have.

  void let_enter() {
    go_to_round(entry_round(cube_ + 1));
    for (std::uint32_t i = 0; i < teller_count(); ++i) {
      const Rank from{teller(i).first + place_ % (1u << teller(i).bits)};
      Channel channel(steps_, from, layout_.entry_answers(entry_bits_, place_ >> teller(i).bits),
                      count_like(place_, entry_bits_));
      await_carried(channel, i, entry_bits_);
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

  /// Has been awaited on the ranks below 2^bit by now.
  void carry(std::uint32_t bit) {
    Channel& channel = halving_[bit];
    go_to_round(carrying_round(bit));
    if (place_ >> bit == 1) await_carried(channel, 0, bit + 1);
    if (place_ >> bit != 0) return;
    const std::uint32_t to = place_ ^ (1u << bit);
    for (std::uint32_t i = 0; i < count_like(to, bit + 1); ++i) {
      const std::uint32_t part = part_like(to, bit + 1, i);
      channel.before_put(part);
      const Register sent = in_partial(carried_at_[part]);
      steps_.put(channel.peer(), layout_.carried(0, entry_bits_, part), 1, sent);
    }
  }

  void await_carried(Channel& channel, std::uint32_t teller, std::uint32_t bits) {
    for (std::uint32_t i = 0; i < count_like(place_, bits); ++i) {
      const std::uint32_t part = part_like(place_, bits, i);
      const std::uint16_t slot = layout_.carried(teller, entry_bits_, part);
      begin_part(part);
      steps_.await(channel.peer(), slot, 1);
      carried_at_[part] = slot_register(slot);
      channel.after_await();
    }
  }

  /// The value, or a copy that can be sent or added to.
  Register in_partial(Register value) {
    if (value.place == Place::partial) return value;
    const Register copy = new_partial();
    steps_.copy(value, copy);
    return copy;
  }

  /// What this cube and those that tell it have contributed, in a partial.
  Register fold_of(std::uint32_t part) {
    begin_part(part);
    if (!carries()) return in_partial(at_[part]);
    const Register fold = in_partial(carried_at_[part]);
    steps_.combine(at_[part], fold);
    return fold;
  }

  /// With the ranks of the other cube that hear from this one, and tell it results.
  std::vector<Channel> told_channels(std::uint32_t answers_apart, std::uint32_t first_answer,
                                     std::uint32_t incoming) {
    std::vector<Channel> channels;
    for (std::uint32_t place = place_; place < 1u << told_bits(); place += 1u << bits_) {
      channels.push_back({steps_, Rank{told().first + place}, first_answer, incoming});
      first_answer += answers_apart;
    }
    return channels;
  }

  /// All of them at the same time.
  void tell_other_cube() {
    const std::uint32_t bits = told_bits();
    go_to_round(entry_round(cube_));
    std::vector<Channel> channels =
        told_channels(layout_.entry_answers(bits, 1) - layout_.entry_answers(bits, 0),
                      layout_.entry_answers(bits, 0), 0);
    for (std::uint32_t i = 0; i < count_like(0, bits); ++i)
      for (Channel& channel : channels) {
        const std::uint32_t place = index_of(channel.peer()) - told().first;
        if (i == count_like(place, bits)) continue;
        const std::uint32_t part = part_like(place, bits, i);
        channel.before_put(part);
        const Register fold = fold_of(part);
        steps_.put(channel.peer(), layout_.carried(layout_.number_of_teller(cube_), bits, part), 1,
                   fold);
      }
  }

  // Results.

  void tell_owners() {
    const std::uint32_t core = 1u << most_bits();
    if (!layout_.is_cube()) go_to_round(first_result_round());
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

  /// In the order in which a rank of that place comes to know them.
  std::uint32_t known_part(std::uint32_t place, std::uint32_t index) const {
    for (std::uint32_t bit = most_bits(); bit-- > 0; index >>= 1) place ^= (index & 1) << bit;
    return place;
  }
  /// Before those of the bit below are told.
  std::uint32_t known_count(std::uint32_t bit) const { return count_like(0, bit); }

  void await_result(Channel& channel, std::uint32_t part, bool is_passed_on) {
    begin_part(part);
    const std::uint16_t slot = layout_.result(part);
    steps_.await(channel.peer(), slot, 1);
    at_[part] = slot_register(slot);
    if (is_passed_on) {
      at_[part] = new_partial();
      steps_.copy(slot_register(slot), at_[part]);
    }
    steps_.copy(at_[part], target_register);
    channel.after_await();
  }

  void put_result(Channel& channel, std::uint32_t part) {
    channel.before_put(part);
    steps_.put(channel.peer(), layout_.result(part), 1, at_[part]);
  }

  void results_from_other_cube() {
    const std::uint32_t bits = told_bits();
    go_to_round(result_round(layout_.told_by(cube_), bits - 1));
    std::vector<Channel> channels = told_channels(
        0, layout_.leaving_answers(layout_.number_of_teller(cube_), bits), known_count(bits));
    for (std::uint32_t i = 0; i < known_count(bits); ++i)
      for (Channel& channel : channels) {
        const std::uint32_t place = index_of(channel.peer()) - told().first;
        await_result(channel, known_part(place, i), bits_ > 0);
      }
  }

  /// While those of one bit are taken, those of the next are told.
  void allgather() {
    for (std::uint32_t bit = 0; bit < bits_; ++bit)
      gathering_.push_back(
          {steps_, partner(bit), layout_.result_answers(bit), known_count(bit + 1)});
    for (std::uint32_t bit = bits_; bit-- > 0;) {
      go_to_round(result_round(cube_, bit));
      Channel& channel = gathering_[bit];
      const std::uint32_t count = known_count(bit + 1);
      for (std::uint32_t i = 0; i < count; ++i) {
        if (bit + 1 < bits_ && i >= known_count(bit + 2))
          take_results(bit + 1, i + 1 - known_count(bit + 2));
        take_results(bit, channel.to_be_taken());
        put_result(channel, known_part(place_, i));
      }
      if (carries() && bit + 1 == entry_bits_ && place_ < 1u << entry_bits_) tell_tellers();
    }
    if (bits_ > 0) take_results(0, known_count(1));
  }

  void take_results(std::uint32_t bit, std::uint32_t count) {
    Channel& channel = gathering_[bit];
    while (channel.taken() < count)
      await_result(channel, known_part(place_ ^ (1u << bit), channel.taken()), bit > 0);
  }

  void tell_tellers() {
    for (std::uint32_t teller_number = 0; teller_number < teller_count(); ++teller_number) {
      const Cube& cube = teller(teller_number);
      Channel channel(steps_, Rank{cube.first + place_ % (1u << cube.bits)},
                      layout_.leaving_answers(teller_number, entry_bits_), 0);
      for (std::uint32_t i = 0; i < known_count(entry_bits_); ++i)
        put_result(channel, known_part(place_, i));
    }
  }

  void begin_part(std::uint32_t part) { steps_.begin_part(number(part)); }

  void count_messages() {
    std::map<Rank, std::uint32_t> incoming;
    std::uint32_t most = 0;
    for (const Step& step : plan_.steps)
      if (step.action == Action::await) most = std::max(most, ++incoming[step.peer]);
    // Nobody is in the next call of an allreduce before this rank has looked: without, it has no
    // result to tell.
    if (plan_.line_slot_count > 0)
      plan_.incoming_max = incoming_of_windows;
    else if (results_ == Results::everywhere)
      plan_.incoming_max = most;
    if (layout_.is_cube()) {  // every rank sends as many as this one
      plan_.per_round.assign(round_ + 1, 0);
      for (const Step& step : plan_.steps)
        if (step.action == Action::put) ++plan_.per_round[step.round];
      return;
    }
    plan_.per_round = most_in_rounds();
  }

  /// Upper bounds, alike on all ranks.
  std::vector<std::uint32_t> most_in_rounds() const {
    const std::vector<Cube>& cubes = layout_.cubes();
    const bool everywhere = results_ == Results::everywhere;
    const std::uint32_t rounds = everywhere ? most_bits() + layout_.depth(cubes.size() - 1) : 1;
    std::vector<std::uint32_t> most(first_result_round() + rounds, 0);
    const auto allow = [&](std::uint32_t round, std::uint32_t messages) {
      most[round] = std::max(most[round], messages);
    };
    for (std::uint32_t bit = 0; bit < most_bits(); ++bit) {
      const std::uint32_t half = count_like(0, bit + 1);
      // Answers to what comes over this bit, and to the rest of what came over that before.
      allow(halving_round(bit), half + half / window + (bit > 0 ? 2 * half / window : 0));
      if (bit >= layout_.least_entry_bits()) allow(carrying_round(bit), half + half / window);
    }
    if (!everywhere) allow(first_result_round(), 1);
    for (std::size_t cube = 0; cube < cubes.size(); ++cube) {
      for (std::uint32_t bit = 0; everywhere && bit < cubes[cube].bits; ++bit) {
        const std::uint32_t half = count_like(0, bit + 1);
        allow(result_round(cube, bit), half + half / window + half / (2 * window));
      }
      if (cube == 0) continue;
      // What a cube tells, and what it is told.
      const std::size_t told = layout_.told_by(cube);
      allow(entry_round(cube), count_like(0, cubes[cube].bits));
      if (everywhere)
        allow(result_round(told, layout_.entry_bits(told) - 1), count_like(0, cubes[cube].bits));
    }
    // Besides, with the ranks of others that it tells and that tell it.
    for (std::size_t cube = 1; cube < cubes.size(); ++cube) {
      const std::size_t told = layout_.told_by(cube);
      const std::uint32_t bits = layout_.entry_bits(told), parts = count_like(0, bits);
      const std::uint32_t round = bits < cubes[told].bits
                                      ? std::max(entry_round(cube), halving_round(bits))
                                      : entry_round(cube);
      most[round] += parts;  // and answers, which are fewer
      if (everywhere) most[result_round(told, bits - 1)] += parts;
    }
    while (most.back() == 0) most.pop_back();  // the last cube may have one rank
    return most;
  }

  Layout layout_;
  Results results_;
  std::size_t cube_ = 0;
  std::uint32_t bits_ = 0, place_ = 0;     // of the own cube, and in it
  std::uint32_t entry_bits_ = 0;           // of what the next cube has
  std::vector<Register> at_, carried_at_;  // what is held of each part, of this cube and of others
  std::vector<Register> unused_;
  std::vector<Channel> halving_, gathering_;  // by bit
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
  return Builder(self, rank_count, Results::everywhere).build();
}

Plan canonical_halving_reduce_scatter(Rank self, std::uint32_t rank_count) {
  assert(is_canonical_halving(rank_count) && index_of(self) < rank_count);
  return Builder(self, rank_count, Results::own_part).build();
}

}  // namespace tutti::plan
