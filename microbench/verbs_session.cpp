#include "microbench/verbs_session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "bootstrap/node_map.hpp"
#include "microbench/launch.hpp"
#include "microbench/machine.hpp"
#include "microbench/measure.hpp"
#include "microbench/session.hpp"
#include "microbench/statistics.hpp"
#include "microbench/together.hpp"
#include "microbench/verbs_cases.hpp"
#include "microbench/verbs_rows.hpp"
#include "runtime/neighbourhood.hpp"
#include "runtime/settings.hpp"

namespace tutti::bench {
namespace {

/// What was measured of one test.
struct Measured {
  std::vector<double> samples;  // nanoseconds of a message, a round or a call
  std::vector<double> block_medians;
  std::vector<double> perftest;  // its figure, by block
};

std::vector<Node> nodes_of(const Options& options, Exchange& exchange, const Placement& placement,
                           const runtime::ContextSettings& settings) {
  if (!settings.ranks_per_node.empty() || !options.fabric.empty())
    return runtime::imposed_nodes(exchange.rank_count(), settings).node;
  std::vector<bootstrap::HostIdentity> hosts;
  for (const Whereabouts& rank : placement.ranks) hosts.push_back(rank.host);
  return bootstrap::node_map(hosts).node;
}

/// How many calls a sample has: some milliseconds of them, as rank 0 finds.  Collective.
std::size_t calls_of(VerbsTest& test, const Timer& timer, Exchange& exchange) {
  constexpr double sample_ns = 2e6;
  exchange.barrier(setup_timeout);
  (void)test.subject->sample(2, timer);
  exchange.barrier(setup_timeout);
  const double once_ns = std::max(test.subject->sample(4, timer), 1.0);
  const auto calls = static_cast<std::uint64_t>(std::clamp(sample_ns / once_ns, 4.0, 100'000.0));
  return gather(exchange, calls).front();
}

std::vector<Measured> measure(VerbsCases& cases, const Options& options, const Timer& timer,
                              Exchange& exchange, Perftest* perftest) {
  std::vector<Measured> all(cases.all().size());
  if (options.virtual_time) {
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i].samples = measure_virtual(*cases.all()[i].subject,
                                       options.iterations.value_or(virtual_calls_default), exchange)
                           .batches;
    return all;
  }
  const std::size_t samples = options.iterations.value_or(verbs_samples_default);
  const std::size_t blocks = std::min<std::size_t>(samples, perftest != nullptr ? 3 : 10);
  std::vector<std::size_t> calls;
  for (VerbsTest& test : cases.all()) calls.push_back(calls_of(test, timer, exchange));
  for (std::size_t block = 0; block < blocks; ++block)
    for (std::size_t i = 0; i < all.size(); ++i) {
      VerbsTest& test = cases.all()[i];
      exchange.barrier(setup_timeout);
      const std::size_t before = all[i].samples.size();
      for (std::size_t sample = block; sample < samples; sample += blocks)
        all[i].samples.push_back(test.subject->sample(calls[i], timer) /
                                 test.subject->hand_overs_per_call());
      all[i].block_medians.push_back(median(std::span(all[i].samples).subspan(before)));
      if (perftest != nullptr && test.perftest)
        all[i].perftest.push_back(perftest->run(*test.perftest));
    }
  exchange.barrier(setup_timeout);  // nobody closes a connection that another still uses
  return all;
}

double figure_of(const VerbsTest& test, double ns) {
  switch (test.figure) {
    case VerbsFigure::time:
      return ns / 1000;
    case VerbsFigure::rate:
      return 1e9 / ns;
    case VerbsFigure::bandwidth:
      return static_cast<double>(test.bytes_together) / ns;
  }
  return 0;
}

const char* unit_of(VerbsFigure figure) {
  switch (figure) {
    case VerbsFigure::time:
      return "us";
    case VerbsFigure::rate:
      return "messages/s";
    case VerbsFigure::bandwidth:
      return "GB/s";
  }
  return "";
}

VerbsRow row_of(const VerbsTest& test, const Measured& measured) {
  VerbsRow row;
  const double ns = std::max(median(measured.samples), 1e-3);
  row.name = test.name;
  row.bytes = test.bytes;
  row.queue_pairs = test.queue_pairs;
  row.senders = test.senders;
  row.us = ns / 1000;
  row.us_min = smallest(measured.samples) / 1000;
  row.us_deviation = median_absolute_deviation(measured.samples) / 1000;
  row.iterations = measured.samples.size();
  if (test.figure != VerbsFigure::time) row.messages_per_second = 1e9 / ns;
  if (test.bytes_together > 0)
    row.gigabytes_per_second = static_cast<double>(test.bytes_together) / ns;
  if (measured.perftest.empty()) return row;
  std::vector<double> ours;
  for (const double block_ns : measured.block_medians) ours.push_back(figure_of(test, block_ns));
  row.perftest = {.tool = test.perftest->tool,
                  .figure = median(measured.perftest),
                  .unit = unit_of(test.figure),
                  .ratio = median_ratio(ours, measured.perftest)};
  return row;
}

void fill_header(VerbsReport& report, const Options& options, const Launch& launch,
                 const Placement& placement, VerbsCases& cases, const Timer& timer,
                 std::span<const Node> nodes) {
  const auto add = [&](const char* label, std::string text) {
    report.header.emplace_back(label, std::move(text));
  };
  add("machine", cpu_model());
  if (!options.brief) add("build", build_text());
  add("device",
      fmt::format("{}: {}", cases.station().port().name(), cases.station().port().reason));
  if (!options.fabric.empty())
    add("fabric", fmt::format("{}, emulated in {} time", options.fabric,
                              options.virtual_time ? "virtual" : "real"));
  const std::uint32_t last =
      index_of(*std::max_element(nodes.begin(), nodes.end(), [](Node one, Node other) {
        return index_of(one) < index_of(other);
      }));
  add("ranks", fmt::format("{} on {} node{}, started by {}; {}", nodes.size(), last + 1,
                           last == 0 ? "" : "s", launch.bootstrap,
                           cases.partner() == no_rank ? std::string("rank 0 measures")
                                                      : fmt::format("rank 0 measures with rank {}",
                                                                    index_of(cases.partner()))));
  if (options.virtual_time || options.brief) return;
  add("binding", placement.binding);
  add("timer",
      fmt::format("{}, {:.1f} ns a reading, not subtracted", timer.name(), timer.cost_ns()));
}

}  // namespace

int run_verbs_session(const Options& options, const Launch& launch) {
  Exchange& exchange = launch.exchange;
  const Placement placement = place_ranks(exchange, options.bind);
  const File file = open_file("--out", options.out, "w", "that can be written", exchange);
  const runtime::ContextSettings settings = runtime::context_settings(context_options_of(options));
  const std::vector<Node> nodes = nodes_of(options, exchange, placement, settings);
  const Timer timer;
  VerbsCases cases(options, exchange, nodes, settings.device);
  const verbs::Port& port = cases.station().port();
  const bool is_software = port.description.is_software();
  refuse_fabric_of_real_device(options, port.name(), is_software);
  VerbsReport report;
  report.brief = options.brief;
  std::unique_ptr<Perftest> perftest;
  if (options.against_perftest) {
    if (cases.partner() != no_rank)
      perftest = std::make_unique<Perftest>(exchange, Rank{0}, cases.partner(),
                                            placement.one_machine, port);
    if (!perftest || !perftest->obstacle().empty()) {
      report.notes.push_back(perftest ? perftest->obstacle() : "nothing beside perftest: one rank");
      perftest.reset();
    }
  }
  const std::vector<Measured> measured = measure(cases, options, timer, exchange, perftest.get());
  if (exchange.self() != Rank{0}) return 0;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    const VerbsTest& test = cases.all()[i];
    VerbsRow row = row_of(test, measured[i]);
    row.is_model = test.needs_card && is_software;
    row.ranks = exchange.rank_count();
    row.device = port.name();
    row.bootstrap = launch.bootstrap;
    if (!options.fabric.empty()) row.fabric = options.fabric;
    row.is_virtual = options.virtual_time;
    row.oversubscribed = placement.oversubscribed && !options.virtual_time;
    report.rows.push_back(std::move(row));
  }
  fill_header(report, options, launch, placement, cases, timer, nodes);
  if (options.format != Format::table)
    for (const std::string& note : report.notes) print_reason("tutti-bench", note);
  write(text_of(report, options.format), file ? file.get() : stdout);
  return 0;
}

}  // namespace tutti::bench
