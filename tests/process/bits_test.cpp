// Promise: Agreement::identical gives every rank the same bits, whatever the elements are, and
// wherever they lie in memory.  Agreement::relaxed does not, or this test could not fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <tutti/tutti.hpp>

#include "support/adversarial.hpp"
#include "support/device.hpp"
#include "support/operators.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;

constexpr int differs = 3;
constexpr std::size_t element_count = 131;  // more than a vector's worth, and a tail

/// Runs `body` on every rank, as processes, or where a sanitizer has to see them as threads.
std::vector<LocalResult> run(std::uint32_t rank_count, const std::function<int(Exchange&)>& body) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return run_local_threads({.rank_count = rank_count}, body);
#else
  return run_local({.rank_count = rank_count}, body);
#endif
}

void expect_no_difference(std::uint32_t rank_count, const std::function<int(Exchange&)>& body) {
  const auto results = run(rank_count, body);
  ASSERT_EQ(results.size(), rank_count);
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    EXPECT_EQ(results[rank].signal, 0) << "rank " << rank << " of " << rank_count;
    EXPECT_EQ(results[rank].exit_status, 0) << "rank " << rank << " of " << rank_count;
  }
}

std::uint32_t most_ranks() {
  return test::device_is_soft() ? 16 : 5;
}

/// a x + b; composition rounds, and does not commute.
struct Affine {
  double a;
  double b;
};
Affine compose(Affine left, Affine right) {
  return {left.a * right.a, left.a * right.b + left.b};
}
double length(double left, double right) {
  return std::sqrt(left * left + right * right);
}

template <class T>
T element_for(std::mt19937_64& random, std::uint32_t rank, std::size_t element) {
  if constexpr (std::is_same_v<T, Affine>) {
    const double a = 0.5 + std::ldexp(static_cast<double>(random() >> 11), -53);
    return {a, test::adversarial<double>(random, rank, 6)};
  } else if constexpr (std::is_same_v<T, Half>) {
    return Half(test::adversarial<float>(random, rank, element));
  } else {
    return test::adversarial<T>(random, rank, element);
  }
}

struct Shape {
  Agreement agreement = Agreement::identical;
  std::vector<std::uint32_t> per_round = {};
};

/// 0 if all ranks have the same bits, in place and not.
template <class T>
int compare_bits(Communicator& communicator, Exchange& exchange, const Reduction& reduction,
                 const Shape& shape) {
  const std::uint32_t self = index_of(exchange.self());
  std::mt19937_64 random(self + 1);
  int result = 0;
  for (const bool in_place : {false, true}) {
    // Other places on other ranks, so that vectorised loops begin and end at other elements.
    std::vector<T> source(element_count + 16), target(element_count + 16);
    T* const to = target.data() + self;
    T* const from = in_place ? to : source.data() + self / 2;
    for (std::size_t i = 0; i < element_count; ++i) from[i] = element_for<T>(random, self, i);
    Operation operation = allreduce(communicator, {.source = from,
                                                   .target = to,
                                                   .element_count = element_count,
                                                   .reduction = reduction,
                                                   .agreement = shape.agreement,
                                                   .per_round = shape.per_round});
    if (operation.start() != Status::ok || operation.wait(60s) != Status::ok) return 1;
    std::vector<T> all(element_count * exchange.rank_count());
    exchange.allgather(std::as_bytes(std::span(to, element_count)),
                       std::as_writable_bytes(std::span(all)), 60s);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (std::ranges::equal(std::as_bytes(std::span(&all[i], 1)),
                             std::as_bytes(std::span(&all[i % element_count], 1))))
        continue;
      if (shape.agreement == Agreement::identical)
        std::fprintf(stderr, "%zu ranks, element %zu: rank %zu differs from rank 0\n",
                     all.size() / element_count, i % element_count, i / element_count);
      result = differs;
      break;
    }
  }
  return result;
}

Reduction sum_of_doubles() {
  return built_in_reduction(BuiltIn::sum, ElementType::float64);
}

TEST(Bits, of_built_in_sums_and_products_are_identical_on_all_ranks) {
  for (std::uint32_t rank_count = 1; rank_count <= most_ranks(); ++rank_count)
    expect_no_difference(rank_count, [&](Exchange& exchange) {
      Context context(test::on_test_device(exchange));
      Communicator communicator(context, exchange);
      int wrong = 0;
      for (const BuiltIn which : {BuiltIn::sum, BuiltIn::product, BuiltIn::min, BuiltIn::max}) {
        wrong |= compare_bits<double>(communicator, exchange,
                                      built_in_reduction(which, ElementType::float64), {});
        wrong |= compare_bits<float>(communicator, exchange,
                                     built_in_reduction(which, ElementType::float32), {});
        wrong |= compare_bits<Half>(communicator, exchange,
                                    built_in_reduction(which, ElementType::float16), {});
      }
      return wrong;
    });
}

TEST(Bits, are_identical_with_every_minimal_vector) {
  for (std::uint32_t rank_count = 2; rank_count <= most_ranks(); ++rank_count)
    expect_no_difference(rank_count, [&](Exchange& exchange) {
      Context context(test::on_test_device(exchange));
      Communicator communicator(context, exchange);
      int wrong = 0;
      for (const auto& vector : test::minimal_vectors(rank_count, 3))
        wrong |=
            compare_bits<double>(communicator, exchange, sum_of_doubles(), {.per_round = vector});
      return wrong;
    });
}

TEST(Bits, of_users_operators_that_round_are_identical_on_all_ranks) {
  for (const std::uint32_t rank_count : {2u, 3u, 5u, 6u, 8u, 13u}) {
    if (rank_count > most_ranks()) break;
    expect_no_difference(rank_count, [&](Exchange& exchange) {
      Context context(test::on_test_device(exchange));
      Communicator communicator(context, exchange);
      return compare_bits<Affine>(communicator, exchange, elementwise<Affine, compose>({}), {}) |
             compare_bits<Affine>(communicator, exchange, elementwise<Affine, compose>({}),
                                  {.per_round = {1, 1, 1, 1}});
    });
  }
}

/// Rank counts of 2 .. 8 for which `relaxed` gives ranks different bits.
template <class T>
std::uint32_t rank_counts_that_differ(const Reduction& reduction) {
  std::uint32_t count = 0;
  for (std::uint32_t rank_count = 2; rank_count <= std::min(8u, most_ranks()); ++rank_count) {
    const auto results = run(rank_count, [&](Exchange& exchange) {
      Context context(test::on_test_device(exchange));
      Communicator communicator(context, exchange);
      return compare_bits<T>(communicator, exchange, reduction, {.agreement = Agreement::relaxed});
    });
    if (results[0].exit_status == differs) ++count;
  }
  return count;
}

TEST(Bits, of_relaxed_agreement_differ) {
  EXPECT_GT(rank_counts_that_differ<double>(sum_of_doubles()), 2U);
  EXPECT_GT(rank_counts_that_differ<Affine>(elementwise<Affine, compose>({})), 2U);
  EXPECT_GT(rank_counts_that_differ<double>(elementwise<double, length>({.commutative = true})),
            2U);
}

// The payloads of the contributions' NaNs are gone: the result does not depend on whose came first.
TEST(Bits, of_na_ns_are_canonical) {
  for (const std::uint32_t rank_count : {2u, 3u, 4u, 5u})
    for (const Agreement agreement : {Agreement::identical, Agreement::relaxed})
      expect_no_difference(rank_count, [&](Exchange& exchange) {
        Context context(test::on_test_device(exchange));
        Communicator communicator(context, exchange);
        const std::uint64_t payload = 0xfff8000000000001 + index_of(exchange.self());
        const auto source = std::bit_cast<double>(payload);
        double target = 0;
        Operation operation = allreduce<double>(communicator, std::span(&source, 1),
                                                std::span(&target, 1), sum, agreement);
        if (operation.start() != Status::ok || operation.wait(60s) != Status::ok) return 1;
        return std::bit_cast<std::uint64_t>(target) == 0x7ff8000000000000 ? 0 : 2;
      });
}

TEST(Bits, identical_sums_are_in_rank_order) {
  expect_no_difference(5, [&](Exchange& exchange) {
    Context context(test::on_test_device(exchange));
    Communicator communicator(context, exchange);
    // 0 o (1 o (2 o (3 o 4))): the small ones are lost in any other order.
    constexpr std::array<double, 5> values = {1, -0x1p53, 0x1p53, 0.25, 0.5};
    const double source = values[index_of(exchange.self())];
    double target = 0;
    Operation operation = allreduce(communicator, {.source = &source,
                                                   .target = &target,
                                                   .element_count = 1,
                                                   .reduction = sum_of_doubles(),
                                                   .per_round = {4},
                                                   .algorithm = Algorithm::recursive_multiplying});
    if (operation.start() != Status::ok || operation.wait(60s) != Status::ok) return 1;
    const double expected = values[0] + (values[1] + (values[2] + (values[3] + values[4])));
    return std::bit_cast<std::uint64_t>(target) == std::bit_cast<std::uint64_t>(expected) ? 0 : 2;
  });
}

}  // namespace
}  // namespace tutti
