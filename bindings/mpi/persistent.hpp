// Persistent collectives that tutti does.  The program gets one of MPI's persistent receive
// requests, so that all of MPI's functions of requests work on it.  The receive is for an empty
// message from this rank to itself, on a private communicator.  Starting the request starts the
// receive and tutti's operation; when the operation is done, this rank sends the message, which
// completes the request.
//
// Since an ..._init is collective, may wait, and is followed by many starts, it makes the
// operation.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>

#include "requests.hpp"
#include "shape.hpp"

namespace tutti::interposer {

/// Each takes a call or leaves it, as the functions of calls.hpp do.
bool take_barrier_init(MPI_Comm communicator, MPI_Info info, MPI_Request* request) noexcept;
bool take_allreduce_init(const void* source, void* target, std::int64_t count, MPI_Datatype type,
                         MPI_Op op, MPI_Comm communicator, MPI_Info info,
                         MPI_Request* request) noexcept;
bool take_broadcast_init(void* buffer, std::int64_t count, MPI_Datatype type, int root,
                         MPI_Comm communicator, MPI_Info info, MPI_Request* request) noexcept;
bool take_reduce_init(const void* source, void* target, std::int64_t count, MPI_Datatype type,
                      MPI_Op op, int root, MPI_Comm communicator, MPI_Info info,
                      MPI_Request* request) noexcept;

/// Counts an ..._init of which tutti has no persistent operation.
bool leave_persistent(Collective collective) noexcept;
template <Collective collective>
struct LeavePersistent {
  template <class... Arguments>
  bool operator()(Arguments...) const noexcept {
    return leave_persistent(collective);
  }
};

/// Persistent requests that tutti does; with none of them, starts are MPI's alone.
extern constinit std::size_t persistent_requests;

/// Whether tutti is still busy with one of these requests, so that starting it again is wrong.
bool is_one_started(int count, const MPI_Request* requests) noexcept;
/// MPI has started the requests: tutti starts its own among them.  With TUTTI_MPI=verify MPI may
/// refuse what it has to do besides: such a request is complete, and the error is returned.
int start_persistent(int count, const MPI_Request* requests) noexcept;
bool is_persistent_request(MPI_Request request) noexcept;
/// MPI has freed the request that had this handle.
void forget_persistent(MPI_Request request) noexcept;

/// Tutti's operation for a request is done: the request is complete.
void finish_persistent(Persistent& persistent) noexcept;

/// MPI is about to be finalised: frees the requests that the program has left.
void end_persistent() noexcept;

}  // namespace tutti::interposer
