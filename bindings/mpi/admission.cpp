#include "admission.hpp"

#include "calls.hpp"
#include "handles.hpp"

namespace tutti::interposer {
namespace {

Reason reason_of(Passing passing) {
  switch (passing) {
    case Passing::intercommunicator:
      return Reason::intercommunicator;
    case Passing::alone:
      return Reason::alone;
    case Passing::other_job:
      return Reason::other_job;
    case Passing::switched_off:
      return Reason::switched_off;
    case Passing::too_many:
    case Passing::failed:
    case Passing::no:
      break;
  }
  return Reason::communicators;
}

}  // namespace

Admission admit(Collective collective, MPI_Comm handle, int root) {
  Interposer& interposed = interposer();
  if (!interposed.takes_calls() && !interposed.reports()) return {nullptr, interposed.why_not()};
  if ((is_nonblocking(collective) || is_persistent(collective)) && !interposed.has_progress())
    return {nullptr, Reason::no_progress};
  if (handle == handles().no_comm) return {};
  ProgramCommunicator* const communicator = interposed.communicator(handle);
  if (communicator == nullptr) return {};
  if (communicator->passing() == Passing::no && communicator->wants_operations() &&
      !is_nonblocking(collective))
    interposed.make_wanted_operations(*communicator);
  if (communicator->passing() != Passing::no) return {nullptr, reason_of(communicator->passing())};
  if (has_root(collective) &&
      (root < 0 || static_cast<std::uint32_t>(root) >= communicator->rank_count()))
    return {};
  return {communicator};
}

Found find_operation(ProgramCommunicator& communicator, const ShapeKey& key, bool is_in_place,
                     const std::vector<std::size_t>& blocks, std::uint32_t after) {
  Interposer& interposed = interposer();
  Shape& shape = communicator.count_call(key);
  if (interposed.reports()) {
    if (shape.calls <= after) return {nullptr, Reason::first_calls};
    return {nullptr, Reason::reported, &report().kind_of(communicator, key, blocks)};
  }
  if (!shape.has_operation() && !shape.is_refused && communicator.is_due(shape, after)) {
    if (is_nonblocking(key.collective)) {
      communicator.want_operations(shape);
      forget_fast_ways();  // the next blocking call has more to do
    } else {
      shape.blocks = blocks;
      interposed.make_operation(communicator, shape, is_in_place);
    }
  }
  if (shape.is_refused)
    return {nullptr, shape.long_score > 0 ? Reason::long_block : Reason::refused};
  if (shape.has_operation()) return {&shape};
  if (communicator.passing() != Passing::no) return {nullptr, reason_of(communicator.passing())};
  return {nullptr, Reason::first_calls};
}

}  // namespace tutti::interposer
