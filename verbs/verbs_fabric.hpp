// The fabric between nodes: one completion queue, one arena, one queue pair per peer process, and
// the words in which messages arrive.  A message says that it is there in one of two ways.
//   immediate  a write with immediate, which takes a receive.  Who writes the word: poll(), on the
//              owning thread, after the completion was polled; the payload was placed before that
//              completion.  Who reads it: take(), same thread.
//   line       one inline write of one aligned line, the word at its end; no receive, no completion
//              at the receiver.  Who writes the word: the peer's device, after the rest of the line
//              (Driver::keep_lines_whole), which on the devices that promise it is a store with
//              release by the peer's CPU.  Who reads it: take(), with acquire; without the pair the
//              payload that it lets be read could be the one before.
//
//        | payload, up to 56 bytes ................................. | number |
//        ^ slot, aligned to 64                                       ^ slot + 56
//
// A word counts the messages of its slot, and is never reset.  One that is ahead of what was taken
// by more than the message that is awaited means that a peer calls more often than this rank: its
// connection fails.  Where lines are counted from is different for every operation of a context, so
// that what a peer writes too late, into memory that another operation uses by then, is no message
// of that one.
//
// After J. Liu, J. Wu, D. K. Panda, "High performance RDMA-based MPI implementation over
// InfiniBand", International Journal of Parallel Programming 32 (3), 2004: receivers that poll the
// end of what was written.
//
// A connection fails alone: the others, and whoever uses only them, go on.  A failed connection has
// no credit, so that put() meets the failure without asking for it on every message.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <tutti/detail/check.hpp>
#include <tutti/detail/clock.hpp>
#include <tutti/detail/republished.hpp>
#include <tutti/status.hpp>
#include <tutti/timeout.hpp>
#include <unordered_map>
#include <vector>

#include "verbs/arena.hpp"
#include "verbs/connection_manager.hpp"
#include "verbs/device.hpp"
#include "verbs/queue_pair.hpp"
#include "verbs/work_queue.hpp"

namespace tutti::verbs {

struct VerbsFabricOptions {
  std::string device;
  std::size_t arena_bytes = 0;
  QueuePairLimits queue_pair = {};
  PathDefaults path = {};
  bool connect_by_cm = false;  // by IP address, through the kernel's connection manager
  std::uint64_t process = 0;   // this end's key; needed for connect_by_cm
  bool sends_lines = false;    // or is sent some
};

/// A peer to be connected.
struct NewPartner {
  std::uint32_t connection;
  Endpoint remote;
  std::string name;  // in errors, e.g. "rank 3"
};

/// What the fabric keeps for one operation: its puts, ready to post, and what has arrived.
class Channel {
 public:
  Channel(std::size_t put_count, std::uint32_t slot_count)
      : puts_{std::vector<PreparedPut>(put_count), std::vector<PreparedPut>(put_count)},
        arrivals_(2 * std::size_t{slot_count}),
        slot_count_(slot_count) {
    for (Arrival& arrival : arrivals_) arrival.word = &arrival.raised;
  }
  Channel(const Channel&) = delete;  // arrivals point at themselves
  Channel& operator=(const Channel&) = delete;

  /// Lines that come here are numbered from there on: the first one is one more.
  std::uint64_t numbers_from() const noexcept { return numbers_from_; }

  /// For so many puts, none of which is prepared.
  void make_room(std::size_t put_count) {
    puts_ = {std::vector<PreparedPut>(put_count), std::vector<PreparedPut>(put_count)};
  }

  /// Before anything can come: what comes is told to the ranks of this node by these words, one for
  /// each slot, and raises no flags.
  void republish(const detail::RepublishedWords& words) {
    detail::check(words.count <= Immediate::slots_max, "a slot has a number of 15 bits",
                  words.count);
    words_ = words;
    slot_count_ = 0;
    arrivals_.clear();
  }

  /// Lets a put, of both parities, send what lies `by` bytes further on, in memory of that key.
  void move_local(std::size_t put, std::ptrdiff_t by, std::uint32_t local_key) noexcept {
    for (std::vector<PreparedPut>& puts : puts_) {
      puts[put].piece.addr += static_cast<std::uint64_t>(by);
      puts[put].piece.lkey = local_key;
    }
  }

 private:
  friend class VerbsFabric;
  /// One slot of one parity.
  struct Arrival {
    std::uint64_t* word = nullptr;  // number of the last message: `raised`, or the end of the slot
    std::uint64_t taken = 0;        // number of the last one that was taken
    std::uint64_t raised = 0;       // by poll()
    std::uint32_t connection = UINT32_MAX;  // that writes the slot, if by lines

    /// Acquire: pairs with the release of who writes the line; for poll()'s it costs nothing.
    std::uint64_t last() const noexcept {
      return std::atomic_ref(*word).load(std::memory_order_acquire);
    }
  };

  std::array<std::vector<PreparedPut>, 2> puts_;  // by parity, in the order of the plan
  std::deque<OutgoingLine> lines_;                // of those puts that are such
  std::vector<Arrival> arrivals_;                 // [parity][slot]
  std::uint32_t slot_count_;                      // 0: there are words instead, or nothing
  detail::RepublishedWords words_;
  std::uint32_t id_ = 0;
  std::uint64_t numbers_from_ = 0;
  struct Sent {
    std::uint32_t connection;
    std::uint64_t posted;  // up to the last send that is awaited
  };
  std::vector<Sent> sent_;               // by connection that has such sends
  std::vector<std::uint32_t> reserved_;  // connections on which receives are reserved, one each
};

/// Two plain writes: a chunk, then, with an order of its own, the word that says that it is there.
struct WordedWrite {
  std::uint32_t connection = 0;
  const std::byte* local = nullptr;
  std::uint32_t bytes = 0;  // 0: the word alone
  std::uint32_t local_key = 0;
  std::uint64_t remote_address = 0;
  std::uint64_t remote_word = 0;  // address
  std::uint32_t remote_key = 0;   // of both
  std::uint64_t word = 0;         // what it becomes
};

/// One write, of which the receiver's completion says that it is there.
struct NotifiedWrite {
  std::uint32_t connection = 0;
  const std::byte* local = nullptr;
  std::uint32_t bytes = 0;  // 0: the notification alone
  std::uint32_t local_key = 0;
  std::uint64_t remote_address = 0;
  std::uint32_t remote_key = 0;
  Immediate notification = {};
};

/// What worded writes need of a device and of a queue pair.
struct WordedLimits {
  bool places_writes_in_order = false;
  std::uint32_t inline_bytes = 0;
  std::uint32_t sends_max = 0;
};
/// Why they cannot be used there, as the end of a sentence; empty: they can.  `port`: its name.
std::string why_not_worded(const WordedLimits& limits, const std::string& port);

/// The same for messages of one line, as a sentence.  `tears`: what Driver::keep_lines_whole()
/// says.
std::string why_not_lines(const char* tears, const std::string& port);
/// Asks the device of a port, and holds it to that.
std::string why_not_lines(const Port& port);

/// A completion that carried an error, or a refused post.
struct TransportFailure {
  std::uint64_t process = 0;  // the peer's key, see VerbsFabric::connection_to
  ibv_wc_status completion = IBV_WC_SUCCESS;
  int system_errno = 0;
  std::string_view what;  // static text
};

/// One thread at a time.
class VerbsFabric {
 public:
  /// Opens the device and registers the arena.  Throws Error.
  explicit VerbsFabric(const VerbsFabricOptions& options);
  ~VerbsFabric();

  // ---- set-up: may throw Error, may allocate ----

  const Port& port() const noexcept { return port_; }
  /// How long the device waits for an acknowledgement before it sends again.
  Timeout acknowledgement_timeout() const noexcept {
    return Timeout(std::int64_t{4096} << timeout_on(port_.description, options_.path));
  }
  Arena& arena() noexcept { return arena_; }
  /// Memory that is mapped here, for the network to read, and for peers to write if `access` says
  /// so (IBV_ACCESS_...; never relaxed ordering).  Throws Error, which calls it by its name.
  RegionHandle register_memory(const std::byte* memory, std::size_t bytes, int access,
                               const char* name);

  bool connected(std::uint32_t connection) const { return connections_[connection].connected; }
  bool failed(std::uint32_t connection) const { return connections_[connection].failed; }

  /// The connection to a peer process, made (in INIT, receives posted) if it was not there.
  std::uint32_t connection_to(std::uint64_t process);
  Endpoint endpoint(std::uint32_t connection) const;
  /// Connects them all, or throws Error; none is touched if two ends cannot talk to each other.
  /// Waits for the others, who do the same, where connections are made by address.
  void connect(std::span<const NewPartner> partners, const ConnectPatience& patience = {});
  /// How many connections there can be: queue pairs of the device, entries of the completion queue.
  std::uint32_t connections_max() const noexcept;
  /// Connections made so far.  Later ones have this index or a higher one.
  std::uint32_t connection_count() const noexcept {
    return static_cast<std::uint32_t>(connections_.size());
  }
  /// Destroys the connections from `first` on, which no live channel may use: the set-up that made
  /// them has failed, here or elsewhere, and the other ends may be gone.
  void abandon_from(std::uint32_t first) noexcept;

  /// Registers a channel under the id that peers put into their immediates.  An id rests until all
  /// others have been used, so that what a peer sends too late meets no later channel.
  std::uint32_t attach(Channel& channel);
  /// `orderly`: every peer has called it as often as this rank, so that nothing can come any more;
  /// what comes all the same is a failure of its connection.  (A line that comes later is found if
  /// another channel awaits lines there by then.)
  void detach(Channel& channel, bool orderly) noexcept;

  /// How many messages, of all live channels, can be on their way along a connection at once.
  std::uint32_t receives_promised_max() const noexcept {
    const std::uint32_t receives_max =
        std::min(options_.queue_pair.receives_max, requests_max_of(port_));
    return receives_max - receive_batch(receives_max);
  }
  /// Reserves a receive for one message per call that the peer will send; both parities count.
  void reserve_receive(Channel& channel, std::uint32_t connection);

  void prepare(Channel& channel, std::uint32_t parity, std::size_t put,
               const PutDescription& description);

  // For messages of one line.

  /// Throws Error if the queue pair cannot send a line.
  void require_lines(std::uint32_t connection) const;
  void prepare_line(Channel& channel, std::uint32_t parity, std::size_t put,
                    const LineDescription& description);
  /// What comes into the slot, which is one line, will be lines.  Before a peer may send some.
  void await_lines(Channel& channel, std::uint32_t parity, std::uint32_t slot, std::byte* line,
                   std::uint32_t connection);

  // For chunks that whichever rank of a node may send, and see.

  /// Says which connection put number `put`, which is not prepared, stands for: drain() then waits
  /// for what write() sends there, in either form.
  void assign(Channel& channel, std::size_t put, std::uint32_t connection);
  /// Why a worded write() cannot be used to tell this end something, or this end others, on a
  /// connected connection; empty: it can.
  std::string why_not_worded(std::uint32_t connection) const;

  /// Polls until all sends of this channel's connections have left, so that their source memory may
  /// be reused.  False if that did not happen by the deadline.  Nothing leaves a failed connection
  /// any more; and a peer that has taken leave, or of which `has_gone(process)` is true, has closed
  /// its end, and so had received everything it waited for.
  bool drain(const Channel& channel, detail::Clock& clock, Timeout timeout,
             const std::function<bool(std::uint64_t process)>& has_gone) noexcept;

  /// Tells all peers that this end is about to close in good order, and waits until they know, but
  /// not beyond the deadline: they would wait for answers to their last sends until the transport
  /// gives up.  Nothing may be put afterwards.
  void take_leave(detail::Clock& clock, Timeout timeout) noexcept;

  // ---- data path: the Fabric concept of the engine ----

  /// Looks for completions once: counts what has arrived with an immediate, returns credits.  How
  /// many there were.
  std::size_t poll() noexcept;

  /// Whether next_failure() has something to say.
  bool has_news() const noexcept { return unheard_ > 0; }
  /// A failure that has not been returned before, each connection's first; has_news() must hold.
  TransportFailure next_failure() noexcept;

  /// Posts put number `put` of the plan.  in_progress: no credit, poll and try again.
  /// transport_failed: the connection has failed.
  Status put(Channel& channel, std::uint32_t parity, std::size_t put) noexcept {
    PreparedPut& prepared = channel.puts_[parity][put];
    Connection& connection = connections_[prepared.connection];
    if (!connection.sends.has_credit()) [[unlikely]]
      return connection.failed ? Status::transport_failed : Status::in_progress;
    if (prepared.line != nullptr) prepared.line->fill();
    if (const int error = connection.sends.post(connection.pair->get(), prepared); error != 0)
        [[unlikely]]
      return post_failed_slow(connection, error);
    if (prepared.is_awaited) note_sent(channel, prepared.connection);
    return Status::ok;
  }

  /// Whether all puts that are awaited have left, or their connections have ended: nothing leaves
  /// a failed one any more, and a peer that has taken leave had received everything.
  bool sent(const Channel& channel) const noexcept {
    return std::all_of(channel.sent_.begin(), channel.sent_.end(), [&](const auto& one) {
      const Connection& connection = connections_[one.connection];
      return connection.sends.left() >= one.posted || connection.failed || connection.left;
    });
  }

  /// Whether write() would send now: in_progress: no credit, poll and try again; transport_failed.
  /// A worded write takes two sends, a notified one takes one.
  Status room(std::uint32_t connection, std::uint32_t sends) const noexcept {
    const Connection& one = connections_[connection];
    if (one.sends.credits() >= sends) [[likely]]
      return Status::ok;
    return one.failed ? Status::transport_failed : Status::in_progress;
  }
  /// Chunk and word; both or, if there is no room(), neither.
  Status write(const WordedWrite& given) noexcept;
  /// Chunk and notification.
  Status write(const NotifiedWrite& given) noexcept;

  /// Whether the next message for `slot` has arrived; then it is taken.
  bool take(Channel& channel, std::uint32_t parity, std::uint32_t slot) noexcept {
    Channel::Arrival& arrival = channel.arrivals_[parity * channel.slot_count_ + slot];
    const std::uint64_t last = arrival.last();
    if (last == arrival.taken) return false;
    if (last != arrival.taken + 1) [[unlikely]]
      return take_failed_slow(arrival);
    arrival.taken = last;
    return true;
  }

  /// The same without taking it.
  bool arrived(const Channel& channel, std::uint32_t parity, std::uint32_t slot) const noexcept {
    const Channel::Arrival& arrival = channel.arrivals_[parity * channel.slot_count_ + slot];
    return arrival.last() != arrival.taken;
  }

 private:
  struct Connection {
    Connection(std::uint64_t key, QueuePair&& made, std::uint32_t sends_max)
        : process(key), pair(std::move(made)), sends(sends_max) {}
    std::uint64_t process;
    IdHandle id = {};               // connected by address
    std::optional<QueuePair> pair;  // empty: abandoned
    SendQueue sends;
    bool connected = false;
    bool failed = false;
    bool left = false;                        // the peer has taken leave
    bool took_leave = false;                  // this end has
    std::optional<TransportFailure> unheard;  // until next_failure() has returned it
    std::uint32_t receives_used = 0;          // polled and not yet posted again
    std::uint32_t receives_reserved = 0;      // by live channels, both parities
  };

  static constexpr int poll_batch = 16;

  void note_sent(Channel& channel, std::uint32_t connection) noexcept {
    for (Channel::Sent& one : channel.sent_)
      if (one.connection == connection) one.posted = connections_[connection].sends.posted();
  }

  void connect_by_cm(std::span<const NewPartner> partners, const ConnectPatience& patience);
  /// A plain write of what is given, a PutDescription or one of the writes, by way of `piece`.
  template <class Write>
  static ibv_send_wr request_of(const Write& given, std::uint32_t local_key,
                                const Connection& connection, ibv_sge& piece) noexcept;
  Status post_failed_slow(Connection& connection, int error) noexcept;
  /// A line that is no message of this operation's next call: false.
  bool take_failed_slow(const Channel::Arrival& arrival) noexcept;
  void completion_failed_slow(Connection& connection, const ibv_wc& completion) noexcept;
  /// Keeps the first failure of a connection.
  void fail(Connection& connection, const TransportFailure& failure) noexcept;
  void fail_all(const char* what) noexcept;
  void raise(Connection& connection, std::uint32_t immediate) noexcept;
  void republish(Connection& connection, const Channel& channel, Immediate notification) noexcept;
  /// Whether the peer may still not know that this end takes leave.
  bool says_farewell(std::uint32_t connection) noexcept;
  void refill(std::uint32_t connection) noexcept;
  int post_receives(std::uint32_t connection, std::uint32_t count) noexcept;
  static std::uint32_t receive_batch(std::uint32_t receives_max) noexcept {
    return receives_max / 4 > 0 ? receives_max / 4 : 1;
  }
  static std::uint32_t receive_batch(const Connection& connection) noexcept {
    return receive_batch(connection.pair->receives_max());
  }
  /// Every posted receive and, once the pair is in error, every send can have an unpolled
  /// completion.
  static std::uint32_t completions_of(const QueuePair& pair) noexcept {
    return pair.receives_max() + pair.sends_max();
  }

  VerbsFabricOptions options_;
  Port port_;
  std::optional<ConnectionManager> manager_;  // outlives the ids of the connections
  DomainHandle domain_;
  Arena arena_;
  std::uint32_t completions_max_ = 0;
  std::uint32_t completions_promised_ = 0;  // sum over connections of what can be unpolled
  CompletionQueueHandle completions_;
  std::deque<Connection> connections_;  // queue pairs go before the completion queue
  std::unordered_map<std::uint64_t, std::uint32_t> by_process_;
  std::vector<Channel*> channels_;  // by id; null: free, and what comes is dropped
  Channel closed_{0, 0};            // stands for those that were detached in good order
  std::uint32_t next_channel_ = 0;  // where attach() begins to look for a free id
  std::uint64_t attached_ = 0;      // channels so far
  std::size_t unheard_ = 0;         // connections with an unheard failure
};

}  // namespace tutti::verbs
