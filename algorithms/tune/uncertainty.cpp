#include "tune/uncertainty.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <tutti/detail/check.hpp>

#include "tune/prices.hpp"

namespace tutti::tune {

std::int64_t relative_change(std::int64_t from, std::int64_t to) {
  while (to > INT64_MAX / million) {  // more digits make no difference
    from /= 2;
    to /= 2;
  }
  return to * million / std::max<std::int64_t>(from, 1) - million;
}

Uncertainty uncertainty_of(const Choice& one, const Choice& other, const Machine& machine) {
  detail::check(one.row().cost != nullptr && other.row().cost != nullptr,
                "choices that are compared have prices");
  Machine slowest = machine;
  for (Figure& figure : slowest.figures) figure.value = std::max(figure.value, figure.high);
  const Query query = one.query();
  const int bits = excess_bits(slowest.network(), query.request, query.topology);
  const auto prices_on = [&](const Machine& moved) {
    const plan::Network network = faster(moved.network(), bits);
    return std::array{one.on(network).cost(), other.on(network).cost()};
  };
  const auto [price_of_one, price_of_other] = prices_on(machine);
  Uncertainty uncertainty;
  Machine moved = machine;
  // No price is made of the last one.
  for (std::size_t i = 0; i < static_cast<std::size_t>(Parameter::fan_max); ++i) {
    Figure& figure = moved.figures[i];
    const Figure known = figure;
    std::int64_t higher = 0, inverse_higher = 0;
    for (const std::int64_t end : {known.low, known.high}) {
      if (end == known.value) continue;
      figure.value = end;
      const auto [of_one, of_other] = prices_on(moved);
      const std::int64_t to_one = million + relative_change(price_of_one, of_one);
      const std::int64_t to_other = million + relative_change(price_of_other, of_other);
      higher = std::max(higher, relative_change(to_other, to_one));
      inverse_higher = std::max(inverse_higher, relative_change(to_one, to_other));
    }
    figure = known;
    // What may double tells nothing, and larger numbers might overflow.
    higher = std::min(higher, million);
    uncertainty.squared += higher * higher;
    uncertainty.inverse_sum += std::min(inverse_higher, million);
  }
  return uncertainty;
}

bool is_worth_it(std::int64_t gain, const Uncertainty& uncertainty, std::int64_t of_findings) {
  return gain + uncertainty.inverse_sum > gain_enough ||
         gain * gain > uncertainty.squared + of_findings * of_findings;
}

}  // namespace tutti::tune
