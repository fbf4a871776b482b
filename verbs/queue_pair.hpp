// A reliable queue pair, from RESET to ready-to-send.  Limits and path properties are named
// structs, and errors print both ends.
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
  // The software device needs two entries more for its completions, which makes a power of two.
  std::uint32_t receives_max = 254;
  std::uint32_t inline_bytes_max = 220;  // the largest that mlx5 takes with one BlueFlame write
};

/// Path properties that InfiniBand leaves to the user.  The transport notices a dead peer after
/// about 4.096 us * 2^timeout * (retries + 1), which is four seconds here.  Some devices multiply
/// the time by 4, and soft-RoCE treats 7 retries as "without end"; nothing relies on it, see
/// "Guarantees" in the README.  A live peer must not be taken for a dead one, and must not get
/// repetitions while it is at work: for soft-RoCE on a host without a free CPU, a timeout of 0.07 s
/// was too short.
struct PathDefaults {
  std::uint8_t timeout = 17;
  std::uint8_t timeout_of_virtual_devices = 22;  // 17 s, see timeout_on()
  std::uint8_t retries = 7;
  std::uint8_t receiver_not_ready_retries = 7;  // without end: receives are pre-posted by count
  std::uint8_t receiver_not_ready_timer = 12;   // 0.64 ms
  std::uint8_t hop_limit = 64;
  std::uint8_t traffic_class = 0;
  std::uint8_t service_level = 0;
};

/// The timeout of a queue pair on that port.  rxe, the kernel's virtual device (seen in Linux 6.1),
/// leaves its timer running when everything has been acknowledged.  When the timer runs out,
/// messages under way are sent again although nothing was lost, and now and then such a repetition
/// is answered with an error that ends the connection.  A longer timeout makes that rarer.
std::uint8_t timeout_on(const PortDescription& port, const PathDefaults& path) noexcept;

/// How many sends, and how many receives, a queue pair of that port can have.
inline std::uint32_t requests_max_of(const Port& port) noexcept {
  return static_cast<std::uint32_t>(port.limits.max_qp_wr);
}

class QueuePair {
 public:
  /// Creates the pair and moves it to INIT, so that receives may be posted.  Throws Error.
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

  /// Moves the pair to ready-to-receive and ready-to-send.  The ports of both ends must be of one
  /// kind (port_card.hpp).  Throws Error with both ends, `peer_name` and the refused attributes.
  void connect(const Endpoint& remote, const std::string& peer_name, const PathDefaults& path = {});

  /// Fills in what a connection manager knows about the state `attributes->qp_state`.  Returns 0,
  /// or -1 with errno.
  using AttributeSource = std::function<int(ibv_qp_attr* attributes, int* mask)>;

  /// Connects along a path that a connection manager knows: it supplies address, keys and packet
  /// sequences; access, MTU and times are those of connect().
  void connect_by(const AttributeSource& source, const Endpoint& remote,
                  const std::string& peer_name, const PathDefaults& path = {});

  /// Moves the pair to the error state: queued requests are flushed, the other end is refused.
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

ibv_gid gid_of(const Endpoint& endpoint) noexcept;
std::string text_of(const Endpoint& endpoint);

}  // namespace tutti::verbs
