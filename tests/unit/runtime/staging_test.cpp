// Promise: partials are where copies into them are cheapest, and move when that changes.
#include "runtime/staging.hpp"

#include <gtest/gtest.h>

namespace tutti::runtime {
namespace {

struct Costs {
  double in_block, in_ring;
};
constexpr Costs other_core{7.3, 1.6}, same_core{1.15, 1.5}, no_shared_cache{3.9, 28}, alike{2, 2};
constexpr std::size_t areas = 32;

/// How many of that many chunks were in the ring.
int in_ring(StagingChoice& choice, Costs costs, int chunks) {
  int count = 0;
  for (int chunk = 0; chunk < chunks; ++chunk)
    count += choice.next(costs.in_block, costs.in_ring) ? 1 : 0;
  return count;
}

TEST(StagingChoice, is_the_ring_where_that_is_cheaper) {
  StagingChoice choice(areas);
  in_ring(choice, other_core, 100);
  EXPECT_GT(in_ring(choice, other_core, 100000), 99800);
}

TEST(StagingChoice, is_the_block_where_the_ring_is_not_clearly_cheaper) {
  for (const Costs costs : {same_core, no_shared_cache, alike}) {
    StagingChoice choice(areas);
    in_ring(choice, costs, 100);
    EXPECT_LT(in_ring(choice, costs, 100000), 100000 / 30);
  }
}

TEST(StagingChoice, tries_the_ring_for_a_whole_round) {
  StagingChoice choice(areas);
  EXPECT_EQ(in_ring(choice, same_core, 8), 0);
  EXPECT_EQ(in_ring(choice, same_core, areas + 8), static_cast<int>(areas) + 8);
  EXPECT_FALSE(choice.next(same_core.in_block, same_core.in_ring));
}

TEST(StagingChoice, follows_when_the_ranks_are_moved) {
  StagingChoice choice(areas);
  in_ring(choice, same_core, 10000);
  in_ring(choice, other_core, 20000);
  EXPECT_GT(in_ring(choice, other_core, 10000), 9900);
  in_ring(choice, no_shared_cache, 20000);
  EXPECT_LT(in_ring(choice, no_shared_cache, 10000), 500);
}

TEST(StagingChoice, leaves_a_place_that_has_become_dear_at_once) {
  StagingChoice choice(areas);
  in_ring(choice, other_core, 1000);
  EXPECT_LT(in_ring(choice, no_shared_cache, 1000), 200);
}

TEST(StagingChoice, is_the_block_where_nothing_is_measured) {
  StagingChoice choice(areas);
  EXPECT_LT(in_ring(choice, {0, 0}, 100000), 1000);
}

/// A sender with a window of 4096 bytes, which tells a place 96 bytes before its end.
struct OneSender {
  explicit OneSender(std::size_t message_bytes) {
    for (auto& places : memory.in_place) places.resize(1);
    staging.message_bytes = message_bytes;
    staging.senders = {{.told = {slot.data(), slot.data()},
                        .address = 1u << 20,
                        .mapping = mapping.data(),
                        .mapping_bytes = mapping.size()}};
    const std::uint64_t place = (1u << 20) + 4000;
    std::memcpy(slot.data(), &place, sizeof place);
  }

  std::array<std::byte, 4096> mapping = {};
  std::array<std::byte, 64> slot = {};
  engine::RegisterMemory memory;
  Staging staging;
};

TEST(Staging, finds_a_message_where_its_sender_tells) {
  OneSender one(96);
  one.staging.find(one.memory, 1, 0);
  EXPECT_EQ(one.memory.in_place[1][0], one.mapping.data() + 4000);
  EXPECT_EQ(one.memory.in_place[0][0], nullptr);
  one.staging.find(one.memory, 1, 1);  // a slot without a message that is staged
}

TEST(StagingDeath, a_place_outside_of_the_senders_window_is_not_read) {
  OneSender one(97);
  EXPECT_DEATH(one.staging.find(one.memory, 0, 0), "lies in its window");
}

}  // namespace
}  // namespace tutti::runtime
