// Plans as text: for people, for Graphviz, and for programs that check them.
#pragma once

#include <ostream>
#include <string>

#include "microbench/plan_request.hpp"
#include "microbench/plan_trace.hpp"
#include "plan/core/plan.hpp"

namespace tutti::bench {

/// A drawing of all ranks is read up to here.
inline constexpr std::uint32_t drawn_ranks_max = 64;

/// Prints what is asked for.  Throws Error for what the library refuses, and where all ranks have
/// to be known and are too many; only the table of one rank goes without what its messages bring.
void print_plan(const PlanRequest& request, std::ostream& out);

/// One line: the messages of one rank.
std::string json_of(const plan::Plan& plan, const PlanTrace& trace);

/// `trace`: null where the ranks are too many.
std::string table_of(const PlanRequest& request, const plan::Plan& plan, const PlanTrace* trace);

/// Rounds from left to right, ranks below each other; `rank`: only its messages.
std::string drawing_of(const PlanTrace& trace, std::uint32_t rank_count, std::optional<Rank> rank);

/// What the last round brings a second time and the result is without, as an interval.
Cover taken_out(const plan::Plan& plan);

/// "3..7", "6..1", "4", several with commas; "nothing" for none.
std::string text_of(const Cover& cover, std::uint32_t rank_count);

}  // namespace tutti::bench
