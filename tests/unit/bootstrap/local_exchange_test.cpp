// The exchange over a board, with threads as ranks.
#include "bootstrap/local_exchange.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>

#include "support/exchanges.hpp"
#include "tcp_ranks.hpp"
#include "tutti/bootstrap.hpp"

namespace tutti::bootstrap {
namespace {

using namespace std::chrono_literals;

template <class Action>
Ending ending_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return {true, error.code(), error.what(), {}};
  }
  return {};
}

void run_well(std::uint32_t rank_count, const std::function<void(Exchange&)>& body) {
  const auto results = run_local_threads({.rank_count = rank_count}, [&](Exchange& exchange) {
    body(exchange);
    return 0;
  });
  for (const LocalResult& result : results) EXPECT_EQ(result.exit_status, 0);
}

// Protects: contributions arrive whole and in rank order: none, one byte, and many chunks.
TEST(LocalExchange, allgather_returns_contributions_in_rank_order) {
  run_well(4, [](Exchange& exchange) {
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{1}, Board::chunk_bytes_max, (std::size_t{1} << 20) + 3})
      test::gather_bytes(exchange, bytes);
  });
}

TEST(LocalExchange, records_reach_partners_and_nobody_else) {
  run_well(5, [](Exchange& exchange) {
    for (const std::size_t bytes : {1u, 24u, 1000u, 60'000u}) test::swap_records(exchange, bytes);
  });
}

TEST(LocalExchange, equal_bytes_are_compared) {
  run_well(4, [](Exchange& exchange) { test::compare_bytes(exchange, false); });
}

TEST(Exchange, swaps_records_by_allgathers_if_it_knows_no_better) {
  run_well(5, [](Exchange& exchange) {
    test::MuteExchange plain(exchange);  // it only has allgather and barrier
    for (const std::size_t bytes : {1u, 24u, 1000u}) test::swap_records(plain, bytes);
    test::compare_bytes(plain, false);
  });
}

TEST(LocalExchange, records_of_different_sizes_are_a_mismatch_on_every_rank) {
  const auto results = run_local_threads({.rank_count = 3}, [](Exchange& exchange) {
    const std::size_t bytes = exchange.self() == Rank{2} ? 9 : 8;
    const std::vector<Rank> partners{Rank{(index_of(exchange.self()) + 1) % 3}};
    std::vector<std::byte> mine(bytes), theirs(bytes);
    const Ending ending = ending_of([&] { exchange.swap(partners, bytes, mine, theirs, 20s); });
    return ending.code == ErrorCode::mismatch && ending.says("records of ") ? 0 : 1;
  });
  for (const LocalResult& result : results) EXPECT_EQ(result.exit_status, 0);
}

// Protects: what a rank gathers is not taken for the number of another's records, or the other way
// round, even where both are as long.
TEST(LocalExchange, who_swaps_and_who_gathers_hear_of_each_other) {
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{24}, std::size_t{100'000}}) {
    const auto results = run_local_threads({.rank_count = 3}, [&](Exchange& exchange) {
      const std::vector<Rank> partners{Rank{(index_of(exchange.self()) + 1) % 3}};
      std::vector<std::byte> mine(bytes, std::byte{0x77}), all(3 * bytes), record(8), theirs(8);
      const Ending ending = ending_of([&] {
        if (exchange.self() == Rank{2})
          exchange.allgather(mine, all, 20s);
        else
          exchange.swap(partners, 8, record, theirs, 20s);
      });
      const bool is_told = ending.code == ErrorCode::mismatch &&
                           ending.says("records of 8 bytes") &&
                           ending.says(std::to_string(bytes) + " bytes");
      if (!is_told) std::fprintf(stderr, "%s\n", ending.text.c_str());
      return is_told ? 0 : 1;
    });
    for (const LocalResult& result : results) EXPECT_EQ(result.exit_status, 0) << bytes;
  }
}

TEST(LocalExchange, records_of_different_sizes_are_a_mismatch_even_without_partners) {
  const auto results = run_local_threads({.rank_count = 3}, [](Exchange& exchange) {
    const std::size_t bytes = exchange.self() == Rank{2} ? 9 : 8;
    const Ending ending = ending_of([&] { exchange.swap({}, bytes, {}, {}, 20s); });
    return ending.code == ErrorCode::mismatch && ending.says("records of ") ? 0 : 1;
  });
  for (const LocalResult& result : results) EXPECT_EQ(result.exit_status, 0);
}

// Protects: the same of exchanges that swap by allgathers, as far as these let them know.
TEST(Exchange, ranks_that_swap_know_who_does_not) {
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{24}}) {
    const auto results = run_local_threads({.rank_count = 3}, [&](Exchange& exchange) {
      test::MuteExchange plain(exchange);  // it only has allgather and barrier
      const bool gathers = exchange.self() == Rank{2};
      const std::vector<Rank> partners{Rank{(index_of(exchange.self()) + 1) % 3}};
      std::vector<std::byte> mine(bytes, std::byte{0x77}), all(3 * bytes), record(8), theirs(8);
      const Ending ending = ending_of([&] {
        if (gathers)
          plain.allgather(mine, all, 20s);
        else
          plain.swap(partners, 8, record, theirs, 20s);
      });
      const bool is_told = ending.code == ErrorCode::mismatch &&
                           (bytes == 8 || ending.says("rank 2 gathers instead"));
      if (!is_told) std::fprintf(stderr, "%s\n", ending.text.c_str());
      // The bytes of a swap's beginning are a contribution like another to who gathers as many.
      return is_told || (gathers && bytes == 24 && !ending.failed) ? 0 : 1;
    });
    for (const LocalResult& result : results) EXPECT_EQ(result.exit_status, 0) << bytes;
  }
  run_well(3, [](Exchange& exchange) {
    test::MuteExchange plain(exchange);  // it only has allgather and barrier
    const std::size_t bytes = exchange.self() == Rank{2} ? 9 : 8;
    const Ending ending = ending_of([&] { plain.swap({}, bytes, {}, {}, 20s); });
    EXPECT_EQ(ending.code, ErrorCode::mismatch);
    EXPECT_TRUE(ending.says("records of 9 bytes")) << ending.text;
  });
}

// Protects: no rank leaves a barrier before all have entered, over many in a row.
TEST(LocalExchange, barrier_waits_for_the_last_rank) {
  std::atomic<int> entered{0};
  run_well(5, [&](Exchange& exchange) {
    for (int round = 1; round <= 200; ++round) {
      ++entered;
      exchange.barrier(20s);
      EXPECT_GE(entered.load(), 5 * round);
    }
  });
}

// Protects: a timeout names exactly the ranks that did not enter.
TEST(LocalExchange, barrier_timeout_names_the_missing_ranks) {
  std::atomic<int> timed_out{0};
  run_well(4, [&](Exchange& exchange) {
    if (index_of(exchange.self()) < 2) {
      const Ending ending = ending_of([&] { exchange.barrier(3s); });
      EXPECT_EQ(ending.code, ErrorCode::timed_out);
      EXPECT_EQ(ending.text, "barrier: ranks 2 and 3 did not come within 3 s");
      EXPECT_TRUE(ending_of([&] { exchange.barrier(100ms); }).says("out of step"));
      ++timed_out;
    }
    EXPECT_TRUE(within(20s, [&] { return timed_out == 2; }));
  });
}

// Protects: a clean end is not a death, and waiting for one who has left ends at once.
TEST(LocalExchange, leaving_is_not_an_incident) {
  run_well(3, [](Exchange& exchange) {
    exchange.barrier(5s);
    if (exchange.self() == Rank{1}) return;
    EXPECT_TRUE(within(10s, [&] { return exchange.has_left(Rank{1}); }));
    EXPECT_EQ(exchange.incident().kind, Incident::Kind::none);
    const Ending ending = ending_of([&] { exchange.barrier(10s); });
    EXPECT_EQ(ending.code, ErrorCode::peer_failed);
    EXPECT_TRUE(ending.says("left without taking part")) << ending.text;
  });
}

// Protects: an exception ends the rank with status 1 and is an incident, also for those who wait.
TEST(LocalExchange, an_exception_is_a_death) {
  const auto results = run_local_threads({.rank_count = 3}, [](Exchange& exchange) -> int {
    if (exchange.self() == Rank{2}) throw std::runtime_error("expected by this test");
    const Ending ending = ending_of([&] { exchange.barrier(10s); });
    EXPECT_EQ(ending.code, ErrorCode::peer_failed);
    EXPECT_TRUE(ending.says("rank 2 has died")) << ending.text;
    EXPECT_EQ(exchange.incident().rank, Rank{2});
    EXPECT_FALSE(exchange.has_left(Rank{2}));
    return 5;
  });
  EXPECT_EQ(results[0].exit_status, 5);
  EXPECT_EQ(results[2].exit_status, 1);
}

// Protects: everybody hears of the same first incident, also if all announce at once.
TEST(LocalExchange, all_hear_of_the_same_incident) {
  std::atomic<std::uint32_t> heard[4] = {};
  run_well(4, [&](Exchange& exchange) {
    exchange.barrier(5s);
    exchange.announce({.kind = Incident::Kind::aborted, .rank = exchange.self()});
    EXPECT_EQ(exchange.incident().kind, Incident::Kind::aborted);
    heard[index_of(exchange.self())] = index_of(exchange.incident().rank);
  });
  for (const auto& rank : heard) EXPECT_EQ(rank.load(), heard[0].load());
}

// Protects: ranks that disagree about the size all learn it.
TEST(LocalExchange, different_sizes_are_a_mismatch_on_every_rank) {
  run_well(3, [](Exchange& exchange) {
    const std::vector<std::byte> mine(exchange.self() == Rank{1} ? 9 : 8);
    std::vector<std::byte> all(mine.size() * 3);
    const Ending ending = ending_of([&] { exchange.allgather(mine, all, 5s); });
    EXPECT_TRUE(ending.failed);
    EXPECT_EQ(ending.code, ErrorCode::mismatch) << ending.text;
  });
}

// Protects: misuse has a clear error.
TEST(LocalExchange, an_empty_run_is_an_invalid_argument) {
  const auto body = [](Exchange&) { return 0; };
  EXPECT_EQ(ending_of([&] { (void)run_local_threads({.rank_count = 0}, body); }).code,
            ErrorCode::invalid_argument);
  EXPECT_EQ(ending_of([&] { (void)run_local({.rank_count = 1}, nullptr); }).code,
            ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace tutti::bootstrap
