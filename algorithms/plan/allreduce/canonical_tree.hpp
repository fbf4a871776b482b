// The canonical tree: one association of 0 o 1 o ... o P-1 that depends on P alone.  A schedule
// that folds along it gives the same bits on every rank, whatever its messages are, and keeps rank
// order.
//
// Idea.  Node (e, i) covers the ranks [i 2^e, (i+1) 2^e), clipped at P, and is the fold of the
// nodes (e-1, 2i) and (e-1, 2i+1); where the right one is beyond P it is the left one.  What a rank
// knows is the fold of some of the ranks, and as long as it may not fold any further along the tree
// it keeps several values: the largest nodes within the ranks it knows, called blocks here.
//
// P = 5:             ranks 3, 4, 0 (they wrap) are the blocks 3 | 4 | 0
//   0   1   2   3   4      ranks 4, 0, 1     are the blocks 4 | 01
//   [0 o 1] [2 o 3]  |     ranks 0 .. 3      are the block  0123
//   [  o       ]     |     ranks 1 .. 4      are the blocks 1 | 23 | 4
//   [       o       ]
//
// Literature: Balaji, Kimpe 2013 ("On the reproducibility of MPI reduction operations") on what a
// result that does not depend on the schedule costs.
#pragma once

#include <cstdint>
#include <optional>
#include <tutti/types.hpp>
#include <vector>

namespace tutti::plan {

/// A node of the tree, by the ranks it covers: nodes that cover the same ranks are one block.
struct Block {
  std::uint32_t first = 0;
  std::uint32_t count = 1;
  std::uint64_t end() const { return std::uint64_t{first} + count; }
  friend bool operator==(const Block&, const Block&) = default;
};

class CanonicalTree {
 public:
  /// Needs at least one rank.
  explicit CanonicalTree(std::uint32_t rank_count);

  Block root() const { return {0, rank_count_}; }

  /// The other half of the least larger block; nullopt: there is none above the root.
  std::optional<Block> sibling(Block block) const;

  /// The largest blocks within the `length` ranks (1 .. P, cyclic) that end at `last`, from left to
  /// right, so that the one with rank P-1 stands before the one with rank 0.
  std::vector<Block> blocks_of(Rank last, std::uint32_t length) const;

  /// blocks_of(last, length).size(), from a few operations.
  std::uint32_t block_count(Rank last, std::uint32_t length) const;

  /// An upper bound of blocks_of(last, length).size() for all `last`, at most 2 log2 P + 1, from a
  /// few operations per bit.  For up to P / 2 ranks it is attained by some rank.
  std::uint32_t blocks_max(std::uint32_t length) const;

 private:
  std::uint32_t blocks_max_across_seam(std::uint32_t length) const;

  std::uint32_t rank_count_;
};

}  // namespace tutti::plan
