// The command line of `tutti-info plan` as a value.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <tutti/types.hpp>
#include <vector>

#include "microbench/command_line.hpp"
#include "microbench/options.hpp"
#include "microbench/tutti_side.hpp"
#include "plan/core/plan.hpp"
#include "tune/choose.hpp"

namespace tutti::bench {

enum class PlanFormat : std::uint8_t { table, dot, json };

/// Whether what its messages bring can be told.
constexpr bool is_traced(Collective collective) noexcept {
  return collective == Collective::allreduce || collective == Collective::barrier;
}
/// Whether --bytes are those of each rank's block, as of tutti-bench.
constexpr bool is_of_blocks(Collective collective) noexcept {
  return has_blocks_in_source(collective) || has_blocks_in_target(collective);
}
const char* name_of(PlanFormat format) noexcept;

/// What the options say as text, before anything is understood.
struct PlanWords {
  std::optional<std::string> ranks = {}, per_round = {}, algorithm = {}, agreement = {};
  std::optional<std::string> rank = {}, format = {}, ranks_per_node = {}, placement = {};
  std::optional<std::string> ranks_per_domain = {}, across = {}, root = {}, tree = {};
  bool explain = false;
  std::string collective = "allreduce", dtype = "uint64", op = "sum", bytes = "8";
};

void declare_plan_options(CommandLine& line, PlanWords& words);

struct PlanRequest {
  Collective collective = Collective::allreduce;
  tune::CollectiveRequest asked = {};
  tune::Topology topology = {};
  std::optional<Rank> rank = Rank{0};  // none: all
  PlanFormat format = PlanFormat::table;
  bool explain = false;  // why this plan, instead of the plan
};

/// Throws Error in one line that names the value, what was expected and what to do.
PlanRequest understand(const PlanWords& words);

/// What the library chooses, with its refusals; its plans can be printed.
tune::Choice choice_of(const PlanRequest& request);

}  // namespace tutti::bench
