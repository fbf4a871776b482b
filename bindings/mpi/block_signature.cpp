#include "block_signature.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "handles.hpp"
#include "loaded_mpi.hpp"
#include "predefined.hpp"
#include "signature.hpp"

namespace tutti::interposer {
namespace {

BlockSignature left(Reason reason) {
  BlockSignature signature;
  signature.is_left = true;
  signature.reason = reason;
  return signature;
}

/// MPI packs and unpacks what int can count.  Ranks that have nothing to pack keep to it, too.
std::uint64_t bytes_max() {
  return std::min<std::uint64_t>(interposer().settings().bytes_max,
                                 std::numeric_limits<int>::max());
}

constexpr std::uint64_t too_many = std::numeric_limits<std::uint64_t>::max();

/// Bytes of `count` elements without their gaps: too_many above the limit, nothing where MPI has
/// to say what is wrong.
std::optional<std::uint64_t> bytes_of(std::int64_t count, MPI_Datatype type) {
  if (count < 0) return std::nullopt;
  if (count == 0) return 0;
  if (type == handles().no_type) return std::nullopt;
  int bytes_each = 0;
  own_mpi().Type_size(type, &bytes_each);
  if (bytes_each < 0 || static_cast<std::uint64_t>(count) > bytes_max()) return too_many;
  const auto bytes = static_cast<std::uint64_t>(count) * static_cast<std::uint64_t>(bytes_each);
  return bytes > bytes_max() ? too_many : bytes;
}

std::optional<std::uint64_t> bytes_of(const BlockBuffer& block) {
  return bytes_of(block.count, block.type);
}

/// Alike on all ranks, as the numbers are.
std::uint64_t digest_of(const std::vector<std::size_t>& blocks) {
  std::uint64_t digest = blocks.size();
  for (const std::size_t block : blocks) {
    digest = (digest ^ block) * 0x9e3779b97f4a7c15;
    digest ^= digest >> 29;
  }
  return digest;
}

/// Which of its buffers say on this rank how long blocks are.
struct Told {
  bool by_source;
  bool by_target;
};

Told told_by(const BlockCall& call, const Place& place) {
  const bool is_root = static_cast<std::size_t>(call.root) == place.rank;
  if (call.collective == Collective::gather) return {call.source.address != MPI_IN_PLACE, is_root};
  if (call.collective == Collective::scatter) return {is_root, call.target.address != MPI_IN_PLACE};
  return {call.source.address != MPI_IN_PLACE, true};
}

BlockSignature signature_of_equal_blocks(const BlockCall& call, const Place& place) {
  const Told told = told_by(call, place);
  std::optional<std::uint64_t> bytes;
  if (told.by_source) {
    bytes = bytes_of(call.source);
    if (!bytes) return left(Reason::undefined);
  }
  if (told.by_target) {
    const std::optional<std::uint64_t> of_target = bytes_of(call.target);
    if (!of_target || (bytes && *bytes != *of_target)) return left(Reason::undefined);
    bytes = of_target;
  }
  if (!bytes) return left(Reason::undefined);  // in place where that is not allowed
  if (*bytes == 0) return left(Reason::empty);
  if (*bytes > bytes_max() / place.rank_count) return left(Reason::large);
  BlockSignature signature;
  signature.bytes = *bytes * place.rank_count;
  signature.key.element_bytes = 1;
  signature.key.element_count = *bytes;
  signature.is_predefined = (!told.by_source || is_dense(call.source.type)) &&
                            (!told.by_target || is_dense(call.target.type));
  return signature;
}

BlockSignature signature_of_allgatherv(const BlockCall& call, const Place& place) {
  if (!call.counts.is_given() || !call.displacements.is_given()) return left(Reason::undefined);
  BlockSignature signature;
  std::uint64_t all = 0;
  bool is_large = false;
  for (std::size_t rank = 0; rank < place.rank_count; ++rank) {
    const std::optional<std::uint64_t> bytes = bytes_of(call.counts[rank], call.target.type);
    if (!bytes) return left(Reason::undefined);
    is_large = is_large || *bytes > bytes_max() || (all += *bytes) > bytes_max();
    signature.blocks.push_back(*bytes);
  }
  const bool has_source = call.source.address != MPI_IN_PLACE;
  if (has_source) {
    const std::optional<std::uint64_t> own = bytes_of(call.source);
    if (!own || *own != signature.blocks[place.rank]) return left(Reason::undefined);
  }
  if (is_large) return left(Reason::large);
  if (all == 0) return left(Reason::empty);
  signature.bytes = all;
  signature.key.element_bytes = 1;
  signature.key.element_count = all;
  signature.key.blocks_digest = digest_of(signature.blocks);
  // A block of no elements has no type that matters.
  signature.is_predefined =
      is_dense(call.target.type) && (!has_source || is_dense(call.source.type));
  return signature;
}

BlockSignature signature_of_reduce_scatter(const BlockCall& call, const Place& place) {
  const bool is_equal = call.collective == Collective::reduce_scatter_block;
  if (!is_equal && !call.counts.is_given()) return left(Reason::undefined);
  std::vector<std::uint64_t> counts;
  std::uint64_t all = 0;
  for (std::size_t rank = 0; rank < place.rank_count; ++rank) {
    const std::int64_t count = is_equal ? call.source.count : call.counts[rank];
    if (count < 0) return left(Reason::undefined);
    counts.push_back(static_cast<std::uint64_t>(count));
    all = std::min(all + std::min(counts.back(), bytes_max()), bytes_max() + 1);
  }
  const Signature of_all = signature_of({.collective = call.collective,
                                         .source = call.source.address,
                                         .target = const_cast<void*>(call.target.address),
                                         .count = static_cast<std::int64_t>(all),
                                         .type = call.source.type,
                                         .op = call.op,
                                         .communicator = call.communicator});
  if (of_all.is_left) return left(of_all.reason);
  if (of_all.bytes > bytes_max()) return left(Reason::large);
  BlockSignature signature;
  signature.key = of_all.key;
  signature.bytes = of_all.bytes;
  signature.is_predefined = of_all.is_predefined;
  signature.is_laid_out = of_all.is_laid_out;
  // tutti may have several elements for one of MPI's.
  const std::uint64_t elements = of_all.bytes / of_all.key.element_bytes;
  const std::uint64_t per_element = elements / all;
  if (is_equal) {
    signature.key.element_count = counts[place.rank] * per_element;
    return signature;
  }
  for (const std::uint64_t count : counts) signature.blocks.push_back(count * per_element);
  signature.key.element_count = elements;
  signature.key.blocks_digest = digest_of(signature.blocks);
  return signature;
}

}  // namespace

bool is_dense(MPI_Datatype type) {
  const PredefinedType* const predefined = find_type(type);
  return predefined != nullptr && predefined->kind != Kind::pair;
}

BlockSignature signature_of(const BlockCall& call, const Place& place) {
  BlockSignature signature =
      call.collective == Collective::allgatherv ? signature_of_allgatherv(call, place)
      : is_reduction(call.collective)           ? signature_of_reduce_scatter(call, place)
                                                : signature_of_equal_blocks(call, place);
  signature.key.collective = call.collective;
  if (has_root(call.collective)) signature.key.root = call.root;
  return signature;
}

std::uint64_t payload_of(const BlockCall& call) {
  const BlockBuffer& block = call.source.address == MPI_IN_PLACE ? call.target : call.source;
  const std::optional<std::uint64_t> bytes = bytes_of(block);
  return bytes && *bytes != too_many ? *bytes : 0;
}

}  // namespace tutti::interposer
