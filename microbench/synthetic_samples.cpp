#include "microbench/synthetic_samples.hpp"

#include <algorithm>
#include <cmath>

namespace tutti::bench {
namespace {

constexpr std::uint32_t ranks_of_node = 4;

}  // namespace

SyntheticProbes::SyntheticProbes(const tune::Machine& machine, const ProbeNoise& noise,
                                 std::uint64_t seed)
    : network_(machine.network()), noise_(noise), numbers_(seed) {}

std::vector<tune::Sample> SyntheticProbes::all() {
  using enum tune::Probe;
  const std::vector<std::uint64_t> lengths = {8, 64, 512, 4096, 32768, 131072, 1 << 20};
  const std::vector<std::uint32_t> counts = {1, 2, 4, 8, 12, 16};
  for (const std::uint64_t bytes : lengths)
    for (const tune::Probe probe : {one_way, combine, inside_one_way, inside_read})
      add(probe, bytes, 1);
  for (const std::uint64_t bytes : lengths) add(inside_store, bytes, 8);
  for (const std::uint32_t count : counts) {
    for (const tune::Probe probe : {stream, posting, incast, waiting, inside_take})
      add(probe, 8, count);
    add(shared_port, 8, count * ranks_of_node);
  }
  return samples_;
}

void SyntheticProbes::add(tune::Probe probe, std::uint64_t bytes, std::uint32_t messages) {
  const double factor = 1 + std::uniform_real_distribution<>(-1, 1)(numbers_) * noise_.offset;
  for (int batch = 0; batch < noise_.batches; ++batch) {
    double least = HUGE_VAL;
    for (int run = 0; run < noise_.batch; ++run)
      least = std::min(least, disturbed(probe, bytes, messages));
    samples_.push_back({probe, bytes, messages, std::llround(least * factor),
                        probe == tune::Probe::shared_port ? ranks_of_node : 1});
  }
}

double SyntheticProbes::each(tune::Probe probe, std::uint64_t bytes) const {
  const plan::LogGP& network = network_.between;
  const plan::Picoseconds port = network.port_time(bytes);
  if (probe == tune::Probe::shared_port) return static_cast<double>(port);
  const plan::Picoseconds sent = network.sending_time(bytes);
  return static_cast<double>(probe == tune::Probe::incast ? std::max(sent, network.receive_overhead)
                                                          : sent);
}

double SyntheticProbes::undisturbed(tune::Probe probe, std::uint64_t bytes,
                                    std::uint32_t messages) const {
  const plan::LogGP& between = network_.between;
  const plan::NodeMemory& inside = network_.inside;
  const auto arrives = [&](std::uint64_t of) {
    return between.travel_time(of) + between.receive_overhead;
  };
  switch (probe) {
    case tune::Probe::one_way:
      return static_cast<double>(arrives(bytes));
    case tune::Probe::shared_port:
      if (ranks_of_node * between.port_time(bytes) < between.rank_gap) {
        const plan::Picoseconds of_each = messages / ranks_of_node;
        const plan::Picoseconds sent =
            (of_each - 1) * between.rank_gap + (ranks_of_node - 1) * between.port_time(bytes);
        return static_cast<double>(arrives(bytes) + arrives(8) + sent);
      }
      [[fallthrough]];
    case tune::Probe::stream:
    case tune::Probe::incast:
      return static_cast<double>(arrives(bytes) + arrives(8)) + (messages - 1) * each(probe, bytes);
    case tune::Probe::posting:
      return static_cast<double>(messages * between.rank_gap);
    case tune::Probe::waiting:
      return static_cast<double>(messages * between.receive_overhead);
    case tune::Probe::combine:
      return static_cast<double>(between.work_time(bytes));
    case tune::Probe::inside_one_way:
      return static_cast<double>(inside.store_time(bytes) + inside.latency +
                                 inside.receive_overhead);
    case tune::Probe::inside_store:
      return static_cast<double>(messages * inside.store_time(bytes));
    case tune::Probe::inside_take:
      return static_cast<double>(messages * inside.receive_overhead);
    case tune::Probe::inside_read:
      return static_cast<double>(inside.read_time(bytes));
  }
  return 0;
}

double SyntheticProbes::disturbed(tune::Probe probe, std::uint64_t bytes, std::uint32_t messages) {
  double time = undisturbed(probe, bytes, messages);
  if (probe == tune::Probe::one_way)  // half a round trip
    time += (late() + late()) / 2;
  if (probe == tune::Probe::stream || probe == tune::Probe::shared_port ||
      probe == tune::Probe::incast) {
    double most = 0;
    for (std::uint32_t after = 0; after < messages; ++after)
      most = std::max(most, late() - after * each(probe, bytes));
    time += most + late();  // and the answer, or the question
  }
  if (noise_.jitter == 0) return time;
  return time +
         std::exponential_distribution<>(1 / (noise_.jitter * time + noise_.jitter_ps))(numbers_);
}

double SyntheticProbes::late() {
  if (std::uniform_real_distribution<>()(numbers_) >= noise_.late_probability) return 0;
  return std::uniform_real_distribution<>(0, noise_.late_ps)(numbers_);
}

std::vector<tune::Sample> samples_of(const tune::Machine& machine, const ProbeNoise& noise,
                                     std::uint64_t seed) {
  return SyntheticProbes(machine, noise, seed).all();
}

tune::Machine machine_to_fit(const std::string& preset) {
  tune::Machine machine = tune::machine_preset(preset);
  tune::Figure& figure = machine[tune::Parameter::rank_gap];
  figure.value = figure.low = figure.high = machine[tune::Parameter::gap].value / 2;
  return machine;
}

const tune::Machine& fallback_like_none() {
  static const tune::Machine machine = [] {
    tune::Machine other = tune::machine_preset("roce10");
    for (tune::Figure& figure : other.figures) figure = {7, 7, 7, tune::Origin::preset};
    other.name = "other";
    return other;
  }();
  return machine;
}

}  // namespace tutti::bench
