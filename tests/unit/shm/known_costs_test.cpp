// Promise: what two processes have measured is not measured again, what is better replaces it, and
// tries in vain come to an end.
#include "shm/known_costs.hpp"

#include <gtest/gtest.h>

namespace tutti::shm {
namespace {

constexpr std::uint64_t neighbour = 40, another = 41;
constexpr CopyCosts word{.word = 60, .is_word_alone = true};
constexpr CopyCosts copies{.word = 70, .put_chunk = 5000};

TEST(KnownCosts, of_one_neighbour_say_nothing_of_another) {
  KnownCosts known;
  EXPECT_FALSE(known.is_settled(neighbour, true));
  known.learn(neighbour, copies, true);
  EXPECT_TRUE(known.is_settled(neighbour, true));
  EXPECT_TRUE(known.is_settled(neighbour, false));
  EXPECT_EQ(known.with(neighbour)->put_chunk, copies.put_chunk);
  EXPECT_FALSE(known.is_settled(another, true));
  EXPECT_FALSE(known.with(another));
}

TEST(KnownCosts, of_a_word_alone_are_replaced_by_those_of_copies_and_not_the_other_way) {
  KnownCosts known;
  known.learn(neighbour, word, false);
  EXPECT_TRUE(known.is_settled(neighbour, false));
  EXPECT_FALSE(known.is_settled(neighbour, true));
  known.learn(neighbour, copies, true);
  EXPECT_TRUE(known.is_settled(neighbour, true));
  known.learn(neighbour, word, false);
  EXPECT_FALSE(known.with(neighbour)->is_word_alone);
}

TEST(KnownCosts, tries_in_vain_end) {
  KnownCosts known;
  for (unsigned tried = 0; tried < KnownCosts::tries_max; ++tried) {
    EXPECT_FALSE(known.is_settled(neighbour, true));
    known.learn(neighbour, std::nullopt, true);
    EXPECT_FALSE(known.with(neighbour));
  }
  EXPECT_TRUE(known.is_settled(neighbour, true));
}

/// Protects: where other programs disturb every measurement, new communicators stop measuring, and
/// how long a word takes is known all the same.
TEST(KnownCosts, a_word_in_place_of_copies_is_kept_and_was_a_try_in_vain) {
  KnownCosts known;
  for (unsigned tried = 0; tried < KnownCosts::tries_max; ++tried) {
    EXPECT_FALSE(known.is_settled(neighbour, true));
    known.learn(neighbour, word, true);
    EXPECT_EQ(known.with(neighbour)->word, word.word);
  }
  EXPECT_TRUE(known.is_settled(neighbour, true));
}

}  // namespace
}  // namespace tutti::shm
