// Every schedule with some of its parameters, for tests that look at all of them.
#pragma once

#include <functional>
#include <string>

#include "plan/allreduce/canonical_dissemination.hpp"
#include "plan/allreduce/chunked_fold.hpp"
#include "plan/allreduce/decomposition.hpp"
#include "plan/allreduce/dissemination.hpp"
#include "plan/allreduce/nway.hpp"
#include "plan/allreduce/recursive_multiplying.hpp"
#include "plan/allreduce/two_partial.hpp"
#include "plan/core/per_round.hpp"
#include "rule_of_thumb.hpp"

namespace tutti::plan::test {

using PlanOf = std::function<Plan(Rank)>;

/// Calls `visit` with a name and the plans of each schedule that serves `rank_count`.
inline void for_each_schedule(std::uint32_t rank_count,
                              const std::function<void(const std::string&, const PlanOf&)>& visit) {
  for (const std::uint32_t n : {1u, 2u, 3u, 5u}) {
    const PerRound vector = uniform(rank_count, n);
    const std::string text = ", n " + std::to_string(n);
    visit("barrier" + text, [=](Rank r) { return dissemination_barrier(r, rank_count, vector); });
    visit("dissemination" + text,
          [=](Rank r) { return dissemination_allreduce(r, rank_count, vector); });
    for (const Order order : {Order::commutative, Order::rank_order})
      visit("two_partial" + text,
            [=](Rank r) { return two_partial_allreduce(r, rank_count, vector, order); });
    for (const TakeOut take_out : {TakeOut::recompute, TakeOut::inverse})
      if (is_adaptable(rank_count, n))
        visit("nway" + text, [=](Rank r) {
          return nway_allreduce(r, rank_count, n, take_out, Order::commutative);
        });
    for (const Digits digits : {Digits::joined, Digits::separate})
      visit("decomposition" + text, [=](Rank r) {
        return decomposition_allreduce(r, rank_count, n, digits, Order::commutative);
      });
    visit("canonical_dissemination" + text,
          [=](Rank r) { return canonical_dissemination_allreduce(r, rank_count, vector); });
    const PerRound core = rule_core(rank_count, 8, vector);
    visit("recursive_multiplying" + text,
          [=](Rank r) { return recursive_multiplying_allreduce(r, rank_count, core); });
  }
  visit("chunked_fold", [=](Rank r) { return chunked_fold_allreduce(r, rank_count); });
}

}  // namespace tutti::plan::test
