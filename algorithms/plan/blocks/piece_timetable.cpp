#include "plan/blocks/piece_timetable.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <numeric>
#include <utility>

#include "plan/core/windows.hpp"

namespace tutti::plan {
namespace {

/// How long a piece travels, in units of the time that it keeps its sender busy.  If pieces take
/// longer than this says, a rank that waits for one holds up others; if they take less, little is
/// lost (virtual time, FDR, 1 MiB in one block, 32 nodes, two trees: 258 us with 2, 183 with 4, 182
/// with 6).  With more, answers would come late.
constexpr std::uint32_t hop = 4;
static_assert(2 * hop <= (windows_in_flight - 1) * window);

/// f(piece, tree, how many of its block come after it) for a node's pieces on a lane.
template <class F>
void for_trees(const LanePieces& pieces, std::uint32_t node, std::uint32_t lane, F&& f) {
  std::vector<std::uint32_t> left(pieces.rank_count());
  pieces.for_lane(node, lane, [&](std::uint16_t, Rank owner) { ++left[index_of(owner)]; });
  pieces.for_lane(node, lane, [&](std::uint16_t piece, Rank owner) {
    --left[index_of(owner)];
    f(piece, left[index_of(owner)] % tree_count, left[index_of(owner)]);
  });
}

}  // namespace

std::vector<std::uint32_t> told_in_tree(PieceRoute route, std::uint32_t tree,
                                        std::uint32_t distance, std::uint32_t node_count) {
  assert(tree < tree_count && distance < node_count);
  const std::uint32_t others = node_count - 1;
  if (route == PieceRoute::ring)
    return distance < others ? std::vector{distance + 1} : std::vector<std::uint32_t>();
  // The other nodes stand at places 1 .. others from left to right: in one tree in the order of
  // their distance, in the other one place further.  So the leaves, at odd places, differ.
  if (others == 0) return {};
  const auto distance_at = [&](std::uint32_t place) { return (place - 1 + tree) % others + 1; };
  if (distance == 0) return {distance_at(std::bit_floor(others))};
  const std::uint32_t place = (distance - 1 + others - tree % others) % others + 1;
  std::vector<std::uint32_t> told;
  std::uint32_t apart = (place & -place) / 2;
  if (apart > 0) told.push_back(distance_at(place - apart));
  while (apart > 0 && place + apart > others) apart /= 2;
  if (apart > 0) told.push_back(distance_at(place + apart));
  return told;
}

LanePieces::LanePieces(std::span<const std::uint16_t> pieces, std::span<const Node> node_of)
    : shares_(static_cast<std::uint32_t>(pieces.size()), node_of), first_(pieces.size() + 1) {
  assert(shares_.are_of_one_size());
  assert(*std::min_element(pieces.begin(), pieces.end()) > 0);
  std::inclusive_scan(pieces.begin(), pieces.end(), first_.begin() + 1, std::plus<>(),
                      std::uint32_t{0});
}

PieceLinks::PieceLinks(const LanePieces& pieces, std::uint32_t lane, PieceRoute route)
    : route_(route), node_count_(pieces.node_count()) {
  for (std::uint32_t tree = 0; tree < tree_count; ++tree)
    for (std::uint32_t distance = 0; distance < node_count_; ++distance) {
      told_.push_back(told_in_tree(route, tree, distance, node_count_));
      for (const std::uint32_t told : told_.back()) offsets_.push_back(offset(distance, told));
    }
  std::sort(offsets_.begin(), offsets_.end());
  offsets_.erase(std::unique(offsets_.begin(), offsets_.end()), offsets_.end());
  messages_.resize(offsets_.size() * node_count_);
  for (std::uint32_t node = 0; node < node_count_; ++node) {
    std::array<std::uint32_t, tree_count> down{};
    for_trees(pieces, node, lane,
              [&](std::uint16_t, std::uint32_t tree, std::uint32_t) { ++down[tree]; });
    for (std::uint32_t tree = 0; tree < tree_count; ++tree)
      for (std::uint32_t distance = 0; distance < node_count_; ++distance)
        for (const std::uint32_t told : told_at(tree, distance))
          messages_[link(ahead(node, distance), ahead(node, told))] += down[tree];
  }
}

std::size_t PieceLinks::link(std::uint32_t from, std::uint32_t to) const {
  const auto place = std::lower_bound(offsets_.begin(), offsets_.end(), offset(from, to));
  assert(place != offsets_.end());
  return from * offsets_.size() + static_cast<std::size_t>(place - offsets_.begin());
}

std::uint32_t PieceLinks::first_answer(std::size_t link) const {
  std::uint32_t first = 0;
  for (std::size_t before = link - link % offsets_.size(); before < link; ++before)
    first += answer_count(messages_[before]);
  return first;
}

void PieceLinks::add(Sums& sums, std::size_t link) const {
  sums.messages += messages_[link];
  sums.answers += answer_count(messages_[link]);
}

PieceLinks::Sums PieceLinks::sent_by(std::uint32_t node) const {
  Sums sums;
  for (const std::uint32_t by : offsets_) add(sums, link(node, ahead(node, by)));
  return sums;
}

PieceLinks::Sums PieceLinks::heard_by(std::uint32_t node) const {
  Sums sums;
  for (const std::uint32_t by : offsets_) add(sums, link(ahead(node, node_count_ - by), node));
  return sums;
}

namespace {

/// Simulates all nodes of a lane, and records what one of them does.
class Simulation {
 public:
  Simulation(const LanePieces& pieces, const PieceLinks& links, std::uint32_t lane)
      : links_(links),
        pieces_(pieces.piece_count()),
        waiting_(links.node_count()),
        sent_at_(links.count()),
        coming_(hop + 1) {
    for (std::uint32_t node = 0; node < links.node_count(); ++node)
      for_trees(pieces, node, lane,
                [&](std::uint16_t piece, std::uint32_t tree, std::uint32_t left) {
                  pieces_[piece] = {node, tree, left};
                  queue(node, piece);
                });
  }

  std::vector<PieceEvent> run(std::uint32_t own) && {
    std::vector<PieceEvent> events;
    for (now_ = 0; unsent_ + on_their_way_ > 0; ++now_) {
      for (const Coming& coming : std::exchange(coming_[now_ % coming_.size()], {})) {
        --on_their_way_;
        if (coming.to == own) events.push_back(coming.event);
        queue(coming.to, coming.event.piece);
      }
      for (std::uint32_t node = 0; node < links_.node_count(); ++node) {
        const Waiting next = take_next(node);
        if (next.to == nobody) continue;
        sent_at_[links_.link(node, next.to)].push_back(now_);
        coming_[(now_ + hop) % coming_.size()].push_back({next.to, {false, next.piece, node}});
        ++on_their_way_;
        if (node == own) events.push_back({true, next.piece, next.to});
      }
    }
    return events;
  }

 private:
  static constexpr std::uint32_t nobody = UINT32_MAX;
  /// How many of the waiting messages are looked at; if all of these need answers, the node waits.
  static constexpr std::size_t looked_at_max = 8;

  struct Piece {
    std::uint32_t node = 0;  // where it begins
    std::uint32_t tree = 0;
    std::uint32_t left = 0;
  };
  struct Waiting {
    std::uint32_t urgency = 0;
    std::uint32_t since = 0;
    std::uint16_t piece = 0;
    std::uint32_t to = nobody;
    friend bool operator<(const Waiting& a, const Waiting& b) {  // goes later
      return a.urgency != b.urgency ? a.urgency < b.urgency
             : a.since != b.since   ? a.since > b.since
             : a.piece != b.piece   ? a.piece > b.piece
                                    : a.to > b.to;
    }
  };
  struct Coming {
    std::uint32_t to;
    PieceEvent event;
  };

  /// Queues the messages by which a node passes on a piece that it has now.
  void queue(std::uint32_t node, std::uint16_t piece) {
    const Piece& of = pieces_[piece];
    const std::uint32_t urgency = links_.route() == PieceRoute::ring ? 0 : of.left;
    const std::uint32_t distance = links_.ahead(node, links_.node_count() - of.node);
    for (const std::uint32_t told : links_.told_at(of.tree, distance)) {
      waiting_[node].push_back({urgency, now_, piece, links_.ahead(of.node, told)});
      std::push_heap(waiting_[node].begin(), waiting_[node].end());
      ++unsent_;
    }
  }

  /// The message that a node sends now; to nobody if none may go.
  Waiting take_next(std::uint32_t node) {
    std::vector<Waiting>& waiting = waiting_[node];
    auto end = waiting.end();  // of the heap; messages behind it have to wait
    Waiting taken;
    for (std::size_t looked_at = 0; looked_at < looked_at_max && end != waiting.begin();
         ++looked_at) {
      std::pop_heap(waiting.begin(), end--);
      if (!has_answer(node, end->to)) continue;
      taken = *end;
      end = waiting.erase(end);
      --unsent_;
      break;
    }
    while (end != waiting.end()) std::push_heap(waiting.begin(), ++end);
    return taken;
  }

  /// Whether the answer that the next message needs, if any, has come.
  bool has_answer(std::uint32_t from, std::uint32_t to) const {
    const std::vector<std::uint32_t>& sent_at = sent_at_[links_.link(from, to)];
    const auto number = static_cast<std::uint32_t>(sent_at.size());
    return !awaits_answer(number) || sent_at[taken_before(number) - 1] + 2 * hop <= now_;
  }

  const PieceLinks& links_;
  std::vector<Piece> pieces_;                        // of the lane, by number
  std::vector<std::vector<Waiting>> waiting_;        // at each node, a heap
  std::vector<std::vector<std::uint32_t>> sent_at_;  // on each link
  std::vector<std::vector<Coming>> coming_;          // by time, in turn
  std::uint32_t now_ = 0;
  std::size_t unsent_ = 0, on_their_way_ = 0;
};

}  // namespace

std::vector<PieceEvent> timetable_of(std::uint32_t node, const LanePieces& pieces,
                                     const PieceLinks& links, std::uint32_t lane) {
  return Simulation(pieces, links, lane).run(node);
}

}  // namespace tutti::plan
