// The choice of a plan's form, and a plan as JSON.
#include "microbench/plan_print.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "microbench/words.hpp"
#include "tune/flips.hpp"

namespace tutti::bench {
namespace {

std::string json_of(const Cover& cover) {
  std::string text;
  for (const CyclicInterval& interval : cover)
    text += fmt::format("{}[{},{}]", text.empty() ? "" : ",", interval.first, interval.count);
  return '[' + text + ']';
}

/// The puts of a round, or the awaits of messages that others put in it.
std::string json_of(const plan::Plan& plan, const PlanTrace& trace, std::uint32_t round,
                    plan::Action action) {
  std::string text;
  for (const plan::Step& step : plan.steps) {
    if (step.action != action) continue;
    const Rank receiver = action == plan::Action::put ? step.peer : plan.self;
    if (trace.round(receiver, step.slot) != round) continue;
    text += fmt::format(R"({}{{"peer":{},"slot":{},"covers":{}{}}})", text.empty() ? "" : ",",
                        index_of(step.peer), step.slot, json_of(trace.brought(receiver, step.slot)),
                        plan.parts > 1 ? fmt::format(R"(,"part":{})", step.part) : "");
  }
  return '[' + text + ']';
}

[[noreturn]] void refuse_size(const PlanRequest& request, const char* remedy) {
  throw Error(
      ErrorCode::limit_exceeded,
      fmt::format("--ranks=\"{}\": the messages of so many ranks need more memory or time than "
                  "this program takes; {}",
                  request.topology.rank_count, remedy));
}

PlanTrace required_trace(const PlanRequest& request, std::optional<PlanTrace> trace) {
  if (trace) return std::move(*trace);
  refuse_size(request, request.format == PlanFormat::table
                           ? "use --rank R for the peers of one rank"
                           : "use fewer ranks, or --format table for the peers of one");
}

template <class Print>
void for_each_rank(const PlanRequest& request, Print print) {
  if (request.rank) return print(*request.rank);
  for (std::uint32_t rank = 0; rank < request.topology.rank_count; ++rank) print(Rank{rank});
}

using PlanOfRank = std::function<plan::Plan(Rank)>;

void print_tables(const PlanRequest& request, const PlanOfRank& plan_of_rank,
                  const PlanTrace* trace, std::ostream& out) {
  const char* between = "";
  for_each_rank(request, [&](Rank rank) {
    out << between << table_of(request, plan_of_rank(rank), trace);
    between = "\n";
  });
}

}  // namespace

Cover taken_out(const plan::Plan& plan) {
  if (plan.takes_out == 0) return {};
  const std::uint64_t first =
      index_of(plan.self) + std::uint64_t{1} + plan.rank_count - plan.takes_out;
  return {{static_cast<std::uint32_t>(first % plan.rank_count), plan.takes_out}};
}

std::string text_of(const Cover& cover, std::uint32_t rank_count) {
  std::string text;
  for (const auto& [first, count] : cover) {
    const std::uint64_t last = (first + std::uint64_t{count} - 1) % rank_count;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", first);
    if (count > 1) text += fmt::format("..{}", last);
  }
  return text.empty() ? "nothing" : text;
}

std::string json_of(const plan::Plan& plan, const PlanTrace& trace) {
  std::string rounds;
  for (std::uint32_t round = 0; round < plan.per_round.size(); ++round)
    rounds += fmt::format(R"({}{{"puts":{},"awaits":{}}})", round == 0 ? "" : ",",
                          json_of(plan, trace, round, plan::Action::put),
                          json_of(plan, trace, round, plan::Action::await));
  return fmt::format(R"({{"ranks":{},"rank":{},"algorithm":"{}","per_round":[{}],{}"rounds":[{}],)"
                     R"("takes_out":{}}})",
                     plan.rank_count, index_of(plan.self), plan.algorithm,
                     fmt::join(plan.per_round, ","),
                     plan.parts > 1 ? fmt::format(R"("parts":{},)", plan.parts) : "", rounds,
                     json_of(taken_out(plan)));
}

void print_plan(const PlanRequest& request, std::ostream& out) {
  if (request.explain) {
    if (request.format != PlanFormat::table)
      refuse("--format", name_of(request.format), "table, or no --explain");
    tune::CollectiveRequest asked = request.asked;
    asked.ring_room = ring_room_of(request);
    out << tune::choose(asked, request.topology, request.knowledge).explanation() << '\n';
    constexpr std::uint32_t flipped_ranks_max = 1u << 16;  // of more ranks it takes too long
    const std::string flips =
        request.topology.rank_count > flipped_ranks_max
            ? ""
            : tune::what_would_flip(asked, request.topology, request.knowledge);
    for (std::size_t at = 0; at < flips.size();) {
      const std::size_t end = std::min(flips.find('\n', at), flips.size());
      out << "  it would be " << flips.substr(at, end - at) << '\n';
      at = end + 1;
    }
    return;
  }
  // A plan that cannot be made or drawn is refused before anything large is tried.
  const tune::Choice choice = choice_of(request);
  const plan::Plan first = choice.plan(Rank{0});
  const auto plan_of_rank = [&](Rank rank) { return choice.plan(rank); };
  if (!is_traced(request.asked.collective)) {
    if (request.format != PlanFormat::table)
      refuse("--format", name_of(request.format),
             "table, or allreduce or barrier as the collective");
    return print_tables(request, plan_of_rank, nullptr, out);
  }
  if (request.format == PlanFormat::dot && !request.rank &&
      request.topology.rank_count > drawn_ranks_max)
    refuse("--rank", "all",
           fmt::format("one rank where there are more than {}, whose messages nobody could tell "
                       "apart; use --rank R, or --format json",
                       drawn_ranks_max));
  std::optional<PlanTrace> trace;
  if (is_traceable(first))
    trace = PlanTrace::of(request.topology.rank_count, plan_of_rank, request.topology.node_of);
  if (!trace && request.format == PlanFormat::table && request.rank) {
    out << table_of(request, plan_of_rank(*request.rank), nullptr);
    return;
  }
  const PlanTrace known = required_trace(request, std::move(trace));
  switch (request.format) {
    case PlanFormat::table:
      return print_tables(
          request, [&](Rank rank) { return known.plan(rank); }, &known, out);
    case PlanFormat::dot:
      out << drawing_of(known, request.topology.rank_count, request.rank);
      return;
    case PlanFormat::json:
      return for_each_rank(request,
                           [&](Rank rank) { out << json_of(known.plan(rank), known) << '\n'; });
  }
}

}  // namespace tutti::bench
