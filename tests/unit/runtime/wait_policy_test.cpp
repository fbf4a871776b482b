// Promise: what a wait does with its core follows from the policy, from how many ranks share the
// CPUs, and from how long nothing has come.
#include "runtime/wait_policy.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tutti::runtime {
namespace {

using namespace std::chrono_literals;

detail::CpuSet cpus(std::string_view list) {
  return detail::parse_cpu_list(list);
}

bool oversubscribed(const std::vector<std::string_view>& of_host, std::size_t self) {
  std::vector<detail::CpuSet> sets;
  for (const std::string_view list : of_host) sets.push_back(cpus(list));
  return is_oversubscribed(sets, sets[self]);
}

TEST(Oversubscription, counts_ranks_that_may_run_only_where_this_one_may) {
  EXPECT_FALSE(oversubscribed({"0-1", "0-1"}, 0));         // a CPU for each
  EXPECT_TRUE(oversubscribed({"0-1", "0-1", "0-1"}, 0));   // none is bound
  EXPECT_FALSE(oversubscribed({"0", "1"}, 0));             // each is bound to its own
  EXPECT_TRUE(oversubscribed({"0", "0", "1"}, 0));         // two are bound to one
  EXPECT_FALSE(oversubscribed({"0", "0", "1"}, 2));        // which is not this one's
  EXPECT_FALSE(oversubscribed({"0-1", "0-1", "2-3"}, 0));  // a container beside another
  EXPECT_TRUE(oversubscribed({"0-1", "0", "1"}, 0));       // one is free to move, but not away
  EXPECT_FALSE(oversubscribed({"0-1", "0", "1"}, 1));      // and leaves that one alone
  EXPECT_TRUE(oversubscribed({"0", "0"}, 0));              // a machine of one CPU
  EXPECT_FALSE(oversubscribed({"900-1000"}, 0));
}

TEST(Oversubscription, is_not_assumed_where_the_system_does_not_say) {
  EXPECT_FALSE(oversubscribed({"", "", ""}, 0));
  EXPECT_FALSE(oversubscribed({"0-1", ""}, 1));
}

TEST(GiveWay, automatic_with_a_cpu_of_its_own_does_not_sleep_below_a_second) {
  const Waiting own{};
  EXPECT_EQ(give_way(own, 0ns), GiveWay::not_at_all);
  EXPECT_EQ(give_way(own, 1ms), GiveWay::not_at_all);
  EXPECT_EQ(give_way(own, 1ms + 1ns), GiveWay::yield);
  EXPECT_EQ(give_way(own, 11ms), GiveWay::yield);
  EXPECT_EQ(give_way(own, 1s), GiveWay::yield);
  EXPECT_EQ(give_way(own, 1s + 1ns), GiveWay::nap);
}

TEST(GiveWay, automatic_on_shared_cpus_yields_at_once_and_sleeps_after_10_ms) {
  const Waiting shared{.oversubscribed = true};
  EXPECT_EQ(give_way(shared, 0ns), GiveWay::yield);
  EXPECT_EQ(give_way(shared, 10ms), GiveWay::yield);
  EXPECT_EQ(give_way(shared, 10ms + 1ns), GiveWay::nap);
}

TEST(GiveWay, spin_and_yield_never_sleep) {
  for (const bool oversubscribed : {false, true})
    for (const Timeout idle : {Timeout(0ns), Timeout(5ms), Timeout(1h)}) {
      EXPECT_EQ(give_way({WaitPolicy::spin, oversubscribed, false, true}, idle),
                GiveWay::not_at_all);
      EXPECT_EQ(give_way({WaitPolicy::yield, oversubscribed, false, true}, idle), GiveWay::yield);
    }
}

TEST(GiveWay, block_blocks_if_everything_wakes_it_and_else_naps) {
  for (const bool oversubscribed : {false, true}) {
    EXPECT_EQ(give_way({WaitPolicy::block, oversubscribed, false, true}, 50us), GiveWay::yield);
    EXPECT_EQ(give_way({WaitPolicy::block, oversubscribed, false, true}, 51us), GiveWay::block);
    EXPECT_EQ(give_way({WaitPolicy::block, oversubscribed, false, false}, 51us), GiveWay::nap);
  }
}

TEST(GiveWay, nobody_sleeps_where_time_is_simulated) {
  for (const WaitPolicy policy :
       {WaitPolicy::automatic, WaitPolicy::spin, WaitPolicy::yield, WaitPolicy::block})
    for (const bool oversubscribed : {false, true}) {
      const GiveWay way = give_way({policy, oversubscribed, true, true}, 1h);
      EXPECT_NE(way, GiveWay::nap);
      EXPECT_NE(way, GiveWay::block);
    }
}

TEST(Nap, is_an_eighth_of_what_was_waited_for_within_bounds) {
  EXPECT_EQ(nap_of(0ns), 10us);
  EXPECT_EQ(nap_of(80us), 10us);
  EXPECT_EQ(nap_of(800us), 100us);
  EXPECT_EQ(nap_of(8ms), 1ms);
  EXPECT_EQ(nap_of(1h), 1ms);
}

}  // namespace
}  // namespace tutti::runtime
