#include "leaves.hpp"

#include <cstddef>

#include "handles.hpp"
#include "loaded_mpi.hpp"
#include "predefined.hpp"

namespace tutti::interposer {
namespace {

constexpr std::size_t leaves_max = 4096;

std::uint32_t size_of(MPI_Datatype type) {
  int bytes = 0;
  own_mpi().Type_size(type, &bytes);
  return bytes < 0 ? 0 : static_cast<std::uint32_t>(bytes);
}

struct PairRow {
  MPI_Datatype handle;
  MPI_Datatype value;  // the type of what is compared
  MPI_Datatype index;
};

/// The two numbers of a type for MPI_MINLOC.
std::vector<Leaf> leaves_of_pair(MPI_Datatype type) {
#define PAIR(pair, pair_name, value, value_name, index, index_name) \
  {                                                                 \
    TUTTI_MPI_HANDLE(MPI_Datatype, pair, pair_name),                \
        TUTTI_MPI_HANDLE(MPI_Datatype, value, value_name),          \
        TUTTI_MPI_HANDLE(MPI_Datatype, index, index_name)           \
  }
  static const PairRow rows[] = {
      PAIR(MPI_FLOAT_INT, float_int, MPI_FLOAT, float, MPI_INT, int),
      PAIR(MPI_DOUBLE_INT, double_int, MPI_DOUBLE, double, MPI_INT, int),
      PAIR(MPI_LONG_INT, long_int, MPI_LONG, long, MPI_INT, int),
      PAIR(MPI_SHORT_INT, short_int, MPI_SHORT, short, MPI_INT, int),
      PAIR(MPI_LONG_DOUBLE_INT, longdbl_int, MPI_LONG_DOUBLE, long_double, MPI_INT, int),
      PAIR(MPI_2INT, 2int, MPI_INT, int, MPI_INT, int),
      PAIR(MPI_2REAL, 2real, MPI_REAL, real, MPI_REAL, real),
      PAIR(MPI_2DOUBLE_PRECISION, 2dblprec, MPI_DOUBLE_PRECISION, dblprec, MPI_DOUBLE_PRECISION,
           dblprec),
      PAIR(MPI_2INTEGER, 2integer, MPI_INTEGER, integer, MPI_INTEGER, integer),
  };
#undef PAIR
  for (const PairRow& row : rows) {
    if (row.handle != type) continue;
    std::vector<Leaf> both = leaves_of(row.value);
    for (const Leaf& leaf : leaves_of(row.index)) both.push_back(leaf);
    return both;
  }
  return {};
}

std::vector<Leaf> leaves_of_predefined(const PredefinedType& type) {
  const std::uint32_t bytes = type.bytes;
  switch (type.kind) {
    case Kind::pair:
      return leaves_of_pair(type.handle);
    case Kind::floating:
      return {{Leaf::Kind::floating, bytes}};
    case Kind::complex:
      return {{Leaf::Kind::floating, bytes / 2}, {Leaf::Kind::floating, bytes / 2}};
    case Kind::integer:
    case Kind::logical:
      return {{type.element == ElementType::uint32 || type.element == ElementType::uint64
                   ? Leaf::Kind::unsigned_integer
                   : Leaf::Kind::signed_integer,
               bytes}};
    case Kind::byte:
    case Kind::character:
      break;
  }
  return {{Leaf::Kind::bytes, bytes}};
}

/// Appends them; false if they cannot be found out.
bool append_leaves(MPI_Datatype type, std::vector<Leaf>& leaves);

/// Appends those of a part that is there `times` times.
bool append_repeated(MPI_Datatype part, std::size_t times, std::vector<Leaf>& leaves) {
  std::vector<Leaf> once;
  if (times == 0) return true;
  if (!append_leaves(part, once) || once.size() * times > leaves_max - leaves.size()) return false;
  for (std::size_t i = 0; i < times; ++i) leaves.insert(leaves.end(), once.begin(), once.end());
  return true;
}

/// How many there are of each part of a struct, or of the only part of another type.
bool append_parts(MPI_Datatype type, int combiner, const std::vector<int>& integers,
                  const std::vector<MPI_Datatype>& parts, std::vector<Leaf>& leaves) {
  if (combiner == MPI_COMBINER_STRUCT) {
    for (std::size_t i = 0; i < parts.size(); ++i)
      if (!append_repeated(parts[i], static_cast<std::size_t>(integers[i + 1]), leaves))
        return false;
    return true;
  }
  // All others have one part, again and again.
  if (parts.size() != 1) return false;
  const std::uint32_t whole = size_of(type), part = size_of(parts[0]);
  return part != 0 && whole % part == 0 && append_repeated(parts[0], whole / part, leaves);
}

bool append_leaves(MPI_Datatype type, std::vector<Leaf>& leaves) {
  if (const PredefinedType* const predefined = find_type(type)) {
    const std::vector<Leaf> own = leaves_of_predefined(*predefined);
    leaves.insert(leaves.end(), own.begin(), own.end());
    return !own.empty() && leaves.size() <= leaves_max;
  }
  const MpiFunctions& mpi = own_mpi();
  int integers = 0, addresses = 0, types = 0, combiner = 0;
  mpi.Type_get_envelope(type, &integers, &addresses, &types, &combiner);
  if (types == 0 || combiner == MPI_COMBINER_NAMED) return false;
  std::vector<int> integer_values(static_cast<std::size_t>(integers) + 1);
  std::vector<MPI_Aint> address_values(static_cast<std::size_t>(addresses) + 1);
  std::vector<MPI_Datatype> parts(static_cast<std::size_t>(types));
  mpi.Type_get_contents(type, integers, addresses, types, integer_values.data(),
                        address_values.data(), parts.data());
  const bool is_known = append_parts(type, combiner, integer_values, parts, leaves);
  for (MPI_Datatype& part : parts) {
    mpi.Type_get_envelope(part, &integers, &addresses, &types, &combiner);
    if (combiner != MPI_COMBINER_NAMED && find_type(part) == nullptr) mpi.Type_free(&part);
  }
  return is_known;
}

}  // namespace

std::vector<Leaf> leaves_of(MPI_Datatype type) {
  std::vector<Leaf> leaves;
  if (!append_leaves(type, leaves)) leaves.clear();
  return leaves;
}

}  // namespace tutti::interposer
