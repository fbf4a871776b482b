// See ring_allgather.hpp.  At every rank, piece q comes into slot q; slots of answers follow.
#include "plan/ring_allgather.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>
#include <vector>

#include "plan/nodes.hpp"
#include "plan/per_round.hpp"
#include "plan/steps.hpp"
#include "plan/windows.hpp"

namespace tutti::plan {
namespace {

struct Place {
  std::uint32_t node = 0;
  std::uint32_t lane = 0;  // which rank of its node, in rank order
};

class Builder {
 public:
  Builder(Rank self, std::span<const std::uint16_t> pieces, std::span<const Node> node_of)
      : members_(members_of_nodes(static_cast<std::uint32_t>(pieces.size()), node_of)),
        place_(pieces.size()),
        first_(pieces.size() + 1) {
    for (std::uint32_t node = 0; node < node_count(); ++node)
      for (std::uint32_t lane = 0; lane < lane_count(); ++lane)
        place_[index_of(members_[node].at(lane))] = {node, lane};
    std::inclusive_scan(pieces.begin(), pieces.end(), first_.begin() + 1, std::plus<>(),
                        std::uint32_t{0});
    assert(*std::min_element(pieces.begin(), pieces.end()) > 0);
    const std::uint32_t answers_max = node_count() > 1 ? first_.back() / window : 0;
    assert(first_.back() + answers_max <= slots_max);
    plan_.self = self;
    plan_.rank_count = static_cast<std::uint32_t>(pieces.size());
    plan_.algorithm = "ring_allgather";
    plan_.all_alike = false;
    plan_.is_pipeline = true;
    plan_.parts = static_cast<std::uint16_t>(first_.back());
    plan_.line_slot_count = static_cast<std::uint16_t>(answers_max);
    plan_.slot_count = static_cast<std::uint16_t>(first_.back() + answers_max);
    if (answers_max > 0) plan_.incoming_max = incoming_of_windows;
    for (std::uint32_t rank = 0; rank < pieces.size(); ++rank)
      plan_.owners.insert(plan_.owners.end(), pieces[rank], Rank{rank});
    plan_.per_round.assign(plan_.rank_count > 1 ? 1 : 0, messages_max());
    partial_of_.assign(plan_.parts, no_partial);
  }

  Plan build() && {
    for_pieces(plan_.self, [&](std::uint16_t piece, std::uint32_t) {
      steps_.begin_part(piece);
      if (plan_.rank_count > 1) (void)sendable(piece);
      tell_others(piece);
      steps_.copy(source_register, target_register);
    });
    pass_on();
    for (std::uint32_t distance = 0; distance < node_count(); ++distance)
      for (std::uint32_t lane = 0; lane < lane_count(); ++lane)
        if (lane != own_lane())
          for_lane(distance, lane, [&](std::uint16_t piece, Rank owner) {
            if (owner == plan_.self) return;
            await(piece, distance == 0 ? owner : members_[own_node()][lane]);
            steps_.copy(slot_register(piece), target_register);
          });
    return std::move(plan_);
  }

 private:
  static constexpr std::uint16_t no_partial = UINT16_MAX;

  std::uint32_t node_count() const { return static_cast<std::uint32_t>(members_.size()); }
  std::uint32_t lane_count() const { return static_cast<std::uint32_t>(members_.front().size()); }
  std::uint32_t own_node() const { return place_[index_of(plan_.self)].node; }
  std::uint32_t own_lane() const { return place_[index_of(plan_.self)].lane; }
  Rank ahead() const { return members_[(own_node() + 1) % node_count()][own_lane()]; }
  Rank behind() const {
    return members_[(own_node() + node_count() - 1) % node_count()][own_lane()];
  }

  /// f(piece, lane) for the pieces of a rank's block.
  template <class F>
  void for_pieces(Rank owner, F&& f) const {
    const std::uint32_t begin = first_[index_of(owner)], end = first_[index_of(owner) + 1];
    for (std::uint32_t piece = begin; piece < end; ++piece)
      f(static_cast<std::uint16_t>(piece),
        (place_[index_of(owner)].lane + piece - begin) % lane_count());
  }

  /// f(piece, owner) for what comes from the node so far behind, on that lane.
  template <class F>
  void for_lane(std::uint32_t distance, std::uint32_t wanted, F&& f) const {
    for (const Rank owner : members_[(own_node() + node_count() - distance) % node_count()])
      for_pieces(owner, [&](std::uint16_t piece, std::uint32_t lane) {
        if (lane == wanted) f(piece, owner);
      });
  }

  /// What this rank passes on, and what comes to it on its lane.  One loop sends one piece and
  /// takes one that was sent half a window ago, which has come meanwhile, so that answers come
  /// before the next window needs them; a whole window ago while it sends what its node holds, as
  /// what comes then may be short and late; earlier what is sent next.  Whatever is waited for, a
  /// piece or an answer, was sent in an earlier loop: nobody waits in a circle.
  void pass_on() {
    if (node_count() == 1) return take_from_neighbours();
    std::vector<std::uint16_t> out, in;
    for (std::uint32_t distance = 0; distance < node_count(); ++distance)
      for_lane(distance, own_lane(), [&](std::uint16_t piece, Rank) {
        if (distance > 0) in.push_back(piece);
        if (distance + 1 < node_count()) out.push_back(piece);
      });
    std::uint32_t of_node = 0;  // of this one: they are sent first
    for_lane(0, own_lane(), [&](std::uint16_t, Rank) { ++of_node; });
    std::uint32_t taken = 0, finished = 0;
    const auto take_up_to = [&](std::uint32_t end) {
      for (; taken < end; ++taken) {
        await(in[taken], behind());
        if (lane_count() > 1 || of_node + taken < out.size()) (void)sendable(in[taken]);
        if ((taken + 1) % window == 0 && taken + 1 + window < in.size())
          steps_.put(behind(), answer_slot(taken / window), 0);
      }
    };
    for (std::uint32_t loop = 0; loop < std::max(out.size(), in.size() + window); ++loop) {
      if (loop < out.size()) {
        if (loop >= of_node)
          take_up_to(std::max(taken, loop - of_node + 1));
        else
          take_from_neighbour(out[loop]);
        steps_.begin_part(out[loop]);
        if (loop % window == 0 && loop >= 2 * window)
          steps_.await(ahead(), answer_slot(loop / window - 2), 0);
        put(ahead(), out[loop]);
      }
      const std::uint32_t lag = loop < of_node ? window : window / 2;
      if (loop + 1 > lag)
        take_up_to(
            std::max(taken, std::min(loop + 1 - lag, static_cast<std::uint32_t>(in.size()))));
      for (; finished < taken; ++finished) {
        steps_.begin_part(in[finished]);
        tell_others(in[finished]);
        steps_.copy(slot_register(in[finished]), target_register);
      }
    }
  }

  /// A piece of this node, if it is another rank's.
  void take_from_neighbour(std::uint16_t piece) {
    if (plan_.owners[piece] == plan_.self) return;
    await(piece, plan_.owners[piece]);
    steps_.copy(slot_register(piece), target_register);
  }
  void take_from_neighbours() {
    for_lane(0, own_lane(), [&](std::uint16_t piece, Rank) { take_from_neighbour(piece); });
  }

  std::uint16_t answer_slot(std::uint32_t answer) const {
    return static_cast<std::uint16_t>(plan_.parts + answer);
  }

  void await(std::uint16_t piece, Rank from) {
    steps_.begin_part(piece);
    steps_.await(from, piece, 1);
  }

  /// Of this node, by who has the piece before them.
  void tell_others(std::uint16_t piece) {
    for (const Rank other : members_[own_node()])
      if (other != plan_.self) put(other, piece);
  }

  Register sendable(std::uint16_t piece) {
    std::uint16_t& partial = partial_of_[piece];
    if (partial == no_partial) {
      partial = plan_.partial_count++;
      steps_.copy(is_own(piece) ? source_register : slot_register(piece),
                  partial_register(partial));
    }
    return partial_register(partial);
  }

  void put(Rank peer, std::uint16_t piece) {
    const Register from = sendable(piece);
    if (is_own(piece))
      steps_.put(peer, piece, 1, from);
    else
      steps_.forward(peer, piece, from);
  }

  bool is_own(std::uint16_t piece) const { return plan_.owners[piece] == plan_.self; }

  /// Of the rank that sends or hears most, answers among them.
  std::uint32_t messages_max() const {
    std::vector<std::uint32_t> sent(place_.size());
    for (std::uint32_t owner = 0; owner < place_.size(); ++owner)
      for_pieces(Rank{owner}, [&](std::uint16_t, std::uint32_t lane) {
        sent[owner] += lane_count() - 1;
        for (std::uint32_t distance = 0; distance < node_count(); ++distance) {
          const std::uint32_t node = (place_[owner].node + distance) % node_count();
          std::uint32_t& count = sent[index_of(members_[node][lane])];
          if (distance + 1 < node_count()) ++count;
          if (distance > 0) count += lane_count() - 1;
        }
      });
    std::uint32_t most = 0;
    for (std::uint32_t rank = 0; rank < place_.size(); ++rank)
      most = std::max({most, sent[rank], first_.back() - (first_[rank + 1] - first_[rank])});
    return most + plan_.line_slot_count;
  }

  std::vector<std::vector<Rank>> members_;
  std::vector<Place> place_;               // of each rank
  std::vector<std::uint32_t> first_;       // piece of each rank's block, and the number of all
  std::vector<std::uint16_t> partial_of_;  // of each piece that was sent
  Plan plan_;
  StepWriter steps_{plan_};
};

}  // namespace

Plan ring_allgather(Rank self, std::span<const std::uint16_t> pieces,
                    std::span<const Node> node_of) {
  return Builder(self, pieces, node_of).build();
}

}  // namespace tutti::plan
