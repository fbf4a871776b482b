#include <tutti/collectives.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "api/implementation.hpp"
#include "api/selection.hpp"
#include "plan/scan.hpp"

namespace tutti {
namespace {

/// Of a collective that combines; `has_target`: on this rank.
struct Combination {
  const char* collective;
  const void* source;
  const void* target;
  std::size_t element_count;
  const Reduction& reduction;
  bool has_target = true;
};

void check_arguments(const Combination& given, CheckLevel level) {
  const std::string name = std::string(given.collective) + ": ";
  const Reduction& reduction = given.reduction;
  if (reduction.combine == nullptr || reduction.element_bytes == 0)
    throw Error(ErrorCode::invalid_argument,
                name +
                    "the reduction has no combine function or element_bytes is 0; use "
                    "tutti::sum and friends, elementwise<>(), or fill in both");
  if (given.element_count > std::numeric_limits<std::size_t>::max() / 4 / reduction.element_bytes)
    throw Error(ErrorCode::invalid_argument,
                name + std::to_string(given.element_count) + " elements of " +
                    std::to_string(reduction.element_bytes) + " bytes do not fit into memory");
  if (level == CheckLevel::off || given.element_count == 0) return;
  if (given.source == nullptr || (given.has_target && given.target == nullptr))
    throw Error(ErrorCode::invalid_argument, name + "source or target is null");
  if (!given.has_target) return;
  const auto* source = static_cast<const std::byte*>(given.source);
  const auto* target = static_cast<const std::byte*>(given.target);
  const std::size_t bytes = given.element_count * reduction.element_bytes;
  if (source != target && source < target + bytes && target < source + bytes)
    throw Error(ErrorCode::invalid_argument,
                name + "source and target overlap; they may be equal or apart");
}

void check_root(const char* collective, Rank root, std::uint32_t rank_count) {
  if (index_of(root) >= rank_count)
    throw Error(ErrorCode::invalid_argument,
                std::string(collective) + ": root " + std::to_string(index_of(root)) +
                    ": expected a rank, 0 .. " + std::to_string(rank_count - 1));
}

void check_fraction(const char* collective, const char* name, double fraction) {
  if (fraction > 0 && fraction <= 1) return;
  throw Error(ErrorCode::invalid_argument, std::string(collective) + ": " + name + " " +
                                               std::to_string(fraction) +
                                               ": expected more than 0 and at most 1");
}

/// The least part of `whole` that is no less than the fraction of it; rounding is no part of it.
std::size_t share_of(double fraction, std::size_t whole) {
  if (!(fraction > 0) || fraction >= 1) return whole;
  const auto all = static_cast<double>(whole);
  auto part = static_cast<std::size_t>(std::ceil(fraction * all));
  while (part > 1 && static_cast<double>(part - 1) / all >= fraction) --part;
  return std::min(part, whole);
}

}  // namespace

void detail::refuse(Communicator& communicator, const char* collective, const char* why) {
  const Error error(ErrorCode::invalid_argument, std::string(collective) + ": " + why);
  (void)api::make_operation(communicator, {.collective = collective},
                            [&]() -> plan::Plan { throw error; });
  throw error;
}

Operation barrier(Communicator& communicator, const BarrierArguments& arguments) {
  const Communicator::Implementation& ranks = communicator.implementation();
  return api::make_operation(communicator, {.collective = "barrier"}, [&] {
    return api::barrier_plan(communicator.rank(), communicator.rank_count(),
                             {.algorithm = arguments.algorithm,
                              .across = arguments.across,
                              .per_round = arguments.per_round,
                              .per_round_by_default = ranks.context.settings.per_round,
                              .node_of = ranks.neighbours.nodes.node});
  });
}

Operation allreduce(Communicator& communicator, const AllreduceArguments& arguments) {
  const Communicator::Implementation& ranks = communicator.implementation();
  const Context::Implementation& context = ranks.context;
  const api::AllreduceRequest asked{.element_count = arguments.element_count,
                                    .reduction = arguments.reduction,
                                    .agreement = arguments.agreement,
                                    .algorithm = arguments.algorithm,
                                    .across = arguments.across,
                                    .per_round = arguments.per_round,
                                    .per_round_by_default = context.settings.per_round,
                                    .partners_max = context.fabric.connections_max(),
                                    .node_of = ranks.neighbours.nodes.node};
  const api::OperationRequest request{.collective = "allreduce",
                                      .element_count = arguments.element_count,
                                      .reduction = arguments.reduction,
                                      .agreement = arguments.agreement,
                                      .source = arguments.source,
                                      .target = arguments.target,
                                      .any_order = api::takes_any_order(asked),
                                      .shared_ring = arguments.algorithm == Algorithm::shared_ring};
  return api::make_operation(communicator, request, [&] {
    check_arguments({.collective = "allreduce",
                     .source = arguments.source,
                     .target = arguments.target,
                     .element_count = arguments.element_count,
                     .reduction = arguments.reduction},
                    context.settings.check);
    if (!request.shared_ring)
      return api::allreduce_plan(communicator.rank(), communicator.rank_count(), asked);
    if (context.clock.is_simulated())
      throw Error(ErrorCode::unsupported,
                  "allreduce: algorithm shared_ring polls words in memory, and in virtual time "
                  "only messages let time pass; use ring");
    return api::shared_ring_partners(communicator.rank(), communicator.rank_count(), asked);
  });
}

Operation allreduce_ssp(Communicator& communicator, const AllreduceSspArguments& arguments) {
  const Communicator::Implementation& ranks = communicator.implementation();
  const api::OperationRequest request{.collective = "allreduce_ssp",
                                      .element_count = arguments.element_count,
                                      .reduction = arguments.reduction,
                                      .agreement = Agreement::relaxed,
                                      .source = arguments.source,
                                      .target = arguments.target,
                                      .slack = arguments.slack};
  return api::make_operation(communicator, request, [&] {
    check_arguments({.collective = "allreduce_ssp",
                     .source = arguments.source,
                     .target = arguments.target,
                     .element_count = arguments.element_count,
                     .reduction = arguments.reduction},
                    ranks.context.settings.check);
    if (!arguments.reduction.properties.commutative)
      throw Error(ErrorCode::unsupported,
                  "allreduce_ssp: the operator does not commute; use allreduce");
    return api::stale_plan(communicator.rank(), communicator.rank_count(),
                           arguments.element_count * arguments.reduction.element_bytes,
                           ranks.context.settings.per_round, arguments.slack);
  });
}

Operation broadcast(Communicator& communicator, const BroadcastArguments& arguments) {
  const Communicator::Implementation& ranks = communicator.implementation();
  const std::size_t element_bytes = std::max<std::size_t>(arguments.element_bytes, 1);
  const std::size_t elements = share_of(arguments.data_fraction, arguments.bytes / element_bytes);
  const std::size_t bytes = elements * element_bytes;
  const api::OperationRequest request{
      .collective = "broadcast",
      .element_count = elements,
      .reduction = {.element_bytes = static_cast<std::uint32_t>(element_bytes)},
      .source = arguments.buffer,
      .target = arguments.buffer,
      .root = arguments.root};
  return api::make_operation(communicator, request, [&] {
    check_root("broadcast", arguments.root, communicator.rank_count());
    check_fraction("broadcast", "data_fraction", arguments.data_fraction);
    if (arguments.element_bytes == 0 || arguments.bytes % element_bytes != 0 ||
        element_bytes > std::numeric_limits<std::uint32_t>::max())
      throw Error(ErrorCode::invalid_argument,
                  "broadcast: element_bytes " + std::to_string(arguments.element_bytes) +
                      ": expected a size of which " + std::to_string(arguments.bytes) +
                      " bytes are a multiple");
    if (ranks.context.settings.check != CheckLevel::off && arguments.bytes > 0 &&
        arguments.buffer == nullptr)
      throw Error(ErrorCode::invalid_argument, "broadcast: buffer is null");
    return api::broadcast_plan(
        communicator.rank(), communicator.rank_count(),
        {.root = arguments.root,
         .bytes = bytes,
         .per_round_by_default = ranks.context.settings.per_round,
         .node_of = ranks.neighbours.nodes.node,
         .single_copy = ranks.takes_single_copy(bytes, api::single_copy_broadcast_bytes_max)});
  });
}

Operation reduce(Communicator& communicator, const ReduceArguments& arguments) {
  const Communicator::Implementation& ranks = communicator.implementation();
  const std::size_t elements = share_of(arguments.data_fraction, arguments.element_count);
  const auto participants =
      static_cast<std::uint32_t>(share_of(arguments.rank_fraction, communicator.rank_count()));
  const api::AllreduceRequest asked{.element_count = elements,
                                    .reduction = arguments.reduction,
                                    .agreement = arguments.agreement,
                                    .per_round_by_default = ranks.context.settings.per_round};
  const api::OperationRequest request{.collective = "reduce",
                                      .element_count = elements,
                                      .reduction = arguments.reduction,
                                      .agreement = arguments.agreement,
                                      .source = arguments.source,
                                      .target = arguments.target,
                                      .root = arguments.root,
                                      .any_order = api::takes_any_order(asked),
                                      .participant_count = participants};
  return api::make_operation(communicator, request, [&] {
    check_root("reduce", arguments.root, communicator.rank_count());
    check_fraction("reduce", "data_fraction", arguments.data_fraction);
    check_fraction("reduce", "rank_fraction", arguments.rank_fraction);
    check_arguments({.collective = "reduce",
                     .source = arguments.source,
                     .target = arguments.target,
                     .element_count = arguments.element_count,
                     .reduction = arguments.reduction,
                     .has_target = communicator.rank() == arguments.root},
                    ranks.context.settings.check);
    return api::reduce_plan(communicator.rank(), communicator.rank_count(), arguments.root,
                            ranks.neighbours.nodes.node, asked,
                            ranks.takes_single_copy(elements * arguments.reduction.element_bytes,
                                                    api::single_copy_reduce_bytes_max),
                            participants);
  });
}

namespace {

Operation prefix(Communicator& communicator, const ScanArguments& arguments, const char* collective,
                 plan::Prefix kind) {
  const Communicator::Implementation& ranks = communicator.implementation();
  const api::OperationRequest request{.collective = collective,
                                      .element_count = arguments.element_count,
                                      .reduction = arguments.reduction,
                                      .source = arguments.source,
                                      .target = arguments.target};
  return api::make_operation(communicator, request, [&] {
    check_arguments(
        {.collective = collective,
         .source = arguments.source,
         .target = arguments.target,
         .element_count = arguments.element_count,
         .reduction = arguments.reduction,
         .has_target = kind == plan::Prefix::inclusive || communicator.rank() != Rank{0}},
        ranks.context.settings.check);
    return plan::doubling_scan(communicator.rank(), communicator.rank_count(), kind);
  });
}

}  // namespace

Operation scan(Communicator& communicator, const ScanArguments& arguments) {
  return prefix(communicator, arguments, "scan", plan::Prefix::inclusive);
}

Operation exscan(Communicator& communicator, const ScanArguments& arguments) {
  return prefix(communicator, arguments, "exscan", plan::Prefix::exclusive);
}

}  // namespace tutti
