// What tests of all exchanges have in common.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <tutti/exchange.hpp>
#include <vector>

namespace tutti::test {

/// Contributions arrive whole and in rank order.
inline void gather_bytes(Exchange& exchange, std::size_t bytes) {
  const std::uint32_t ranks = exchange.rank_count();
  std::vector<std::byte> mine(bytes), all(bytes * ranks);
  for (std::size_t position = 0; position < bytes; ++position)
    mine[position] = std::byte(position * 7 + index_of(exchange.self()));
  exchange.allgather(mine, all, std::chrono::seconds(20));
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    std::size_t wrong = 0;
    for (std::size_t position = 0; position < bytes; ++position)
      wrong += all[rank * bytes + position] != std::byte(position * 7 + rank);
    EXPECT_EQ(wrong, 0u) << "of rank " << rank;
  }
}

/// Swaps records with some ranks, one of which does not hold this one for a partner.
inline void swap_records(Exchange& exchange, std::size_t record_bytes) {
  const std::uint32_t self = index_of(exchange.self()), ranks = exchange.rank_count();
  const auto byte_of = [&](std::uint32_t from, std::uint32_t to, std::size_t position) {
    return std::byte(from * 31 + to * 7 + position);
  };
  for (std::uint32_t turn = 0; turn < 3; ++turn) {
    std::vector<Rank> partners;  // in no order
    for (std::uint32_t i = ranks; i-- > 0;)
      if (i != self && !(turn == 1 && self == 1)) partners.push_back(Rank{i});
    std::vector<std::byte> mine(partners.size() * record_bytes);
    std::vector<std::byte> theirs(mine.size(), std::byte{0xee});
    for (std::size_t i = 0; i < mine.size(); ++i)
      mine[i] = byte_of(self, index_of(partners[i / record_bytes]), i % record_bytes);
    exchange.swap(partners, record_bytes, mine, theirs, std::chrono::seconds(20));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < theirs.size(); ++i) {
      const std::uint32_t from = index_of(partners[i / record_bytes]);
      const bool comes = turn != 1 || from != 1;
      wrong += theirs[i] != (comes ? byte_of(from, self, i % record_bytes) : std::byte{0xee});
    }
    EXPECT_EQ(wrong, 0u) << "in turn " << turn;
  }
  exchange.swap({}, record_bytes, {}, {}, std::chrono::seconds(20));
}

/// All ranks compare what is equal, what is not, and what is equal only at its beginning.
inline void compare_bytes(Exchange& exchange, bool tells_equal) {
  const std::uint32_t ranks = exchange.rank_count();
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{5}, (std::size_t{1} << 20) + 3}) {
    std::vector<std::byte> mine(bytes, std::byte{7}), all(bytes * ranks);
    EXPECT_TRUE(exchange.allgather_unless_equal(mine, all, std::chrono::seconds(20)) ||
                !tells_equal)
        << bytes;
    if (bytes == 0) continue;
    mine.back() = std::byte(index_of(exchange.self()));
    EXPECT_FALSE(exchange.allgather_unless_equal(mine, all, std::chrono::seconds(20))) << bytes;
    std::size_t wrong = 0;
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      for (std::size_t i = 0; i < bytes; ++i)
        wrong += all[rank * bytes + i] != (i + 1 < bytes ? std::byte{7} : std::byte(rank));
    EXPECT_EQ(wrong, 0u) << bytes;
  }
}

}  // namespace tutti::test
