// Promise: the vector that prices choose has the least sum of prices of all vectors within the
// limits; and few rounds are priced, so that thousands of ranks choose in a fraction of a
// millisecond.
#include "tune/vectors.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "plan/allreduce/recursive_multiplying.hpp"

namespace tutti::tune {
namespace {

using plan::Picoseconds;

Picoseconds sum_of_prices(std::uint32_t rank_count, const plan::PerRound& vector,
                          const RoundPrice& price) {
  Picoseconds sum = 0;
  for (const plan::Round& round : plan::two_partial_rounds(rank_count, vector)) sum += price(round);
  return sum;
}

/// f(vector) for all executed rounds with entries up to `largest`, from the last one on.
template <class F>
void for_each_vector(std::uint32_t ranks, std::uint32_t largest, plan::PerRound& later, F&& f) {
  if (ranks == 1) return f(plan::PerRound(later.rbegin(), later.rend()));
  for (std::uint32_t entry = 1; entry <= std::min(largest, ranks - 1); ++entry) {
    later.push_back(entry);
    for_each_vector((ranks + entry) / (entry + 1), largest, later, f);
    later.pop_back();
  }
}

std::uint64_t messages_of(const plan::PerRound& vector) {
  return std::accumulate(vector.begin(), vector.end(), std::uint64_t{0});
}

TEST(CheapestVector, is_the_least_of_all_by_any_prices) {
  std::mt19937_64 random(7);
  for (std::uint32_t ranks = 1; ranks <= 40; ++ranks)
    for (const std::uint32_t partners_max : {8u, 14u, UINT32_MAX}) {
      std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, Picoseconds> prices;
      const RoundPrice price = [&](const plan::Round& round) {
        return prices
            .try_emplace({round.length, round.messages, round.short_messages},
                         1000 + static_cast<Picoseconds>(random() % 1000) + 200 * round.messages)
            .first->second;
      };
      const plan::PerRound vector = cheapest_vector(ranks, partners_max, price);
      // A search that has gone by another price before finds the same.
      VectorSearch search(ranks, partners_max);
      static_cast<void>(
          search.cheapest([](const plan::Round& round) { return Picoseconds{1} + round.length; }));
      EXPECT_EQ(search.cheapest(price), vector) << ranks;
      const std::uint32_t messages_max = messages_max_of(ranks, partners_max);
      // Within the limit, the cheapest of the largest entries with which a cheapest one keeps to
      // it.
      Picoseconds least = INT64_MAX;
      const auto largest = ranks == 1 ? 1u : *std::max_element(vector.begin(), vector.end());
      plan::PerRound later;
      for_each_vector(ranks, messages_max == UINT32_MAX ? messages_of_round_max : largest, later,
                      [&](const plan::PerRound& other) {
                        least = std::min(least, sum_of_prices(ranks, other, price));
                      });
      EXPECT_EQ(sum_of_prices(ranks, vector, price), least) << ranks;
      // The fewest messages are one in each round.
      if (static_cast<std::uint32_t>(std::bit_width(ranks - 1)) <= messages_max) {
        EXPECT_LE(messages_of(vector), messages_max) << ranks;
      }
    }
}

// It was priced anew for each number of messages that a round may have.
TEST(CheapestVector, prices_each_round_once) {
  for (const std::uint32_t ranks : {4096u, 4095u, 65536u, 1u << 20}) {
    std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, int> priced;
    std::size_t calls = 0;
    const RoundPrice price = [&](const plan::Round& round) {
      ++calls;
      int& times = priced[{round.length, round.messages, round.short_messages}];
      EXPECT_EQ(++times, 1) << round.length << " " << round.messages;
      return Picoseconds{1000} + round.messages;
    };
    EXPECT_FALSE(cheapest_vector(ranks, 31, price).empty());
    EXPECT_LE(calls, ranks <= 4096 ? 2000u : 50'000u) << ranks;
  }
}

/// A round costs as much as ten of its messages.
Picoseconds price_of_vector(std::uint32_t ranks, const plan::PerRound& vector) {
  Picoseconds sum = 0;
  for (const plan::Round& round : plan::two_partial_rounds(ranks, vector))
    sum += 10 + round.messages;
  return sum;
}

TEST(Neighbours, of_a_vector_differ_in_one_round_or_in_the_order) {
  const std::vector<plan::PerRound> found = neighbours_of({5, 1, 2});
  EXPECT_EQ(found, (std::vector<plan::PerRound>{{4, 1, 2},
                                                {6, 1, 2},
                                                {1, 2, 1, 2},
                                                {5, 2},
                                                {5, 2, 2},
                                                {5, 1, 1},
                                                {5, 1, 3},
                                                {5, 1, 1, 1},
                                                {5, 1, 2, 1},
                                                {2, 1, 5}}));
  EXPECT_EQ(neighbours_of({1}), (std::vector<plan::PerRound>{{2}, {1, 1}, {1}}));
  for (std::uint32_t messages = 2; messages <= 40; ++messages) {
    const plan::PerRound split = neighbours_of({messages}).at(2);
    ASSERT_EQ(split.size(), 2u);
    EXPECT_EQ(split[0], 1u);
    EXPECT_GE(2 * (split[1] + 1), messages + 1);
    EXPECT_LT(2 * split[1], messages + 1) << "one message less would do";
  }
}

TEST(Neighbours, of_many_rounds_differ_in_the_last_one) {
  EXPECT_EQ(neighbours_of({1, 1, 1, 1, 1, 3}), (std::vector<plan::PerRound>{{1, 1, 1, 1, 1, 2},
                                                                            {1, 1, 1, 1, 1, 4},
                                                                            {1, 1, 1, 1, 1, 1, 1},
                                                                            {1, 1, 1, 1, 1, 3, 1},
                                                                            {3, 1, 1, 1, 1, 1}}));
}

TEST(MinimalVectors, cover_all_ranks_and_would_not_with_a_message_less) {
  for (std::uint32_t ranks = 1; ranks <= 24; ++ranks) {
    // All vectors, one after the other: digits up to 15, from one round to five.
    std::set<plan::PerRound> expected;
    const std::function<void(plan::PerRound)> look_at = [&](const plan::PerRound& vector) {
      if (plan::covers(ranks, vector)) {
        bool is_minimal = true;
        for (std::size_t i = 0; i < vector.size(); ++i) {
          plan::PerRound fewer = vector;
          if (--fewer[i] == 0) fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
          is_minimal = is_minimal && !plan::covers(ranks, fewer);
        }
        if (is_minimal) expected.insert(vector);
        return;
      }
      for (std::uint32_t n = 1; n <= 15; ++n) {
        plan::PerRound longer = vector;
        longer.push_back(n);
        look_at(longer);
      }
    };
    look_at({});
    const std::vector<plan::PerRound> found = minimal_vectors(ranks, UINT32_MAX);
    EXPECT_EQ(std::set<plan::PerRound>(found.begin(), found.end()), expected) << ranks;
    EXPECT_EQ(found.size(), expected.size()) << ranks;
    const auto is_longer = [](const plan::PerRound& vector) {
      return std::accumulate(vector.begin(), vector.end(), 0u) > 6;
    };
    std::erase_if(expected, is_longer);
    const std::vector<plan::PerRound> few = minimal_vectors(ranks, 6);
    EXPECT_EQ(std::set<plan::PerRound>(few.begin(), few.end()), expected) << ranks;
  }
  EXPECT_EQ(minimal_vectors(64, UINT32_MAX).size(), 97u);
}

TEST(CheapestVectors, have_the_least_sums_the_first_of_equal_ones_first) {
  const RoundPrice messages = [](const plan::Round& round) { return Picoseconds{round.messages}; };
  const std::vector<plan::PerRound> all = {{7}, {3, 1}, {1, 3}, {1, 1, 1}};
  EXPECT_EQ(cheapest_of(all, 8, messages, 2), (std::vector<plan::PerRound>{{1, 1, 1}, {3, 1}}));
  EXPECT_EQ(cheapest_of(all, 8, messages, 9),
            (std::vector<plan::PerRound>{{1, 1, 1}, {3, 1}, {1, 3}, {7}}));
  EXPECT_TRUE(cheapest_of({}, 8, messages, 2).empty());
}

TEST(CloseVectors, have_one_n_other_rounds_and_prices_near_the_least) {
  for (std::uint32_t ranks = 2; ranks <= 128; ++ranks) {
    const VectorPrice price = [&](const plan::PerRound& vector) {
      return price_of_vector(ranks, vector);
    };
    const plan::PerRound best = cheapest_vector(ranks, UINT32_MAX, [](const plan::Round& round) {
      return Picoseconds{10} + round.messages;
    });
    Picoseconds before = price(best);
    const Picoseconds most = before + before / 3;
    const auto close = close_uniform_vectors(ranks, 20, {best}, 3, price);
    EXPECT_LE(close.size(), 3u);
    for (const plan::PerRound& vector : close) {
      EXPECT_EQ(vector, plan::uniform(ranks, vector.front())) << ranks;
      EXPECT_NE(plan::two_partial_rounds(ranks, vector), plan::two_partial_rounds(ranks, best));
      EXPECT_GE(price(vector), before) << "the cheapest comes first";
      EXPECT_LE(price(vector), most);
      std::uint32_t messages = 0;
      for (const plan::Round& round : plan::two_partial_rounds(ranks, vector))
        messages += round.messages;
      EXPECT_LE(messages, 20u);
      before = price(vector);
    }
  }
  const VectorPrice any = [](const plan::PerRound&) { return Picoseconds{1}; };
  EXPECT_EQ(close_uniform_vectors(17, UINT32_MAX, {{16}}, 9, any).size(), 5u)
      << "n = 5, 6 and 7 have the same rounds";
  EXPECT_TRUE(close_uniform_vectors(1, UINT32_MAX, {{}}, 9, any).empty());
  EXPECT_TRUE(close_uniform_vectors(129, UINT32_MAX, {{128}}, 9, any).empty());
}

TEST(CloseVectors, of_cores_are_others_that_fit) {
  const VectorPrice price = [](const plan::PerRound& core) {
    return Picoseconds{100} + static_cast<Picoseconds>(core.size());
  };
  for (const std::uint32_t ranks : {2u, 5u, 17u, 96u}) {
    const auto cores = close_cores(ranks, 12, {{1}}, 1000, price);
    std::set<plan::PerRound> seen{{1}};
    for (const plan::PerRound& core : cores) {
      EXPECT_TRUE(seen.insert(core).second);
      EXPECT_TRUE(plan::is_core(ranks, core)) << ranks;
      EXPECT_TRUE(std::is_sorted(core.rbegin(), core.rend()));
      EXPECT_LE(messages_of(core), 12u);
    }
    EXPECT_EQ(cores.empty(), ranks == 2) << ranks;
  }
  EXPECT_EQ(close_cores(17, 12, {{1}}, 2, price).size(), 2u);
}

}  // namespace
}  // namespace tutti::tune
