// One reliable connection: from RESET to ready-to-send, with limits and path properties as named
// structs and errors that print both ends.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "verbs/device.hpp"
#include "verbs/handle.hpp"
#include "verbs/wire.hpp"

namespace tutti::verbs {

struct QueuePairLimits {
  std::uint32_t sends_max = 64;
  std::uint32_t receives_max = 256;
  std::uint32_t inline_bytes_max = 220;  // the largest that mlx5 takes with one BlueFlame write
};

/// What InfiniBand leaves to the user.  The time until a dead peer is noticed by the transport is
/// about 4.096 us * 2^timeout * (retries + 1), four seconds here, some devices multiply it by 4 and
/// soft-RoCE takes 7 retries for "without end"; nothing relies on it, see "Guarantees" in the
/// README.  A live peer must not be taken for a dead one, nor asked again while it is at work: for
/// soft-RoCE on a host without a free CPU, a timeout of 0.07 s was too short.
struct PathDefaults {
  std::uint8_t timeout = 17;
  std::uint8_t timeout_of_virtual_devices = 22;  // 17 s; see timeout_on()
  std::uint8_t retries = 7;
  std::uint8_t receiver_not_ready_retries = 7;  // without end: receives are pre-posted by count
  std::uint8_t receiver_not_ready_timer = 12;   // 0.64 ms
  std::uint8_t hop_limit = 64;
  std::uint8_t traffic_class = 0;
  std::uint8_t service_level = 0;
};

/// The timeout of a queue pair on that port.  rxe, the kernel's virtual device (seen in Linux 6.1),
/// leaves its timer running when everything has been acknowledged; when it runs out, what is under
/// way just then is sent again, although nothing was lost, and now and then such a repetition is
/// answered with an error that ends the connection.  The longer the timeout, the fewer there are.
std::uint8_t timeout_on(const PortDescription& port, const PathDefaults& path) noexcept;

/// How many sends, and receives, a queue pair of that port can have.
inline std::uint32_t requests_max_of(const Port& port) noexcept {
  return static_cast<std::uint32_t>(port.limits.max_qp_wr);
}

class QueuePair {
 public:
  /// Creates the pair and takes it to INIT, so that receives may be posted.  Throws Error.
  QueuePair(const Port& port, ibv_pd* domain, ibv_cq* completions, const QueuePairLimits& wanted);

  Endpoint endpoint() const noexcept { return endpoint_; }
  std::uint32_t inline_bytes() const noexcept { return inline_bytes_; }  // what the device granted
  std::uint32_t sends_max() const noexcept { return sends_max_; }
  std::uint32_t receives_max() const noexcept { return receives_max_; }
  /// Every posted receive and, once the pair is in error, every send can have an unpolled
  /// completion.
  std::uint32_t completions_max() const noexcept { return receives_max_ + sends_max_; }
  const Port& port() const noexcept { return port_; }
  ibv_qp* get() const noexcept { return pair_.get(); }

  /// To ready-to-receive and ready-to-send.  `remote`, with which there is no incompatibility, is
  /// named in errors by `peer_name`.
  /// Throws Error with both ends and the refused attributes.
  void connect(const Endpoint& remote, const std::string& peer_name, const PathDefaults& path = {});

  /// What a connection manager knows of the state in `attributes->qp_state`; 0, or -1 with errno.
  using AttributeSource = std::function<int(ibv_qp_attr* attributes, int* mask)>;

  /// The same where a connection manager knows the path: which address, keys and packet sequences
  /// is its business, access, MTU and times are decided here as in connect().
  void connect_by(const AttributeSource& source, const Endpoint& remote,
                  const std::string& peer_name, const PathDefaults& path = {});

  /// To the error state: what is queued is flushed, the other end is refused.
  void close() noexcept;

 private:
  void modify(const char* state, ibv_qp_attr& attributes, int mask, const Endpoint& remote,
              const std::string& peer_name);

  const Port& port_;
  QueuePairHandle pair_;
  Endpoint endpoint_ = {};
  std::uint32_t inline_bytes_ = 0;
  std::uint32_t sends_max_ = 0;
  std::uint32_t receives_max_ = 0;
};

std::string text_of(const Endpoint& endpoint);

}  // namespace tutti::verbs
