// A trace of operations, for TUTTI_TRACE: when each call, round and wait began and ended, as a file
// that Perfetto (ui.perfetto.dev) and chrome://tracing show.
//
//   operations: 16 bytes a stamp -->  ring of the newest stamps  -- write() -->  JSON, one line for
//                                                                               each begin or end
//
// Stamps are made by calls of their own kind (other_calls.cpp): calls that are not traced do not
// even look whether they are.  A stamp costs a reading of the processor's counter and a store; what
// they mean is found out when the file is written, at the end of the context and when the first of
// its communicators fails.
//
// Where calls follow each other so quickly that stamps would take more than a twentieth of the
// time, one call in 2, 4, ... or 32 is timed, and the others are only counted.  The timed calls are
// those whose number is a multiple of that power of two, so ranks time the same calls as far as
// possible: their stamps then delay one call instead of one each, and the files of all ranks
// contain the same calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <tutti/detail/clock.hpp>
#include <tutti/detail/descriptor.hpp>
#include <tutti/timeout.hpp>
#include <tutti/types.hpp>
#include <utility>
#include <vector>

#include "plan/core/plan.hpp"

namespace tutti::runtime {

/// The least and the most that a trace may take of memory.
inline constexpr std::size_t trace_bytes_min = std::size_t{4} << 10;
inline constexpr std::size_t trace_bytes_max = std::size_t{64} << 30;

/// Where the trace of a rank goes: %r in `pattern` is its number; without it, ".RANK" is appended.
std::string trace_path(std::string_view pattern, Rank rank);

/// What a trace says of an operation.
struct TracedOperation {
  std::string collective, algorithm;
  std::string label = {};
  std::uint32_t ordinal = 0;
  std::uint64_t communicator = 0;  // its number
  std::uint32_t rank_count = 0;
  std::uint32_t round_count = 0;
  std::uint64_t bytes = 0;  // of one rank's contribution or block
};

/// The trace of a context.  One thread at a time.
class Trace {
 public:
  enum class Kind : std::uint8_t {
    call_begins,     // value: its number
    call_has_begun,  // the call began earlier, without a stamp; value: its number
    round_begins,
    wait_begins,  // value: the rank that is awaited
    wait_ends,
    call_ends,
    call_fails,
  };

  /// Opens the file and leaves an empty trace there.  If another trace holds the file, takes the
  /// first of FILE.2, FILE.3 and so on that none holds.  Throws Error{invalid_argument} if it
  /// cannot be written, std::bad_alloc if there is no memory for so many bytes.
  Trace(const std::string& pattern, Rank rank, std::size_t bytes, detail::Clock& clock);
  /// Writes it.
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// The calls of an operation so far.
  struct Calls {
    std::uint64_t timed = 0, untimed = 0;
  };

  /// Measures what a stamp costs, in ticks.  Must precede all other stamps.
  std::uint64_t measure_stamp() noexcept;
  /// From now on, of calls that follow each other quickly only some are timed.  `stamp_ticks`: what
  /// a stamp costs.
  void sample(std::uint64_t stamp_ticks) noexcept { stamp_ticks_ = stamp_ticks; }

  /// Returns a number for stamps.  May throw std::bad_alloc.
  std::uint16_t add(TracedOperation operation);
  /// The counts of an operation's calls, valid as long as the trace.
  Calls& calls_of(std::uint16_t operation) noexcept { return operations_[operation].calls; }
  void set_label(std::uint16_t operation, std::string_view label) noexcept;

  std::uint64_t now() noexcept { return counts_ticks_ ? ticks() : clock_ns(); }
  /// `untimed`: at the begin of a call, how many calls of the operation since its last timed one
  /// have no stamps.
  void stamp(std::uint64_t ticks, Kind kind, std::uint16_t operation, std::uint32_t value = 0,
             std::uint8_t untimed = 0) noexcept {
    stamps_[made_++ & mask_] = {ticks, value, operation, kind, untimed};
  }
  /// How many stamps there have been, of all operations.
  std::uint64_t made() const noexcept { return made_; }

  /// The longest period: at least one call in so many is timed.
  static constexpr std::uint32_t period_max = 32;
  /// Returns a power of two: if one call in that many is timed, stamps take at most a twentieth of
  /// the time, unless even period_max is too short for that.  In the last `elapsed` ticks `stamps`
  /// stamps were made, and `calls` calls of the operation ended, of which one was timed.
  std::uint32_t period(std::uint64_t elapsed, std::uint64_t stamps,
                       std::uint64_t calls) const noexcept {
    constexpr std::uint64_t share = 20, stamps_of_a_call = 4;
    // The operation is rare, whatever the others take.
    if (share * stamp_ticks_ * stamps_of_a_call * calls <= elapsed) return 1;
    const std::uint64_t wanted = share * stamp_ticks_ * stamps * calls;
    std::uint32_t period = 1;
    while (period < period_max && elapsed * period < wanted) period *= 2;
    return period;
  }
  /// Keeps the reason, and at the first failure writes the trace so far: whoever has failed may not
  /// end in good order.
  void fail(const char* reason) noexcept;
  /// Writes all of it, over what was written before.  Says on standard error why it could not.
  void write() noexcept;

 private:
  struct Stamp {
    std::uint64_t ticks = 0;
    std::uint32_t value = 0;
    std::uint16_t operation = 0;
    Kind kind = Kind::call_begins;
    std::uint8_t untimed = 0;
  };
  static_assert(sizeof(Stamp) == 16);
  struct Entry {
    TracedOperation operation;
    Calls calls = {};
  };
  /// What of an operation is open at some point of the trace.
  struct Open {
    bool call = false, round = false, wait = false;
  };
  struct Incident {
    std::uint64_t ticks = 0;
    std::string reason = {};
  };
  /// A moment by both clocks.
  struct Moment {
    std::uint64_t ticks = 0;
    Timeout time{0};
  };
  class Writer;

  static std::uint64_t ticks() noexcept {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return 0;
#endif
  }
  std::uint64_t clock_ns() noexcept;
  Moment moment() noexcept;
  void write_all(Writer& writer, const Moment& end) const;
  void write_head(Writer& writer, std::uint64_t dropped) const;
  void write_call(Writer& writer, const Stamp& stamp, Open& open) const;
  void write_stamp(Writer& writer, const Stamp& stamp, Open& open) const;
  void write_ends(Writer& writer, std::uint64_t ticks, std::uint16_t operation, Open& open,
                  const char* how) const;

  Rank rank_;
  detail::Clock& clock_;
  bool counts_ticks_;  // of the processor; else nanoseconds of the clock
  std::string path_;
  detail::Descriptor file_;
  std::vector<Stamp> stamps_;
  std::uint64_t mask_;
  std::uint64_t made_ = 0;
  Moment begin_;
  std::uint64_t stamp_ticks_ = 0;  // 0: all calls are timed
  std::deque<Entry> operations_;
  std::vector<Incident> incidents_;
  bool has_failed_ = false;
};

/// What one operation stamps.  One thread at a time.
///
/// A stamp takes about as long as the work on a small payload, so the user of a small call waits
/// for one stamp only, that of its end.  The others are made when there is time for them, some
/// nanoseconds late.  The begin of the call is stamped when its first message has gone or come, or
/// when the first look has found nothing.  The begin of a wait is stamped when the second look has
/// found nothing either.  The end of a wait is stamped together with whatever comes next.
///
/// An untimed call reads no clock.  If a wait for it lasts for long, it becomes a timed call whose
/// first stamp is late (Context::Implementation::trace_untimed_calls()), so no slow call is missing
/// from the trace.
class OperationTrace {
 public:
  OperationTrace(Trace& trace, TracedOperation operation)
      : trace_(trace),
        is_small_(operation.bytes <= small_bytes),
        has_rounds_(operation.round_count > 0),
        operation_(trace.add(std::move(operation))),
        calls_(trace.calls_of(operation_)) {}

  void set_label(std::string_view label) noexcept { trace_.set_label(operation_, label); }

  void begin(std::uint64_t call) noexcept {
    call_ = static_cast<std::uint32_t>(call);
    is_untimed_ = (call_ & (period_ - 1)) != 0;
    if (is_untimed_) {
      ++untimed_;
      ++calls_.untimed;
      return;
    }
    forget();
    round_ = 0;
    begins_ = true;
    if (!is_small_) settle(trace_.now());
  }
  /// A message has come or gone by this step.
  void advances(const plan::Step& step) noexcept {
    if (is_untimed_) return;
    has_looked_ = false;
    if (begins_ || waits_ || step.round != round_) advances_to(step.round);
  }
  void advances_to(std::uint32_t round) noexcept {
    if (is_untimed_) return;
    if (is_small_ && !begins_ && !has_come_ && round == round_) {
      has_come_ = true;
      return;
    }
    const std::uint64_t now = trace_.now();
    settle(now);
    if (round == round_) return;
    round_ = round;
    trace_.stamp(now, Trace::Kind::round_begins, operation_, round);
  }
  bool is_untimed() const noexcept { return is_untimed_; }
  /// Nothing has come.  Whether this is the second look that says so, and wait() is to be called.
  bool begins_to_wait() noexcept {
    if (is_untimed_) return false;
    if (begins_) settle(trace_.now());
    return (!waits_ || has_come_) && std::exchange(has_looked_, true);
  }
  /// `round`: the one that the call has reached.  An untimed call is timed from now on.
  void wait(Rank awaited, std::uint32_t round = 0) noexcept {
    const std::uint64_t now = trace_.now();
    if (is_untimed_) {
      begin_late(now);
      if (has_rounds_) trace_.stamp(now, Trace::Kind::round_begins, operation_, round);
      round_ = has_rounds_ ? round : 0;
    }
    settle(now);
    waits_ = true;
    trace_.stamp(now, Trace::Kind::wait_begins, operation_, index_of(awaited));
  }
  void end() noexcept {
    if (is_untimed_) return;
    const std::uint64_t now = end_by(Trace::Kind::call_ends);
    const std::uint64_t made = trace_.made();
    period_ = trace_.period(now - ended_, made - made_, untimed_before_ + 1);
    ended_ = now;
    made_ = made;
  }
  void fail() noexcept {
    if (is_untimed_) begin_late(trace_.now());
    end_by(Trace::Kind::call_fails);
    period_ = 1;
  }
  /// Calls are given up, and the next one has number 1 again.  `in_flight`: whether a call has not
  /// ended.
  void forget_calls(bool in_flight) noexcept {
    if (in_flight) fail();
    period_ = 1;
  }

 private:
  static constexpr std::uint64_t small_bytes = 256;

  void forget() noexcept { begins_ = waits_ = has_come_ = has_looked_ = false; }
  /// What has no stamp yet gets one.
  void settle(std::uint64_t now) noexcept {
    if (begins_) stamp_begin(now, Trace::Kind::call_begins);
    if (waits_) trace_.stamp(now, Trace::Kind::wait_ends, operation_);
    forget();
  }
  void stamp_begin(std::uint64_t now, Trace::Kind how) noexcept {
    static_assert(Trace::period_max <= UINT8_MAX);
    trace_.stamp(now, how, operation_, call_, static_cast<std::uint8_t>(untimed_));
    untimed_before_ = std::exchange(untimed_, 0);
    ++calls_.timed;
  }
  void begin_late(std::uint64_t now) noexcept {
    is_untimed_ = false;
    --untimed_;
    --calls_.untimed;
    forget();
    stamp_begin(now, Trace::Kind::call_has_begun);
  }
  std::uint64_t end_by(Trace::Kind how) noexcept {
    const std::uint64_t now = trace_.now();
    if (begins_) settle(now);
    forget();  // the end of a call is that of its rounds and waits
    trace_.stamp(now, how, operation_);
    return now;
  }

  Trace& trace_;
  bool is_small_;
  bool has_rounds_;
  std::uint16_t operation_;
  Trace::Calls& calls_;
  bool is_untimed_ = false;
  bool begins_ = false;  // and has no stamp yet
  bool waits_ = false;
  bool has_come_ = false;    // what it waits for, and the wait has no end yet
  bool has_looked_ = false;  // and has found nothing since
  std::uint32_t round_ = 0;
  std::uint32_t call_ = 0;
  std::uint32_t period_ = 1;          // one call of so many is timed
  std::uint32_t untimed_ = 0;         // calls since the begin of the last timed one
  std::uint32_t untimed_before_ = 0;  // likewise, between the last two timed ones
  std::uint64_t ended_ = 0;           // when the last timed call ended
  std::uint64_t made_ = 0;            // stamps of the whole trace at that time
};

}  // namespace tutti::runtime
