// Every schedule with some of its parameters, for tests that look at all of them.
#pragma once

#include <functional>
#include <string>

#include "plan/canonical_dissemination.hpp"
#include "plan/chunked_fold.hpp"
#include "plan/dissemination.hpp"
#include "plan/gather_fold.hpp"
#include "plan/per_round.hpp"
#include "plan/recursive_multiplying.hpp"
#include "plan/two_partial.hpp"

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
    const PerRound core = per_round_for_recursive_multiplying(rank_count, 8, vector);
    visit("recursive_multiplying" + text,
          [=](Rank r) { return recursive_multiplying_allreduce(r, rank_count, core); });
    visit("canonical_dissemination" + text,
          [=](Rank r) { return canonical_dissemination_allreduce(r, rank_count, vector); });
    visit("gather_fold" + text,
          [=](Rank r) { return gather_fold_allreduce(r, rank_count, vector); });
  }
  visit("chunked_fold", [=](Rank r) { return chunked_fold_allreduce(r, rank_count); });
}

}  // namespace tutti::plan::test
