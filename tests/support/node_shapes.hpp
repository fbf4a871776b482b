// Ways in which ranks can be spread over nodes.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <tutti/types.hpp>
#include <vector>

namespace tutti::test {

using NodeOf = std::vector<Node>;  // of each rank; nodes are numbered by their lowest rank

/// Every way to cut `rank_count` ranks into nodes that follow each other: 2^(rank_count - 1).
inline std::vector<std::vector<std::uint32_t>> compositions(std::uint32_t rank_count) {
  std::vector<std::vector<std::uint32_t>> all;
  for (std::uint32_t cuts = 0; cuts < std::uint32_t{1} << (rank_count - 1); ++cuts) {
    std::vector<std::uint32_t> sizes{1};
    for (std::uint32_t rank = 1; rank < rank_count; ++rank)
      if ((cuts >> (rank - 1) & 1) != 0)
        sizes.push_back(1);
      else
        ++sizes.back();
    all.push_back(sizes);
  }
  return all;
}

/// Nodes of the given sizes, ranks in order.
inline NodeOf in_blocks(const std::vector<std::uint32_t>& sizes) {
  NodeOf node_of;
  for (std::uint32_t node = 0; node < sizes.size(); ++node)
    node_of.insert(node_of.end(), sizes[node], Node{node});
  return node_of;
}

/// Nodes renamed by their lowest ranks.
inline NodeOf renamed(const NodeOf& given) {
  std::vector<std::uint32_t> name(given.size(), UINT32_MAX);
  std::uint32_t next = 0;
  NodeOf result;
  for (const Node node : given) {
    std::uint32_t& renamed = name[index_of(node)];
    if (renamed == UINT32_MAX) renamed = next++;
    result.push_back(Node{renamed});
  }
  return result;
}

/// Cyclic if `is_cyclic`, else at random, over at most `node_count` nodes.
inline NodeOf placed(std::uint32_t rank_count, std::uint32_t node_count, bool is_cyclic,
                     std::mt19937& random) {
  NodeOf node_of;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank)
    node_of.push_back(
        Node{static_cast<std::uint32_t>(is_cyclic ? rank % node_count : random() % node_count)});
  return renamed(node_of);
}

inline std::string text_of(const NodeOf& node_of) {
  std::string text = "nodes";
  for (const Node node : node_of) {
    text += " ";
    text += std::to_string(index_of(node));
  }
  return text;
}

}  // namespace tutti::test
