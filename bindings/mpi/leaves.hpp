// Which numbers an element of a type of MPI has, in the order in which MPI packs them.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <vector>

namespace tutti::interposer {

struct Leaf {
  enum class Kind : std::uint8_t { signed_integer, unsigned_integer, floating, bytes };
  Kind kind = Kind::bytes;
  std::uint32_t bytes = 0;
  friend bool operator==(const Leaf&, const Leaf&) = default;
};

/// Empty if it cannot be found out, or if there are more than some thousands.
std::vector<Leaf> leaves_of(MPI_Datatype type);

}  // namespace tutti::interposer
