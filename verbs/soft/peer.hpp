// Another process that this one initiates requests to: its segment, which is mapped; its backings,
// mapped on demand; and whether it lives.  All queue pairs connected to that process share the
// object.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>

#include "tutti/detail/descriptor.hpp"
#include "verbs/soft/layout.hpp"
#include "verbs/soft/rendezvous.hpp"
#include "verbs/soft/spin_lock.hpp"

namespace tutti::verbs::soft {

enum class PeerState : std::uint8_t { attaching, attached, dead };

enum class BackingState : std::uint8_t { requested, mapped, refused };  // refused: it cannot be had

struct BackingView {
  BackingState state = BackingState::requested;
  std::byte* base = nullptr;
  std::size_t bytes = 0;
};

class Peer {
 public:
  /// This process itself, to which no connection is needed.
  Peer(std::uint32_t id, const SegmentView& own);
  /// A process to attach to.
  explicit Peer(std::uint32_t id) : id_(id) {}

  std::uint32_t id() const { return id_; }
  bool is_self() const { return is_self_; }
  // The helper thread stores it (release) after the fields below; every request loads it (acquire)
  // before it uses them.
  PeerState state() const { return state_.load(std::memory_order_acquire); }
  const SegmentView& segment() const { return segment_; }
  std::uint64_t nonce() const { return nonce_; }
  pid_t process() const { return process_; }

  /// Where the backing is mapped here, if the peer has answered; the first call asks it.  The
  /// helper thread may drop the backing as soon as its owner has said that it is gone.  Therefore
  /// this is a copy: it holds as long as the caller keeps its send lock (Process::forget).
  BackingView find_backing(std::uint32_t number);

  /// Sends the peer the call that there is an event for it.  `where`: the offset of the word that
  /// was claimed, a bounce_call(), or `everything`.  False when there is no room; the helper thread
  /// then tries again.
  static constexpr std::uint64_t everything = 1;
  bool call(std::uint64_t where) noexcept;

  /// False when the process has ended or replaced its program, even if the helper thread has not
  /// noticed yet: the process id may then be another's.  Asks the system once a millisecond.
  bool is_there() noexcept;
  /// Whether the process ends, or replaces its program, within a few milliseconds.  Slow: it is
  /// used when the peer's memory is not where it was.
  bool leaves_slow() const noexcept;

  // The helper thread calls the rest, or its callers hold the mutex of Process.

  /// Starts or continues to connect; false when it must be tried again, because the backlog of the
  /// peer is full or this process has no descriptor left.
  bool connect(const Message& hello);
  bool connected() const { return static_cast<bool>(connection_); }
  int connection() const { return connection_.get(); }
  /// True when a call is still to be made.
  bool owes_call() noexcept;
  int liveness() const {
    return liveness_.get();
  }  // a pidfd, readable when the process ended; or -1

  /// Handles what the peer has sent.  Returns the number of a backing that is gone, or 0.
  std::uint32_t receive();
  /// Forgets the backing; the mapping lasts as long as the returned object.
  detail::Mapping drop_backing(std::uint32_t number);
  void die();
  void abandon();  // closes the descriptors, in a child of fork

 private:
  void take_segment(const Message& message, detail::Descriptor attached);
  void take_backing(const Message& message, const detail::Descriptor& attached);

  const std::uint32_t id_;
  bool is_self_ = false;
  std::atomic<PeerState> state_{PeerState::attaching};
  SegmentView segment_;
  std::uint64_t nonce_ = 0;
  pid_t process_ = 0;
  detail::Descriptor connection_;
  detail::Descriptor liveness_;
  detail::Mapping mapping_;
  // When is_there() last asked.  Relaxed: a thread that misses it asks once more.
  std::atomic<std::int64_t> seen_ns_{0};
  // Whether a call found no room.  Relaxed: the helper thread is woken afterwards.
  std::atomic<bool> owes_call_{false};
  struct MappedBacking {
    BackingState state = BackingState::requested;
    detail::Mapping mapping;
  };
  // Requests look here on their first access to a backing; the helper thread adds and drops.
  SpinLock backings_lock_;
  std::map<std::uint32_t, MappedBacking> backings_;
};

}  // namespace tutti::verbs::soft
