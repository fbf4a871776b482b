// The words of error texts.
#include "bootstrap/describe.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace tutti::bootstrap {
namespace {

using namespace std::chrono_literals;

std::vector<Rank> first_ranks(std::uint32_t count) {
  std::vector<Rank> ranks;
  for (std::uint32_t rank = 0; rank < count; ++rank) ranks.push_back(Rank{rank});
  return ranks;
}

// Protects: texts name ranks as people would.
TEST(Describe, names_ranks) {
  EXPECT_EQ(name_ranks(std::vector{Rank{2}}), "rank 2");
  EXPECT_EQ(name_ranks(first_ranks(2)), "ranks 0 and 1");
  EXPECT_EQ(name_ranks(first_ranks(3)), "ranks 0, 1 and 2");
}

// Protects: a thousand missing ranks still make one readable line.
TEST(Describe, cuts_long_lists_short) {
  const std::string text = name_ranks(first_ranks(1000));
  EXPECT_LT(text.size(), 100u);
  EXPECT_NE(text.find(" and 984 more"), std::string::npos) << text;
}

// Protects: a timeout is printed in the unit that a person would choose.
TEST(Describe, names_timeouts) {
  EXPECT_EQ(name_timeout(30s), "30 s");
  EXPECT_EQ(name_timeout(1500ms), "1.5 s");
  EXPECT_EQ(name_timeout(250ms), "250 ms");
  EXPECT_EQ(name_timeout(wait_forever), "forever");
}

// Protects: records are told from the bytes of an allgather.
TEST(Describe, names_contributions) {
  EXPECT_EQ(name_contribution(8, false), "8 bytes");
  EXPECT_EQ(name_contribution(8, true), "records of 8 bytes");
}

}  // namespace
}  // namespace tutti::bootstrap
