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
#include <random>
#include <string>
#include <vector>

#include "tune/robust_line.hpp"

namespace tutti::tune {
namespace {

constexpr const char* presets[] = {"qdr", "fdr",     "edr",    "hdr",
                                   "ndr", "roce100", "roce25", "roce10"};
constexpr std::uint32_t ranks_of_node = 4;

/// What disturbs measurements; each sample is the least of a batch.
struct Noise {
  double late_probability = 0;  // of a message, by up to `late_ps`
  double late_ps = 10e6;
  double jitter = 0;     // mean of what a run takes longer, as a share of its time; exponential
  double jitter_ps = 0;  // ... and beside that
  int batch = 20;
  int batches = 5;
  double offset = 0;  // of all samples of a cell, as a share; evenly to both sides
};

class Prober {
 public:
  Prober(const Machine& machine, const Noise& noise, std::uint64_t seed)
      : network_(machine.network()), noise_(noise), numbers_(seed) {}

  std::vector<Sample> all() {
    using enum Probe;
    const std::vector<std::uint64_t> lengths = {8, 64, 512, 4096, 32768, 131072, 1 << 20};
    const std::vector<std::uint32_t> counts = {1, 2, 4, 8, 12, 16};
    for (const std::uint64_t bytes : lengths)
      for (const Probe probe : {one_way, combine, inside_one_way, inside_read})
        add(probe, bytes, 1);
    for (const std::uint64_t bytes : lengths) add(inside_store, bytes, 8);
    for (const std::uint32_t count : counts) {
      for (const Probe probe : {stream, incast, waiting, inside_take}) add(probe, 8, count);
      add(shared_port, 8, count * ranks_of_node);
    }
    return samples_;
  }

  void add(Probe probe, std::uint64_t bytes, std::uint32_t messages) {
    const double factor = 1 + std::uniform_real_distribution<>(-1, 1)(numbers_) * noise_.offset;
    for (int batch = 0; batch < noise_.batches; ++batch) {
      double least = HUGE_VAL;
      for (int run = 0; run < noise_.batch; ++run)
        least = std::min(least, disturbed(probe, bytes, messages));
      samples_.push_back({probe, bytes, messages, std::llround(least * factor)});
    }
  }
  std::vector<Sample> samples() const { return samples_; }

 private:
  double each(Probe probe, std::uint64_t bytes) const {
    const plan::LogGP& network = network_.between;
    return static_cast<double>(probe == Probe::incast
                                   ? std::max(network.port_time(bytes), network.receive_overhead)
                                   : network.port_time(bytes));
  }
  double undisturbed(Probe probe, std::uint64_t bytes, std::uint32_t messages) const {
    const auto& [latency, send, receive, gap, per_byte, work, work_per_byte, at_port] =
        network_.between;
    const plan::NodeMemory& inside = network_.inside;
    const auto arrives = [&](std::uint64_t of) {
      return send + latency + per_byte.of(of) + receive;
    };
    switch (probe) {
      case Probe::one_way:
        return static_cast<double>(arrives(bytes));
      case Probe::stream:
      case Probe::shared_port:
      case Probe::incast:
        return static_cast<double>(arrives(bytes) + arrives(8)) +
               (messages - 1) * each(probe, bytes);
      case Probe::waiting:
        return static_cast<double>(messages * receive);
      case Probe::combine:
        return static_cast<double>(work + work_per_byte.of(bytes));
      case Probe::inside_one_way:
        return static_cast<double>(inside.store_time(bytes) + inside.latency +
                                   inside.receive_overhead);
      case Probe::inside_store:
        return static_cast<double>(messages * inside.store_time(bytes));
      case Probe::inside_take:
        return static_cast<double>(messages * inside.receive_overhead);
      case Probe::inside_read:
        return static_cast<double>(inside.read_time(bytes));
    }
    return 0;
  }
  double disturbed(Probe probe, std::uint64_t bytes, std::uint32_t messages) {
    double time = undisturbed(probe, bytes, messages);
    if (probe == Probe::one_way)  // half a round trip
      time += (late() + late()) / 2;
    if (probe == Probe::stream || probe == Probe::shared_port || probe == Probe::incast) {
      double most = 0;
      for (std::uint32_t after = 0; after < messages; ++after)
        most = std::max(most, late() - after * each(probe, bytes));
      time += most + late();  // and the answer, or the question
    }
    if (noise_.jitter == 0) return time;
    return time +
           std::exponential_distribution<>(1 / (noise_.jitter * time + noise_.jitter_ps))(numbers_);
  }
  double late() {
    if (std::uniform_real_distribution<>()(numbers_) >= noise_.late_probability) return 0;
    return std::uniform_real_distribution<>(0, noise_.late_ps)(numbers_);
  }

  plan::Network network_;
  Noise noise_;
  std::mt19937_64 numbers_;
  std::vector<Sample> samples_ = {};
};

std::vector<Sample> samples_of(const Machine& machine, const Noise& noise = {},
                               std::uint64_t seed = 1) {
  return Prober(machine, noise, seed).all();
}

/// A machine like none that is measured here.
const Machine& other_machine() {
  static const Machine machine = [] {
    Machine other = machine_preset("roce10");
    for (Figure& figure : other.figures) figure = {7, 7, 7, Origin::preset};
    other.name = "other";
    return other;
  }();
  return machine;
}

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
    const Machine& truth = machine_preset(name);
    const Fit result = fit(samples_of(truth), other_machine(), 1);
    expect_within(result.machine, truth, 1e-4);
    EXPECT_TRUE(result.remarks.empty()) << name << ": " << result.remarks.front();
    for (const plan::Picoseconds residual : result.residuals) EXPECT_LE(std::abs(residual), 2000);
  }
}

TEST(Fit, within_a_twentieth_where_messages_are_late) {
  for (const char* name : presets)
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      const Machine& truth = machine_preset(name);
      const auto samples = samples_of(truth, {.late_probability = 0.05}, seed);
      expect_within(fit(samples, other_machine(), seed).machine, truth, 0.05);
    }
}

/// Counts for each parameter how often its interval covers the truth.
void expect_covered(const char* name, const Noise& noise) {
  constexpr int seeds = 200;
  const Machine& truth = machine_preset(name);
  std::array<int, parameter_count> covered = {};
  std::array<double, parameter_count> width = {};
  for (int seed = 1; seed <= seeds; ++seed) {
    const auto number = static_cast<std::uint64_t>(seed);
    const Fit result = fit(samples_of(truth, noise, number), other_machine(), number);
    for (std::size_t i = 0; i < parameter_count; ++i) {
      const Figure& figure = result.machine.figures[i];
      covered[i] += figure.low <= truth.figures[i].value && truth.figures[i].value <= figure.high;
      width[i] += static_cast<double>(figure.high - figure.low) / seeds;
    }
  }
  for (std::size_t i = 0; i < parameter_count; ++i) {
    if (parameter_of(i) == Parameter::fan_max) continue;
    std::printf("%s %s: the truth in %d of %d intervals of %.2f %%\n", name,
                key_of(parameter_of(i)), covered[i], seeds,
                100 * width[i] / static_cast<double>(truth.figures[i].value));
    EXPECT_GE(covered[i], seeds * 9 / 10) << name << " " << key_of(parameter_of(i));
    EXPECT_LE(width[i], 0.15 * static_cast<double>(truth.figures[i].value))
        << name << " " << key_of(parameter_of(i)) << ": says nothing";
  }
}

TEST(Fit, intervals_cover_the_truth) {
  for (const char* name : {"qdr", "hdr", "roce25"})
    expect_covered(name, {.late_probability = 0.05, .jitter = 0.03, .jitter_ps = 3000});
  // Much noise, few samples, and what all samples of a length are off, to both sides.
  expect_covered("fdr", {.late_probability = 0.05, .jitter = 0.2, .jitter_ps = 20'000});
  expect_covered("fdr", {.jitter = 0.001, .batches = 3, .offset = 0.01});
}

TEST(Fit, intervals_of_few_samples_are_called_so) {
  const Machine& truth = machine_preset("fdr");
  const Fit result = fit(samples_of(truth, {.batches = 2}), other_machine(), 1);
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
  const Fit nothing = fit({}, other_machine(), 1);
  EXPECT_EQ(nothing.machine.figures, other_machine().figures);
  EXPECT_EQ(nothing.remarks.size(), parameter_count - 1);  // fan_max may always be unknown
  EXPECT_TRUE(says(nothing, "per_byte_fs could not be told: there are no samples of one_way"));

  // One length tells no line.
  Prober short_ones(machine_preset("fdr"), {}, 1);
  short_ones.add(Probe::one_way, 8, 1);
  EXPECT_EQ(fit(short_ones.samples(), other_machine(), 1).machine.figures, other_machine().figures);

  const auto samples = without(samples_of(machine_preset("fdr")), {Probe::combine});
  const Fit result = fit(samples, other_machine(), 1);
  EXPECT_EQ(result.machine[Parameter::combine], other_machine()[Parameter::combine]);
  EXPECT_EQ(result.machine[Parameter::latency].origin, Origin::measured);
}

TEST(Fit, a_fallback_that_is_not_sure_makes_what_depends_on_it_unsure) {
  Machine fallback = other_machine();
  fallback[Parameter::receive_overhead] = {60'000, 40'000, 80'000, Origin::given};
  const auto samples = without(samples_of(machine_preset("fdr")), {Probe::waiting});
  const Figure latency = fit(samples, fallback, 1).machine[Parameter::latency];
  EXPECT_EQ(latency.value, 840'000);  // the sum is 900'000
  EXPECT_LE(latency.low, 822'000);
  EXPECT_GE(latency.high, 858'000);
}

TEST(Fit, a_stream_tells_the_gap_where_ranks_share_no_port) {
  const auto samples = without(samples_of(machine_preset("hdr")), {Probe::shared_port});
  expect_within(fit(samples, other_machine(), 1).machine, machine_preset("hdr"), 1e-4);
  const auto neither = without(samples, {Probe::stream});
  const Fit unknown = fit(neither, other_machine(), 1);
  EXPECT_EQ(unknown.machine[Parameter::gap], other_machine()[Parameter::gap]);
  EXPECT_TRUE(says(unknown, "gap_ps could not be told: there are no samples of stream"));
}

TEST(Fit, a_change_of_protocol_leaves_short_and_long_messages_alone) {
  const Machine& truth = machine_preset("fdr");
  auto samples = samples_of(truth, {.late_probability = 0.05});
  for (const std::uint64_t bytes : {1024u, 2048u, 8192u, 16384u}) {
    Prober more(truth, {}, 1);
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
  const Fit result = fit(samples, other_machine(), 1);
  expect_within(result.machine, truth, 0.01);
  EXPECT_TRUE(says(result, "one_way changes at 4096 bytes"));
}

TEST(Fit, noise_is_no_change_of_protocol) {
  const Noise noise = {.late_probability = 0.05, .jitter = 0.2, .jitter_ps = 20e3};
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const Fit result = fit(samples_of(machine_preset("fdr"), noise, seed), other_machine(), seed);
    EXPECT_TRUE(result.remarks.empty()) << result.remarks.front();
  }
}

TEST(Fit, too_many_senders_are_told) {
  const Machine& truth = machine_preset("fdr");
  const auto fan_max = [&](std::uint32_t good, std::uint32_t blip) {
    auto samples = samples_of(truth);
    for (Sample& sample : samples)
      if (sample.probe == Probe::incast && (sample.messages > good || sample.messages == blip))
        sample.time += sample.time / 6;
    return fit(samples, other_machine(), 1).machine[Parameter::fan_max];
  };
  EXPECT_EQ(fan_max(4, 0), (Figure{4, 4, 7, Origin::measured}));
  EXPECT_EQ(fan_max(4, 2), (Figure{4, 4, 7, Origin::measured}));
  EXPECT_EQ(fan_max(12, 0), (Figure{12, 12, 15, Origin::measured}));
  EXPECT_EQ(fan_max(16, 0), other_machine()[Parameter::fan_max]);  // as far as was measured
}

TEST(Fit, samples_that_cannot_be_are_left_out) {
  const Machine& truth = machine_preset("qdr");
  auto samples = samples_of(truth);
  const std::size_t good = samples.size();
  samples.push_back({.probe = Probe::one_way, .bytes = 8, .time = -1});
  samples.push_back({.probe = Probe::waiting, .messages = 0, .time = 1});
  samples.push_back({.probe = Probe::one_way, .bytes = std::uint64_t{1} << 60, .time = 1});
  const Fit result = fit(samples, other_machine(), 1);
  expect_within(result.machine, truth, 1e-4);
  EXPECT_EQ(result.residuals.size(), samples.size());
  EXPECT_TRUE(says(result, "3 of " + std::to_string(good + 3) + " samples were left out"));

  // Combining that takes no time is what the emulated networks have.
  samples = {{.probe = Probe::combine, .bytes = 8, .time = 0},
             {.probe = Probe::combine, .bytes = 64, .time = 0}};
  EXPECT_EQ(fit(samples, other_machine(), 1).machine[Parameter::combine_per_byte].value, 0);
}

TEST(Fit, what_a_clock_is_too_coarse_for_makes_intervals_wide_but_no_nonsense) {
  std::vector<Sample> samples;
  for (int batch = 0; batch < 5; ++batch)
    for (const std::uint32_t count : {1u, 2u, 4u, 8u, 16u})
      samples.push_back(
          {.probe = Probe::inside_take, .messages = count, .time = count == 1 ? 0 : count * 7000});
  const Figure figure =
      fit(samples, other_machine(), 1).machine[Parameter::inside_receive_overhead];
  EXPECT_NEAR(static_cast<double>(figure.value), 7000, 350);
  EXPECT_LE(figure.low, 7000);
  EXPECT_GE(figure.high, 7000);
  EXPECT_LE(figure.high, 28'000);
}

TEST(Fit, is_a_function_of_samples_and_seed) {
  auto samples = samples_of(machine_preset("hdr"), {.jitter = 0.03, .jitter_ps = 3e3});
  const Fit once = fit(samples, other_machine(), 5);
  EXPECT_EQ(fit(samples, other_machine(), 5).machine, once.machine);
  std::reverse(samples.begin(), samples.end());
  const Fit reversed = fit(samples, other_machine(), 5);
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
