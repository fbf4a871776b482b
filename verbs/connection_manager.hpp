// Connects queue pairs by IP address, through the kernel's connection manager (rdma_cm).  The queue
// pairs are made here: librdmacm resolves addresses, carries the requests, and supplies the
// attributes with which a queue pair enters RTR and RTS.
//
//   the smaller key asks                            the other one accepts
//   resolve address, route
//   request (who, which queue pairs)   -------->    expected?  INIT, RTR, RTS
//   INIT, RTR, RTS                     <--------    accept
//   establish                          -------->    connected
//
// All partners advance in one loop with one deadline, so that ranks with their partners in
// different orders cannot wait for each other in a circle.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <tutti/detail/clock.hpp>
#include <tutti/timeout.hpp>

#include "verbs/cm_driver.hpp"
#include "verbs/connection_request.hpp"
#include "verbs/queue_pair.hpp"

namespace tutti::verbs {

/// A connection to be made.
struct CmPartner {
  ConnectionEnds ends;
  QueuePair* pair = nullptr;  // in INIT
  std::string name;           // in errors, e.g. "rank 3"
  IdHandle id = {};           // result; lives as long as the connection
};

/// How long connecting may take.
struct ConnectPatience {
  Timeout timeout = wait_forever;
  /// Called now and then: whether connecting has become pointless, for example because a rank has
  /// died.
  std::function<bool()> is_pointless = [] { return false; };
};

/// One thread at a time.
class ConnectionManager {
 public:
  /// Listens at the address of the port's GID.  `process` is this end's key.  Throws Error, which
  /// says what is missing.
  ConnectionManager(const Port& port, std::uint64_t process,
                    const CmDriver& driver = librdmacm_driver(), const PathDefaults& path = {});

  /// The port at which it listens, a part of every Endpoint of this process.
  std::uint16_t service_port() const noexcept { return service_port_; }

  /// Connects all partners, which do the same at about the same time.  Requests that belong to none
  /// of them are refused.  Throws Error, which names the partner, both addresses, the step and the
  /// cause; the queue pairs are of no use then.  A partner that has already sent its request is
  /// told that this end gave up; a partner that has not waits until its own patience ends.
  void connect(std::span<CmPartner> partners, detail::Clock& clock,
               const ConnectPatience& patience);

 private:
  class Negotiation;

  const Port& port_;
  std::uint64_t process_;
  const CmDriver& driver_;
  PathDefaults path_;
  EventChannelHandle events_;
  IdHandle listener_;
  std::uint16_t service_port_ = 0;
};

}  // namespace tutti::verbs
