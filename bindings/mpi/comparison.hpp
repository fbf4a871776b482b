// Compares the result of a call as computed by tutti with MPI's, and reports the first difference.
//
// Integers, minima, maxima, and what is passed on have to be the same, but for the sign of a zero
// and the bits of a NaN.  Sums and products of floating-point numbers depend on the order of
// operands: sums of n ranks may differ by n eps sum|x|, which no two orders exceed; products by 8 n
// eps of the result; results of the program's operators by 8 n eps of the sum of the operands'
// magnitudes plus the result's.  For a scan the bound uses the operands of all ranks, although each
// result combines only some of them, so the bound is looser than necessary.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "leaves.hpp"
#include "shape.hpp"

namespace tutti::interposer {

/// How far two results of an element may be apart, in multiples of the machine epsilon.
struct Tolerance {
  double of_operands = 0;  // times the sum of their magnitudes, over all ranks
  double of_results = 0;
};

/// All ranks get the same tolerance.
Tolerance tolerance_of(Collective collective, MPI_Op op, std::uint32_t rank_count);

/// Elements that follow each other: all that this rank gets, or a block of it.
struct Result {
  const void* by_mpi = nullptr;
  const void* by_tutti = nullptr;
  std::int64_t count = 0;
  int block = -1;                     // of which rank, where there are blocks
  std::size_t first_of_operands = 0;  // index in `magnitudes` of those of its first element
};

struct ComparedCall {
  Collective collective = Collective::barrier;
  std::uint64_t number = 0;
  int rank = 0;
  std::uint32_t rank_count = 1;
  std::string communicator = {};  // its name
  MPI_Datatype type{};            // MPI's; for a reduction tutti uses it, too
  bool is_moved = false;          // nothing is combined; tutti's elements are without gaps
  Tolerance tolerance = {};
  std::vector<Result> results = {};
  std::vector<double> magnitudes = {};  // of each element's operands, if the tolerance needs them
};

/// Compares the results.  If they differ, counts the call and prints its first difference; a
/// process prints ten at most.
void compare(const ComparedCall& call);

/// The elements one after the other, without gaps.
std::vector<std::byte> packed(const void* address, std::int64_t count, MPI_Datatype type);

double sum_of_magnitudes(const std::vector<Leaf>& leaves, const std::byte* element);

}  // namespace tutti::interposer
