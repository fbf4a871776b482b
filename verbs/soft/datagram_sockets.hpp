// Datagrams travel between processes over connections of their own, one for each direction, so that
// they do not delay anything else.  A process that sends more than a few gets a ring in the
// receiver's segment (DatagramRing), and all its later datagrams travel through that ring.  Then
// the connection only carries calls, messages by which the sender wakes the receiver's helper
// thread, and its end says that the sender has gone.  The order of datagrams is kept: the last
// datagram over the connection is followed by a message that says that the ring begins, and the
// receiver does not read the ring before that message.
//
// Datagrams that find no room in a socket or a ring wait in this process, up to a bound.  Datagrams
// beyond the bound, or addressed to nobody, are lost, as datagrams may be.
//
// Guarded by the mutex of Process, except has_news() and has_rings().
#pragma once

#include <poll.h>

#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tutti/detail/descriptor.hpp"
#include "verbs/soft/connections.hpp"
#include "verbs/soft/datagram_ring.hpp"
#include "verbs/soft/rendezvous.hpp"
#include "verbs/soft/segment.hpp"
#include "verbs/soft/watch.hpp"

namespace tutti::verbs::soft {

inline constexpr std::uint32_t datagram_max_bytes = 4096;  // the path's MTU
inline constexpr std::size_t datagram_header_max_bytes = 88;
static_assert(datagram_header_max_bytes + datagram_max_bytes <= DatagramSlot::data_bytes);

class DatagramSockets {
 public:
  using Deliver = std::function<void(std::span<const std::byte>)>;
  /// When the helper thread has to look again if nobody calls it.
  enum class Again : std::uint8_t { when_called, soon, at_once };

  /// Sends the datagram, keeps it for later, or drops it.  True when the helper thread is needed.
  bool send(std::uint32_t process_id, const Message& opening, std::span<const std::byte> datagram);

  /// Takes over a connection by which another process sends.
  void adopt(detail::Descriptor source) {
    assert(source);
    incoming_.emplace_back().connection = std::move(source);
  }

  void collect(std::vector<pollfd>& descriptors) const;

  // For the helper thread:

  /// Sends the datagrams that wait, and moves on to rings.  True when something has to be tried
  /// again soon.
  bool flush(Connections& connections, bool may_have_rings);
  /// Hands a few datagrams of each source to `deliver`, so that other work gets its turn.
  Again receive(const Connections& connections, Segment& segment, const Deliver& deliver);

  // For every poll:

  /// Whether poll() may find something to do.  Takes no lock.
  bool has_news() const noexcept {
    return arrivals_.any_ready() || ring_is_full_.load(std::memory_order_relaxed);
  }
  /// Delivers a few datagrams of each ring, and sends those that wait for room in one.
  void poll(const Deliver& deliver);
  /// Whether want_calls() has anything to do.  Does not need the mutex.
  bool has_rings() const noexcept { return rings_count_.load(std::memory_order_relaxed) != 0; }
  /// For a program that waits for an event: it wants the helper thread called for each datagram.
  void want_calls() noexcept;

  /// Closes everything, in a child of fork.
  void abandon();

 private:
  /// The steps on the way to a ring; each is taken once.
  enum class Way : std::uint8_t { connection, asked, granted, ring, none };
  struct Outgoing {
    detail::Descriptor connection;  // empty: the other side's backlog was full
    std::deque<std::vector<std::byte>> waiting;
    unsigned sent = 0;  // by the connection; counted up to the number from which a ring pays
    Way way = Way::connection;
    std::shared_ptr<Peer> peer;  // set once a ring was asked for
    Message grant{};             // says where the ring is
    DatagramWriter ring;
  };
  struct Source {
    detail::Descriptor connection;
    std::size_t ring_offset = 0;
    std::optional<DatagramReader> ring;
    std::uint64_t looked_at = 0;  // datagrams taken from the ring at the helper thread's last look
  };

  static int connect(std::uint32_t process_id, const Message& opening, Outgoing& to);
  static int send_one(Outgoing& to, std::span<const std::byte> datagram);
  static int send_waiting(Outgoing& to);
  static bool is_dead(const Outgoing& to);
  static void seek_ring(std::uint32_t process_id, Outgoing& to, Connections& connections);
  static void take_grant(Outgoing& to);
  static void begin_ring(Outgoing& to, const Message& beginning);
  Reception receive_one(int source, std::span<const std::byte>& datagram);
  void receive_message(Source& source, const Message& message, const Message& answer,
                       Segment& segment);
  void grant_ring(Source& source, Message answer, Segment& segment);
  static unsigned receive_by_ring(Source& source, unsigned count_max, const Deliver& deliver);
  static Again rest(Source& source, unsigned received);

  std::map<std::uint32_t, Outgoing> outgoing_;  // by process id
  // Whether something waits for room in a ring.  Relaxed: a poll that misses it finds it next time.
  std::atomic<bool> ring_is_full_{false};
  Watches arrivals_;
  // Number of rings that bring datagrams.  Relaxed: the helper thread looks when a ring begins, so
  // missing a new one is harmless.
  std::atomic<std::size_t> rings_count_{0};
  std::list<Source> incoming_;
  // One byte more than the largest datagram: what fills it is none of ours.
  std::vector<std::byte> received_ =
      std::vector<std::byte>(datagram_header_max_bytes + datagram_max_bytes + 1);
};

}  // namespace tutti::verbs::soft
