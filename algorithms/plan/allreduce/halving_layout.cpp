#include "plan/allreduce/halving_layout.hpp"

#include <bit>
#include <cassert>
#include <utility>

namespace tutti::plan {
namespace {

std::vector<Cube> cubes_of(std::uint32_t rank_count) {
  std::vector<Cube> cubes;
  for (std::uint32_t first = 0; first < rank_count; first += 1u << cubes.back().bits)
    cubes.push_back({first, static_cast<std::uint32_t>(std::bit_width(rank_count - first) - 1)});
  return cubes;
}

}  // namespace

std::uint16_t number_of_register(std::uint32_t value) {
  assert(value <= UINT16_MAX);
  return static_cast<std::uint16_t>(value);
}

HalvingLayout::HalvingLayout(std::uint32_t rank_count, HalvingResults results)
    : results_are_(results),
      cubes_(cubes_of(rank_count)),
      last_large_(std::max<std::size_t>(
                      static_cast<std::size_t>(std::popcount(rank_count >> large_bits_min)), 1) -
                  1),
      parts_(results == HalvingResults::everywhere ? 1u << cubes_[0].bits : rank_count),
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
  const bool everywhere = results == HalvingResults::everywhere;
  results_ = append(everywhere ? parts_ : is_cube() ? 0 : 1);
  line_first_ = next;
  for (std::uint32_t bit = 0; bit < cubes_[0].bits; ++bit)
    halving_answers_.push_back(
        append(has_answers() ? answer_count((is_cube() ? 1 : 2) * count_like(0, bit + 1)) : 0));
  entry_answers_ = append(entering);
  for (std::uint32_t bit = 0; everywhere && bit < cubes_[0].bits; ++bit)
    result_answers_.push_back(append(has_answers() ? answer_count(count_like(0, bit + 1)) : 0));
  leaving_answers_ = append(everywhere ? leaving : 0);
  slot_count_ = next;
}

std::vector<std::uint32_t> HalvingLayout::most_in_rounds() const {
  const bool everywhere = results_are_ == HalvingResults::everywhere;
  const std::uint32_t rounds = everywhere ? most_bits() + depth(cubes_.size() - 1) : 1;
  std::vector<std::uint32_t> most(first_result_round() + rounds, 0);
  const auto allow = [&](std::uint32_t round, std::uint32_t messages) {
    most[round] = std::max(most[round], messages);
  };
  for (std::uint32_t bit = 0; bit < most_bits(); ++bit) {
    const std::uint32_t half = count_like(0, bit + 1);
    // Halves, answers to those over this bit, and answers to the rest of those over the bit before.
    allow(halving_round(bit), half + half / window + (bit > 0 ? 2 * half / window : 0));
    if (bit >= least_entry_bits_) allow(carrying_round(bit), half + half / window);
  }
  if (!everywhere) allow(first_result_round(), 1);
  for (std::size_t cube = 0; cube < cubes_.size(); ++cube) {
    for (std::uint32_t bit = 0; everywhere && bit < cubes_[cube].bits; ++bit) {
      const std::uint32_t half = count_like(0, bit + 1);
      allow(result_round(cube, bit), half + half / window + half / (2 * window));
    }
    if (cube == 0) continue;
    // What a cube sends to another, and its results on their way back.
    const std::size_t told = told_by(cube);
    allow(entry_round(cube), count_like(0, cubes_[cube].bits));
    if (everywhere)
      allow(result_round(told, entry_bits(told) - 1), count_like(0, cubes_[cube].bits));
  }
  // The ranks that exchange with another cube do so in addition.
  for (std::size_t cube = 1; cube < cubes_.size(); ++cube) {
    const std::size_t told = told_by(cube);
    const std::uint32_t bits = entry_bits(told), parts = count_like(0, bits);
    const std::uint32_t round = bits < cubes_[told].bits
                                    ? std::max(entry_round(cube), halving_round(bits))
                                    : entry_round(cube);
    most[round] += parts;  // and answers, which are fewer
    if (everywhere) most[result_round(told, bits - 1)] += parts;
  }
  while (most.back() == 0) most.pop_back();  // the last cube may have one rank
  return most;
}

}  // namespace tutti::plan
