// Communicator::shrink(): a communicator is made of the ranks that are still there (fail-stop
// recovery; as MPI_Comm_shrink of user-level failure mitigation, with the agreement that it needs).
//
//   meet       the ranks that are still there (bootstrap/reunion.hpp); the others are gone for good
//   introduce  the ranks to each other, as in every communicator
//   let go     of connections, at both ends
//   again      if one has died since they met
#pragma once

#include <memory>
#include <tutti/communicator.hpp>
#include <tutti/timeout.hpp>

#include "runtime/set_up_call.hpp"

namespace tutti::runtime {

/// Collective among the ranks of `made`, as a step of `call`: gives up connections, so that the
/// next set-up makes others, because messages of failed operations that are still on their way
/// could break the old ones.  Both ends keep a connection, or neither does.
///   rank 0  [ to 1: keep, to 2: keep ]     A rank would keep a connection that has not failed, if
///   rank 1  [ to 0: keep, to 2: keep ]     another communicator of its context contains the peer,
///   rank 2  [ to 0: let go           ]     has not failed, and lacks no rank.
/// Here ranks 0 and 1 keep theirs.  That of ranks 0 and 2 is given up, because rank 2 knows of a
/// failure of which rank 0 does not, and that of ranks 1 and 2, because rank 2 closed its end
/// earlier.  A connection to a rank of `whole` that is gone is given up unless this rank would keep
/// it.
void agree_on_connections(Communicator::Implementation& whole, Communicator::Implementation& made,
                          SetUpCall& call);

/// Communicator::shrink().
std::unique_ptr<Communicator::Implementation> shrink(Communicator::Implementation& whole,
                                                     Timeout timeout);

}  // namespace tutti::runtime
