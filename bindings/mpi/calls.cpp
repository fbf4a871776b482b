#include "calls.hpp"

#include "admission.hpp"
#include "block_calls.hpp"
#include "framed_blocks.hpp"
#include "handles.hpp"
#include "interposer.hpp"
#include "loaded_mpi.hpp"
#include "report.hpp"
#include "requests.hpp"
#include "running.hpp"
#include "signature.hpp"
#include "verification.hpp"

namespace tutti::interposer {
namespace {

void count_taken(const FastWay& way) noexcept {
  ++way.counts->taken;
  way.counts->bytes_taken += way.bytes;
}

Buffers buffers_of_run(Collective collective, bool is_root, const void* source,
                       void* target) noexcept {
  if (collective == Collective::broadcast) return {target, target};
  return buffers_of(collective, is_root, source, target);
}

void run_call(const FastWay& way, Collective collective, const void* source,
              void* target) noexcept {
  count_taken(way);
  if (way.is_staged) {
    const Buffers buffers = buffers_of(collective, way.is_root, source, target);
    run_staged(*way.shape, way.bytes, buffers.source, buffers.target, way.communicator);
    return;
  }
  const Buffers buffers = buffers_of_run(collective, way.is_root, source, target);
  run(*way.shape, buffers.source, buffers.target, way.communicator);
}

/// Counts while the messages are on their way, so that it costs no time.
void run_again(const FastWay& way, Collective collective, const void* source,
               void* target) noexcept {
  Shape& shape = *way.shape;
  if (way.is_staged) {
    shape.count_call();
    run_call(way, collective, source, target);
    return;
  }
  const Buffers buffers = buffers_of_run(collective, way.is_root, source, target);
  const Status begun = begin(shape, buffers.source, buffers.target);
  shape.count_call();
  count_taken(way);
  end(shape, way.communicator, begun);
}

/// Takes a call on a communicator of which calls are taken, or leaves it.
[[gnu::noinline]] bool take_on(ProgramCommunicator& communicator, const Call& call, FastWay& last) {
  const Signature signature = signature_of(call);
  if (signature.is_left) return leave(call, signature.reason);
  const Found found = find_operation(communicator, signature.key,
                                     call.source == MPI_IN_PLACE || call.source == call.target);
  if (found.shape == nullptr) return leave(call, found.why_left, found.reported_as);

  Shape& shape = *found.shape;
  CallCounts& counts = interposer().counts(call.collective);
  const bool is_root = (has_root(call.collective) || call.collective == Collective::exscan) &&
                       communicator.rank() == call.root;
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
  const bool verifies = interposer().settings().mode == Mode::verify;
  const Call own = verifies ? verified(call, communicator) : call;
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

/// Takes a call of which nothing is remembered, or leaves it.
bool take(const Call& call, FastWay& last) {
  const Admission admission = admit(call.collective, call.communicator, call.root);
  if (admission.communicator == nullptr) return leave(call, admission.why_left);
  return take_on(*admission.communicator, call, last);
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
  if (last_calls.scan.matches(count, type, op, 0, communicator)) [[likely]] {
    run_again(last_calls.scan, Collective::scan, source, target);
    return true;
  }
  return take({.collective = Collective::scan,
               .source = source,
               .target = target,
               .count = count,
               .type = type,
               .op = op,
               .communicator = communicator},
              last_calls.scan);
}

bool take_exscan(const void* source, void* target, std::int64_t count, MPI_Datatype type, MPI_Op op,
                 MPI_Comm communicator) noexcept {
  if (last_calls.exscan.matches(count, type, op, 0, communicator)) [[likely]] {
    run_again(last_calls.exscan, Collective::exscan, source, target);
    return true;
  }
  return take({.collective = Collective::exscan,
               .source = source,
               .target = target,
               .count = count,
               .type = type,
               .op = op,
               .communicator = communicator},
              last_calls.exscan);
}

void forget_fast_ways() noexcept {
  forget_fast_ways_of_blocks();
  forget_fast_ways_of_frames();
  forget_fast_ways_of_requests();
  last_calls = {};
}

}  // namespace tutti::interposer
