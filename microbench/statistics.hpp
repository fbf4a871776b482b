// Order statistics of samples.  Medians rather than means: one interrupt must not move a figure.
#pragma once

#include <span>

namespace tutti::bench {

/// Mean of the middle two for an even number; 0 for none.
double median(std::span<const double> samples);

/// Median of the distances from the median.
double median_absolute_deviation(std::span<const double> samples);

/// The smallest sample that at least `percent` of all do not exceed (nearest rank); 0 for none.
double percentile(std::span<const double> samples, double percent);

double smallest(std::span<const double> samples);
double largest(std::span<const double> samples);

/// Median of the ratios of samples taken in the same block: what changes slowly on a machine (clock
/// rate, neighbours) cancels.  Both sides have one value per block; 0 for none.
double median_ratio(std::span<const double> numerators, std::span<const double> denominators);

}  // namespace tutti::bench
