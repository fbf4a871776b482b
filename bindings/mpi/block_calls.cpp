#include "block_calls.hpp"

#include <array>
#include <vector>

#include "admission.hpp"
#include "block_running.hpp"
#include "block_signature.hpp"
#include "calls.hpp"
#include "handles.hpp"
#include "interposer.hpp"
#include "verification.hpp"

namespace tutti::interposer {
namespace {

/// The arguments of a call that was taken, but for its buffers, and how it runs.  A call with the
/// same ones is taken without looking anything up.
struct FastBlocks {
  BlockCall call = {.collective = Collective::barrier};  // its addresses say only whether in place
  std::vector<std::int64_t> counts = {}, displacements = {};
  BlockWay way = {};
};
std::array<FastBlocks, collective_count> last_ways;

FastBlocks& last_way(Collective collective) noexcept {
  return last_ways[static_cast<std::size_t>(collective)];
}

bool is_same(const BlockBuffer& one, const BlockBuffer& other) noexcept {
  return one.count == other.count && one.type == other.type &&
         (one.address == MPI_IN_PLACE) == (other.address == MPI_IN_PLACE);
}

bool matches(const FastBlocks& fast, const BlockCall& call) noexcept {
  const BlockCall& last = fast.call;
  return fast.way.shape != nullptr && last.communicator == call.communicator &&
         is_same(last.source, call.source) && is_same(last.target, call.target) &&
         last.op == call.op && last.root == call.root && call.counts.equals(fast.counts) &&
         call.displacements.equals(fast.displacements);
}

void remember(const BlockCall& call, const BlockWay& way) {
  FastBlocks& last = last_way(call.collective);
  last = {.call = call, .way = way};
  for (std::size_t rank = 0; rank < way.place.rank_count; ++rank) {
    if (call.counts.is_given()) last.counts.push_back(call.counts[rank]);
    if (call.displacements.is_given()) last.displacements.push_back(call.displacements[rank]);
  }
}

void run_call(const BlockCall& call, const BlockWay& way) {
  CallCounts& counts = interposer().counts(call.collective);
  ++counts.taken;
  counts.bytes_taken += way.bytes;
  run_blocks(way, call);
}

bool take_slow(const BlockCall& call) {
  const Admission admission = admit(call.collective, call.communicator, call.root);
  if (admission.communicator == nullptr) return leave(call, admission.why_left);
  ProgramCommunicator& communicator = *admission.communicator;
  const Place place{static_cast<std::size_t>(communicator.rank()), communicator.rank_count()};
  const BlockSignature signature = signature_of(call, place);
  if (signature.is_left) return leave(call, signature.reason);
  const Found found = find_operation(communicator, signature.key, true, signature.blocks);
  if (found.shape == nullptr)
    return leave(call, found.why_left, found.reported_as, signature.bytes);
  Shape& shape = *found.shape;
  // Other blocks may have the same digest.
  if (shape.blocks != signature.blocks) return leave(call, Reason::refused);
  shape.type_of_call = call.source.type;
  shape.op_of_call = call.op;
  const bool verifies = interposer().settings().mode == Mode::verify;
  const BlockCall own = verifies ? verified(call, signature, communicator) : call;
  const BlockWay way = way_of(own, signature, place, shape);
  run_call(own, way);
  if (verifies) return false;
  if (signature.is_predefined) remember(call, way);
  return true;
}

bool take_blocks(const BlockCall& call) noexcept {
  const FastBlocks& last = last_way(call.collective);
  if (matches(last, call)) [[likely]] {
    const BlockWay way = last.way;  // which may be forgotten while MPI goes on
    way.shape->count_call();
    run_call(call, way);
    return true;
  }
  return take_slow(call);
}

BlockCall reduce_scatter_call(const void* source, void* target, std::int64_t count,
                              MPI_Datatype type, MPI_Op op, MPI_Comm communicator) {
  return {.collective = Collective::reduce_scatter_block,
          .source = {source, count, type},
          .target = {target, count, type},
          .op = op,
          .communicator = communicator};
}

}  // namespace

bool take_allgather(const void* source, std::int64_t source_count, MPI_Datatype source_type,
                    void* target, std::int64_t target_count, MPI_Datatype target_type,
                    MPI_Comm communicator) noexcept {
  return take_blocks({.collective = Collective::allgather,
                      .source = {source, source_count, source_type},
                      .target = {target, target_count, target_type},
                      .communicator = communicator});
}

bool take_alltoall(const void* source, std::int64_t source_count, MPI_Datatype source_type,
                   void* target, std::int64_t target_count, MPI_Datatype target_type,
                   MPI_Comm communicator) noexcept {
  return take_blocks({.collective = Collective::alltoall,
                      .source = {source, source_count, source_type},
                      .target = {target, target_count, target_type},
                      .communicator = communicator});
}

bool take_gather(const void* source, std::int64_t source_count, MPI_Datatype source_type,
                 void* target, std::int64_t target_count, MPI_Datatype target_type, int root,
                 MPI_Comm communicator) noexcept {
  return take_blocks({.collective = Collective::gather,
                      .source = {source, source_count, source_type},
                      .target = {target, target_count, target_type},
                      .root = root,
                      .communicator = communicator});
}

bool take_scatter(const void* source, std::int64_t source_count, MPI_Datatype source_type,
                  void* target, std::int64_t target_count, MPI_Datatype target_type, int root,
                  MPI_Comm communicator) noexcept {
  return take_blocks({.collective = Collective::scatter,
                      .source = {source, source_count, source_type},
                      .target = {target, target_count, target_type},
                      .root = root,
                      .communicator = communicator});
}

bool take_allgatherv(const void* source, std::int64_t source_count, MPI_Datatype source_type,
                     void* target, const int* counts, const int* displacements,
                     MPI_Datatype target_type, MPI_Comm communicator) noexcept {
  return take_blocks({.collective = Collective::allgatherv,
                      .source = {source, source_count, source_type},
                      .target = {target, 0, target_type},
                      .counts = Numbers(counts),
                      .displacements = Numbers(displacements),
                      .communicator = communicator});
}

bool take_allgatherv_c(const void* source, std::int64_t source_count, MPI_Datatype source_type,
                       void* target, const MPI_Count* counts, const MPI_Aint* displacements,
                       MPI_Datatype target_type, MPI_Comm communicator) noexcept {
  return take_blocks({.collective = Collective::allgatherv,
                      .source = {source, source_count, source_type},
                      .target = {target, 0, target_type},
                      .counts = Numbers::of_64_bits(counts),
                      .displacements = Numbers::of_64_bits(displacements),
                      .communicator = communicator});
}

bool take_reduce_scatter(const void* source, void* target, const int* counts, MPI_Datatype type,
                         MPI_Op op, MPI_Comm communicator) noexcept {
  BlockCall call = reduce_scatter_call(source, target, 0, type, op, communicator);
  call.collective = Collective::reduce_scatter;
  call.counts = Numbers(counts);
  return take_blocks(call);
}

bool take_reduce_scatter_c(const void* source, void* target, const MPI_Count* counts,
                           MPI_Datatype type, MPI_Op op, MPI_Comm communicator) noexcept {
  BlockCall call = reduce_scatter_call(source, target, 0, type, op, communicator);
  call.collective = Collective::reduce_scatter;
  call.counts = Numbers::of_64_bits(counts);
  return take_blocks(call);
}

bool take_reduce_scatter_block(const void* source, void* target, std::int64_t count,
                               MPI_Datatype type, MPI_Op op, MPI_Comm communicator) noexcept {
  return take_blocks(reduce_scatter_call(source, target, count, type, op, communicator));
}

void forget_fast_ways_of_blocks() noexcept {
  for (FastBlocks& last : last_ways) last.way = {};
}

}  // namespace tutti::interposer
