// Ready-made exchanges: TCP with an environment rendezvous, and ranks of one machine.
// The MPI one is in tutti/mpi_exchange.hpp, so that the library itself needs no MPI.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tutti/exchange.hpp"
#include "tutti/export.hpp"
#include "tutti/timeout.hpp"
#include "tutti/types.hpp"

namespace tutti {

struct TcpOptions {
  Rank rank{0};
  std::uint32_t rank_count = 1;
  std::string rendezvous;  // host:port on which rank 0 listens; [address]:port for IPv6
  std::string secret;      // shared by the ranks of one job, 1 .. 256 bytes
  Timeout timeout = std::chrono::seconds(30);  // of meeting, and of rank 0's destruction

  /// Reads TUTTI_RANK, TUTTI_SIZE, TUTTI_RENDEZVOUS, TUTTI_BOOTSTRAP_TIMEOUT (seconds), and
  /// TUTTI_SECRET or what TUTTI_SECRET_FILE or TUTTI_SECRET_FD name.  Throws
  /// Error{invalid_argument} naming the variable, its value and what it takes.
  TUTTI_EXPORT static TcpOptions from_environment();
};

/// Meets the other ranks over TCP.  Collective.  Rank 0 listens, the others connect, and a
/// connection with another secret is refused; both sides prove that they know it, and it is not
/// sent.  Throws Error{timed_out} naming the ranks that did
/// not come.  The connections stay open as the side channel; a thread of rank 0 relays, asleep
/// until there is something to relay.
///
/// On rank 0 the destructor blocks until every other rank has left or died, or all have been told
/// of an incident, at most for `timeout`; ranks that are still there then are told that rank 0 has
/// aborted.  Several exchanges of the same processes are therefore destroyed in the same order
/// everywhere.
///
/// A forked child may only destroy its parent's exchange, of whichever kind: exchanging throws
/// Error{invalid_argument} there.
TUTTI_EXPORT std::unique_ptr<Exchange> tcp_exchange(const TcpOptions& options);

/// How one rank of run_local() ended.
struct LocalResult {
  int exit_status = 0;  // what the body returned, or 1 if it threw (the text is on stderr)
  int signal = 0;       // the signal that killed it, 0 if none did
};

struct LocalOptions {
  std::uint32_t rank_count = 1;
  /// Called in the parent once all ranks are running, with their process ids in rank order
  /// (threads: an empty list); the ids stay valid until it returns.  An exception from it ends all
  /// ranks.
  std::function<void(const std::vector<pid_t>&)> on_started = {};
};

/// Forks `rank_count` ranks of this machine, runs `body` in each, and waits for all of them.
/// No object of the library may exist in the parent yet.  A rank that dies without having left its
/// exchange, or whose body throws, has died for the others.  Children die with the calling thread.
/// Throws Error{system}; also if SIGCHLD is ignored.
TUTTI_EXPORT std::vector<LocalResult> run_local(const LocalOptions& options,
                                                const std::function<int(Exchange&)>& body);

/// Runs the ranks in threads of this process instead of processes of their own, for sanitizers.  An
/// exception in a body is an incident for the others, and becomes exit_status 1.
TUTTI_EXPORT std::vector<LocalResult> run_local_threads(const LocalOptions& options,
                                                        const std::function<int(Exchange&)>& body);

}  // namespace tutti
