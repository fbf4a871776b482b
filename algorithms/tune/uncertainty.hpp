// How certain it is that one of two choices is faster, although the parameters of a machine are
// known only to some extent.
#pragma once

#include <cstdint>

#include "tune/choice.hpp"
#include "tune/machine.hpp"

namespace tutti::tune {

inline constexpr std::int64_t million = 1'000'000;

/// `to` over `from`, less 1, in parts of a million.
std::int64_t relative_change(std::int64_t from, std::int64_t to);

/// How far the quotient of two prices may be off, in parts of a million, because each parameter of
/// the machine is known only to an interval, in which it lies with 95 % probability.
struct Uncertainty {
  /// By how much the quotient may be too low, squared.  Each parameter in turn is set to the end of
  /// its interval at which the quotient is higher.  The squares of these changes are added, because
  /// errors of parameters are taken to be independent (JCGM 100:2008, 5.1.2).
  std::int64_t squared = 0;
  /// By how much the inverse of the quotient may be too low if the errors of all parameters work
  /// together: the sum of the changes, each at the end of an interval at which the inverse is
  /// higher.
  std::int64_t inverse_sum = 0;
};

/// For the price of `one`, divided by that of `other`: both are for the same call on this machine,
/// and have a price.  Two choices that depend on the same parameters in the same way, as two trees
/// do, are told apart although their times are not known well.  A parameter whose interval is a
/// single value, like those of presets, counts as exact.
///
/// At most 27 prices of each are computed, which takes 0.1 ms in most calls, and 4 ms at most.
Uncertainty uncertainty_of(const Choice& one, const Choice& other, const Machine& machine);

/// Whether a choice that is faster by `gain` than another one takes its place: if the gain is
/// larger than its uncertainty, to which `of_findings` adds what is uncertain of the corrections of
/// both, or if the other one might take more than 10 % longer if all errors of parameters worked
/// together. `uncertainty` is of the time of the faster choice divided by that of the other one.
/// All are in parts of a million.
bool is_worth_it(std::int64_t gain, const Uncertainty& uncertainty, std::int64_t of_findings);

}  // namespace tutti::tune
