// Decides whether tutti takes a call, by the criteria that all kinds of calls share: settings,
// communicator, root, and whether an operation exists for it.
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
/// Checks settings, communicator and root.  If nonblocking calls have asked for operations on this
/// communicator, a blocking or persistent call makes them first, because making one may wait.
Admission admit(Collective collective, MPI_Comm handle, int root);

/// The shape of a call which has its operation, or nullptr and why the call is left.
struct Found {
  Shape* shape = nullptr;
  Reason why_left = Reason::undefined;
  Report::Kind* reported_as = nullptr;  // with Reason::reported
};
/// Counts the call.  If enough such calls have been counted, a blocking call makes the operation,
/// for calls in place if `is_in_place`; `blocks` is as in Shape; `after` are the calls that are
/// left.  A nonblocking call only asks for it, and the next blocking call makes it.
Found find_operation(ProgramCommunicator& communicator, const ShapeKey& key, bool is_in_place,
                     const std::vector<std::size_t>& blocks = {},
                     std::uint32_t after = interposer().settings().after);

/// Counts a call that is left to MPI, and starts timing it if reporting is on.  The payload is
/// `payload`, or is computed from the call where that is absent.  Returns false, because the call
/// is not taken.
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
