#include "comparison.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "elements.hpp"
#include "handles.hpp"
#include "interposer.hpp"
#include "loaded_mpi.hpp"
#include "predefined.hpp"

namespace tutti::interposer {
namespace {

/// So many differences a process describes; all are counted.
constexpr unsigned said_max = 10;

template <class T>
T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

long double floating(const Leaf& leaf, const std::byte* from) {
  if (leaf.bytes == sizeof(float)) return read<float>(from);
  if (leaf.bytes == sizeof(double)) return read<double>(from);
  if (leaf.bytes == sizeof(long double)) return read<long double>(from);
  return 0;
}

/// Between 1 and the next number.
double epsilon(const Leaf& leaf) {
  if (leaf.bytes == sizeof(float)) return FLT_EPSILON;
  if (leaf.bytes == sizeof(double)) return DBL_EPSILON;
  return static_cast<double>(LDBL_EPSILON);
}

bool is_known_float(const Leaf& leaf) {
  return leaf.kind == Leaf::Kind::floating &&
         (leaf.bytes == sizeof(float) || leaf.bytes == sizeof(double) ||
          leaf.bytes == sizeof(long double));
}

std::string text_of(const Leaf& leaf, const std::byte* from) {
  char text[64];
  if (is_known_float(leaf)) {
    // So many digits tell any two apart.
    const int digits = leaf.bytes == sizeof(float) ? 9 : leaf.bytes == sizeof(double) ? 17 : 21;
    std::snprintf(text, sizeof text, "%.*Lg", digits, floating(leaf, from));
    return text;
  }
  if (leaf.kind == Leaf::Kind::unsigned_integer)
    return std::to_string(leaf.bytes == 4 ? read<std::uint32_t>(from) : read<std::uint64_t>(from));
  if (leaf.kind == Leaf::Kind::signed_integer && leaf.bytes == 1)
    return std::to_string(read<std::int8_t>(from));
  if (leaf.kind == Leaf::Kind::signed_integer && leaf.bytes == 2)
    return std::to_string(read<std::int16_t>(from));
  if (leaf.kind == Leaf::Kind::signed_integer && leaf.bytes == 4)
    return std::to_string(read<std::int32_t>(from));
  if (leaf.kind == Leaf::Kind::signed_integer && leaf.bytes == 8)
    return std::to_string(read<std::int64_t>(from));
  std::string bytes = "0x";
  for (std::uint32_t i = 0; i < std::min(leaf.bytes, 16u); ++i) {
    std::snprintf(text, sizeof text, "%02x", std::to_integer<unsigned>(from[i]));
    bytes += text;
  }
  return bytes;
}

bool is_same(const Leaf& leaf, const std::byte* a, const std::byte* b, double allowed) {
  if (!is_known_float(leaf)) return std::memcmp(a, b, leaf.bytes) == 0;
  const long double x = floating(leaf, a), y = floating(leaf, b);
  if (x == y || (std::isnan(x) && std::isnan(y))) return true;
  return std::fabs(x - y) <= static_cast<long double>(allowed * epsilon(leaf));
}

std::string name_of_type(MPI_Datatype type) {
  char name[MPI_MAX_OBJECT_NAME] = "";
  int length = 0;
  own_mpi().Type_get_name(type, name, &length);
  return length == 0 ? "a type without a name" : name;
}

/// The first difference of a call.
void say(const ComparedCall& call, const Result& result, std::int64_t element,
         const std::string& part, const std::string& by_tutti, const std::string& by_mpi) {
  static unsigned said = 0;
  if (said++ >= said_max) return;
  const std::string block =
      result.block < 0 ? "" : "block of rank " + std::to_string(result.block) + ", ";
  std::fprintf(stderr,
               "tutti: verify: %s number %llu of rank %d of %s (%u ranks): %s%selement %lld of "
               "%lld (%s) is %s by tutti, and %s by MPI\n",
               name_of(call.collective), static_cast<unsigned long long>(call.number), call.rank,
               call.communicator.c_str(), call.rank_count, block.c_str(), part.c_str(),
               static_cast<long long>(element), static_cast<long long>(result.count),
               name_of_type(call.type).c_str(), by_tutti.c_str(), by_mpi.c_str());
}

/// Whether a result is as it should be.
bool is_right(const ComparedCall& call, const Result& result, const std::vector<Leaf>& leaves) {
  const std::vector<std::byte> of_mpi = packed(result.by_mpi, result.count, call.type);
  const std::vector<std::byte> of_tutti =
      call.is_moved ? std::vector<std::byte>() : packed(result.by_tutti, result.count, call.type);
  const std::byte* own =
      call.is_moved ? static_cast<const std::byte*>(result.by_tutti) : of_tutti.data();
  const std::byte* other = of_mpi.data();
  const Tolerance& tolerance = call.tolerance;
  for (std::int64_t element = 0; element < result.count; ++element) {
    double allowed = tolerance.of_operands;
    if (allowed > 0)
      allowed *= call.magnitudes[result.first_of_operands + static_cast<std::size_t>(element)];
    if (tolerance.of_results > 0)
      allowed += tolerance.of_results *
                 std::max(sum_of_magnitudes(leaves, own), sum_of_magnitudes(leaves, other));
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      if (!is_same(leaves[i], own, other, allowed)) {
        say(call, result, element, leaves.size() == 1 ? "" : "part " + std::to_string(i) + " of ",
            text_of(leaves[i], own), text_of(leaves[i], other));
        return false;
      }
      own += leaves[i].bytes;
      other += leaves[i].bytes;
    }
  }
  return true;
}

}  // namespace

std::vector<std::byte> packed(const void* address, std::int64_t count, MPI_Datatype type) {
  int bytes = 0;
  own_mpi().Type_size(type, &bytes);
  std::vector<std::byte> all(static_cast<std::size_t>(bytes) * static_cast<std::size_t>(count));
  const Elements elements(address, static_cast<std::size_t>(count), type);
  elements.pack(all.data(), all.size(), handles().self);  // that of the call may be gone
  return all;
}

double sum_of_magnitudes(const std::vector<Leaf>& leaves, const std::byte* element) {
  double sum = 0;
  for (const Leaf& leaf : leaves) {
    if (is_known_float(leaf)) sum += static_cast<double>(std::fabs(floating(leaf, element)));
    element += leaf.bytes;
  }
  return sum;
}

Tolerance tolerance_of(Collective collective, MPI_Op op, std::uint32_t rank_count) {
  const double ranks = rank_count;
  if (!combines(collective)) return {};
  const PredefinedOperator* const predefined = find_operator(op);
  if (predefined == nullptr) return {8 * ranks, 8 * ranks};
  if (predefined->which == BuiltIn::sum) return {ranks, 0};
  if (predefined->which == BuiltIn::product) return {0, 8 * ranks};
  return {};
}

void compare(const ComparedCall& call) {
  if (call.results.empty()) return;
  CallCounts& counts = interposer().counts(call.collective);
  std::vector<Leaf> leaves = leaves_of(call.type);
  if (leaves.empty() && call.is_moved) {
    int bytes = 0;
    own_mpi().Type_size(call.type, &bytes);
    leaves = {{Leaf::Kind::bytes, static_cast<std::uint32_t>(bytes)}};
  }
  if (leaves.empty()) {
    ++counts.not_compared;
    return;
  }
  for (const Result& result : call.results)
    if (!is_right(call, result, leaves)) {
      ++counts.differences;
      return;
    }
}

}  // namespace tutti::interposer
