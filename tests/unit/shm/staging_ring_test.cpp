// Promise: an area of the ring is given again only after all others have been, and never while
// somebody may read it.
#include "shm/staging_ring.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace tutti::shm {
namespace {

constexpr std::size_t ring_bytes = 1u << 20;

const auto all_read = [](const void*, std::uint64_t) { return true; };
const auto none_read = [](const void*, std::uint64_t) { return false; };

class Ring : public testing::Test {
 protected:
  std::vector<std::byte> memory_ = std::vector<std::byte>(ring_bytes);
  StagingRing ring_{memory_.data(), memory_.size()};
  int user_ = 0, other_ = 0;
};

TEST_F(Ring, suits_areas_that_are_neither_small_nor_few) {
  EXPECT_FALSE(ring_.suits(StagingRing::area_bytes_min - 1));
  EXPECT_TRUE(ring_.suits(StagingRing::area_bytes_min));
  EXPECT_TRUE(ring_.suits(ring_bytes / StagingRing::areas_min));
  EXPECT_FALSE(ring_.suits(ring_bytes / StagingRing::areas_min + 1));
  EXPECT_EQ(ring_.areas_of(65536), 16u);
}

TEST_F(Ring, gives_every_area_before_it_gives_one_again) {
  std::set<const std::byte*> seen;
  for (std::uint64_t chunk = 1; chunk <= 16; ++chunk)
    EXPECT_TRUE(seen.insert(ring_.take(65536, &user_, chunk, all_read)).second);
  EXPECT_EQ(seen.count(nullptr), 0u);
  EXPECT_EQ(seen.count(ring_.take(65536, &user_, 17, all_read)), 1u);
}

TEST_F(Ring, gives_nothing_while_the_oldest_is_read) {
  for (std::uint64_t chunk = 1; chunk <= 16; ++chunk)
    EXPECT_NE(ring_.take(65536, &user_, chunk, none_read), nullptr);
  EXPECT_EQ(ring_.take(65536, &other_, 1, none_read), nullptr);
  const auto first_is_read = [&](const void* user, std::uint64_t chunk) {
    return user == &user_ && chunk == 1;
  };
  EXPECT_EQ(ring_.take(65536, &other_, 1, first_is_read), memory_.data());
  EXPECT_EQ(ring_.take(65536, &other_, 2, first_is_read), nullptr);
}

TEST_F(Ring, asks_nobody_who_has_gone) {
  for (std::uint64_t chunk = 1; chunk <= 16; ++chunk)
    EXPECT_NE(ring_.take(65536, &user_, chunk, none_read), nullptr);
  ring_.forget(&user_, false);
  for (std::uint64_t chunk = 1; chunk <= 16; ++chunk)
    EXPECT_NE(ring_.take(65536, &other_, chunk, none_read), nullptr);
}

TEST_F(Ring, never_gives_what_may_be_read_for_ever) {
  EXPECT_NE(ring_.take(65536, &user_, 1, none_read), nullptr);
  for (std::uint64_t chunk = 1; chunk <= 15; ++chunk)
    EXPECT_NE(ring_.take(65536, &other_, chunk, none_read), nullptr);
  ring_.forget(&user_, true);
  EXPECT_EQ(ring_.take(65536, &other_, 16, all_read), nullptr);
}

TEST_F(Ring, areas_in_use_do_not_overlap_whatever_their_sizes) {
  std::mt19937_64 random(1);
  struct Taken {
    const std::byte* memory;
    std::size_t bytes;
  };
  std::map<std::uint64_t, Taken> unread;  // by chunk
  std::uint64_t given = 0;
  for (std::uint64_t chunk = 1; chunk <= 20000; ++chunk) {
    const std::size_t bytes =
        StagingRing::area_bytes_min +
        64 * (random() % ((ring_bytes / 8 - StagingRing::area_bytes_min) / 64 + 1));
    const std::byte* const area =
        ring_.take(bytes, &user_, chunk,
                   [&](const void*, std::uint64_t old) { return unread.count(old) == 0; });
    if (area != nullptr) {
      ++given;
      ASSERT_GE(area, memory_.data());
      ASSERT_LE(area + bytes, memory_.data() + ring_bytes);
      for (const auto& [number, other] : unread)
        ASSERT_TRUE(area + bytes <= other.memory || other.memory + other.bytes <= area);
      unread[chunk] = {area, bytes};
    }
    while (!unread.empty() && random() % 8 < unread.size()) unread.erase(unread.begin());
  }
  EXPECT_GT(given, 15000u);
}

}  // namespace
}  // namespace tutti::shm
