// The fabric between nodes: one completion queue, one arena, one queue pair per peer process, and
// the arrival flags that write-with-immediate notifications raise.
//
// Who writes an arrival flag: poll(), on the owning thread, after the completion of the immediate
// was polled; the payload was placed before that completion.  Who reads it: take(), same thread.
// A flag is raised once per message and lowered by the one await that waits for it; a flag raised
// twice is a broken plan and is reported as a transport failure.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tutti/detail/clock.hpp>
#include <tutti/status.hpp>
#include <tutti/timeout.hpp>
#include <unordered_map>
#include <vector>

#include "verbs/arena.hpp"
#include "verbs/device.hpp"
#include "verbs/queue_pair.hpp"
#include "verbs/work_queue.hpp"

namespace tutti::verbs {

struct VerbsFabricOptions {
  std::string device;
  std::size_t arena_bytes = 0;
  QueuePairLimits queue_pair = {};
};

/// What the fabric keeps for one operation: its puts, ready to post, and its arrival flags.
class Channel {
 public:
  Channel(std::size_t put_count, std::uint32_t slot_count)
      : puts_{std::vector<PreparedPut>(put_count), std::vector<PreparedPut>(put_count)},
        arrived_(2 * std::size_t{slot_count}),
        slot_count_(slot_count) {}

 private:
  friend class VerbsFabric;
  std::array<std::vector<PreparedPut>, 2> puts_;  // by parity, in the order of the plan
  std::vector<std::uint8_t> arrived_;             // [parity][slot]
  std::uint32_t slot_count_;
  std::uint32_t id_ = 0;
  std::vector<std::uint32_t> reserved_;  // connections on which receives are reserved, one each
};

/// A completion that carried an error, or a refused post.
struct TransportFailure {
  std::uint64_t process = 0;  // the peer's process key, 0 if unknown
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
  Arena& arena() noexcept { return arena_; }

  bool connected(std::uint32_t connection) const { return connections_[connection].connected; }

  /// The connection to a peer process, made (in INIT, receives posted) if it was not there.
  std::uint32_t connection_to(std::uint64_t process);
  Endpoint endpoint(std::uint32_t connection) const;
  void connect(std::uint32_t connection, const Endpoint& remote, const std::string& peer_name);

  /// Registers a channel under the id that peers put into their immediates.
  std::uint32_t attach(Channel& channel);
  /// Nothing can arrive for it any more.
  void detach(Channel& channel) noexcept;

  /// Reserves a receive for one message per call that the peer will send; both parities count.
  void reserve_receive(Channel& channel, std::uint32_t connection);

  void prepare(Channel& channel, std::uint32_t parity, std::size_t put,
               const PutDescription& description);

  /// Polls until all sends of all connections have left, so that their source memory may be reused.
  /// False if that did not happen by the deadline or a failure came.  A peer of which
  /// `has_gone(process)` is true has closed its end, and so had received everything it waited for:
  /// its connection is given up, without that being a failure.
  bool drain(detail::Clock& clock, Timeout timeout,
             const std::function<bool(std::uint64_t process)>& has_gone) noexcept;

  // ---- data path: the Fabric concept of the engine ----

  /// Looks for completions once.  Raises arrival flags, returns credits.
  Status poll() noexcept;

  /// Posts put number `put` of the plan.  in_progress: no credit, poll and try again.
  Status put(Channel& channel, std::uint32_t parity, std::size_t put) noexcept {
    PreparedPut& prepared = channel.puts_[parity][put];
    Connection& connection = connections_[prepared.connection];
    if (!connection.sends.has_credit()) [[unlikely]]
      return Status::in_progress;
    if (const int error = connection.sends.post(connection.pair.get(), prepared); error != 0)
        [[unlikely]]
      return post_failed_slow(connection, error);
    return Status::ok;
  }

  /// Whether the message for `slot` has arrived; if so, the flag is lowered.
  bool take(Channel& channel, std::uint32_t parity, std::uint32_t slot) noexcept {
    std::uint8_t& flag = channel.arrived_[parity * channel.slot_count_ + slot];
    if (flag == 0) return false;
    flag = 0;
    return true;
  }

  /// The same without lowering it.
  bool arrived(const Channel& channel, std::uint32_t parity, std::uint32_t slot) const noexcept {
    return channel.arrived_[parity * channel.slot_count_ + slot] != 0;
  }

  const std::optional<TransportFailure>& failure() const noexcept { return failure_; }

 private:
  struct Connection {
    Connection(std::uint64_t key, QueuePair&& made, std::uint32_t sends_max)
        : process(key), pair(std::move(made)), sends(sends_max) {}
    std::uint64_t process;
    QueuePair pair;
    SendQueue sends;
    bool connected = false;
    bool given_up = false;  // the peer has closed its end: what is still in flight may fail
    std::uint32_t receives_used = 0;      // polled and not yet posted again
    std::uint32_t receives_reserved = 0;  // by live channels, both parities
  };

  static constexpr int poll_batch = 16;

  Status post_failed_slow(const Connection& connection, int error) noexcept;
  Status completion_failed_slow(const ibv_wc& completion) noexcept;
  Status fail(const TransportFailure& failure) noexcept;
  int post_receives(std::uint32_t connection, std::uint32_t count) noexcept;
  std::uint32_t receive_batch(const Connection& connection) const noexcept {
    return connection.pair.receives_max() / 4 > 0 ? connection.pair.receives_max() / 4 : 1;
  }

  VerbsFabricOptions options_;
  Port port_;
  DomainHandle domain_;
  Arena arena_;
  std::uint32_t completions_max_ = 0;
  std::uint32_t completions_promised_ = 0;  // sum over connections of what can be unpolled
  CompletionQueueHandle completions_;
  std::deque<Connection> connections_;  // queue pairs go before the completion queue
  std::unordered_map<std::uint64_t, std::uint32_t> by_process_;
  std::vector<Channel*> channels_;  // by id; ids are reused
  std::optional<TransportFailure> failure_;
};

}  // namespace tutti::verbs
