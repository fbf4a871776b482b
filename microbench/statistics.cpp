#include "microbench/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <tutti/detail/check.hpp>
#include <vector>

namespace tutti::bench {
namespace {

std::vector<double> sorted(std::span<const double> samples) {
  std::vector<double> copy(samples.begin(), samples.end());
  std::sort(copy.begin(), copy.end());
  return copy;
}

}  // namespace

double median(std::span<const double> samples) {
  if (samples.empty()) return 0;
  const std::vector<double> ordered = sorted(samples);
  const std::size_t middle = ordered.size() / 2;
  return ordered.size() % 2 == 1 ? ordered[middle] : (ordered[middle - 1] + ordered[middle]) / 2;
}

double median_absolute_deviation(std::span<const double> samples) {
  const double center = median(samples);
  std::vector<double> distances;
  distances.reserve(samples.size());
  for (const double sample : samples) distances.push_back(std::abs(sample - center));
  return median(distances);
}

double percentile(std::span<const double> samples, double percent) {
  if (samples.empty()) return 0;
  const std::vector<double> ordered = sorted(samples);
  const double position = std::ceil(percent / 100 * static_cast<double>(ordered.size()));
  const auto count = static_cast<std::size_t>(std::max(position, 1.0));
  return ordered[std::min(count, ordered.size()) - 1];
}

double smallest(std::span<const double> samples) {
  return samples.empty() ? 0 : *std::min_element(samples.begin(), samples.end());
}

double largest(std::span<const double> samples) {
  return samples.empty() ? 0 : *std::max_element(samples.begin(), samples.end());
}

double median_ratio(std::span<const double> numerators, std::span<const double> denominators) {
  detail::check(numerators.size() == denominators.size(), "both sides were sampled in every block",
                numerators.size(), denominators.size());
  std::vector<double> ratios;
  for (std::size_t i = 0; i < numerators.size(); ++i)
    if (denominators[i] > 0) ratios.push_back(numerators[i] / denominators[i]);
  return median(ratios);
}

}  // namespace tutti::bench
