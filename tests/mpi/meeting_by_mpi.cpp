#include <mpi.h>

#include "bootstrap/mpi_exchange.hpp"
#include "meeting.hpp"

namespace tutti::test {

void begin_meeting(int& argument_count, char**& arguments) {
  MPI_Init(&argument_count, &arguments);
}
std::unique_ptr<Exchange> meet() {
  return mpi_exchange(MPI_COMM_WORLD);
}
void end_meeting() {
  MPI_Finalize();
}

}  // namespace tutti::test
