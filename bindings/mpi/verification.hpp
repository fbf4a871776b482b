// TUTTI_MPI=verify: tutti does a call on memory of its own, then MPI does it on the program's, and
// both have to come to the same.
//
// Integers, minima, maxima, and what is passed on have to be the same.  Sums and products of
// floating-point numbers depend on the order of operands: sums of n ranks may differ by
// n eps sum|x|, which no two orders exceed; products by 8 n eps of the result, and what operators
// of the program make by 8 n eps of both.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "interposer.hpp"
#include "leaves.hpp"
#include "signature.hpp"

namespace tutti::interposer {

class Verification {
 public:
  /// The call as tutti shall do it: its result goes to memory of this object.  The program's call
  /// has to go to MPI after that.  Collective: a sum over the ranks says how large a difference may
  /// be.
  Call begin(const Call& call, ProgramCommunicator& communicator);

 private:
  static void after(int result) noexcept;
  void compare();
  void say(std::int64_t element, std::size_t leaf, const std::byte* own, const std::byte* of_mpi);
  void add_magnitudes(const void* source);

  Call call_ = {.collective = Collective::barrier};
  std::uint32_t rank_count_ = 1;
  int rank_ = 0;
  bool writes_ = false;  // this rank gets a result
  std::vector<Leaf> leaves_;
  std::vector<std::byte> storage_;
  std::byte* own_ = nullptr;        // in the storage, as the program's buffer
  std::vector<double> magnitudes_;  // of each element, over its numbers and all ranks
  unsigned said_ = 0;
};

Verification& verification();

/// Whether calls of a collective are verified.
constexpr bool is_verified(Collective collective) noexcept {
  return collective == Collective::barrier || collective == Collective::allreduce ||
         collective == Collective::broadcast || collective == Collective::reduce;
}

}  // namespace tutti::interposer
