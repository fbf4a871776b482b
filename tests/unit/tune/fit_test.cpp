// Promise: the parameters that were put into samples come out of them, within 1 %, within 5 % if 5
// % of the messages are late, and their 95 % intervals cover the truth in 90 % of all cases at
// least; what samples cannot tell is that of the fallback, and is said.
#include "tune/fit.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "microbench/synthetic_samples.hpp"
#include "microbench/verify_figures.hpp"
#include "tune/robust_line.hpp"
#include "tune/tuning_file.hpp"

namespace tutti::tune {
namespace {

using bench::fallback_like_none, bench::machine_to_fit, bench::ProbeNoise, bench::samples_of,
    bench::SyntheticProbes;

constexpr const char* presets[] = {"qdr", "fdr",     "edr",    "hdr",
                                   "ndr", "roce100", "roce25", "roce10"};

Parameter parameter_of(std::size_t index) {
  return static_cast<Parameter>(index);
}

void expect_within(const Machine& machine, const Machine& truth, double share) {
  for (std::size_t i = 0; i < parameter_count; ++i) {
    if (parameter_of(i) == Parameter::fan_max) continue;
    const auto expected = static_cast<double>(truth.figures[i].value);
    const Figure& figure = machine.figures[i];
    EXPECT_NEAR(static_cast<double>(figure.value), expected, expected * share)
        << truth.name << " " << key_of(parameter_of(i));
    EXPECT_LE(figure.low, figure.value);
    EXPECT_GE(figure.high, figure.value);
    EXPECT_EQ(figure.origin, Origin::measured) << key_of(parameter_of(i));
  }
}

bool says(const Fit& fit, const std::string& words) {
  return std::any_of(fit.remarks.begin(), fit.remarks.end(), [&](const std::string& remark) {
    return remark.find(words) != std::string::npos;
  });
}

TEST(Fit, parameters_of_every_preset_within_a_hundredth) {
  for (const char* name : presets) {
    const Machine truth = machine_to_fit(name);
    const Fit result = fit(samples_of(truth), fallback_like_none(), 1);
    expect_within(result.machine, truth, 1e-4);
    EXPECT_TRUE(result.remarks.empty()) << name << ": " << result.remarks.front();
    for (const plan::Picoseconds residual : result.residuals) EXPECT_LE(std::abs(residual), 2000);
  }
}

TEST(Fit, within_a_twentieth_where_messages_are_late) {
  for (const char* name : presets)
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      const Machine truth = machine_to_fit(name);
      const auto samples = samples_of(truth, {.late_probability = 0.05}, seed);
      expect_within(fit(samples, fallback_like_none(), seed).machine, truth, 0.05);
    }
}

void expect_covered(const char* name, const ProbeNoise& noise) {
  constexpr std::uint32_t seeds = 200;
  const Machine truth = machine_to_fit(name);
  const bench::Coverage coverage = bench::coverage_of(truth, noise, seeds);
  for (std::size_t i = 0; i < parameter_count; ++i) {
    if (parameter_of(i) == Parameter::fan_max) continue;
    std::printf("%s %s: the truth in %u of %u intervals of %.2f %%\n", name,
                key_of(parameter_of(i)), coverage.covered[i], seeds, 100 * coverage.width[i]);
    EXPECT_GE(coverage.covered[i], seeds * 9 / 10) << name << " " << key_of(parameter_of(i));
    EXPECT_LE(coverage.width[i], 0.15)
        << name << " " << key_of(parameter_of(i)) << ": says nothing";
  }
}

TEST(Fit, intervals_cover_the_truth) {
  for (const char* name : {"qdr", "hdr", "roce25"}) expect_covered(name, bench::usual_noise);
  // Much noise, few samples, and what all samples of a length are off, to both sides.
  expect_covered("fdr", {.late_probability = 0.05, .jitter = 0.2, .jitter_ps = 20'000});
  expect_covered("fdr", {.jitter = 0.001, .batches = 3, .offset = 0.01});
}

/// Two messages of a rank are further apart than four ranks' messages at their port.
TEST(Fit, the_gap_of_a_port_is_at_most_what_its_ranks_leave_between_messages) {
  Machine truth = machine_preset("hdr");
  truth[Parameter::rank_gap].value = 120'000;
  const Fit result = fit(samples_of(truth), fallback_like_none(), 1);
  EXPECT_EQ(result.machine[Parameter::rank_gap].value, 120'000);
  EXPECT_NEAR(static_cast<double>(result.machine[Parameter::gap].value), 30'000, 3);
  for (const plan::Picoseconds residual : result.residuals) EXPECT_LE(std::abs(residual), 16'000);
}

TEST(Fit, intervals_of_few_samples_are_called_so) {
  const Machine truth = machine_to_fit("fdr");
  const Fit result = fit(samples_of(truth, {.batches = 2}), fallback_like_none(), 1);
  EXPECT_TRUE(says(result, "one_way was measured less than 3 times"));
  EXPECT_TRUE(says(result, "shared_port was measured less than 3 times"));
}

std::vector<Sample> without(std::vector<Sample> samples, const std::vector<Probe>& probes) {
  std::erase_if(samples, [&](const Sample& sample) {
    return std::find(probes.begin(), probes.end(), sample.probe) != probes.end();
  });
  return samples;
}

TEST(Fit, what_was_not_measured_is_that_of_the_fallback) {
  const Fit nothing = fit({}, fallback_like_none(), 1);
  EXPECT_EQ(nothing.machine.figures, fallback_like_none().figures);
  EXPECT_EQ(nothing.remarks.size(), parameter_count - 1);  // fan_max may always be unknown
  EXPECT_TRUE(says(nothing, "per_byte_fs could not be told: there are no samples of one_way"));

  // One length tells no line.
  SyntheticProbes short_ones(machine_to_fit("fdr"), {}, 1);
  short_ones.add(Probe::one_way, 8, 1);
  EXPECT_EQ(fit(short_ones.samples(), fallback_like_none(), 1).machine.figures,
            fallback_like_none().figures);

  const auto samples = without(samples_of(machine_to_fit("fdr")), {Probe::combine});
  const Fit result = fit(samples, fallback_like_none(), 1);
  EXPECT_EQ(result.machine[Parameter::combine], fallback_like_none()[Parameter::combine]);
  EXPECT_EQ(result.machine[Parameter::latency].origin, Origin::measured);
}

TEST(Fit, a_fallback_that_is_not_sure_makes_what_depends_on_it_unsure) {
  Machine fallback = fallback_like_none();
  fallback[Parameter::receive_overhead] = {60'000, 40'000, 80'000, Origin::given};
  const auto samples = without(samples_of(machine_to_fit("fdr")), {Probe::waiting});
  const Figure latency = fit(samples, fallback, 1).machine[Parameter::latency];
  EXPECT_EQ(latency.value, 840'000);  // the sum is 900'000
  EXPECT_LE(latency.low, 822'000);
  EXPECT_GE(latency.high, 858'000);
}

TEST(Fit, a_stream_tells_the_gap_where_ranks_share_no_port) {
  const auto samples = without(samples_of(machine_to_fit("hdr")), {Probe::shared_port});
  expect_within(fit(samples, fallback_like_none(), 1).machine, machine_to_fit("hdr"), 1e-4);
  const auto neither = without(samples, {Probe::stream});
  const Fit unknown = fit(neither, fallback_like_none(), 1);
  EXPECT_EQ(unknown.machine[Parameter::gap], fallback_like_none()[Parameter::gap]);
  EXPECT_TRUE(says(unknown, "gap_ps could not be told: there are no samples of stream"));
}

TEST(Fit, a_change_of_protocol_leaves_short_and_long_messages_alone) {
  const Machine truth = machine_to_fit("fdr");
  auto samples = samples_of(truth, {.late_probability = 0.05});
  for (const std::uint64_t bytes : {1024u, 2048u, 8192u, 16384u}) {
    SyntheticProbes more(truth, {}, 1);
    more.add(Probe::one_way, bytes, 1);
    for (const Sample& sample : more.samples()) samples.push_back(sample);
  }
  // Short messages pay three times as much a byte, long ones a round trip before.
  for (Sample& sample : samples) {
    if (sample.probe != Probe::one_way) continue;
    const plan::LogGP& network = truth.network().between;
    if (sample.bytes < 4096)
      sample.time += 2 * network.per_byte.of(sample.bytes);
    else
      sample.time += 2 * network.travel_time(0);
  }
  const Fit result = fit(samples, fallback_like_none(), 1);
  expect_within(result.machine, truth, 0.01);
  EXPECT_TRUE(says(result, "one_way changes at 4096 bytes"));
}

TEST(Fit, noise_is_no_change_of_protocol) {
  const ProbeNoise noise = {.late_probability = 0.05, .jitter = 0.2, .jitter_ps = 20e3};
  // In 6 of 2,000 seeds a fit sees a break that is none.
  constexpr std::uint64_t seeds = 300, seeds_taken_for_breaks = 3;
  std::uint64_t breaks = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const Fit result =
        fit(samples_of(machine_to_fit("fdr"), noise, seed), fallback_like_none(), seed);
    breaks += result.remarks.empty() ? 0 : 1;
  }
  EXPECT_LE(breaks, seeds_taken_for_breaks);
}

TEST(Fit, too_many_senders_are_told) {
  const Machine truth = machine_to_fit("fdr");
  const auto fan_max = [&](std::uint32_t good, std::uint32_t blip) {
    auto samples = samples_of(truth);
    for (Sample& sample : samples)
      if (sample.probe == Probe::incast && (sample.messages > good || sample.messages == blip))
        sample.time += sample.time / 6;
    return fit(samples, fallback_like_none(), 1).machine[Parameter::fan_max];
  };
  EXPECT_EQ(fan_max(4, 0), (Figure{4, 4, 7, Origin::measured}));
  EXPECT_EQ(fan_max(4, 2), (Figure{4, 4, 7, Origin::measured}));
  EXPECT_EQ(fan_max(12, 0), (Figure{12, 12, 15, Origin::measured}));
  EXPECT_EQ(fan_max(16, 0), fallback_like_none()[Parameter::fan_max]);  // as far as was measured
}

/// What many senders take beyond the line is the time of the rank that asks them and takes all.
TEST(Fit, a_rank_that_is_slow_at_sending_is_no_incast) {
  Machine truth = machine_preset("fdr");
  truth[Parameter::rank_gap].value = 120'000;
  auto samples = without(samples_of(truth), {Probe::incast});
  const plan::LogGP network = truth.network().between;
  const plan::Picoseconds taken = network.receive_overhead;
  const plan::Picoseconds both_ways = 2 * (network.travel_time(8) + taken);
  for (plan::Picoseconds senders = 2; senders <= 64; senders *= 2)
    samples.push_back(
        {.probe = Probe::incast,
         .bytes = 8,
         .messages = static_cast<std::uint32_t>(senders),
         .time = std::max(both_ways + (senders - 1) * std::max(network.sending_time(8), taken),
                          senders * (network.rank_gap + taken))});
  EXPECT_EQ(fit(samples, fallback_like_none(), 1).machine[Parameter::fan_max],
            fallback_like_none()[Parameter::fan_max]);
}

TEST(Fit, what_no_file_may_say_is_the_most_that_it_may) {
  std::vector<Sample> samples;
  constexpr plan::Picoseconds second = 1'000'000'000'000;
  for (const std::uint32_t count : {1u, 2u, 4u, 8u})
    for (int time = 0; time < 3; ++time) {
      samples.push_back({Probe::stream, 8, count, 60 * second * count});
      samples.push_back({Probe::waiting, 8, count, 60 * second * count});
      samples.push_back({Probe::one_way, count << 20, 1, 100 * second * count});
      samples.push_back({Probe::incast, 1u << 20, count, 99 * second * count});
    }
  // Beyond what is a time, whose products would overflow.
  samples.push_back({Probe::incast, 8, 8, INT64_MAX});
  samples.push_back({Probe::stream, std::uint64_t{1} << 32, UINT32_MAX, 1});
  const Fit result = fit(samples, fallback_like_none(), 1);
  for (const Parameter parameter : {Parameter::gap, Parameter::receive_overhead}) {
    EXPECT_EQ(result.machine[parameter].value, most_of(parameter));
    EXPECT_EQ(result.machine[parameter].high, most_of(parameter));
    EXPECT_TRUE(says(result, std::string(key_of(parameter)) + " is more than a tuning file may"));
  }
  EXPECT_TRUE(says(result, "2 of " + std::to_string(samples.size()) + " samples were left out"));
  EXPECT_NO_THROW((void)text_of(Tuning{.machine = result.machine}));
}

TEST(Fit, samples_that_cannot_be_are_left_out) {
  const Machine truth = machine_to_fit("qdr");
  auto samples = samples_of(truth);
  const std::size_t good = samples.size();
  samples.push_back({.probe = Probe::one_way, .bytes = 8, .time = -1});
  samples.push_back({.probe = Probe::waiting, .messages = 0, .time = 1});
  samples.push_back({.probe = Probe::one_way, .bytes = std::uint64_t{1} << 60, .time = 1});
  for (const std::uint32_t ranks : {0u, 5u})
    samples.push_back(
        {.probe = Probe::shared_port, .bytes = 8, .messages = 4, .time = 1, .ranks = ranks});
  const Fit result = fit(samples, fallback_like_none(), 1);
  expect_within(result.machine, truth, 1e-4);
  EXPECT_EQ(result.residuals.size(), samples.size());
  EXPECT_TRUE(says(result, "5 of " + std::to_string(good + 5) + " samples were left out"));

  // Combining that takes no time is what the emulated networks have.
  samples = {{.probe = Probe::combine, .bytes = 8, .time = 0},
             {.probe = Probe::combine, .bytes = 64, .time = 0}};
  EXPECT_EQ(fit(samples, fallback_like_none(), 1).machine[Parameter::combine_per_byte].value, 0);
}

TEST(Fit, what_a_clock_is_too_coarse_for_makes_intervals_wide_but_no_nonsense) {
  std::vector<Sample> samples;
  for (int batch = 0; batch < 5; ++batch)
    for (const std::uint32_t count : {1u, 2u, 4u, 8u, 16u})
      samples.push_back(
          {.probe = Probe::inside_take, .messages = count, .time = count == 1 ? 0 : count * 7000});
  const Figure figure =
      fit(samples, fallback_like_none(), 1).machine[Parameter::inside_receive_overhead];
  EXPECT_NEAR(static_cast<double>(figure.value), 7000, 350);
  EXPECT_LE(figure.low, 7000);
  EXPECT_GE(figure.high, 7000);
  EXPECT_LE(figure.high, 28'000);
}

TEST(Fit, an_unsteady_machine_is_what_it_mostly_was_and_its_interval_has_the_rest) {
  // Messages take 100 ns and 0.1 ns a byte for a quarter of the time, and then three times as long.
  std::vector<Sample> samples;
  for (std::uint32_t pass = 0; pass < 40; ++pass)
    for (const std::uint64_t bytes : {8u, 64u, 1024u, 4096u, 16384u})
      samples.push_back(
          {.probe = Probe::inside_one_way,
           .bytes = bytes,
           .time = static_cast<plan::Picoseconds>((100'000 + 100 * bytes) * (pass < 10 ? 1 : 3))});
  const Figure each = fit(samples, fallback_like_none(), 1).machine[Parameter::inside_per_byte];
  EXPECT_NEAR(static_cast<double>(each.value), 300'000, 1000);
  EXPECT_LE(each.low, 100'000);
  EXPECT_GE(each.high, 300'000);
}

TEST(Fit, the_last_of_the_time_counts_also_where_it_ends_within_a_pass) {
  // The last five passes take three times as long, and the last one has no time to wait.
  std::vector<Sample> samples;
  for (std::uint32_t pass = 0; pass < 40; ++pass) {
    for (const std::uint64_t bytes : {8u, 64u, 1024u, 4096u, 16384u})
      samples.push_back(
          {.probe = Probe::inside_one_way,
           .bytes = bytes,
           .time = static_cast<plan::Picoseconds>((100'000 + 100 * bytes) * (pass < 35 ? 1 : 3))});
    if (pass == 39) break;
    for (const std::uint32_t count : {1u, 2u, 4u, 8u})
      samples.push_back({.probe = Probe::inside_take, .messages = count, .time = count * 7000});
  }
  const Figure each = fit(samples, fallback_like_none(), 1).machine[Parameter::inside_per_byte];
  EXPECT_NEAR(static_cast<double>(each.value), 100'000, 1000);
  EXPECT_GE(each.high, 300'000);
}

TEST(Fit, is_a_function_of_samples_and_seed) {
  auto samples = samples_of(machine_to_fit("hdr"), {.jitter = 0.03, .jitter_ps = 3e3});
  const Fit once = fit(samples, fallback_like_none(), 5);
  EXPECT_EQ(fit(samples, fallback_like_none(), 5).machine, once.machine);
  std::reverse(samples.begin(), samples.end());
  const Fit reversed = fit(samples, fallback_like_none(), 5);
  for (std::size_t i = 0; i < parameter_count; ++i)
    EXPECT_EQ(reversed.machine.figures[i].value, once.machine.figures[i].value);
}

TEST(RobustLine, is_not_moved_by_some_points) {
  std::vector<Cell> cells;
  for (int x = 1; x <= 11; ++x) cells.push_back({static_cast<double>(x), {10.0 + 3.0 * x}});
  cells[4].times = {500};
  cells[8].times = {90};
  const RobustLine line(cells);
  EXPECT_DOUBLE_EQ(line.line().base, 10);
  EXPECT_DOUBLE_EQ(line.line().slope, 3);
}

}  // namespace
}  // namespace tutti::tune
