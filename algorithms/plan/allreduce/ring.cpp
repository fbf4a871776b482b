// See ring.hpp.  Message u of round t has slot and partial t C + u, for C sub-blocks.  A message
// of round t is awaited where it is passed on, in round t + 1, so that sub-blocks follow each
// other; those of the last round are awaited in it.
#include "plan/allreduce/ring.hpp"

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

#include "plan/core/nodes.hpp"
#include "plan/core/per_round.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {
namespace {

class Builder {
 public:
  Builder(Rank self, std::uint32_t rank_count, std::uint32_t sub_blocks,
          std::span<const Node> node_of, Buffers buffers)
      : count_(rank_count), sub_blocks_(sub_blocks), zero_copy_(buffers == Buffers::registered) {
    std::vector<Rank> ring;
    for (const std::vector<Rank>& node : members_of_nodes(rank_count, node_of))
      ring.insert(ring.end(), node.begin(), node.end());
    while (ring[position_] != self) ++position_;
    next_ = ring[(position_ + 1) % count_];
    previous_ = ring[(position_ + count_ - 1) % count_];
    plan_ = {.self = self, .rank_count = rank_count, .algorithm = "ring"};
    plan_.parts = static_cast<std::uint16_t>(count_ * sub_blocks_);
    plan_.slot_count = plan_.partial_count =
        static_cast<std::uint16_t>(2 * (count_ - 1) * sub_blocks_);
    if (!zero_copy_) return;
    plan_.zero_copy = true;
    plan_.algorithm = "ring_zero_copy";
    plan_.line_slot_count = plan_.slot_count / 2;
    plan_.partial_count = static_cast<std::uint16_t>(plan_.slot_count / 2);
  }

  Plan build() && {
    if (count_ == 1) {
      for (std::uint32_t u = 0; u < sub_blocks_; ++u) {
        begin_part(0, u);
        steps_.copy(source_register, target_register);
      }
      return std::move(plan_);
    }
    const std::uint32_t rounds = 2 * (count_ - 1);
    // Messages from behind follow from what this rank has sent P - 1 rounds before.
    plan_.incoming_max = std::min(count_ + 1, 2 * rounds) * sub_blocks_;
    plan_.per_round.assign(rounds, sub_blocks_);
    for (std::uint32_t u = 0; u < sub_blocks_; ++u) {
      begin_part(0, u);
      const Register first = zero_copy_ ? source_register : partial_of(0, u);
      if (!zero_copy_) steps_.copy(source_register, first);
      steps_.put(next_, slot_of(0, u), 1, first);
    }
    for (std::uint32_t round = 0; round < rounds; ++round) {
      const bool is_last = round + 1 == rounds;
      steps_.set_round(is_last ? round : round + 1);
      for (std::uint32_t u = 0; u < sub_blocks_; ++u) {
        // Combined in the first half, passed on in the second; a complete sub-block is both.
        begin_part(round + 1, u);
        if (round < count_ - 1)
          grow(round, u);
        else
          receive(round, u);
        if (!is_last) pass_on(round, u);
      }
    }
    if (zero_copy_) steps_.await_sent(next_);
    return std::move(plan_);
  }

 private:
  void grow(std::uint32_t round, std::uint32_t u) {
    const bool is_complete = round == count_ - 2;
    const Register grown = zero_copy_ && is_complete ? target_register : partial_of(round + 1, u);
    steps_.await(previous_, slot_of(round, u), 1);
    steps_.copy(source_register, grown);
    steps_.combine(slot_register(slot_of(round, u)), grown);
    if (is_complete && !zero_copy_) steps_.copy(grown, target_register);
  }

  void receive(std::uint32_t round, std::uint32_t u) {
    if (zero_copy_) return steps_.await_in_target(previous_, slot_of(round, u));
    steps_.await(previous_, slot_of(round, u), 1);
    steps_.copy(slot_register(slot_of(round, u)), target_register);
    if (round + 1 < 2 * (count_ - 1))
      steps_.copy(slot_register(slot_of(round, u)), partial_of(round + 1, u));
  }

  /// The register of what `round` has brought or completed.
  void pass_on(std::uint32_t round, std::uint32_t u) {
    const std::uint16_t slot = slot_of(round + 1, u);
    if (zero_copy_ && round + 1 >= count_ - 1)
      steps_.put_into_target(next_, slot, target_register);
    else
      steps_.put(next_, slot, 1, partial_of(round + 1, u));
  }

  /// Sends block `position - t` in round t, of both halves: in the second from block position + 1
  /// on.
  void begin_part(std::uint32_t round, std::uint32_t u) {
    const std::uint32_t block = (position_ + 2 * count_ - round % (2 * count_)) % count_;
    steps_.begin_part(static_cast<std::uint16_t>(block * sub_blocks_ + u));
  }
  std::uint16_t slot_of(std::uint32_t round, std::uint32_t u) const {
    return static_cast<std::uint16_t>(round * sub_blocks_ + u);
  }
  Register partial_of(std::uint32_t round, std::uint32_t u) const {
    return partial_register(slot_of(round, u));
  }

  std::uint32_t count_;
  std::uint32_t sub_blocks_;
  bool zero_copy_;
  std::uint32_t position_ = 0;
  Rank next_, previous_;
  Plan plan_;
  StepWriter steps_{plan_};
};

}  // namespace

bool is_ring(std::uint32_t rank_count, std::uint32_t sub_blocks) noexcept {
  return rank_count > 0 && sub_blocks > 0 &&
         2 * std::uint64_t{rank_count} * sub_blocks <= slots_max;
}

Plan ring_allreduce(Rank self, std::uint32_t rank_count, std::uint32_t sub_blocks,
                    std::span<const Node> node_of, Buffers buffers) {
  assert(is_ring(rank_count, sub_blocks) && index_of(self) < rank_count);
  return Builder(self, rank_count, sub_blocks, node_of, buffers).build();
}

}  // namespace tutti::plan
