#include "signature.hpp"

#include "handles.hpp"
#include "loaded_mpi.hpp"
#include "predefined.hpp"

namespace tutti::interposer {
namespace {

Signature left(Reason reason) {
  Signature signature;
  signature.is_left = true;
  signature.reason = reason;
  return signature;
}

Signature signature_of_broadcast(const Call& call) {
  Signature signature;
  const PredefinedType* const type = find_type(call.type);
  int bytes = 0;
  own_mpi().Type_size(call.type, &bytes);
  signature.is_predefined = type != nullptr && type->kind != Kind::pair;
  signature.is_laid_out = !signature.is_predefined;
  // Ranks may cut one payload into elements in their own ways.
  if (bytes < 0) return left(Reason::large);
  if (bytes == 0) return left(Reason::empty);
  if (static_cast<std::uint64_t>(call.count) > interposer().settings().bytes_max)
    return left(Reason::large);
  signature.bytes = static_cast<std::size_t>(call.count) * static_cast<std::size_t>(bytes);
  signature.key.element_bytes = 1;
  signature.key.element_count = rounded_count(signature.bytes, 1);
  return signature;
}

/// How the elements of a type lie that MPI combines.
struct Layout {
  std::uint32_t extent = 0;
  bool has_gaps = false;
  bool is_plain = false;  // each element lies between its address and the next one's
};

Layout layout_of(MPI_Datatype type) {
  MPI_Aint lower = 0, extent = 0, true_lower = 0, true_extent = 0;
  int bytes = 0;
  own_mpi().Type_get_extent(type, &lower, &extent);
  own_mpi().Type_get_true_extent(type, &true_lower, &true_extent);
  own_mpi().Type_size(type, &bytes);
  const bool is_plain = true_lower >= 0 && extent > 0 && true_lower + true_extent <= extent &&
                        extent <= MPI_Aint{1} << 30;
  return {is_plain ? static_cast<std::uint32_t>(extent) : 0, bytes != extent, is_plain};
}

Signature signature_of_reduction(const Call& call) {
  Signature signature;
  const auto count = static_cast<std::uint64_t>(call.count);
  if (const PredefinedOperator* const op = find_operator(call.op)) {
    const PredefinedType* const type = find_type(call.type);
    if (type == nullptr || !is_defined(*op, *type)) return left(Reason::undefined);
    const OwnReduction own = own_reduction(*op, *type);
    if (own.reduction.element_bytes != 0) {
      signature.is_predefined = true;
      signature.bytes = static_cast<std::size_t>(count * type->bytes);
      signature.key.combining = Combining::own;
      signature.key.op = static_cast<std::uint8_t>(op->which);
      signature.key.type = static_cast<std::uint8_t>(type->element);
      signature.key.element_bytes = own.reduction.element_bytes;
      signature.key.element_count =
          rounded_count(count * own.per_element, own.reduction.element_bytes);
      return signature;
    }
    signature.key.combining = Combining::predefined;
    signature.key.op = op->number;
    signature.key.type = type->number;
  } else {
    int commutes = 0;
    own_mpi().Op_commutative(call.op, &commutes);
    signature.key.combining = commutes != 0 ? Combining::users_any : Combining::users;
  }
  const Layout layout = layout_of(call.type);
  if (!layout.is_plain) return left(Reason::layout);
  signature.is_laid_out = layout.has_gaps;
  signature.bytes = static_cast<std::size_t>(count * layout.extent);
  signature.key.element_bytes = layout.extent;
  signature.key.element_count = count;
  return signature;
}

}  // namespace

Signature signature_of(const Call& call) {
  const Collective collective = blocking(call.collective);
  if (collective == Collective::barrier) {
    Signature signature;
    signature.key.collective = call.collective;
    signature.is_predefined = true;
    return signature;
  }
  // What is wrong in a call, MPI says in its own words.
  if (call.count < 0 || call.type == handles().no_type) return left(Reason::undefined);
  if (call.count == 0) return left(Reason::empty);
  if (static_cast<std::uint64_t>(call.count) > interposer().settings().bytes_max)
    return left(Reason::large);
  const bool is_reduction = combines(collective);
  if (is_reduction && call.op == handles().no_op) return left(Reason::undefined);
  Signature signature = is_reduction ? signature_of_reduction(call) : signature_of_broadcast(call);
  if (signature.is_left) return signature;
  if (signature.bytes > interposer().settings().bytes_max) return left(Reason::large);
  signature.key.collective = call.collective;
  if (has_root(call.collective)) signature.key.root = call.root;
  return signature;
}

std::uint64_t payload_of(const Call& call) {
  if (call.count <= 0 || call.type == handles().no_type || call.type == MPI_Datatype{}) return 0;
  int bytes = 0;
  own_mpi().Type_size(call.type, &bytes);
  return static_cast<std::uint64_t>(call.count) * static_cast<std::uint64_t>(bytes);
}

}  // namespace tutti::interposer
