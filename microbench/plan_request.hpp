// The command line of `tutti-info plan` as a value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tutti/types.hpp>

#include "microbench/command_line.hpp"
#include "plan/core/plan.hpp"
#include "tune/choose.hpp"

namespace tutti::bench {

enum class PlanFormat : std::uint8_t { table, dot, json };

/// Whether the plan can be printed with what each message brings.
constexpr bool is_traced(tune::Collective collective) noexcept {
  return collective == tune::Collective::allreduce || collective == tune::Collective::barrier;
}
/// Whether --bytes are those of one block, as in tutti-bench.
constexpr bool is_of_blocks(tune::Collective collective) noexcept {
  return collective == tune::Collective::allgather || collective == tune::Collective::alltoall ||
         collective == tune::Collective::gather || collective == tune::Collective::scatter;
}
constexpr bool is_rooted(tune::Collective collective) noexcept {
  return collective == tune::Collective::broadcast || collective == tune::Collective::reduce ||
         collective == tune::Collective::gather || collective == tune::Collective::scatter;
}
const char* name_of(PlanFormat format) noexcept;

/// What the options say as text, before anything is understood.
struct PlanWords {
  std::optional<std::string> ranks = {}, per_round = {}, algorithm = {}, agreement = {};
  std::optional<std::string> rank = {}, format = {}, ranks_per_node = {}, placement = {};
  std::optional<std::string> ranks_per_domain = {}, across = {}, root = {}, tree = {};
  std::optional<std::string> op = {}, bytes = {}, fabric = {}, file = {};
  bool explain = false, in_node_memory = false;
  std::string collective = "allreduce", dtype = "uint64";
  const char* collective_option = "--collective";  // the option that gives the collective
};

void declare_plan_options(CommandLine& line, PlanWords& words);

struct PlanRequest {
  tune::CollectiveRequest asked = {};
  tune::Topology topology = {};
  tune::Knowledge knowledge = {};      // of the network or the tuning file that is named
  std::optional<Rank> rank = Rank{0};  // none: all
  PlanFormat format = PlanFormat::table;
  bool explain = false;  // why this plan, instead of the plan
};

/// Throws Error in one line that names the value, what was expected and what to do.
PlanRequest understand(const PlanWords& words);

/// What ranks with nothing else in their arenas tell each other, if the choice depends on it.
tune::RingRoom ring_room_of(const PlanRequest& request);

/// What the library chooses, with its refusals; its plans can be printed.  Not a flow of chunks,
/// which has none.
tune::Choice choice_of(const PlanRequest& request);

}  // namespace tutti::bench
