#include "microbench/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "microbench/launch.hpp"
#include "microbench/results.hpp"
#include "microbench/statistics.hpp"
#include "microbench/together.hpp"
#include "microbench/virtual_run.hpp"

namespace tutti::bench {
namespace {

struct Close {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

/// Rank 0's file for --out, opened before anything is measured: a bad name must not cost a run.
File open_output(const Options& options, Exchange& exchange) {
  File file;
  together(exchange, [&] {
    if (exchange.self() != Rank{0} || options.out.empty()) return;
    file.reset(std::fopen(options.out.c_str(), "w"));
    if (!file)
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("--out=\"{}\": {}; give a file that can be written", options.out,
                              std::strerror(errno)));
  });
  return file;
}

std::vector<Result> measure_all_virtually(Cases& cases, const Options& options,
                                          Exchange& exchange) {
  std::vector<Result> results;
  const std::size_t calls = options.iterations.value_or(virtual_calls_default);
  for (const Case& one : cases.all())
    results.push_back({.which = &one,
                       .effort = {.batch = 1, .block_calls = calls, .single_calls = calls},
                       .samples = measure_virtual(*one.subject, calls, exchange)});
  return results;
}

/// Collective.  Of the slowest rank, which waits least: the others would also wait for its work.
void fill_overlaps(Result& result, const Samples& alone, const Samples& both, Exchange& exchange) {
  const auto slowest = [&](double mine) { return largest(gather(exchange, mine)); };
  const double wait_ns = smallest(gather(exchange, result.which->overlap->beside.wait_ns()));
  for (std::size_t block = 0; block < both.block_medians.size(); ++block) {
    const double collective_ns = slowest(result.samples.block_medians[block]);
    const double work_ns = slowest(alone.block_medians[block]);
    const double both_ns = slowest(both.block_medians[block]);
    result.overlaps.push_back(overlap_of(collective_ns, work_ns, both_ns));
    result.busy.push_back(busy_of(collective_ns, work_ns, both_ns, wait_ns));
  }
}

std::vector<Result> measure_all(Cases& cases, const Options& options, Exchange& exchange,
                                bool oversubscribed, const Schedule& schedule, const Timer& timer) {
  if (options.virtual_time) return measure_all_virtually(cases, options, exchange);
  std::vector<Contestant> contestants;
  for (const Case& one : cases.all()) {
    const Effort effort = effort_for(one.bytes, options.iterations, oversubscribed, schedule);
    contestants.push_back({.subject = one.subject.get(), .effort = effort});
    if (one.mpi) contestants.push_back({.subject = one.mpi.get(), .effort = effort});
    if (!one.overlap) continue;
    one.overlap->calibrate(timer, exchange);
    contestants.push_back({.subject = &one.overlap->alone, .effort = effort});
    contestants.push_back({.subject = &one.overlap->beside, .effort = effort});
  }
  measure(contestants, schedule, timer, exchange);
  std::vector<Result> results;
  std::size_t next = 0;
  for (const Case& one : cases.all()) {
    Contestant& ours = contestants[next++];
    Result result{.which = &one, .effort = ours.effort, .samples = std::move(ours.samples)};
    if (one.mpi) result.mpi = std::move(contestants[next++].samples);
    if (one.overlap) {
      const Samples& alone = contestants[next++].samples;
      const Samples& both = contestants[next++].samples;
      fill_overlaps(result, alone, both, exchange);
    }
    results.push_back(std::move(result));
  }
  return results;
}

CheckOutcome check(Case& one, const Options& options, Exchange& exchange,
                   const Placement& placement) {
  if (!options.check || one.tutti == nullptr) return {};
  const CheckPlan plan{.calls = options.iterations.value_or(check_calls_default),
                       .delay_us = options.delay_us,
                       .seed = options.seed};
  if (one.collective == Collective::barrier)
    return check_barrier(*one.tutti, exchange, placement, plan);
  if (one.collective == Collective::broadcast || one.collective == Collective::reduce)
    return check_rooted(one.collective, *one.tutti, *one.buffers, options, exchange, plan);
  if (one.collective != Collective::allreduce)
    return check_blocks(one.collective, one.bytes, *one.tutti, *one.buffers, options, exchange,
                        plan);
  return check_allreduce(*one.tutti, *one.buffers, options, exchange, plan);
}

void print(const Report& report, Format format, std::FILE* file) {
  std::string text;
  switch (format) {
    case Format::table:
      text = as_table(report);
      break;
    case Format::json:
      text = as_json(report.rows);
      break;
    case Format::csv:
      text = as_csv(report.rows);
      break;
  }
  const bool complete = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (!complete || std::fflush(file) != 0)
    throw RunFailed(fmt::format("writing the results: {}", std::strerror(errno)));
}

}  // namespace

int run_session(const Options& options, const Launch& launch) {
  Exchange& exchange = launch.exchange;
  const Placement placement = place_ranks(exchange, options.bind);
  const File file = open_output(options, exchange);
  const Timer timer;  // calibrated on the CPU that will be used
  Cases cases(options, launch, placement, timer);
  if (!options.fabric.empty() && !cases.context().device_name().starts_with("soft"))
    throw Error(ErrorCode::unsupported,
                fmt::format("--fabric=\"{}\": {} is a real device; set TUTTI_DEVICE=soft0",
                            options.fabric, cases.context().device_name()));
  const Schedule schedule = options.virtual_time ? Schedule{}
                                                 : schedule_for(options.iterations, options.warmup,
                                                                placement.oversubscribed);
  Findings findings{
      .options = options,
      .launch = launch,
      .placement = placement,
      .context = cases.context(),
      .communicator = cases.communicator(),
      .timer = timer,
      .schedule = schedule,
      .results = measure_all(cases, options, exchange, placement.oversubscribed, schedule, timer)};
  for (std::size_t i = 0; i < findings.results.size(); ++i)
    findings.results[i].outcome = check(cases.all()[i], options, exchange, placement);
  for (Result& result : findings.results) {
    const std::vector<double> medians = gather(exchange, median(result.samples.batches));
    result.slowest_median_ns = largest(medians);
  }
  if (exchange.self() == Rank{0})
    print(report_of(findings), options.format, file ? file.get() : stdout);
  for (const Result& result : findings.results) {
    if (result.outcome.correct.value_or(true)) continue;
    if (exchange.self() == Rank{0})
      print_reason("tutti-bench", "wrong result: " + result.outcome.what);
    return exit_failure;
  }
  return 0;
}

}  // namespace tutti::bench
