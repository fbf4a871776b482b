// Promise: a network is said to have changed if it has by more than noise, and not otherwise.
#include "microbench/tune_check.hpp"

#include <gtest/gtest.h>

namespace tutti::bench {
namespace {

using tune::Machine;
using tune::Origin;
using tune::Parameter;

Machine machine_with(std::int64_t latency, std::int64_t half_width) {
  Machine machine = tune::machine_preset("fdr");
  machine[Parameter::latency] = {latency, latency - half_width, latency + half_width,
                                 Origin::measured};
  machine[Parameter::gap] = {100'000, 99'000, 101'000, Origin::measured};
  return machine;
}

TEST(TuneCheck, the_same_is_the_same) {
  const NetworkCheck check = check_network(machine_with(850'000, 1000), machine_with(850'000, 500));
  EXPECT_FALSE(check.has_changed);
  EXPECT_EQ(check.compared, 2u);
  EXPECT_NE(check.text.find("a message, ps"), std::string::npos) << check.text;
  EXPECT_NE(check.text.find("within noise"), std::string::npos) << check.text;
}

TEST(TuneCheck, within_a_fifth_or_the_intervals_it_is_noise) {
  EXPECT_FALSE(check_network(machine_with(850'000, 10), machine_with(1'000'000, 10)).has_changed);
  EXPECT_FALSE(
      check_network(machine_with(850'000, 10), machine_with(1'700'000, 900'000)).has_changed);
}

TEST(TuneCheck, more_is_a_change_in_both_directions) {
  const NetworkCheck slower = check_network(machine_with(850'000, 10), machine_with(1'100'000, 10));
  EXPECT_TRUE(slower.has_changed);
  EXPECT_NE(slower.text.find("run tutti-tune again"), std::string::npos) << slower.text;
  EXPECT_TRUE(check_network(machine_with(850'000, 10), machine_with(600'000, 10)).has_changed);
}

TEST(TuneCheck, what_is_so_unsure_that_a_doubling_would_not_show_is_not_called_the_same) {
  Machine file = tune::machine_preset("fdr"), now = file;
  using enum Parameter;
  for (const Parameter parameter : {inside_send_overhead, inside_receive_overhead})
    file[parameter] = now[parameter] = {1000, 900, 1100, Origin::measured};
  file[inside_latency] = {20'000, 1, 58'039, Origin::measured};
  now[inside_latency] = {50'000, 48'000, 52'000, Origin::measured};
  const NetworkCheck check = check_network(file, now);
  EXPECT_FALSE(check.has_changed);
  EXPECT_EQ(check.compared, 1u) << check.text;  // o_r
  EXPECT_NE(check.text.find("too unsure to be compared"), std::string::npos) << check.text;

  file[inside_latency] = {20'000, 15'000, 26'000, Origin::measured};
  EXPECT_TRUE(check_network(file, now).has_changed);
}

TEST(TuneCheck, what_was_not_measured_is_not_compared) {
  const NetworkCheck check = check_network(tune::machine_preset("fdr"), machine_with(1, 0));
  EXPECT_FALSE(check.has_changed);
  EXPECT_EQ(check.compared, 0u);
  EXPECT_NE(check.text.find("Nothing can be compared"), std::string::npos) << check.text;
}

}  // namespace
}  // namespace tutti::bench
