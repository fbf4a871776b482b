// How well the parameters of a machine tell which of two choices is faster.
#pragma once

#include <cstdint>

#include "tune/choose.hpp"
#include "tune/machine.hpp"

namespace tutti::tune {

/// Parts of a million, as which relative changes are given.
inline constexpr std::int64_t million = 1'000'000;

/// `to` over `from`, less 1, in parts of a million.
std::int64_t relative_change(std::int64_t from, std::int64_t to);

/// How far the quotient of the prices of two choices, of the same call on a machine, may be off
/// because the parameters of the machine may lie anywhere in their intervals.
struct Uncertainty {
  /// By how much it may be too low, squared.  One parameter after the other moves to the end of its
  /// interval that makes it higher; errors of parameters do not depend on each other, so the
  /// squares of these changes are added up (JCGM 100:2008, 5.1.2).
  std::int64_t squared = 0;
  /// By how much the opposite quotient may be too low at most: the sum of the changes if all
  /// parameters move to the other ends.
  std::int64_t opposite_at_most = 0;
};

/// In parts of a million, of the price of `one` divided by that of `other`.  Choices that depend on
/// the same parameters in the same way, as two trees do, are told apart although their times are
/// not known well.
///
/// Both need a price.  Up to 27 prices of each are computed, which takes 0.1 ms in most calls, and
/// 4 ms at most.
Uncertainty uncertainty_of(const Choice& one, const Choice& other, const Machine& machine);

}  // namespace tutti::tune
