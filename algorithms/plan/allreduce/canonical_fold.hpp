// Folds values along the canonical tree as they become available, whatever their order: as soon as
// both halves of a block are there, they are combined.  Builders add values and say where results
// have to go; the fold writes the steps.
//
// Registers.  A value is only read where it is added; the first combination with a value to its
// left copies it, and from then on the copy grows.  What ends at the end of a result grows where
// the result is to go, anything else in a scratch payload.  Values that are added in the order of
// the ring leave at most 2 log2 P blocks unfinished at any time, and so as many scratch payloads.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/allreduce/canonical_tree.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {

/// Scratch for values on their way, in partials of `payloads` payloads from `first_partial` on.  It
/// is never put, so it may be written again and again.
class ScratchPayloads {
 public:
  ScratchPayloads(std::uint16_t first_partial, std::uint16_t payloads)
      : first_partial_(first_partial), payloads_(payloads) {}

  Register take();
  void give_back(Register payload) { free_.push_back(payload); }

  /// The number of partials of the plan, with these.
  std::uint16_t partial_count() const;

 private:
  std::uint16_t first_partial_;
  std::uint16_t payloads_;
  std::uint32_t count_ = 0;  // the most that were handed out at the same time
  std::vector<Register> free_;
};

class CanonicalFold {
 public:
  CanonicalFold(CanonicalTree tree, StepWriter& steps, ScratchPayloads& scratch)
      : tree_(tree), steps_(steps), scratch_(scratch) {}

  /// A result that is wanted, and where.  To be said of all results before anything is added.
  void want(Block block, Register at) { results_.push_back({block, at}); }

  /// A value that is there from now on.  Every rank of the results is added exactly once.
  void add(Block block, Register at);

 private:
  struct Value {
    Block block;
    Register at;
    bool is_own = false;  // may grow where it is
  };

  const Value& result_with(Block block) const;
  Value joined(Value left, Value right);

  CanonicalTree tree_;
  StepWriter& steps_;
  ScratchPayloads& scratch_;
  // Both are few, so that they are looked through from one end to the other.
  std::vector<Value> results_ = {};
  std::vector<Value> waiting_ = {};  // for their siblings
};

}  // namespace tutti::plan
