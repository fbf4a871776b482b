// Samples that probes would take on a machine whose parameters are known, with noise: the formulas
// of tune/fit.hpp the other way round.  Fits are judged by them, in tests and by tutti-tune
// --verify.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tune/fit.hpp"
#include "tune/machine.hpp"

namespace tutti::bench {

/// What disturbs measurements; each sample is the least of a batch.
struct ProbeNoise {
  double late_probability = 0;  // of a message, by up to `late_ps`
  double late_ps = 10e6;
  double jitter = 0;     // mean of what a run takes longer, as a share of its time; exponential
  double jitter_ps = 0;  // ... and beside that
  int batch = 20;
  int batches = 5;
  double offset = 0;  // of all samples of a cell, as a share; evenly to both sides
};

class SyntheticProbes {
 public:
  SyntheticProbes(const tune::Machine& machine, const ProbeNoise& noise, std::uint64_t seed);

  /// All probes, of the bytes and messages that tell a machine.
  std::vector<tune::Sample> all();

  void add(tune::Probe probe, std::uint64_t bytes, std::uint32_t messages);
  const std::vector<tune::Sample>& samples() const { return samples_; }

 private:
  double each(tune::Probe probe, std::uint64_t bytes) const;
  double undisturbed(tune::Probe probe, std::uint64_t bytes, std::uint32_t messages) const;
  double disturbed(tune::Probe probe, std::uint64_t bytes, std::uint32_t messages);
  double late();

  plan::Network network_;
  ProbeNoise noise_;
  std::mt19937_64 numbers_;
  std::vector<tune::Sample> samples_ = {};
};

std::vector<tune::Sample> samples_of(const tune::Machine& machine, const ProbeNoise& noise = {},
                                     std::uint64_t seed = 1);

/// The preset, but with half of its port's gap as the gap of a rank.  In the preset that gap is 0,
/// and a relative error of 0 is undefined.
tune::Machine machine_to_fit(const std::string& preset);

/// A machine like none that is measured: what a fit cannot tell is seen by it.
const tune::Machine& fallback_like_none();

}  // namespace tutti::bench
