// Promise: the curves of the papers are those of the named schedules, and what tutti chooses is
// never above the best of the paper's uniform n.
#include "microbench/curves.hpp"

#include <gtest/gtest.h>

#include <map>

namespace tutti::bench {
namespace {

TEST(Curves, small_numbers_of_ranks) {
  std::map<std::string, plan::Picoseconds> times;
  curves("fdr", 9, [&](const CurvePoint& point) {
    times[point.collective + ' ' + std::to_string(point.bytes) + ' ' + point.curve + ' ' +
          std::to_string(point.ranks)] = point.time;
  });
  // Three rounds of o + L + o_r.
  EXPECT_EQ(times.at("barrier 0 n = 1 8"), 2'700'000);
  EXPECT_EQ(times.at("barrier 0 n = 1 2"), 900'000);
  EXPECT_LT(times.at("allreduce 8 recursive doubling 8"), times.at("allreduce 8 ring 8"));
  for (const auto& [name, time] : times) {
    const std::size_t at = name.find("n = ");
    if (at == std::string::npos) continue;
    const std::string other = name.substr(0, at) +
                              (name.starts_with("barrier") ? "tutti " : "tutti, relaxed ") +
                              name.substr(at + 6);
    EXPECT_LE(times.at(other), time * 102 / 100) << name;
  }
}

}  // namespace
}  // namespace tutti::bench
