// What the calls of one kind have in common, and the operation that does them.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/operation.hpp"
#include "tutti/reduction.hpp"

namespace tutti::interposer {

enum class Collective : std::uint8_t {
  barrier,
  allreduce,
  broadcast,
  reduce,
  allgather,
  allgatherv,
  alltoall,
  alltoallv,
  gather,
  gatherv,
  scatter,
  scatterv,
  reduce_scatter,
  reduce_scatter_block,
  scan,
  exscan,
  ibarrier,  // nonblocking calls are kinds of their own
  iallreduce,
  ibroadcast,
  ireduce,
  barrier_init,  // persistent ones, of which the first four can be taken
  allreduce_init,
  broadcast_init,
  reduce_init,
  allgather_init,
  allgatherv_init,
  alltoall_init,
  alltoallv_init,
  alltoallw_init,
  gather_init,
  gatherv_init,
  scatter_init,
  scatterv_init,
  reduce_scatter_init,
  reduce_scatter_block_init,
  scan_init,
  exscan_init,
};
inline constexpr std::size_t collective_count =
    static_cast<std::size_t>(Collective::exscan_init) + 1;
const char* name_of(Collective collective);  // "MPI_Barrier"

constexpr bool is_nonblocking(Collective collective) noexcept {
  return collective >= Collective::ibarrier && collective <= Collective::ireduce;
}
constexpr bool is_persistent(Collective collective) noexcept {
  return collective >= Collective::barrier_init;
}
/// Returns the blocking form of a collective, for the kinds that can be taken.
constexpr Collective blocking(Collective collective) noexcept {
  using enum Collective;
  if (collective == ibarrier || collective == barrier_init) return barrier;
  if (collective == iallreduce || collective == allreduce_init) return allreduce;
  if (collective == ibroadcast || collective == broadcast_init) return broadcast;
  return collective == ireduce || collective == reduce_init ? reduce : collective;
}
constexpr bool has_root(Collective collective) noexcept {
  const Collective as = blocking(collective);
  return as == Collective::broadcast || as == Collective::reduce || as == Collective::gather ||
         as == Collective::gatherv || as == Collective::scatter || as == Collective::scatterv;
}
/// Whether only some ranks know how long blocks are (framed_blocks).
constexpr bool is_framed(Collective collective) noexcept {
  return collective == Collective::alltoallv || collective == Collective::gatherv ||
         collective == Collective::scatterv;
}
/// Whether elements are combined, and not only passed on.
constexpr bool combines(Collective collective) noexcept {
  const Collective as = blocking(collective);
  return as == Collective::allreduce || as == Collective::reduce || as == Collective::scan ||
         as == Collective::exscan || as == Collective::reduce_scatter ||
         as == Collective::reduce_scatter_block;
}

/// Who combines elements.
enum class Combining : std::uint8_t {
  none,        // nothing is combined
  own,         // tutti, by a built-in kernel
  predefined,  // MPI, by an operator of its own (PMPI_Reduce_local)
  users,       // MPI, by an operator of the program that does not commute
  users_any,   // likewise, by one that commutes
};

/// What decides whether a call is taken, and by which operation.  MPI makes all of it equal on all
/// ranks: kinds and sizes of types, never handles, layouts or addresses.
struct ShapeKey {
  Collective collective = Collective::barrier;
  Combining combining = Combining::none;
  std::uint8_t op = 0;    // BuiltIn, or PredefinedOperator::number
  std::uint8_t type = 0;  // ElementType, or PredefinedType::number
  std::int32_t root = 0;
  std::uint32_t element_bytes = 0;
  std::uint64_t element_count = 0;  // of the operation, which may have more than the call; of one
                                    // block, where all have one size
  std::uint64_t blocks_digest = 0;  // of Shape::blocks
  bool operator==(const ShapeKey&) const = default;

  std::uint64_t bytes() const noexcept { return element_count * element_bytes; }
};

struct HashOfShape {
  std::size_t operator()(const ShapeKey& key) const noexcept;
};

/// Payloads up to this size share operations: their number of elements is rounded up to a power of
/// two.  GMRES alone has some thirty sizes.
inline constexpr std::size_t rounded_bytes_max = 1024;
std::uint64_t rounded_count(std::uint64_t count, std::size_t element_bytes) noexcept;

/// Addresses of a source and a target that do not overlap, where there are none to be given.
inline constexpr std::uintptr_t buffers_apart = std::uintptr_t{1} << 45;

struct Request;

struct Shape {
  /// `calls_of_communicator` counts all calls of its communicator, of all kinds.
  Shape(const ShapeKey& its_key, std::uint64_t& calls_of_communicator)
      : key(its_key), all_calls(calls_of_communicator) {}
  Shape(const Shape&) = delete;  // the operation points into it
  Shape& operator=(const Shape&) = delete;

  bool has_operation() const noexcept { return operation || !instances.empty(); }

  /// The reduction of its key.  MPI's combine with the type and the operator of the call that runs.
  Reduction reduction() noexcept;

  /// Every call is counted, also one that is taken without looking: which operation goes for want
  /// of room follows from it, and has to be the same on all ranks.
  void count_call() noexcept {
    ++calls;
    last_used = ++all_calls;
  }

  const ShapeKey key;
  std::uint64_t calls = 0;      // that were taken or passed
  std::uint64_t last_used = 0;  // which call of the communicator
  std::uint64_t& all_calls;
  bool is_refused = false;   // no operation can be made, or it is not used any more
  bool was_dropped = false;  // its operation, for others
  std::optional<Operation> operation;
  const void* last_source = nullptr;  // of the operation: it starts faster on the same buffers
  void* last_target = nullptr;
  /// Where blocks differ in size: what each rank has, bytes of an allgatherv and elements of a
  /// reduce_scatter.  Of the call for which the operation was made; its digest is in the key.
  std::vector<std::size_t> blocks;
  MPI_Datatype type_of_call{};
  MPI_Op op_of_call{};
  std::vector<std::byte> source, target;  // where the program's buffers cannot be used

  // Kinds that are framed alone.
  std::uint32_t long_score = 0;    // how often blocks are long (framed_blocks); of a gatherv the
                                   // root alone knows
  std::uint64_t framed_calls = 0;  // of a gatherv: calls that its operations have done
  bool is_outgrown = false;        // larger frames are needed; of a gatherv the root knows it first

  // Nonblocking calls alone.
  bool is_wanted = false;         // the next blocking call makes its operations
  std::uint64_t nonblocking = 0;  // calls that its operations have been given
  /// A shape for each operation: call n is done by number n modulo their count, on all ranks.
  std::vector<std::unique_ptr<Shape>> instances;
  /// In an instance: calls that are not done yet.  The first one is in flight.
  std::vector<Request*> requests;
};

}  // namespace tutti::interposer
