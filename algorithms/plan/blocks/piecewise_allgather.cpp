// See piecewise_allgather.hpp.  At every rank, piece q comes into slot q; slots of answers follow.
#include "plan/blocks/piecewise_allgather.hpp"

#include <algorithm>
#include <cassert>
#include <map>
#include <utility>
#include <vector>

#include "plan/core/peer_stream.hpp"
#include "plan/core/per_round.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {
namespace {

class Builder {
 public:
  Builder(Rank self, const LanePieces& pieces, PieceRoute route)
      : pieces_(pieces),
        links_(links_of_lanes(pieces, route)),
        partial_of_(pieces.piece_count(), no_partial) {
    const std::uint32_t answers = answers_max();
    assert(pieces.piece_count() + answers <= slots_max);
    plan_ = {.self = self,
             .rank_count = pieces.rank_count(),
             .algorithm = route == PieceRoute::ring ? "ring_allgather" : "two_tree_allgather"};
    plan_.all_alike = false;
    plan_.is_pipeline = true;
    plan_.parts = static_cast<std::uint16_t>(pieces.piece_count());
    plan_.line_slot_count = static_cast<std::uint16_t>(answers);
    plan_.slot_count = static_cast<std::uint16_t>(pieces.piece_count() + answers);
    if (pieces.node_count() > 1) plan_.incoming_max = incoming_of_windows;
    for (std::uint32_t rank = 0; rank < plan_.rank_count; ++rank)
      plan_.owners.insert(plan_.owners.end(), pieces.piece_count_of(Rank{rank}), Rank{rank});
    plan_.per_round.assign(plan_.rank_count > 1 ? 1 : 0, messages_max());
  }

  Plan build() && {
    pieces_.for_pieces(plan_.self, [&](std::uint16_t piece, std::uint32_t) {
      steps_.begin_part(piece);
      if (plan_.rank_count > 1) (void)sendable(piece);
      tell_others(piece);
      steps_.copy(source_register, target_register);
    });
    if (pieces_.node_count() > 1)
      pass_on();
    else
      pieces_.for_lane(node(), lane(), [&](std::uint16_t piece, Rank) { take_from_owner(piece); });
    for (std::uint32_t distance = 0; distance < pieces_.node_count(); ++distance)
      for (std::uint32_t other = 0; other < pieces_.lane_count(); ++other)
        if (other != lane()) take_from_lane(distance, other);
    return std::move(plan_);
  }

 private:
  static constexpr std::uint16_t no_partial = UINT16_MAX;

  static std::vector<PieceLinks> links_of_lanes(const LanePieces& pieces, PieceRoute route) {
    std::vector<PieceLinks> links;
    for (std::uint32_t lane = 0; lane < pieces.lane_count(); ++lane)
      links.emplace_back(pieces, lane, route);
    return links;
  }

  const PieceLinks& own_links(Rank self) const { return links_[pieces_.lane_of(self)]; }
  std::uint32_t node() const { return pieces_.node_of(plan_.self); }
  std::uint32_t lane() const { return pieces_.lane_of(plan_.self); }
  Rank rank_at(std::uint32_t node) const { return pieces_.members(node)[lane()]; }
  bool is_own(std::uint16_t piece) const { return plan_.owners[piece] == plan_.self; }

  /// Follows the timetable.  A piece is copied into the target just before the next one is awaited,
  /// after everything that has to be sent at once was sent.
  void pass_on() {
    std::vector<std::uint16_t> taken;
    const auto finish = [&] {
      for (const std::uint16_t piece : std::exchange(taken, {})) {
        steps_.begin_part(piece);
        tell_others(piece);
        steps_.copy(slot_register(piece), target_register);
      }
    };
    for (const PieceEvent& event : timetable_of(node(), pieces_, own_links(plan_.self), lane())) {
      if (event.is_sent) {
        send(event);
        continue;
      }
      finish();
      take(event);
      taken.push_back(event.piece);
    }
    finish();
  }

  void send(const PieceEvent& event) {
    const Rank owner = plan_.owners[event.piece];
    if (pieces_.node_of(owner) == node() && partial_of_[event.piece] == no_partial)
      take_from_owner(event.piece);
    const auto [place, is_new] =
        out_.try_emplace(event.node, steps_, rank_at(event.node), answers_on(node(), event.node));
    OutgoingStream& out = place->second;
    out.begin(event.piece);
    out.put(event.piece, sendable(event.piece), !is_own(event.piece));
  }

  void take(const PieceEvent& event) {
    const PieceLinks& links = own_links(plan_.self);
    const auto [place, is_new] =
        in_.try_emplace(event.node, steps_, rank_at(event.node), answers_on(event.node, node()),
                        links.messages(links.link(event.node, node())));
    place->second.await(event.piece, event.piece);
    place->second.finish();
  }

  /// Takes a piece of another rank of this node, before it is sent.
  void take_from_owner(std::uint16_t piece) {
    if (is_own(piece)) return;
    steps_.begin_part(piece);
    steps_.await(plan_.owners[piece], piece, 1);
    steps_.copy(slot_register(piece), target_register);
  }

  /// Takes the pieces from the node `distance` behind that another rank of this node receives.
  void take_from_lane(std::uint32_t distance, std::uint32_t other) {
    const std::uint32_t from = (node() + pieces_.node_count() - distance) % pieces_.node_count();
    pieces_.for_lane(from, other, [&](std::uint16_t piece, Rank owner) {
      if (owner == plan_.self) return;
      steps_.begin_part(piece);
      steps_.await(distance == 0 ? owner : pieces_.members(node())[other], piece, 1);
      steps_.copy(slot_register(piece), target_register);
    });
  }

  /// Sends a piece to the others of this node.
  void tell_others(std::uint16_t piece) {
    for (const Rank other : pieces_.members(node()))
      if (other != plan_.self) steps_.put(other, piece, 1, sendable(piece), !is_own(piece));
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

  AnswerLines answers_on(std::uint32_t from, std::uint32_t to) const {
    const PieceLinks& links = own_links(plan_.self);
    return {.first = plan_.parts + links.first_answer(links.link(from, to))};
  }

  /// The most answers that any rank awaits.
  std::uint32_t answers_max() const {
    std::uint32_t most = 0;
    for (const PieceLinks& links : links_)
      for (std::uint32_t node = 0; node < pieces_.node_count(); ++node)
        most = std::max(most, links.sent_by(node).answers);
    return most;
  }

  /// The most messages, with answers, that any rank sends or receives.
  std::uint32_t messages_max() const {
    const std::uint32_t others = pieces_.lane_count() - 1;  // of the node
    std::uint32_t most = 0;
    for (std::uint32_t rank = 0; rank < plan_.rank_count; ++rank) {
      const PieceLinks& links = own_links(Rank{rank});
      const PieceLinks::Sums sent = links.sent_by(pieces_.node_of(Rank{rank}));
      const PieceLinks::Sums heard = links.heard_by(pieces_.node_of(Rank{rank}));
      const std::uint32_t own = pieces_.piece_count_of(Rank{rank});
      most = std::max({most, sent.messages + heard.answers + others * (own + heard.messages),
                       pieces_.piece_count() - own + sent.answers});
    }
    return most;
  }

  const LanePieces& pieces_;
  std::vector<PieceLinks> links_;                // of each lane
  std::map<std::uint32_t, OutgoingStream> out_;  // by node
  std::map<std::uint32_t, IncomingStream> in_;
  std::vector<std::uint16_t> partial_of_;  // of each piece that was sent
  Plan plan_;
  StepWriter steps_{plan_};
};

}  // namespace

Plan piecewise_allgather(Rank self, std::span<const std::uint16_t> pieces, PieceRoute route,
                         std::span<const Node> node_of) {
  return Builder(self, LanePieces(pieces, node_of), route).build();
}

}  // namespace tutti::plan
