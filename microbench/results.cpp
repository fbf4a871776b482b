#include "microbench/results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <tutti/detail/names.hpp>

#include "microbench/machine.hpp"
#include "microbench/statistics.hpp"
#include "verbs/soft/fabric_model.hpp"

namespace tutti::bench {
namespace {

const Result* find(const Findings& findings, Collective collective, std::size_t bytes) {
  for (const Result& result : findings.results)
    if (result.which->collective == collective && result.which->bytes == bytes) return &result;
  return nullptr;
}

/// The least that the busier of two ranks of a node has to do, as a multiple of copying `bytes`.  A
/// copy reads and writes every byte; combining reads two and writes one, so it counts 1.5.
double copies_of(Collective collective) noexcept {
  switch (collective) {
    case Collective::reduce:  // the root combines
    case Collective::scan:    // rank 1 combines
      return 1.5;
    case Collective::allreduce:  // each combines a half and copies the other one
      return 1.25;
    case Collective::reduce_scatter:  // each combines a half
      return 0.75;
    case Collective::allgather:  // its own block and the other one
    case Collective::allgatherv:
    case Collective::alltoall:
    case Collective::alltoallv:
    case Collective::gather:  // the root copies both blocks
    case Collective::gatherv:
      return 2;
    case Collective::broadcast:  // the rank that is not the root copies
    case Collective::scatter:    // each rank copies its block
    case Collective::scatterv:
    case Collective::exscan:  // rank 1 copies
    case Collective::barrier:
    case Collective::floor:
    case Collective::oneway:
    case Collective::memcpy:
    case Collective::wimm:
      break;
  }
  return 1;
}

/// What an allreduce of a long payload cannot fall below in virtual time: the bytes that the port
/// of a node has to pass on, or those that a rank has to copy through shared memory, whichever
/// takes longer.  Along the shared ring a rank stores its contribution and copies all results;
/// otherwise what is combined and handed on once inside the node is shared by its ranks.  Of
/// allgather and reduce_scatter, the bytes that the port of a node has to pass on.
std::optional<Bound> bound_of_bytes(const Findings& findings, const Result& result) {
  const Case& one = *result.which;
  constexpr std::size_t long_bytes = 64u << 10;  // from there on payloads are cut
  const bool gathers = one.collective == Collective::allgather;
  const bool is_half = gathers || one.collective == Collective::reduce_scatter;
  const double ranks = findings.launch.exchange.rank_count();
  const double bytes = static_cast<double>(one.bytes) * (gathers ? ranks : 1);
  if ((one.collective != Collective::allreduce && !is_half) || bytes < long_bytes || !one.tutti)
    return {};
  const char* const fabric = std::getenv("TUTTI_SOFT_FABRIC");
  const auto model = verbs::soft::read_fabric_model(fabric != nullptr ? fabric : "fdr");
  const double nodes = findings.communicator.node_count();
  const double members = ranks / nodes;
  const double port = (is_half ? 1 : 2) * (nodes - 1) / nodes * bytes * model.per_byte;
  const bool is_ring = one.tutti->operation().algorithm() == "shared_ring";
  const double memory = members <= 1 || is_half ? 0
                        : is_ring ? bytes * (model.inside.per_byte + model.inside.read_per_byte)
                                  : 2 * (members - 1) / members * bytes * model.inside.per_byte;
  const double ns = std::max(port, memory) / 1000;
  if (ns <= 0) return {};
  return Bound{.name = port >= memory ? "bytes through a port" : "bytes through memory",
               .ns = ns,
               .ratio = median(result.samples.batches) / ns};
}

/// The bound of a row: the exchange of two lines for wimm and for a collective of two ranks of one
/// node, rounds of wimm for a collective of two nodes.  Inside a node, copying in memory bounds
/// payloads of more than 8 bytes; across nodes these have no bound here.
std::optional<Bound> bound_of(const Findings& findings, const Result& result) {
  if (findings.options.virtual_time) return bound_of_bytes(findings, result);
  const Case& one = *result.which;
  const bool of_two = one.tutti != nullptr && findings.launch.exchange.rank_count() == 2;
  const bool one_node = findings.communicator.node_count() == 1;
  const Result* below = nullptr;
  double times = 1;
  if (one.collective == Collective::wimm) {
    below = find(findings, Collective::floor, 8);
  } else if (of_two && one.bytes <= 8) {
    below = find(findings,
                 !one_node                            ? Collective::wimm
                 : is_timed_from_root(one.collective) ? Collective::oneway
                                                      : Collective::floor,
                 8);
    times = static_cast<double>(one.tutti->operation().per_round().size());
  } else if (of_two && one_node) {
    below = find(findings, Collective::memcpy, one.bytes);
    times = copies_of(one.collective);
  }
  if (below == nullptr) return {};
  const char* name = name_of(below->which->collective);
  const std::vector<double>& medians = below->samples.block_medians;
  return Bound{.name = times == 1 ? name : fmt::format("{} {}", times, name),
               .ns = median(below->samples.batches) * times,
               .ratio = median_ratio(result.samples.block_medians, medians) / times};
}

/// The transport that was demanded of the software device; it does not say which it has taken.
std::optional<std::string> transport(const Findings& findings) {
  const char* demanded = std::getenv("TUTTI_SOFT_TRANSPORT");
  const bool soft = findings.context.device_name().starts_with("soft");
  if (!soft || demanded == nullptr || std::strcmp(demanded, "auto") == 0) return {};
  return demanded;
}

Row row_of(const Findings& findings, const Result& result) {
  const Case& one = *result.which;
  const Samples& samples = result.samples;
  const Options& options = findings.options;
  Row row;
  row.collective = name_of(one.collective);
  row.bytes = one.bytes;
  if (one.way != nullptr) row.way = one.way->name;
  row.ranks = findings.launch.exchange.rank_count();
  row.nodes = findings.communicator.node_count();
  row.seed = options.seed;
  row.iterations = findings.common_effort.blocks * result.effort.block_calls;
  row.min_ns = smallest(samples.batches);
  row.median_ns = median(samples.batches);
  row.p99_ns = percentile(samples.singles, 99);
  row.max_ns = largest(samples.singles);
  row.correct = result.outcome.correct;
  row.bound = bound_of(findings, result);
  row.is_virtual = options.virtual_time;
  if (!options.fabric.empty()) row.fabric = options.fabric;
  row.oversubscribed = findings.placement.oversubscribed && !options.virtual_time;
  row.bootstrap = findings.launch.bootstrap;
  row.deviation_ns = median_absolute_deviation(samples.batches);
  row.slowest_median_ns = result.slowest_median_ns;
  if (is_reduction(one.collective)) {
    row.dtype = name_of(options.dtype);
    row.op = name_of(options.op);
    row.agreement = name_of(options.agreement);
  }
  if (one.collective == Collective::wimm || one.tutti != nullptr) {
    row.device = findings.context.device_name();
    row.notify = name_of(one.tutti ? one.tutti->operation().notify() : Notify::immediate);
    row.transport = transport(findings);
  }
  if (one.tutti != nullptr) {
    row.algorithm = one.tutti->operation().algorithm();
    row.per_round = one.tutti->operation().per_round();
  }
  if (result.mpi)
    row.mpi = {.name = findings.launch.mpi->library_name(),
               .median_ns = median(result.mpi->batches),
               .p99_ns = percentile(result.mpi->singles, 99),
               .ratio = median_ratio(samples.block_medians, result.mpi->block_medians)};
  return row;
}

std::string cpus_text(const Placement& placement) {
  CpuSet cpus;
  for (const Whereabouts& rank : placement.ranks)
    for (const unsigned cpu : rank.cpus.list()) cpus.add(cpu);
  return text_of(cpus);
}

void fill_header(Report& report, const Findings& findings) {
  const Options& options = findings.options;
  const auto add = [&](const char* label, std::string text) {
    report.header.emplace_back(label, std::move(text));
  };
  add("machine", fmt::format("{}, CPUs allowed {}", cpu_model(), cpus_text(findings.placement)));
  if (!options.brief) add("build", build_text());
  add("device", findings.context.device_choice());
  if (const auto known = transport(findings)) add("transport", *known);
  if (!options.fabric.empty())
    add("fabric", fmt::format("{}, emulated in {} time", options.fabric,
                              options.virtual_time ? "virtual" : "real"));
  const std::uint32_t ranks = findings.launch.exchange.rank_count();
  const std::uint32_t nodes = findings.communicator.node_count();
  const std::string shape = nodes == 1       ? "one node"
                            : nodes == ranks ? "each a node of its own"
                                             : fmt::format("{} nodes", nodes);
  add("ranks", fmt::format("{}, {}, started by {}", ranks, shape, findings.launch.bootstrap));
  if (const std::string& remark = findings.communicator.node_remark(); !remark.empty())
    add("nodes", remark);
  if (nodes == 1 && ranks > 1) add("single copy", findings.communicator.single_copy_remark());
  const Effort& first = findings.results.front().effort;
  if (options.virtual_time) {
    add("samples", fmt::format("{} calls, all ranks starting at the same instant; the last "
                               "rank's end counts",
                               first.block_calls));
  } else if (!options.brief) {
    add("binding", findings.placement.binding);
    add("timer", fmt::format("{}, {:.1f} ns a reading, not subtracted", findings.timer.name(),
                             findings.timer.cost_ns()));
    add("samples",
        fmt::format("{} alternating blocks; {} calls in batches of {} in each block of the "
                    "first row",
                    findings.common_effort.blocks, first.block_calls, first.batch));
  }
  const bool reduces =
      std::any_of(findings.results.begin(), findings.results.end(),
                  [](const Result& result) { return is_reduction(result.which->collective); });
  if (reduces && !options.brief)
    add("reductions", fmt::format("{} of {}, agreement {}", name_of(options.op),
                                  name_of(options.dtype), name_of(options.agreement)));
  if (findings.launch.mpi != nullptr) add("MPI", findings.launch.mpi->library_name());
  if (options.check && !options.brief)
    add("check", fmt::format("{} further calls of each row, delays up to {} us, seed {}",
                             options.iterations.value_or(check_calls_default), options.delay_us,
                             options.seed));
}

void fill_ratios(Report& report, const Findings& findings) {
  const auto add = [&](std::string what, const Samples& above, const Samples& below) {
    report.ratios.push_back({.what = std::move(what),
                             .median = median_ratio(above.block_medians, below.block_medians),
                             .blocks = findings.common_effort.blocks});
  };
  // Ways of one collective and size follow each other.
  const Result* first = nullptr;
  for (const Result& result : findings.results) {
    if (result.which->way == nullptr) continue;
    if (result.which->way == &findings.options.ways.front())
      first = &result;
    else if (first != nullptr) {
      // The first way over another one; but what is traced over what is not: what a trace costs.
      const bool is_traced = !result.which->way->trace_file.empty();
      const Result& above = is_traced ? result : *first;
      const Result& below = is_traced ? *first : result;
      add(fmt::format("{} {} B {} / {}", name_of(result.which->collective), result.which->bytes,
                      above.which->way->name, below.which->way->name),
          above.samples, below.samples);
    }
  }
  for (const Result& result : findings.results) {
    if (result.overlaps.empty()) continue;
    std::string what = name_of(result.which->collective);
    if (result.which->buffers) what += fmt::format(" {} B", result.which->bytes);
    report.ratios.push_back({.what = "overlap of " + what,
                             .median = median(result.overlaps),
                             .blocks = result.overlaps.size()});
    report.ratios.push_back({.what = "busy in test() of " + what,
                             .median = median(result.busy),
                             .blocks = result.busy.size()});
  }
}

/// Adds a note where a rank is slower than rank 0, whose times the table has.
void note_slow_ranks(Report& report) {
  constexpr double worth_a_note = 1.1, clock_ns = 20;  // twice what one reading takes
  for (const Row& row : report.rows)
    if (!row.is_virtual && row.slowest_median_ns > worth_a_note * row.median_ns + clock_ns)
      report.notes.push_back(fmt::format("{} {} B: the largest median of all ranks is {:.3f} us",
                                         row.collective, row.bytes, row.slowest_median_ns / 1000));
}

bool all_right(const Findings& findings) {
  return std::all_of(findings.results.begin(), findings.results.end(), [](const Result& result) {
    return result.which->tutti == nullptr || result.outcome.correct.value_or(false);
  });
}

}  // namespace

Report report_of(const Findings& findings) {
  Report report;
  for (const Result& result : findings.results) {
    report.rows.push_back(row_of(findings, result));
    if (findings.options.check && result.which->tutti != nullptr && !result.outcome.correct)
      report.notes.push_back(result.outcome.what);
  }
  const bool none_of_some =
      findings.options.overlap &&
      std::any_of(findings.results.begin(), findings.results.end(), [](const Result& result) {
        return result.which->tutti != nullptr && result.overlaps.empty();
      });
  if (none_of_some)
    report.notes.emplace_back("no overlap of collectives that are timed from a root");
  fill_header(report, findings);
  fill_ratios(report, findings);
  note_slow_ranks(report);
  if (findings.options.check && all_right(findings))
    report.notes.emplace_back("every checked result was right");
  report.brief = findings.options.brief;
  return report;
}

}  // namespace tutti::bench
