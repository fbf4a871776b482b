// MPI's predefined types and operators: what tutti makes of them.  Types are mapped by size and
// kind, because programs of two languages name one type in several ways.
#pragma once

#include <mpi.h>

#include <cstdint>

#include "tutti/reduction.hpp"

namespace tutti::interposer {

/// What a predefined type holds: which operators MPI defines for it.
enum class Kind : std::uint8_t { integer, floating, complex, logical, byte, character, pair };

struct PredefinedType {
  MPI_Datatype handle;
  Kind kind;
  std::uint32_t bytes;  // of one element; MPI's size, without gaps
  ElementType element;  // of each of its parts, or other
  std::uint8_t number;  // of its row, which is the same in every process
};

struct PredefinedOperator {
  MPI_Op handle;
  BuiltIn which;  // none: tutti has none like it
  std::uint8_t number;
};

/// nullptr for a type of the program's.
const PredefinedType* find_type(MPI_Datatype type);
const PredefinedOperator* find_operator(MPI_Op op);

/// Whether MPI allows the operator for the type (MPI 4.0, 6.9.2 and 6.9.4).
bool is_defined(const PredefinedOperator& op, const PredefinedType& type);

/// How tutti combines elements of the type by itself: `per_element` of its elements for each one.
/// Without a reduction (element_bytes == 0) only MPI can.
struct OwnReduction {
  Reduction reduction = {};
  std::uint32_t per_element = 1;
};
OwnReduction own_reduction(const PredefinedOperator& op, const PredefinedType& type);

}  // namespace tutti::interposer
