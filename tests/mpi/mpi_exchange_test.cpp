// The exchange over MPI, run by mpirun with any number of ranks.
#include "bootstrap/mpi_exchange.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/exchanges.hpp"
#include "tutti/status.hpp"

namespace {

using namespace std::chrono_literals;
using tutti::index_of;
using tutti::Rank;

// Protects: contributions arrive whole and in rank order, whatever their size.
TEST(MpiExchange, allgather_returns_contributions_in_rank_order) {
  const auto exchange = tutti::mpi_exchange(MPI_COMM_WORLD);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, (std::size_t{1} << 20) + 1}) {
    const std::vector<std::byte> mine(bytes, std::byte(index_of(exchange->self()) + 1));
    std::vector<std::byte> all(bytes * exchange->rank_count());
    exchange->allgather(mine, all, 30s);
    for (std::uint32_t rank = 0; rank < exchange->rank_count(); ++rank) {
      const std::vector<std::byte> expected(bytes, std::byte(rank + 1));
      EXPECT_EQ(bytes == 0 ? 0 : std::memcmp(all.data() + rank * bytes, expected.data(), bytes), 0);
    }
  }
}

TEST(MpiExchange, records_reach_partners_and_nobody_else) {
  const auto exchange = tutti::mpi_exchange(MPI_COMM_WORLD);
  for (const std::size_t bytes : {1u, 24u, 1000u, 200'000u})
    tutti::test::swap_records(*exchange, bytes);
}

TEST(MpiExchange, what_is_equal_on_all_ranks_is_only_said_to_be) {
  const auto exchange = tutti::mpi_exchange(MPI_COMM_WORLD);
  if (exchange->rank_count() < 2) GTEST_SKIP() << "one rank always is";
  tutti::test::compare_bytes(*exchange, true);
}

TEST(MpiExchange, records_of_different_sizes_are_a_mismatch_on_every_rank) {
  const auto exchange = tutti::mpi_exchange(MPI_COMM_WORLD);
  if (exchange->rank_count() < 2) GTEST_SKIP() << "one rank has one size";
  const std::size_t bytes = exchange->self() == Rank{0} ? 8 : 9;
  EXPECT_THROW(exchange->swap({}, bytes, {}, {}, 30s), tutti::Error);
  exchange->barrier(30s);  // still in step
}

// Protects: the ranks are those of the caller's communicator, and exchanges on two communicators do
// not mix.
TEST(MpiExchange, ranks_are_those_of_the_communicator) {
  int rank = 0;
  int rank_count = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &rank_count);
  MPI_Comm reversed = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
  {
    const auto world = tutti::mpi_exchange(MPI_COMM_WORLD);
    const auto exchange = tutti::mpi_exchange(reversed);
    EXPECT_EQ(index_of(world->self()), static_cast<std::uint32_t>(rank));
    EXPECT_EQ(index_of(exchange->self()), static_cast<std::uint32_t>(rank_count - 1 - rank));
    EXPECT_EQ(exchange->rank_count(), static_cast<std::uint32_t>(rank_count));
    exchange->barrier(30s);
    world->barrier(30s);
  }
  MPI_Comm_free(&reversed);
}

// Protects: no rank leaves a barrier before all have entered, and a late rank is waited for.
TEST(MpiExchange, barrier_waits_for_the_last_rank) {
  const auto exchange = tutti::mpi_exchange(MPI_COMM_WORLD);
  exchange->barrier(30s);
  const auto start = std::chrono::steady_clock::now();
  if (exchange->self() == Rank{0}) std::this_thread::sleep_for(300ms);
  exchange->barrier(30s);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 200ms);
}

// Protects: every wait has a deadline, and says honestly what it does not know.  The late rank then
// completes the pending barrier, so that MPI can be finalised.
TEST(MpiExchange, barrier_times_out_when_a_rank_is_missing) {
  const auto exchange = tutti::mpi_exchange(MPI_COMM_WORLD);
  if (exchange->rank_count() == 1) GTEST_SKIP() << "needs a rank to miss";
  if (exchange->self() == Rank{0}) {
    std::this_thread::sleep_for(600ms);
    exchange->barrier(30s);
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  try {
    exchange->barrier(100ms);
    ADD_FAILURE() << "the barrier completed without rank 0";
  } catch (const tutti::Error& error) {
    EXPECT_EQ(error.code(), tutti::ErrorCode::timed_out);
    EXPECT_NE(std::string(error.what()).find("not every rank came within 100 ms"),
              std::string::npos)
        << error.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 500ms);
  EXPECT_THROW(exchange->barrier(1s), tutti::Error);  // out of step from now on
}

// Protects: the same for an allgather; and an exchange that has timed out can be destroyed at once,
// whatever MPI still holds of it.
TEST(MpiExchange, an_allgather_that_timed_out_can_be_destroyed) {
  auto exchange = tutti::mpi_exchange(MPI_COMM_WORLD);
  if (exchange->rank_count() == 1) GTEST_SKIP() << "needs a rank to miss";
  const std::span<std::byte> nothing;
  if (exchange->self() == Rank{0}) {
    std::this_thread::sleep_for(600ms);
    exchange->allgather(nothing, nothing, 30s);
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  try {
    exchange->allgather(nothing, nothing, 100ms);
    ADD_FAILURE() << "the allgather completed without rank 0";
  } catch (const tutti::Error& error) {
    EXPECT_EQ(error.code(), tutti::ErrorCode::timed_out);
    EXPECT_EQ(std::string(error.what()).rfind("allgather: not every rank came within 100 ms", 0),
              0u)
        << error.what();
  }
  exchange.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 500ms);
}

// Protects: the end of an exchange does not wait for other ranks.
TEST(MpiExchange, destruction_does_not_wait) {
  auto exchange = tutti::mpi_exchange(MPI_COMM_WORLD);
  exchange->barrier(30s);
  if (exchange->self() == Rank{0}) std::this_thread::sleep_for(500ms);
  const auto start = std::chrono::steady_clock::now();
  exchange.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 300ms);
  MPI_Barrier(MPI_COMM_WORLD);
}

// Protects: making the exchange has a deadline too, and its error says what did not happen.
TEST(MpiExchange, making_it_times_out_when_a_rank_is_missing) {
  int rank = 0;
  int rank_count = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &rank_count);
  if (rank_count == 1) GTEST_SKIP() << "needs a rank to miss";
  if (rank == 0) {
    std::this_thread::sleep_for(600ms);
    // Completes what the others have begun, so that MPI can be finalised.
    MPI_Comm duplicate = MPI_COMM_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Comm_idup(MPI_COMM_WORLD, &duplicate, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  } else {
    const auto start = std::chrono::steady_clock::now();
    try {
      (void)tutti::mpi_exchange(MPI_COMM_WORLD, 200ms);
      ADD_FAILURE() << "it was made without rank 0";
    } catch (const tutti::Error& error) {
      EXPECT_EQ(error.code(), tutti::ErrorCode::timed_out);
      EXPECT_EQ(std::string(error.what()),
                "mpi_exchange (duplicating the communicator): not every rank came within 200 ms; "
                "MPI does not say which are missing");
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, 500ms);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

// Protects: sizes that differ are an error on every rank, not undefined behaviour of MPI.
TEST(MpiExchange, different_sizes_are_a_mismatch_on_every_rank) {
  const auto exchange = tutti::mpi_exchange(MPI_COMM_WORLD);
  if (exchange->rank_count() == 1) GTEST_SKIP() << "needs a rank to disagree with";
  const std::vector<std::byte> mine(exchange->self() == Rank{0} ? 8 : 16);
  std::vector<std::byte> all(mine.size() * exchange->rank_count());
  try {
    exchange->allgather(mine, all, 30s);
    ADD_FAILURE() << "different sizes were accepted";
  } catch (const tutti::Error& error) {
    EXPECT_EQ(error.code(), tutti::ErrorCode::mismatch);
  }
  exchange->barrier(30s);  // still in step
}

/// What this rank, which alone makes another call, and the others hear of it.
void expect_mismatch(const std::function<void()>& call, const std::string& words) {
  try {
    call();
    ADD_FAILURE() << "different calls were accepted";
  } catch (const tutti::Error& error) {
    EXPECT_EQ(error.code(), tutti::ErrorCode::mismatch) << error.what();
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

// Protects: a rank that gathers and ranks that compare are in one exchange, in which nothing is
// said to be equal.
TEST(MpiExchange, who_gathers_and_who_compares_meet) {
  const auto exchange = tutti::mpi_exchange(MPI_COMM_WORLD);
  const std::uint32_t self = index_of(exchange->self()), ranks = exchange->rank_count();
  if (ranks == 1) GTEST_SKIP() << "needs a rank that differs";
  for (const std::uint32_t gathers : {0u, 1u}) {
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{512}, (std::size_t{1} << 20) + 1}) {
      for (const bool are_equal : {true, false}) {
        const auto of = [&](std::uint32_t rank) { return std::byte(are_equal ? 9 : rank + 1); };
        const std::vector<std::byte> mine(bytes, of(self));
        std::vector<std::byte> all(bytes * ranks), expected(bytes * ranks);
        for (std::size_t i = 0; i < expected.size(); ++i)
          expected[i] = of(static_cast<std::uint32_t>(i / bytes));
        if (self == gathers)
          exchange->allgather(mine, all, 30s);
        else
          EXPECT_FALSE(exchange->allgather_unless_equal(mine, all, 30s));
        EXPECT_TRUE(all == expected) << gathers << ' ' << bytes << ' ' << are_equal;
      }
    }
  }
}

// Protects: ranks that make calls which do not fit each other hear so, all of them, and MPI is in
// step; their collectives would be undefined in MPI.
TEST(MpiExchange, different_calls_are_a_mismatch_on_every_rank) {
  const auto exchange = tutti::mpi_exchange(MPI_COMM_WORLD);
  const std::uint32_t self = index_of(exchange->self()), ranks = exchange->rank_count();
  if (ranks == 1) GTEST_SKIP() << "needs a rank that differs";
  const std::vector<std::byte> mine(8, std::byte{3});
  std::vector<std::byte> all(mine.size() * ranks);
  const std::vector<Rank> partners{Rank{self == 0 ? 1u : 0u}};
  std::vector<std::byte> theirs(mine.size());
  const auto gathers = [&] { exchange->allgather(mine, all, 30s); };
  const auto compares = [&] { (void)exchange->allgather_unless_equal(mine, all, 30s); };
  const auto swaps = [&] { exchange->swap(partners, mine.size(), mine, theirs, 30s); };
  const auto meets = [&] { exchange->barrier(30s); };
  for (const std::uint32_t other : {0u, 1u}) {
    const std::string first = other == 0 ? "rank 0 contributes records of 8 bytes, rank 1 8 bytes"
                                         : "rank 0 contributes 8 bytes, rank 1 records of 8 bytes";
    expect_mismatch(self == other ? std::function<void()>(swaps) : gathers, first);
    expect_mismatch(self == other ? std::function<void()>(swaps) : compares, first);
    expect_mismatch(self == other ? std::function<void()>(swaps) : meets, "records of 8 bytes");
    expect_mismatch(self == other ? std::function<void()>(meets) : gathers, "0 bytes");
    expect_mismatch(self == other ? std::function<void()>(meets) : compares, "0 bytes");
  }
  exchange->barrier(30s);  // still in step
}

// Protects: living processes have not left, and nothing has happened.
TEST(MpiExchange, nobody_has_left_while_all_run) {
  const auto exchange = tutti::mpi_exchange(MPI_COMM_WORLD);
  for (std::uint32_t rank = 0; rank < exchange->rank_count(); ++rank) {
    EXPECT_FALSE(exchange->has_left(Rank{rank}));
  }
  EXPECT_EQ(exchange->incident().kind, tutti::Incident::Kind::none);
  exchange->barrier(30s);
}

// Protects: a misuse has a clear error.
TEST(MpiExchange, no_communicator_is_an_invalid_argument) {
  try {
    (void)tutti::mpi_exchange(MPI_COMM_NULL);
    ADD_FAILURE() << "MPI_COMM_NULL was accepted";
  } catch (const tutti::Error& error) {
    EXPECT_EQ(error.code(), tutti::ErrorCode::invalid_argument);
  }
}

}  // namespace

int main(int argument_count, char** arguments) {
  MPI_Init(&argument_count, &arguments);
  ::testing::InitGoogleTest(&argument_count, arguments);
  int failed = RUN_ALL_TESTS();
  // Every rank fails if one does; or a late rank would wait in MPI_Finalize for the others.
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return failed;
}
