// Promise: partials are where copies into them are cheapest, and move when that changes.
#include "runtime/staging.hpp"

#include <gtest/gtest.h>

namespace tutti::runtime {
namespace {

using detail::BulkCopy;

// These are costs on two cores that share a cache, with and without a sender that runs ahead; on
// threads of one core; on cores that share no cache.
constexpr PutCosts other_core{.plain = 0.38, .streaming = 0.26, .ring = 0.08},
    ahead_of_reader{.plain = 0.38, .streaming = 0.255, .ring = 0.26},
    same_core{.plain = 0.065, .streaming = 0.25, .ring = 0.085},
    no_shared_cache{.plain = 1.5, .streaming = 0.25, .ring = 0.4},
    alike{.plain = 0.1, .streaming = 0.2, .ring = 0.1};
constexpr std::size_t areas = 32;

/// How many of that many chunks were in the ring.
int in_ring(StagingChoice& choice, const PutCosts& costs, int chunks) {
  int count = 0;
  for (int chunk = 0; chunk < chunks; ++chunk) count += choice.next(costs) ? 1 : 0;
  return count;
}

TEST(StagingChoice, is_the_ring_where_that_is_cheaper) {
  for (const PutCosts& costs : {other_core, ahead_of_reader}) {
    StagingChoice choice(areas);
    in_ring(choice, costs, 100);
    EXPECT_GT(in_ring(choice, costs, 100000), 99000);
  }
}

TEST(StagingChoice, is_the_block_where_the_ring_is_not_clearly_cheaper) {
  for (const PutCosts& costs : {same_core, no_shared_cache, alike}) {
    StagingChoice choice(areas);
    in_ring(choice, costs, 100);
    EXPECT_LT(in_ring(choice, costs, 100000), 100000 / 30);
  }
}

/// What a copy costs its sender does not tell a sender that runs ahead from CPUs that share no
/// cache: there a broadcast takes twice as long by the ring, by costs like these.
TEST(StagingChoice, streams_between_caches_where_the_ring_costs_as_much) {
  constexpr PutCosts between_caches{
      .plain = 0.67, .streaming = BulkCopy::gain_between_caches * 0.13, .ring = 0.34};
  StagingChoice choice(areas);
  in_ring(choice, between_caches, 100);
  EXPECT_LT(in_ring(choice, between_caches, 100000), 100000 / 30);
  // The host has moved the ranks to CPUs that share one.
  constexpr PutCosts in_cache{
      .plain = 0.2, .streaming = BulkCopy::gain_between_caches * 0.12, .ring = 0.08};
  in_ring(choice, in_cache, 20000);
  EXPECT_GT(in_ring(choice, in_cache, 10000), 9900);
}

TEST(StagingChoice, tries_the_ring_for_a_whole_round) {
  StagingChoice choice(areas);
  EXPECT_EQ(in_ring(choice, same_core, 8), 0);
  EXPECT_EQ(in_ring(choice, same_core, areas + 8), static_cast<int>(areas) + 8);
  EXPECT_FALSE(choice.next(same_core));
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
  EXPECT_LT(in_ring(choice, {}, 100000), 1000);
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

TEST(StagingDeath, a_place_outside_of_what_the_sender_shares_is_not_read) {
  OneSender one(97);
  EXPECT_DEATH(one.staging.find(one.memory, 0, 0), "lies in its mapping");
}

}  // namespace
}  // namespace tutti::runtime
