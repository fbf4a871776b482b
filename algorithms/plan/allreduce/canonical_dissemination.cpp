// See canonical_dissemination.hpp for the schedule.  Here: which register holds what.
//
//   partials   0 .. K-1   what is known in each round, one each: its blocks from left to right
//              K ..       scratch of the folds
//   slots      in the order of rounds and messages
//
// The source is read once, by the first step, so it may be the target as well.
#include "plan/allreduce/canonical_dissemination.hpp"

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

#include "plan/allreduce/canonical_fold.hpp"
#include "plan/allreduce/canonical_tree.hpp"
#include "plan/core/per_round.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {
namespace {

/// A block that is at hand in a round.
struct Piece {
  Block block;
  Register at;
  std::uint32_t message = 0;  // that brings it, counted from 1; 0: known before
  bool is_read = false;
};

/// Only the largest block is read where one lies within another, and only the first of equal ones.
void choose_pieces(std::vector<Piece>& pieces) {
  std::vector<Piece*> sorted;
  sorted.reserve(pieces.size());
  for (Piece& piece : pieces) sorted.push_back(&piece);
  std::sort(sorted.begin(), sorted.end(), [](const Piece* left, const Piece* right) {
    if (left->block.first != right->block.first) return left->block.first < right->block.first;
    if (left->block.count != right->block.count) return left->block.count > right->block.count;
    return left < right;
  });
  std::uint64_t end = 0;  // blocks are disjoint or nested
  for (Piece* piece : sorted) {
    piece->is_read = piece->block.end() > end;
    end = std::max(end, piece->block.end());
  }
}

class Builder {
 public:
  Builder(Rank self, std::uint32_t rank_count, const PerRound& per_round)
      : rounds_(two_partial_rounds(rank_count, per_round)),
        tree_(rank_count),
        scratch_(static_cast<std::uint16_t>(rounds_.size()), payloads_of(rounds_, tree_)) {
    plan_ = {.self = self, .rank_count = rank_count, .algorithm = "canonical_dissemination"};
    plan_.payloads = payloads_of(rounds_, tree_);
    for (const Round& round : rounds_)
      plan_.slot_count = static_cast<std::uint16_t>(plan_.slot_count + round.messages);
  }

  Plan build() && {
    steps_.copy(source_register, rounds_.empty() ? target_register : partial_register(0));
    for (std::uint32_t round = 0; round < rounds_.size(); ++round) build_round(round);
    plan_.partial_count = scratch_.partial_count();
    return std::move(plan_);
  }

 private:
  /// Alike on all ranks, and found without looking at them.
  static std::uint16_t payloads_of(const std::vector<Round>& rounds, const CanonicalTree& tree) {
    std::uint32_t most = 1;
    for (const Round& round : rounds) most = std::max(most, tree.blocks_max(round.length));
    return static_cast<std::uint16_t>(most);
  }

  void build_round(std::uint32_t index) {
    const std::uint32_t messages = rounds_[index].messages;
    steps_.begin_round(messages);
    put(index);
    std::vector<Piece> pieces;
    for (std::uint32_t message = 0; message <= messages; ++message)
      append_pieces(pieces, index, message);
    choose_pieces(pieces);
    receive(index, pieces);
    first_slot_ = static_cast<std::uint16_t>(first_slot_ + messages);
  }

  void put(std::uint32_t index) {
    const Round& round = rounds_[index];
    const std::size_t payloads = tree_.blocks_of(plan_.self, round.length).size();
    for (std::uint32_t message = 1; message <= round.messages; ++message)
      steps_.put(rank_ahead(plan_.self, offset(index, message), plan_.rank_count), slot(message),
                 static_cast<std::uint16_t>(payloads), partial(index));
  }

  /// The blocks of a message; of number 0, those that are known before the round.
  void append_pieces(std::vector<Piece>& pieces, std::uint32_t index, std::uint32_t message) const {
    Register at = message == 0 ? partial(index) : slot_register(slot(message));
    for (const Block block : tree_.blocks_of(peer(index, message), rounds_[index].length)) {
      pieces.push_back({.block = block, .at = at, .message = message});
      ++at.payload;
    }
  }

  /// Awaits the messages in slot order, and combines what can be after each.
  void receive(std::uint32_t index, const std::vector<Piece>& pieces) {
    CanonicalFold fold(tree_, steps_, scratch_);
    const bool is_last = index + 1 == rounds_.size();
    Register result = is_last ? target_register : partial(index + 1);
    for (const Block block : tree_.blocks_of(plan_.self, grown_length(index))) {
      fold.want(block, result);
      ++result.payload;
    }
    for (auto begin = pieces.begin(); begin != pieces.end();) {
      const std::uint32_t message = begin->message;
      const auto end = std::find_if(begin, pieces.end(),
                                    [&](const Piece& piece) { return piece.message != message; });
      if (message > 0)
        steps_.await(peer(index, message), slot(message), static_cast<std::uint16_t>(end - begin));
      for (; begin != end; ++begin)
        if (begin->is_read) fold.add(begin->block, begin->at);
    }
  }

  std::uint32_t grown_length(std::uint32_t index) const {
    return index + 1 == rounds_.size() ? plan_.rank_count : rounds_[index + 1].length;
  }

  /// Message i travels i lengths, the last one no further than needed.
  std::uint64_t offset(std::uint32_t index, std::uint32_t message) const {
    const std::uint64_t length = rounds_[index].length;
    return std::min(message * length, grown_length(index) - length);
  }

  Rank peer(std::uint32_t index, std::uint32_t message) const {
    return rank_behind(plan_.self, offset(index, message), plan_.rank_count);
  }

  std::uint16_t slot(std::uint32_t message) const {
    return static_cast<std::uint16_t>(first_slot_ + message - 1);
  }
  static Register partial(std::uint32_t index) {
    return partial_register(static_cast<std::uint16_t>(index));
  }

  std::vector<Round> rounds_;
  CanonicalTree tree_;
  ScratchPayloads scratch_;
  Plan plan_;
  StepWriter steps_{plan_};
  std::uint16_t first_slot_ = 0;  // of the round being built
};

}  // namespace

Plan canonical_dissemination_allreduce(Rank self, std::uint32_t rank_count,
                                       const PerRound& per_round) {
  assert(is_executable(rank_count, per_round) && index_of(self) < rank_count);
  return Builder(self, rank_count, per_round).build();
}

}  // namespace tutti::plan
