// Nonblocking collectives that tutti does.  A program gets a generalised request for each, so that
// all of MPI's functions of requests know it.  MPI calls progress_requests() whenever it waits
// (progress_hook): that starts, and completes, what can be.  Everything happens in the program's
// thread.
//
// A kind of calls has a few operations, which take turns by the number of the call; what is in
// flight differs from rank to rank, and decides nothing.  A call whose operation is still in flight
// is queued behind it.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "calls.hpp"
#include "program_communicator.hpp"
#include "signature.hpp"

namespace tutti::interposer {

struct Persistent;
class Verification;

/// A nonblocking call that tutti does, or a start of a persistent request.
struct Request {
  Call call;
  MPI_Datatype type;  // of the program's elements; the call that is verified may have another
  Buffers buffers;    // what this rank reads and writes of them
  std::size_t bytes;
  bool is_laid_out;
  bool is_staged;
  bool holds_type;
  bool holds_op;
  ProgramCommunicator* communicator;
  MPI_Request handle;
  Persistent* persistent;      // nullptr: of a nonblocking call
  Verification* verification;  // nullptr: MPI does not do it; else owned
};
Request request_of(const Call& call, const Signature& signature, const ShapeKey& key,
                   ProgramCommunicator& communicator);

/// MPI's handles that a request needs, if it needs any, outlive it.
void hold_handles(const Request& request);
void release_handles(Request& request);

/// With TUTTI_MPI=verify, before a request is started: MPI does the call on the program's buffers,
/// and the request does it on memory of a verification.  Returns what MPI says; where that is no
/// success, nothing is started.
int start_verification(const Call& call, Request& request);

/// Starts it, or queues it behind what is in flight.
void start_request(Shape& instance, Request& request) noexcept;

// As those of calls.hpp.  None of them waits.
bool take_ibarrier(MPI_Comm communicator, MPI_Request* request) noexcept;
bool take_iallreduce(const void* source, void* target, std::int64_t count, MPI_Datatype type,
                     MPI_Op op, MPI_Comm communicator, MPI_Request* request) noexcept;
bool take_ibroadcast(void* buffer, std::int64_t count, MPI_Datatype type, int root,
                     MPI_Comm communicator, MPI_Request* request) noexcept;
bool take_ireduce(const void* source, void* target, std::int64_t count, MPI_Datatype type,
                  MPI_Op op, int root, MPI_Comm communicator, MPI_Request* request) noexcept;

/// As forget_fast_ways(), which calls it.
void forget_fast_ways_of_requests() noexcept;

/// What calls in flight combine or copy with is freed when they are complete.
bool take_op_free(MPI_Op* op) noexcept;
bool take_type_free(MPI_Datatype* type) noexcept;

/// Makes one step of progress for all calls in flight.
void progress_requests() noexcept;

/// Whether any call is in flight.
bool has_requests() noexcept;
/// The program waits for all of these: waits for those that tutti does, and lets MPI go on.  MPI
/// would come to the same, but MPICH does not see in MPI_Waitall that a persistent request was
/// completed by a hook, and all are slower to see it.
void complete_requests(int count, const MPI_Request* requests) noexcept;

/// Waits until an instance of a nonblocking kind has nothing in flight; MPI goes on meanwhile.
void complete_requests(const Shape& instance) noexcept;

/// The program has freed the communicator; its calls in flight go on, and it goes after them.
void keep_while_in_flight(std::unique_ptr<ProgramCommunicator> communicator);
/// Returns the kept communicators whose calls are done, and keeps them no longer.
std::vector<std::unique_ptr<ProgramCommunicator>> kept_without_calls();

/// MPI is about to be finalised, and all ranks are here: completes what can be completed within a
/// second, and lets the communicators go that were kept.
void end_requests() noexcept;

/// While tutti sets something up with the ranks of a communicator, which are all here, MPI's
/// progress does not call tutti.
class RequestsAtRest {
 public:
  RequestsAtRest() noexcept;
  ~RequestsAtRest();
  RequestsAtRest(const RequestsAtRest&) = delete;
  RequestsAtRest& operator=(const RequestsAtRest&) = delete;

 private:
  bool was_at_rest_;
};

}  // namespace tutti::interposer
