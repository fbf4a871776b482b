// A plan as a drawing for Graphviz: ranks are rows, rounds lie between columns, and an edge is a
// message, labelled with the ranks whose contributions it brings.
#include <fmt/format.h>

#include <set>
#include <vector>

#include "microbench/plan_print.hpp"

namespace tutti::bench {
namespace {

struct Message {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint32_t sent = 0;     // round in which it is sent
  std::uint32_t awaited = 0;  // round in which it is awaited
  std::string label;
};

std::uint32_t round_of_await(const plan::Plan& receiver, std::uint16_t slot) {
  for (const plan::Step& step : receiver.steps)
    if (step.action == plan::Action::await && step.slot == slot) return step.round;
  return 0;
}

std::vector<Message> messages_of(const PlanTrace& trace, std::uint32_t rank_count,
                                 std::optional<Rank> rank) {
  std::vector<Message> messages;
  for (std::uint32_t from = 0; from < rank_count; ++from) {
    const plan::Plan& plan = trace.plan(Rank{from});
    for (const plan::Step& step : plan.steps) {
      if (step.action != plan::Action::put) continue;
      if (rank && plan.self != *rank && step.peer != *rank) continue;
      std::string label = text_of(trace.brought(step.peer, step.slot), rank_count);
      if (plan.parts > 1) label += fmt::format(" of part {}", step.part);
      messages.push_back({from, index_of(step.peer), step.round,
                          round_of_await(trace.plan(step.peer), step.slot), label});
    }
  }
  return messages;
}

/// Ranks below each other in each column: before the first round, and after each.
std::string grid(const std::vector<std::uint32_t>& rows, std::size_t rounds) {
  std::string text;
  for (std::size_t column = 0; column <= rounds; ++column) {
    text += fmt::format("  subgraph column{} {{\n    rank=same;\n", column);
    text += fmt::format("    t{} [shape=plaintext, fixedsize=false, label=\"{}\"];\n", column,
                        column == 0 ? "start" : fmt::format("after round {}", column - 1));
    std::string above = fmt::format("t{}", column);
    for (const std::uint32_t row : rows) {
      const std::string name = fmt::format("r{}_{}", row, column);
      text += fmt::format("    {} [label=\"{}\", group=g{}];\n", name, row, row);
      text += fmt::format("    {} -> {} [style=invis, constraint=true];\n", above, name);
      above = name;
    }
    text += "  }\n";
  }
  return text;
}

/// Edges from column to column in each row: a rank keeps what it has.
std::string rows_text(const std::vector<std::uint32_t>& rows, std::size_t rounds) {
  std::string text;
  for (const std::uint32_t row : rows)
    for (std::size_t column = 0; column < rounds; ++column)
      text += fmt::format(
          "  r{}_{} -> r{}_{} [style=dotted, arrowhead=none, constraint=true, weight=100];\n", row,
          column, row, column + 1);
  return text;
}

std::string title_of(const plan::Plan& plan, std::optional<Rank> rank) {
  std::string title = fmt::format("{}, {} ranks, {} messages per round", plan.algorithm,
                                  plan.rank_count, fmt::join(plan.per_round, ","));
  if (rank) title += fmt::format(", those of rank {}", index_of(*rank));
  return title;
}

}  // namespace

std::string drawing_of(const PlanTrace& trace, std::uint32_t rank_count, std::optional<Rank> rank) {
  const plan::Plan& plan = trace.plan(rank.value_or(Rank{0}));
  const std::vector<Message> messages = messages_of(trace, rank_count, rank);
  std::set<std::uint32_t> shown{index_of(plan.self)};
  for (std::uint32_t other = 0; !rank && other < rank_count; ++other) shown.insert(other);
  for (const Message& message : messages) shown.insert({message.from, message.to});
  const std::vector<std::uint32_t> rows(shown.begin(), shown.end());
  std::string text = fmt::format(
      "digraph plan {{\n  rankdir=LR;\n  splines=line;\n  ranksep=2;\n  nodesep=0.5;\n  "
      "label=\"{}\";\n"
      "  labelloc=t;\n  node [shape=circle, fixedsize=true, width=0.45, fontsize=11];\n"
      "  edge [fontsize=10, arrowsize=0.6, constraint=false, labeldistance=4, labelangle=8];\n",
      title_of(plan, rank));
  text += grid(rows, plan.per_round.size()) + rows_text(rows, plan.per_round.size());
  for (const Message& message : messages)
    text += fmt::format("  r{}_{} -> r{}_{} [taillabel=\"{}\"];\n", message.from, message.sent,
                        message.to, message.awaited + 1, message.label);
  return text + "}\n";
}

}  // namespace tutti::bench
