// How long a rank has waited for each of the others.  Only the part of a wait counts that comes
// after its first microseconds: a wait that ends before it looks at the clock writes nothing here.
//
//   polls without a clock | look | polls, or a nap | look | ... | finished: one more look
//                           begin ^---------------^--------------^ each stretch is charged to the
//                           rank whose message was awaited when it began
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <tutti/timeout.hpp>
#include <tutti/types.hpp>
#include <type_traits>
#include <vector>

namespace tutti::runtime {

/// How long all operations of a communicator have waited for one rank.  Others may read a copy.
struct PeerWait {
  std::uint64_t total_ns = 0;
  std::uint64_t longest_ns = 0;  // the longest stretch in which the operation did not advance
  std::uint64_t times_last = 0;  // how many waits were for this rank when they ended
};
static_assert(std::is_trivially_copyable_v<PeerWait>);

/// What an operation in flight needs next.
struct Awaited {
  Rank rank = no_rank;         // who has to do something
  std::uint64_t position = 0;  // changes when the operation advances
};

/// The waits of one operation, by which those of its communicator grow.
class WaitCharges {
 public:
  /// A wait has looked at the clock for the first time.  If the wait before it ended at its
  /// deadline, and nothing has come since, this one continues that one's stretch.
  void begin(Timeout now, Awaited awaited) noexcept;
  /// The wait looks again: charges what has passed, and goes on with `awaited`.
  void go_on(std::span<PeerWait> waits, Timeout now, Awaited awaited) noexcept;
  /// The call has finished while it was waited for.
  void finish(std::span<PeerWait> waits, Timeout now) noexcept;

 private:
  Awaited awaited_ = {};
  Timeout since_{0};
  std::uint64_t stretch_ns_ = 0;  // so far, at this position
};

/// A rank that was waited for.
struct WaitedFor {
  Rank rank = no_rank;
  PeerWait wait = {};
};

/// Returns the ranks that were waited for at all, the one waited for longest first.
std::vector<WaitedFor> waited_for(std::span<const PeerWait> waits);

/// A line for each of the first of them, and one for the others together; each begins with
/// `indent`.
std::string text_of(std::span<const WaitedFor> ranks, const std::string& indent);

}  // namespace tutti::runtime
