// Promise: all ranks of a host read the same incident, whoever announced it first, also when ranks
// have died; and what a rank says of itself is seen by the others.
#include "shm/incident_board.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

namespace tutti::shm {
namespace {

constexpr Incident died_2{.kind = Incident::Kind::died, .rank = Rank{2}};

TEST(IncidentBoard, begins_with_nothing) {
  const OfferedBoard offered(77, 3);
  const IncidentBoard board(offered.mapping(), 3);
  EXPECT_EQ(board.incident().kind, Incident::Kind::none);
  for (std::uint32_t rank = 0; rank < 3; ++rank)
    EXPECT_EQ(board.state_of(Rank{rank}), IncidentBoard::State::absent);
}

TEST(IncidentBoard, keeps_the_first_incident) {
  const OfferedBoard offered(77, 3);
  IncidentBoard board(offered.mapping(), 3);
  board.announce(died_2);
  board.announce({.kind = Incident::Kind::aborted, .rank = Rank{1}});
  EXPECT_EQ(board.incident().kind, Incident::Kind::died);
  EXPECT_EQ(board.incident().rank, Rank{2});
}

TEST(IncidentBoard, keeps_an_incident_without_a_rank) {
  const OfferedBoard offered(77, 3);
  IncidentBoard board(offered.mapping(), 3);
  board.announce({.kind = Incident::Kind::aborted, .rank = no_rank});
  EXPECT_EQ(board.incident().kind, Incident::Kind::aborted);
  EXPECT_EQ(board.incident().rank, no_rank);
}

TEST(IncidentBoard, names_one_incident_to_all_who_announce_at_once) {
  for (int turn = 0; turn < 200; ++turn) {
    const OfferedBoard offered(77, 4);
    std::atomic<int> ready{0};
    std::vector<Rank> named(4);
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < 4; ++rank)
      threads.emplace_back([&, rank] {
        IncidentBoard board(offered.mapping(), 4);
        ++ready;
        while (ready < 4) std::this_thread::yield();
        board.announce({.kind = Incident::Kind::aborted, .rank = Rank{rank}});
        named[rank] = board.incident().rank;
      });
    for (std::thread& thread : threads) thread.join();
    for (const Rank one : named) EXPECT_EQ(one, named[0]);
  }
}

TEST(IncidentBoard, is_read_by_other_processes_and_outlives_its_owner) {
  const OfferedBoard offered(78, 3);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const OfferedBoard theirs(79, 3);
    IncidentBoard board(theirs.mapping(), 3);
    board.set_state(Rank{1}, IncidentBoard::State::present);
    board.announce(died_2);
    const MappingCard card = theirs.card();
    (void)!::write(ends[1], &card, sizeof card);
    for (;;) ::pause();
  }
  MappingCard card;
  ASSERT_EQ(::read(ends[0], &card, sizeof card), static_cast<ssize_t>(sizeof card));
  IncidentBoard board(map_offered(card), 3);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(board.incident().rank, Rank{2});
  EXPECT_EQ(board.state_of(Rank{1}), IncidentBoard::State::present);
  board.set_state(Rank{0}, IncidentBoard::State::left);
  EXPECT_EQ(board.state_of(Rank{0}), IncidentBoard::State::left);
  ::close(ends[0]);
  ::close(ends[1]);
}

// Others write this memory: nothing in it is taken for granted.
TEST(IncidentBoard, takes_a_kind_that_it_does_not_know_for_none) {
  const OfferedBoard offered(77, 3);
  const IncidentBoard board(offered.mapping(), 3);
  const std::uint64_t word = std::uint64_t{99} << 32 | 1;
  std::memcpy(offered.mapping()->data() + OfferedMapping::header_bytes, &word, sizeof word);
  EXPECT_EQ(board.incident().kind, Incident::Kind::none);
}

IncidentBoard::Text text(const char* words) {
  IncidentBoard::Text made{};
  std::strncpy(made.data(), words, made.size() - 1);
  return made;
}

TEST(IncidentBoard, tells_the_text_of_the_first_rank_that_has_set_one_as_that_rank_s_alone) {
  const OfferedBoard offered(77, 3);
  IncidentBoard board(offered.mapping(), 3);
  for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_STREQ(board.text_of(Rank{rank}).data(), "");
  EXPECT_TRUE(board.set_text(Rank{1}, text("the matrix is singular")));
  EXPECT_FALSE(board.set_text(Rank{2}, text("another reason")));
  EXPECT_FALSE(board.set_text(Rank{1}, text("another reason")));
  EXPECT_STREQ(board.text_of(Rank{1}).data(), "the matrix is singular");
  EXPECT_STREQ(board.text_of(Rank{0}).data(), "");
  EXPECT_STREQ(board.text_of(Rank{2}).data(), "");
}

TEST(IncidentBoard, ends_a_text_that_has_no_end) {
  const OfferedBoard offered(77, 3);
  IncidentBoard board(offered.mapping(), 3);
  IncidentBoard::Text endless;
  endless.fill('x');
  EXPECT_TRUE(board.set_text(Rank{0}, endless));
  EXPECT_EQ(std::strlen(board.text_of(Rank{0}).data()), endless.size() - 1);
}

// All that a reader sees is a whole text of the rank that it asks for, or none.
TEST(IncidentBoard, tells_no_text_before_it_is_whole) {
  for (int turn = 0; turn < 200; ++turn) {
    const OfferedBoard offered(77, 3);
    std::atomic<int> set{0}, ready{0};
    std::vector<std::thread> writers;
    for (std::uint32_t rank = 0; rank < 2; ++rank)
      writers.emplace_back([&, rank] {
        IncidentBoard board(offered.mapping(), 3);
        IncidentBoard::Text own{};
        std::fill_n(own.begin(), own.size() - 1, rank == 0 ? 'a' : 'b');
        ++ready;
        while (ready < 2) std::this_thread::yield();
        set += board.set_text(Rank{rank}, own) ? 1 : 0;
      });
    const IncidentBoard board(offered.mapping(), 3);
    for (bool is_last = false, is_seen = false; !is_seen; is_last = ready == 2 && set == 1) {
      for (std::uint32_t rank = 0; rank < 2; ++rank) {
        const IncidentBoard::Text seen = board.text_of(Rank{rank});
        if (seen[0] == '\0') continue;
        is_seen = true;
        for (std::size_t i = 0; i + 1 < seen.size(); ++i)
          ASSERT_EQ(seen[i], rank == 0 ? 'a' : 'b') << i;
      }
      ASSERT_TRUE(is_seen || !is_last);
    }
    for (std::thread& writer : writers) writer.join();
    EXPECT_EQ(set, 1);
  }
}

TEST(IncidentBoard, has_room_for_many_ranks) {
  constexpr std::uint32_t ranks = 1500;  // several pages
  const OfferedBoard offered(77, ranks);
  IncidentBoard board(offered.mapping(), ranks);
  board.set_state(Rank{ranks - 1}, IncidentBoard::State::present);
  EXPECT_EQ(board.state_of(Rank{ranks - 1}), IncidentBoard::State::present);
  EXPECT_EQ(board.state_of(Rank{ranks - 2}), IncidentBoard::State::absent);
}

}  // namespace
}  // namespace tutti::shm
