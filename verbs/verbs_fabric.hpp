// The fabric between nodes: one device, one arena, its completion queues, and the connections to
// the peers.  It posts the puts and writes of all operations, and polls what has come for them.
//
// A message that is further ahead than the one that is awaited means that a peer calls more often
// than this rank: its connection fails.  A connection fails alone; the others, and whoever uses
// only them, go on.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <functional>
#include <string>
#include <tutti/detail/clock.hpp>
#include <tutti/status.hpp>
#include <tutti/timeout.hpp>
#include <utility>
#include <vector>

#include "verbs/arena.hpp"
#include "verbs/connections.hpp"
#include "verbs/device.hpp"
#include "verbs/verbs_channel.hpp"

namespace tutti::verbs {

struct VerbsFabricOptions {
  std::string device;
  std::size_t arena_bytes = 0;
  std::size_t bytes_besides = 0;  // of the arena, to set aside
  ConnectionOptions connections = {};
};

/// One thread at a time.
class VerbsFabric {
 public:
  /// Opens the device and registers the arena.  Throws Error.
  explicit VerbsFabric(const VerbsFabricOptions& options);

  // ---- set-up: may throw Error, may allocate ----

  const Port& port() const noexcept { return port_; }
  /// What was found out about the device, before a connection is made.
  void learn(FoundPlacement placement) { port_.placement = std::move(placement); }
  /// This end will send lines, or its peers will.  Throws Error if the device does not fit.
  void require_lines() const;
  Arena& arena() noexcept { return arena_; }
  Connections& connections() noexcept { return connections_; }
  const Connections& connections() const noexcept { return connections_; }

  /// Registers memory that is mapped here, for the network to read, and for peers to write if
  /// `access` says so (IBV_ACCESS_...; never relaxed ordering).  `name` is what Error calls it.
  RegionHandle register_memory(const std::byte* memory, std::size_t bytes, int access,
                               const char* name);

  /// Registers a channel under the id that peers put into their immediates.  An id rests until all
  /// others have been used, so that a message that a peer sends too late meets no later channel.
  std::uint32_t attach(VerbsChannel& channel);
  /// `orderly`: every peer has called the operation as often as this rank, so that nothing can come
  /// any more; a message that comes all the same is a failure of its connection.  (A line that
  /// comes later is found if another channel awaits lines there by then.)
  void detach(VerbsChannel& channel, bool orderly) noexcept;

  /// The channel may send and receive along this connection.  This end does not close it until
  /// detach(), unless the peer has closed its own, and all that it had sent has been polled.
  void use(VerbsChannel& channel, Connection& connection);
  /// The peer has closed its end of a connection that this channel uses, but has nothing prepared
  /// on yet: the channel does not use it any more, and Connections::to() makes another one.  There
  /// is room for that, also if other channels still use the old one, unless the peer could not say
  /// "disconnect".
  void supersede(VerbsChannel& channel, Connection& connection) noexcept;
  /// Polls until all that was in the completion queues before has been polled.
  void empty_queues() noexcept;
  /// Looks at all that has come, and lets go of the connections to these processes, which have
  /// ended or do the same.
  void forget(std::span<const std::uint64_t> processes) noexcept;
  /// Makes room for connections to all of these processes: if there would be too many, closes those
  /// that no channel uses, the least recently used first.  Their peers are told, and if one does
  /// not acknowledge that in time, its connection is closed all the same.  Throws Error, with the
  /// numbers, if there cannot be room; then only those are closed that their peers had closed.
  void make_room_for(std::span<const std::uint64_t> processes, detail::Clock& clock,
                     Timeout timeout);

  /// Polls until all sends of this channel's connections have left, so that their source memory may
  /// be reused.  False if that did not happen by the deadline.  Nothing leaves a failed connection
  /// any more; and a peer that has taken leave, or of which `has_gone(process)` is true, has closed
  /// its end, and so had received everything it waited for.
  bool drain(const VerbsChannel& channel, detail::Clock& clock, Timeout timeout,
             const std::function<bool(std::uint64_t process)>& has_gone) noexcept;

  /// Sends a marker, if Connection::room(1) says ok.  Once its number is Connection::marker_heard
  /// at the other end, everything that this end has sent on the connection before is in its place
  /// there, and what raises a completion has been polled.  It uses a receive that is not promised
  /// to messages, so an end sends no further marker, and no farewell, before that.
  Status mark(Connection& connection, std::uint16_t number) noexcept;

  /// Tells all peers that this end is about to close in good order, and waits until they know, but
  /// not beyond the deadline: they would wait for answers to their last sends until the transport
  /// gives up.  Nothing may be put afterwards.
  void take_leave(detail::Clock& clock, Timeout timeout) noexcept;

  // ---- sleeping until there is a completion, with ConnectionOptions::raises_events ----

  bool raises_events() const noexcept { return connections_.events() != nullptr; }
  /// Can be read once there is an event.
  int event_descriptor() const noexcept { return connections_.events()->fd; }
  /// The next completion of each queue raises an event.  One that came before does not: the caller
  /// polls once more before it sleeps.  False: the device has refused.
  bool request_event() noexcept {
    assert(raises_events());
    const auto queues = connections_.completion_queues().all();
    return std::all_of(queues.begin(), queues.end(), [](const CompletionQueues::Queue& queue) {
      return ibv_req_notify_cq(queue.handle.get(), 0) == 0;
    });
  }
  /// Takes the events that are there, of which each queue has at most one for each request_event().
  /// Never blocks.  Returns their number.
  std::size_t take_events() noexcept;

  // ---- data path: the Fabric concept of the engine ----

  /// Polls each completion queue once: counts the messages that have arrived with an immediate, and
  /// returns credits.  Returns the number of completions.
  std::size_t poll() noexcept {
    ibv_cq* const queue = connections_.completion_queues().only_one();
    return queue != nullptr ? poll(queue) : poll_several();
  }

  /// Posts put number `put` of the plan.  in_progress: there is no credit, poll and try again;
  /// transport_failed: the connection has failed.
  Status put(VerbsChannel& channel, std::uint32_t parity, std::size_t put) noexcept {
    PreparedPut& prepared = channel.put_at(parity, put);
    Connection& connection = connections_[prepared.connection];
    if (!connection.sends.has_credit()) [[unlikely]]
      return connections_.no_credit_slow(connection);
    if (prepared.line != nullptr) prepared.line->fill();
    assert(prepared.is_intact());
    assert(prepared.line != nullptr || is_local(prepared.piece));
    if (const int error = connection.sends.post(connection.pair->get(), prepared); error != 0)
        [[unlikely]]
      return connections_.post_failed_slow(connection, error);
    if (prepared.is_awaited) note_sent(channel, connection);
    return Status::ok;
  }

  /// Whether all puts that are awaited have left, or their connections have ended: nothing leaves
  /// a failed one any more, and a peer that has taken leave had received everything.
  bool sent(const VerbsChannel& channel) const noexcept {
    return std::all_of(channel.sent_.begin(), channel.sent_.end(), [&](const auto& one) {
      const Connection& connection = connections_[one.connection];
      return connection.sends.left() >= one.posted || connection.failed || connection.left;
    });
  }

  /// Sends chunk and word; both or, if Connection::room(2) does not say ok, neither.
  Status write(Connection& connection, const WordedWrite& given) noexcept;
  /// Writes, if Connection::room(1) says ok.
  Status write(Connection& connection, const PlainWrite& given) noexcept;
  /// Sends chunk and notification, if Connection::room(1) says ok.
  Status write(Connection& connection, const NotifiedWrite& given) noexcept;

  /// Whether the next message for `slot` has arrived; then it is taken.
  bool take(VerbsChannel& channel, std::uint32_t parity, std::uint32_t slot) noexcept {
    VerbsChannel::Arrival& arrival = channel.arrivals_[channel.place_of(parity, slot)];
    const std::uint64_t last = arrival.last();
    if (last == arrival.taken) return false;
    if (last != arrival.taken + 1) [[unlikely]]
      return take_failed_slow(arrival);
    arrival.taken = last;
    return true;
  }

  /// Whether a message for `slot` has arrived that take() has not taken.
  bool arrived(const VerbsChannel& channel, std::uint32_t parity,
               std::uint32_t slot) const noexcept {
    const VerbsChannel::Arrival& arrival = channel.arrivals_[channel.place_of(parity, slot)];
    return arrival.last() != arrival.taken;
  }

 private:
  static void note_sent(VerbsChannel& channel, const Connection& connection) noexcept {
    for (VerbsChannel::Sent& one : channel.sent_)
      if (one.connection == connection.index) one.posted = connection.sends.posted();
  }
  /// Whether the device may read the piece, as far as is known here: it lies in the arena, or has
  /// another key than the arena.
  bool is_local(const ibv_sge& piece) const noexcept {
    return piece.length == 0 || piece.lkey != arena_.local_key() ||
           arena_.holds(piece.addr, piece.length);
  }

  /// For a line that is not the next message of its slot; false.
  bool take_failed_slow(const VerbsChannel::Arrival& arrival) noexcept;
  /// For a message that means that its sender calls more often than this rank.
  void fail_hasty_slow(Connection& connection, const char* what) noexcept;
  std::size_t poll(ibv_cq* queue) noexcept;
  std::size_t poll_several() noexcept;
  /// Drops the completions of closed connections, whose places can be taken by others then.
  void forget_closed() noexcept;
  void raise(Connection& connection, std::uint32_t immediate) noexcept;

  Port port_;
  ProtectionDomainHandle domain_;
  Arena arena_;
  Connections connections_;
  std::vector<VerbsChannel*> channels_;  // by id; null: free, and what comes is dropped
  VerbsChannel closed_{0, 0};            // stands for the channels that were detached in good order
  std::uint32_t next_channel_ = 0;       // where attach() begins to look for a free id
  std::uint64_t attached_ = 0;           // channels so far
};

}  // namespace tutti::verbs
