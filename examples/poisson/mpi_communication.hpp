// Communication by MPI, for comparison.
#pragma once

#include <mpi.h>

#include <memory>

#include "communication.hpp"

namespace poisson {

/// The communicator is borrowed.  What is made from it must be destroyed before MPI_Finalize.
/// Errors of MPI end the job, as they do by default.
std::unique_ptr<Communication> mpi_communication(MPI_Comm communicator);

}  // namespace poisson
