// Promise: a file has the least time of each probe beside what the fitted machine predicts, and no
// time that a file must not have.
#include "tune/probe_times.hpp"

#include <gtest/gtest.h>

#include "tune/tuning_file.hpp"

namespace tutti::tune {
namespace {

TEST(ProbeTimes, are_the_least_of_each_probe_beside_the_model) {
  const std::vector<Sample> samples = {
      {.probe = Probe::one_way, .bytes = 8, .time = 1'100},
      {.probe = Probe::one_way, .bytes = 64, .time = 2'000},
      {.probe = Probe::one_way, .bytes = 8, .time = 1'000},
      {.probe = Probe::one_way, .bytes = 8, .time = 1'050},
      {.probe = Probe::stream, .bytes = 8, .messages = 4, .time = 9'000}};
  const std::vector<ProbeTime> expected = {
      {.probe = Probe::one_way, .bytes = 8, .measured = 1'000, .predicted = 990},
      {.probe = Probe::one_way, .bytes = 64, .measured = 2'000, .predicted = 2'030},
      {.probe = Probe::stream, .bytes = 8, .messages = 4, .measured = 9'000, .predicted = 9'000}};
  EXPECT_EQ(probe_times_of(samples, {110, -30, 10, 60, 0}), expected);
}

TEST(ProbeTimes, can_be_written_whatever_was_measured) {
  const std::vector<Sample> samples = {
      {.probe = Probe::one_way, .bytes = 8, .time = -5},
      {.probe = Probe::one_way, .bytes = 16, .time = INT64_MAX},
      {.probe = Probe::one_way, .bytes = UINT64_MAX, .time = 5},
      {.probe = Probe::stream, .bytes = 8, .messages = 0, .time = 5},
      {.probe = Probe::stream, .bytes = 8, .messages = 2, .time = 5},
      {.probe = Probe::stream, .bytes = 8, .messages = 3, .time = 5}};
  Tuning tuning;
  tuning.probe_times = probe_times_of(samples, {0, 0, 0, 0, 7, -2'000'000'000'000'000});
  ASSERT_EQ(tuning.probe_times.size(), 2u);
  EXPECT_EQ(tuning.probe_times[0].predicted, 0);
  EXPECT_EQ(parse_tuning(text_of(tuning), "a.json"), tuning);
  std::vector<Sample> many;
  for (std::uint64_t bytes = 0; bytes < 3 * probe_times_max; ++bytes)
    many.push_back({.probe = Probe::one_way, .bytes = bytes, .time = 5});
  tuning.probe_times = probe_times_of(many, std::vector<plan::Picoseconds>(many.size()));
  EXPECT_EQ(tuning.probe_times.size(), probe_times_max);
  EXPECT_EQ(parse_tuning(text_of(tuning), "a.json"), tuning);
}

}  // namespace
}  // namespace tutti::tune
