// Promise: a copy is right for every length and wherever source and target lie, and no place makes
// it many times slower.
#include <tutti/detail/plain_copy.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::detail {
namespace {

constexpr std::size_t page = 4096;

TEST(PlainCopy, copies_what_it_should_and_nothing_else) {
  constexpr std::size_t room = 3 * page;
  std::vector<std::byte> source(room), target(room);
  for (std::size_t i = 0; i < room; ++i) source[i] = static_cast<std::byte>(i * 7 + i / 256);
  const std::size_t to_page = page - reinterpret_cast<std::uintptr_t>(source.data()) % page;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{8}, string_copy_bytes_min - 1,
                                  string_copy_bytes_min, string_copy_bytes_min + 63, page + 33})
    for (std::size_t behind = 0; behind < 70; ++behind) {
      const std::byte* const from = source.data() + to_page % 64;
      const std::size_t shift = (reinterpret_cast<std::uintptr_t>(from) + behind -
                                 reinterpret_cast<std::uintptr_t>(target.data())) %
                                page;
      std::fill(target.begin(), target.end(), std::byte{0xee});
      plain_copy(target.data() + shift, from, bytes);
      ASSERT_TRUE(std::equal(from, from + bytes, target.data() + shift))
          << bytes << " bytes, " << behind << " behind";
      EXPECT_EQ(std::count(target.begin(), target.begin() + std::ptrdiff_t(shift), std::byte{0xee}),
                std::ptrdiff_t(shift));
      EXPECT_EQ(
          std::count(target.begin() + std::ptrdiff_t(shift + bytes), target.end(), std::byte{0xee}),
          std::ptrdiff_t(room - shift - bytes));
    }
}

TEST(PlainCopy, knows_what_lies_close_behind) {
  std::vector<std::byte> memory(4 * page);
  const std::byte* const source = memory.data() + page;
  for (const std::size_t pages : {std::size_t{0}, std::size_t{1}}) {
    const std::byte* const begin = source + pages * page;
    for (const int behind : {1, 16, 31}) EXPECT_TRUE(lies_close_behind(begin + behind, source));
    for (const int behind : {-32, -16, -1, 0, 32, 64, 2048})
      EXPECT_FALSE(lies_close_behind(begin + behind, source)) << behind;
  }
}

/// Two large arrays that malloc has placed one behind the other lie 16 bytes apart, modulo a page.
TEST(PlainCopy, is_not_many_times_slower_to_close_behind) {
#if defined(TUTTI_AVOIDS_STRING_COPIES)
  constexpr std::size_t bytes = 4 * page;
  std::vector<std::byte> memory(4 * bytes);
  const auto least_ticks = [&](std::size_t behind) {
    std::uint64_t least = UINT64_MAX;
    for (int i = 0; i < 200; ++i) {
      const std::uint64_t begin = __builtin_ia32_rdtsc();
      plain_copy(memory.data() + 2 * bytes + behind, memory.data(), bytes);
      least = std::min<std::uint64_t>(least, __builtin_ia32_rdtsc() - begin);
    }
    return least;
  };
  EXPECT_LT(least_ticks(16), 8 * least_ticks(2048));
#else
  GTEST_SKIP() << "plain_copy() is memcpy here";
#endif
}

}  // namespace
}  // namespace tutti::detail
