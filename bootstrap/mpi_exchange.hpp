// The exchange of ranks that an MPI launcher has started, over a duplicate of their communicator.
// MPI only carries set-up; no operation of tutti uses it.
#pragma once

#include <mpi.h>

#include <chrono>
#include <memory>

#include "tutti/exchange.hpp"
#include "tutti/export.hpp"
#include "tutti/timeout.hpp"

namespace tutti {

/// Collective over `communicator`, which is duplicated and stays the caller's.  Must hold: MPI is
/// initialised, and the exchange is destroyed before MPI_Finalize; its destruction is collective
/// too where MPI_Comm_free is, which in Open MPI and MPICH waits for nobody.  If other threads call
/// MPI, it needs MPI_THREAD_MULTIPLE.
///
/// A timeout cannot name the ranks that MPI knows to be late, for MPI does not say; it names those
/// whose process has ended.  After one, MPI keeps what it was lent: the duplicate is never freed.
///
/// When a rank dies, the launcher ends the whole job, unless it is told not to.  Between ranks of
/// several hosts there is a side channel over TCP.  A thread of rank 0 relays it, and listens at an
/// address of its own; it stays until all ranks have left, an incident has reached them, or the
/// process ends, also after rank 0 has left.  There is no side channel if any rank cannot connect
/// to rank 0 within 5 s.  There is none either if all ranks see each other's processes, because
/// then a communicator finds out about deaths without it (docs/guarantees.md).  Without a side
/// channel incident() is none, and announce() reaches nobody.  has_left() is also true of ranks of
/// the same host and PID namespace whose process has ended, however it did.  Throws
/// Error{invalid_argument, timed_out, peer_failed, system}.
TUTTI_EXPORT std::unique_ptr<Exchange> mpi_exchange(
    MPI_Comm communicator,
    Timeout timeout = std::chrono::seconds(30));  // until all ranks have called it

}  // namespace tutti
