#include <tutti/collectives.hpp>

#include <algorithm>
#include <limits>
#include <string>

#include "api/implementation.hpp"
#include "api/selection.hpp"

namespace tutti {
namespace {

void check_arguments(const AllreduceArguments& arguments, CheckLevel level) {
  const Reduction& reduction = arguments.reduction;
  if (reduction.combine == nullptr || reduction.element_bytes == 0)
    throw Error(ErrorCode::invalid_argument,
                "allreduce: the reduction has no combine function or element_bytes is 0; use "
                "tutti::sum and friends, elementwise<>(), or fill in both");
  if (arguments.element_count >
      std::numeric_limits<std::size_t>::max() / 4 / reduction.element_bytes)
    throw Error(ErrorCode::invalid_argument,
                "allreduce: " + std::to_string(arguments.element_count) + " elements of " +
                    std::to_string(reduction.element_bytes) + " bytes do not fit into memory");
  if (level != CheckLevel::off && arguments.element_count > 0 &&
      (arguments.source == nullptr || arguments.target == nullptr))
    throw Error(ErrorCode::invalid_argument, "allreduce: source or target is null");
  if (level != CheckLevel::off && arguments.element_count > 0) {
    const auto* source = static_cast<const std::byte*>(arguments.source);
    const auto* target = static_cast<const std::byte*>(arguments.target);
    const std::size_t bytes = arguments.element_count * reduction.element_bytes;
    if (source != target && source < target + bytes && target < source + bytes)
      throw Error(ErrorCode::invalid_argument,
                  "allreduce: source and target overlap; they may be equal or apart");
  }
}

}  // namespace

Operation barrier(Communicator& communicator, const BarrierArguments& arguments) {
  const Context::Implementation& context = communicator.implementation().context;
  const std::vector<std::uint32_t>& per_round =
      arguments.per_round.empty() ? context.settings.per_round : arguments.per_round;
  return api::make_operation(communicator, {.collective = "barrier"}, [&] {
    return api::barrier_plan(communicator.rank(), communicator.rank_count(), arguments.algorithm,
                             per_round);
  });
}

Operation allreduce(Communicator& communicator, const AllreduceArguments& arguments) {
  const Context::Implementation& context = communicator.implementation().context;
  const api::AllreduceRequest asked{.element_count = arguments.element_count,
                                    .reduction = arguments.reduction,
                                    .agreement = arguments.agreement,
                                    .algorithm = arguments.algorithm,
                                    .per_round = arguments.per_round,
                                    .per_round_by_default = context.settings.per_round,
                                    .partners_max = context.fabric.connections_max()};
  const api::OperationRequest request{.collective = "allreduce",
                                      .element_count = arguments.element_count,
                                      .reduction = arguments.reduction,
                                      .agreement = arguments.agreement,
                                      .source = arguments.source,
                                      .target = arguments.target,
                                      .any_order = api::takes_any_order(asked)};
  return api::make_operation(communicator, request, [&] {
    check_arguments(arguments, context.settings.check);
    return api::allreduce_plan(communicator.rank(), communicator.rank_count(), asked);
  });
}

}  // namespace tutti
