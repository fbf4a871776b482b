// Plans as text: for people, for Graphviz, and for programs that check them.
#pragma once

#include <ostream>
#include <string>

#include "microbench/plan_request.hpp"
#include "microbench/plan_trace.hpp"
#include "plan/core/plan.hpp"

namespace tutti::bench {

/// The most ranks of which a drawing of all ranks is made: larger ones are not read.
inline constexpr std::uint32_t drawn_ranks_max = 64;

/// Prints a plan in the form that is asked for.  Throws Error for what the library refuses, and
/// where the plans of all ranks are needed and are too many; the table of one rank can do without
/// them, but then does not say what its messages bring.
void print_plan(const PlanRequest& request, std::ostream& out);

/// The messages of one rank as one line of JSON.
std::string json_of(const plan::Plan& plan, const PlanTrace& trace);

/// The plan of one rank as a table.  `trace` is null where there are too many ranks for one.
std::string table_of(const PlanRequest& request, const plan::Plan& plan, const PlanTrace* trace);

/// A drawing with rounds from left to right and ranks below each other; with a `rank`, it has only
/// the messages of this rank.
std::string drawing_of(const PlanTrace& trace, std::uint32_t rank_count, std::optional<Rank> rank);

/// The contributions that the last round brings a second time and that are taken out, as an
/// interval.
Cover taken_out(const plan::Plan& plan);

/// Intervals as text: "3..7", "6..1", "4", several with commas; "nothing" for none.
std::string text_of(const Cover& cover, std::uint32_t rank_count);

}  // namespace tutti::bench
