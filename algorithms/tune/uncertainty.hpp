// How certain it is that one of two choices is faster, although the parameters of a machine are
// known only to some extent.
#pragma once

#include <cstdint>

#include "tune/choice.hpp"
#include "tune/machine.hpp"

namespace tutti::tune {

inline constexpr std::int64_t million = 1'000'000;

/// A choice that is faster by more than this replaces another one, however uncertain that is.
inline constexpr std::int64_t gain_enough = million / 10;
/// Below this gain, the risk that the other choice is much slower is no reason to replace it: the
/// faster choice could prove slower, too.
inline constexpr std::int64_t gain_of_risk = million * 3 / 100;
/// If all errors add up, a choice that replaces another one because its gain is certain may take
/// about this much longer than that one.
inline constexpr std::int64_t loss_max = million * 2 / 100;

/// Returns to / from - 1, in parts per million.
std::int64_t relative_change(std::int64_t from, std::int64_t to);

/// How uncertain the ratio of two prices is, as each parameter of the machine is known only as an
/// interval that contains it with 95 % probability.  In parts per million.
struct Uncertainty {
  /// The parameters are moved one after another, and stay moved, each to the end of its interval at
  /// which the ratio is larger.  This is the sum of the squares of how much each parameter makes
  /// the ratio grow.  There are two passes: a price may be the larger one of two terms, so that a
  /// parameter may matter only after others have been moved.  Errors of parameters are taken to be
  /// independent (as in JCGM 100:2008, 5.1.2, but there each parameter is moved alone; here the sum
  /// depends a little on their order).
  std::int64_t squared = 0;
  /// The plain sum of these growths: about how much the ratio grows if all errors add up.
  std::int64_t sum = 0;
  /// How much the inverse of the ratio may grow: the plain sum, over all parameters, of how much it
  /// grows if that parameter alone is moved to that end of its interval at which the inverse is
  /// larger.
  std::int64_t inverse_sum = 0;
};

/// Returns the uncertainty of the ratio price(one) / price(other).  Both choices must be for the
/// same call, and must have prices.  The ratio may be certain even if neither price is: if both
/// depend on a parameter in the same way, as those of two trees do, its error cancels out.  A
/// parameter whose interval is a single value, like those of presets, counts as exact.
///
/// The function takes 0.3 ms in most calls, and 10 ms at most: each of the two prices is computed
/// up to 79 times (once, and three times for both ends of each parameter).
Uncertainty uncertainty_of(const Choice& one, const Choice& other, const Machine& machine);

/// Whether a choice that is faster than another one by `gain` should replace it.  It should in
/// either of two cases:
///   - The gain is larger than its uncertainty: the root of the sum of uncertainty.squared and the
///     square of `of_findings`, which is the uncertainty of the corrections by findings.  And if
///     all errors add up (uncertainty.sum and the absolute value of `of_findings`), the faster
///     choice takes at most about 2 % longer than the other one.
///   - The gain is at least 3 %, and the sum of the gain and uncertainty.inverse_sum is over 10 %:
///     the other choice could take that much longer.
/// `gain` is time(other) / time(faster) - 1, and `uncertainty` is that of time(faster) /
/// time(other).  `gain` and `of_findings` are in parts per million.
bool is_worth_it(std::int64_t gain, const Uncertainty& uncertainty, std::int64_t of_findings);

}  // namespace tutti::tune
