// A persistent collective: made once (plans, connects, may block and throw), run any number of
// times (never allocates, never throws, takes no lock).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tutti/export.hpp"
#include "tutti/status.hpp"
#include "tutti/timeout.hpp"
#include "tutti/types.hpp"

namespace tutti {

/// Move-only; thread rule of its context.  Progress on one operation is progress on all operations
/// of the context.  All ranks must start the operations of a communicator equally often, and none
/// may be more than one start ahead of the others (where the collective is one-way, two ahead of
/// whom it tells directly; of allreduce_ssp(), slack more), which the collectives enforce by
/// themselves.
class TUTTI_EXPORT Operation {
 public:
  Operation(Operation&&) noexcept;
  Operation& operator=(Operation&&) noexcept;
  /// In flight: aborts its communicator.  After a status < 0 nothing is in flight.
  ~Operation();

  /// Never waits.  ok: accepted, the buffers are the engine's until test() or wait() says ok.
  /// Aborts the program if the operation is in flight.
  Status start() noexcept;
  /// The same shape on other buffers, also for later calls of start().  Of an operation that is
  /// zero-copy (segment.hpp): on the target that it was made with, and a source that lies in a
  /// segment or is one of the two buffers it was made with; aborts the program otherwise, also
  /// where a target that a node shares is another one.
  Status start(const void* source, void* target) noexcept;

  /// One step of progress; `in_progress` until finished.  `ok` if nothing is in flight.
  Status test() noexcept;

  /// Progress until finished or `timed_out`; may be called again.
  Status wait(Timeout timeout) noexcept;

  bool in_flight() const noexcept;

  /// One line for people: operation, sequence number, round and the ranks still missing.
  /// Allocates; not for the data path.
  std::string describe() const;

  /// What a call of a broadcast, reduce or allreduce brings: how many elements of the payload, and
  /// of how many ranks, which are the root and those that follow it.  Less than all where
  /// thresholds were asked for.
  struct Coverage {
    std::size_t element_count = 0;
    std::uint32_t rank_count = 0;
  };
  Coverage coverage() const noexcept;

  /// How many calls before the last one the oldest contribution to its result is from; 0 where
  /// nothing was asked for but the call's own (allreduce_ssp()).
  std::uint64_t staleness() const noexcept;

  std::string algorithm() const;   // literature name of the schedule
  Notify notify() const noexcept;  // flag: some of its messages to other nodes arrive so
  std::vector<std::uint32_t> per_round() const;  // messages n of each round, as executed

  struct Implementation;
  explicit Operation(std::unique_ptr<Implementation>) noexcept;

 private:
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace tutti
