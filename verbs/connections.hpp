// The connections of a process to its peers: they are made and connected at set-up, and fail one by
// one.
//
// A connection has an index, which is in every work request and completion.  It is used again when
// nothing of the connection can be in a completion queue any more.  There are only as many
// connections as the owner allows, and as the device has queue pairs and completion queue entries
// for (completion_queues.hpp).
//
// Connections that no live channel uses are closed when others need their place: those that have
// failed, at once, then the least recently used (VerbsFabric::make_room_for()).  Each end decides
// that alone:
//
//   this end                                      the peer
//   idle: its channels have ended in good order
//   "disconnect", and waits for its acknowledgement
//   closes its queue pair                         polls "disconnect" at some time: it sends nothing
//                                                 more, and closes its queue pair at its next
//                                                 set-up.  If it is in one, that goes on with
//                                                 this connection until the peer offers another
//   the next set-up of both: no connection here   none here either, or, if "disconnect" was not
//                                                 polled: superseded, because the peer offers one
#pragma once

#include <deque>
#include <optional>
#include <span>
#include <unordered_map>

#include "verbs/completion_queues.hpp"
#include "verbs/connection.hpp"
#include "verbs/connection_manager.hpp"

namespace tutti::verbs {

struct ConnectionOptions {
  QueuePairLimits queue_pair = {};
  PathDefaults path = {};
  bool by_cm = false;           // by IP address, through the kernel's connection manager
  std::uint32_t count_max = 0;  // 0: as many as the device allows
  std::uint64_t process = 0;    // this end's key; needed with by_cm
  bool raises_events = false;   // a thread may sleep until there is a completion
};

/// A peer to be connected.
struct NewPartner {
  std::uint32_t connection;
  Endpoint remote;
  std::string name;  // in errors, e.g. "rank 3"
};

/// One thread at a time.
class Connections {
 public:
  /// `port` and `domain` must outlive this.  Throws Error.
  Connections(const Port& port, ibv_pd* domain, const ConnectionOptions& options);

  Connection& operator[](std::uint32_t index) noexcept {
    assert(index < connections_.size());
    return connections_[index];
  }
  const Connection& operator[](std::uint32_t index) const noexcept {
    assert(index < connections_.size());
    return connections_[index];
  }
  /// Connections whose queue pair exists.
  std::uint32_t count() const noexcept { return open_; }
  /// Whether there is a connection to that process which its peer has not closed.
  bool has(std::uint64_t process) const noexcept;
  /// Connections made so far.  Later ones have this serial number or a higher one.
  std::uint64_t made() const noexcept { return made_; }
  /// What has to be polled.
  const CompletionQueues& completion_queues() const noexcept { return completion_queues_; }
  /// Null unless it raises events.
  ibv_comp_channel* events() const noexcept { return events_.get(); }

  // ---- set-up: may throw Error, may allocate ----

  /// How many connections there can be: the owner may limit them, and the device limits queue pairs
  /// and completion queue entries.
  std::uint32_t count_max() const noexcept;
  /// Whether connections to all of these processes can exist beside those that are in use, once
  /// those that peers have closed or left are closed here.
  bool can_have_room_for(std::span<const std::uint64_t> processes) const;
  /// The connections that have to go before connections to all of these processes can exist, of
  /// those that are idle or lost: first what has failed, then the least recently used; mostly none.
  /// `processes` has none twice.  Throws Error, with the numbers, if those that are in use leave
  /// too little room.  After close_those_of_peers().
  std::vector<std::uint32_t> in_the_way_of(std::span<const std::uint64_t> processes) const;
  /// How many messages, of all live channels, can be on their way along a connection at once.
  std::uint32_t receives_promised_max() const noexcept;
  /// How long the device waits for an acknowledgement before it sends again.
  Timeout acknowledgement_timeout() const noexcept {
    return Timeout(std::int64_t{4096} << timeout_on(port_.description, options_.path));
  }

  /// The index of the connection to a peer process, which is made (in INIT, with receives posted)
  /// if it was not there, or if the peer has closed the one that was there.
  std::uint32_t to(std::uint64_t process);
  /// Whether there is a connection to that process which has not failed and can go on: its peer has
  /// not closed it.
  bool can_go_on(std::uint64_t process) const noexcept {
    return has(process) && !last_to(process).failed;
  }
  /// The connection that to() has returned last for that process, whatever the peer has done since;
  /// it must be there.  A set-up finds the same one until it replaces it (supersede()).
  Connection& last_to(std::uint64_t process) noexcept;
  const Connection& last_to(std::uint64_t process) const noexcept {
    return const_cast<Connections*>(this)->last_to(process);
  }
  Endpoint endpoint(std::uint32_t index) const;
  /// Connects all partners, whose ports are of one kind (port_card.hpp), or throws Error.  By
  /// address it waits for the partners, which do the same.
  void connect(std::span<const NewPartner> partners, const ConnectPatience& patience = {});
  /// Closes the connections from serial number `first` on, which no live channel may use: the
  /// set-up that made them has failed, here or elsewhere, and the other ends may be gone.
  void abandon_from(std::uint64_t first) noexcept;

  // ---- disconnecting ----

  /// A channel uses the connection from now on, or does so no longer.  `orderly`: all that either
  /// end has sent for it has arrived.
  void begin_use(Connection& connection) noexcept;
  void end_use(Connection& connection, bool orderly) noexcept;
  /// Sends "disconnect" on an idle connection that has a credit.
  void say_disconnect(Connection& connection) noexcept;
  /// "disconnect" was polled.
  void hear_disconnect(Connection& connection) noexcept;
  /// The peer of a connection offers a new one, so it has closed its end of this one.  Channels
  /// that still use it send nothing more; to() makes another.  It is closed unless something may
  /// still come for them.
  void supersede(Connection& connection) noexcept;
  /// Lets go of the connections to these processes, which have ended or do the same: to() makes
  /// others.  They are closed once no channel uses them any more.
  void forget(std::span<const std::uint64_t> processes) noexcept;
  /// Destroys the queue pair.  What is in the completion queues is dropped when it is polled.
  void close(Connection& connection) noexcept;
  /// Closes the connections that the peer has closed or left, and on which nothing can come any
  /// more.  Whether there were some.
  bool close_those_of_peers() noexcept;
  /// Whether there are closed connections whose index and completions are not free yet.
  bool has_closed() const noexcept { return !closed_.empty(); }
  /// The completion queues are, or have been, empty since the last close(): indices and entries of
  /// closed connections that no channel uses may be used again.
  void recycle() noexcept;

  // ---- failures and farewells ----

  /// Whether next_failure() has something to say.
  bool has_news() const noexcept { return unheard_ > 0; }
  /// The first failure of a connection that has not been returned before; has_news() must hold.
  TransportFailure next_failure() noexcept;

  /// Completions with an error, of all connections while they were open.
  const std::uint64_t& completion_errors() const noexcept { return completion_errors_; }
  /// A completion with an error was polled.
  void fail_by(Connection& connection, const ibv_wc& completion) noexcept;
  /// Keeps the first failure of a connection, and closes it.
  void fail(Connection& connection, const TransportFailure& failure) noexcept;
  /// Fails the connections of a completion queue.
  void fail_all_of(const ibv_cq* completion_queue, const char* what) noexcept;
  Status post_failed_slow(Connection& connection, int error) noexcept;
  /// What becomes of a send for which there is no credit.  If the peer has closed its end, it has
  /// ended what this end calls: that is a failure.
  Status no_credit_slow(Connection& connection) noexcept;

  /// Notes that what uses the connections to these processes has failed, or that this end has met
  /// those processes again since.  `made_before`: connections with this serial number or a higher
  /// one are not concerned.
  void note_failure(std::span<const std::uint64_t> processes, bool has_failed,
                    std::uint64_t made_before = UINT64_MAX) noexcept;
  /// Whether there is a connection on which something may be on its way since such a failure, or
  /// whose peer may be gone: then there is no orderly end.
  bool has_met_failure() const noexcept;
  /// Posts again the receives that were used.
  void refill(Connection& connection) noexcept;
  /// Tells the peers that this end takes leave, as far as there are credits.  Whether all know it.
  bool say_farewells() noexcept;

 private:
  void connect_by_cm(std::span<const NewPartner> partners, const ConnectPatience& patience);
  bool knows_farewell(Connection& connection) noexcept;
  void report(Connection& connection, const TransportFailure& failure) noexcept;
  std::size_t added_by(std::span<const std::uint64_t> processes) const noexcept;
  std::vector<std::uint32_t> idle_beside(std::span<const std::uint64_t> processes) const;
  std::uint32_t make(std::uint64_t process, QueuePair&& pair);
  void leave_to_peer(Connection& connection) noexcept;
  void forget_process(const Connection& connection) noexcept;
  /// Whether it is the one that last_to() finds.
  bool leads_to_its_process(const Connection& connection) const noexcept;
  bool free(std::uint32_t index) noexcept;

  const Port& port_;
  ibv_pd* domain_;
  ConnectionOptions options_;
  std::optional<ConnectionManager> manager_;  // outlives the ids of the connections
  CompletionChannelHandle events_;            // outlives the completion queues
  CompletionQueues completion_queues_;
  std::deque<Connection> connections_;  // queue pairs go before the completion queues
  std::unordered_map<std::uint64_t, std::uint32_t> by_process_;
  std::vector<std::uint32_t> closed_;  // indices, until they are free; has room for all
  std::vector<std::uint32_t> free_;    // indices; has room for all
  std::uint32_t open_ = 0;
  std::uint64_t made_ = 0;
  std::uint64_t uses_ = 0;
  std::size_t unheard_ = 0;  // connections with an unheard failure
  std::uint64_t completion_errors_ = 0;
};

}  // namespace tutti::verbs
