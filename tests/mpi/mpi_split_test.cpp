// Promise: communicators split from one over an MPI exchange have the ranks they should in the
// order they should, work beside each other and beside the whole, and can be split again.  Run by
// mpirun with any number of ranks.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <tutti/tutti.hpp>
#include <utility>
#include <vector>

#include "bootstrap/mpi_exchange.hpp"

namespace {

using namespace std::chrono_literals;
using tutti::Communicator, tutti::Operation, tutti::Status;
using tutti::index_of;

bool call(Operation& operation) {
  return operation.start() == Status::ok && operation.wait(30s) == Status::ok;
}

/// What each rank of `part` says, by an allgather there.
std::vector<std::uint32_t> gathered(Communicator& part, std::uint32_t own) {
  std::vector<std::uint32_t> all(part.rank_count(), UINT32_MAX);
  Operation operation = tutti::allgather<std::uint32_t>(
      part, std::span<const std::uint32_t>(&own, 1), std::span(all));
  return call(operation) ? all : std::vector<std::uint32_t>();
}

std::uint64_t sum_of(Communicator& part, std::uint64_t own) {
  std::uint64_t sum = 0;
  Operation operation = tutti::allreduce<std::uint64_t>(
      part, std::span<const std::uint64_t>(&own, 1), std::span(&sum, 1), tutti::sum);
  return call(operation) ? sum : UINT64_MAX;
}

/// Every second rank of the whole from `first` on, the highest first.
std::vector<std::uint32_t> reversed(std::uint32_t first, std::uint32_t count) {
  std::vector<std::uint32_t> ranks;
  for (std::uint32_t rank = first; rank < count; rank += 2) ranks.insert(ranks.begin(), rank);
  return ranks;
}

class MpiSplit : public ::testing::TestWithParam<std::vector<std::uint32_t>> {
 protected:
  // Node shapes: as it is, or every rank a node of its own.
  static tutti::ContextOptions options() {
    tutti::ContextOptions options;
    options.device = "soft0";
    if (!GetParam().empty()) options.ranks_per_node = GetParam();
    return options;
  }
};

// Protects: colors make parts, keys order them, and parts and whole do not mix.
TEST_P(MpiSplit, parts_have_their_ranks_and_work_beside_the_whole) {
  const auto exchange = tutti::mpi_exchange(MPI_COMM_WORLD);
  tutti::Context context(options());
  Communicator whole(context, *exchange);
  const std::uint32_t self = index_of(whole.rank()), count = whole.rank_count();
  std::optional<Communicator> part = whole.split(self % 2, -static_cast<std::int64_t>(self));
  ASSERT_TRUE(part);
  const std::vector<std::uint32_t> expected = reversed(self % 2, count);
  EXPECT_EQ(part->rank_count(), expected.size());
  EXPECT_EQ(gathered(*part, self), expected);
  std::uint64_t numbers = 0;
  for (const std::uint32_t rank : expected) numbers += rank + 1;
  EXPECT_EQ(sum_of(*part, self + 1), numbers);
  EXPECT_EQ(sum_of(whole, self + 1), std::uint64_t{count} * (count + 1) / 2);
  // Again, into parts of one rank.
  std::optional<Communicator> alone = part->split(index_of(part->rank()));
  ASSERT_TRUE(alone);
  EXPECT_EQ(gathered(*alone, self), std::vector<std::uint32_t>{self});
  EXPECT_EQ(gathered(*part, self), expected);
}

// Protects: a rank without a color takes part in the splitting and is in no part.
TEST_P(MpiSplit, a_rank_without_a_color_is_in_no_part) {
  const auto exchange = tutti::mpi_exchange(MPI_COMM_WORLD);
  tutti::Context context(options());
  Communicator whole(context, *exchange);
  const std::uint32_t self = index_of(whole.rank()), count = whole.rank_count();
  const bool is_last = self + 1 == count;
  std::optional<Communicator> part =
      whole.split(is_last ? std::nullopt : std::optional<std::uint32_t>(7));
  EXPECT_EQ(part.has_value(), !is_last);
  if (part) {
    EXPECT_EQ(sum_of(*part, 1), count - 1);
  }
  EXPECT_EQ(sum_of(whole, 1), count);
}

// Protects: when ranks call different functions, the error names these on all ranks, and MPI's
// exchange stays in step.
TEST_P(MpiSplit, ranks_that_call_something_else_are_named_on_all) {
  const auto exchange = tutti::mpi_exchange(MPI_COMM_WORLD);
  if (exchange->rank_count() == 1) GTEST_SKIP() << "needs a rank that differs";
  tutti::Context context(options());
  Communicator whole(context, *exchange);
  try {
    if (index_of(whole.rank()) == 1)
      (void)whole.split(0u);
    else
      whole.synchronize();
    ADD_FAILURE() << "different calls were accepted";
  } catch (const tutti::Error& error) {
    EXPECT_EQ(error.code(), tutti::ErrorCode::mismatch);
    const std::string text = error.what();
    EXPECT_NE(text.find("synchronize, rank 1 calls split"), std::string::npos) << text;
  }
  EXPECT_EQ(sum_of(whole, 1), whole.rank_count());
}

// Protects: the same where one of the calls is an operation, whose set-up compares what another
// call's would gather.
TEST_P(MpiSplit, an_operation_beside_another_call_is_named_on_all) {
  const auto exchange = tutti::mpi_exchange(MPI_COMM_WORLD);
  if (exchange->rank_count() == 1) GTEST_SKIP() << "needs a rank that differs";
  tutti::Context context(options());
  Communicator whole(context, *exchange);
  const std::uint32_t self = index_of(whole.rank());
  std::uint64_t mine = 1, sum = 0;
  const auto operate = [&] {
    (void)tutti::allreduce<std::uint64_t>(whole, std::span<const std::uint64_t>(&mine, 1),
                                          std::span(&sum, 1), tutti::sum);
  };
  const std::vector<std::pair<std::string, std::function<void()>>> others{
      {"split", [&] { (void)whole.split(0u); }},
      {"synchronize", [&] { whole.synchronize(); }},
      {"allocate", [&] { (void)whole.allocate(64); }}};
  for (const auto& [name, other] : others) {
    for (const std::uint32_t operates : {0u, 1u}) {
      try {
        if (self == operates)
          operate();
        else
          other();
        ADD_FAILURE() << "different calls were accepted: " << name;
      } catch (const tutti::Error& error) {
        EXPECT_EQ(error.code(), tutti::ErrorCode::mismatch);
        const std::string text = error.what();
        EXPECT_NE(text.find("ranks make different calls"), std::string::npos) << text;
        EXPECT_NE(text.find(name), std::string::npos) << text;
        EXPECT_NE(text.find("rank " + std::to_string(operates)), std::string::npos) << text;
        EXPECT_NE(text.find("allreduce"), std::string::npos) << text;
      }
    }
  }
  EXPECT_EQ(sum_of(whole, 1), whole.rank_count());
}

INSTANTIATE_TEST_SUITE_P(Nodes, MpiSplit,
                         ::testing::Values(std::vector<std::uint32_t>{},
                                           std::vector<std::uint32_t>{1},
                                           std::vector<std::uint32_t>{2}));

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
