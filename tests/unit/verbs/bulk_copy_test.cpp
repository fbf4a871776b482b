// Large copies: exact with either kind of stores, and with the kind that pays where the two CPUs
// are at the time.
#include <tutti/detail/bulk_copy.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti::detail {
namespace {

/// Ticks that a copy takes.
struct Costs {
  std::uint64_t plain, streaming;
};
// What copies of 1 MiB take, in microseconds; see verbs/soft/DEVICE.md.
constexpr Costs same_core{25, 45}, shared_cache{75, 40}, no_shared_cache{450, 40};

/// How many of that many copies were by streaming stores.
int streamed(FasterOfTwo& choice, Costs costs, int copies) {
  int count = 0;
  for (int copy = 0; copy < copies; ++copy) {
    const Either way = choice.next();
    choice.took(way, 1 << 17, way == Either::usual ? costs.plain : costs.streaming);
    if (way == Either::other) ++count;
  }
  return count;
}

/// As in BulkCopy: the usual way is plain stores, the other one streaming stores.
FasterOfTwo choice_of_stores() {
  return FasterOfTwo(BulkCopy::gain_of_streaming);
}

// On processors on which `rep movsb` is slow at a distance, what is at that distance is copied in
// pieces.
TEST(Copy, is_exact_at_every_distance) {
  constexpr std::size_t longest = 5 * repeated_bytes_min + 3, page = 4096;
  alignas(4096) static std::array<std::byte, longest + page> from, into;
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 167 / 64);
  for (const std::size_t distance : {0u, 1u, 15u, 16u, 31u, 32u, 33u, 64u, 2048u, 4064u, 4095u})
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{1}, repeated_bytes_min - 1, repeated_bytes_min,
          repeated_bytes_min + 1, 2 * repeated_bytes_min, longest}) {
      into.fill(std::byte{0xee});
      std::byte* const target = into.data() + distance;
      copy_in_pieces(target, from.data(), bytes);
      EXPECT_TRUE(std::equal(target, target + bytes, from.begin())) << distance << " " << bytes;
      std::fill(target, target + bytes, std::byte{0xee});
      if (bytes % 2 == 0)
        copy_memory(target, from.data(), bytes);
      else
        move_memory(target, from.data(), bytes);
      const auto is_other = [](std::byte value) { return value != std::byte{0xee}; };
      EXPECT_TRUE(std::equal(target, target + bytes, from.begin())) << distance << " " << bytes;
      EXPECT_TRUE(std::none_of(into.data(), target, is_other)) << distance << " " << bytes;
      EXPECT_TRUE(std::none_of(target + bytes, into.data() + into.size(), is_other))
          << distance << " " << bytes;
    }
}

TEST(Copy, moves_what_overlaps) {
  for (const std::ptrdiff_t distance : {-16, -1, 1, 16, 40}) {
    std::vector<std::byte> bytes(3 * repeated_bytes_min), moved;
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 167 / 64);
    moved = bytes;
    const std::size_t count = bytes.size() - 128;
    move_memory(moved.data() + 64 + distance, moved.data() + 64, count);
    EXPECT_TRUE(std::equal(bytes.begin() + 64,
                           bytes.begin() + 64 + static_cast<std::ptrdiff_t>(count),
                           moved.begin() + 64 + distance))
        << distance;
  }
}

TEST(Copy, knows_the_slow_distances) {
  for (std::uint64_t distance = 0; distance < std::uint64_t{3} * 4096; ++distance)
    EXPECT_EQ(is_slow_distance((1u << 20) + 80 + distance, (1u << 20) + 80),
              distance % 4096 >= 1 && distance % 4096 <= 31)
        << distance;
  EXPECT_TRUE(is_slow_distance(4096, 8191)) << "1 behind, in the page before";
}

// Whatever the processor is, what it says of itself stays the same.
TEST(Copy, is_slow_at_no_distance_but_these) {
  for (const std::uint64_t distance : {0u, 32u, 64u, 4000u})
    EXPECT_FALSE(repeats_slowly((1u << 20) + distance, 1u << 20)) << distance;
  const bool is_slow = repeats_slowly((1u << 20) + 16, 1u << 20);
  for (const std::uint64_t distance : {1u, 31u, 4097u})
    EXPECT_EQ(repeats_slowly((1u << 20) + distance, 1u << 20), is_slow) << distance;
}

TEST(FasterOfTwo, streams_where_the_cpus_share_no_cache_and_there_alone) {
  for (const Costs costs : {same_core, shared_cache}) {
    FasterOfTwo choice = choice_of_stores();
    EXPECT_LT(streamed(choice, costs, 10000), 10000 / 32);
  }
  FasterOfTwo choice = choice_of_stores();
  EXPECT_GT(streamed(choice, no_shared_cache, 10000), 10000 - 10000 / 300);
}

/// In these costs, streaming copies found lines that plain ones had left in the caches.
TEST(FasterOfTwo, streams_between_caches_for_a_smaller_gain) {
  constexpr Costs mixed{100, 45};
  FasterOfTwo usual = choice_of_stores(), between_caches(BulkCopy::gain_between_caches);
  EXPECT_LT(streamed(usual, mixed, 10000), 10000 / 32);
  EXPECT_GT(streamed(between_caches, mixed, 10000), 10000 - 10000 / 32);
}

TEST(FasterOfTwo, takes_as_small_a_gain_as_is_asked_for) {
  constexpr Costs gain{60, 40}, loss{40, 60};
  FasterOfTwo usual = choice_of_stores(), any, none;
  EXPECT_LT(streamed(usual, gain, 10000), 10000 / 32);
  EXPECT_GT(streamed(any, gain, 10000), 10000 - 10000 / 32);
  EXPECT_LT(streamed(none, loss, 10000), 10000 / 32);
}

TEST(FasterOfTwo, tries_the_other_kind_for_ever) {
  for (const Costs costs : {same_core, shared_cache}) {
    FasterOfTwo choice = choice_of_stores();
    streamed(choice, costs, 10000);
    EXPECT_GT(streamed(choice, costs, 10000), 50);
  }
  FasterOfTwo choice = choice_of_stores();
  streamed(choice, {1'000'000, 1}, 10000);
  EXPECT_LT(streamed(choice, {1'000'000, 1}, 2000), 2000);
}

TEST(FasterOfTwo, follows_when_the_ranks_are_moved) {
  FasterOfTwo choice = choice_of_stores();
  streamed(choice, shared_cache, 10000);
  EXPECT_GT(streamed(choice, no_shared_cache, 100), 80);
  streamed(choice, no_shared_cache, 10000);
  streamed(choice, same_core, 2000);
  EXPECT_LT(streamed(choice, same_core, 1000), 1000 / 32);
}

TEST(FasterOfTwo, is_not_changed_by_one_interruption) {
  FasterOfTwo choice = choice_of_stores();
  streamed(choice, same_core, 1000);
  choice.took(Either::usual, 1 << 17, 1'000'000);
  EXPECT_LT(streamed(choice, same_core, 64), 3);
}

TEST(FasterOfTwo, is_not_misled_by_the_first_copy_into_new_memory) {
  for (const auto [plain, streaming] : {Costs{5000, 5000}, Costs{5000, 45}, Costs{25, 5000}})
    for (const Costs costs : {same_core, no_shared_cache}) {
      FasterOfTwo choice = choice_of_stores();
      for (int copy = 0; copy < 2; ++copy) {
        const Either way = choice.next();
        choice.took(way, 1 << 17, way == Either::usual ? plain : streaming);
      }
      streamed(choice, costs, 10);
      const int count = streamed(choice, costs, 100);
      EXPECT_TRUE(costs.plain > 100 ? count > 95 : count < 5) << plain << " " << streaming;
    }
}

TEST(FasterOfTwo, does_not_believe_a_clock_that_goes_back) {
  FasterOfTwo choice = choice_of_stores();
  choice.took(choice.next(), 1 << 17, static_cast<std::uint64_t>(-1000));
  EXPECT_LT(streamed(choice, same_core, 1000), 1000 / 32 + 2);
}

class Bulk : public testing::TestWithParam<Stores> {};

constexpr std::size_t page = 4096, area = BulkCopy::bytes_min + 2 * page;

std::vector<std::byte> numbered(std::size_t count = area) {
  std::vector<std::byte> bytes(count);
  std::uint32_t state = 1;
  for (std::byte& byte : bytes) byte = std::byte((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

TEST_P(Bulk, copies_are_exact_at_every_alignment_and_touch_nothing_else) {
  const std::vector<std::byte> source = numbered();
  BulkCopy copy(GetParam());
  for (std::size_t to = 0; to <= 65; ++to)
    for (const std::size_t from : std::to_array<std::size_t>({0, 1, 8, 15, 16, 63}))
      for (const std::size_t more : std::to_array<std::size_t>({0, 1, 55, 64, 127})) {
        const std::size_t bytes = BulkCopy::bytes_min + more;
        std::vector<std::byte> target(area, std::byte{0xEE}), wanted = target;
        const auto begin = source.begin() + static_cast<std::ptrdiff_t>(from);
        std::copy(begin, begin + static_cast<std::ptrdiff_t>(bytes),
                  wanted.begin() + static_cast<std::ptrdiff_t>(to));
        copy(target.data() + to, source.data() + from, bytes);
        ASSERT_EQ(target, wanted) << to << " " << from << " " << more;
      }
}

TEST_P(Bulk, copies_within_a_buffer_may_overlap) {
  const std::vector<std::byte> before = numbered();
  BulkCopy copy(GetParam());
  for (const std::ptrdiff_t distance : std::to_array<std::ptrdiff_t>({0, 1, 64, 4096})) {
    constexpr std::ptrdiff_t bytes = BulkCopy::bytes_min;
    std::vector<std::byte> up = before, down = before, wanted = before;
    copy(up.data() + distance, up.data(), bytes);
    std::copy(before.begin(), before.begin() + bytes, wanted.begin() + distance);
    EXPECT_EQ(up, wanted) << distance;
    wanted = before;
    copy(down.data(), down.data() + distance, bytes);
    std::copy(before.begin() + distance, before.begin() + distance + bytes, wanted.begin());
    EXPECT_EQ(down, wanted) << distance;
  }
}

TEST(LongCopy, copies_are_exact_in_either_way_and_touch_nothing_else) {
  const std::vector<std::byte> source =
      numbered(LongCopy::bytes_min + LongCopy::piece_bytes + page);
  LongCopy copy;
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, LongCopy::bytes_min - 1, LongCopy::bytes_min,
        LongCopy::bytes_min + 1, LongCopy::bytes_min + LongCopy::piece_bytes})
    for (const std::size_t to : std::to_array<std::size_t>({0, 1, 16}))
      for (const std::size_t from : std::to_array<std::size_t>({0, 16, 63})) {
        std::vector<std::byte> target(source.size(), std::byte{0xEE}), wanted = target;
        const auto begin = source.begin() + static_cast<std::ptrdiff_t>(from);
        std::copy(begin, begin + static_cast<std::ptrdiff_t>(bytes),
                  wanted.begin() + static_cast<std::ptrdiff_t>(to));
        copy(target.data() + to, source.data() + from, bytes);
        ASSERT_TRUE(target == wanted) << to << " " << from << " " << bytes;
      }
#if defined(TUTTI_HAS_STREAMING)
  EXPECT_GT(copy.cost_of_pieces(), 0);  // both ways have been tried
#endif
}

TEST(LongCopy, copies_within_a_buffer_may_overlap) {
  constexpr std::ptrdiff_t bytes = LongCopy::bytes_min;
  const std::vector<std::byte> before = numbered(LongCopy::bytes_min + LongCopy::piece_bytes);
  LongCopy copy;
  for (const std::ptrdiff_t distance :
       std::to_array<std::ptrdiff_t>({0, 1, 4096, LongCopy::piece_bytes})) {
    std::vector<std::byte> up = before, down = before, wanted = before;
    copy(up.data() + distance, up.data(), bytes);
    std::copy(before.begin(), before.begin() + bytes, wanted.begin() + distance);
    EXPECT_TRUE(up == wanted) << distance;
    wanted = before;
    copy(down.data(), down.data() + distance, bytes);
    std::copy(before.begin() + distance, before.begin() + distance + bytes, wanted.begin());
    EXPECT_TRUE(down == wanted) << distance;
  }
}

INSTANTIATE_TEST_SUITE_P(With, Bulk,
                         testing::Values(Stores::automatic, Stores::plain, Stores::streaming),
                         [](const testing::TestParamInfo<Stores>& stores) -> std::string {
                           if (stores.param == Stores::automatic) return "automatic";
                           return stores.param == Stores::plain ? "plain" : "streaming";
                         });

}  // namespace
}  // namespace tutti::detail
