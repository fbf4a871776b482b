// The connections of a process to its peers: they are made and connected at set-up, and fail one by
// one.
//
// A connection has an index, which is in every work request and completion, and is never used
// again.  There are only as many connections as the device has queue pairs and completion queue
// entries for (completion_queues.hpp).
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
  bool by_cm = false;          // by IP address, through the kernel's connection manager
  std::uint64_t process = 0;   // this end's key; needed with by_cm
  bool raises_events = false;  // a thread may sleep until there is a completion
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
  /// Connections made so far.  Later ones have this index or a higher one.
  std::uint32_t count() const noexcept { return static_cast<std::uint32_t>(connections_.size()); }
  /// What has to be polled.
  const CompletionQueues& completion_queues() const noexcept { return completion_queues_; }
  /// Null unless it raises events.
  ibv_comp_channel* events() const noexcept { return events_.get(); }

  // ---- set-up: may throw Error, may allocate ----

  /// How many connections there can be: the device limits queue pairs and completion queue entries.
  std::uint32_t count_max() const noexcept;
  /// Throws Error, with the numbers, unless connections to all of these processes can exist beside
  /// those that exist.  `processes` has none twice.
  void require_room_for(std::span<const std::uint64_t> processes) const;
  /// How many messages, of all live channels, can be on their way along a connection at once.
  std::uint32_t receives_promised_max() const noexcept;
  /// How long the device waits for an acknowledgement before it sends again.
  Timeout acknowledgement_timeout() const noexcept {
    return Timeout(std::int64_t{4096} << timeout_on(port_.description, options_.path));
  }

  /// The index of the connection to a peer process, which is made (in INIT, with receives posted)
  /// if it was not there.
  std::uint32_t to(std::uint64_t process);
  Endpoint endpoint(std::uint32_t index) const;
  /// Connects all partners, or throws Error; if any two ends cannot talk to each other, no queue
  /// pair is touched.  By address it waits for the partners, which do the same.
  void connect(std::span<const NewPartner> partners, const ConnectPatience& patience = {});
  /// Destroys the connections from `first` on, which no live channel may use: the set-up that made
  /// them has failed, here or elsewhere, and the other ends may be gone.
  void abandon_from(std::uint32_t first) noexcept;

  // ---- failures and farewells ----

  /// Whether next_failure() has something to say.
  bool has_news() const noexcept { return unheard_ > 0; }
  /// The first failure of a connection that has not been returned before; has_news() must hold.
  TransportFailure next_failure() noexcept;

  /// Keeps the first failure of a connection, and closes it.
  void fail(Connection& connection, const TransportFailure& failure) noexcept;
  /// Fails the connections of a completion queue.
  void fail_all_of(const ibv_cq* completion_queue, const char* what) noexcept;
  Status post_failed_slow(Connection& connection, int error) noexcept;

  /// Posts again the receives that were used.
  void refill(Connection& connection) noexcept;
  /// Tells the peers that this end takes leave, as far as there are credits.  Whether all know it.
  bool say_farewells() noexcept;

 private:
  void connect_by_cm(std::span<const NewPartner> partners, const ConnectPatience& patience);
  bool knows_farewell(Connection& connection) noexcept;

  const Port& port_;
  ibv_pd* domain_;
  ConnectionOptions options_;
  std::optional<ConnectionManager> manager_;  // outlives the ids of the connections
  CompletionChannelHandle events_;            // outlives the completion queues
  CompletionQueues completion_queues_;
  std::deque<Connection> connections_;  // queue pairs go before the completion queues
  std::unordered_map<std::uint64_t, std::uint32_t> by_process_;
  std::size_t unheard_ = 0;  // connections with an unheard failure
};

}  // namespace tutti::verbs
