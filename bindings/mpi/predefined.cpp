#include "predefined.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "handles.hpp"

namespace tutti::interposer {
namespace {

struct TypeRow {
  MPI_Datatype handle;
  Kind kind;
};

std::vector<PredefinedType> make_types() {
#define ROW(constant, name, kind) \
  { TUTTI_MPI_HANDLE(MPI_Datatype, constant, name), Kind::kind }
  const TypeRow rows[] = {
      ROW(MPI_DOUBLE, double, floating),
      ROW(MPI_FLOAT, float, floating),
      ROW(MPI_INT, int, integer),
      ROW(MPI_LONG, long, integer),
      ROW(MPI_LONG_LONG, long_long_int, integer),
      ROW(MPI_UNSIGNED, unsigned, integer),
      ROW(MPI_UNSIGNED_LONG, unsigned_long, integer),
      ROW(MPI_UNSIGNED_LONG_LONG, unsigned_long_long, integer),
      ROW(MPI_SHORT, short, integer),
      ROW(MPI_UNSIGNED_SHORT, unsigned_short, integer),
      ROW(MPI_SIGNED_CHAR, signed_char, integer),
      ROW(MPI_UNSIGNED_CHAR, unsigned_char, integer),
      ROW(MPI_CHAR, char, character),
      ROW(MPI_WCHAR, wchar, character),
      ROW(MPI_BYTE, byte, byte),
      ROW(MPI_LONG_DOUBLE, long_double, floating),
      ROW(MPI_INT8_T, int8_t, integer),
      ROW(MPI_INT16_T, int16_t, integer),
      ROW(MPI_INT32_T, int32_t, integer),
      ROW(MPI_INT64_T, int64_t, integer),
      ROW(MPI_UINT8_T, uint8_t, integer),
      ROW(MPI_UINT16_T, uint16_t, integer),
      ROW(MPI_UINT32_T, uint32_t, integer),
      ROW(MPI_UINT64_T, uint64_t, integer),
      ROW(MPI_AINT, aint, integer),
      ROW(MPI_OFFSET, offset, integer),
      ROW(MPI_COUNT, count, integer),
      ROW(MPI_C_BOOL, c_bool, logical),
      ROW(MPI_CXX_BOOL, cxx_bool, logical),
      ROW(MPI_C_FLOAT_COMPLEX, c_float_complex, complex),
      ROW(MPI_C_DOUBLE_COMPLEX, c_double_complex, complex),
      ROW(MPI_C_LONG_DOUBLE_COMPLEX, c_long_double_complex, complex),
      ROW(MPI_CXX_FLOAT_COMPLEX, cxx_cplex, complex),
      ROW(MPI_CXX_DOUBLE_COMPLEX, cxx_dblcplex, complex),
      ROW(MPI_INTEGER, integer, integer),
      ROW(MPI_INTEGER1, integer1, integer),
      ROW(MPI_INTEGER2, integer2, integer),
      ROW(MPI_INTEGER4, integer4, integer),
      ROW(MPI_INTEGER8, integer8, integer),
      ROW(MPI_REAL, real, floating),
      ROW(MPI_REAL4, real4, floating),
      ROW(MPI_REAL8, real8, floating),
      ROW(MPI_DOUBLE_PRECISION, dblprec, floating),
      ROW(MPI_COMPLEX, cplex, complex),
      ROW(MPI_COMPLEX8, complex8, complex),
      ROW(MPI_COMPLEX16, complex16, complex),
      ROW(MPI_DOUBLE_COMPLEX, dblcplex, complex),
      ROW(MPI_LOGICAL, logical, logical),
      ROW(MPI_CHARACTER, character, character),
      ROW(MPI_FLOAT_INT, float_int, pair),
      ROW(MPI_DOUBLE_INT, double_int, pair),
      ROW(MPI_LONG_INT, long_int, pair),
      ROW(MPI_SHORT_INT, short_int, pair),
      ROW(MPI_LONG_DOUBLE_INT, longdbl_int, pair),
      ROW(MPI_2INT, 2int, pair),
      ROW(MPI_2REAL, 2real, pair),
      ROW(MPI_2DOUBLE_PRECISION, 2dblprec, pair),
      ROW(MPI_2INTEGER, 2integer, pair),
  };
#undef ROW
  std::vector<PredefinedType> types;
  std::uint8_t number = 0;
  for (const TypeRow& row : rows) {
    ++number;
    // An MPI may have been built without Fortran, or without a type.
    if (row.handle == MPI_Datatype{} || row.handle == handles().no_type) continue;
    int bytes = 0;
    own_mpi().Type_size(row.handle, &bytes);
    PredefinedType type{row.handle, row.kind, static_cast<std::uint32_t>(bytes), ElementType::other,
                        number};
    if (row.kind == Kind::floating) {
      if (bytes == 4) type.element = ElementType::float32;
      if (bytes == 8) type.element = ElementType::float64;
    } else if (row.kind == Kind::complex) {
      if (bytes == 8) type.element = ElementType::float32;
      if (bytes == 16) type.element = ElementType::float64;
    } else if (row.kind == Kind::integer) {
      const bool is_unsigned =
          row.handle == TUTTI_MPI_HANDLE(MPI_Datatype, MPI_UNSIGNED, unsigned) ||
          row.handle == TUTTI_MPI_HANDLE(MPI_Datatype, MPI_UNSIGNED_LONG, unsigned_long) ||
          row.handle ==
              TUTTI_MPI_HANDLE(MPI_Datatype, MPI_UNSIGNED_LONG_LONG, unsigned_long_long) ||
          row.handle == TUTTI_MPI_HANDLE(MPI_Datatype, MPI_UINT32_T, uint32_t) ||
          row.handle == TUTTI_MPI_HANDLE(MPI_Datatype, MPI_UINT64_T, uint64_t);
      if (bytes == 4) type.element = is_unsigned ? ElementType::uint32 : ElementType::int32;
      if (bytes == 8) type.element = is_unsigned ? ElementType::uint64 : ElementType::int64;
    }
    types.push_back(type);
  }
  return types;
}

std::vector<PredefinedOperator> make_operators() {
  std::uint8_t number = 0;
  std::vector<PredefinedOperator> operators;
  const auto add = [&](MPI_Op handle, BuiltIn which) {
    operators.push_back({handle, which, ++number});
  };
  add(TUTTI_MPI_HANDLE(MPI_Op, MPI_SUM, op_sum), BuiltIn::sum);
  add(TUTTI_MPI_HANDLE(MPI_Op, MPI_MAX, op_max), BuiltIn::max);
  add(TUTTI_MPI_HANDLE(MPI_Op, MPI_MIN, op_min), BuiltIn::min);
  add(TUTTI_MPI_HANDLE(MPI_Op, MPI_PROD, op_prod), BuiltIn::product);
  add(TUTTI_MPI_HANDLE(MPI_Op, MPI_LAND, op_land), BuiltIn::logical_and);
  add(TUTTI_MPI_HANDLE(MPI_Op, MPI_LOR, op_lor), BuiltIn::logical_or);
  add(TUTTI_MPI_HANDLE(MPI_Op, MPI_BAND, op_band), BuiltIn::bit_and);
  add(TUTTI_MPI_HANDLE(MPI_Op, MPI_BOR, op_bor), BuiltIn::bit_or);
  add(TUTTI_MPI_HANDLE(MPI_Op, MPI_BXOR, op_bxor), BuiltIn::bit_xor);
  add(TUTTI_MPI_HANDLE(MPI_Op, MPI_LXOR, op_lxor), BuiltIn::none);
  add(TUTTI_MPI_HANDLE(MPI_Op, MPI_MAXLOC, op_maxloc), BuiltIn::none);
  add(TUTTI_MPI_HANDLE(MPI_Op, MPI_MINLOC, op_minloc), BuiltIn::none);
  return operators;
}

template <class Table, class Handle>
auto find_in(const Table& table, Handle handle) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const auto& row) { return row.handle == handle; });
  return found == table.end() ? nullptr : &*found;
}

bool is_of_pairs(const PredefinedOperator& op) {
  static const MPI_Op maxloc = TUTTI_MPI_HANDLE(MPI_Op, MPI_MAXLOC, op_maxloc);
  static const MPI_Op minloc = TUTTI_MPI_HANDLE(MPI_Op, MPI_MINLOC, op_minloc);
  return op.handle == maxloc || op.handle == minloc;
}

}  // namespace

const PredefinedType* find_type(MPI_Datatype type) {
  static const std::vector<PredefinedType> types = make_types();
  return find_in(types, type);
}

const PredefinedOperator* find_operator(MPI_Op op) {
  static const std::vector<PredefinedOperator> operators = make_operators();
  return find_in(operators, op);
}

bool is_defined(const PredefinedOperator& op, const PredefinedType& type) {
  if (is_of_pairs(op) || type.kind == Kind::pair)
    return is_of_pairs(op) == (type.kind == Kind::pair);
  switch (op.which) {
    case BuiltIn::sum:
    case BuiltIn::product:
      return type.kind == Kind::integer || type.kind == Kind::floating ||
             type.kind == Kind::complex;
    case BuiltIn::min:
    case BuiltIn::max:
      return type.kind == Kind::integer || type.kind == Kind::floating;
    case BuiltIn::bit_and:
    case BuiltIn::bit_or:
    case BuiltIn::bit_xor:
      return type.kind == Kind::integer || type.kind == Kind::byte;
    case BuiltIn::logical_and:
    case BuiltIn::logical_or:
    case BuiltIn::none:  // exclusive or
      return type.kind == Kind::integer || type.kind == Kind::logical;
  }
  return false;
}

OwnReduction own_reduction(const PredefinedOperator& op, const PredefinedType& type) {
  OwnReduction own;
  if (type.kind == Kind::complex) {
    if (op.which != BuiltIn::sum) return own;
    own.per_element = 2;
  }
  if (defined_for(op.which, type.element))
    own.reduction = built_in_reduction(op.which, type.element);
  return own;
}

}  // namespace tutti::interposer
