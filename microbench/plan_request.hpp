// The command line of `tutti-info plan` as a value.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <tutti/types.hpp>
#include <vector>

#include "api/selection.hpp"
#include "microbench/command_line.hpp"
#include "microbench/options.hpp"
#include "microbench/tutti_side.hpp"
#include "plan/core/plan.hpp"

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
  std::string collective = "allreduce", dtype = "uint64", op = "sum", bytes = "8";
};

void declare_plan_options(CommandLine& line, PlanWords& words);

struct PlanRequest {
  Collective collective = Collective::allreduce;
  std::uint32_t rank_count = 1;
  Rank root{0};                          // of a collective that has one
  std::vector<Node> node_of = {};        // of each rank; empty: each is a node of its own
  std::vector<Node> domain_of = {};      // parts of nodes; empty: none
  api::AllreduceRequest allreduce = {};  // without the nodes; others take what they have, too
  Tree tree = Tree::automatic;           // of broadcast and reduce
  std::optional<Rank> rank = Rank{0};    // none: all
  PlanFormat format = PlanFormat::table;
};

/// Throws Error in one line that names the value, what was expected and what to do.
PlanRequest understand(const PlanWords& words);

/// One rank's plan, by the library's rules and with its refusals.
plan::Plan plan_of(const PlanRequest& request, Rank self);

/// The same for rank after rank; `first` is one of them.  What the library searches anew with each
/// call is kept.
std::function<plan::Plan(Rank)> planner(const PlanRequest& request, const plan::Plan& first);

}  // namespace tutti::bench
