#include <tutti/collectives.hpp>

#include <limits>
#include <string>

#include "api/implementation.hpp"
#include "api/names.hpp"
#include "plan/dissemination.hpp"
#include "plan/per_round.hpp"
#include "plan/two_partial.hpp"

namespace tutti {
namespace {

std::string text_of(const std::vector<std::uint32_t>& vector) {
  std::string text;
  for (const std::uint32_t entry : vector)
    text += (text.empty() ? "" : ",") + std::to_string(entry);
  return text;
}

/// The caller's vector, else the context's, else the rule; refused if it does not cover the ranks.
plan::PerRound per_round_for(const std::vector<std::uint32_t>& asked,
                             const Context::Implementation& context, std::uint32_t rank_count,
                             std::size_t payload_bytes) {
  const std::vector<std::uint32_t>& vector = asked.empty() ? context.settings.per_round : asked;
  if (vector.empty()) return plan::default_per_round(rank_count, payload_bytes);
  std::uint32_t largest = 1;
  for (const std::uint32_t entry : vector) {
    if (entry == 0)
      throw Error(ErrorCode::invalid_argument,
                  "per_round " + text_of(vector) + ": every entry must be 1 or more");
    largest = std::max(largest, entry);
  }
  if (!plan::covers(rank_count, vector))
    throw Error(ErrorCode::invalid_argument,
                "per_round " + text_of(vector) + " does not cover " + std::to_string(rank_count) +
                    " ranks (the product of n+1 is too small); use " +
                    text_of(plan::nearest_covering(rank_count, largest)));
  if (!plan::is_executable(rank_count, vector))
    throw Error(ErrorCode::invalid_argument, "per_round " + text_of(vector) + " needs more than " +
                                                 std::to_string(plan::slots_max) +
                                                 " messages for " + std::to_string(rank_count) +
                                                 " ranks; use smaller entries");
  return vector;
}

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
  const bool order_shows_in_bits = is_floating(reduction.element_type) &&
                                   reduction.built_in != BuiltIn::min &&
                                   reduction.built_in != BuiltIn::max;
  if (order_shows_in_bits && arguments.agreement != Agreement::relaxed)
    throw Error(ErrorCode::unsupported,
                std::string("allreduce: agreement ") + api::name_of(arguments.agreement) +
                    " is not offered for " + api::name_of(reduction.built_in) + " of " +
                    api::name_of(reduction.element_type) +
                    ": ranks may differ in the last bits; ask for Agreement::relaxed, or use "
                    "integers, min or max");
}

}  // namespace

Operation barrier(Communicator& communicator, const BarrierArguments& arguments) {
  const Communicator::Implementation& inside = communicator.implementation();
  return api::make_operation(communicator, {.collective = "barrier"}, [&] {
    const std::uint32_t rank_count = communicator.rank_count();
    return plan::dissemination_barrier(
        communicator.rank(), rank_count,
        per_round_for(arguments.per_round, inside.context, rank_count, 0));
  });
}

Operation allreduce(Communicator& communicator, const AllreduceArguments& arguments) {
  const Communicator::Implementation& inside = communicator.implementation();
  const Reduction& reduction = arguments.reduction;
  const api::OperationRequest request{.collective = "allreduce",
                                      .element_count = arguments.element_count,
                                      .reduction = reduction,
                                      .agreement = arguments.agreement,
                                      .source = arguments.source,
                                      .target = arguments.target};
  return api::make_operation(communicator, request, [&] {
    check_arguments(arguments, inside.context.settings.check);
    const std::uint32_t rank_count = communicator.rank_count();
    const plan::PerRound per_round =
        per_round_for(arguments.per_round, inside.context, rank_count,
                      arguments.element_count * reduction.element_bytes);
    if (reduction.properties.commutative && reduction.properties.idempotent)
      return plan::dissemination_allreduce(communicator.rank(), rank_count, per_round);
    return plan::two_partial_allreduce(
        communicator.rank(), rank_count, per_round,
        reduction.properties.commutative ? plan::Order::commutative : plan::Order::rank_order);
  });
}

}  // namespace tutti
