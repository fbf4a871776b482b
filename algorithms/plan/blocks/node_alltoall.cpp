#include "plan/blocks/node_alltoall.hpp"

#include <algorithm>
#include <cassert>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "plan/blocks/blocks.hpp"
#include "plan/core/node_shares.hpp"
#include "plan/core/nodes.hpp"
#include "plan/core/per_round.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {
namespace {

std::uint16_t narrow(std::size_t count) {
  assert(count <= std::numeric_limits<std::uint16_t>::max());
  return static_cast<std::uint16_t>(count);
}

/// Sizes that are alike on all ranks: enough for the busiest one.
struct Extent {
  std::uint64_t members = 1;   // ranks of the largest node
  std::uint64_t carried = 0;   // nodes that a rank carries to
  std::uint64_t payloads = 1;  // blocks of the longest message
  std::uint64_t slots() const { return 2 * (members - 1) + carried; }
};

Extent extent_of(std::span<const Node> node_of) {
  std::vector<std::uint64_t> sizes(node_count_of(node_of, 0));
  for (const Node node : node_of) ++sizes[index_of(node)];
  std::sort(sizes.begin(), sizes.end());
  const std::uint64_t others = sizes.size() - 1;
  const auto carried_of = [&](std::uint64_t size) { return (others + size - 1) / size; };
  Extent extent{.members = sizes.back(), .carried = carried_of(sizes.front())};
  if (others > 0) extent.payloads = sizes.back() * sizes[others - 1];
  // A rank that is alone on its node gives nothing to other members.
  const auto shared = std::upper_bound(sizes.begin(), sizes.end(), std::uint64_t{1});
  if (shared != sizes.end())
    extent.payloads = std::max(extent.payloads, carried_of(*shared) * extent.members + 1);
  return extent;
}

class Builder {
 public:
  Builder(Rank self, std::span<const Node> node_of)
      : shares_(static_cast<std::uint32_t>(node_of.size()), node_of),
        node_(shares_.node_of(self)),
        place_(shares_.place_of(self)),
        nodes_(shares_.carried_by(self)) {
    const Extent extent = extent_of(node_of);
    plan_ = {.self = self,
             .rank_count = static_cast<std::uint32_t>(node_of.size()),
             .algorithm = "node_alltoall"};
    plan_.parts = narrow(node_of.size());
    plan_.swaps_blocks = true;
    plan_.all_alike = false;
    plan_.payloads = narrow(extent.payloads);
    plan_.slot_count = narrow(extent.slots());
    const auto others_max = static_cast<std::uint32_t>(extent.members - 1);
    plan_.per_round = {others_max, static_cast<std::uint32_t>(extent.carried), others_max};
    first_of_nodes_ = others_max;
    first_of_porters_ = others_max + extent.carried;
  }

  Plan built() && {
    give_to_porters();
    put_together();
    steps_.set_round(1);
    swap_with_nodes();
    steps_.set_round(2);
    deal_out();
    return std::move(plan_);
  }

 private:
  std::uint16_t slot_of_behind(std::size_t offset) const { return narrow(offset - 1); }
  std::uint16_t slot_of_turn(std::size_t turn) const { return narrow(first_of_nodes_ + turn); }
  std::uint16_t slot_of_porter(std::size_t offset) const {
    return narrow(first_of_porters_ + offset - 1);
  }
  std::span<const Rank> here() const { return shares_.members(node_); }
  std::size_t others() const { return here().size() - 1; }
  std::size_t place_ahead(std::size_t offset) const { return (place_ + offset) % here().size(); }
  std::size_t place_behind(std::size_t offset) const {
    return (place_ + here().size() - offset) % here().size();
  }
  /// The ranks that a porter carries to, node after node.
  std::vector<Rank> ranks_carried(Rank porter) const {
    std::vector<Rank> ranks;
    for (const std::uint32_t node : shares_.carried_by(porter))
      ranks.insert(ranks.end(), shares_.members(node).begin(), shares_.members(node).end());
    return ranks;
  }

  void copy(Rank about, Register from, Register into, std::size_t payloads = 1) {
    steps_.begin_part(part_of(about));
    steps_.copy(from, into, narrow(payloads));
  }

  /// Copies everything that is needed of the source, so that the target, which may be the same
  /// memory, can be written afterwards.  That is the blocks that other porters carry, and this
  /// rank's own blocks for the nodes that it carries to.
  void give_to_porters() {
    for (std::size_t offset = 1; offset <= others(); ++offset) {
      const Rank porter = here()[place_ahead(offset)];
      std::vector<Rank> blocks = ranks_carried(porter);
      blocks.push_back(porter);
      const std::uint16_t given = plan_.partial_count++;
      for (std::size_t i = 0; i < blocks.size(); ++i)
        copy(blocks[i], source_register, partial_register(given, narrow(i)));
      steps_.put(blocks.back(), slot_of_behind(offset), narrow(blocks.size()),
                 partial_register(given));
    }
    first_together_ = plan_.partial_count;
    plan_.partial_count = narrow(first_together_ + nodes_.size());
    for (std::size_t turn = 0; turn < nodes_.size(); ++turn) {
      const std::span<const Rank> there = shares_.members(nodes_[turn]);
      for (std::size_t i = 0; i < there.size(); ++i)
        copy(there[i], source_register, together(turn, place_ * there.size() + i));
    }
    copy(plan_.self, source_register, target_register);
  }

  Register together(std::size_t turn, std::size_t payload = 0) const {
    return partial_register(narrow(first_together_ + turn), narrow(payload));
  }

  void put_together() {
    const std::size_t blocks = ranks_carried(plan_.self).size();
    for (std::size_t offset = 1; offset <= others(); ++offset) {
      const std::size_t place = place_behind(offset);
      const Rank member = here()[place];
      const std::uint16_t slot = slot_of_behind(offset);
      steps_.begin_part(part_of(member));
      steps_.await(member, slot, narrow(blocks + 1));
      std::size_t first = 0;
      for (std::size_t turn = 0; turn < nodes_.size(); ++turn) {
        const std::span<const Rank> there = shares_.members(nodes_[turn]);
        copy(there.back(), slot_register(slot, narrow(first)), together(turn, place * there.size()),
             there.size());
        first += there.size();
      }
      copy(member, slot_register(slot, narrow(first)), target_register);
    }
  }

  /// Sorts the blocks that come from other nodes into a partial for each member of this node.
  void swap_with_nodes() {
    for (std::size_t turn = 0; turn < nodes_.size(); ++turn) {
      const std::span<const Rank> there = shares_.members(nodes_[turn]);
      const NodeShares::Carrier peer = shares_.carrier(nodes_[turn], node_);
      steps_.begin_part(part_of(there.back()));
      steps_.put(peer.rank, slot_of_turn(peer.turn), narrow(here().size() * there.size()),
                 together(turn), true);
    }
    if (nodes_.empty()) return;
    first_dealt_ = plan_.partial_count;
    plan_.partial_count = narrow(first_dealt_ + others());
    std::size_t first = 0;
    for (std::size_t turn = 0; turn < nodes_.size(); ++turn) {
      const std::span<const Rank> there = shares_.members(nodes_[turn]);
      const std::uint16_t slot = slot_of_turn(turn);
      steps_.begin_part(part_of(here().back()));
      steps_.await(shares_.carrier(nodes_[turn], node_).rank, slot,
                   narrow(here().size() * there.size()));
      for (std::size_t i = 0; i < there.size(); ++i) {
        const auto come = [&](std::size_t place) {
          return slot_register(slot, narrow(i * here().size() + place));
        };
        for (std::size_t offset = 1; offset <= others(); ++offset) {
          const std::size_t place = place_ahead(offset);
          copy(here()[place], come(place), dealt(offset, first + i));
        }
        copy(there[i], come(place_), target_register);
      }
      first += there.size();
    }
  }

  Register dealt(std::size_t offset, std::size_t payload = 0) const {
    return partial_register(narrow(first_dealt_ + offset - 1), narrow(payload));
  }

  void deal_out() {
    const std::size_t blocks = ranks_carried(plan_.self).size();
    for (std::size_t offset = 1; blocks > 0 && offset <= others(); ++offset) {
      const Rank member = here()[place_ahead(offset)];
      steps_.begin_part(part_of(member));
      steps_.put(member, slot_of_porter(offset), narrow(blocks), dealt(offset), true);
    }
    for (std::size_t offset = 1; offset <= others(); ++offset) {
      const Rank porter = here()[place_behind(offset)];
      const std::vector<Rank> from = ranks_carried(porter);
      if (from.empty()) continue;
      steps_.begin_part(part_of(plan_.self));
      steps_.await(porter, slot_of_porter(offset), narrow(from.size()));
      for (std::size_t i = 0; i < from.size(); ++i)
        copy(from[i], slot_register(slot_of_porter(offset), narrow(i)), target_register);
    }
  }

  NodeShares shares_;
  std::uint32_t node_, place_;
  std::vector<std::uint32_t> nodes_;  // that this rank carries to
  Plan plan_;
  StepWriter steps_{plan_};
  std::size_t first_of_nodes_ = 0;  // slots
  std::size_t first_of_porters_ = 0;
  std::size_t first_together_ = 0;  // partials
  std::size_t first_dealt_ = 0;
};

}  // namespace

bool is_node_alltoall(std::span<const Node> node_of) {
  constexpr std::uint64_t payloads_max = std::numeric_limits<std::uint16_t>::max();
  if (node_count_of(node_of, 1) == 1) return false;
  const Extent extent = extent_of(node_of);
  return is_block_exchange(static_cast<std::uint32_t>(node_of.size())) &&
         extent.payloads <= payloads_max && 2 * extent.slots() <= slots_max;
}

std::uint64_t node_alltoall_payloads(std::span<const Node> node_of) {
  const Extent extent = extent_of(node_of);
  return extent.slots() * extent.payloads;
}

Plan node_alltoall(Rank self, std::span<const Node> node_of) {
  assert(is_node_alltoall(node_of) && index_of(self) < node_of.size());
  return Builder(self, node_of).built();
}

}  // namespace tutti::plan
