#include "microbench/verify_choices.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <tutti/detail/cpu_set.hpp>
#include <utility>

#include "microbench/percent.hpp"
#include "microbench/verify_tuned.hpp"
#include "plan/allreduce/recursive_multiplying.hpp"
#include "tune/plan_time.hpp"

namespace tutti::bench {
namespace {

using plan::Picoseconds, plan::PerRound;
using tune::Collective, tune::CollectiveRequest, tune::Choice;

bool has_root(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce ||
         collective == Collective::gather || collective == Collective::scatter;
}
/// Flows have no plan whose events could be followed.
bool has_time(const Choice& choice) {
  return !choice.row().is_flow && choice.row().name != std::string("single_copy");
}

const Choice& innermost(const Choice& choice) {
  return choice.variant().across ? innermost(*choice.variant().across) : choice;
}

std::optional<Choice> named(const ChoiceCell& cell, const std::string& name,
                            const plan::Network& network) {
  CollectiveRequest request = cell.request();
  request.only = name;
  try {
    return choose(request, cell.topology(), network);
  } catch (const Error&) {
    return {};
  }
}

/// The name of a choice with another vector in its innermost schedule.
std::string with_vector(const Choice& choice, const PerRound& vector) {
  const PerRound& own = innermost(choice).variant().per_round;
  std::string name = choice.name();
  const std::string from = " with " + tune::text_of(own) + " a round";
  if (const std::size_t at = name.rfind(from); at != std::string::npos)
    name.replace(at, from.size(), " with " + tune::text_of(vector) + " a round");
  return name;
}

bool has_vector(const Choice& choice) {
  const Choice& across = innermost(choice);
  return !across.variant().per_round.empty() && across.variant().turns == 0;
}

/// How many ranks the innermost schedule has.
std::uint32_t ranks_of(const Choice& choice) {
  return innermost(choice).plan(Rank{0}).rank_count;
}

/// Every executed sequence of rounds with entries up to 15.
void add_vectors(std::uint32_t ranks, PerRound& later, std::vector<PerRound>& vectors) {
  constexpr std::uint32_t largest = 15;
  if (ranks == 1) {
    vectors.emplace_back(later.rbegin(), later.rend());
    return;
  }
  std::uint32_t last = 0;
  for (std::uint32_t entry = 1; entry <= std::min(largest, ranks - 1); ++entry) {
    const std::uint32_t left = (ranks + entry) / (entry + 1);
    if (left == last) continue;  // fewer messages do as well
    last = left;
    later.push_back(entry);
    add_vectors(left, later, vectors);
    later.pop_back();
  }
}

/// Every core of entries up to 15, larger ones first.
void add_cores(std::uint32_t ranks, std::uint64_t product, PerRound& core,
               std::vector<PerRound>& cores) {
  constexpr std::uint32_t largest = 15;
  if (!core.empty()) cores.push_back(core);
  const std::uint32_t most = core.empty() ? largest : core.back();
  for (std::uint32_t entry = 1; entry <= most && product * (entry + 1) <= ranks; ++entry) {
    core.push_back(entry);
    add_cores(ranks, product * (entry + 1), core, cores);
    core.pop_back();
  }
}

// What was chosen before machines were known: uniform n = 1 .. 7, a round costing as much as so
// many further messages, with the prices of FDR.

std::uint64_t round_in_messages(std::uint64_t bytes) {
  if (bytes <= 256) return 4;
  return bytes <= 4096 ? 2 : 1;
}
PerRound rule_vector(std::uint32_t ranks, std::uint64_t bytes) {
  PerRound best;
  std::uint64_t least = UINT64_MAX;
  for (std::uint32_t n = 1; n <= 7; ++n) {
    PerRound vector = plan::uniform(ranks, n);
    std::uint64_t cost = 0;
    for (const plan::Round& round : plan::two_partial_rounds(ranks, vector))
      cost += round_in_messages(bytes) + round.messages;
    if (cost >= least) continue;
    least = cost;
    best = std::move(vector);
  }
  return best;
}
PerRound rule_core(std::uint32_t ranks, std::uint64_t bytes) {
  const plan::CorePrices::OfRound price{
      .fixed = static_cast<std::int64_t>(round_in_messages(bytes)), .each = 1};
  return plan::cheapest_core(ranks, {.combining = price, .out = price, .largest = 7}, UINT64_MAX);
}

std::optional<Choice> by_the_rule(const ChoiceCell& cell) {
  const plan::Network fdr = tune::machine_preset("fdr").network();
  std::optional<Choice> best;
  Picoseconds least = INT64_MAX;
  const std::vector<Choice> rivals = tune::rivals(cell.request(), cell.topology(), fdr);
  for (const Choice& rival : rivals) {
    if (!has_time(rival)) continue;
    std::optional<Choice> other = rival;
    if (has_vector(rival)) {
      const std::uint64_t bytes = cell.bytes / rival.variant().lane_count;
      const std::uint32_t ranks = ranks_of(rival);
      const bool is_core = innermost(rival).row().takes == tune::PerRoundIs::core;
      const PerRound vector = is_core ? rule_core(ranks, bytes) : rule_vector(ranks, bytes);
      if (vector.empty()) continue;
      other = named(cell, with_vector(rival, vector), fdr);
    }
    if (!other) continue;
    // One rival alone may have no price.
    const Picoseconds price = rivals.size() == 1 ? 0 : other->cost();
    if (price >= least) continue;
    least = price;
    best = std::move(other);
  }
  return best;
}

Picoseconds best_uniform(const ChoiceCell& cell, const plan::Network& network) {
  const std::uint32_t ranks = cell.topology().rank_count;
  const char* const row =
      cell.collective == Collective::barrier ? "dissemination"
      : cell.collective == Collective::allreduce && cell.agreement == Agreement::relaxed
          ? "two_partial_dissemination"
          : nullptr;
  if (row == nullptr) return 0;
  Picoseconds least = 0;
  ChoiceCell flat = cell;
  for (std::uint32_t n = 1; n <= 7; ++n) {
    CollectiveRequest request = cell.request();
    request.across = Across::flat;
    request.only =
        std::string(row) + " with " + tune::text_of(plan::uniform(ranks, n)) + " a round";
    try {
      const Choice choice = choose(request, cell.topology(), network);
      const Picoseconds time = time_of(choice, flat, network);
      if (least == 0 || time < least) least = time;
    } catch (const Error&) {
    }
  }
  return least;
}

}  // namespace

bool has_blocks(Collective collective) {
  return collective == Collective::allgather || collective == Collective::alltoall ||
         collective == Collective::gather || collective == Collective::scatter;
}

const char* name_of(ChosenBy way) noexcept {
  switch (way) {
    case ChosenBy::model:
      return "model";
    case ChosenBy::race:
      return "race";
    case ChosenBy::nearby:
      return "nearby";
  }
  return "?";
}

RegretBound bound_of(ChosenBy way) noexcept {
  switch (way) {
    case ChosenBy::model:
      break;
    case ChosenBy::race:
      return {0.01, 0.03};
    case ChosenBy::nearby:
      return {0.03, 0.1};
  }
  return {0.01, 0.1};
}

CollectiveRequest ChoiceCell::request() const {
  const std::uint32_t ranks = nodes * ranks_per_node;
  return {.collective = collective,
          .element_count =
              collective == Collective::barrier
                  ? 0
                  : static_cast<std::size_t>(bytes / 8 / (has_blocks(collective) ? ranks : 1)),
          .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64),
          .agreement = agreement,
          .root = has_root(collective) ? Rank{0} : no_rank};
}

tune::Topology ChoiceCell::topology() const {
  tune::Topology topology{.rank_count = nodes * ranks_per_node};
  for (std::uint32_t rank = 0; rank < topology.rank_count; ++rank)
    topology.node_of.push_back(Node{rank / ranks_per_node});
  return topology;
}

std::string ChoiceCell::text() const {
  std::string text = preset + " " + tune::name_of(collective);
  if (collective != Collective::barrier) text += " of " + std::to_string(bytes) + " bytes";
  if (tune::combines(collective))
    text += agreement == Agreement::identical      ? ", identical"
            : agreement == Agreement::reproducible ? ", reproducible"
                                                   : ", relaxed";
  return text + ", " + std::to_string(nodes) + " nodes of " + std::to_string(ranks_per_node);
}

std::vector<ChoiceCell> grid_of_choices(std::uint32_t ranks_max) {
  std::vector<std::uint32_t> node_counts;
  for (std::uint32_t nodes = 2; nodes <= 17; ++nodes) node_counts.push_back(nodes);
  for (const std::uint32_t nodes : {24u, 31u, 32u, 33u, 48u, 63u, 64u, 65u, 96u})
    node_counts.push_back(nodes);
  std::vector<ChoiceCell> grid;
  for (const char* const preset :
       {"qdr", "fdr", "edr", "hdr", "ndr", "roce100", "roce25", "roce10"})
    for (const Collective collective :
         {Collective::barrier, Collective::allreduce, Collective::broadcast, Collective::reduce,
          Collective::reduce_scatter, Collective::allgather, Collective::alltoall,
          Collective::gather, Collective::scatter, Collective::scan})
      for (const std::uint32_t nodes : node_counts)
        for (const std::uint32_t ranks_per_node : {1u, 4u, 8u})
          for (const std::uint64_t bytes :
               {0u, 8u, 64u, 256u, 1u << 10, 2u << 10, 4u << 10, 64u << 10, 1u << 20})
            for (const Agreement agreement :
                 {Agreement::identical, Agreement::reproducible, Agreement::relaxed}) {
              const ChoiceCell cell{.preset = preset,
                                    .collective = collective,
                                    .nodes = nodes,
                                    .ranks_per_node = ranks_per_node,
                                    .bytes = bytes,
                                    .agreement = agreement};
              const bool has_payload = collective != Collective::barrier;
              if (nodes * ranks_per_node > ranks_max || has_payload == (bytes == 0)) continue;
              if (!tune::combines(collective) && agreement != Agreement::identical) continue;
              if (has_payload && cell.request().element_count == 0) continue;
              grid.push_back(cell);
            }
  return grid;
}

std::vector<ChoiceCell> sample_of_choices(const std::vector<ChoiceCell>& grid, std::size_t count,
                                          std::uint64_t seed) {
  // Not std::shuffle, so that a seed means the same cells with any library.
  std::vector<ChoiceCell> cells = grid;
  std::mt19937_64 random(seed);
  const std::size_t wanted = std::min(count, cells.size());
  for (std::size_t i = 0; i < wanted; ++i)
    std::swap(cells[i], cells[i + random() % (cells.size() - i)]);
  cells.resize(wanted);
  return cells;
}

tune::Machine machine_off_by(const tune::Machine& machine, std::uint32_t percent,
                             std::uint64_t seed) {
  tune::Machine other = machine;
  std::mt19937_64 random(seed);
  for (tune::Figure& figure : other.figures) {
    const std::int64_t off = figure.value * percent / 100;
    figure.value += random() % 2 == 0 ? off : -off;
    figure.low = figure.value * 100 / (100 + percent);
    figure.high = (figure.value * 100 + 99 - percent) / (100 - percent);
  }
  other[tune::Parameter::fan_max] = machine[tune::Parameter::fan_max];
  return other;
}

Picoseconds time_of(const Choice& choice, const ChoiceCell& cell, const plan::Network& network) {
  const CollectiveRequest request = cell.request();
  const tune::Topology topology = cell.topology();
  return tune::plan_time({request, topology, network},
                         [&](Rank self) { return choice.plan(self); });
}

CellResult verify_choice(const ChoiceCell& cell, const tune::Machine& known,
                         const tune::Machine& truth, const VerifyOptions& options,
                         TunedFiles* files) {
  const plan::Network network = truth.network();
  const CollectiveRequest request = cell.request();
  const tune::Topology topology = cell.topology();
  tune::Knowledge model = tune::untuned(known);
  model.untuned = without_file().untuned;
  CellResult result{.cell = cell};
  std::map<std::string, Picoseconds> seen;
  const auto consider = [&](const Choice& other) -> Picoseconds {
    if (!has_time(other)) return 0;
    const auto [place, is_new] = seen.try_emplace(other.name());
    if (!is_new) return place->second;
    place->second = time_of(other, cell, network);
    if (result.least == 0 || place->second < result.least) {
      result.least = place->second;
      result.best = place->first;
    }
    return place->second;
  };
  const auto take = [&](ChosenBy way, const tune::Knowledge& knowledge) {
    const Choice choice = choose(request, topology, knowledge);
    result.by(way) = {choice.name(), consider(choice)};
  };
  if (options.model) take(ChosenBy::model, model);
  if (options.race) take(ChosenBy::race, after_race(cell, known, network, options.seed));
  if (files != nullptr) take(ChosenBy::nearby, files->nearby(cell));

  // Every row and variant, and every vector of few ranks.
  const std::vector<Choice> rivals = tune::rivals(request, topology, network);
  const bool have_prices = rivals.size() > 1;
  const auto followed = [&](const Choice& rival) {
    return !have_prices || static_cast<double>(rival.cost()) <=
                               options.followed_up_to * static_cast<double>(rivals[0].cost());
  };
  constexpr std::uint32_t exhaustive_ranks_max = 17;
  std::set<std::string> families;
  for (const Choice& rival : rivals) {
    if (!followed(rival)) break;  // they are in the order of prices
    consider(rival);
    if (!has_vector(rival) || has_root(cell.collective) || has_blocks(cell.collective)) continue;
    const std::uint32_t ranks = ranks_of(rival);
    if (ranks > exhaustive_ranks_max) continue;
    const bool is_flat = topology.rank_count == ranks;
    // Where ranks share nodes, of each schedule with the vector of the best number of lanes alone.
    if (!is_flat &&
        !families.insert(std::string(rival.row().name) + innermost(rival).row().name).second)
      continue;
    std::vector<PerRound> vectors;
    PerRound begun;
    if (innermost(rival).row().takes == tune::PerRoundIs::core)
      add_cores(ranks, 1, begun, vectors);
    else
      add_vectors(ranks, begun, vectors);
    for (const PerRound& vector : vectors)
      if (const auto other = named(cell, with_vector(rival, vector), network)) consider(*other);
  }

  result.untuned = consider(choose(request, topology, without_file()));
  if (const auto rule = by_the_rule(cell)) result.rule = consider(*rule);
  result.uniform = best_uniform(cell, network);
  if (result.uniform != 0 && result.uniform < result.least) {
    result.least = result.uniform;
    result.best = "a uniform vector over all ranks";
  }
  ChoiceCell half = cell;
  half.bytes = cell.bytes / 2;
  if (options.model && cell.collective != Collective::barrier && half.request().element_count > 0 &&
      2 * half.request().element_count == request.element_count)
    result.half = time_of(choose(half.request(), topology, model), half, network);
  return result;
}

std::vector<CellResult> verify_choices(
    const std::vector<ChoiceCell>& cells, const VerifyOptions& options,
    const std::function<bool(const CellResult&, std::size_t, std::size_t)>& progress) {
  TunedFiles files(options);
  std::vector<CellResult> results(cells.size());
  std::atomic<std::size_t> next{0};
  std::mutex mutex;  // of what follows
  std::size_t done = 0;
  std::exception_ptr failed;
  const auto look_at = [&](std::size_t number) {
    const ChoiceCell& cell = cells[number];
    const tune::Machine& truth = tune::machine_preset(cell.preset);
    VerifyOptions of_cell = options;
    of_cell.seed = options.seed + number;
    const tune::Machine known = machine_off_by(truth, options.percent_off, of_cell.seed);
    CellResult result =
        verify_choice(cell, known, truth, of_cell, options.nearby ? &files : nullptr);
    const std::lock_guard lock(mutex);
    results[number] = std::move(result);
    if (progress && !progress(results[number], ++done, cells.size())) next = cells.size();
  };
  const auto work = [&] {
    try {
      for (std::size_t number; (number = next++) < cells.size();) look_at(number);
    } catch (...) {
      next = cells.size();
      const std::lock_guard lock(mutex);
      failed = std::current_exception();
    }
  };
  {
    const unsigned count = options.threads > 0 ? options.threads : detail::allowed_cpus().count();
    std::vector<std::jthread> others;
    others.reserve(count);
    for (unsigned i = 1; i < count; ++i) others.emplace_back(work);
    work();
  }
  if (failed) std::rethrow_exception(failed);
  // After an early end, those that were not begun are missing.
  std::erase_if(results, [](const CellResult& result) { return result.best.empty(); });
  return results;
}

namespace {

double quotient(Picoseconds above, Picoseconds below) {
  return below == 0 ? 0 : static_cast<double>(above) / static_cast<double>(below);
}

/// Whether half of the payload does not take longer, and the whole no longer than two halves.
bool is_robust(const CellResult& result) {
  return quotient(result.half, result.chosen()) <= robust_max &&
         quotient(result.chosen(), 2 * result.half) <= robust_max;
}

const char* words_of(ChosenBy way) {
  switch (way) {
    case ChosenBy::model:
      break;
    case ChosenBy::race:
      return "a race";
    case ChosenBy::nearby:
      return "findings of other bytes and nodes";
  }
  return "the model alone";
}

}  // namespace

RegretSummary regrets_of(const std::vector<CellResult>& results, ChosenBy way) {
  std::vector<double> regrets;
  for (const CellResult& result : results)
    if (result.by(way).time > 0) regrets.push_back(result.regret(way));
  RegretSummary summary{.cells = regrets.size()};
  if (regrets.empty()) return summary;
  const auto quotients = [&](plan::Picoseconds CellResult::*other) {
    RegretSummary::Quotients found;
    for (const CellResult& result : results) {
      const double over = quotient(result.by(way).time, result.*other);
      found.worst = std::max(found.worst, over);
      found.over += over > quotient_max ? 1 : 0;
    }
    return found;
  };
  summary.untuned = quotients(&CellResult::untuned);
  summary.rule = quotients(&CellResult::rule);
  summary.uniform = quotients(&CellResult::uniform);
  std::sort(regrets.begin(), regrets.end());
  summary.median = regrets[regrets.size() / 2];
  summary.high = regrets[(regrets.size() * 99 + 99) / 100 - 1];
  summary.worst = regrets.back();
  summary.over = static_cast<std::size_t>(std::count_if(
      regrets.begin(), regrets.end(), [&](double regret) { return regret > bound_of(way).worst; }));
  return summary;
}

std::size_t not_robust(const std::vector<CellResult>& results) {
  return static_cast<std::size_t>(std::count_if(
      results.begin(), results.end(), [](const CellResult& result) { return !is_robust(result); }));
}

namespace {

// The columns of both tables.
constexpr const char* quotient_heads =
    "/ untuned, worst | over 1.02 | / rule, worst | over 1.02 | / uniform n, worst | over 1.02 ";
std::string columns_of(const RegretSummary& summary) {
  std::string text;
  for (const RegretSummary::Quotients& one : {summary.untuned, summary.rule, summary.uniform})
    text += one.worst == 0 ? std::string(" - | - |")
                           : " " + fixed(one.worst, 3) + " | " + std::to_string(one.over) + " |";
  return text;
}

}  // namespace

std::string regret_table_of(const std::vector<CellResult>& results) {
  std::string text = std::string(
                         "| chosen by | cells | regret, median | bound | 99 % | worst | bound | "
                         "cells over it | ") +
                     quotient_heads +
                     "|\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const ChosenBy way : every_way_of_choosing) {
    const RegretSummary summary = regrets_of(results, way);
    if (summary.cells == 0) continue;
    const RegretBound bound = bound_of(way);
    text += std::string("| ") + words_of(way) + " | " + std::to_string(summary.cells) + " | " +
            percent(summary.median, 2) + " | " + percent(bound.median, 0) + " | " +
            percent(summary.high, 2) + " | " + percent(summary.worst, 1) + " | " +
            percent(bound.worst, 0) + " | " + std::to_string(summary.over) + " |" +
            columns_of(summary) + "\n";
  }
  return text;
}

std::string table_of(const std::vector<CellResult>& results, ChosenBy way) {
  std::map<std::pair<std::string, std::string>, std::vector<CellResult>> groups;
  for (const CellResult& result : results) {
    groups[{result.cell.preset, tune::name_of(result.cell.collective)}].push_back(result);
    groups[{"all", tune::name_of(result.cell.collective)}].push_back(result);
    groups[{result.cell.preset, "all"}].push_back(result);
  }
  groups[{"all", "all"}] = results;
  const bool has_halves = way == ChosenBy::model;
  std::string text = "| network | collective | cells | regret, median | 99 % | worst | over " +
                     percent(bound_of(way).worst, 0) + " | " + quotient_heads +
                     (has_halves ? "| not robust |\n" : "|\n") +
                     "|---|---|---|---|---|---|---|---|---|---|---|---|---|" +
                     (has_halves ? "---|\n" : "\n");
  for (const auto& [key, group] : groups) {
    const RegretSummary regrets = regrets_of(group, way);
    text += "| " + key.first + " | " + key.second + " | " + std::to_string(regrets.cells) + " | " +
            percent(regrets.median, 2) + " | " + percent(regrets.high, 2) + " | " +
            percent(regrets.worst, 1) + " | " + std::to_string(regrets.over) + " |" +
            columns_of(regrets);
    if (has_halves) text += " " + std::to_string(not_robust(group)) + " |";
    text += "\n";
  }
  return text;
}

std::string misses_of(const std::vector<CellResult>& results) {
  std::string text;
  for (const ChosenBy way : every_way_of_choosing)
    if (const double median = regrets_of(results, way).median; median > bound_of(way).median)
      text += std::string("chosen by ") + words_of(way) + ": the median regret is " +
              percent(median, 2) + ", expected at most " + percent(bound_of(way).median, 0) + "\n";
  for (const CellResult& result : results)
    for (const ChosenBy way : every_way_of_choosing) {
      const CellResult::Taken& taken = result.by(way);
      if (taken.time == 0) continue;
      const double untuned = quotient(taken.time, result.untuned);
      const double rule = quotient(taken.time, result.rule);
      const double uniform = quotient(taken.time, result.uniform);
      const bool is_slow = result.regret(way) > bound_of(way).worst ||
                           std::max({untuned, rule, uniform}) > quotient_max;
      if (!is_slow && (way != ChosenBy::model || is_robust(result))) continue;
      text += result.cell.text() + ", by " + words_of(way) + ": " + taken.choice + ", " +
              fixed(static_cast<double>(taken.time) / 1e6, 2) + " us, " +
              fixed(1 + result.regret(way), 3) + " of " + result.best + ", " + fixed(untuned, 3) +
              " of the untuned choice" +
              (result.rule == 0 ? "" : ", " + fixed(rule, 3) + " of the rule") +
              (result.uniform == 0 ? "" : ", " + fixed(uniform, 3) + " of uniform n");
      if (way == ChosenBy::model && result.half != 0)
        text += ", half takes " + fixed(quotient(result.half, taken.time), 3);
      text += "\n";
    }
  return text;
}

}  // namespace tutti::bench
