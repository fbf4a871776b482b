// What a rank gets by a call, once by tutti and once by MPI: whether both have come to the same,
// and where they have not.
//
// Integers, minima, maxima, and what is passed on have to be the same.  Sums and products of
// floating-point numbers depend on the order of operands: sums of n ranks may differ by
// n eps sum|x|, which no two orders exceed; products by 8 n eps of the result, and what operators
// of the program make by 8 n eps of both.  A scan's bounds are those of all ranks' operands, of
// which it combines a part.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "leaves.hpp"
#include "shape.hpp"

namespace tutti::interposer {

/// How far two results of an element may be apart, in units in the last place of 1.
struct Tolerance {
  double of_operands = 0;  // times the sum of their magnitudes, over all ranks
  double of_results = 0;
};

/// The same on all ranks.
Tolerance tolerance_of(Collective collective, MPI_Op op, std::uint32_t rank_count);

/// Elements that follow each other: all that this rank gets, or a block of it.
struct Result {
  const void* by_mpi = nullptr;
  const void* by_tutti = nullptr;
  std::int64_t count = 0;
  int block = -1;                     // of which rank, where there are blocks
  std::size_t first_of_operands = 0;  // where the operands of its first element are among all
};

struct ComparedCall {
  Collective collective = Collective::barrier;
  std::uint64_t number = 0;
  int rank = 0;
  std::uint32_t rank_count = 1;
  std::string communicator = {};  // its name
  MPI_Datatype type{};            // of the elements, by MPI; a reduction of tutti's has the same
  bool is_moved = false;          // nothing is combined; tutti's elements are without gaps
  Tolerance tolerance = {};
  std::vector<Result> results = {};
  std::vector<double> magnitudes = {};  // of each element's operands, if the tolerance needs them
};

/// Counts a call that has a difference, and tells the first one.
void compare(const ComparedCall& call);

/// The elements one after the other, without gaps.
std::vector<std::byte> packed(const void* address, std::int64_t count, MPI_Datatype type);

double sum_of_magnitudes(const std::vector<Leaf>& leaves, const std::byte* element);

}  // namespace tutti::interposer
