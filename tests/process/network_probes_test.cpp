// Promise: in virtual time, each sample of the tuner's probes is the formula of its probe
// (tune/fit.hpp), between nodes and inside them; and in real time all of them are measured, within
// their budget.
#include "microbench/network_probes.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <tutti/bootstrap.hpp>
#include <tutti/detail/clock.hpp>
#include <tutti/status.hpp>
#include <utility>
#include <vector>

#include "support/shared.hpp"
#include "verbs/soft/fabric_model.hpp"
#include "verbs/soft/virtual_time.hpp"

namespace tutti::bench {
namespace {

namespace soft = verbs::soft;
using namespace std::chrono_literals;
using tune::Probe;
using tune::Sample;

/// What rank 0 has found.
struct Found {
  std::uint32_t count;
  std::int64_t elapsed_ns;
  Sample all[4096];

  std::vector<Sample> samples() const { return {all, all + count}; }
};

std::vector<Node> nodes_of(const std::vector<std::uint32_t>& numbers) {
  std::vector<Node> nodes;
  for (const std::uint32_t number : numbers) nodes.push_back(Node{number});
  return nodes;
}

int probe(Exchange& exchange, const std::vector<std::uint32_t>& nodes, Timeout budget,
          Found& found) {
  const Timeout begin = detail::MonotonicClock::read();
  const auto samples =
      probe_network(exchange, nodes_of(nodes), {.device = "soft0", .budget = budget});
  const Timeout elapsed = detail::MonotonicClock::read() - begin;
  if (samples.size() > std::size(found.all)) return 2;
  if (exchange.self() != Rank{0}) return 0;
  std::copy(samples.begin(), samples.end(), found.all);
  found.count = static_cast<std::uint32_t>(samples.size());
  found.elapsed_ns = elapsed.count();
  return 0;
}

/// In virtual time one rank runs at a time, and hands over in a third of the time on one CPU.
class OnOneCpu {
 public:
  OnOneCpu() {
    ::sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (unsigned cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
      if (CPU_ISSET(cpu, &before_)) CPU_SET(cpu, &one);
    ::sched_setaffinity(0, sizeof one, &one);
  }
  ~OnOneCpu() { ::sched_setaffinity(0, sizeof before_, &before_); }
  OnOneCpu(const OnOneCpu&) = delete;
  OnOneCpu& operator=(const OnOneCpu&) = delete;

 private:
  cpu_set_t before_;
};

std::vector<Sample> measured_virtually(const std::vector<std::uint32_t>& nodes) {
  const OnOneCpu one_cpu;
  const test::Shared<Found> found;
  const auto ranks = static_cast<std::uint32_t>(nodes.size());
  soft::VirtualTime time(ranks, nodes);
  const auto ended = run_local({.rank_count = ranks}, [&](Exchange& exchange) {
    time.join(index_of(exchange.self()));
    return probe(exchange, nodes, 30s, *found);
  });
  for (const LocalResult& rank : ended) EXPECT_EQ(rank.exit_status, 0);
  return found->samples();
}

/// The formulas of tune/fit.hpp.
soft::Picoseconds expected(const soft::FabricModel& model, const Sample& sample) {
  const std::uint64_t b = sample.bytes;
  const auto k = static_cast<soft::Picoseconds>(sample.messages);
  const auto one = [&model](std::uint64_t bytes) {
    return model.send_overhead + model.latency + model.wire_time(bytes) + model.receive_overhead;
  };
  const soft::Picoseconds p = model.port_time(b);
  const soft::FabricModel::Inside& inside = model.inside;
  switch (sample.probe) {
    case Probe::one_way:
      return one(b);
    case Probe::stream:
      return one(b) + (k - 1) * std::max(p, model.rank_gap) + one(8);
    case Probe::posting:
      return k * model.rank_gap;
    case Probe::shared_port: {
      const soft::Picoseconds ranks = sample.ranks;
      const bool is_busy = ranks * p >= model.rank_gap;
      return one(b) + one(8) +
             (is_busy ? (k - 1) * p : (k / ranks - 1) * model.rank_gap + (ranks - 1) * p);
    }
    case Probe::waiting:
      return k * model.receive_overhead;
    case Probe::combine:
      return model.work_time(b);
    case Probe::incast:
      return std::max(
          one(8) + one(b) + (k - 1) * std::max({p, model.receive_overhead, model.rank_gap}),
          k * (model.receive_overhead + model.rank_gap));
    case Probe::inside_one_way:
      return inside.store_time(b) + inside.latency + inside.receive_overhead;
    case Probe::inside_store:
      return k * inside.store_time(b);
    case Probe::inside_take:
      return k * inside.receive_overhead;
    case Probe::inside_read:
      return inside.read_time(b);
  }
  return -1;
}

std::map<Probe, std::size_t> counts_of(const std::vector<Sample>& samples) {
  std::map<Probe, std::size_t> counts;
  for (const Sample& sample : samples) ++counts[sample.probe];
  return counts;
}

constexpr Probe every_probe[] = {Probe::one_way,     Probe::stream,         Probe::posting,
                                 Probe::waiting,     Probe::combine,        Probe::shared_port,
                                 Probe::incast,      Probe::inside_one_way, Probe::inside_store,
                                 Probe::inside_take, Probe::inside_read};

std::string text_of(const Sample& sample) {
  return "probe " + std::to_string(static_cast<int>(sample.probe)) + ", " +
         std::to_string(sample.bytes) + " bytes, " + std::to_string(sample.messages) + " messages";
}

class Fabric {
 public:
  explicit Fabric(const std::string& name) : name_(name) {
    ::setenv("TUTTI_SOFT_FABRIC", name.c_str(), 1);
  }
  Fabric(const std::string& name, const std::string& text) : Fabric(name) {
    std::ofstream(name) << text;
    is_file_ = true;
  }
  ~Fabric() {
    ::unsetenv("TUTTI_SOFT_FABRIC");
    if (is_file_) std::remove(name_.c_str());
  }
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

 private:
  std::string name_;
  bool is_file_ = false;
};

constexpr soft::Picoseconds rounding = 2;  // each message is rounded to a picosecond

void expect_the_formulas(const std::string& fabric) {
  const soft::FabricModel model = soft::read_fabric_model(fabric);
  const std::vector<Sample> samples = measured_virtually({0, 0, 1, 2});
  const auto counts = counts_of(samples);
  for (const Probe probe : every_probe)
    EXPECT_GE(counts.contains(probe) ? counts.at(probe) : 0, 5u)
        << fabric << ": probe " << static_cast<int>(probe);
  for (const Sample& sample : samples)
    EXPECT_LE(std::abs(sample.time - expected(model, sample)), rounding)
        << fabric << ": " << text_of(sample) << ": " << sample.time << ", expected "
        << expected(model, sample);
}

/// On hdr, a port is faster than a program: o_r is above g.
TEST(NetworkProbes, in_virtual_time_are_their_formulas_on_two_presets) {
  for (const char* const preset : {"fdr", "hdr"}) {
    const Fabric fabric(preset);
    expect_the_formulas(preset);
  }
}

/// A message takes a rank more than the port, and less or more than the port takes for the messages
/// of two ranks.
TEST(NetworkProbes, in_virtual_time_are_their_formulas_where_ranks_are_slower_than_their_port) {
  const std::string name = "network_probes_test." + std::to_string(::getpid()) + ".json";
  for (const char* const gap : {"0.08", "0.2"}) {
    const Fabric fabric(name, R"({"preset":"edr","rank_gap_us":)" + std::string(gap) + "}");
    expect_the_formulas(name);
  }
}

TEST(NetworkProbes, in_virtual_time_are_their_formulas_on_a_machine_of_its_own) {
  const std::string name = "network_probes_test." + std::to_string(::getpid()) + ".json";
  const Fabric fabric(name, R"({"preset":"roce25","work_us":0.01,"work_gigabytes_per_second":8,
      "inside":{"latency_us":0.09,"send_overhead_us":0.021,"receive_overhead_us":0.013,
      "gigabytes_per_second":12.5,"read_overhead_us":0.3,"read_gigabytes_per_second":20}})");
  expect_the_formulas(name);
}

/// Delayed messages: the least of a batch is one without them.
TEST(NetworkProbes, do_not_see_that_one_message_of_twenty_is_delayed) {
  const std::string name = "network_probes_test." + std::to_string(::getpid()) + ".json";
  const Fabric fabric(name, R"({"preset":"fdr","faults":{"seed":3,"delay_probability":0.05,
      "delay_us":5}})");
  const soft::FabricModel model = soft::read_fabric_model(name);
  const std::vector<Sample> samples = measured_virtually({0, 1});
  for (const Sample& sample : samples) {
    soft::Picoseconds least = sample.time;  // of all samples of this point
    for (const Sample& other : samples)
      if (other.probe == sample.probe && other.bytes == sample.bytes &&
          other.messages == sample.messages)
        least = std::min(least, other.time);
    EXPECT_LE(std::abs(least - expected(model, sample)), rounding) << text_of(sample);
  }
}

/// What the fit has to find, by parameter; none of what ranks of one node each cannot measure.
std::vector<std::pair<tune::Parameter, double>> parameters_of(const soft::FabricModel& model,
                                                              bool has_inside) {
  using enum tune::Parameter;
  const auto number = [](soft::Picoseconds time) { return static_cast<double>(time); };
  std::vector<std::pair<tune::Parameter, double>> parameters = {
      {latency, number(model.send_overhead + model.latency)},
      {receive_overhead, number(model.receive_overhead)},
      {gap, number(model.gap)},
      {rank_gap, number(model.rank_gap)},
      {per_byte, 1000 * model.per_byte},
      {combine, number(model.work)},
      {combine_per_byte, 1000 * model.work_per_byte}};
  if (has_inside)
    parameters.insert(parameters.end(),
                      {{inside_latency, number(model.inside.latency)},
                       {inside_send_overhead, number(model.inside.send_overhead)},
                       {inside_receive_overhead, number(model.inside.receive_overhead)},
                       {inside_per_byte, 1000 * model.inside.per_byte},
                       {inside_read_overhead, number(model.inside.read_overhead)},
                       {inside_read_per_byte, 1000 * model.inside.read_per_byte}});
  return parameters;
}

/// Probes and fit, against the machine that is emulated.
void expect_its_machine(const std::string& fabric, const std::vector<std::uint32_t>& nodes,
                        double share) {
  const soft::FabricModel model = soft::read_fabric_model(fabric);
  const bool has_inside = nodes[0] == nodes[1];
  // A fallback that nobody would take for what was measured.
  tune::Machine fallback;
  fallback.figures.fill({.value = 1, .low = 1, .high = 1});
  const tune::Machine machine = tune::fit(measured_virtually(nodes), fallback, 1).machine;
  for (const auto& [parameter, truth] : parameters_of(model, has_inside)) {
    const tune::Figure& figure = machine[parameter];
    EXPECT_NEAR(static_cast<double>(figure.value), truth, share * truth)
        << fabric << ": " << tune::key_of(parameter);
    EXPECT_LE(static_cast<double>(figure.low), truth + 1) << tune::key_of(parameter);
    EXPECT_GE(static_cast<double>(figure.high), truth - 1) << tune::key_of(parameter);
  }
  EXPECT_EQ(machine[tune::Parameter::inside_latency].origin,
            has_inside ? tune::Origin::measured : tune::Origin::preset);
}

TEST(NetworkProbes, and_fit_find_the_machine_within_a_hundredth) {
  for (const char* const preset : {"qdr", "hdr", "edr", "ndr", "roce100", "roce10"}) {
    const Fabric fabric(preset);
    expect_its_machine(preset, {0, 1}, 0.01);
  }
  for (const char* const preset : {"fdr", "roce25"}) {
    const Fabric fabric(preset);
    expect_its_machine(preset, {0, 0, 1, 1}, 0.01);
  }
}

TEST(NetworkProbes, and_fit_find_the_machine_within_a_twentieth_if_messages_are_delayed) {
  const std::string name = "network_probes_test." + std::to_string(::getpid()) + ".json";
  const std::string faults = R"("work_us":0.01,"work_gigabytes_per_second":8,
      "faults":{"seed":7,"delay_probability":0.05,"delay_us":10}})";
  for (const char* const preset : {"qdr", "hdr"}) {
    const Fabric fabric(name, R"({"preset":")" + std::string(preset) + "\"," + faults);
    expect_its_machine(name, {0, 1}, 0.05);
  }
  for (const char* const preset : {"fdr", "roce25"}) {
    const Fabric fabric(name, R"({"preset":")" + std::string(preset) + "\"," + faults);
    expect_its_machine(name, {0, 0, 1, 1}, 0.05);
  }
}

/// What two ranks find in real time, of one node or of two.
std::vector<Sample> measured(const std::vector<std::uint32_t>& nodes, Timeout budget,
                             Timeout& elapsed) {
  const test::Shared<Found> found;
  const auto ranks = static_cast<std::uint32_t>(nodes.size());
  const auto ended = run_local({.rank_count = ranks}, [&](Exchange& exchange) {
    return probe(exchange, nodes, budget, *found);
  });
  for (const LocalResult& rank : ended) EXPECT_EQ(rank.exit_status, 0);
  elapsed = Timeout(found->elapsed_ns);
  return found->samples();
}

TEST(NetworkProbes, in_real_time_measure_all_that_two_ranks_can) {
  for (const bool is_one_node : {false, true}) {
    Timeout elapsed{0};
    const auto samples = measured({0, is_one_node ? 0u : 1u}, 300ms, elapsed);
    const auto counts = counts_of(samples);
    for (const Probe probe : every_probe) {
      const bool is_inside = probe >= Probe::inside_one_way;
      const bool is_of_more = probe == Probe::shared_port || probe == Probe::incast;
      const bool is_there = probe == Probe::combine || (is_inside == is_one_node && !is_of_more);
      if (probe == Probe::inside_read) continue;  // where the system permits it
      EXPECT_EQ(counts.contains(probe), is_there) << static_cast<int>(probe);
    }
    for (const Sample& sample : samples) {
      const bool may_be_nothing =  // for a clock
          sample.probe == Probe::waiting || sample.probe == Probe::inside_take;
      EXPECT_GT(sample.time, may_be_nothing ? -1 : 0) << text_of(sample);
    }
  }
}

/// On a network on which all repetitions would take several seconds.  The best of three, because
/// other programs may take the CPUs.
TEST(NetworkProbes, keep_their_budget) {
  const std::string name = "network_probes_test." + std::to_string(::getpid()) + ".json";
  const Fabric fabric(name, R"({"latency_us":300})");
  constexpr Timeout budget = 500ms;
  Timeout least = 1h;
  for (int tries = 0; tries < 3 && least > budget * 105 / 100; ++tries) {
    Timeout elapsed{0};
    const auto samples = measured({0, 1}, budget, elapsed);
    EXPECT_GT(counts_of(samples)[Probe::combine], 0u) << "not even the first pass was complete";
    EXPECT_GE(elapsed, budget / 2) << "it was not spent";
    least = std::min(least, elapsed);
  }
  EXPECT_LE(least.count(), (budget * 105 / 100).count());
}

TEST(NetworkProbes, of_no_budget_and_of_other_nodes_are_refused) {
  const auto ended = run_local({.rank_count = 1}, [](Exchange& exchange) {
    const std::vector<Node> one{Node{0}}, two{Node{0}, Node{1}};
    int refused = 0;
    for (const auto& [nodes, budget] :
         {std::pair(one, Timeout(0)), {one, Timeout(49ms)}, {two, Timeout(1s)}})
      try {
        (void)probe_network(exchange, nodes, {.device = "soft0", .budget = budget});
      } catch (const Error& error) {
        refused += error.code() == ErrorCode::invalid_argument &&
                   std::string(error.what()).find("expected") != std::string::npos;
      }
    return refused == 3 ? 0 : 1;
  });
  EXPECT_EQ(ended[0].exit_status, 0);
}

}  // namespace
}  // namespace tutti::bench
