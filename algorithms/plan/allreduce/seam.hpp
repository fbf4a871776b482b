// Partials of consecutive ranks, joined without losing rank order.
//
// A partial holds the cyclic interval of `length` ranks that ends at `last`, and grows on its left.
// For an operator that does not commute, ranks on either side of the seam between P-1 and 0 must
// not be combined while ranks between them are missing.  So a partial that wraps is kept in two
// parts: `low`, the ranks 0 .. last, and `high`, the ranks that end at P-1.  Both grow on their
// left only, and once all ranks are in, the result is low o high.
//
//   P = 7, last = 1, ranks joined from right to left:   | 0 1     low = 0 1, begins at the seam
//                                                 5 6   | 0 1     low = 0 1, high = 5 6: wraps
//                                           2 3 4 5 6   | 0 1     result 0 1 o 2 3 4 5 6
//
// An operator that commutes knows no seam: everything is in `low`.
#pragma once

#include <cstdint>

#include "plan/core/plan.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {

/// A cyclic interval of ranks, by its right end.
struct Interval {
  Rank last{0};
  std::uint64_t length = 0;
};

/// The contributions of an interval, and where they are kept or arrive: `high` means something only
/// if the interval wraps.  An interval of length 0 is a place that waits for its first value.
struct Partial {
  Interval ranks;
  Register low;
  Register high;
};

/// A partial that is sent or kept in partial register `index`.
inline Partial partial_in(std::uint16_t index, Interval ranks) {
  return {.ranks = ranks, .low = partial_register(index, 0), .high = partial_register(index, 1)};
}

/// Appends the steps that move and join the partials of one rank.
class SeamWriter {
 public:
  SeamWriter(StepWriter& steps, const Plan& plan, Order order)
      : steps_(steps), plan_(plan), order_(order) {}

  /// Sends `from` to the rank `offset` ahead.
  void put(std::uint64_t offset, std::uint16_t slot, const Partial& from);

  /// Awaits the message of the rank `offset` behind.  It holds the `length` ranks that end at that
  /// rank, without the last `without_last` of them, and is joined to the left of `into`.
  void receive(std::uint64_t offset, std::uint16_t slot, std::uint64_t length, Partial& into,
               std::uint32_t without_last = 0);

  /// into = left o into.
  void join(Partial& into, const Partial& left);

  /// into = from, as far as values go: `into` keeps its registers.
  void copy(const Partial& from, Partial& into);

  /// An empty result that will grow to the left of `last`.  It grows in the target; in rank order
  /// its low part grows in `beside`, a partial.
  Partial begin_result(Rank last, Register beside) const;

  /// A result that grows from a complete partial, which is not written again.
  Partial begin_result(const Partial& from, Register beside);

  /// Completes the target, once all ranks are in the result.
  void finish_result(const Partial& result);

 private:
  bool wraps(Interval ranks) const {
    return order_ == Order::rank_order && ranks.length > std::uint64_t{index_of(ranks.last)} + 1;
  }
  bool begins_at_seam(Interval ranks) const {
    return order_ == Order::rank_order && ranks.length == std::uint64_t{index_of(ranks.last)} + 1;
  }
  /// Whether all ranks, ending at `last`, have two parts.
  bool result_wraps(Rank last) const { return wraps({last, plan_.rank_count}); }
  std::uint16_t payloads(Interval ranks) const { return wraps(ranks) ? 2 : 1; }

  StepWriter& steps_;
  const Plan& plan_;
  Order order_;
};

}  // namespace tutti::plan
