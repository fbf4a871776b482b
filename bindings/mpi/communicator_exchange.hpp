// Set-up over a communicator of the program's, by its own collectives: no duplicate, because MPIs
// have few contexts, and no messages, which a receive from any source could take away.
#pragma once

#include <mpi.h>

#include <memory>

#include "tutti/exchange.hpp"

namespace tutti::interposer {

/// All of its calls happen inside blocking collectives of the program, in the same order on all
/// ranks.  Timeouts are not kept: it waits for as long as the program's own call would have.
std::unique_ptr<Exchange> communicator_exchange(MPI_Comm communicator);

}  // namespace tutti::interposer
