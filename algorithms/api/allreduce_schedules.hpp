// The schedules of allreduce that are plans: what each needs of an operator and promises for it,
// and which is taken where none is asked for by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <tutti/algorithm.hpp>
#include <tutti/reduction.hpp>

#include "api/selection.hpp"
#include "plan/core/per_round.hpp"

namespace tutti::api {

/// What messages per round mean to a schedule.
enum class PerRoundIs : std::uint8_t {
  covering,  // any vector that covers the ranks
  core,      // a core, or upper bounds of its rounds
  uniform,   // one n for all rounds: one entry, or several equal ones
  nothing,   // it has none to choose
};

/// What a schedule of allreduce needs and gives.
struct Schedule {
  Algorithm algorithm = Algorithm::automatic;
  Agreement agreement =
      Agreement::relaxed;         // the strongest that it gives where order shows in bits
  bool keeps_rank_order = true;   // else it needs an operator that commutes
  bool needs_idempotent = false;  // contributions may enter twice
  bool needs_inverse = false;     // of the operator
  PerRoundIs takes = PerRoundIs::covering;
};

/// Every schedule of allreduce that is a plan, in the order of the catalogue
/// (algorithms/README.md).
std::span<const Schedule> allreduce_schedules() noexcept;

/// Of that list.  Throws Error{invalid_argument} for what is none.
const Schedule& schedule_of(Algorithm algorithm);

/// Throws Error{unsupported}, with the schedules that serve, if this one cannot keep the promise.
void require_service(const Schedule& schedule, const AllreduceRequest& request);

/// What the call asks for, else what the context has by default where the schedule can follow it.
const plan::PerRound& vector_for(const Schedule& schedule, const AllreduceRequest& request);

/// Every rank talks to every other one.
bool serves_chunked_fold(std::uint32_t rank_count, const AllreduceRequest& request);

/// Schedules that cut the payload into a part for each rank send less of it in more messages.
/// Provisional: it has not been measured on a network.
inline constexpr std::size_t in_parts_from_bytes = 64u << 10;
/// With more ranks of other nodes than that none is connected unasked, where fewer will do.
inline constexpr std::uint32_t partners_unasked_max = 31;
/// More ranks than that are not all connected with each other.
inline constexpr std::uint32_t chunked_fold_ranks_max = partners_unasked_max + 1;

/// Of more, what is passed on part by part would take more than the arena that there is by default:
/// it has registers for a part of each.
inline constexpr std::uint32_t passed_on_ranks_max = 4096;

/// The rule: the cheapest that keeps the promise.
Algorithm automatic_schedule(const AllreduceRequest& request, std::uint32_t rank_count);

}  // namespace tutti::api
