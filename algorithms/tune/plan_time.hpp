// What a call takes by the recurrence of its events (plan/cost/makespan.hpp), of plans of all
// ranks: the judge of prices, and of few ranks the last word between the cheapest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "plan/core/plan.hpp"
#include "tune/registry.hpp"

namespace tutti::tune {

/// The payload of a call that is followed, which has an end, so that times do not overflow: a part
/// of more has the same proportions.
std::uint64_t followed_bytes(const CollectiveRequest& request, std::uint32_t rank_count);

/// On the network of the query, all ranks starting at once.  The chunks of a broadcast or reduce
/// follow each other, as in the engine; of other collectives all is one chunk.
plan::Picoseconds plan_time(const Query& query, const std::function<plan::Plan(Rank)>& plan_of);

/// As a price, so that both may be compared: of no larger payload than priced_bytes().
plan::Picoseconds priced_plan_time(const Query& query,
                                   const std::function<plan::Plan(Rank)>& plan_of);

// `first` is the plan of rank 0.

/// Whether all nodes do the same at the same times, with messages of the same lengths.
bool nodes_do_alike(const Query& query, const Row& row, const Variant& variant,
                    const plan::Plan& first);

/// Whether followed_time() follows one node in place of all.
bool is_followed_by_node(const Query& query, const Row& row, const Variant& variant,
                         const plan::Plan& first);

/// The time that is compared with prices: where all nodes do alike, it follows one of them, else
/// all ranks.  It is empty if slots are numbered by ranks, so that one node does not tell what the
/// others do.
std::optional<plan::Picoseconds> followed_time(const Query& query, const Row& row,
                                               const Variant& variant, const plan::Plan& first);

/// About how many messages of that payload it follows, at most; SIZE_MAX: not all that happens is
/// modelled.
std::size_t messages_followed(const Query& query, const Row& row, const Variant& variant,
                              const plan::Plan& first);

/// How many messages one choice may follow, and half as many more for candidates of which one node
/// is followed.  Both together take about 6 ms at most.  Among more ranks than ranks_followed_max
/// nothing is followed.
inline constexpr std::size_t messages_followed_max = 16384;
inline constexpr std::uint32_t ranks_followed_max = 2048;
/// What candidates() may follow for a race of tutti-tune.
inline constexpr std::size_t messages_of_race_max = 8 * messages_followed_max;
/// All that one candidate of a race may follow: up to about 100 ms, less than a race takes.
inline constexpr std::size_t messages_of_finding_max = 8 * messages_followed_max;

}  // namespace tutti::tune
