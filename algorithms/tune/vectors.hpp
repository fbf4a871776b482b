// Messages per round of the least price on a machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <tuple>
#include <vector>

#include "plan/core/per_round.hpp"
#include "plan/cost/loggp.hpp"

namespace tutti::tune {

/// The largest entry of a vector that nobody asks for.  It is no network's: beyond 16 senders to
/// one receiver at a time, what a switch does is less and less what the model says.
inline constexpr std::uint32_t messages_of_round_max = 15;

using RoundPrice = std::function<plan::Picoseconds(const plan::Round&)>;

/// Finds the cheapest vectors for a number of ranks, by several prices in turn.
///
/// It goes from the last round to the first one: a round of r messages leaves ceil(m / (r+1)) of m
/// ranks to the rounds before it, and only the least r of each quotient counts.  Each price is
/// asked once for a round, whatever the limit of entries is.
class VectorSearch {
 public:
  VectorSearch(std::uint32_t rank_count, std::uint32_t partners_max);

  /// The vector that covers the ranks and has the least sum of prices over its rounds; of those the
  /// one of fewest rounds, then fewest messages, then larger entries first.  No rank has more than
  /// `partners_max` partners, if there is such a vector.
  plan::PerRound cheapest(const RoundPrice& price);

 private:
  static constexpr std::size_t none = SIZE_MAX;

  /// Compared in this order.
  struct Cost {
    plan::Picoseconds time = 0;
    std::uint32_t rounds = 0;
    std::uint64_t messages = 0;
    auto key() const { return std::tuple(time, rounds, messages); }
  };
  struct LastRound {
    plan::Round round;
    std::size_t left;  // the state of the rounds before; none: there are none
    plan::Picoseconds price = 0;
  };
  /// So many ranks, with their last rounds among rounds_.
  struct State {
    std::size_t first, end;
    Cost cost = {};
    std::size_t last = 0;
  };

  void add(std::uint32_t ranks);
  std::size_t& index_of(std::uint32_t ranks);
  /// With entries up to `largest`, by the prices of rounds_.
  plan::PerRound best(std::uint32_t largest);

  std::uint32_t messages_max_;
  std::uint32_t last_, root_;
  std::vector<std::size_t> index_;  // of states, or none
  std::vector<State> states_;
  std::vector<LastRound> rounds_;
};

/// Likewise by a single price.
plan::PerRound cheapest_vector(std::uint32_t rank_count, std::uint32_t partners_max,
                               const RoundPrice& price);

using VectorPrice = std::function<plan::Picoseconds(const plan::PerRound&)>;

/// Among more ranks a vector is taken by its price alone: more candidates would take too long.
inline constexpr std::uint32_t close_vectors_ranks_max = 128;

/// Vectors that may be faster than those of `known`, although they cost up to a third more than the
/// cheapest of these: n = 1 .. 7 messages in each round.  At most `count`, the cheapest first; none
/// has rounds like one of `known`, or more than `messages_max` messages.
std::vector<plan::PerRound> close_uniform_vectors(std::uint32_t rank_count,
                                                  std::uint32_t messages_max,
                                                  const std::vector<plan::PerRound>& known,
                                                  std::size_t count, const VectorPrice& price);

/// Likewise of cores of recursive multiplying: all with entries up to 15, larger ones first, whose
/// product of (entry + 1) is `rank_count` at most.
std::vector<plan::PerRound> close_cores(std::uint32_t rank_count, std::uint32_t messages_max,
                                        const std::vector<plan::PerRound>& known, std::size_t count,
                                        const VectorPrice& price);

/// Vectors that differ from `vector` in one round: it has one message more or one less, or is split
/// in two.  If there are more than five rounds, only the last one differs.  Besides, `vector` with
/// one more round, of one message, and with its rounds in the opposite order.  Some may cover fewer
/// ranks.
std::vector<plan::PerRound> neighbours_of(const plan::PerRound& vector);

/// Returns every minimal vector that covers `rank_count` ranks: whichever round had one message
/// less, the vector would no longer cover them.  Each has at most `messages_max` messages in total,
/// and at most messages_of_round_max in a round.  Only for few ranks, as there are many: 97 for 64.
std::vector<plan::PerRound> minimal_vectors(std::uint32_t rank_count, std::uint32_t messages_max);

/// Returns the `count` cheapest ones of `vectors`, or all if there are fewer, the cheapest first.
/// What a vector costs is the sum of `price` over its rounds among `rank_count` ranks.
std::vector<plan::PerRound> cheapest_of(const std::vector<plan::PerRound>& vectors,
                                        std::uint32_t rank_count, const RoundPrice& price,
                                        std::size_t count);

/// Messages that a rank may send in all rounds: it hears from as many others as it sends to.
std::uint32_t messages_max_of(std::uint32_t rank_count, std::uint32_t partners_max);

}  // namespace tutti::tune
