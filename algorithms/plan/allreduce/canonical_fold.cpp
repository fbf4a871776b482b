// See canonical_fold.hpp.
#include "plan/allreduce/canonical_fold.hpp"

#include <algorithm>
#include <cassert>

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
    const auto other = std::find_if(waiting_.begin(), waiting_.end(),
                                    [&](const Value& waiting) { return waiting.block == sibling; });
    if (other == waiting_.end()) {
      waiting_.push_back(value);
      return;
    }
    const Value half = *other;
    *other = waiting_.back();
    waiting_.pop_back();
    value = sibling.first < value.block.first ? joined(half, value) : joined(value, half);
  }
  if (!value.is_own) steps_.copy(value.at, result.at);
}

const CanonicalFold::Value& CanonicalFold::result_with(Block block) const {
  const auto result = std::find_if(results_.begin(), results_.end(), [&](const Value& one) {
    return one.block.first <= block.first && block.end() <= one.block.end();
  });
  assert(result != results_.end());
  return *result;
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
