// Promise: all contestants are called equally often, alternating block by block, at least 10 blocks
// of 200 calls by default.
#include "microbench/measure.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <tutti/bootstrap.hpp>
#include <vector>

namespace tutti::bench {
namespace {

/// Writes its letter into a common trace whenever the ranks would synchronise.
class Recorder final : public Subject {
 public:
  Recorder(std::string& trace, char letter) : trace_(trace), letter_(letter) {}
  void run(std::size_t calls) override { calls_ += calls; }
  void synchronise() override { trace_ += letter_; }
  std::size_t calls() const { return calls_; }

 private:
  std::string& trace_;
  char letter_;
  std::size_t calls_ = 0;
};

TEST(Measure, blocks_of_all_contestants_alternate) {
  std::string trace;
  Recorder ours(trace, 't');
  Recorder theirs(trace, 'm');
  const CommonEffort common{.blocks = 3, .warmup = 7};
  const Effort effort{.batch = 20, .block_calls = 200, .single_calls = 5};
  std::vector<Contestant> contestants = {{.subject = &ours, .effort = effort},
                                         {.subject = &theirs, .effort = effort}};
  (void)run_local_threads({.rank_count = 1}, [&](Exchange& exchange) {
    measure(contestants, common, Timer(), exchange);
    return 0;
  });
  EXPECT_EQ(trace,
            "tm"
            "tmtmtm"
            "tmtmtm");  // warm-up, batches, single calls
  EXPECT_EQ(ours.calls(), theirs.calls());
  EXPECT_EQ(contestants[0].samples.batches.size(), 3u * 200 / 20);
  EXPECT_EQ(contestants[0].samples.block_medians.size(), 3u);
  EXPECT_EQ(contestants[0].samples.singles.size(), 3u * 5);
}

/// Whose root is done at once, and the other rank 2 ms after the root has begun.
class Rooted final : public Subject {
 public:
  Rooted(Exchange& exchange, std::atomic<std::size_t>& begun)
      : exchange_(exchange), begun_(begun) {}
  void run(std::size_t calls) override {
    done_ += calls;
    if (exchange_.self() == Rank{0}) {
      begun_ = done_;
      return;
    }
    while (begun_ < done_) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  void synchronise() override { exchange_.barrier(std::chrono::seconds(10)); }
  std::optional<Rank> root() const noexcept override { return Rank{0}; }

 private:
  Exchange& exchange_;
  std::atomic<std::size_t>& begun_;
  std::size_t done_ = 0;
};

TEST(Measure, rooted_calls_end_with_the_last_rank) {
  std::vector<std::vector<double>> samples(2);
  std::atomic<std::size_t> begun = 0;
  (void)run_local_threads({.rank_count = 2}, [&](Exchange& exchange) {
    Rooted subject(exchange, begun);
    std::vector<Contestant> contestants = {
        {.subject = &subject, .effort = {.batch = 5, .block_calls = 10, .single_calls = 1}}};
    measure(contestants, {.blocks = 2, .warmup = 0}, Timer(), exchange);
    samples[index_of(exchange.self())] = contestants[0].samples.batches;
    return 0;
  });
  ASSERT_EQ(samples[0].size(), 20u);  // one for each call
  ASSERT_EQ(samples[1].size(), 20u);
  for (std::size_t i = 0; i < 20; ++i)  // all ranks know the same, by timers calibrated apart
    EXPECT_NEAR(samples[0][i] / samples[1][i], 1, 0.01);
  for (const double sample : samples[0]) EXPECT_GE(sample, 1.9e6);
}

TEST(Measure, defaults_are_at_least_ten_blocks_of_two_hundred_calls) {
  for (const bool oversubscribed : {false, true}) {
    const CommonEffort common = common_effort_for({}, 0, oversubscribed);
    EXPECT_GE(common.blocks, blocks_min);
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{8}, std::size_t{16} << 10, std::size_t{8} << 20}) {
      const Effort effort = effort_for(bytes, {}, oversubscribed, common);
      EXPECT_GE(effort.block_calls, block_calls_min);
      EXPECT_EQ(effort.block_calls % effort.batch, 0u);
    }
  }
}

TEST(Measure, few_iterations_make_few_blocks_and_not_short_ones) {
  EXPECT_EQ(common_effort_for(1000, 0, false).blocks, 5u);
  const CommonEffort one = common_effort_for(3, 0, false);
  EXPECT_EQ(one.blocks, 1u);
  EXPECT_EQ(effort_for(8, 3, false, one).block_calls, 3u);
}

}  // namespace
}  // namespace tutti::bench
