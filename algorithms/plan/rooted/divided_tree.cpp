#include "plan/rooted/divided_tree.hpp"

#include <algorithm>
#include <cassert>

namespace tutti::plan {
namespace {

/// f(0), f(1), ... up to the first that is at least `count`, and at least f(latency - 1).
std::vector<std::uint64_t> fibonacci_numbers(std::uint32_t count, std::uint32_t latency) {
  std::vector<std::uint64_t> numbers(latency, 1);
  while (numbers.back() < count)
    numbers.push_back(numbers.back() + numbers[numbers.size() - latency]);
  return numbers;
}

}  // namespace

std::vector<std::uint32_t> subtree_sizes(std::uint32_t count, const Branching& branching) {
  assert(count >= 1 && branching.rule != Branching::Rule::fans);
  assert(branching.latency >= 1 && branching.latency <= latency_max);
  std::vector<std::uint32_t> sizes;
  std::vector<std::uint64_t> numbers = fibonacci_numbers(count, branching.latency);
  for (std::uint64_t left = count; left > 1; left = numbers.back()) {
    numbers.pop_back();
    sizes.push_back(static_cast<std::uint32_t>(left - numbers.back()));
  }
  std::sort(sizes.begin(), sizes.end());  // the capacities are in the same order
  return sizes;
}

PerRound children_by_level(std::uint32_t count, const Branching& branching) {
  PerRound children;
  while (count > 1) {
    const std::vector<std::uint32_t> sizes = subtree_sizes(count, branching);
    children.insert(children.begin(), static_cast<std::uint32_t>(sizes.size()));
    count = *std::max_element(sizes.begin(), sizes.end());
  }
  return children;
}

}  // namespace tutti::plan
