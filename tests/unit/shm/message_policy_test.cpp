// Promise: how a message inside a node travels follows from its kind alone, and every rank of the
// node has a word of its own.
#include "shm/message_policy.hpp"

#include <gtest/gtest.h>

#include <set>

namespace tutti::shm {
namespace {

TEST(MessagePolicy, short_messages_are_copied_whatever_they_are) {
  for (const bool is_answer : {false, true})
    for (const bool has_own_place : {false, true}) {
      EXPECT_EQ(travel_of({.bytes = 4095, .is_answer = is_answer, .has_own_place = has_own_place}),
                Travel::copied);
      EXPECT_EQ(travel_of({.bytes = 511,
                           .is_one_way = true,
                           .is_answer = is_answer,
                           .has_own_place = has_own_place}),
                Travel::copied);
    }
}

TEST(MessagePolicy, long_messages_stay_with_their_sender) {
  EXPECT_EQ(travel_of({.bytes = 4096}), Travel::stays);
  EXPECT_EQ(travel_of({.bytes = 512, .is_one_way = true}), Travel::stays);
}

TEST(MessagePolicy, long_answers_return_to_where_the_question_was_read) {
  EXPECT_EQ(travel_of({.bytes = 4096, .is_answer = true}), Travel::answers);
  EXPECT_EQ(travel_of({.bytes = 512, .is_one_way = true, .is_answer = true}), Travel::answers);
  EXPECT_EQ(travel_of({.bytes = 4096, .is_answer = true, .has_own_place = true}), Travel::answers);
}

TEST(MessagePolicy, what_has_a_place_of_its_own_goes_there) {
  EXPECT_EQ(travel_of({.bytes = 1 << 20, .has_own_place = true}), Travel::copied);
}

TEST(MessagePolicy, every_reader_has_a_word_and_so_has_the_owner) {
  constexpr std::size_t ranks = 5;
  const ReaderWords words(4096, ranks);
  std::set<std::uint64_t> addresses{words.withdrawn()};
  for (std::size_t rank = 0; rank < ranks; ++rank) addresses.insert(words.of_reader(rank));
  EXPECT_EQ(addresses.size(), ranks + 1);
  EXPECT_EQ(*addresses.begin(), 4096u);
  EXPECT_EQ(*addresses.rbegin() + sizeof(SequenceWord), 4096 + ReaderWords::bytes_for(ranks));
}

}  // namespace
}  // namespace tutti::shm
