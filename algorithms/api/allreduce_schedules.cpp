#include "api/allreduce_schedules.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <string>
#include <tutti/status.hpp>
#include <vector>

#include "api/asked_per_round.hpp"
#include "api/assumed_network.hpp"
#include "api/names.hpp"
#include "plan/allreduce/canonical_halving.hpp"
#include "plan/allreduce/chunked_fold.hpp"
#include "plan/allreduce/circulant.hpp"
#include "plan/allreduce/gather_fold.hpp"
#include "plan/allreduce/lanes.hpp"
#include "plan/allreduce/recursive_multiplying.hpp"
#include "plan/allreduce/two_partial.hpp"

namespace tutti::api {
namespace {

constexpr Schedule schedules[] = {
    {.algorithm = Algorithm::dissemination, .keeps_rank_order = false, .needs_idempotent = true},
    {.algorithm = Algorithm::two_partial},
    {.algorithm = Algorithm::recursive_multiplying,
     .agreement = Agreement::identical,
     .takes = PerRoundIs::core},
    {.algorithm = Algorithm::nway, .takes = PerRoundIs::uniform},
    {.algorithm = Algorithm::nway_inverse,
     .keeps_rank_order = false,
     .needs_inverse = true,
     .takes = PerRoundIs::uniform},
    {.algorithm = Algorithm::decomposition, .takes = PerRoundIs::uniform},
    {.algorithm = Algorithm::decomposition_digits, .takes = PerRoundIs::uniform},
    {.algorithm = Algorithm::gather_fold, .agreement = Agreement::reproducible},
    {.algorithm = Algorithm::canonical_dissemination, .agreement = Agreement::reproducible},
    {.algorithm = Algorithm::chunked_fold,
     .agreement = Agreement::reproducible,
     .takes = PerRoundIs::nothing},
    {.algorithm = Algorithm::ring,
     .agreement = Agreement::identical,
     .keeps_rank_order = false,
     .takes = PerRoundIs::nothing},
    {.algorithm = Algorithm::rabenseifner,
     .agreement = Agreement::identical,
     .takes = PerRoundIs::nothing},
    {.algorithm = Algorithm::circulant,
     .agreement = Agreement::identical,
     .keeps_rank_order = false,
     .takes = PerRoundIs::nothing},
    {.algorithm = Algorithm::canonical_halving,
     .agreement = Agreement::reproducible,
     .takes = PerRoundIs::nothing},
};

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

std::uint64_t priced_bytes(const AllreduceRequest& request) {
  return api::priced_bytes(payload_bytes_of(request));
}

struct Priced {
  Algorithm algorithm;
  plan::Picoseconds cost;
};

/// The cheaper of the two disseminations along the canonical tree.
Priced dissemination_along_the_tree(const AllreduceRequest& request, std::uint32_t rank_count) {
  const std::uint64_t bytes = priced_bytes(request);
  const plan::PerRound vector =
      covering(vector_for(schedule_of(Algorithm::canonical_dissemination), request), rank_count,
               payload_bytes_of(request));
  const bool gathers = plan::is_gather_fold(rank_count, vector);
  plan::Picoseconds blocks = 0, contributions = 0;
  for (const plan::Round& one : plan::two_partial_rounds(rank_count, vector)) {
    // In the mean; counted.
    const auto blocks_of_message = 1u + static_cast<std::uint32_t>(std::bit_width(one.length)) / 2;
    blocks += round_cost(one.messages, std::min(one.length, blocks_of_message), bytes);
    if (gathers) contributions += round_cost(one.messages, one.length, bytes);
  }
  if (gathers && contributions <= blocks) return {Algorithm::gather_fold, contributions};
  return {Algorithm::canonical_dissemination, blocks};
}

/// Recursive multiplying, whose rounds are as few as can be where the ranks are a product.  Where
/// they have to be folded, the canonical tree may take fewer.
Priced identical_rule(const AllreduceRequest& request, std::uint32_t rank_count) {
  const plan::PerRound product =
      core(vector_for(schedule_of(Algorithm::recursive_multiplying), request), rank_count,
           payload_bytes_of(request));
  const plan::PerRound rounds = plan::recursive_multiplying_rounds(rank_count, product);
  const bool factors = rounds.size() == product.size();
  plan::Picoseconds cost = 0;
  for (std::size_t i = 0; i < rounds.size(); ++i)
    cost += round_cost(rounds[i], 1, priced_bytes(request), factors || i + 1 < rounds.size());
  const Priced product_rule{Algorithm::recursive_multiplying, cost};
  if (factors) return product_rule;
  const Priced tree = dissemination_along_the_tree(request, rank_count);
  return tree.cost < cost ? tree : product_rule;
}

/// Two-partial dissemination, or without trimming where contributions may enter twice.
Priced relaxed_rule(const AllreduceRequest& request, std::uint32_t rank_count) {
  const Reduction& reduction = request.reduction;
  const bool may_repeat = reduction.properties.commutative && reduction.properties.idempotent;
  const Algorithm algorithm = may_repeat ? Algorithm::dissemination : Algorithm::two_partial;
  plan::Picoseconds cost = 0;
  const std::uint64_t payloads = reduction.properties.commutative ? 1 : 2;
  for (const plan::Round& round :
       plan::two_partial_rounds(rank_count, covering(vector_for(schedule_of(algorithm), request),
                                                     rank_count, payload_bytes_of(request))))
    cost += round_cost(round.messages, payloads, priced_bytes(request));
  return {algorithm, cost};
}

plan::Picoseconds cost_of_chunked_fold(const AllreduceRequest& request, std::uint32_t rank_count) {
  const std::uint64_t part = (priced_bytes(request) + rank_count - 1) / rank_count;
  return round_cost(rank_count - 1, 1, part) + round_cost(rank_count - 1, 1, part, false);
}

/// In runs of messages of a part each, there and back.
plan::Picoseconds cost_of_runs(const AllreduceRequest& request,
                               const std::vector<std::uint32_t>& runs) {
  const std::uint64_t parts = std::accumulate(runs.begin(), runs.end(), std::uint64_t{1});
  const std::uint64_t part = (priced_bytes(request) + parts - 1) / parts;
  plan::Picoseconds cost = 0;
  for (const std::uint32_t messages : runs)
    cost += round_cost(messages, 1, part) + round_cost(messages, 1, part, false);
  return cost;
}

/// What is passed on part by part, on few connections, if it costs less than `whole`.
Algorithm or_passed_on(const Priced& whole, const AllreduceRequest& request,
                       std::uint32_t rank_count) {
  if (rank_count > passed_on_ranks_max) return whole.algorithm;
  if (serves(schedule_of(Algorithm::circulant), request)) {
    const std::vector<std::uint32_t> runs = plan::circulant_runs(rank_count, plan::Skips::few);
    const bool is_possible =
        plan::is_circulant_allreduce(rank_count) && 2 * runs.size() <= request.partners_max;
    return is_possible && cost_of_runs(request, runs) < whole.cost ? Algorithm::circulant
                                                                   : whole.algorithm;
  }
  // Which takes a sixth more of the arena.
  const bool is_possible = rank_count < passed_on_ranks_max &&
                           plan::canonical_halving_partners_max(rank_count) <= request.partners_max;
  return is_possible && cost_of_runs(request, plan::canonical_halving_runs(rank_count)) < whole.cost
             ? Algorithm::canonical_halving
             : whole.algorithm;
}

/// `whole`, or what is cheaper for a large payload.
Algorithm or_in_parts(const Priced& whole, const AllreduceRequest& request,
                      std::uint32_t rank_count) {
  const bool is_given = !request.per_round.empty() || !request.per_round_by_default.empty();
  if (rank_count == 1 || is_given || payload_bytes_of(request) < in_parts_from_bytes)
    return whole.algorithm;
  if (rank_count > chunked_fold_ranks_max) return or_passed_on(whole, request, rank_count);
  if (!serves_chunked_fold(rank_count, request)) return whole.algorithm;
  if (cost_of_chunked_fold(request, rank_count) >= whole.cost) return whole.algorithm;
  // Of two ranks, the ring without copies has none at all, and the fold one of its result.
  return request.zero_copy && rank_count == 2 && request.reduction.properties.commutative
             ? Algorithm::ring
             : Algorithm::chunked_fold;
}

/// The cheapest along the canonical tree.  Where the call asks for a vector, one that follows it.
Algorithm reproducible_rule(const AllreduceRequest& request, std::uint32_t rank_count) {
  const Priced whole = dissemination_along_the_tree(request, rank_count);
  if (rank_count == 1 || !request.per_round.empty()) return whole.algorithm;
  if (rank_count - plan::lanes_max(rank_count, request.node_of) > partners_unasked_max)
    return or_passed_on(whole, request, rank_count);
  if (!serves_chunked_fold(rank_count, request)) return whole.algorithm;
  return cost_of_chunked_fold(request, rank_count) < whole.cost ? Algorithm::chunked_fold
                                                                : whole.algorithm;
}

}  // namespace

std::span<const Schedule> allreduce_schedules() noexcept {
  return schedules;
}

const Schedule& schedule_of(Algorithm algorithm) {
  const auto found = std::find_if(std::begin(schedules), std::end(schedules),
                                  [&](const Schedule& one) { return one.algorithm == algorithm; });
  if (found == std::end(schedules))
    throw Error(ErrorCode::invalid_argument,
                "algorithm " + std::to_string(static_cast<unsigned>(algorithm)) +
                    " is none; use one of the enumerators of tutti::Algorithm");
  return *found;
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

const plan::PerRound& vector_for(const Schedule& schedule, const AllreduceRequest& request) {
  static const plan::PerRound none;
  if (!request.per_round.empty()) return request.per_round;
  const plan::PerRound& vector = request.per_round_by_default;
  const bool mixed =
      std::adjacent_find(vector.begin(), vector.end(), std::not_equal_to<>()) != vector.end();
  if (schedule.takes == PerRoundIs::nothing || (schedule.takes == PerRoundIs::uniform && mixed))
    return none;
  return vector;
}

bool serves_chunked_fold(std::uint32_t rank_count, const AllreduceRequest& request) {
  return plan::is_chunked_fold(rank_count) && rank_count - 1 <= request.partners_max;
}

Algorithm automatic_schedule(const AllreduceRequest& request, std::uint32_t rank_count) {
  const bool shows = order_shows_in_bits(request.reduction);
  if (shows && request.agreement == Agreement::reproducible)
    return reproducible_rule(request, rank_count);
  const bool is_identical = shows && request.agreement == Agreement::identical;
  return or_in_parts(
      is_identical ? identical_rule(request, rank_count) : relaxed_rule(request, rank_count),
      request, rank_count);
}

}  // namespace tutti::api
