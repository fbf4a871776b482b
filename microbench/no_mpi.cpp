#include <tutti/status.hpp>

#include "microbench/mpi_side.hpp"

namespace tutti::bench {

std::unique_ptr<MpiSide> start_mpi() {
  throw Error(ErrorCode::unsupported,
              "this build has no MPI to start from or to compare with: use --local N, or set "
              "TUTTI_RANK and the other variables of the tcp bootstrap, or configure with MPI");
}

}  // namespace tutti::bench
