// Communication by MPI, for comparison; and by the same calls of MPI where libtutti-mpi, which is
// preloaded, does them by tutti.
#pragma once

#include <mpi.h>

#include <memory>

#include "communication.hpp"

namespace poisson {

/// The communicator is borrowed.  What is made from it must be destroyed before MPI_Finalize.
/// Errors of MPI end the job, as they do by default.
std::unique_ptr<Communication> mpi_communication(MPI_Comm communicator);

/// Likewise.  Throws UsageError where libtutti-mpi is not loaded.
std::unique_ptr<Communication> preloaded_communication(MPI_Comm communicator);

/// How many calls of a function libtutti-mpi has taken and passed (bindings/mpi/counters.h);
/// nullptr where it is not loaded.
using InterposerCalls = int (*)(const char* function, unsigned long long* taken,
                                unsigned long long* passed);
InterposerCalls interposer_calls();

}  // namespace poisson
