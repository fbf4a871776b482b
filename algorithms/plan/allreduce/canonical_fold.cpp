// See canonical_fold.hpp.
#include "plan/allreduce/canonical_fold.hpp"

#include <cassert>
#include <iterator>

namespace tutti::plan {

Register ScratchPayloads::take() {
  if (!free_.empty()) {
    const Register payload = free_.back();
    free_.pop_back();
    return payload;
  }
  const std::uint32_t index = count_++;
  return partial_register(static_cast<std::uint16_t>(first_partial_ + index / payloads_),
                          static_cast<std::uint16_t>(index % payloads_));
}

std::uint16_t ScratchPayloads::partial_count() const {
  return static_cast<std::uint16_t>(first_partial_ + (count_ + payloads_ - 1) / payloads_);
}

void CanonicalFold::add(Block block, Register at) {
  const Value& result = result_with(block);
  Value value{block, at};
  while (value.block != result.block) {
    const Block sibling = *tree_.sibling(value.block);
    const auto other = waiting_.find(sibling.first);
    if (other == waiting_.end() || other->second.block != sibling) {
      waiting_.emplace(value.block.first, value);
      return;
    }
    const Value half = other->second;
    waiting_.erase(other);
    value = sibling.first < value.block.first ? joined(half, value) : joined(value, half);
  }
  if (!value.is_own) steps_.copy(value.at, result.at);
}

const CanonicalFold::Value& CanonicalFold::result_with(Block block) const {
  const auto above = results_.upper_bound(block.first);
  assert(above != results_.begin() && std::prev(above)->second.block.end() >= block.end());
  return std::prev(above)->second;
}

CanonicalFold::Value CanonicalFold::joined(Value left, Value right) {
  const Value& result = result_with(right.block);
  if (!right.is_own) {
    const bool is_last = right.block.end() == result.block.end();
    const Register copy = is_last ? result.at : scratch_.take();
    steps_.copy(right.at, copy);
    right = {right.block, copy, true};
  }
  steps_.combine(left.at, right.at);
  if (left.is_own) scratch_.give_back(left.at);
  right.block = {left.block.first, left.block.count + right.block.count};
  return right;
}

}  // namespace tutti::plan
