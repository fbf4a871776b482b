// Promise: the command line of tutti-bench wake means what it says, a bad one is refused in one
// line that names the value, and the table has a row for each measurement.
#include "microbench/wake.hpp"

#include <gtest/gtest.h>

#include <tutti/status.hpp>

namespace tutti::bench {
namespace {

WakeOptions parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "wake");
  return parse_wake_options(arguments);
}

void expect_refused(const std::vector<const char*>& arguments,
                    const std::vector<const char*>& parts) {
  std::string text = "accepted";
  try {
    parse(arguments);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    text = error.what();
  }
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(WakeOptions, defaults_are_all_policies_of_two_ranks) {
  const WakeOptions options = parse({});
  EXPECT_EQ(options.local, 2u);
  EXPECT_EQ(options.policies.size(), 4u);
  EXPECT_EQ(options.away_us, (std::vector<std::uint32_t>{1000, 30'000}));
  EXPECT_TRUE(options.ranks_per_node.empty());
  EXPECT_TRUE(options.bind);
  EXPECT_TRUE(options.help.empty());
}

TEST(WakeOptions, are_what_was_given) {
  const WakeOptions options =
      parse({"--local", "4", "--ranks-per-node", "2", "--wait", "block,spin", "--away-us", "0,5",
             "--iterations", "7", "--bind", "none"});
  EXPECT_EQ(options.local, 4u);
  EXPECT_EQ(options.ranks_per_node, std::vector<std::uint32_t>{2});
  EXPECT_EQ(options.policies, (std::vector<WaitPolicy>{WaitPolicy::block, WaitPolicy::spin}));
  EXPECT_EQ(options.away_us, (std::vector<std::uint32_t>{0, 5}));
  EXPECT_EQ(options.iterations, 7u);
  EXPECT_FALSE(options.bind);
  EXPECT_NE(parse({"--help"}).help.find("--away-us"), std::string::npos);
}

TEST(WakeOptions, are_refused_in_one_line) {
  expect_refused({"--local", "1"}, {"--local=\"1\"", "from 2"});
  expect_refused({"--wait", "block,sleep"}, {"--wait=\"sleep\"", "spin, automatic, yield, block"});
  expect_refused({"--wait", ""}, {"--wait=\"\"", "spin, automatic, yield, block"});
  expect_refused({"--away-us", "5,,6"}, {"--away-us=\"\"", "a number"});
  expect_refused({"--away-us", "10000001"}, {"--away-us", "to 10000000"});
  expect_refused({"--iterations", "0"}, {"--iterations=\"0\"", "from 1"});
  expect_refused({"--bind", "cores"}, {"--bind=\"cores\"", "auto or none"});
  expect_refused({"--ranks-per-node", "x"}, {"--ranks-per-node"});
  expect_refused({"--bytes", "8"}, {"--bytes"});
}

TEST(WakeTable, has_a_row_for_each_measurement) {
  const WakeRow rows[] = {{.policy = WaitPolicy::block,
                           .away_us = 1000,
                           .latency_us = 33.69,
                           .latency_p99_us = 84.45,
                           .cpu_share = 0.0621,
                           .start_us = 9.84}};
  const std::string text = wake_table(rows, "2 ranks");
  for (const char* part : {"2 ranks\n", "block", "33.69", "84.45", "0.0621", "9.84"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace
}  // namespace tutti::bench
