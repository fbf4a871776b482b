#include "microbench/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "microbench/expectation.hpp"
#include "microbench/launch.hpp"
#include "microbench/results.hpp"
#include "microbench/statistics.hpp"
#include "microbench/together.hpp"

namespace tutti::bench {
namespace {

/// The bounds of --expect, on rank 0, and the verdicts of this run on them.
class Expected {
 public:
  /// Reads the file.  Collective.  Throws Error, alike on all ranks, if the file is wrong or none
  /// of its bounds will be measured.
  Expected(const Options& options, const Cases& cases, const Placement& placement,
           Exchange& exchange)
      : options_(options), exchange_(exchange) {
    if (options_.expect.empty()) return;
    const File file =
        open_file("--expect", options_.expect, "r",
                  "of bounds that can be read, such as microbench/targets.txt", exchange);
    together(exchange, [&] {
      if (!file) return;
      bounds_ = parse_expectations(read(file.get()), options_.expect);
      if (placement.oversubscribed)
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("--expect=\"{}\": expected a CPU for each rank, as what ranks take "
                                "that share one is no latency; start fewer",
                                options_.expect));
      for (const Case& one : cases.all())
        rows_.push_back(
            {.collective = one.collective,
             .bytes = one.bytes,
             .notify = one.tutti ? std::optional(one.tutti->operation().notify()) : std::nullopt,
             .beside_mpi = one.mpi != nullptr});
      found_ = match(bounds_, rows_, exchange.rank_count(), cases.communicator().node_count());
      if (found_.pairings.empty()) refuse_nothing_measured();
    });
  }

  /// Whether `results`, or those judged before, meet all bounds: the best ratio of each counts.
  /// Collective.
  bool judge(std::span<const Result> results) {
    if (options_.expect.empty()) return true;
    for (std::size_t i = 0; i < found_.pairings.size(); ++i) {
      const double ratio = ratio_of(found_.pairings[i], results);
      if (i == ratios_.size()) ratios_.push_back(ratio);
      if (ratio > 0) ratios_[i] = std::min(ratios_[i], ratio);
    }
    missed_ = gather(exchange_, missed(bounds_, found_, ratios_, options_.tripwire)).front();
    return missed_ == 0;
  }

  std::string text() const { return as_text(bounds_, found_, rows_, ratios_, options_.tripwire); }
  std::size_t missed_count() const { return missed_; }

 private:
  std::string read(std::FILE* file) const {
    std::string text;
    char part[4096];
    while (const std::size_t count = std::fread(part, 1, sizeof part, file))
      text.append(part, count);
    if (std::ferror(file) != 0)
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("--expect=\"{}\": {}; give a file of bounds", options_.expect,
                              std::strerror(errno)));
    return text;
  }

  [[noreturn]] void refuse_nothing_measured() const {
    if (found_.gaps.empty())
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("{}:{}: \"{}\": expected a run of [{}], as all bounds of this file are "
                      "about other runs than this one",
                      options_.expect, bounds_.front().line, bounds_.front().text,
                      bounds_.front().condition));
    const Gap& gap = found_.gaps.front();
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}:{}: \"{}\": {}; expected a run that measures what a bound is about",
                            options_.expect, bounds_[gap.expectation].line,
                            bounds_[gap.expectation].text, gap.reason));
  }

  static double ratio_of(const Pairing& pairing, std::span<const Result> results) {
    const Result& row = results[pairing.row];
    const Samples& beside = pairing.beside ? results[*pairing.beside].samples : *row.mpi;
    return median_ratio(row.samples.block_medians, beside.block_medians);
  }

  const Options& options_;
  Exchange& exchange_;
  std::vector<Expectation> bounds_;
  std::vector<Measured> rows_;
  Match found_;
  std::vector<double> ratios_;  // the best so far, one for each pairing
  std::size_t missed_ = 0;
};

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

/// Fills in the overlaps of the slowest rank.  It waits least: the others also wait for its work.
/// Collective.
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
                                bool oversubscribed, const CommonEffort& common,
                                const Timer& timer) {
  if (options.virtual_time) return measure_all_virtually(cases, options, exchange);
  std::vector<Contestant> contestants;
  for (const Case& one : cases.all()) {
    const Effort effort = effort_for(one.bytes, options.iterations, oversubscribed, common);
    contestants.push_back({.subject = one.subject.get(), .effort = effort});
    if (one.mpi) contestants.push_back({.subject = one.mpi.get(), .effort = effort});
    if (!one.overlap) continue;
    one.overlap->calibrate(timer, exchange);
    contestants.push_back({.subject = &one.overlap->alone, .effort = effort});
    contestants.push_back({.subject = &one.overlap->beside, .effort = effort});
  }
  measure(contestants, common, timer, exchange);
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
  return check_payload(one.collective, one.bytes, *one.tutti, *one.buffers, options, exchange,
                       plan);
}

}  // namespace

File open_file(const char* option, const std::string& name, const char* mode, const char* wanted,
               Exchange& exchange) {
  File file;
  together(exchange, [&] {
    if (exchange.self() != Rank{0} || name.empty()) return;
    file.reset(std::fopen(name.c_str(), mode));
    if (!file)
      throw Error(ErrorCode::invalid_argument, fmt::format("{}=\"{}\": {}; give a file {}", option,
                                                           name, std::strerror(errno), wanted));
  });
  return file;
}

void refuse_fabric_of_real_device(const RankOptions& options, const std::string& device,
                                  bool is_software) {
  if (options.fabric.empty() || is_software) return;
  throw Error(ErrorCode::unsupported,
              fmt::format("--fabric=\"{}\": {} is a real device; set TUTTI_DEVICE=soft0",
                          options.fabric, device));
}

void write(const std::string& text, std::FILE* file) {
  const bool complete = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (!complete || std::fflush(file) != 0)
    throw RunFailed(fmt::format("writing the results: {}", std::strerror(errno)));
}

int run_session(const Options& options, const Launch& launch) {
  Exchange& exchange = launch.exchange;
  const Placement placement = place_ranks(exchange, options.bind);
  const File file = open_file("--out", options.out, "w", "that can be written", exchange);
  const File record = open_file("--record", options.record, "a", "that can be written", exchange);
  const Timer timer;  // calibrated on the CPU that will be used
  Cases cases(options, launch, placement, timer);
  const std::string device = cases.context().device_name();
  refuse_fabric_of_real_device(options, device, device.starts_with("soft"));
  Expected expected(options, cases, placement, exchange);
  const CommonEffort common =
      options.virtual_time
          ? CommonEffort{}
          : common_effort_for(options.iterations, options.warmup, placement.oversubscribed);
  Findings findings{
      .options = options,
      .launch = launch,
      .placement = placement,
      .context = cases.context(),
      .communicator = cases.communicator(),
      .timer = timer,
      .common_effort = common,
      .results = measure_all(cases, options, exchange, placement.oversubscribed, common, timer)};
  std::size_t tries = 1;
  while (!expected.judge(findings.results) && options.tripwire && tries < tripwire_tries) {
    ++tries;
    findings.results =
        measure_all(cases, options, exchange, placement.oversubscribed, common, timer);
  }
  for (std::size_t i = 0; i < findings.results.size(); ++i)
    findings.results[i].outcome = check(cases.all()[i], options, exchange, placement);
  for (Result& result : findings.results) {
    const std::vector<double> medians = gather(exchange, median(result.samples.batches));
    result.slowest_median_ns = largest(medians);
  }
  if (exchange.self() == Rank{0}) {
    const Report report = report_of(findings);
    write(text_of(report, options.format), file ? file.get() : stdout);
    if (record) write(as_json(report.rows), record.get());
    if (!options.expect.empty()) {
      // Where a program reads standard output, verdicts go elsewhere.
      const bool apart = !file && options.format != Format::table;
      const std::string times =
          tries > 1 ? fmt::format("; measured {} times, the best counts", tries) : "";
      write(fmt::format("\nExpected by {}{}{}:\n{}", options.expect,
                        options.tripwire ? ", its tripwires" : "", times, expected.text()),
            apart ? stderr : stdout);
    }
  }
  for (const Result& result : findings.results) {
    if (result.outcome.correct.value_or(true)) continue;
    if (exchange.self() == Rank{0})
      print_reason("tutti-bench", "wrong result: " + result.outcome.what);
    return exit_failure;
  }
  // Only rank 0 returns it: a launcher may end the other ranks of a job in which one has failed.
  return expected.missed_count() == 0 || exchange.self() != Rank{0} ? 0 : exit_not_met;
}

}  // namespace tutti::bench
