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
    case Collective::ibarrier:
      return "MPI_Ibarrier";
    case Collective::iallreduce:
      return "MPI_Iallreduce";
    case Collective::ibroadcast:
      return "MPI_Ibcast";
    case Collective::ireduce:
      return "MPI_Ireduce";
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
