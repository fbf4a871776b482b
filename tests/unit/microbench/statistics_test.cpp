// Promise: the figures that are printed are the order statistics they are named after.
#include "microbench/statistics.hpp"

#include <gtest/gtest.h>

#include "microbench/overlap.hpp"

namespace tutti::bench {
namespace {

const std::vector<double> odd = {5, 1, 4, 2, 3};
const std::vector<double> even = {4, 1, 3, 2};

TEST(Statistics, median_is_the_middle_or_the_mean_of_the_middle_two) {
  EXPECT_EQ(median(odd), 3);
  EXPECT_EQ(median(even), 2.5);
}

TEST(Statistics, deviation_ignores_a_single_outlier) {
  EXPECT_EQ(median_absolute_deviation(std::vector<double>{1, 2, 3, 4, 1000}), 1);
}

TEST(Statistics, percentile_is_the_nearest_rank) {
  std::vector<double> samples;
  for (int i = 1; i <= 200; ++i) samples.push_back(i);
  EXPECT_EQ(percentile(samples, 99), 198);
  EXPECT_EQ(percentile(samples, 100), 200);
  EXPECT_EQ(percentile(samples, 0), 1);
  EXPECT_EQ(percentile(std::vector<double>{7}, 99), 7);
}

TEST(Statistics, overlap_is_the_share_of_the_shorter_that_takes_no_time_of_its_own) {
  EXPECT_EQ(overlap_of(100, 100, 100), 1);
  EXPECT_EQ(overlap_of(100, 100, 200), 0);
  EXPECT_EQ(overlap_of(100, 100, 150), 0.5);
  EXPECT_EQ(overlap_of(50, 100, 100), 1);
  EXPECT_EQ(overlap_of(100, 100, 230), 0) << "calling test() may cost more than it hides";
}

TEST(Statistics, busy_is_what_is_neither_work_nor_waiting_for_the_rest) {
  EXPECT_EQ(busy_of(100, 100, 100, 0), 0);
  EXPECT_EQ(busy_of(100, 100, 125, 0), 0.25);
  EXPECT_EQ(busy_of(100, 100, 150, 30), 0.2);
  EXPECT_EQ(busy_of(50, 100, 150, 0), 1) << "of the collective, not of the work";
  EXPECT_EQ(busy_of(100, 100, 90, 0), 0) << "the work alone was disturbed";
}

TEST(Statistics, work_takes_as_long_as_it_shall) {
  const Timer timer;
  Work work;
  constexpr double wanted = 400'000;
  work.set_duration(wanted, timer);
  std::vector<double> times;
  for (int i = 0; i < 25; ++i) {
    const std::uint64_t begin = timer.ticks();
    work.do_all();
    times.push_back(timer.nanoseconds(timer.ticks() - begin));
  }
  EXPECT_GT(median(times), wanted / 2);
  EXPECT_LT(median(times), wanted * 2);
}

TEST(Statistics, nothing_yields_zero) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median_absolute_deviation({}), 0);
  EXPECT_EQ(percentile({}, 99), 0);
  EXPECT_EQ(smallest({}), 0);
  EXPECT_EQ(largest({}), 0);
}

TEST(Statistics, extremes_are_exact) {
  EXPECT_EQ(smallest(odd), 1);
  EXPECT_EQ(largest(odd), 5);
}

TEST(Statistics, ratio_is_of_blocks_not_of_medians) {
  // The machine was three times slower in the last block; the ratio there is the same.
  EXPECT_EQ(median_ratio(std::vector<double>{2, 2, 6}, std::vector<double>{1, 1, 3}), 2);
}

}  // namespace
}  // namespace tutti::bench
