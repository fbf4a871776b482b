// Promise: a race takes what is fastest, or the first of the list where it makes no difference, in
// spite of noise, from no more measurements than it needs.
#include "tune/race.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <tutti/status.hpp>
#include <vector>

#include "microbench/verify_figures.hpp"

namespace tutti::tune {
namespace {

using plan::Picoseconds;

const auto go_on = [] { return true; };

TEST(Race, errs_seldom_in_noise_and_takes_half_the_samples_of_a_fixed_count) {
  const bench::Verdict verdict = bench::verify_noise(1000);
  std::printf("%s", verdict.text.c_str());
  EXPECT_EQ(verdict.misses, "");
}

/// Times without noise.
RaceResult quiet(
    const std::vector<Picoseconds>& times, const RaceLimits& limits = {},
    const std::function<void(std::uint32_t)>& note = [](std::uint32_t) {}) {
  const auto count = static_cast<std::uint32_t>(times.size());
  return race(
      count, [&](std::uint32_t one) { return note(one), times[one]; },
      [&] { return note(count), Picoseconds{500}; }, go_on, limits);
}

TEST(Race, without_noise_ends_as_soon_as_signs_can_decide) {
  const RaceResult two = quiet({1000, 1000});
  EXPECT_EQ(two.winner, 0u);
  EXPECT_EQ(two.blocks, 24u);  // the least that a tie takes
  EXPECT_EQ(two.samples, 72u);
  EXPECT_EQ(quiet({1000, 1500}).blocks, 7u);  // 2^-7 < 0.01
  EXPECT_EQ(two.times, (std::vector<Picoseconds>{1000, 1000}));
  EXPECT_FALSE(two.is_noisy);
  EXPECT_EQ(quiet({1026, 1000}).winner, 1u);
  EXPECT_EQ(quiet({1011, 1000}).winner, 0u);
  EXPECT_EQ(quiet({1030, 1011, 1000}).winner, 1u);
  EXPECT_EQ(quiet({1500, 1400, 1300, 1000}).blocks, 9u);  // three comparisons
  EXPECT_EQ(quiet({1000, 1000}, {.blocks_max = 20}).blocks, 20u);
  EXPECT_EQ(quiet({1000}).blocks, 6u);
}

TEST(Race, losers_drop_out) {
  std::vector<int> runs(3);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    bench::NoisyTimes machine({10'200'000, 10'000'000, 15'000'000}, seed);
    const auto sample = [&](std::uint32_t one) { return ++runs[one], machine.sample(one); };
    race(3, sample, [&] { return machine.control(); }, go_on, {.seed = seed});
  }
  EXPECT_LT(runs[2], runs[0] * 2 / 3);
  EXPECT_LE(runs[0], runs[1]);
}

TEST(Race, blocks_are_shuffled_and_the_seed_repeats_them) {
  const auto order_of = [](std::uint64_t seed) {
    std::vector<std::uint32_t> order;
    quiet({1000, 1001, 1002}, {.seed = seed}, [&](std::uint32_t one) { order.push_back(one); });
    return order;
  };
  EXPECT_EQ(order_of(5), order_of(5));
  EXPECT_NE(order_of(5), order_of(6));
  std::set<std::vector<std::uint32_t>> orders;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const auto order = order_of(seed);
    std::vector<std::uint32_t> block(order.begin(), order.begin() + 4);
    orders.insert(block);
    std::sort(block.begin(), block.end());
    EXPECT_EQ(block, (std::vector<std::uint32_t>{0, 1, 2, 3}));  // with the control
  }
  EXPECT_EQ(orders.size(), 24u);
}

TEST(Race, a_control_that_moves_as_much_as_candidates_differ_is_said) {
  const auto noisy = [](Picoseconds slower, Picoseconds control_later) {
    const int half = slower == 0 ? 12 : 4;  // a tie takes longer
    int blocks = 0;
    const auto control = [&] { return ++blocks > half ? control_later : 500; };
    const auto sample = [&](std::uint32_t one) { return one == 0 ? 1000 + slower : 1000; };
    return race(2, sample, control, go_on, {}).is_noisy;
  };
  EXPECT_FALSE(noisy(200, 500));
  EXPECT_FALSE(noisy(200, 550));
  EXPECT_TRUE(noisy(200, 650));
  EXPECT_TRUE(noisy(200, 350));
  EXPECT_FALSE(noisy(0, 510));  // less than what must not win
  EXPECT_TRUE(noisy(0, 520));
}

TEST(Race, what_slows_down_all_alike_is_no_noise) {
  const auto noisy = [](Picoseconds slower, bool slows_control, bool slows_candidates) {
    int blocks = 0;
    const auto begin = [&] { return ++blocks, true; };
    const auto control = [&] { return blocks > 4 && slows_control ? 700 : 500; };
    const auto sample = [&](std::uint32_t one) {
      return (one == 0 ? 1000 + slower : 1000) * (blocks > 4 && slows_candidates ? 7 : 5);
    };
    return race(2, sample, control, begin, {}).is_noisy;
  };
  EXPECT_FALSE(noisy(30, true, true));
  EXPECT_FALSE(noisy(30, false, true));
  EXPECT_TRUE(noisy(30, true, false));
  EXPECT_FALSE(noisy(13, false, false));
}

TEST(Race, ends_when_time_is_up) {
  int left = 0;
  const auto race_of = [&](int blocks) {
    left = blocks;
    return race(
        2, [](std::uint32_t one) { return one == 0 ? 1300 : 1000; },
        [] { return Picoseconds{500}; }, [&] { return left-- > 0; }, {});
  };
  const RaceResult none = race_of(0);
  EXPECT_EQ(none.winner, 0u);
  EXPECT_EQ(none.samples, 0u);
  EXPECT_EQ(none.times, (std::vector<Picoseconds>{0, 0}));
  EXPECT_TRUE(none.is_noisy);
  const RaceResult few = race_of(3);
  EXPECT_EQ(few.blocks, 3u);
  EXPECT_EQ(few.winner, 1u);
  EXPECT_TRUE(few.is_noisy);
  EXPECT_FALSE(race_of(100).is_noisy);
}

TEST(Race, bad_input_is_refused_with_its_value) {
  const auto refused = [](const std::function<RaceResult()>& what, const std::string& words) {
    try {
      what();
      ADD_FAILURE() << "accepted: " << words;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  refused([] { return quiet({}); }, "0 candidates");
  refused([] { return quiet({1000}, {.blocks_min = 0, .blocks_max = 0}); }, "blocks_max is 0");
  refused([] { return quiet({1000}, {.blocks_min = 9, .blocks_max = 8}); },
          "blocks_min is 9, above blocks_max, 8");
  refused([] { return quiet({1000, 0}); }, "a sample of candidate 1 is 0 ps");
  refused([] { return quiet({-7, 1000}); }, "a sample of candidate 0 is -7 ps");
  refused(
      [] {
        return race(
            1, [](std::uint32_t) { return Picoseconds{1}; }, [] { return Picoseconds{0}; }, go_on,
            {});
      },
      "a sample of the control is 0 ps");
}

TEST(Race, chance_is_that_of_all_signs) {
  std::mt19937_64 numbers(1);
  for (const std::size_t count : {1u, 2u, 5u, 9u, 12u}) {
    std::vector<double> sizes(count);
    // Powers of two have exact inverses; so some sizes are alike.
    for (double& size : sizes) size = std::ldexp(1.0, static_cast<int>(numbers() % 6) + 1);
    std::sort(sizes.begin(), sizes.end());
    const auto rank_of = [&](double size) {  // doubled
      const auto [first, end] = std::equal_range(sizes.begin(), sizes.end(), size);
      return (first - sizes.begin()) + (end - sizes.begin()) + 1;
    };
    const auto below = [&](unsigned signs) {
      std::ptrdiff_t sum = 0;
      for (std::size_t i = 0; i < count; ++i) sum += (signs >> i & 1) * rank_of(sizes[i]);
      return sum;
    };
    for (unsigned signs = 0; signs < 1u << count; signs += 1 + signs / 3) {
      unsigned as_good = 0;
      for (unsigned others = 0; others < 1u << count; ++others)
        as_good += below(others) <= below(signs);
      std::vector<double> ratios;
      for (std::size_t i = 0; i < count; ++i)
        ratios.push_back(signs >> i & 1 ? 1 / sizes[i] : sizes[i]);
      ratios.push_back(1);  // says nothing
      std::shuffle(ratios.begin(), ratios.end(), numbers);
      EXPECT_DOUBLE_EQ(above_one_by_chance(ratios),
                       as_good / std::ldexp(1.0, static_cast<int>(count)));
    }
  }
  EXPECT_EQ(above_one_by_chance({}), 1);
}

TEST(Race, the_estimate_is_the_median_of_means_of_pairs) {
  EXPECT_DOUBLE_EQ(hodges_lehmann(std::vector{3.0}), 3);
  EXPECT_DOUBLE_EQ(hodges_lehmann(std::vector{1.0, 4.0}), 2);                 // of 1, 2, 4
  EXPECT_DOUBLE_EQ(hodges_lehmann(std::vector{1.0, 1.0, 1.0, 1.0, 1e9}), 1);  // an outlier
  EXPECT_DOUBLE_EQ(hodges_lehmann(std::vector{1.0, 4.0, 16.0}), 4);  // of 1, 2, 4, 4, 8, 16
}

}  // namespace
}  // namespace tutti::tune
