#include "tune/uncertainty.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <tutti/detail/check.hpp>
#include <utility>

#include "tune/prices.hpp"

namespace tutti::tune {

std::int64_t relative_change(std::int64_t from, std::int64_t to) {
  while (to > INT64_MAX / million) {  // more digits make no difference
    from /= 2;
    to /= 2;
  }
  return to * million / std::max<std::int64_t>(from, 1) - million;
}

namespace {

/// Holds the price of the one choice, and then that of the other one.
using Prices = std::array<std::int64_t, 2>;

/// Returns by how much the ratio of the first price to the second one grows.  A negative number
/// means that it falls.
std::int64_t growth(const Prices& from, const Prices& to) {
  return relative_change(million + relative_change(from[1], to[1]),
                         million + relative_change(from[0], to[0]));
}
Prices inverse(const Prices& prices) {
  return {prices[1], prices[0]};
}

}  // namespace

Uncertainty uncertainty_of(const Choice& one, const Choice& other, const Machine& machine) {
  detail::check(one.row().cost != nullptr && other.row().cost != nullptr,
                "choices that are compared have prices");
  Machine slowest = machine;
  for (Figure& figure : slowest.figures) figure.value = std::max(figure.value, figure.high);
  const Query query = one.query();
  const int bits = excess_bits(slowest.network(), query.request, query.topology);
  Machine moved = machine;
  const auto prices = [&] {
    const plan::Network network = faster(moved.network(), bits);
    return Prices{one.on(network).cost(), other.on(network).cost()};
  };
  const auto prices_at = [&](std::size_t parameter, std::int64_t end) {
    const std::int64_t value = std::exchange(moved.figures[parameter].value, end);
    const Prices there = prices();
    moved.figures[parameter].value = value;
    return there;
  };
  constexpr std::size_t priced_count =
      static_cast<std::size_t>(Parameter::fan_max);  // not the last
  const Prices known = prices();
  Uncertainty uncertainty;
  std::array<bool, priced_count> matters{};
  for (std::size_t i = 0; i < priced_count; ++i) {
    std::int64_t inverse_grown = 0;
    for (const std::int64_t end : {machine.figures[i].low, machine.figures[i].high}) {
      if (end == machine.figures[i].value) continue;
      const Prices there = prices_at(i, end);
      matters[i] = matters[i] || there != known;
      inverse_grown = std::max(inverse_grown, growth(inverse(known), inverse(there)));
    }
    uncertainty.inverse_sum += std::min(inverse_grown, million);
  }
  // The first pass leaves out what alone changes no price; after it, that may matter, too.
  Prices here = known;
  std::array<std::int64_t, priced_count> grown{};
  for (int pass = 0; pass < 2; ++pass)
    for (std::size_t i = 0; i < priced_count; ++i) {
      if (pass == 0 && !matters[i]) continue;
      const std::int64_t value = moved.figures[i].value;
      const Prices before = here;
      std::int64_t most = 0;
      for (const std::int64_t end : {machine.figures[i].low, machine.figures[i].high}) {
        if (end == value) continue;
        const Prices there = prices_at(i, end);
        if (growth(before, there) <= most) continue;
        most = growth(before, there);
        moved.figures[i].value = end;
        here = there;
      }
      grown[i] += std::min(most, million);  // what may double tells nothing
    }
  for (const std::int64_t of_one : grown) {
    const std::int64_t bounded = std::min(of_one, million);
    uncertainty.squared += bounded * bounded;
    uncertainty.sum += bounded;
  }
  return uncertainty;
}

bool is_worth_it(std::int64_t gain, const Uncertainty& uncertainty, std::int64_t of_findings) {
  if (gain >= gain_of_risk && gain + uncertainty.inverse_sum > gain_enough) return true;
  return gain * gain > uncertainty.squared + of_findings * of_findings &&
         uncertainty.sum + std::abs(of_findings) <= gain + loss_max;
}

}  // namespace tutti::tune
