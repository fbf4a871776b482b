// The C interface: making operations.
#include <algorithm>
#include <bit>
#include <span>
#include <tutti/exact_sum.hpp>

#include "api/c_api.hpp"

using namespace tutti;
using namespace tutti::api;

static_assert(TUTTI_BFLOAT16 == static_cast<int>(ElementType::bfloat16));
static_assert(TUTTI_DOUBLE == static_cast<int>(ElementType::float64));
static_assert(TUTTI_UINT64 == static_cast<int>(ElementType::uint64));
static_assert(TUTTI_SUM == static_cast<int>(BuiltIn::sum));
static_assert(TUTTI_MAX == static_cast<int>(BuiltIn::max));
static_assert(TUTTI_LOGICAL_OR == static_cast<int>(BuiltIn::logical_or));
static_assert(TUTTI_REPRODUCIBLE == static_cast<int>(Agreement::reproducible));
static_assert(TUTTI_RELAXED == static_cast<int>(Agreement::relaxed));
static_assert(TUTTI_ALGORITHM_NWAY == static_cast<int>(Algorithm::nway));
static_assert(TUTTI_ALGORITHM_RING == static_cast<int>(Algorithm::ring));
static_assert(TUTTI_ALGORITHM_CANONICAL_HALVING == static_cast<int>(Algorithm::canonical_halving));
static_assert(TUTTI_ACROSS_LANES == static_cast<int>(Across::lanes));
static_assert(TUTTI_TREE_FIBONACCI == static_cast<int>(Tree::fibonacci));

namespace tutti::api {
namespace {

/// Makes an operation from the C++ arguments that `read` returns for the C ones.  If `read` throws,
/// the call is refused on every rank.
template <class Given, class Read,
          class Arguments = std::invoke_result_t<Read, const Given&, std::uint32_t>>
tutti_status make(const char* collective, tutti_communicator* communicator, const Given* given,
                  tutti_operation** operation, tutti_failure* failure, Read read,
                  Operation (*factory)(Communicator&, const std::type_identity_t<Arguments>&)) {
  if (operation != nullptr) *operation = nullptr;  // whatever else is wrong
  return detail::at_c_boundary(failure, [&] {
    if (communicator == nullptr) refuse("communicator", "NULL", "one that was made");
    Communicator& ranks = communicator->value;
    Arguments arguments;
    try {
      need_place(operation, "operation");
      arguments = read(known_part(given, "arguments"), ranks.rank_count());
    } catch (const std::exception& error) {
      detail::refuse(ranks, collective, error.what());
    }
    *operation = new tutti_operation{.value = factory(ranks, arguments)};
  });
}

Reduction reduction_of(const tutti_reduction& given) {
  require_reserved(given.reserved);
  const auto which = enumerator_of("reduction.which", given.which, BuiltIn::logical_or);
  const auto type = enumerator_of("reduction.type", given.type, ElementType::bfloat16);
  if (which != BuiltIn::none) {
    if (given.combine != nullptr)
      refuse("reduction.which", std::to_string(given.which), "TUTTI_USER with a combine function");
    if (type == ElementType::other)
      refuse("reduction.type", "0", "the type of the elements, TUTTI_INT32 .. TUTTI_BFLOAT16");
    return built_in_reduction(which, type);
  }
  if (given.combine == nullptr)
    refuse("reduction.which", "0 (TUTTI_USER)",
           "an operator, TUTTI_SUM .. TUTTI_LOGICAL_OR, or a combine function");
  if (given.element_bytes < 1 || given.element_bytes > UINT32_MAX)
    refuse("reduction.element_bytes", std::to_string(given.element_bytes), "1 .. 4294967295");
  // An exception that leaves them ends the program, by the first caller that must not throw.
  return {.combine = reinterpret_cast<CombineFunction>(given.combine),
          .inverse = reinterpret_cast<CombineFunction>(given.inverse),
          .context = given.context,
          .element_bytes = static_cast<std::uint32_t>(given.element_bytes),
          .properties = {.commutative = truth_of("reduction.commutative", given.commutative),
                         .idempotent = truth_of("reduction.idempotent", given.idempotent),
                         .exact = truth_of("reduction.exact", given.exact)},
          .element_type = type};
}

Algorithm algorithm_of(std::int32_t value) {
  return enumerator_of("algorithm", value, Algorithm::canonical_halving);
}
Across across_of(std::int32_t value) {
  return enumerator_of("across", value, Across::lanes);
}
Tree tree_of(std::int32_t value) {
  return enumerator_of("tree", value, Tree::fibonacci);
}
Agreement agreement_of(std::int32_t value) {
  return enumerator_of("agreement", value, Agreement::relaxed);
}
double fraction_of(double value) {
  return value == 0 ? 1 : value;  // others that cannot be are refused by the collective
}

BlockLayout layout_of(const std::string& name, const tutti_block_layout& given,
                      std::uint32_t rank_count) {
  BlockLayout layout;
  layout.bytes = sizes_of(name + ".bytes", given.bytes, rank_count);
  if (given.offsets != nullptr)
    layout.offsets = sizes_of(name + ".offsets", given.offsets, rank_count);
  return layout;
}

/// Checks the root's buffer; the others need none.
BlockLayout layout_at(Rank root, const Communicator& communicator,
                      const tutti_block_layout& given) {
  if (communicator.rank() != root) return {};
  return layout_of("blocks", given, communicator.rank_count());
}

ScanArguments scan_arguments(const tutti_scan_arguments& given, std::uint32_t) {
  return {.source = given.source,
          .target = given.target,
          .element_count = size_of("element_count", given.element_count),
          .reduction = reduction_of(given.reduction)};
}

AllgatherArguments allgather_arguments(const tutti_allgather_arguments& given, std::uint32_t) {
  require_reserved(given.reserved);
  return {.source = given.source,
          .target = given.target,
          .bytes = size_of("bytes", given.bytes),
          .algorithm = algorithm_of(given.algorithm)};
}

AlltoallArguments alltoall_arguments(const tutti_alltoall_arguments& given, std::uint32_t) {
  require_reserved(given.reserved);
  if (given.algorithm != 0)
    refuse("algorithm", std::to_string(given.algorithm), "0: an alltoall has none by name");
  return {.source = given.source, .target = given.target, .bytes = size_of("bytes", given.bytes)};
}

/// The arguments of a gather or scatter.
template <class Arguments>
Arguments equal_blocks_of_root(const tutti_gather_arguments& given, std::uint32_t rank_count) {
  require_reserved(given.reserved);
  return {.source = given.source,
          .target = given.target,
          .bytes = size_of("bytes", given.bytes),
          .root = rank_of("root", given.root, rank_count)};
}

}  // namespace
}  // namespace tutti::api

tutti_status tutti_barrier_init(tutti_communicator* communicator,
                                const tutti_barrier_arguments* arguments,
                                tutti_operation** operation, tutti_failure* failure) {
  constexpr tutti_barrier_arguments defaults = {sizeof defaults, {}, 0, 0};
  return make(
      "barrier", communicator, arguments == nullptr ? &defaults : arguments, operation, failure,
      [](const tutti_barrier_arguments& given, std::uint32_t) {
        return BarrierArguments{.per_round = counts_of("per_round", given.per_round),
                                .algorithm = algorithm_of(given.algorithm),
                                .across = across_of(given.across)};
      },
      barrier);
}

tutti_status tutti_allreduce_init(tutti_communicator* communicator,
                                  const tutti_allreduce_arguments* arguments,
                                  tutti_operation** operation, tutti_failure* failure) {
  return make(
      "allreduce", communicator, arguments, operation, failure,
      [](const tutti_allreduce_arguments& given, std::uint32_t) {
        require_reserved(given.reserved);
        return AllreduceArguments{.source = given.source,
                                  .target = given.target,
                                  .element_count = size_of("element_count", given.element_count),
                                  .reduction = reduction_of(given.reduction),
                                  .agreement = agreement_of(given.agreement),
                                  .per_round = counts_of("per_round", given.per_round),
                                  .algorithm = algorithm_of(given.algorithm),
                                  .across = across_of(given.across)};
      },
      allreduce);
}

tutti_status tutti_allreduce_ssp_init(tutti_communicator* communicator,
                                      const tutti_allreduce_ssp_arguments* arguments,
                                      tutti_operation** operation, tutti_failure* failure) {
  return make(
      "allreduce_ssp", communicator, arguments, operation, failure,
      [](const tutti_allreduce_ssp_arguments& given, std::uint32_t) {
        require_reserved(given.reserved);
        return AllreduceSspArguments{
            .source = given.source,
            .target = given.target,
            .element_count = size_of("element_count", given.element_count),
            .reduction = reduction_of(given.reduction),
            .slack = static_cast<std::uint32_t>(size_of("slack", given.slack))};
      },
      allreduce_ssp);
}

tutti_status tutti_broadcast_init(tutti_communicator* communicator,
                                  const tutti_broadcast_arguments* arguments,
                                  tutti_operation** operation, tutti_failure* failure) {
  return make(
      "broadcast", communicator, arguments, operation, failure,
      [](const tutti_broadcast_arguments& given, std::uint32_t rank_count) {
        const std::size_t element_bytes = size_of("element_bytes", given.element_bytes);
        return BroadcastArguments{.buffer = given.buffer,
                                  .bytes = size_of("bytes", given.bytes),
                                  .root = rank_of("root", given.root, rank_count),
                                  .data_fraction = fraction_of(given.data_fraction),
                                  .element_bytes = std::max<std::size_t>(element_bytes, 1),
                                  .tree = tree_of(given.tree)};
      },
      broadcast);
}

tutti_status tutti_reduce_init(tutti_communicator* communicator,
                               const tutti_reduce_arguments* arguments, tutti_operation** operation,
                               tutti_failure* failure) {
  return make(
      "reduce", communicator, arguments, operation, failure,
      [](const tutti_reduce_arguments& given, std::uint32_t rank_count) {
        require_reserved(given.reserved);
        return ReduceArguments{.source = given.source,
                               .target = given.target,
                               .element_count = size_of("element_count", given.element_count),
                               .reduction = reduction_of(given.reduction),
                               .root = rank_of("root", given.root, rank_count),
                               .agreement = agreement_of(given.agreement),
                               .data_fraction = fraction_of(given.data_fraction),
                               .rank_fraction = fraction_of(given.rank_fraction),
                               .tree = tree_of(given.tree)};
      },
      reduce);
}

tutti_status tutti_scan_init(tutti_communicator* communicator,
                             const tutti_scan_arguments* arguments, tutti_operation** operation,
                             tutti_failure* failure) {
  return make("scan", communicator, arguments, operation, failure, scan_arguments, scan);
}

tutti_status tutti_exscan_init(tutti_communicator* communicator,
                               const tutti_scan_arguments* arguments, tutti_operation** operation,
                               tutti_failure* failure) {
  return make("exscan", communicator, arguments, operation, failure, scan_arguments, exscan);
}

tutti_status tutti_allgather_init(tutti_communicator* communicator,
                                  const tutti_allgather_arguments* arguments,
                                  tutti_operation** operation, tutti_failure* failure) {
  return make("allgather", communicator, arguments, operation, failure, allgather_arguments,
              allgather);
}

tutti_status tutti_alltoall_init(tutti_communicator* communicator,
                                 const tutti_alltoall_arguments* arguments,
                                 tutti_operation** operation, tutti_failure* failure) {
  return make("alltoall", communicator, arguments, operation, failure, alltoall_arguments,
              alltoall);
}

tutti_status tutti_allgatherv_init(tutti_communicator* communicator,
                                   const tutti_allgatherv_arguments* arguments,
                                   tutti_operation** operation, tutti_failure* failure) {
  return make(
      "allgatherv", communicator, arguments, operation, failure,
      [](const tutti_allgatherv_arguments& given, std::uint32_t rank_count) {
        require_reserved(given.reserved);
        return AllgathervArguments{.source = given.source,
                                   .target = given.target,
                                   .blocks = layout_of("blocks", given.blocks, rank_count),
                                   .algorithm = algorithm_of(given.algorithm)};
      },
      allgatherv);
}

tutti_status tutti_alltoallv_init(tutti_communicator* communicator,
                                  const tutti_alltoallv_arguments* arguments,
                                  tutti_operation** operation, tutti_failure* failure) {
  return make(
      "alltoallv", communicator, arguments, operation, failure,
      [](const tutti_alltoallv_arguments& given, std::uint32_t rank_count) {
        return AlltoallvArguments{
            .source = given.source,
            .source_blocks = layout_of("source_blocks", given.source_blocks, rank_count),
            .target = given.target,
            .target_blocks = layout_of("target_blocks", given.target_blocks, rank_count)};
      },
      alltoallv);
}

tutti_status tutti_gather_init(tutti_communicator* communicator,
                               const tutti_gather_arguments* arguments, tutti_operation** operation,
                               tutti_failure* failure) {
  return make("gather", communicator, arguments, operation, failure,
              equal_blocks_of_root<GatherArguments>, gather);
}

tutti_status tutti_scatter_init(tutti_communicator* communicator,
                                const tutti_scatter_arguments* arguments,
                                tutti_operation** operation, tutti_failure* failure) {
  return make("scatter", communicator, arguments, operation, failure,
              equal_blocks_of_root<ScatterArguments>, scatter);
}

tutti_status tutti_gatherv_init(tutti_communicator* communicator,
                                const tutti_gatherv_arguments* arguments,
                                tutti_operation** operation, tutti_failure* failure) {
  return make(
      "gatherv", communicator, arguments, operation, failure,
      [&](const tutti_gatherv_arguments& given, std::uint32_t rank_count) {
        require_reserved(given.reserved);
        const Rank root = rank_of("root", given.root, rank_count);
        return GathervArguments{.source = given.source,
                                .bytes = size_of("bytes", given.bytes),
                                .target = given.target,
                                .blocks = layout_at(root, communicator->value, given.blocks),
                                .root = root};
      },
      gatherv);
}

tutti_status tutti_scatterv_init(tutti_communicator* communicator,
                                 const tutti_scatterv_arguments* arguments,
                                 tutti_operation** operation, tutti_failure* failure) {
  return make(
      "scatterv", communicator, arguments, operation, failure,
      [&](const tutti_scatterv_arguments& given, std::uint32_t rank_count) {
        require_reserved(given.reserved);
        const Rank root = rank_of("root", given.root, rank_count);
        return ScattervArguments{.source = given.source,
                                 .blocks = layout_at(root, communicator->value, given.blocks),
                                 .target = given.target,
                                 .bytes = size_of("bytes", given.bytes),
                                 .root = root};
      },
      scatterv);
}

tutti_status tutti_reduce_scatter_init(tutti_communicator* communicator,
                                       const tutti_reduce_scatter_arguments* arguments,
                                       tutti_operation** operation, tutti_failure* failure) {
  return make(
      "reduce_scatter", communicator, arguments, operation, failure,
      [](const tutti_reduce_scatter_arguments& given, std::uint32_t rank_count) {
        return ReduceScatterArguments{
            .source = given.source,
            .target = given.target,
            .element_counts = sizes_of("element_counts", given.element_counts, rank_count),
            .reduction = reduction_of(given.reduction),
            .agreement = agreement_of(given.agreement),
            .algorithm = algorithm_of(given.algorithm)};
      },
      reduce_scatter);
}

// ---- Exact sums ---------------------------------------------------------------------------------

static_assert(sizeof(tutti_exact_sum) == sizeof(ExactSum));

namespace tutti::api {
namespace {

ExactSum sum_of(const tutti_exact_sum* given) noexcept {
  return std::bit_cast<ExactSum>(*given);
}

/// Adds to the sum that the caller has, whose type is another one than the library's.
template <class... Values>
void add_to(tutti_exact_sum* into, const Values&... values) noexcept {
  ExactSum whole = sum_of(into);
  whole.add(values...);
  *into = std::bit_cast<tutti_exact_sum>(whole);
}

}  // namespace
}  // namespace tutti::api

void tutti_exact_sum_add(tutti_exact_sum* into, const double* values, size_t count) {
  add_to(into, std::span(values, count));
}

void tutti_exact_sum_add_floats(tutti_exact_sum* into, const float* values, size_t count) {
  add_to(into, std::span(values, count));
}

void tutti_exact_sum_add_products(tutti_exact_sum* into, const double* left, const double* right,
                                  size_t count) {
  ExactSum products;
  products.add_products({left, count}, {right, count});
  add_to(into, products);
}

void tutti_exact_sum_merge(tutti_exact_sum* into, const tutti_exact_sum* other) {
  add_to(into, sum_of(other));
}

double tutti_exact_sum_value(const tutti_exact_sum* given) {
  return sum_of(given).value();
}

float tutti_exact_sum_value_as_float(const tutti_exact_sum* given) {
  return sum_of(given).value_as_float();
}

void tutti_fail(void* context, const char* text) {
  tutti::fail(context, text);
}

tutti_reduction tutti_exact_addition(void) {
  const Reduction addition = exact_addition();
  return {.which = TUTTI_USER,
          .type = TUTTI_OTHER,
          .combine = reinterpret_cast<tutti_combine_function>(addition.combine),
          .inverse = nullptr,
          .context = nullptr,
          .element_bytes = addition.element_bytes,
          .commutative = 1,
          .idempotent = 0,
          .exact = 1,
          .reserved = 0};
}
