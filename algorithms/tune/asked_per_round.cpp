#include "tune/asked_per_round.hpp"

#include <algorithm>
#include <tutti/detail/names.hpp>
#include <tutti/status.hpp>

#include "plan/allreduce/nway.hpp"
#include "tune/request.hpp"

namespace tutti::tune {
namespace {

void require_entries(const plan::PerRound& vector) {
  if (std::find(vector.begin(), vector.end(), 0u) != vector.end())
    refuse_vector(vector, ": every entry must be 1 or more");
}

[[noreturn]] void refuse_length(const plan::PerRound& vector, std::uint32_t rank_count) {
  refuse_vector(vector, " needs more than " + std::to_string(plan::slots_max) + " messages for " +
                            std::to_string(rank_count) + " ranks; use smaller entries");
}

/// One n for all rounds.
std::uint32_t uniform(const plan::PerRound& asked, std::uint32_t rank_count, Algorithm algorithm) {
  require_entries(asked);
  if (std::adjacent_find(asked.begin(), asked.end(), std::not_equal_to<>()) != asked.end())
    refuse_vector(asked, std::string(": algorithm ") + name_of(algorithm) +
                             " has one n for all rounds; use " +
                             std::to_string(plan::nearest_adaptable_n(rank_count, asked[0])));
  return asked[0];
}

}  // namespace

[[noreturn]] void refuse_vector(const plan::PerRound& vector, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, "per_round " + text_of(vector) + why);
}

plan::PerRound covering(const plan::PerRound& asked, std::uint32_t rank_count) {
  require_entries(asked);
  if (!plan::covers(rank_count, asked)) {
    // So that two rounds of that many messages still have a slot each.
    const auto largest = static_cast<std::uint32_t>(std::min<std::uint64_t>(
        *std::max_element(asked.begin(), asked.end()), plan::slots_max / 2));
    refuse_vector(asked, " does not cover " + std::to_string(rank_count) +
                             " ranks (the product of n+1 is too small); use " +
                             text_of(plan::nearest_covering(rank_count, largest)));
  }
  if (!plan::is_executable(rank_count, asked)) refuse_length(asked, rank_count);
  return asked;
}

plan::PerRound core(const plan::PerRound& asked, std::uint32_t rank_count,
                    const plan::CorePrices& prices) {
  return plan::cheapest_core_within(rank_count, prices, covering(asked, rank_count));
}

std::uint32_t nway_n(const plan::PerRound& asked, std::uint32_t rank_count, Algorithm algorithm) {
  const std::uint32_t n = uniform(asked, rank_count, algorithm);
  if (plan::is_adaptable(rank_count, n)) return n;
  const std::uint64_t full_rounds = plan::uniform(rank_count, n).size() - 1;
  if (full_rounds * n >= plan::slots_max) refuse_length(asked, rank_count);
  refuse_vector(asked, ": n-way dissemination with n = " + std::to_string(n) +
                           " cannot be adapted to " + std::to_string(rank_count) +
                           " ranks (none of its partials ends where the ring closes); the nearest "
                           "n that can is " +
                           std::to_string(plan::nearest_adaptable_n(rank_count, n)));
}

std::uint32_t decomposition_n(const plan::PerRound& asked, std::uint32_t rank_count,
                              Algorithm algorithm, plan::Digits digits) {
  const std::uint32_t n = uniform(asked, rank_count, algorithm);
  if (!plan::is_decomposable(rank_count, n, digits)) refuse_length({n}, rank_count);
  return n;
}

}  // namespace tutti::tune
