// The layout of recursive halving (canonical_halving.hpp), alike on all ranks: which cubes there
// are and which sends to which, the slots of every message, and the rounds.
//
//   slots   halves: for each round, by the bits of the part above that of the round
//           then carried values, by the bits of the part above those of the ranks where they enter
//           then results: one for each part of an allreduce, one in all of a reduce-scatter
//           then answers: for each round; for what enters another cube; for results, likewise
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/core/windows.hpp"

namespace tutti::plan {

/// Where results go: everywhere in an allreduce, to their owners in a reduce-scatter.
enum class HalvingResults : std::uint8_t { everywhere, own_part };

/// 2^bits ranks from `first` on, which halve among themselves.
struct Cube {
  std::uint32_t first = 0;
  std::uint32_t bits = 0;
};

/// The number of a slot or part, which has 16 bits.
std::uint16_t number_of_register(std::uint32_t value);

class HalvingLayout {
 public:
  HalvingLayout(std::uint32_t rank_count, HalvingResults results);

  const std::vector<Cube>& cubes() const { return cubes_; }
  /// The cube to which a cube sends what it and those that send to it have, and its number among
  /// the cubes that send there.
  std::size_t told_by(std::size_t cube) const { return std::min(cube - 1, last_large_); }
  std::uint32_t number_of_teller(std::size_t cube) const {
    return static_cast<std::uint32_t>(cube - 1 - told_by(cube));
  }
  /// How many cubes send to a cube: from the one behind it on.
  std::uint32_t teller_count(std::size_t cube) const {
    return static_cast<std::uint32_t>(cube > last_large_    ? 0
                                      : cube == last_large_ ? cubes_.size() - 1 - cube
                                                            : 1);
  }
  /// They send to its first 2^bits ranks.
  std::uint32_t entry_bits(std::size_t cube) const {
    return cube < last_large_ ? cubes_[cube + 1].bits : std::min(cubes_[cube].bits, large_bits_min);
  }
  bool is_cube() const { return cubes_.size() == 1; }
  std::uint32_t parts() const { return parts_; }
  /// Whether parts are halved in the reverse of the order in which their results come: those first
  /// that have the most rounds ahead.  Where long streams wait for answers, the order of their
  /// numbers is faster, by 2 % for 96 ranks and 1 MiB.
  bool longest_way_first() const {
    return std::has_single_bit(parts_) && (parts_ < unanswered_max || !has_answers());
  }
  /// Whether many messages between two ranks go in windows: up to 32 ranks of a single cube have
  /// receives for all of them, so that six operations still share a connection.
  bool has_answers() const { return !is_cube() || parts_ > unanswered_max; }
  /// The number of parts that have so many low bits of `place`; place 0 has most.
  std::uint32_t count_like(std::uint32_t place, std::uint32_t bits) const {
    const std::uint32_t first = place & ((1u << bits) - 1);
    return ((parts_ - 1 - first) >> bits) + 1;
  }

  std::uint16_t halved(std::uint32_t bit, std::uint32_t part) const {
    return number_of_register(halved_[bit] + (part >> (bit + 1)));
  }
  std::uint16_t carried(std::uint32_t teller, std::uint32_t bits, std::uint32_t part) const {
    return number_of_register(carried_ + teller * count_like(0, bits) + (part >> bits));
  }
  std::uint16_t result(std::uint32_t part) const { return number_of_register(results_ + part); }
  std::uint16_t own_result() const { return number_of_register(results_); }
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

  // Rounds.

  std::uint32_t most_bits() const { return cubes_[0].bits; }
  /// Carried values have rounds between those of the halves: they go over a bit after the halves of
  /// the next one, so that there is one message about a part in a round.
  std::uint32_t halving_round(std::uint32_t bit) const {
    const std::uint32_t first_carried = least_entry_bits_ + 1;
    return bit + (bit > first_carried ? bit - first_carried : 0);
  }
  std::uint32_t carrying_round(std::uint32_t bit) const {
    return halving_round(bit + 1) + (bit + 1 < most_bits() || has_half() ? 1 : 0);
  }
  /// A cube sends what it has when it has all; the other cube carries it later.
  std::uint32_t entry_round(std::size_t cube) const {
    const std::uint32_t bits = entry_bits(told_by(cube));
    return is_large(cube) ? halving_round(bits + 1) : bits - 1;
  }
  std::uint32_t first_result_round() const {
    return is_cube() ? most_bits() : carrying_round(most_bits() - 1) + 1;
  }
  /// Each cube gets results a round after the cube that sends them.
  std::uint32_t result_round(std::size_t cube, std::uint32_t bit) const {
    return first_result_round() + most_bits() - 1 - bit + depth(cube);
  }
  /// Upper bounds of the messages in each round, for all ranks.
  std::vector<std::uint32_t> most_in_rounds() const;

 private:
  bool is_large(std::size_t cube) const { return cube <= last_large_; }
  /// The cubes that results pass on their way from the first one to this.
  std::uint32_t depth(std::size_t cube) const {
    return static_cast<std::uint32_t>(std::min(cube, last_large_ + 1));
  }
  /// Whether the second cube is half as large as the first one.
  bool has_half() const {
    return cubes_.size() > 1 && is_large(1) && cubes_[1].bits + 1 == cubes_[0].bits;
  }
  static constexpr std::uint32_t unanswered_max = 32;
  /// Cubes of fewer bits send what they have to 2^3 ranks of one that has as many, if there is any.
  static constexpr std::uint32_t large_bits_min = 3;

  HalvingResults results_are_;
  std::vector<Cube> cubes_;
  std::size_t last_large_;
  std::uint32_t parts_, least_entry_bits_;
  std::vector<std::uint32_t> halved_, halving_answers_, result_answers_;
  std::uint32_t carried_ = 0, results_ = 0, line_first_ = 0;
  std::uint32_t entry_answers_ = 0, leaving_answers_ = 0, slot_count_ = 0;
};

}  // namespace tutti::plan
