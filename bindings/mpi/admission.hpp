// Whether a call is taken, as far as all kinds of calls have it in common: settings, communicator,
// root, and whether there is an operation for it.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "interposer.hpp"
#include "report.hpp"
#include "shape.hpp"

namespace tutti::interposer {

/// The communicator of a call that may be taken, or nullptr and why it is left.
struct Admission {
  ProgramCommunicator* communicator = nullptr;
  Reason why_left = Reason::undefined;
};
/// A blocking call makes the operations first that nonblocking ones on its communicator want.
Admission admit(Collective collective, MPI_Comm handle, int root);

/// The shape of a call which has its operation, or nullptr and why the call is left.
struct Found {
  Shape* shape = nullptr;
  Reason why_left = Reason::undefined;
  Report::Kind* reported_as = nullptr;  // with Reason::reported
};
/// Counts the call to its shape.  A blocking one makes the operation if it is due, for calls in
/// place or not, and with `blocks` as in Shape; a nonblocking one asks for it.
Found find_operation(ProgramCommunicator& communicator, const ShapeKey& key, bool is_in_place,
                     const std::vector<std::size_t>& blocks = {});

/// Counts a call that MPI does next; report watches it, with the payload that is given or what the
/// call says by itself.  Returns false: it is not taken.
template <class SomeCall>
bool leave(const SomeCall& call, Reason reason, Report::Kind* reported_as = nullptr,
           std::optional<std::uint64_t> payload = std::nullopt) {
  Interposer& interposed = interposer();
  interposed.counts(call.collective).pass(reason);
  if (interposed.reports()) {
    interposed.counts(call.collective).bytes_passed += payload ? *payload : payload_of(call);
    report().watch(call.collective, reported_as);
  }
  return false;
}

}  // namespace tutti::interposer
