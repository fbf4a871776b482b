// A persistent collective: made once (plans, connects, may block and throw), run any number of
// times (never allocates, never throws, takes no lock).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/export.hpp"
#include "tutti/status.hpp"
#include "tutti/timeout.hpp"
#include "tutti/types.hpp"

namespace tutti {

/// Move-only; thread rule of its context.  Progress on one operation is progress on all operations
/// of the context.  All ranks must start the operations of a communicator equally often.  The
/// collectives keep ranks together by themselves: a rank is at most one start ahead of the others.
/// In a one-way collective it is at most two starts ahead of each rank to which it sends directly,
/// in allreduce_ssp() slack more.
class TUTTI_EXPORT Operation {
 public:
  Operation(Operation&&) noexcept;
  Operation& operator=(Operation&&) noexcept;
  /// Aborts its communicator if it is in flight.  After a status < 0 nothing is in flight.
  ~Operation();

  /// Starts a call, and never waits.  ok: the call is accepted, and the buffers are the engine's
  /// until test() or wait() returns ok.  Aborts the program if the operation is in flight.
  Status start() noexcept;
  /// Starts a call on other buffers of the same sizes, which later calls of start() also use.  A
  /// zero-copy operation (segment.hpp) must keep its target, but for the root of a broadcast, and a
  /// source that is sent from must lie in a segment or be one of the two buffers with which the
  /// operation was made; a target that a node shares must stay, too.  Aborts the program otherwise.
  Status start(const void* source, void* target) noexcept;

  /// Makes one step of progress; `in_progress` until finished.  `ok` if nothing is in flight.
  Status test() noexcept;

  /// Makes progress until finished or `timed_out`; may be called again.
  Status wait(Timeout timeout) noexcept;

  bool in_flight() const noexcept;

  /// Gives it a name of the program's, which describe(), reports and failures show: what it is for,
  /// or where it was made.  At most 63 bytes; what is longer is cut.  Ranks may differ.
  void set_label(std::string_view label) noexcept;

  /// One line for people: operation, sequence number, round and the ranks still missing.
  /// Allocates; not for the data path.
  std::string describe() const;

  /// How many elements of the payload a call of a broadcast, reduce or allreduce brings, and of how
  /// many ranks, which are the root and those that follow it.  These are fewer than all where
  /// thresholds were asked for.
  struct Coverage {
    std::size_t element_count = 0;
    std::uint32_t rank_count = 0;
  };
  Coverage coverage() const noexcept;

  /// Age in calls of the oldest contribution to the last result of an allreduce_ssp(); 0 for other
  /// collectives.
  std::uint64_t staleness() const noexcept;

  /// Lines for people: which schedule runs and why, the prices of the next ones, why others are
  /// out, and which tuning table is in force.  All ranks get the same but for that table: where it
  /// was found, and whether it is stale there; no rank waits for another.  The choice is made once
  /// more, which may take a millisecond; not for the data path.
  std::string explanation() const;

  std::string algorithm() const;   // literature name of the schedule
  Notify notify() const noexcept;  // flag: some of its messages to other nodes arrive by flag
  std::vector<std::uint32_t> per_round() const;  // messages n of each round, as executed

  struct Implementation;
  explicit Operation(std::unique_ptr<Implementation>) noexcept;

 private:
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace tutti
