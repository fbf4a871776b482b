// A plan as a table for people: its costs, then the messages sent and received in each round.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "engine/execution.hpp"
#include "microbench/plan_print.hpp"
#include "microbench/words.hpp"
#include "runtime/settings.hpp"
#include "tune/chunks.hpp"

namespace tutti::bench {
namespace {

std::string counted(std::size_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string collective_text(const PlanRequest& request, const plan::Plan& plan) {
  if (request.asked.collective == tune::Collective::barrier)
    return "barrier, messages without payload";
  const Reduction& reduction = request.asked.reduction;
  const std::size_t bytes = request.asked.element_count * reduction.element_bytes;
  std::string text = name_of(request.asked.collective);
  if (is_rooted(request.asked.collective))
    text += fmt::format(", root {}", index_of(request.asked.root));
  if (is_of_blocks(request.asked.collective))
    return text + fmt::format(", blocks of {} bytes", bytes);
  if (request.asked.collective == tune::Collective::broadcast)
    return text + fmt::format(", {} bytes", bytes);
  text += fmt::format(", {} of {}, {} bytes", name_of(reduction.built_in),
                      name_of(reduction.element_type), bytes);
  if (is_traced(request.asked.collective) || request.asked.collective == tune::Collective::reduce)
    text += fmt::format("; results {}", name_of(request.asked.agreement));
  if (plan.parts > 1) text += fmt::format("; payload in {} parts", plan.parts);
  return text;
}

std::string rounds_text(const plan::Plan& plan) {
  if (plan.per_round.empty()) return "none";
  const bool alike = std::all_of(plan.per_round.begin(), plan.per_round.end(),
                                 [&](std::uint32_t n) { return n == plan.per_round[0]; });
  if (alike && plan.per_round.size() > 5)
    return fmt::format("{}, each with {}{}", plan.per_round.size(),
                       plan.all_alike ? "" : "at most ", counted(plan.per_round[0], "message"));
  return fmt::format("{}, with {}{} messages", plan.per_round.size(),
                     plan.all_alike ? "" : "at most ", fmt::join(plan.per_round, ","));
}

/// How many chunks a payload has with the default options of a context.
std::size_t chunk_count_of(const PlanRequest& request, const plan::Plan& plan) {
  const tune::CollectiveRequest& asked = request.asked;
  const std::size_t bytes = asked.element_count * asked.reduction.element_bytes;
  const bool is_broadcast = asked.collective == tune::Collective::broadcast;
  const bool is_one_node = request.topology.is_one_node() && request.topology.rank_count > 1;
  const std::size_t chunk_bytes =
      is_one_node ? tune::chunk_bytes_in_one_node(plan, 0, runtime::ContextSettings{}.arena_bytes,
                                                  is_broadcast ? bytes : 0)
                  : tune::chunk_bytes_for(plan, request.topology.has_shared_nodes());
  return tune::chunk_count(asked.element_count, asked.reduction.element_bytes,
                           is_of_blocks(asked.collective) ? 1 : plan.parts, chunk_bytes);
}

/// Bytes of each part of the payload, or of each block, in the first of the chunks.
std::vector<std::size_t> part_bytes(const PlanRequest& request, const plan::Plan& plan,
                                    std::size_t chunks = 1) {
  const std::size_t elements = request.asked.element_count;
  const std::size_t element_bytes = request.asked.reduction.element_bytes;
  if (is_of_blocks(request.asked.collective))
    return std::vector<std::size_t>(plan.parts, engine::share(elements, chunks, 0) * element_bytes);
  std::vector<std::size_t> bytes;
  for (const engine::Part& part : engine::parts_of(elements, element_bytes, plan.parts, chunks))
    if (bytes.size() < plan.parts) bytes.push_back(part.source.bytes);
  return bytes;
}

std::size_t bytes_sent(const PlanRequest& request, const plan::Plan& plan) {
  const std::vector<std::size_t> parts = part_bytes(request, plan);
  std::size_t bytes = 0;
  for (const plan::Step& step : plan.steps)  // What lies in the node's target moves no more.
    if (step.action == plan::Action::put && !(plan.shares_target && step.into_target))
      bytes += step.payloads * parts[step.part];
  return bytes;
}

std::string scratch_text(const PlanRequest& request, const plan::Plan& plan) {
  const std::size_t chunks = chunk_count_of(request, plan);
  const std::size_t data_slots = std::size_t{plan.slot_count} - plan.line_slot_count;
  const std::size_t registers = plan.partial_count + data_slots;
  std::string text = counted(plan.partial_count, "partial") + ", " + counted(data_slots, "slot");
  if (plan.payloads == 0 || registers == 0) return text;
  return text +
         fmt::format(" of {}; {} bytes in two copies",
                     counted(plan.payloads, plan.parts > 1 ? "part" : "payload"),
                     2 * plan::payloads_of_registers(plan, plan.partial_count) *
                         part_bytes(request, plan, chunks)[0]) +
         (plan.short_slot_count > 0 ? fmt::format("; {} of these slots for {}",
                                                  plan.short_slot_count, plan.short_payloads)
                                    : "") +
         (plan.line_slot_count > 0
              ? fmt::format("; {} for {}", counted(plan.line_slot_count, "line"),
                            plan.shares_target ? "notifications" : "credits")
              : "") +
         (chunks > 1 ? fmt::format(", for {} chunks of the payload", chunks) : "");
}

const char* flow_text(const plan::Plan& plan) {
  return detail::name_in<plan::FlowControl::one_way>(
      {"none needed: no rank ends a call before all have begun it",
       "acknowledgements: a rank receives from those to which it sends",
       "credits: a rank may run ahead of those that wait for it"},
      plan.flow_control);
}

std::size_t count_of(const plan::Plan& plan, plan::Action action) {
  return static_cast<std::size_t>(
      std::count_if(plan.steps.begin(), plan.steps.end(),
                    [action](const plan::Step& step) { return step.action == action; }));
}

/// How many ranks this one sends to or receives from; each has a queue pair, unless it shares the
/// node.
std::string connections_text(const PlanRequest& request, const plan::Plan& plan) {
  std::set<Rank> near, far;
  for (const plan::Step& step : plan.steps) {
    if (step.peer == no_rank) continue;
    const bool is_near =
        !request.topology.node_of.empty() && request.topology.node_of[index_of(step.peer)] ==
                                                 request.topology.node_of[index_of(plan.self)];
    (is_near ? near : far).insert(step.peer);
  }
  return std::to_string(far.size()) +
         (near.empty() ? "" : fmt::format(", and {} in shared memory", near.size()));
}

std::string header(const PlanRequest& request, const plan::Plan& plan) {
  std::string text = fmt::format("{}, {}, rank {}\n", plan.algorithm,
                                 counted(plan.rank_count, "rank"), index_of(plan.self));
  const auto line = [&](const char* label, const std::string& value) {
    text += fmt::format("  {:<13} {}\n", label, value);
  };
  line("collective", collective_text(request, plan));
  line("rounds", rounds_text(plan));
  line("messages", fmt::format("sends {}, receives {}", count_of(plan, plan::Action::put),
                               count_of(plan, plan::Action::await)));
  line("connections", connections_text(request, plan));
  line("bytes sent", std::to_string(bytes_sent(request, plan)));
  line("scratch", scratch_text(request, plan));
  line("flow control", flow_text(plan));
  if (plan.shares_target) line("target", "one of all ranks of a node");
  return text;
}

/// A message in one half of the table.
struct Cell {
  std::string peer;
  std::string ranks;
};

std::vector<Cell> cells(const plan::Plan& plan, const PlanTrace* trace, plan::Action action,
                        std::uint32_t round) {
  std::vector<Cell> cells;
  for (const plan::Step& step : plan.steps) {
    if (step.action != action || step.round != round) continue;
    const Rank receiver = action == plan::Action::put ? step.peer : plan.self;
    Cell cell{fmt::format("{}", index_of(step.peer)), ""};
    if (trace != nullptr)
      cell.ranks = text_of(trace->brought(receiver, step.slot), plan.rank_count);
    const bool is_credit = step.payloads == 0 && plan.payloads > 0;
    if (is_credit) cell.ranks = step.into_target ? "has entered" : "has read";
    if (plan.parts > 1 && !is_credit)
      cell.ranks += fmt::format("{}part {}", trace ? " of " : "", step.part);
    cells.push_back(cell);
  }
  return cells;
}

struct Row {
  std::string round;
  Cell sent;
  Cell received;
};

std::vector<Row> rows_of(const plan::Plan& plan, const PlanTrace* trace) {
  const bool brings = trace != nullptr || plan.parts > 1;
  std::vector<Row> rows{
      {"round", {"to", brings ? "data of" : ""}, {"from", brings ? "data of" : ""}}};
  for (std::uint32_t round = 0; round < plan.per_round.size(); ++round) {
    const std::vector<Cell> sent = cells(plan, trace, plan::Action::put, round);
    const std::vector<Cell> received = cells(plan, trace, plan::Action::await, round);
    for (std::size_t i = 0; i < std::max({sent.size(), received.size(), std::size_t{1}}); ++i)
      rows.push_back({i == 0 ? std::to_string(round) : "",
                      i < sent.size() ? sent[i] : Cell{"-", ""},
                      i < received.size() ? received[i] : Cell{"-", ""}});
  }
  return rows;
}

std::string without_trailing_spaces(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::string text_of(const std::vector<Row>& rows) {
  std::size_t peer = 0;
  std::size_t ranks = 0;
  for (const Row& row : rows) {
    peer = std::max({peer, row.sent.peer.size(), row.received.peer.size()});
    ranks = std::max(ranks, row.sent.ranks.size());
  }
  std::string text;
  for (const auto& [round, sent, received] : rows)
    text += without_trailing_spaces(fmt::format("  {:>5}   {:>{}}  {:<{}}   {:>{}}  {}", round,
                                                sent.peer, peer, sent.ranks, ranks, received.peer,
                                                peer, received.ranks)) +
            '\n';
  return text;
}

}  // namespace

std::string table_of(const PlanRequest& request, const plan::Plan& plan, const PlanTrace* trace) {
  std::string text = header(request, plan);
  if (!plan.per_round.empty()) text += '\n' + text_of(rows_of(plan, trace));
  if (plan.takes_out > 0)
    text += fmt::format("\n  takes out     {}, which came twice\n",
                        text_of(taken_out(plan), plan.rank_count));
  if (trace == nullptr && is_traced(request.asked.collective))
    text +=
        "\n  What the messages bring is not shown: it takes the plans of all ranks, which are too\n"
        "  many here.\n";
  return text;
}

}  // namespace tutti::bench
