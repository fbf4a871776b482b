// Promise: every schedule of the catalogue, asked for by name, is right for 1 .. 16 ranks over the
// software device: integers, doubles whose sums are exact, and an operator that does not commute;
// and those that are reproducible give the bits of one tree.
#include <gtest/gtest.h>

#include <cstring>
#include <tutti/detail/names.hpp>
#include <tutti/tutti.hpp>

#include "support/adversarial.hpp"
#include "support/device.hpp"
#include "support/operators.hpp"
#include "tune/choose.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t element_count = 19;  // fewer than some have parts, and no multiple

void run(std::uint32_t rank_count, const std::function<int(Exchange&)>& body) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  const auto results = run_local_threads({.rank_count = rank_count}, body);
#else
  const auto results = run_local({.rank_count = rank_count}, body);
#endif
  ASSERT_EQ(results.size(), rank_count);
  for (const LocalResult& result : results)
    EXPECT_TRUE(result.signal == 0 && result.exit_status == 0) << rank_count << " ranks";
}

/// Vectors that the schedule takes for a number of ranks; the empty one leaves it to a rule.
std::vector<std::vector<std::uint32_t>> vectors(const tune::Row& schedule, std::uint32_t rank_count,
                                                const tune::CollectiveRequest& request) {
  std::vector<std::vector<std::uint32_t>> taken;
  for (std::vector<std::uint32_t> vector :
       {std::vector<std::uint32_t>{}, plan::uniform(rank_count, 1), plan::uniform(rank_count, 2),
        plan::uniform(rank_count, 3), plan::PerRound{3, 2, 1}}) {
    tune::CollectiveRequest asked = request;
    asked.algorithm = schedule.algorithm;
    asked.per_round = vector;
    try {
      (void)tune::choose(asked, {.rank_count = rank_count}, tune::Knowledge());
      taken.push_back(std::move(vector));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::invalid_argument) throw;  // does not serve so many ranks
    }
  }
  return taken;
}

/// A call of `schedule` on `values`; empty if it failed.
template <class T>
std::vector<T> call(Communicator& communicator, const tune::CollectiveRequest& request,
                    const std::vector<T>& values) {
  std::vector<T> target(values.size());
  Operation operation = allreduce(communicator, {.source = values.data(),
                                                 .target = target.data(),
                                                 .element_count = values.size(),
                                                 .reduction = request.reduction,
                                                 .agreement = request.agreement,
                                                 .per_round = request.per_round,
                                                 .algorithm = request.algorithm});
  for (int i = 0; i < 3; ++i)
    if (operation.start() != Status::ok || operation.wait(60s) != Status::ok) return {};
  return target;
}

/// 0 if every vector gives what `expected` says of element i.
template <class T, class Expected>
int check(Communicator& communicator, const tune::Row& schedule, const Reduction& reduction,
          const std::vector<T>& values, const Expected& expected) {
  tune::CollectiveRequest request{.element_count = values.size(),
                                  .reduction = reduction,
                                  .agreement = tune::agreement_of(schedule),
                                  .algorithm = schedule.algorithm};
  for (const auto& vector : vectors(schedule, communicator.rank_count(), request)) {
    request.per_round = vector;
    const std::vector<T> result = call(communicator, request, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const T right = expected(i);
      if (i < result.size() && std::memcmp(&result[i], &right, sizeof(T)) == 0) continue;
      std::fprintf(stderr, "%s, %u ranks, n_1 %u: wrong at element %zu\n",
                   name_of(schedule.algorithm), communicator.rank_count(),
                   vector.empty() ? 0 : vector[0], i);
      return 1;
    }
  }
  return 0;
}

int check_integers(Communicator& communicator, const tune::Row& schedule, const test::Job& job) {
  std::vector<std::uint64_t> values;
  for (std::size_t i = 0; i < element_count; ++i)
    values.push_back(test::input(index_of(communicator.rank()), 1, i));
  return check(communicator, schedule, job.reduction, values,
               [&](std::size_t i) { return job.expected(communicator.rank_count(), 1, i); });
}

/// Sums of small whole numbers are exact in any order.
int check_doubles(Communicator& communicator, const tune::Row& schedule) {
  const auto value = [](std::uint32_t rank, std::size_t i) {
    return static_cast<double>((rank + 1) * (i + 3) % 101) - 50;
  };
  std::vector<double> values;
  for (std::size_t i = 0; i < element_count; ++i)
    values.push_back(value(index_of(communicator.rank()), i));
  const BuiltIn op = schedule.needs_idempotent ? BuiltIn::max : BuiltIn::sum;
  return check(communicator, schedule, built_in_reduction(op, ElementType::float64), values,
               [&](std::size_t i) {
                 double result = value(0, i);
                 for (std::uint32_t rank = 1; rank < communicator.rank_count(); ++rank)
                   result = op == BuiltIn::max ? std::max(result, value(rank, i))
                                               : result + value(rank, i);
                 return result;
               });
}

double tree(std::uint32_t first, std::uint32_t count, std::size_t element) {
  if (count == 1) {
    std::mt19937_64 random(1000 * element + first);
    return test::adversarial<double>(random, first, element);
  }
  std::uint32_t left = 1;
  while (2 * left < count) left *= 2;
  double value = tree(first + left, count - left, element);
  const double lower = tree(first, left, element);
  const Reduction sum = built_in_reduction(BuiltIn::sum, ElementType::float64);
  sum.combine(&lower, &value, 1, nullptr);
  return value;
}

int check_tree(Communicator& communicator, const tune::Row& schedule) {
  std::vector<double> values;
  for (std::size_t i = 0; i < element_count; ++i)
    values.push_back(tree(index_of(communicator.rank()), 1, i));
  return check(communicator, schedule, built_in_reduction(BuiltIn::sum, ElementType::float64),
               values, [&](std::size_t i) { return tree(0, communicator.rank_count(), i); });
}

TEST(Schedules, are_right_by_name_for_up_to_16_ranks) {
  for (std::uint32_t rank_count = 1; rank_count <= (test::device_is_soft() ? 16u : 5u);
       ++rank_count)
    run(rank_count, [&](Exchange& exchange) {
      Context context(test::on_test_device(exchange));
      Communicator communicator(context, exchange);
      int wrong = 0;
      for (const tune::Row& schedule : tune::named_schedules()) {
        wrong += check_integers(communicator, schedule,
                                schedule.needs_idempotent ? test::max_job() : test::sum_job());
        if (schedule.keeps_rank_order && !schedule.needs_inverse)
          wrong += check_integers(communicator, schedule, test::ordered_job());
        if (!schedule.needs_inverse) wrong += check_doubles(communicator, schedule);
        if (tune::agreement_of(schedule) == Agreement::reproducible)
          wrong += check_tree(communicator, schedule);
      }
      return wrong == 0 ? 0 : 1;
    });
}

}  // namespace
}  // namespace tutti
