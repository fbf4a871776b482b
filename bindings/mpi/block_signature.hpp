// Collectives of blocks, one for each rank: what a call is in MPI's terms, and what is taken of it.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "interposer.hpp"
#include "shape.hpp"

namespace tutti::interposer {

/// Counts or displacements of all ranks, as the program gives them: int, or MPI_Count and MPI_Aint
/// in the forms with large counts.
class Numbers {
 public:
  Numbers() = default;
  explicit Numbers(const int* numbers) : short_(numbers) {}
  /// MPI_Count and MPI_Aint both have 64 bits, but may be different types.
  static Numbers of_64_bits(const void* numbers) {
    Numbers result;
    result.long_ = static_cast<const std::int64_t*>(numbers);
    return result;
  }
  /// Likewise, of whichever type.
  template <class Number>
  static Numbers of(const Number* numbers) {
    if constexpr (sizeof(Number) == sizeof(std::int64_t))
      return of_64_bits(numbers);
    else
      return Numbers(numbers);
  }
  std::int64_t operator[](std::size_t rank) const noexcept {
    return short_ != nullptr ? short_[rank] : long_[rank];
  }
  bool is_given() const noexcept { return short_ != nullptr || long_ != nullptr; }
  bool equals(const std::vector<std::int64_t>& others) const noexcept {
    if (!is_given()) return others.empty();
    for (std::size_t rank = 0; rank < others.size(); ++rank)
      if ((*this)[rank] != others[rank]) return false;
    return true;
  }

 private:
  const int* short_ = nullptr;
  const std::int64_t* long_ = nullptr;
};
static_assert(sizeof(MPI_Aint) == 8 && sizeof(MPI_Count) == 8);

/// A buffer of the program: one block, or those of all ranks.
struct BlockBuffer {
  const void* address = nullptr;
  std::int64_t count = 0;  // elements of a block, where all blocks have as many
  MPI_Datatype type{};
};

/// A call as the program made it.  Of reductions, `source` and `target` have the same type.
struct BlockCall {
  Collective collective;
  BlockBuffer source = {};
  BlockBuffer target = {};
  Numbers source_counts = {};         // of an alltoallv and of a scatterv's root
  Numbers source_displacements = {};  // likewise
  Numbers counts = {};         // of the target of an allgatherv, alltoallv and gatherv, and of a
                               // reduce_scatter
  Numbers displacements = {};  // of that target
  MPI_Op op{};
  int root = 0;
  MPI_Comm communicator{};
};

/// A rank among the ranks of its communicator.
struct Place {
  std::size_t rank;
  std::size_t rank_count;
};

/// This says what is taken of a call, or why it is left.
struct BlockSignature {
  ShapeKey key = {};
  std::vector<std::size_t> blocks = {};  // as Shape::blocks
  std::size_t bytes = 0;                 // of the blocks of all ranks, without gaps
  bool is_predefined = false;  // nothing but the handles decides, so that it can be remembered
  bool is_laid_out = false;    // of a reduction: elements have gaps
  bool is_left = false;
  Reason reason = Reason::undefined;
};

/// Decided by what MPI makes equal on all ranks: the bytes of a block, which each rank knows from
/// those of its arguments that count there, or those of all blocks.
BlockSignature signature_of(const BlockCall& call, const Place& place);

/// Whether elements of the type lie one after the other, so that their buffer can be used.
bool is_dense(MPI_Datatype type);

/// Bytes that this rank gives or, where it gives in place, gets; 0 where its arguments are wrong.
std::uint64_t payload_of(const BlockCall& call);

constexpr bool is_reduction(Collective collective) noexcept {
  return collective == Collective::reduce_scatter || collective == Collective::reduce_scatter_block;
}

}  // namespace tutti::interposer
