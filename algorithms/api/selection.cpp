#include "api/selection.hpp"

#include <algorithm>
#include <tutti/status.hpp>

#include "api/names.hpp"
#include "plan/dissemination.hpp"
#include "plan/recursive_multiplying.hpp"
#include "plan/two_partial.hpp"

namespace tutti::api {
namespace {

constexpr const char* takes_vector = "a vector that covers the ranks";
constexpr const char* takes_core = "a core, or upper bounds of its rounds";

constexpr Schedule schedules[] = {
    {Algorithm::dissemination, Agreement::relaxed, false, true, false, takes_vector},
    {Algorithm::two_partial, Agreement::relaxed, true, false, false, takes_vector},
    {Algorithm::recursive_multiplying, Agreement::identical, true, false, false, takes_core},
};

std::string text_of(const plan::PerRound& vector) {
  std::string text;
  for (const std::uint32_t entry : vector)
    text += (text.empty() ? "" : ",") + std::to_string(entry);
  return text;
}

/// How much an agreement promises.
int strength(Agreement agreement) {
  return agreement == Agreement::relaxed ? 0 : agreement == Agreement::identical ? 1 : 2;
}

bool serves(const Schedule& schedule, const AllreduceRequest& request) {
  const Reduction& reduction = request.reduction;
  if (schedule.needs_idempotent && !reduction.properties.idempotent) return false;
  if (!schedule.keeps_rank_order && !reduction.properties.commutative) return false;
  if (schedule.needs_inverse && reduction.inverse == nullptr) return false;
  return !order_shows_in_bits(reduction) ||
         strength(schedule.agreement) >= strength(request.agreement);
}

std::string why_not(const Schedule& schedule, const AllreduceRequest& request) {
  const Reduction& reduction = request.reduction;
  const std::string name = name_of(reduction.built_in);
  if (schedule.needs_idempotent && !reduction.properties.idempotent)
    return "lets contributions enter more than once, and " + name + " is not idempotent";
  if (!schedule.keeps_rank_order && !reduction.properties.commutative)
    return "does not keep rank order, and " + name + " does not commute";
  if (schedule.needs_inverse && reduction.inverse == nullptr)
    return "takes contributions out again, and " + name + " of " + name_of(reduction.element_type) +
           " has no inverse";
  return std::string("promises no more than ") + name_of(schedule.agreement) + " results for " +
         name + " of " + name_of(reduction.element_type) + ", and " + name_of(request.agreement) +
         " is asked for";
}

void require_service(const Schedule& schedule, const AllreduceRequest& request) {
  if (serves(schedule, request)) return;
  std::string others;
  for (const Schedule& other : schedules)
    if (serves(other, request))
      others += (others.empty() ? "" : ", ") + std::string(name_of(other.algorithm));
  throw Error(ErrorCode::unsupported,
              std::string("allreduce: algorithm ") + name_of(schedule.algorithm) + " " +
                  why_not(schedule, request) + "; use automatic, " + others);
}

/// Refuses a vector that does not cover the ranks.  An empty one is left to a rule.
void require_cover(const plan::PerRound& vector, std::uint32_t rank_count) {
  if (vector.empty()) return;
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
}

plan::PerRound covering(const plan::PerRound& asked, std::uint32_t rank_count,
                        std::size_t payload_bytes) {
  return asked.empty() ? plan::default_per_round(rank_count, payload_bytes) : asked;
}

plan::PerRound core(const plan::PerRound& asked, std::uint32_t rank_count,
                    std::size_t payload_bytes) {
  return asked.empty()
             ? plan::per_round_for_recursive_multiplying(rank_count, payload_bytes)
             : plan::per_round_for_recursive_multiplying(rank_count, payload_bytes, asked);
}

Algorithm rule(const AllreduceRequest& request) {
  const Reduction& reduction = request.reduction;
  if (order_shows_in_bits(reduction) && request.agreement != Agreement::relaxed)
    return Algorithm::recursive_multiplying;
  if (reduction.properties.commutative && reduction.properties.idempotent)
    return Algorithm::dissemination;
  return Algorithm::two_partial;
}

const Schedule& schedule_of(Algorithm algorithm) {
  return *std::find_if(std::begin(schedules), std::end(schedules),
                       [&](const Schedule& one) { return one.algorithm == algorithm; });
}

}  // namespace

std::span<const Schedule> allreduce_schedules() noexcept {
  return schedules;
}

bool order_shows_in_bits(const Reduction& reduction) noexcept {
  if (reduction.built_in == BuiltIn::none)
    return is_floating(reduction.element_type) || reduction.element_type == ElementType::other;
  return is_floating(reduction.element_type) && reduction.built_in != BuiltIn::min &&
         reduction.built_in != BuiltIn::max;
}

bool takes_any_order(const AllreduceRequest& request) noexcept {
  return request.reduction.properties.commutative &&
         (request.agreement == Agreement::relaxed || !order_shows_in_bits(request.reduction));
}

plan::Plan barrier_plan(Rank self, std::uint32_t rank_count, Algorithm algorithm,
                        const plan::PerRound& per_round) {
  if (algorithm != Algorithm::automatic && algorithm != Algorithm::dissemination)
    throw Error(ErrorCode::unsupported, std::string("barrier: algorithm ") + name_of(algorithm) +
                                            " is not offered; use automatic or dissemination");
  require_cover(per_round, rank_count);
  return plan::dissemination_barrier(self, rank_count, covering(per_round, rank_count, 0));
}

plan::Plan allreduce_plan(Rank self, std::uint32_t rank_count, const AllreduceRequest& request) {
  const std::size_t bytes = request.element_count * request.reduction.element_bytes;
  const plan::Order order =
      request.reduction.properties.commutative ? plan::Order::commutative : plan::Order::rank_order;
  const Schedule& schedule =
      schedule_of(request.algorithm == Algorithm::automatic ? rule(request) : request.algorithm);
  require_service(schedule, request);
  const plan::PerRound& asked = request.per_round;
  require_cover(asked, rank_count);
  switch (schedule.algorithm) {
    case Algorithm::dissemination:
      return plan::dissemination_allreduce(self, rank_count, covering(asked, rank_count, bytes));
    case Algorithm::recursive_multiplying:
      return plan::recursive_multiplying_allreduce(self, rank_count,
                                                   core(asked, rank_count, bytes));
    case Algorithm::automatic:
    case Algorithm::two_partial:
      break;
  }
  return plan::two_partial_allreduce(self, rank_count, covering(asked, rank_count, bytes), order);
}

}  // namespace tutti::api
