// Requests over a grid of collectives, payloads, shapes of nodes, agreements and operators, and
// what is chosen for each, as text: for the test that says which choices have changed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <tutti/algorithm.hpp>
#include <tutti/detail/names.hpp>
#include <tutti/reduction.hpp>
#include <tutti/status.hpp>
#include <vector>

#include "plan/core/plan.hpp"
#include "tune/request.hpp"

namespace tutti::test {

/// An operator on elements of a type; `user`: one that does not commute, on elements of no known
/// type.
struct Operator {
  const char* name;
  Reduction reduction;
};

/// One request, whatever it is handed to.
struct Case {
  tune::Collective collective = tune::Collective::allreduce;
  std::uint32_t rank_count = 1;
  std::vector<Node> node_of = {};
  std::vector<Node> domain_of = {};
  std::size_t bytes = 0;                      // the payload, or a block; of allgathers see below
  std::vector<std::size_t> block_bytes = {};  // of each rank; empty: all of `bytes`
  Reduction reduction = {};
  Agreement agreement = Agreement::identical;
  Algorithm algorithm = Algorithm::automatic;
  Across across = Across::automatic;
  Tree tree = Tree::automatic;
  std::vector<std::uint32_t> per_round = {}, per_round_by_default = {};
  Rank root{0};
  std::uint32_t participant_count = 0, slack = 0, partners_max = UINT32_MAX;
  bool shares_target = false, zero_copy = false, single_copy = false;
};

/// The plan of a rank of it.  Throws Error where it is refused.
plan::Plan plan_of(const Case& given, Rank self);

/// What goes through that plan at a time.
std::size_t chunk_bytes_of(const plan::Plan& plan, const Case& given);

inline std::string text_of(const std::vector<std::uint32_t>& vector) {
  std::string text;
  for (const std::uint32_t entry : vector)
    text += (text.empty() ? "" : ",") + std::to_string(entry);
  return text;
}

/// Name, messages per round, slots, partials, and how the payload is divided, of one rank's plan;
/// or the refusal.  Of vectors longer than 8 the sum, and the number of entries.
inline std::string choice_of(const Case& given, Rank self = Rank{0}) {
  try {
    const plan::Plan plan = plan_of(given, self);
    std::uint64_t messages = 0;
    for (const std::uint32_t entry : plan.per_round) messages += entry;
    std::string text = plan.algorithm + "[" +
                       (plan.per_round.size() <= 8 ? text_of(plan.per_round)
                                                   : std::to_string(messages) + " in " +
                                                         std::to_string(plan.per_round.size())) +
                       "]";
    if (plan.n > 0) text += "n" + std::to_string(plan.n);
    text += " " + std::to_string(plan.slot_count) + "+" + std::to_string(plan.partial_count);
    if (plan.line_slot_count > 0) text += " lines " + std::to_string(plan.line_slot_count);
    if (plan.parts > 1) text += " parts " + std::to_string(plan.parts);
    if (plan.payloads > 1) text += " x" + std::to_string(plan.payloads);
    if (plan.zero_copy) text += " zero copy";
    if (plan.shares_target) text += " one target";
    if (plan.incoming_max > 0) text += " in " + std::to_string(plan.incoming_max);
    const std::size_t chunk = chunk_bytes_of(plan, given);
    const bool is_usual = chunk == (64u << 10) || chunk == (128u << 10);  // in nodes, and across
    return is_usual ? text : text + " chunks " + std::to_string(chunk);
  } catch (const Error& error) {
    return std::string("refused (") + std::to_string(static_cast<int>(error.code())) +
           "): " + error.what();
  }
}

/// Ranks of each node in turn, as {4} or {3, 1}.
inline std::vector<Node> nodes_of(std::uint32_t rank_count, const std::vector<std::uint32_t>& sizes,
                                  bool is_cyclic = false) {
  std::vector<Node> node_of;
  if (is_cyclic) {
    const std::uint32_t count = std::max(rank_count / sizes[0], 1u);
    for (std::uint32_t rank = 0; rank < rank_count; ++rank) node_of.push_back(Node{rank % count});
    return node_of;
  }
  for (std::uint32_t node = 0; node_of.size() < rank_count; ++node)
    for (std::uint32_t i = 0; i < sizes[node % sizes.size()] && node_of.size() < rank_count; ++i)
      node_of.push_back(Node{node});
  return node_of;
}

/// Calls `visit` with a heading and a line "HEADING: from value to value: choice; ...", one for
/// each group of variants that choose alike, in the order of the grid.
void for_each_line(const std::function<void(const std::string&)>& visit);

}  // namespace tutti::test
