// The values of the verifier.  A value says whose contributions a register holds, in which order
// and how they are associated.  Values are immutable and live in one pool, so that copying one,
// which is what a message does, costs nothing.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace tutti::plan {

/// Consecutive ranks, both ends included.
struct Span {
  std::uint32_t first;
  std::uint32_t last;
};

/// A run of the pool's spans, leftmost operand first; undefined if it is empty.
struct Value {
  std::size_t begin = 0;
  std::uint32_t count = 0;
  std::uint32_t expression = 0;  // equal for equal trees: operands, their order, association
  std::uint16_t part = 0;        // of the user's payload
  bool defined() const { return count > 0; }
};

class Pool {
 public:
  /// With `as_sets` order and repetition are forgotten, which keeps values short.
  Pool(bool as_sets, std::uint32_t rank_count) : as_sets_(as_sets), rank_count_(rank_count) {}

  std::span<const Span> spans(Value value) const {
    assert(value.begin + value.count <= spans_.size());
    return {spans_.data() + value.begin, value.count};
  }

  Value contribution(std::uint32_t rank, std::uint16_t part = 0) {
    assert(rank < rank_count_);
    spans_.push_back({rank, rank});
    return {spans_.size() - 1, 1, rank, part};
  }

  /// left o right.
  Value combined(Value left, Value right) {
    assert(left.defined());
    assert(right.defined());
    scratch_.assign(spans(left).begin(), spans(left).end());
    scratch_.insert(scratch_.end(), spans(right).begin(), spans(right).end());
    if (as_sets_) std::sort(scratch_.begin(), scratch_.end(), by_first);
    const std::size_t begin = spans_.size();
    for (const Span span : scratch_) append(begin, span);
    return {begin, static_cast<std::uint32_t>(spans_.size() - begin),
            expression(left.expression, right.expression), right.part};
  }

  /// `whole` without the contributions of `taken`, as an unordered collection; nullopt if it does
  /// not have them all.
  std::optional<Value> without(Value taken, Value whole) {
    std::vector<int> counts(rank_count_);
    for (const Span span : spans(whole))
      for (std::uint32_t rank = span.first; rank <= span.last; ++rank) ++counts[rank];
    for (const Span span : spans(taken))
      for (std::uint32_t rank = span.first; rank <= span.last; ++rank)
        if (--counts[rank] < 0) return {};
    const std::size_t begin = spans_.size();
    for (std::uint32_t rank = 0; rank < rank_count_; ++rank)
      for (; counts[rank] > 0; --counts[rank]) append(begin, {rank, rank});
    // A tree of its own: sums of floating-point numbers do not get back what was added.
    const auto tree = expression(UINT32_MAX - taken.expression, whole.expression);
    return Value{begin, static_cast<std::uint32_t>(spans_.size() - begin), tree, whole.part};
  }

  /// The fixed tree over `count` ranks from `first` on: the largest power of two below `count` to
  /// the left, the rest to the right.
  std::uint32_t canonical_expression(std::uint32_t first, std::uint32_t count) {
    if (count == 1) return first;
    const std::uint32_t left = std::bit_floor(count - 1);
    const std::uint32_t left_tree = canonical_expression(first, left);
    return expression(left_tree, canonical_expression(first + left, count - left));
  }

  static bool by_first(Span left, Span right) { return left.first < right.first; }

 private:
  /// The number of the tree (left o right); the ranks have the first numbers.
  std::uint32_t expression(std::uint32_t left, std::uint32_t right) {
    const auto number = static_cast<std::uint32_t>(rank_count_ + expressions_.size());
    return expressions_.try_emplace({left, right}, number).first->second;
  }

  void append(std::size_t begin, Span span) {
    const bool joins = spans_.size() > begin && (as_sets_ ? span.first <= spans_.back().last + 1
                                                          : span.first == spans_.back().last + 1);
    if (joins)
      spans_.back().last = std::max(spans_.back().last, span.last);
    else
      spans_.push_back(span);
  }

  bool as_sets_;
  std::uint32_t rank_count_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> expressions_;
  std::vector<Span> spans_;
  std::vector<Span> scratch_;
};

}  // namespace tutti::plan
