// Promise: a wait is charged to the rank whose message was awaited, and no time is charged twice.
#include "runtime/peer_waits.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace tutti::runtime {
namespace {

using namespace std::chrono_literals;

constexpr Awaited rank_1_in_step_0{Rank{1}, 10}, rank_1_in_step_1{Rank{1}, 11};
constexpr Awaited rank_2_in_step_2{Rank{2}, 12};

TEST(PeerWaits, are_charged_to_the_rank_that_was_awaited_when_they_began) {
  std::vector<PeerWait> waits(3);
  WaitCharges charges;
  charges.begin(100us, rank_1_in_step_0);
  charges.go_on(waits, 130us, rank_1_in_step_0);
  charges.go_on(waits, 150us, rank_2_in_step_2);
  charges.finish(waits, 157us);
  EXPECT_EQ(waits[0].total_ns, 0u);
  EXPECT_EQ(waits[1].total_ns, 50'000u);
  EXPECT_EQ(waits[2].total_ns, 7'000u);
  EXPECT_EQ(waits[1].times_last, 0u);
  EXPECT_EQ(waits[2].times_last, 1u);
}

TEST(PeerWaits, the_longest_ends_with_each_message) {
  std::vector<PeerWait> waits(2);
  WaitCharges charges;
  charges.begin(0us, rank_1_in_step_0);
  charges.go_on(waits, 40us, rank_1_in_step_0);
  charges.go_on(waits, 70us, rank_1_in_step_1);  // a message has come, and another one is awaited
  charges.finish(waits, 90us);
  EXPECT_EQ(waits[1].total_ns, 90'000u);
  EXPECT_EQ(waits[1].longest_ns, 70'000u);
}

TEST(PeerWaits, the_longest_goes_on_over_deadlines) {
  std::vector<PeerWait> waits(2);
  WaitCharges charges;
  for (int turn = 0; turn < 3; ++turn) {  // the program computes between its waits
    charges.begin(turn * 100us, rank_1_in_step_0);
    charges.go_on(waits, turn * 100us + 20us, rank_1_in_step_0);
  }
  EXPECT_EQ(waits[1].total_ns, 60'000u);
  EXPECT_EQ(waits[1].longest_ns, 60'000u);
  EXPECT_EQ(waits[1].times_last, 0u) << "no call has finished";
}

TEST(PeerWaits, for_nobody_in_particular_are_charged_to_nobody) {
  std::vector<PeerWait> waits(2);
  WaitCharges charges;
  charges.begin(0us, {});
  charges.go_on(waits, 20us, {});
  charges.finish(waits, 30us);
  EXPECT_TRUE(waited_for(waits).empty());
}

TEST(PeerWaits, a_clock_that_steps_back_charges_nothing) {
  std::vector<PeerWait> waits(2);
  WaitCharges charges;
  charges.begin(100us, rank_1_in_step_0);
  charges.finish(waits, 50us);
  EXPECT_EQ(waits[1].total_ns, 0u);
  EXPECT_EQ(waits[1].times_last, 1u);
}

TEST(PeerWaits, are_listed_by_time_then_by_rank) {
  const std::vector<PeerWait> waits{
      {}, {2'000'000, 1'000'000, 3}, {5'000'000, 5'000'000, 1}, {2'000'000, 2'000'000, 0}};
  EXPECT_EQ(text_of(waited_for(waits), "for "),
            "for rank 2: 0.005000 s in all, 0.005000 s at once, the last one 1 times\n"
            "for rank 1: 0.002000 s in all, 0.001000 s at once, the last one 3 times\n"
            "for rank 3: 0.002000 s in all, 0.002000 s at once, the last one 0 times\n");
  EXPECT_EQ(text_of({}, "for "), "");
}

TEST(PeerWaits, of_many_ranks_are_shortened) {
  const std::vector<PeerWait> waits(1000, {1'000'000, 1'000'000, 1});
  const std::string text = text_of(waited_for(waits), "  ");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 17);
  EXPECT_TRUE(text.ends_with("\n  984 other ranks: 0.984000 s in all\n")) << text;
}

}  // namespace
}  // namespace tutti::runtime
