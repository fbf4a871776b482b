#include <tutti/collectives.hpp>

#include <algorithm>
#include <limits>
#include <string>

#include "api/implementation.hpp"
#include "api/names.hpp"
#include "plan/dissemination.hpp"
#include "plan/per_round.hpp"
#include "plan/recursive_multiplying.hpp"
#include "plan/two_partial.hpp"

namespace tutti {
namespace {

std::string text_of(const std::vector<std::uint32_t>& vector) {
  std::string text;
  for (const std::uint32_t entry : vector)
    text += (text.empty() ? "" : ",") + std::to_string(entry);
  return text;
}

/// The caller's vector, else the context's; refused if it does not cover the ranks.  Empty: the
/// rule decides.
const plan::PerRound& vector_asked_for(const std::vector<std::uint32_t>& asked,
                                       const Context::Implementation& context,
                                       std::uint32_t rank_count) {
  const std::vector<std::uint32_t>& vector = asked.empty() ? context.settings.per_round : asked;
  if (vector.empty()) return vector;
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

plan::PerRound dissemination_per_round(const plan::PerRound& asked, std::uint32_t rank_count,
                                       std::size_t payload_bytes) {
  return asked.empty() ? plan::default_per_round(rank_count, payload_bytes) : asked;
}

/// Whether another order or association of the operands may give other bits.  Integer elements are
/// taken to be exact; what a user's operator does with elements of no known type is not known.
bool order_shows_in_bits(const Reduction& reduction) {
  if (reduction.built_in == BuiltIn::none)
    return is_floating(reduction.element_type) || reduction.element_type == ElementType::other;
  return is_floating(reduction.element_type) && reduction.built_in != BuiltIn::min &&
         reduction.built_in != BuiltIn::max;
}

plan::Plan allreduce_plan(const AllreduceArguments& arguments, Rank self, std::uint32_t rank_count,
                          const plan::PerRound& asked) {
  const Reduction& reduction = arguments.reduction;
  const std::size_t bytes = arguments.element_count * reduction.element_bytes;
  if (order_shows_in_bits(reduction) && arguments.agreement == Agreement::identical)
    return plan::recursive_multiplying_allreduce(
        self, rank_count,
        asked.empty() ? plan::per_round_for_recursive_multiplying(rank_count, bytes)
                      : plan::per_round_for_recursive_multiplying(rank_count, bytes, asked));
  const plan::PerRound per_round = dissemination_per_round(asked, rank_count, bytes);
  if (reduction.properties.commutative && reduction.properties.idempotent)
    return plan::dissemination_allreduce(self, rank_count, per_round);
  return plan::two_partial_allreduce(
      self, rank_count, per_round,
      reduction.properties.commutative ? plan::Order::commutative : plan::Order::rank_order);
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
  if (order_shows_in_bits(reduction) && arguments.agreement == Agreement::reproducible)
    throw Error(ErrorCode::unsupported,
                std::string("allreduce: agreement reproducible is not offered for ") +
                    api::name_of(reduction.built_in) + " of " +
                    api::name_of(reduction.element_type) +
                    ": the bits depend on the number of messages per round; ask for "
                    "Agreement::identical (the same bits on all ranks) or Agreement::relaxed, or "
                    "use integers, min or max");
}

}  // namespace

Operation barrier(Communicator& communicator, const BarrierArguments& arguments) {
  const Communicator::Implementation& inside = communicator.implementation();
  return api::make_operation(communicator, {.collective = "barrier"}, [&] {
    const std::uint32_t rank_count = communicator.rank_count();
    return plan::dissemination_barrier(
        communicator.rank(), rank_count,
        dissemination_per_round(vector_asked_for(arguments.per_round, inside.context, rank_count),
                                rank_count, 0));
  });
}

Operation allreduce(Communicator& communicator, const AllreduceArguments& arguments) {
  const Communicator::Implementation& inside = communicator.implementation();
  const api::OperationRequest request{.collective = "allreduce",
                                      .element_count = arguments.element_count,
                                      .reduction = arguments.reduction,
                                      .agreement = arguments.agreement,
                                      .source = arguments.source,
                                      .target = arguments.target};
  return api::make_operation(communicator, request, [&] {
    check_arguments(arguments, inside.context.settings.check);
    const std::uint32_t rank_count = communicator.rank_count();
    return allreduce_plan(arguments, communicator.rank(), rank_count,
                          vector_asked_for(arguments.per_round, inside.context, rank_count));
  });
}

}  // namespace tutti
