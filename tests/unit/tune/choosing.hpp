// What the tests of choices share: requests, and what is chosen for them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <tutti/status.hpp>
#include <vector>

#include "asked.hpp"

namespace tutti::tune {

inline double noise(double left, double right) {
  return left + 0.5 * right;
}

inline Asked request(BuiltIn op, ElementType type, Agreement agreement) {
  Asked asked;
  asked.element_count = 1;
  asked.reduction =
      op == BuiltIn::none ? elementwise<double, noise>({}) : built_in_reduction(op, type);
  asked.agreement = agreement;
  return asked;
}

inline std::string taken(const Asked& asked, std::uint32_t rank_count = 12) {
  return allreduce_plan(Rank{0}, rank_count, asked).algorithm;
}

inline void expect_refused(ErrorCode code, const std::function<void()>& ask,
                           const std::vector<std::string>& words) {
  try {
    ask();
    ADD_FAILURE() << "accepted: " << words[0];
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    for (const std::string& word : words)
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
          << error.what() << "\n does not say: " << word;
  }
}

/// `count` nodes of `size` ranks that follow each other, or are dealt out in turn.
inline std::vector<Node> nodes_of(std::uint32_t count, std::uint32_t size, bool is_cyclic = false) {
  std::vector<Node> node_of;
  for (std::uint32_t rank = 0; rank < count * size; ++rank)
    node_of.push_back(Node{is_cyclic ? rank % count : rank / size});
  return node_of;
}

/// Node after node.
inline std::vector<Node> nodes_of(const std::vector<std::uint32_t>& sizes) {
  std::vector<Node> nodes;
  for (std::uint32_t node = 0; node < sizes.size(); ++node)
    nodes.insert(nodes.end(), sizes[node], Node{node});
  return nodes;
}

}  // namespace tutti::tune
