// The exchange of ranks that an MPI launcher has started, over a duplicate of their communicator.
// MPI only carries set-up; no operation of tutti goes through it.
#pragma once

#include <mpi.h>

#include <memory>

#include "tutti/exchange.hpp"
#include "tutti/export.hpp"

namespace tutti {

/// Collective over `communicator`, which is duplicated and stays the caller's.  Must hold: MPI is
/// initialised, and the exchange is destroyed before MPI_Finalize; its destruction is collective
/// too where MPI_Comm_free is.  If other threads call MPI, it needs MPI_THREAD_MULTIPLE.
///
/// A timeout cannot name the ranks that MPI knows to be late, for MPI does not say; it names those
/// whose process has ended.  Side channel: a rank of the same host and PID namespace whose process
/// has ended counts as having left.  There are never incidents: whether an end was a death is the
/// launcher's decision, and it ends the whole job.  announce() reaches nobody.
/// Throws Error{invalid_argument, system}.
TUTTI_EXPORT std::unique_ptr<Exchange> mpi_exchange(MPI_Comm communicator);

}  // namespace tutti
