// Communicator::shrink(): a communicator is made of the ranks that are still there (fail-stop
// recovery; as MPI_Comm_shrink of user-level failure mitigation, with the agreement that it needs).
//
//   meet       the ranks that are still there (bootstrap/reunion.hpp); the others are gone for good
//   forget     connections to those that are gone, and those that have failed
//   introduce  the ranks to each other, as in every communicator
//   again      if one has died since they met
#pragma once

#include <memory>
#include <tutti/communicator.hpp>
#include <tutti/timeout.hpp>

namespace tutti::runtime {

/// Communicator::shrink().
std::unique_ptr<Communicator::Implementation> shrink(Communicator::Implementation& whole,
                                                     Timeout timeout);

}  // namespace tutti::runtime
