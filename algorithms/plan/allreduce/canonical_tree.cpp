// See canonical_tree.hpp.
#include "plan/allreduce/canonical_tree.hpp"

#include <algorithm>
#include <bit>
#include <cassert>

namespace tutti::plan {
namespace {

/// The most bits that two numbers have together, one of them below 2^`width`, whose sum is `sum`.
/// They have the bits of the sum and one more for each carry of the addition.  A carry can start at
/// the lowest zero of the sum (as 1 + 1), below `width`, and be kept alive up to a one of the sum
/// that has to be made of it: the highest, or the first one where only one number has bits.
std::uint32_t bits_of_summands(std::uint64_t sum, int width) {
  if (sum == 0) return 0;
  const int start = std::countr_one(sum);
  const std::uint64_t above = sum >> width;
  const int end = above > 0 ? width + std::countr_zero(above) : 63 - std::countl_zero(sum);
  const int carries = start < std::min(width, end) ? end - start : 0;
  return static_cast<std::uint32_t>(std::popcount(sum) + carries);
}

}  // namespace

CanonicalTree::CanonicalTree(std::uint32_t rank_count) : rank_count_(rank_count) {
  assert(rank_count > 0);
}

std::optional<Block> CanonicalTree::sibling(Block block) const {
  assert(block.count > 0 && block.end() <= rank_count_);
  std::uint64_t size = std::bit_ceil(std::uint64_t{block.count});
  for (; size < rank_count_; size *= 2) {
    assert((block.first & (size - 1)) == 0);
    if ((block.first & size) != 0)
      return Block{static_cast<std::uint32_t>(block.first - size),
                   static_cast<std::uint32_t>(size)};
    const std::uint64_t right = block.first + size;
    if (right < rank_count_)
      return Block{static_cast<std::uint32_t>(right),
                   static_cast<std::uint32_t>(std::min(size, rank_count_ - right))};
    // Nothing to the right: the next larger node covers the same ranks.
  }
  return {};
}

std::vector<Block> CanonicalTree::blocks_of(Rank last, std::uint32_t length) const {
  assert(length > 0 && length <= rank_count_ && index_of(last) < rank_count_);
  if (length == rank_count_) return {root()};
  std::vector<Block> blocks;
  const auto append = [&](std::uint64_t first, std::uint64_t end) {
    while (first < end) {
      // Beyond P there are no ranks, so that a block which reaches P may be any size.
      const std::uint64_t left = end - first;
      const std::uint64_t most = end == rank_count_ ? left : std::bit_floor(left);
      const std::uint64_t size = first == 0 ? most : std::min(first & (~first + 1), most);
      blocks.push_back({static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(size)});
      first += size;
    }
  };
  const std::uint64_t end = std::uint64_t{index_of(last)} + 1;
  if (length > end) append(rank_count_ + end - length, rank_count_);
  append(length > end ? 0 : end - length, end);
  return blocks;
}

// Let `middle` be the multiple of the largest power of two within [first, end].  The ranks from
// first to middle form popcount(middle - first) blocks, and those from middle to end popcount(end -
// middle).  A block that reaches P extends beyond it, as if there were ranks up to a power of two.
std::uint32_t CanonicalTree::block_count(Rank last, std::uint32_t length) const {
  assert(length > 0 && length <= rank_count_ && index_of(last) < rank_count_);
  if (length == rank_count_) return 1;
  const auto until = [&](std::uint64_t first, std::uint64_t end) {
    if (first == end) return 0;
    const std::uint64_t middle = end & ~(std::bit_floor(first ^ end) - 1);
    return std::popcount(middle - first) + std::popcount(end - middle);
  };
  const auto until_last_rank = [&](std::uint64_t first) {
    int count = 0;  // first > 0
    for (; first < rank_count_; first += first & (~first + 1)) ++count;
    return count;
  };
  const std::uint64_t end = std::uint64_t{index_of(last)} + 1;
  return static_cast<std::uint32_t>(length > end ? until_last_rank(rank_count_ + end - length) +
                                                       until(0, end)
                                    : end == rank_count_ ? until_last_rank(end - length)
                                                         : until(end - length, end));
}

// An interval that does not wrap has the most blocks around a multiple of a large power of two: as
// many as a and b, its ranks to the left and to the right of it, have one bits.  An interval of
// more than P / 2 ranks may not fit there, so this is an upper bound.
std::uint32_t CanonicalTree::blocks_max(std::uint32_t length) const {
  assert(length > 0 && length <= rank_count_);
  if (length == rank_count_) return 1;
  return std::max(bits_of_summands(length, 32), blocks_max_across_seam(length));
}

// Ranks that wrap are the last a and the first b = length - a >= 0 of all.  The b have as many
// blocks as b has bits.  The a are the left part of what is left of N = bit_ceil(P); with u = N - P
// ranks missing, a + u ends in a bit d where u has none and agrees with u above, and its bits up to
// d are the blocks.  For every such d: a + u = 2^d + x (mod 2^(d+1)) with x below 2^d.
std::uint32_t CanonicalTree::blocks_max_across_seam(std::uint32_t length) const {
  const std::uint64_t full = std::bit_ceil(std::uint64_t{rank_count_});
  const std::uint64_t missing = full - rank_count_;
  std::uint32_t most = 0;
  for (int d = 0; std::uint64_t{1} << d < full; ++d) {
    const std::uint64_t power = std::uint64_t{1} << d;
    if (power > length + missing) break;                 // and so are all larger ones
    const std::uint64_t sum = length + missing % power;  // of 2^d + x and b
    if ((missing & power) == 0 && sum >= power)
      most = std::max(most, 1 + bits_of_summands(sum - power, d));
  }
  return most;
}

}  // namespace tutti::plan
