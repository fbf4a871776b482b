#include "shape.hpp"

#include <bit>

#include "loaded_mpi.hpp"

namespace tutti::interposer {
namespace {

void combine_by_mpi(const void* incoming, void* partial, std::size_t element_count,
                    void* context) noexcept {
  const Shape& shape = *static_cast<const Shape*>(context);
  own_mpi().Reduce_local(incoming, partial, static_cast<int>(element_count), shape.type_of_call,
                         shape.op_of_call);
}

}  // namespace

const char* name_of(Collective collective) {
  switch (collective) {
    case Collective::barrier:
      return "MPI_Barrier";
    case Collective::allreduce:
      return "MPI_Allreduce";
    case Collective::broadcast:
      return "MPI_Bcast";
    case Collective::reduce:
      return "MPI_Reduce";
    case Collective::allgather:
      return "MPI_Allgather";
    case Collective::allgatherv:
      return "MPI_Allgatherv";
    case Collective::alltoall:
      return "MPI_Alltoall";
    case Collective::alltoallv:
      return "MPI_Alltoallv";
    case Collective::gather:
      return "MPI_Gather";
    case Collective::gatherv:
      return "MPI_Gatherv";
    case Collective::scatter:
      return "MPI_Scatter";
    case Collective::scatterv:
      return "MPI_Scatterv";
    case Collective::reduce_scatter:
      return "MPI_Reduce_scatter";
    case Collective::reduce_scatter_block:
      return "MPI_Reduce_scatter_block";
    case Collective::scan:
      return "MPI_Scan";
    case Collective::exscan:
      return "MPI_Exscan";
    case Collective::ibarrier:
      return "MPI_Ibarrier";
    case Collective::iallreduce:
      return "MPI_Iallreduce";
    case Collective::ibroadcast:
      return "MPI_Ibcast";
    case Collective::ireduce:
      return "MPI_Ireduce";
    case Collective::barrier_init:
      return "MPI_Barrier_init";
    case Collective::allreduce_init:
      return "MPI_Allreduce_init";
    case Collective::broadcast_init:
      return "MPI_Bcast_init";
    case Collective::reduce_init:
      return "MPI_Reduce_init";
    case Collective::allgather_init:
      return "MPI_Allgather_init";
    case Collective::allgatherv_init:
      return "MPI_Allgatherv_init";
    case Collective::alltoall_init:
      return "MPI_Alltoall_init";
    case Collective::alltoallv_init:
      return "MPI_Alltoallv_init";
    case Collective::alltoallw_init:
      return "MPI_Alltoallw_init";
    case Collective::gather_init:
      return "MPI_Gather_init";
    case Collective::gatherv_init:
      return "MPI_Gatherv_init";
    case Collective::scatter_init:
      return "MPI_Scatter_init";
    case Collective::scatterv_init:
      return "MPI_Scatterv_init";
    case Collective::reduce_scatter_init:
      return "MPI_Reduce_scatter_init";
    case Collective::reduce_scatter_block_init:
      return "MPI_Reduce_scatter_block_init";
    case Collective::scan_init:
      return "MPI_Scan_init";
    case Collective::exscan_init:
      return "MPI_Exscan_init";
  }
  return "";
}

std::size_t HashOfShape::operator()(const ShapeKey& key) const noexcept {
  std::uint64_t hash = key.element_count;
  const auto mix = [&](std::uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 32;
  };
  mix(std::uint64_t{key.element_bytes} << 32 | static_cast<std::uint32_t>(key.root));
  mix(key.blocks_digest);
  mix(static_cast<std::uint64_t>(key.collective) << 24 |
      static_cast<std::uint64_t>(key.combining) << 16 | std::uint64_t{key.op} << 8 | key.type);
  return hash;
}

std::uint64_t rounded_count(std::uint64_t count, std::size_t element_bytes) noexcept {
  const std::uint64_t rounded = std::bit_ceil(count);
  return rounded * element_bytes <= rounded_bytes_max ? rounded : count;
}

Reduction Shape::reduction() noexcept {
  if (key.combining == Combining::own)
    return built_in_reduction(static_cast<BuiltIn>(key.op), static_cast<ElementType>(key.type));
  Reduction reduction;
  reduction.combine = combine_by_mpi;
  reduction.context = this;
  reduction.element_bytes = key.element_bytes;
  reduction.properties.commutative = key.combining != Combining::users;
  return reduction;
}

}  // namespace tutti::interposer
