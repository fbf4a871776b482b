#include "calls.hpp"

#include "block_calls.hpp"
#include "handles.hpp"
#include "interposer.hpp"
#include "loaded_mpi.hpp"
#include "report.hpp"
#include "running.hpp"
#include "signature.hpp"
#include "verification.hpp"

namespace tutti::interposer {
namespace {

constinit FastWay last_scan, last_exscan;

void run_call(const FastWay& way, Collective collective, const void* source,
              void* target) noexcept {
  Shape& shape = *way.shape;
  ++way.counts->taken;
  way.counts->bytes_taken += way.bytes;
  const Buffers buffers = buffers_of(collective, way.is_root, source, target);
  if (way.is_staged)
    run_staged(shape, way.bytes, buffers.source, buffers.target, way.communicator);
  else if (collective == Collective::broadcast)
    run(shape, target, target, way.communicator);
  else
    run(shape, buffers.source, buffers.target, way.communicator);
}

void run_again(const FastWay& way, Collective collective, const void* source,
               void* target) noexcept {
  way.shape->count_call();
  run_call(way, collective, source, target);
}

/// Without gaps; 0 where the arguments are wrong.
std::uint64_t payload_of(const Call& call) {
  if (call.collective == Collective::barrier || call.count <= 0 || call.type == handles().no_type ||
      call.type == MPI_Datatype{})
    return 0;
  int bytes = 0;
  own_mpi().Type_size(call.type, &bytes);
  return static_cast<std::uint64_t>(call.count) * static_cast<std::uint64_t>(bytes);
}

/// Takes a call of which nothing is remembered, or leaves it.
bool take(const Call& call, FastWay& last) {
  Interposer& interposed = interposer();
  CallCounts& counts = interposed.counts(call.collective);
  const auto leave = [&](Reason reason) {
    counts.pass(reason);
    if (interposed.reports()) {
      counts.bytes_passed += payload_of(call);
      report().watch(call.collective);
    }
    return false;
  };
  if (!interposed.takes_calls() && !interposed.reports()) return leave(interposed.why_not());
  if (call.communicator == handles().no_comm) return leave(Reason::undefined);
  ProgramCommunicator* const known = interposed.communicator(call.communicator);
  if (known == nullptr) return leave(Reason::undefined);
  ProgramCommunicator& communicator = *known;
  if (communicator.passing() != Passing::no) return leave(reason_of(communicator.passing()));
  if (communicator.wants_operations()) interposed.make_wanted_operations(communicator);
  if (communicator.passing() != Passing::no) return leave(reason_of(communicator.passing()));
  const bool verifies = interposed.settings().mode == Mode::verify;
  if (verifies && !is_verified(call.collective)) return leave(Reason::not_compared);
  Signature signature = signature_of(call);
  if (signature.is_left) return leave(signature.reason);
  signature.key.collective = call.collective;
  if (is_rooted(call.collective)) {
    if (call.root < 0 || static_cast<std::uint32_t>(call.root) >= communicator.rank_count())
      return leave(Reason::undefined);
    signature.key.root = call.root;
  }

  const bool is_root = (is_rooted(call.collective) || call.collective == Collective::exscan) &&
                       communicator.rank() == call.root;
  Shape& shape = communicator.count_call(signature.key);
  if (interposed.reports()) {
    if (shape.calls <= interposed.settings().after) return leave(Reason::first_calls);
    leave(Reason::reported);
    report().watch(communicator, signature.key);
    return false;
  }
  if (!shape.operation) {
    if (shape.is_refused) return leave(Reason::refused);
    if (!communicator.is_due(shape, interposed.settings().after)) return leave(Reason::first_calls);
    interposed.make_operation(communicator, shape,
                              call.source == MPI_IN_PLACE || call.source == call.target);
    if (!shape.operation) {
      if (shape.is_refused) return leave(Reason::refused);
      return leave(communicator.passing() == Passing::no ? Reason::first_calls
                                                         : reason_of(communicator.passing()));
    }
  }
  shape.type_of_call = call.type;
  shape.op_of_call = call.op;
  const FastWay way{.communicator = call.communicator,
                    .type = call.type,
                    .op = call.op,
                    .count = call.count,
                    .root = call.root,
                    .shape = &shape,
                    .counts = &counts,
                    .bytes = signature.bytes,
                    .is_staged = shape.key.bytes() != signature.bytes,
                    .is_root = is_root};
  const Call own = verifies ? verification().begin(call, communicator) : call;
  if (signature.is_laid_out) {
    ++counts.taken;
    counts.bytes_taken += signature.bytes;
    const Buffers buffers = buffers_of(call.collective, is_root, own.source, own.target);
    run_laid_out(shape, own, buffers.source, buffers.target);
    return !verifies;
  }
  run_call(way, call.collective, own.source, own.target);
  if (verifies) return false;
  if (signature.is_predefined) last = way;
  return true;
}

}  // namespace

Buffers buffers_of(Collective collective, bool is_root, const void* source, void* target) noexcept {
  if (source == MPI_IN_PLACE) source = target;
  if (collective == Collective::broadcast)
    return is_root ? Buffers{target, no_buffer} : Buffers{no_buffer, target};
  if (collective == Collective::reduce && !is_root) target = no_buffer;
  if (collective == Collective::exscan && is_root) target = no_buffer;
  return {source, target};
}

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

constinit FastWays last_calls;

void run_last_barrier() noexcept {
  run_again(last_calls.barrier, Collective::barrier, nullptr, nullptr);
}
void run_last_allreduce(const void* source, void* target) noexcept {
  run_again(last_calls.allreduce, Collective::allreduce, source, target);
}
void run_last_broadcast(void* buffer) noexcept {
  run_again(last_calls.broadcast, Collective::broadcast, buffer, buffer);
}
void run_last_reduce(const void* source, void* target) noexcept {
  run_again(last_calls.reduce, Collective::reduce, source, target);
}

bool take_barrier(MPI_Comm communicator) noexcept {
  return take({.collective = Collective::barrier, .communicator = communicator},
              last_calls.barrier);
}

bool take_allreduce(const void* source, void* target, std::int64_t count, MPI_Datatype type,
                    MPI_Op op, MPI_Comm communicator) noexcept {
  return take({.collective = Collective::allreduce,
               .source = source,
               .target = target,
               .count = count,
               .type = type,
               .op = op,
               .communicator = communicator},
              last_calls.allreduce);
}

bool take_broadcast(void* buffer, std::int64_t count, MPI_Datatype type, int root,
                    MPI_Comm communicator) noexcept {
  return take({.collective = Collective::broadcast,
               .source = buffer,
               .target = buffer,
               .count = count,
               .type = type,
               .root = root,
               .communicator = communicator},
              last_calls.broadcast);
}

bool take_reduce(const void* source, void* target, std::int64_t count, MPI_Datatype type, MPI_Op op,
                 int root, MPI_Comm communicator) noexcept {
  return take({.collective = Collective::reduce,
               .source = source,
               .target = target,
               .count = count,
               .type = type,
               .op = op,
               .root = root,
               .communicator = communicator},
              last_calls.reduce);
}

bool take_scan(const void* source, void* target, std::int64_t count, MPI_Datatype type, MPI_Op op,
               MPI_Comm communicator) noexcept {
  if (last_scan.matches(count, type, op, 0, communicator)) [[likely]] {
    run_again(last_scan, Collective::scan, source, target);
    return true;
  }
  return take({.collective = Collective::scan,
               .source = source,
               .target = target,
               .count = count,
               .type = type,
               .op = op,
               .communicator = communicator},
              last_scan);
}

bool take_exscan(const void* source, void* target, std::int64_t count, MPI_Datatype type, MPI_Op op,
                 MPI_Comm communicator) noexcept {
  if (last_exscan.matches(count, type, op, 0, communicator)) [[likely]] {
    run_again(last_exscan, Collective::exscan, source, target);
    return true;
  }
  return take({.collective = Collective::exscan,
               .source = source,
               .target = target,
               .count = count,
               .type = type,
               .op = op,
               .communicator = communicator},
              last_exscan);
}

void forget_fast_ways() noexcept {
  forget_fast_ways_of_blocks();
  last_scan = last_exscan = {};
  last_calls = {};
}

}  // namespace tutti::interposer
