// The canonical tree spelled out node by node, for tests; found without the code under test.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "plan/allreduce/canonical_tree.hpp"

namespace tutti::plan::test {

/// All nodes as (first, end); nodes that cover the same ranks are one.
inline std::set<std::pair<std::uint32_t, std::uint32_t>> naive_nodes(std::uint32_t rank_count) {
  std::set<std::pair<std::uint32_t, std::uint32_t>> nodes;
  for (std::uint32_t size = 1;; size *= 2) {
    for (std::uint32_t first = 0; first < rank_count; first += size)
      nodes.insert({first, std::min(first + size, rank_count)});
    if (size >= rank_count) return nodes;
  }
}

/// The nodes within the `length` ranks that end at `last`, without those within another, in the
/// order of the ring.
inline std::vector<Block> naive_blocks(
    const std::set<std::pair<std::uint32_t, std::uint32_t>>& nodes, std::uint32_t rank_count,
    std::uint32_t last, std::uint32_t length) {
  const auto age = [&](std::uint32_t rank) { return (last + rank_count - rank) % rank_count; };
  std::vector<std::pair<std::uint32_t, std::uint32_t>> known;
  for (const auto& [first, end] : nodes) {
    bool all = true;
    for (std::uint32_t rank = first; rank < end; ++rank) all = all && age(rank) < length;
    if (all) known.push_back({first, end});
  }
  std::vector<Block> blocks;
  for (const auto& node : known)
    if (std::none_of(known.begin(), known.end(), [&](const auto& other) {
          return other != node && other.first <= node.first && node.second <= other.second;
        }))
      blocks.push_back({node.first, node.second - node.first});
  std::sort(blocks.begin(), blocks.end(), [&](const Block& left, const Block& right) {
    return age(left.first) > age(right.first);
  });
  return blocks;
}

}  // namespace tutti::plan::test
