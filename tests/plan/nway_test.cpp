// Promise: the adapted n-way dissemination gives every rank every contribution exactly once, with
// an inverse and without, in rank order where that is asked for, for every adaption there is; the
// adaptions are those of the paper, and their rounds and messages those of the catalogue.
#include "plan/allreduce/nway.hpp"
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <numeric>
#include <random>
#include <sstream>
#include <string>

#include "plan/allreduce/two_partial.hpp"
#include "plan/core/verify.hpp"
#include "sizes.hpp"
#include "steps_of.hpp"
#include "vectors.hpp"

namespace tutti::plan {
namespace {

struct Form {
  const char* name;
  TakeOut take_out;
  Order order;
  Promise promise;
};

constexpr Form forms[] = {
    {"inverse", TakeOut::inverse, Order::commutative, Promise::each_once},
    {"recompute", TakeOut::recompute, Order::commutative, Promise::each_once},
    {"recompute in rank order", TakeOut::recompute, Order::rank_order, Promise::rank_order},
};

std::vector<Plan> plans_of(std::uint32_t ranks, const Adaption& adaption, const Form& form) {
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    plans.push_back(nway_allreduce(Rank{rank}, ranks, adaption, form.take_out, form.order));
  return plans;
}

std::string name_of(std::uint32_t ranks, const Adaption& adaption, const Form& form) {
  std::ostringstream text;
  text << "P = " << ranks << ", n = " << adaption.n << ", a = " << adaption.prefix_sent
       << ", b = " << adaption.taken_out << ", " << form.name;
  return text.str();
}

std::uint32_t messages_of(const Adaption& adaption) {
  const PerRound rounds = nway_rounds(adaption);
  return std::accumulate(rounds.begin(), rounds.end(), 0u);
}

/// s, l_snd, j_snd, l_rcv, j_rcv; l_rcv = -1: the base border.
using Tuple = std::array<std::int64_t, 5>;

Tuple tuple_of(const Adaption& adaption) {
  const bool base = adaption.theorem_case == AdaptionCase::base_border ||
                    adaption.theorem_case == AdaptionCase::power;
  return {adaption.senders, adaption.sent.round, adaption.sent.message,
          base ? -1 : std::int64_t{adaption.received.round},
          base ? 0 : std::int64_t{adaption.received.message}};
}

std::int64_t power(std::int64_t base, std::uint32_t exponent) {
  std::int64_t result = 1;
  while (exponent-- > 0) result *= base;
  return result;
}

/// n times the sum over i < l-1 of (n+1)^i, plus j (n+1)^(l-1): how far the border lies to the
/// left.
std::int64_t distance_of(std::int64_t n, std::uint32_t l, std::int64_t j) {
  if (l == 0) return 0;
  std::int64_t sum = 0;
  for (std::uint32_t i = 0; i + 1 < l; ++i) sum += power(n + 1, i);
  return n * sum + j * power(n + 1, l - 1);
}

/// Equation (8) of the paper for all 5-tuples, then the same at the base border, which lies one
/// rank to the right of the border behind the own contribution.
std::vector<Tuple> tuples_of_paper(std::uint32_t ranks, std::uint32_t n) {
  const std::uint32_t k = test::exact_rounds(ranks, n);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> borders{{0, 0}};
  for (std::uint32_t l = 1; l < k; ++l)
    for (std::uint32_t j = 1; j <= n; ++j) borders.push_back({l, j});
  std::vector<Tuple> tuples, at_base;
  for (std::uint32_t s = 1; s <= n; ++s)
    for (const auto& [l_snd, j_snd] : borders) {
      const std::int64_t left = s * power(n + 1, k - 1) + distance_of(n, l_snd, j_snd);
      for (const auto& [l_rcv, j_rcv] : borders)
        if (left - distance_of(n, l_rcv, j_rcv) == ranks)
          tuples.push_back({s, l_snd, j_snd, l_rcv, j_rcv});
      if (left + 1 == ranks) at_base.push_back({s, l_snd, j_snd, -1, 0});
    }
  tuples.insert(tuples.end(), at_base.begin(), at_base.end());
  return tuples;
}

// ---- Adaptions ----------------------------------------------------------------------------------

TEST(NwayAdaptions, are_the_tuples_of_equation_eight) {
  for (std::uint32_t ranks = 2; ranks <= 300; ++ranks)
    for (std::uint32_t n = 1; n <= 12; ++n) {
      std::vector<Tuple> found;
      for (const Adaption& adaption : adaptions(ranks, n)) found.push_back(tuple_of(adaption));
      ASSERT_EQ(found, tuples_of_paper(ranks, n)) << "P = " << ranks << ", n = " << n;
    }
}

TEST(NwayAdaptions, add_up_to_the_ranks) {
  for (std::uint32_t ranks = 2; ranks <= 1100; ++ranks)
    for (std::uint32_t n = 1; n <= 9; ++n)
      for (const Adaption& adaption : adaptions(ranks, n)) {
        ASSERT_EQ(adaption.rounds, test::exact_rounds(ranks, n));
        const std::int64_t whole = power(n + 1, adaption.rounds - 1);
        ASSERT_EQ((adaption.whole_messages + 1) * whole + adaption.prefix_sent - adaption.taken_out,
                  ranks);
        ASSERT_LE(adaption.prefix_sent, whole);
      }
}

// The numbers of instances were counted independently of this code.
TEST(NwayAdaptions, of_up_to_600_ranks_are_as_many_of_each_case_as_counted_elsewhere) {
  std::map<AdaptionCase, std::uint32_t> counts;
  for (std::uint32_t ranks = 2; ranks <= 600; ++ranks)
    for (std::uint32_t n = 1; n <= 8; ++n)
      for (const Adaption& adaption : adaptions(ranks, n)) ++counts[adaption.theorem_case];
  EXPECT_EQ(counts[AdaptionCase::both_borders], 7602u);
  EXPECT_EQ(counts[AdaptionCase::own_data_sent], 612u);
  EXPECT_EQ(counts[AdaptionCase::whole_partials], 93u);
  EXPECT_EQ(counts[AdaptionCase::first_round_sent], 473u);
  EXPECT_EQ(counts[AdaptionCase::own_data_taken_out], 355u);
  EXPECT_EQ(counts[AdaptionCase::base_border] + counts[AdaptionCase::power], 961u);
}

TEST(NwayAdaptions, serve_as_many_rank_counts_as_counted_elsewhere) {
  constexpr std::uint32_t served[] = {175, 342, 483, 563, 714, 723, 771, 872};
  constexpr std::uint32_t by_equation[] = {165, 336, 478, 559, 711, 720, 768, 869};
  constexpr std::uint32_t without_take_out[] = {55, 83, 105, 127, 152, 163, 190, 235};
  std::vector<bool> up_to_seven(1025);
  for (std::uint32_t n = 1; n <= 8; ++n) {
    std::uint32_t counts[3] = {};
    for (std::uint32_t ranks = 2; ranks <= 1024; ++ranks) {
      const std::vector<Adaption> all = adaptions(ranks, n);
      const auto any = [&](const auto& predicate) {
        return std::any_of(all.begin(), all.end(), predicate) ? 1u : 0u;
      };
      counts[0] += is_adaptable(ranks, n) ? 1 : 0;
      counts[1] += any([](const Adaption& adaption) { return tuple_of(adaption)[3] >= 0; });
      counts[2] += any([](const Adaption& adaption) { return adaption.taken_out == 0; });
      if (n <= 7 && is_adaptable(ranks, n)) up_to_seven[ranks] = true;
    }
    EXPECT_EQ(counts[0], served[n - 1]) << "n = " << n;
    EXPECT_EQ(counts[1], by_equation[n - 1]) << "n = " << n;
    EXPECT_EQ(counts[2], without_take_out[n - 1]) << "n = " << n;
  }
  EXPECT_EQ(std::count(up_to_seven.begin(), up_to_seven.end(), true), 995);
  EXPECT_EQ(std::find(up_to_seven.begin() + 2, up_to_seven.end(), false) - up_to_seven.begin(),
            601);
}

std::string text_of(std::uint32_t ranks, const Adaption& adaption) {
  const Tuple tuple = tuple_of(adaption);
  std::ostringstream text;
  text << adaption.n << ';' << adaption.rounds << ';';
  if (adaption.theorem_case == AdaptionCase::power)
    text << "P=(n+1)^k";
  else if (adaption.theorem_case == AdaptionCase::base_border)
    text << 'B';
  else
    text << static_cast<int>(adaption.theorem_case);
  text << ";(" << tuple[0] << ',' << tuple[1] << ',';
  if (tuple[3] < 0)
    text << 'B';
  else
    text << tuple[3];
  const Plan plan = nway_allreduce(Rank{0}, ranks, adaption, TakeOut::inverse, Order::commutative);
  text << ',' << tuple[2] << ',' << tuple[4] << ");" << plan.takes_out << ';'
       << test::count_of(plan, Action::put) << ';' << plan.per_round.size();
  return text.str();
}

// The table was computed independently of this code.
TEST(NwayAdaptions, chosen_equal_the_reference_table) {
  std::ifstream table(TUTTI_TEST_DATA "/nway_adaptions.csv");
  ASSERT_TRUE(table) << "tests/data/nway_adaptions.csv is missing";
  std::string line;
  std::getline(table, line);
  ASSERT_EQ(line,
            "P,num_n_1_7,\"list_of "
            "(n;k;case;(s,l_snd,l_rcv,j_snd,j_rcv);takeout;msgs;rounds)\"");
  std::uint32_t ranks = 2;
  for (; std::getline(table, line); ++ranks) {
    std::uint32_t count = 0;
    std::string list;
    for (std::uint32_t n = 1; n <= 7; ++n)
      if (const std::optional<Adaption> chosen = adaption(ranks, n)) {
        list.append(count++ > 0 ? " | " : "").append(text_of(ranks, *chosen));
      }
    if (!list.empty()) list.insert(0, 1, '"').push_back('"');
    ASSERT_EQ(line, std::to_string(ranks) + ',' + std::to_string(count) + ',' + list);
  }
  EXPECT_EQ(ranks, 1025u);
}

TEST(NwayAdaptions, never_take_fewer_messages_than_two_partial_dissemination) {
  for (std::uint32_t ranks = 2; ranks <= 1024; ++ranks)
    for (std::uint32_t n = 1; n <= 8; ++n) {
      const std::optional<Adaption> chosen = adaption(ranks, n);
      if (!chosen) continue;
      std::uint32_t messages = 0;
      for (const Round& round : two_partial_rounds(ranks, uniform(ranks, n)))
        messages += round.messages;
      ASSERT_GE(messages_of(*chosen), messages) << "P = " << ranks << ", n = " << n;
    }
}

TEST(NwayAdaptions, exist_for_all_rank_counts_up_to_the_cube) {
  for (std::uint32_t n = 1; n <= 30; ++n)
    for (std::uint32_t ranks = 1; ranks <= power(n + 1, 3); ranks += 1 + ranks / 500)
      ASSERT_TRUE(is_adaptable(ranks, n)) << "P = " << ranks << ", n = " << n;
}

TEST(NwayAdaptions, need_messages_that_have_a_slot) {
  EXPECT_FALSE(is_adaptable(0, 1));
  EXPECT_FALSE(is_adaptable(7, 0));
  EXPECT_TRUE(is_adaptable(1, UINT32_MAX));
  EXPECT_TRUE(is_adaptable(32769, UINT32_MAX));  // 32768 messages in one round
  EXPECT_FALSE(is_adaptable(32770, UINT32_MAX));
  EXPECT_TRUE(is_adaptable(32770, 32000));
  EXPECT_FALSE(is_adaptable(UINT32_MAX, 65535));
}

TEST(NwayAdaptions, nearest_is_what_trying_all_finds) {
  for (std::uint32_t ranks = 1; ranks <= 1500; ranks += 1 + ranks / 200)
    for (std::uint32_t n = 1; n <= 20; ++n) {
      std::uint32_t best = UINT32_MAX;
      for (std::uint32_t other = 2 * n + 30; other >= 1; --other) {
        const auto distance = [n](std::uint32_t m) { return m > n ? m - n : n - m; };
        const bool nearer = best == UINT32_MAX || distance(other) <= distance(best);
        if (nearer && is_adaptable(ranks, other)) best = other;
      }
      ASSERT_EQ(nearest_adaptable_n(ranks, n), best) << "P = " << ranks << ", n = " << n;
    }
}

TEST(NwayAdaptions, nearest_exists_for_any_number_of_ranks) {
  for (const std::uint32_t ranks : {32770u, 1'000'000u, 1u << 31, UINT32_MAX})
    for (const std::uint32_t n : {1u, 2u, 7u, 1000u, 32768u, 65535u, 1'000'000u, UINT32_MAX}) {
      const std::uint32_t nearest = nearest_adaptable_n(ranks, n);
      EXPECT_TRUE(is_adaptable(ranks, nearest)) << ranks << ' ' << n;
    }
  EXPECT_EQ(nearest_adaptable_n(32769, UINT32_MAX), UINT32_MAX);
  EXPECT_EQ(nearest_adaptable_n(1, 5), 5u);
  EXPECT_EQ(nearest_adaptable_n(601, 1), 8u);
}

// ---- Plans --------------------------------------------------------------------------------------

TEST(NwayAllreduce, holds_every_contribution_once_for_every_adaption_of_up_to_128_ranks) {
  for (std::uint32_t ranks = 1; ranks <= test::every_rank_count_up_to; ++ranks)
    for (std::uint32_t n = 1; n <= 8; ++n)
      for (const Adaption& adaption : adaptions(ranks, n))
        for (const Form& form : forms)
          ASSERT_EQ(first_violation(plans_of(ranks, adaption, form), form.promise), std::nullopt)
              << name_of(ranks, adaption, form);
}

TEST(NwayAllreduce, holds_every_contribution_once_for_sampled_rank_counts_up_to_2000) {
  std::mt19937 engine(1);
  for (int sample = 0; sample < test::samples(100); ++sample) {
    const auto below = static_cast<std::uint32_t>(sample < 70 ? 600 : 2000);
    const auto ranks = static_cast<std::uint32_t>(2 + engine() % (below - 1));
    const std::uint32_t n =
        nearest_adaptable_n(ranks, static_cast<std::uint32_t>(1 + engine() % 12));
    const std::vector<Adaption> all = adaptions(ranks, n);
    for (const Adaption& adaption : {adaption(ranks, n).value(), all[engine() % all.size()]})
      for (const Form& form : forms)
        ASSERT_EQ(first_violation(plans_of(ranks, adaption, form), form.promise), std::nullopt)
            << name_of(ranks, adaption, form);
  }
}

TEST(NwayAllreduce, takes_the_chosen_adaption_by_itself) {
  for (const Form& form : forms) {
    const auto plan_of = [&](Rank rank) {
      return nway_allreduce(rank, 98, 2, form.take_out, form.order);
    };
    EXPECT_EQ(first_violation(98, plan_of, form.promise), std::nullopt);
    EXPECT_EQ(plan_of(Rank{3}).takes_out, 1u);
    EXPECT_EQ(plan_of(Rank{3}).algorithm,
              form.take_out == TakeOut::inverse ? "nway_inverse" : "nway");
  }
}

/// Combinations of the form without an inverse: one for each message, but the first beyond the
/// border of B, which begins T; and one for each S or A that is made of T and B.
std::uint32_t recomputing_combinations(const Adaption& adaption) {
  const std::uint32_t k = adaption.rounds;
  const std::int64_t q = power(adaption.n + 1, k - 1);
  const auto [b_round, b_message] = [&]() -> std::pair<std::uint32_t, std::uint32_t> {
    for (std::uint32_t l = 1; l < k; ++l)
      for (std::uint32_t j = 1; j <= adaption.n; ++j)
        if ((j + 1) * power(adaption.n + 1, l - 1) == adaption.taken_out) return {l, j};
    return {0, adaption.n};
  }();
  std::uint32_t count = messages_of(adaption) - 1;
  for (std::uint32_t l = b_message == adaption.n ? b_round + 1 : b_round; l < k; ++l) {
    const bool put = l + 1 < k || adaption.whole_messages > 0 || adaption.prefix_sent == q;
    count += put ? 1 : 0;
  }
  bool is_whole = false;  // A is an S
  for (std::uint32_t l = 0; l < k; ++l)
    is_whole = is_whole || power(adaption.n + 1, l) == adaption.prefix_sent;
  if (!is_whole && adaption.prefix_sent > adaption.taken_out) ++count;
  return count;
}

TEST(NwayAllreduce, costs_what_the_catalogue_says) {
  for (std::uint32_t ranks = 2; ranks <= 600; ++ranks)
    for (std::uint32_t n = 1; n <= 8; ++n)
      for (const Adaption& adaption : adaptions(ranks, n))
        for (const Form& form : forms) {
          const Plan plan =
              nway_allreduce(Rank{(ranks - 1) / 2}, ranks, adaption, form.take_out, form.order);
          const std::uint32_t k = test::exact_rounds(ranks, n);
          const std::uint32_t s = adaption.whole_messages + (adaption.prefix_sent > 0 ? 1 : 0);
          PerRound expected(k, n);
          expected.back() = s;
          ASSERT_EQ(plan.per_round, expected) << name_of(ranks, adaption, form);
          ASSERT_EQ(test::count_of(plan, Action::put), n * (k - 1) + s);
          ASSERT_EQ(plan.slot_count, n * (k - 1) + s);
          ASSERT_LE(plan.partial_count, k + (form.order == Order::rank_order ? 3 : 2));
          ASSERT_EQ(plan.payloads, form.order == Order::rank_order ? 2 : 1);
          ASSERT_EQ(plan.takes_out, adaption.taken_out);
          ASSERT_TRUE(plan.all_alike);
          const bool inverts = form.take_out == TakeOut::inverse && adaption.taken_out > 0;
          ASSERT_EQ(test::count_of(plan, Action::take_out), inverts ? 1 : 0);
          if (form.order == Order::rank_order) continue;
          const bool recomputes = !inverts && adaption.taken_out > 0;
          ASSERT_EQ(test::count_of(plan, Action::combine),
                    recomputes ? recomputing_combinations(adaption) : plan.slot_count)
              << name_of(ranks, adaption, form);
        }
}

TEST(NwayAllreduce, sends_first_joins_in_slot_order_and_wastes_nothing) {
  for (std::uint32_t ranks = 2; ranks <= 300; ++ranks)
    for (std::uint32_t n = 1; n <= 8; ++n)
      for (const Adaption& adaption : adaptions(ranks, n))
        for (const Form& form : forms) {
          const Plan plan =
              nway_allreduce(Rank{ranks * 2 / 3}, ranks, adaption, form.take_out, form.order);
          ASSERT_TRUE(test::puts_come_first(plan)) << name_of(ranks, adaption, form);
          ASSERT_TRUE(test::arrivals_are_in_slot_order(plan)) << name_of(ranks, adaption, form);
          ASSERT_TRUE(test::nothing_is_wasted(plan)) << name_of(ranks, adaption, form);
        }
}

TEST(NwayAllreduce, sends_two_payloads_only_across_the_seam) {
  for (const auto& [ranks, n] : {std::pair{98u, 2u}, {97u, 7u}, {64u, 3u}, {43u, 1u}}) {
    const Adaption chosen = adaption(ranks, nearest_adaptable_n(ranks, n)).value();
    std::vector<std::int64_t> doubled(chosen.rounds);
    for (const Plan& plan : plans_of(ranks, chosen, forms[2]))
      for (const Step& step : plan.steps)
        if (step.action == Action::put && step.payloads == 2) ++doubled[step.round];
    std::int64_t length = 1;
    for (std::uint32_t round = 0; round + 1 < chosen.rounds; ++round) {
      EXPECT_EQ(doubled[round], chosen.n * (length - 1));
      length *= chosen.n + 1;
    }
    const std::int64_t of_prefix = std::max(chosen.prefix_sent, 1u) - 1;
    EXPECT_EQ(doubled.back(), chosen.whole_messages * (length - 1) + of_prefix);
  }
}

TEST(NwayAllreduce, with_the_wrong_prefix_taken_out_is_found) {
  std::uint32_t tried = 0;
  for (std::uint32_t ranks = 2; ranks <= 72; ++ranks)
    for (std::uint32_t n = 1; n <= 8; ++n)
      for (const Adaption& adaption : adaptions(ranks, n)) {
        if (adaption.taken_out == 0) continue;
        std::vector<Plan> plans = plans_of(ranks, adaption, forms[0]);
        for (Plan& plan : plans) {
          Step& step = *std::find_if(plan.steps.begin(), plan.steps.end(), [](const Step& one) {
            return one.action == Action::take_out;
          });
          step.from.index = step.from.index == 0 ? 1 : 0;
        }
        ASSERT_NE(first_violation(plans, Promise::each_once), std::nullopt);
        for (Plan& plan : plans)
          std::erase_if(plan.steps, [](const Step& one) { return one.action == Action::take_out; });
        ASSERT_NE(first_violation(plans, Promise::each_once), std::nullopt);
        ++tried;
      }
  EXPECT_GT(tried, 300u);
}

TEST(NwayAllreduce, with_the_rest_begun_one_message_late_is_found) {
  const Adaption chosen = adaption(98, 2).value();
  std::vector<Plan> plans = plans_of(98, chosen, forms[1]);
  ASSERT_EQ(first_violation(plans, Promise::each_once), std::nullopt);
  for (Plan& plan : plans) {
    const auto begins = std::find_if(plan.steps.begin(), plan.steps.end(), [](const Step& step) {
      return step.into.place == Place::target;
    });
    ASSERT_EQ(begins->action, Action::copy);
    const auto next = std::find_if(begins + 1, plan.steps.end(), [](const Step& step) {
      return step.into.place == Place::target;
    });
    ASSERT_EQ(next->action, Action::combine);
    next->action = Action::copy;
    next->payloads = 1;
    plan.steps.erase(begins);
  }
  EXPECT_NE(first_violation(plans, Promise::each_once), std::nullopt);
}

TEST(NwayAllreduce, of_one_rank_copies_its_contribution) {
  for (const Form& form : forms) {
    const Plan plan = nway_allreduce(Rank{0}, 1, 3, form.take_out, form.order);
    ASSERT_EQ(plan.steps.size(), 1u);
    EXPECT_EQ(plan.steps[0].action, Action::copy);
    EXPECT_EQ(plan.payloads, 1);
    EXPECT_TRUE(plan.per_round.empty());
  }
}

// With n = 9, P is a power; n = 31 takes 448 ranks out.
TEST(NwayAllreduce, of_a_million_ranks_is_small) {
  constexpr std::uint32_t ranks = 1'000'000;
  EXPECT_EQ(nearest_adaptable_n(ranks, 7), 9u);
  EXPECT_EQ(adaption(ranks, 31).value().taken_out, 448u);
  for (const std::uint32_t n : {9u, 31u}) {
    const std::uint32_t k = test::exact_rounds(ranks, n);
    for (const Form& form : forms)
      for (const std::uint32_t rank : {0u, 1u, 499'999u, 999'999u}) {
        const Plan plan = nway_allreduce(Rank{rank}, ranks, n, form.take_out, form.order);
        EXPECT_EQ(plan.per_round.size(), k);
        EXPECT_LE(plan.steps.size(), (std::size_t{n} + 1) * k * 4);
      }
  }
}

}  // namespace
}  // namespace tutti::plan
