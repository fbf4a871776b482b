// The exchange of ranks that a launcher with a PMIx server has started: Open MPI's mpirun, prterun,
// Slurm's srun --mpi=pmix.  The program itself needs no MPI.
#pragma once

#include <chrono>
#include <memory>

#include "tutti/exchange.hpp"
#include "tutti/export.hpp"
#include "tutti/timeout.hpp"

namespace tutti {

/// Collective over all ranks of the job.  PMIx tells each rank its number and where rank 0 listens;
/// from then on they exchange over TCP as tcp_exchange() does, which has the side channel.  Rank 0
/// listens at TUTTI_RENDEZVOUS (host:port) if it has that; else at a free port of 127.0.0.1 if all
/// ranks are on its host, and of the address of its first interface that is up if they are not.
/// The secret of the connection is random, and crosses PMIx alone.
///
/// A rank that ends is heard of as with tcp_exchange(), and through PMIx if its host has vanished
/// and the launcher says so before TCP does; most launchers end the whole job then.
///
/// Must hold: if a process makes several, all ranks make them in the same order.  After one has
/// timed out, later ones of the process fail at once, as PMIx still awaits the earlier one.  The
/// destructor is that of tcp_exchange(), and ends PMIx unless somebody else in the process uses it.
/// Throws Error{invalid_argument} if no PMIx server has started this process, {timed_out,
/// peer_failed, system}.
TUTTI_EXPORT std::unique_ptr<Exchange> pmix_exchange(
    Timeout timeout = std::chrono::seconds(30));  // until all ranks have called it

}  // namespace tutti
