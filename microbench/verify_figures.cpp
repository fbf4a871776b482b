#include "microbench/verify_figures.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <string>
#include <utility>

#include "microbench/percent.hpp"
#include "microbench/verify_choices.hpp"
#include "tune/choose.hpp"

namespace tutti::bench {
namespace {

constexpr const char* presets[] = {"qdr", "fdr",     "edr",    "hdr",
                                   "ndr", "roce100", "roce25", "roce10"};

bool is_fitted(std::size_t parameter) {
  return static_cast<tune::Parameter>(parameter) != tune::Parameter::fan_max;
}

std::string of(std::uint32_t part, std::uint32_t whole) {
  return std::to_string(part) + " of " + std::to_string(whole);
}

double largest_error(const tune::Machine& fitted, const tune::Machine& truth) {
  double error = 0;
  for (std::size_t i = 0; i < tune::parameter_count; ++i) {
    if (!is_fitted(i)) continue;
    const auto value = static_cast<double>(truth.figures[i].value);
    const double off = std::abs(static_cast<double>(fitted.figures[i].value) - value);
    error = std::max(error, value == 0 ? off : off / value);
  }
  return error;
}

/// The time of this thread alone, so that other programs count little.
std::chrono::nanoseconds processor_time() {
  std::timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

/// Blocks have these bytes, too.
std::vector<ChoiceCell> calls_of_choosing() {
  using tune::Collective;
  std::vector<ChoiceCell> cells{{.collective = Collective::barrier, .bytes = 0}};
  for (const Collective collective :
       {Collective::allreduce, Collective::broadcast, Collective::reduce,
        Collective::reduce_scatter, Collective::allgather, Collective::alltoall, Collective::gather,
        Collective::scatter, Collective::scan})
    for (const std::uint64_t bytes : {8u, 4096u, 1u << 20})
      for (const Agreement agreement :
           {Agreement::identical, Agreement::reproducible, Agreement::relaxed})
        if (tune::combines(collective) || agreement == Agreement::identical)
          cells.push_back({.collective = collective, .bytes = bytes, .agreement = agreement});
  return cells;
}

}  // namespace

Coverage coverage_of(const tune::Machine& truth, const ProbeNoise& noise, std::uint32_t seeds) {
  Coverage coverage;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const tune::Fit result = tune::fit(samples_of(truth, noise, seed), fallback_like_none(), seed);
    for (std::size_t i = 0; i < tune::parameter_count; ++i) {
      if (!is_fitted(i)) continue;
      const tune::Figure& figure = result.machine.figures[i];
      const std::int64_t value = truth.figures[i].value;
      coverage.covered[i] += figure.low <= value && value <= figure.high ? 1 : 0;
      coverage.width[i] += static_cast<double>(figure.high - figure.low) /
                           static_cast<double>(value) / static_cast<double>(seeds);
    }
  }
  return coverage;
}

FitFigures fit_figures(const std::string& preset, std::uint32_t seeds) {
  const tune::Machine truth = machine_to_fit(preset);
  const auto error_with = [&](const ProbeNoise& noise, std::uint64_t seed) {
    return largest_error(
        tune::fit(samples_of(truth, noise, seed), fallback_like_none(), seed).machine, truth);
  };
  FitFigures figures{.preset = preset, .seeds = seeds, .error = error_with({}, 1)};
  for (std::uint64_t seed = 1; seed <= 20; ++seed)
    figures.error_of_late =
        std::max(figures.error_of_late,
                 error_with({.late_probability = usual_noise.late_probability}, seed));
  const Coverage coverage = coverage_of(truth, usual_noise, seeds);
  figures.covered = seeds;
  for (std::size_t i = 0; i < tune::parameter_count; ++i) {
    if (!is_fitted(i)) continue;
    figures.covered = std::min(figures.covered, coverage.covered[i]);
    figures.width = std::max(figures.width, coverage.width[i]);
  }
  return figures;
}

Verdict verify_fit(
    std::uint32_t seeds,
    const std::function<void(const std::string&, std::size_t, std::size_t)>& progress) {
  Verdict verdict{
      .text =
          "| network | largest error of a parameter | with 5 % of messages late, 20 seeds | "
          "intervals that cover the truth, least of a parameter | width of an interval, at "
          "most |\n|---|---|---|---|---|\n"};
  std::size_t done = 0;
  for (const char* const preset : presets) {
    if (progress) progress(preset, done++, std::size(presets));
    const FitFigures figures = fit_figures(preset, seeds);
    verdict.text += "| " + figures.preset + " | " + percent(figures.error, 3) + " | " +
                    percent(figures.error_of_late, 2) + " | " + of(figures.covered, seeds) + " | " +
                    percent(figures.width, 1) + " |\n";
    const auto expect = [&](bool is_met, const std::string& what) {
      if (!is_met) verdict.misses += figures.preset + ": " + what + "\n";
    };
    expect(figures.error <= error_max, "a parameter is " + percent(figures.error, 3) +
                                           " off, expected at most " + percent(error_max, 0));
    expect(figures.error_of_late <= error_of_late_max,
           "a parameter is " + percent(figures.error_of_late, 2) +
               " off where messages are late, expected at most " + percent(error_of_late_max, 0));
    expect(figures.covered >= covered_min * seeds, "the truth is in " + of(figures.covered, seeds) +
                                                       " intervals of a parameter, expected " +
                                                       percent(covered_min, 0) + " at least");
  }
  return verdict;
}

Verdict verify_noise(std::uint32_t races) {
  const RaceRates rates = race_rates(races);
  Verdict verdict{.text = "| races with heavy-tailed noise | of | bound |\n|---|---|---|\n"};
  const auto add = [&](const std::string& what, const std::string& figure, const std::string& bound,
                       bool is_met) {
    verdict.text += "| " + what + " | " + figure + " | " + bound + " |\n";
    if (!is_met) verdict.misses += what + ": " + figure + ", expected " + bound + "\n";
  };
  const auto samples = [&](const RaceTally& tally) {
    return fixed(static_cast<double>(tally.samples) / tally.races, 1);
  };
  add("four within 30 %: what is more than 5 % slower than the best wins",
      of(rates.some.bad, races), "at most 1 %", rates.some.bad * 100 <= races);
  add("four, all but one 6 % slower: one of these wins", of(rates.close.bad, races), "at most 1 %",
      rates.close.bad * 100 <= races);
  add("two that take equally long: the first one is kept", of(rates.twins.first, races),
      "at least 95 %", rates.twins.first * 100 >= races * 95);
  const std::uint64_t blocks = std::uint64_t{races} * rates.fixed_blocks;
  const std::string fixed_count = std::to_string(rates.fixed_blocks) + " blocks";
  add("samples of four, where " + fixed_count + " without tests err as seldom", samples(rates.some),
      "at most half of " + std::to_string(4 * rates.fixed_blocks),
      rates.some.samples * 2 <= 4 * blocks);
  add("samples of two, where " + fixed_count + " without tests err as seldom", samples(rates.twins),
      "at most half of " + std::to_string(2 * rates.fixed_blocks),
      rates.twins.samples * 2 <= 2 * blocks);
  return verdict;
}

tune::Knowledge of_many_races() {
  std::vector<tune::Finding> findings;
  std::int64_t measured = 2'000'000;
  const auto timing = [&](const char* name) {
    measured = 1'500'000 + (measured * 31 + 7919) % 1'000'000;
    return tune::Timing{name, measured, 2'000'000};
  };
  for (const tune::Collective collective :
       {tune::Collective::allreduce, tune::Collective::broadcast, tune::Collective::reduce,
        tune::Collective::alltoall})
    for (const std::uint32_t nodes : {8u, 16u, 64u, 512u, 4096u})
      for (std::uint64_t bytes = 12; bytes <= 12u << 18; bytes *= 4)
        findings.push_back({.collective = collective,
                            .bytes = bytes,
                            .nodes = nodes,
                            .winner = timing("two_partial_dissemination with 3,2 a round"),
                            .others = {timing("canonical_dissemination with 3,2 a round"),
                                       timing("chunked_fold"), timing("circulant with 3,2 a round"),
                                       timing("fibonacci_tree of latency 5"), timing("direct")}});
  tune::Tuning tuning;
  tuning.machine = tune::machine_preset("fdr");
  tuning.findings = std::move(findings);
  return tune::tuned(tuning.machine, tuning, tune::TuningBits::keep);
}

Verdict verify_time() {
  using Microseconds = std::chrono::duration<double, std::micro>;
  constexpr Microseconds longest_max{1000};
  const tune::Knowledge nothing, races = of_many_races();
  Verdict verdict{.text =
                      "| 4096 ranks | file | calls | choosing takes over 1 ms | longest processor "
                      "time | for |\n"
                      "|---|---|---|---|---|---|\n"};
  for (const auto& [nodes, ranks_per_node] :
       {std::pair{4096u, 1u}, {512u, 8u}, {128u, 32u}, {64u, 64u}})
    for (const tune::Knowledge* const knowledge : {&nothing, &races}) {
      Microseconds longest{0};
      std::string of_longest;
      std::size_t calls = 0, over = 0;
      for (const ChoiceCell& one : calls_of_choosing()) {
        ChoiceCell cell = one;
        cell.nodes = nodes;
        cell.ranks_per_node = ranks_per_node;
        if (has_blocks(cell.collective)) cell.bytes *= std::uint64_t{nodes} * ranks_per_node;
        const tune::CollectiveRequest request = cell.request();
        const tune::Topology topology = cell.topology();
        Microseconds least = Microseconds::max();
        for (int i = 0; i < 3; ++i) {
          const std::chrono::nanoseconds begin = processor_time();
          (void)tune::choose(request, topology, *knowledge);
          least = std::min<Microseconds>(least, processor_time() - begin);
        }
        ++calls;
        if (least > longest_max) {
          ++over;
          verdict.misses += cell.text() + (knowledge == &nothing ? ", without" : ", with") +
                            " findings: choosing takes " + fixed(least.count(), 0) +
                            " us, expected at most " + fixed(longest_max.count(), 0) + " us\n";
        }
        if (least <= longest) continue;
        longest = least;
        of_longest = cell.text();
      }
      const std::string shape =
          std::to_string(nodes) + " nodes of " + std::to_string(ranks_per_node);
      verdict.text += "| " + shape;
      verdict.text += knowledge == &nothing ? " | none | " : " | 200 findings | ";
      verdict.text += std::to_string(calls) + " | " + std::to_string(over) + " | ";
      verdict.text += fixed(longest.count(), 0) + " us | " + of_longest + " |\n";
    }
  return verdict;
}

}  // namespace tutti::bench
