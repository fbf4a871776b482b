/* The exchange of ranks that an MPI launcher has started, for the C interface (tutti/tutti.h); see
 * bootstrap/mpi_exchange.hpp.  Library tutti_mpi. */
#ifndef TUTTI_MPI_EXCHANGE_H
#define TUTTI_MPI_EXCHANGE_H

#include <mpi.h>
#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Collective over `communicator`, which is duplicated and stays the caller's.  To be freed before
 * MPI_Finalize.  timeout_ns: until all ranks have called it; 0: 30 s. */
TUTTI_EXPORT tutti_status tutti_mpi_exchange(MPI_Comm communicator, int64_t timeout_ns,
                                             tutti_exchange** exchange, tutti_failure* failure);

/* Does the same for a communicator of Fortran; its module `tutti` calls this tutti_mpi_exchange. */
TUTTI_EXPORT tutti_status tutti_mpi_exchange_fortran(MPI_Fint communicator, int64_t timeout_ns,
                                                     tutti_exchange** exchange,
                                                     tutti_failure* failure);

#ifdef __cplusplus
}
#endif

#endif
