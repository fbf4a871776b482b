// Figures of tuning that need no grid of calls: whether a fit finds the
// parameters that were put into samples, how often races err, and what choosing takes.  Tests look
// at the same figures.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "microbench/noisy_times.hpp"
#include "microbench/synthetic_samples.hpp"
#include "tune/knowledge.hpp"
#include "tune/machine.hpp"

namespace tutti::bench {

/// A part of a verification as text.
struct Verdict {
  std::string text = {};    // a table
  std::string misses = {};  // a line for each figure that misses its bound
};

/// 5 % of messages are late, and every run takes some percent and some nanoseconds longer.
inline constexpr ProbeNoise usual_noise{
    .late_probability = 0.05, .jitter = 0.03, .jitter_ps = 3000};

/// How often intervals cover the truth, and how wide they are, as shares of it.
struct Coverage {
  std::array<std::uint32_t, tune::parameter_count> covered = {};
  std::array<double, tune::parameter_count> width = {};
};
Coverage coverage_of(const tune::Machine& truth, const ProbeNoise& noise, std::uint32_t seeds);

// The bounds of a fit.
inline constexpr double error_max = 0.01, error_of_late_max = 0.05;
inline constexpr double covered_min = 0.9;

/// Fits samples of a preset's machine: without noise, with late messages (20 seeds), and, for the
/// intervals, with the usual noise (`seeds` of them).
struct FitFigures {
  std::string preset = {};
  std::uint32_t seeds = 0;
  double error = 0, error_of_late = 0;  // the largest of a parameter, as a share of it
  std::uint32_t covered = 0;            // the least of a parameter
  double width = 0;                     // the largest of a parameter
};
FitFigures fit_figures(const std::string& preset, std::uint32_t seeds);

/// All presets.  `progress` is told which one is next, and how many are done of how many.
Verdict verify_fit(
    std::uint32_t seeds,
    const std::function<void(const std::string&, std::size_t, std::size_t)>& progress = {});

/// Races of candidates whose times are known, as many of each kind.
Verdict verify_noise(std::uint32_t races);

/// What a program knows that has a file of 200 races of which none was about its call, and that
/// keeps bits.
tune::Knowledge of_many_races();

/// What processor time choose() takes for calls of 4096 ranks, with such a file and without one:
/// the least of three times.
Verdict verify_time();

}  // namespace tutti::bench
