#include "block_running.hpp"

#include <cstring>
#include <vector>

#include "elements.hpp"
#include "loaded_mpi.hpp"
#include "running.hpp"
#include "tutti/block_collectives.hpp"
#include "tutti/status.hpp"

namespace tutti::interposer {
namespace {

std::size_t size_of(MPI_Datatype type, std::size_t count) {
  int bytes = 0;
  own_mpi().Type_size(type, &bytes);
  return static_cast<std::size_t>(bytes) * count;
}

/// How many blocks of its source, and of its target, the operation of this rank has.
struct BlockNumbers {
  std::size_t read;
  std::size_t written;
};
BlockNumbers numbers_of(const BlockWay& way) {
  const std::size_t all = way.place.rank_count;
  const std::size_t of_root = way.is_root ? all : 0;
  const Collective collective = way.shape->key.collective;
  if (collective == Collective::allgather) return {1, all};
  if (collective == Collective::alltoall) return {all, all};
  return collective == Collective::gather ? BlockNumbers{1, of_root} : BlockNumbers{of_root, 1};
}

/// All blocks have one size.
void run_equal_blocks(const BlockWay& way, const BlockCall& call) {
  Shape& shape = *way.shape;
  const std::size_t block = shape.key.element_count;
  const BlockNumbers numbers = numbers_of(way);
  BlockBuffer source = call.source;
  // Where a call is in place, blocks are read where they are written, or the other way round.
  if (source.address == MPI_IN_PLACE) {
    source = call.target;
    if (numbers.read == 1)
      source.address = moved(source.address,
                             static_cast<std::int64_t>(way.place.rank) * source.count, source.type);
  }
  const void* in = source.address;
  if (!way.uses_source && numbers.read > 0) {
    const std::size_t bytes = numbers.read * block;
    std::byte* const staging = room(shape.source, bytes);
    Elements(source.address, numbers.read * static_cast<std::size_t>(source.count), source.type)
        .pack(staging, bytes, call.communicator);
    in = staging;
  }
  const bool keeps_own = call.target.address == MPI_IN_PLACE;  // the root of a scatter
  void* out = const_cast<void*>(call.target.address);
  if (keeps_own)
    out = static_cast<std::byte*>(const_cast<void*>(in)) + way.place.rank * block;
  else if (!way.uses_target && numbers.written > 0)
    out = room(shape.target, numbers.written * block);
  run(shape, numbers.read > 0 ? in : nullptr, numbers.written > 0 ? out : nullptr,
      call.communicator);
  if (!way.uses_target && !keeps_own && numbers.written > 0)
    Elements(call.target.address, numbers.written * static_cast<std::size_t>(call.target.count),
             call.target.type)
        .unpack(static_cast<std::byte*>(out), numbers.written * block, call.communicator);
}

/// The first block of an allgatherv that has any elements.  There is one.
std::size_t first_block(const BlockCall& call) {
  std::size_t rank = 0;
  while (call.counts[rank] == 0) ++rank;
  return rank;
}

/// Whether the blocks of an allgatherv lie in its target as those of the operation do.
bool lie_in_order(const BlockCall& call, std::size_t rank_count) {
  std::int64_t next = call.displacements[first_block(call)];
  for (std::size_t rank = 0; rank < rank_count; ++rank) {
    if (call.counts[rank] == 0) continue;
    if (call.displacements[rank] != next) return false;
    next += call.counts[rank];
  }
  return true;
}

/// The blocks of the operation lie one after the other.
void run_allgatherv(const BlockWay& way, const BlockCall& call) {
  Shape& shape = *way.shape;
  const std::size_t own = shape.blocks[way.place.rank];
  const auto block_of = [&](std::size_t rank) {
    return moved(call.target.address, call.displacements[rank], call.target.type);
  };
  const bool is_in_place = call.source.address == MPI_IN_PLACE;
  const void* in = is_in_place ? block_of(way.place.rank) : call.source.address;
  if (!way.uses_source) {
    std::byte* const staging = room(shape.source, own);
    Elements(
        in, static_cast<std::size_t>(is_in_place ? call.counts[way.place.rank] : call.source.count),
        is_in_place ? call.target.type : call.source.type)
        .pack(staging, own, call.communicator);
    in = staging;
  }
  void* const out = way.uses_target ? const_cast<void*>(block_of(first_block(call)))
                                    : room(shape.target, way.bytes);
  run(shape, in, out, call.communicator);
  if (way.uses_target) return;
  const auto* next = static_cast<const std::byte*>(out);
  for (std::size_t rank = 0; rank < way.place.rank_count; ++rank) {
    Elements(block_of(rank), static_cast<std::size_t>(call.counts[rank]), call.target.type)
        .unpack(next, shape.blocks[rank], call.communicator);
    next += shape.blocks[rank];
  }
}

/// Contributions of all ranks' blocks, and the combined one of this rank.
void run_reduce_scatter(const BlockWay& way, const BlockCall& call) {
  Shape& shape = *way.shape;
  const bool is_equal = shape.key.collective == Collective::reduce_scatter_block;
  const bool is_in_place = call.source.address == MPI_IN_PLACE;
  const MPI_Datatype type = call.source.type;
  std::size_t all_count = 0;
  for (std::size_t rank = 0; rank < way.place.rank_count; ++rank)
    all_count += static_cast<std::size_t>(is_equal ? call.source.count : call.counts[rank]);
  const auto own_count =
      static_cast<std::size_t>(is_equal ? call.source.count : call.counts[way.place.rank]);
  const std::size_t own_bytes =
      (is_equal ? shape.key.element_count : shape.blocks[way.place.rank]) * shape.key.element_bytes;
  const void* const source = is_in_place ? call.target.address : call.source.address;
  const void* in = source;
  std::vector<std::byte> packed;
  if (!way.uses_source) {  // elements keep their gaps, as MPI combines them
    const std::size_t bytes = size_of(type, all_count);
    std::byte* const staging = room(shape.source, way.bytes);
    Elements(source, all_count, type).pack(room(packed, bytes), bytes, call.communicator);
    Elements(staging, all_count, type).unpack(packed.data(), bytes, call.communicator);
    in = staging;
  }
  void* const target = const_cast<void*>(call.target.address);
  void* const out = way.uses_target ? target : room(shape.target, own_bytes);
  run(shape, in, out, call.communicator);
  if (way.uses_target) return;
  if (way.uses_source) {
    if (own_bytes > 0) std::memcpy(target, out, own_bytes);  // a rank without a block has none
    return;
  }
  const std::size_t bytes = size_of(type, own_count);
  Elements(out, own_count, type).pack(room(packed, bytes), bytes, call.communicator);
  Elements(target, own_count, type).unpack(packed.data(), bytes, call.communicator);
}

}  // namespace

Operation make_block_operation(Communicator& communicator, Shape& shape) {
  // Later calls bring other buffers.  Here they are only compared, and have to be apart.
  const void* const source = reinterpret_cast<const void*>(buffers_apart);
  void* const target = reinterpret_cast<void*>(2 * buffers_apart);
  const ShapeKey& key = shape.key;
  const Rank root{static_cast<std::uint32_t>(key.root)};
  const Collective collective = key.collective;
  if (collective == Collective::allgather)
    return allgather(communicator,
                     {.source = source, .target = target, .bytes = key.element_count});
  if (collective == Collective::allgatherv)
    return allgatherv(communicator,
                      {.source = source, .target = target, .blocks = {.bytes = shape.blocks}});
  if (collective == Collective::alltoall || collective == Collective::alltoallv)
    return alltoall(communicator, {.source = source, .target = target, .bytes = key.element_count});
  if (collective == Collective::gather || collective == Collective::gatherv)
    return gather(communicator,
                  {.source = source, .target = target, .bytes = key.element_count, .root = root});
  if (collective == Collective::scatter || collective == Collective::scatterv)
    return scatter(communicator,
                   {.source = source, .target = target, .bytes = key.element_count, .root = root});
  return reduce_scatter(communicator,
                        {.source = source,
                         .target = target,
                         .element_counts = collective == Collective::reduce_scatter
                                               ? shape.blocks
                                               : std::vector<std::size_t>(communicator.rank_count(),
                                                                          key.element_count),
                         .reduction = shape.reduction()});
}

BlockWay way_of(const BlockCall& call, const BlockSignature& signature, const Place& place,
                Shape& shape) {
  BlockWay way{
      .shape = &shape,
      .place = place,
      .bytes = signature.bytes,
      .is_root = has_root(call.collective) && static_cast<std::size_t>(call.root) == place.rank};
  const bool is_in_place = call.source.address == MPI_IN_PLACE;
  if (is_reduction(call.collective)) {
    way.uses_source = !signature.is_laid_out;
    // In place, the block of this rank replaces what may be the contribution of another block.
    way.uses_target = !signature.is_laid_out && !is_in_place;
    return way;
  }
  way.uses_source = is_dense(is_in_place ? call.target.type : call.source.type);
  way.uses_target = is_dense(call.target.type);
  // The blocks of an alltoall's operation are apart, on all ranks.
  if (call.collective == Collective::alltoall && is_in_place) way.uses_source = false;
  if (call.collective == Collective::allgatherv && !lie_in_order(call, place.rank_count))
    way.uses_target = false;
  return way;
}

void run_blocks(const BlockWay& way, const BlockCall& call) {
  if (call.collective == Collective::allgatherv)
    run_allgatherv(way, call);
  else if (is_reduction(call.collective))
    run_reduce_scatter(way, call);
  else
    run_equal_blocks(way, call);
}

}  // namespace tutti::interposer
