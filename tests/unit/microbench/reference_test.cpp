// Promise: the reference is what the operator does in rank order, and an error cannot hide from it.
#include "microbench/reference.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "microbench/options.hpp"

namespace tutti::bench {
namespace {

constexpr std::uint32_t rank_count = 5;
constexpr std::size_t count = 64;

struct Combination {
  BuiltIn op;
  ElementType type;
};

std::vector<Combination> every_combination() {
  std::vector<Combination> all = {{BuiltIn::none, ElementType::uint64}};
  for (const BuiltIn op :
       {BuiltIn::sum, BuiltIn::product, BuiltIn::min, BuiltIn::max, BuiltIn::bit_and,
        BuiltIn::bit_or, BuiltIn::bit_xor, BuiltIn::logical_and, BuiltIn::logical_or})
    for (const ElementType type :
         {ElementType::int32, ElementType::uint32, ElementType::int64, ElementType::uint64,
          ElementType::float32, ElementType::float64, ElementType::float16, ElementType::bfloat16})
      if (defined_for(op, type)) all.push_back({op, type});
  return all;
}

std::vector<std::byte> input(const Reference& reference, ElementType type, std::uint32_t rank,
                             std::uint64_t call) {
  std::vector<std::byte> buffer(count * element_bytes(type));
  reference.contribution(rank, call, buffer);
  return buffer;
}

TEST(Reference, agrees_with_the_librarys_kernels_folded_in_rank_order) {
  for (const auto& [op, type] : every_combination()) {
    const Reference reference({.type = type, .op = op, .rank_count = rank_count, .seed = 3});
    const Reduction reduction = reduction_for(op, type);
    std::vector<std::byte> partial = input(reference, type, rank_count - 1, 11);
    for (std::uint32_t rank = rank_count - 1; rank-- > 0;)
      reduction.combine(input(reference, type, rank, 11).data(), partial.data(), count,
                        reduction.context);
    std::vector<std::byte> expected(partial.size());
    reference.expected(11, expected);
    EXPECT_FALSE(reference.first_difference(partial, expected).has_value())
        << static_cast<int>(op) << ' ' << static_cast<int>(type);
  }
}

TEST(Reference, inputs_differ_by_rank_call_and_element) {
  const Reference reference({.type = ElementType::uint64, .op = BuiltIn::sum, .rank_count = 5});
  const auto base = input(reference, ElementType::uint64, 1, 1);
  EXPECT_NE(base, input(reference, ElementType::uint64, 2, 1));
  EXPECT_NE(base, input(reference, ElementType::uint64, 1, 2));
  EXPECT_NE(std::memcmp(base.data(), base.data() + 8, 8), 0);
}

TEST(Reference, the_first_wrong_element_is_named) {
  const Reference reference({.type = ElementType::int32, .op = BuiltIn::sum, .rank_count = 1});
  std::vector<std::byte> expected(count * 4);
  reference.expected(0, expected);
  std::vector<std::byte> got = expected;
  got[4 * 17 + 3] ^= std::byte{1};
  EXPECT_EQ(reference.first_difference(got, expected), 17u);
}

TEST(Reference, no_elements_are_always_right) {
  const Reference reference({.type = ElementType::int32, .op = BuiltIn::sum, .rank_count = 2});
  EXPECT_FALSE(reference.first_difference({}, {}).has_value());
}

TEST(Reference, the_users_operator_is_associative_and_not_commutative) {
  const std::uint64_t a = 0x0000000300000005;
  const std::uint64_t b = 0x0000000700000002;
  const std::uint64_t c = 0xfffffff900000001;
  EXPECT_EQ(compose_affine(compose_affine(a, b), c), compose_affine(a, compose_affine(b, c)));
  EXPECT_NE(compose_affine(a, b), compose_affine(b, a));
}

// Or a comparison of bits across ranks could not fail.
TEST(Reference, inputs_that_round_give_other_bits_in_another_order) {
  for (const auto& [op, type] : every_combination()) {
    const Reference reference({.type = type, .op = op, .rank_count = 3, .seed = 1});
    const bool floating_arithmetic =
        is_floating(type) && (op == BuiltIn::sum || op == BuiltIn::product);
    EXPECT_EQ(reference.can_round(), floating_arithmetic);
    if (!reference.can_round()) continue;
    const Reduction reduction = reduction_for(op, type);
    std::vector<std::byte> ranks[3];
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      ranks[rank].resize(count * element_bytes(type));
      reference.contribution_that_rounds(rank, 1, ranks[rank]);
    }
    auto left = ranks[1], right = ranks[2];  // (0 o 1) o 2 and 0 o (1 o 2)
    reduction.combine(ranks[0].data(), left.data(), count, nullptr);
    reduction.combine(left.data(), right.data(), count, nullptr);
    auto other = ranks[2];
    reduction.combine(ranks[1].data(), other.data(), count, nullptr);
    reduction.combine(ranks[0].data(), other.data(), count, nullptr);
    EXPECT_NE(std::memcmp(right.data(), other.data(), other.size()), 0);
  }
}

}  // namespace
}  // namespace tutti::bench
