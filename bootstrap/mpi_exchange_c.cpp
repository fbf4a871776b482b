#include <tutti/detail/c_boundary.hpp>

#include "bootstrap/mpi_exchange.h"
#include "bootstrap/mpi_exchange.hpp"

tutti_status tutti_mpi_exchange(MPI_Comm communicator, int64_t timeout_ns,
                                tutti_exchange** exchange, tutti_failure* failure) {
  return tutti::detail::make_exchange(timeout_ns, exchange, failure, [&](tutti::Timeout timeout) {
    return tutti::mpi_exchange(communicator, timeout);
  });
}

tutti_status tutti_mpi_exchange_fortran(MPI_Fint communicator, int64_t timeout_ns,
                                        tutti_exchange** exchange, tutti_failure* failure) {
  return tutti_mpi_exchange(MPI_Comm_f2c(communicator), timeout_ns, exchange, failure);
}
