// Promise: preparing a race takes no longer than a batch where calls are long, a candidate that is
// alone is noisy if the time was short, and memory that one rank lacks is an error of all ranks.
#include "microbench/tune_race.hpp"

#include <gtest/gtest.h>

#include <new>
#include <tutti/bootstrap.hpp>

#include "microbench/together.hpp"

namespace tutti::bench {
namespace {

std::vector<std::size_t> calibrated(double call_ns, double batch_ns) {
  std::vector<std::size_t> measured;
  const std::size_t calls = calls_of_batch(batch_ns, [&](std::size_t wanted) {
    measured.push_back(wanted);
    return call_ns;
  });
  measured.push_back(calls);
  return measured;
}

TEST(TuneRace, sixteen_calls_are_measured_only_if_they_fit_into_a_batch) {
  EXPECT_EQ(calibrated(1e3, 1e5), (std::vector<std::size_t>{2, 16, 100}));
  EXPECT_EQ(calibrated(1e4, 1e5), (std::vector<std::size_t>{2, 10}));
  EXPECT_EQ(calibrated(1e9, 1e5), (std::vector<std::size_t>{2, 1}));
}

tune::RaceResult alone(std::uint32_t samples_in_time, bool is_exact) {
  std::uint32_t asked = 0;
  return run_alone([] { return plan::Picoseconds{1000}; },
                   [&] { return ++asked < samples_in_time; }, is_exact);
}

TEST(TuneRace, one_that_is_alone_is_noisy_if_the_time_was_short) {
  EXPECT_TRUE(alone(1, false).is_noisy);
  EXPECT_TRUE(alone(blocks_alone - 1, false).is_noisy);
  EXPECT_FALSE(alone(blocks_alone, false).is_noisy);
  EXPECT_EQ(alone(100, false).blocks, blocks_alone);
  EXPECT_FALSE(alone(100, true).is_noisy);  // in virtual time one sample says all
  EXPECT_EQ(alone(100, true).blocks, 1u);
}

TEST(Together, memory_that_one_rank_lacks_is_an_error_of_all) {
  const std::vector<LocalResult> ranks = run_local({.rank_count = 2}, [](Exchange& exchange) {
    try {
      together(exchange, [&] {
        if (exchange.self() == Rank{1}) throw std::bad_alloc();
      });
    } catch (const Error& error) {
      const bool names_it =
          std::string(error.what()).find("rank 1: there is not enough memory") == 0;
      return names_it && error.code() == ErrorCode::limit_exceeded ? 0 : 1;
    }
    return 2;
  });
  for (const LocalResult& rank : ranks) {
    EXPECT_EQ(rank.signal, 0);
    EXPECT_EQ(rank.exit_status, 0);
  }
}

}  // namespace
}  // namespace tutti::bench
