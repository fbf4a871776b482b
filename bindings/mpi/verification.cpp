#include "verification.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>

#include "after_call.hpp"
#include "elements.hpp"
#include "handles.hpp"
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

/// The elements of a call without gaps.
std::vector<std::byte> packed(const void* buffer, const Call& call) {
  int bytes = 0;
  own_mpi().Type_size(call.type, &bytes);
  std::vector<std::byte> all(static_cast<std::size_t>(bytes) *
                             static_cast<std::size_t>(call.count));
  const Elements elements(buffer, static_cast<std::size_t>(call.count), call.type);
  elements.pack(all.data(), all.size(), call.communicator);
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

/// How far two results of an element may be apart, in units in the last place of 1.
struct Tolerance {
  double of_operands = 0;  // times the sum of their magnitudes
  double of_results = 0;
};

Tolerance tolerance_of(const Call& call, std::uint32_t rank_count) {
  const double ranks = rank_count;
  if (call.collective == Collective::broadcast) return {};
  const PredefinedOperator* const op = find_operator(call.op);
  if (op == nullptr) return {8 * ranks, 8 * ranks};
  if (op->which == BuiltIn::sum) return {ranks, 0};
  if (op->which == BuiltIn::product) return {0, 8 * ranks};
  return {};
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

std::string name_of_communicator(MPI_Comm communicator) {
  char name[MPI_MAX_OBJECT_NAME] = "";
  int length = 0;
  own_mpi().Comm_get_name(communicator, name, &length);
  return length == 0 ? "a communicator without a name" : name;
}

}  // namespace

Verification& verification() {
  static Verification* const one = new Verification;  // as interposer()
  return *one;
}

Call Verification::begin(const Call& call, ProgramCommunicator& communicator) {
  call_ = call;
  rank_ = communicator.rank();
  rank_count_ = communicator.rank_count();
  const bool is_root = communicator.rank() == call.root;
  writes_ = call.collective == Collective::allreduce ||
            (call.collective == Collective::reduce && is_root) ||
            (call.collective == Collective::broadcast && !is_root);
  after_call = after;
  Call own = call;
  if (call.collective == Collective::barrier) return own;
  leaves_ = leaves_of(call.type);
  if (leaves_.empty() && call.collective == Collective::broadcast) {
    int bytes = 0;
    own_mpi().Type_size(call.type, &bytes);
    leaves_ = {{Leaf::Kind::bytes, static_cast<std::uint32_t>(bytes)}};
  }
  if (own.source == MPI_IN_PLACE) own.source = call.target;
  if (call.collective != Collective::broadcast) add_magnitudes(own.source);
  if (!writes_) return own;
  if (call.collective == Collective::broadcast) {
    // Its elements may lie anywhere in memory.
    int bytes = 0;
    own_mpi().Type_size(call.type, &bytes);
    own.count = bytes * call.count;
    own.type = handles().byte;
    storage_.assign(static_cast<std::size_t>(own.count), std::byte{});
    own.target = storage_.data();
    return own;
  }
  // From the first byte of an element to the last one of another.
  MPI_Aint lower = 0, extent = 0, true_lower = 0, true_extent = 0;
  own_mpi().Type_get_extent(call.type, &lower, &extent);
  own_mpi().Type_get_true_extent(call.type, &true_lower, &true_extent);
  const MPI_Aint last = extent * static_cast<MPI_Aint>(call.count - 1);
  const MPI_Aint begin = std::min<MPI_Aint>(last, 0) + true_lower;
  const MPI_Aint end = std::max<MPI_Aint>(last, 0) + true_lower + true_extent;
  storage_.assign(static_cast<std::size_t>(end - begin), std::byte{});
  own_ = storage_.data() - begin;
  own.target = own_;
  return own;
}

/// Ranks that do not know their type's numbers add zeros, so that all take part.
void Verification::add_magnitudes(const void* source) {
  const auto count = static_cast<std::size_t>(call_.count);
  std::vector<double> mine(count, 0);
  if (!leaves_.empty()) {
    const std::vector<std::byte> elements = packed(source, call_);
    const std::size_t bytes = elements.size() / count;
    for (std::size_t i = 0; i < count; ++i)
      mine[i] = sum_of_magnitudes(leaves_, &elements[i * bytes]);
  }
  magnitudes_.resize(count);
  own_mpi().Allreduce(mine.data(), magnitudes_.data(), static_cast<int>(count), handles().float64,
                      handles().sum, call_.communicator);
}

void Verification::after(int result) noexcept {
  if (result == MPI_SUCCESS && verification().writes_) verification().compare();
}

void Verification::compare() {
  if (leaves_.empty()) {
    ++interposer().counts(call_.collective).not_compared;
    return;
  }
  const bool is_moved = call_.collective == Collective::broadcast;
  const std::vector<std::byte> own = is_moved ? storage_ : packed(own_, call_),
                               of_mpi = packed(call_.target, call_);
  const Tolerance tolerance = tolerance_of(call_, rank_count_);
  const std::size_t bytes = own.size() / static_cast<std::size_t>(call_.count);
  for (std::int64_t element = 0; element < call_.count; ++element) {
    const std::size_t at = static_cast<std::size_t>(element) * bytes;
    double allowed = tolerance.of_operands;
    if (allowed > 0) allowed *= magnitudes_[static_cast<std::size_t>(element)];
    if (tolerance.of_results > 0)
      allowed += tolerance.of_results * std::max(sum_of_magnitudes(leaves_, &own[at]),
                                                 sum_of_magnitudes(leaves_, &of_mpi[at]));
    std::size_t place = at;
    for (std::size_t leaf = 0; leaf < leaves_.size(); ++leaf) {
      if (!is_same(leaves_[leaf], &own[place], &of_mpi[place], allowed)) {
        ++interposer().counts(call_.collective).differences;
        if (said_++ < said_max) say(element, leaf, &own[place], &of_mpi[place]);
        return;
      }
      place += leaves_[leaf].bytes;
    }
  }
}

/// The first difference of a call.
void Verification::say(std::int64_t element, std::size_t leaf, const std::byte* own,
                       const std::byte* of_mpi) {
  const CallCounts& counts = interposer().counts(call_.collective);
  const std::uint64_t calls =
      counts.taken + std::accumulate(counts.passed.begin(), counts.passed.end(), std::uint64_t{0});
  const std::string part = leaves_.size() == 1 ? "" : "part " + std::to_string(leaf) + " of ";
  std::fprintf(stderr,
               "tutti: verify: %s number %llu of rank %d of %s (%u ranks): %selement %lld of %lld "
               "(%s) is %s by tutti, and %s by MPI\n",
               name_of(call_.collective), static_cast<unsigned long long>(calls), rank_,
               name_of_communicator(call_.communicator).c_str(), rank_count_, part.c_str(),
               static_cast<long long>(element), static_cast<long long>(call_.count),
               name_of_type(call_.type).c_str(), text_of(leaves_[leaf], own).c_str(),
               text_of(leaves_[leaf], of_mpi).c_str());
}

}  // namespace tutti::interposer
