#include "tune/vectors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <numeric>
#include <utility>
#include <vector>

namespace tutti::tune {
namespace {

std::uint32_t divided_up(std::uint32_t number, std::uint32_t by) {
  assert(number > 0);
  return 1 + (number - 1) / by;
}

/// The `count` cheapest of `vectors` that cost at most `most`, the cheapest first.
std::vector<plan::PerRound> cheapest_up_to(plan::Picoseconds most,
                                           const std::vector<plan::PerRound>& vectors,
                                           std::size_t count, const VectorPrice& price) {
  std::vector<std::pair<plan::Picoseconds, const plan::PerRound*>> priced;
  for (const plan::PerRound& vector : vectors)
    if (const plan::Picoseconds cost = price(vector); cost <= most)
      priced.emplace_back(cost, &vector);
  std::stable_sort(priced.begin(), priced.end(),
                   [](const auto& left, const auto& right) { return left.first < right.first; });
  priced.resize(std::min(priced.size(), count));
  std::vector<plan::PerRound> cheapest;
  cheapest.reserve(priced.size());
  for (const auto& [cost, vector] : priced) cheapest.push_back(*vector);
  return cheapest;
}

/// The `count` cheapest of `others` that cost at most a third more than the cheapest of `known`.
std::vector<plan::PerRound> closest(const std::vector<plan::PerRound>& known,
                                    const std::vector<plan::PerRound>& others, std::size_t count,
                                    const VectorPrice& price) {
  plan::Picoseconds least = INT64_MAX;
  for (const plan::PerRound& vector : known) least = std::min(least, price(vector));
  return cheapest_up_to(least + least / 3, others, count, price);
}

/// `vector` with round `at`, which must have at least two messages, replaced by two rounds: one of
/// a single message, then one of as few messages as still cover as many ranks as before.
plan::PerRound with_split_round(plan::PerRound vector, std::size_t at) {
  assert(at < vector.size() && vector[at] > 1);
  vector[at] = (vector[at] + 2) / 2 - 1;
  vector.insert(vector.begin() + static_cast<std::ptrdiff_t>(at), 1);
  return vector;
}

/// Adds all cores of entries up to `largest`, larger ones first, with `ranks` ranks at most.
void add_cores(std::uint32_t ranks, std::uint32_t largest, plan::PerRound& begun,
               std::vector<plan::PerRound>& cores) {
  for (std::uint32_t entry = 1; entry <= largest && entry < ranks; ++entry) {
    begun.push_back(entry);
    cores.push_back(begun);
    add_cores(ranks / (entry + 1), entry, begun, cores);
    begun.pop_back();
  }
}

}  // namespace

std::vector<plan::PerRound> close_uniform_vectors(std::uint32_t rank_count,
                                                  std::uint32_t messages_max,
                                                  const std::vector<plan::PerRound>& known,
                                                  std::size_t count, const VectorPrice& price) {
  if (rank_count < 2 || rank_count > close_vectors_ranks_max) return {};
  std::vector<std::vector<plan::Round>> seen;
  seen.reserve(known.size());
  for (const plan::PerRound& vector : known)
    seen.push_back(plan::two_partial_rounds(rank_count, vector));
  std::vector<plan::PerRound> others;
  for (std::uint32_t n = 1; n <= 7; ++n) {
    plan::PerRound vector = plan::uniform(rank_count, n);
    std::vector<plan::Round> rounds = plan::two_partial_rounds(rank_count, vector);
    std::uint32_t messages = 0;
    for (const plan::Round& round : rounds) messages += round.messages;
    if (messages > messages_max || std::find(seen.begin(), seen.end(), rounds) != seen.end())
      continue;
    seen.push_back(std::move(rounds));
    others.push_back(std::move(vector));
  }
  return closest(known, others, count, price);
}

std::vector<plan::PerRound> close_cores(std::uint32_t rank_count, std::uint32_t messages_max,
                                        const std::vector<plan::PerRound>& known, std::size_t count,
                                        const VectorPrice& price) {
  if (rank_count < 2 || rank_count > close_vectors_ranks_max) return {};
  std::vector<plan::PerRound> cores;
  plan::PerRound begun;
  add_cores(rank_count, messages_of_round_max, begun, cores);
  std::erase_if(cores, [&](const plan::PerRound& core) {
    return std::accumulate(core.begin(), core.end(), std::uint64_t{0}) > messages_max ||
           std::find(known.begin(), known.end(), core) != known.end();
  });
  return closest(known, cores, count, price);
}

std::vector<plan::PerRound> neighbours_of(const plan::PerRound& vector) {
  constexpr std::size_t every_round_max = 5;
  std::vector<plan::PerRound> neighbours;
  for (std::size_t i = vector.size() > every_round_max ? vector.size() - 1 : 0; i < vector.size();
       ++i) {
    plan::PerRound fewer = vector, more = vector;
    if (--fewer[i] == 0) fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    if (!fewer.empty()) neighbours.push_back(std::move(fewer));
    ++more[i];
    neighbours.push_back(std::move(more));
    if (vector[i] > 1) neighbours.push_back(with_split_round(vector, i));
  }
  neighbours.push_back(vector);
  neighbours.back().push_back(1);
  neighbours.emplace_back(vector.rbegin(), vector.rend());
  return neighbours;
}

std::vector<plan::PerRound> minimal_vectors(std::uint32_t rank_count, std::uint32_t messages_max) {
  assert(rank_count <= UINT32_MAX / (messages_of_round_max + 1));
  std::vector<plan::PerRound> found;
  plan::PerRound vector;
  const auto is_minimal = [&](std::uint32_t covered) {
    return std::all_of(vector.begin(), vector.end(), [&](std::uint32_t messages) {
      return covered / (messages + 1) * messages < rank_count;
    });
  };
  const auto add = [&](const auto& self, std::uint32_t covered, std::uint32_t left) -> void {
    if (covered >= rank_count) {
      if (is_minimal(covered)) found.push_back(vector);
      return;
    }
    for (std::uint32_t n = 1; n <= std::min(left, messages_of_round_max); ++n) {
      vector.push_back(n);
      self(self, covered * (n + 1), left - n);
      vector.pop_back();
      if (covered * (n + 1) >= rank_count) break;  // more messages are spare ones
    }
  };
  add(add, 1, messages_max);
  return found;
}

std::vector<plan::PerRound> cheapest_of(const std::vector<plan::PerRound>& vectors,
                                        std::uint32_t rank_count, const RoundPrice& price,
                                        std::size_t count) {
  return cheapest_up_to(INT64_MAX, vectors, count, [&](const plan::PerRound& vector) {
    plan::Picoseconds sum = 0;
    for (const plan::Round& round : plan::two_partial_rounds(rank_count, vector))
      sum += price(round);
    return sum;
  });
}

std::uint32_t messages_max_of(std::uint32_t rank_count, std::uint32_t partners_max) {
  return partners_max >= rank_count - 1 ? UINT32_MAX : partners_max / 2;
}

VectorSearch::VectorSearch(std::uint32_t rank_count, std::uint32_t partners_max)
    : messages_max_(messages_max_of(rank_count, partners_max)),
      last_(rank_count - 1),
      root_(1u << (std::bit_width(last_) + 1) / 2),
      index_(2 * std::size_t{root_} + 1, none) {
  assert(rank_count >= 1);
  if (rank_count > 1) add(rank_count);
}

plan::PerRound VectorSearch::cheapest(const RoundPrice& price) {
  for (LastRound& last : rounds_) last.price = price(last.round);
  for (std::uint32_t largest = messages_of_round_max; largest >= 1; --largest) {
    plan::PerRound vector = best(largest);
    if (std::accumulate(vector.begin(), vector.end(), std::uint64_t{0}) <= messages_max_)
      return vector;
  }
  return best(messages_of_round_max);
}

plan::PerRound VectorSearch::best(std::uint32_t largest) {
  plan::PerRound vector;
  if (states_.empty()) return vector;
  for (State& state : states_) {
    state.cost = {.time = INT64_MAX};
    for (std::size_t at = state.first; at < state.end && rounds_[at].round.messages <= largest;
         ++at) {
      const LastRound& last = rounds_[at];
      const Cost before = last.left == none ? Cost{} : states_[last.left].cost;
      const Cost cost{before.time + last.price, before.rounds + 1,
                      before.messages + last.round.messages};
      if (cost.key() >= state.cost.key()) continue;
      state.cost = cost;
      state.last = at;
    }
  }
  for (std::size_t state = states_.size() - 1; state != none;) {
    const LastRound& last = rounds_[states_[state].last];
    vector.push_back(last.round.messages);
    state = last.left;
  }
  std::reverse(vector.begin(), vector.end());
  return vector;
}

/// All numbers of ranks that occur are 1 + q with q = floor((P - 1) / m) for some m.  A small q is
/// its own index, and a large q is found by (P - 1) / q, which no other large q has.
std::size_t& VectorSearch::index_of(std::uint32_t ranks) {
  const std::uint32_t quotient = ranks - 1;
  return index_[quotient < root_ ? quotient : root_ + last_ / quotient];
}

/// The states that a state needs come before it.
void VectorSearch::add(std::uint32_t ranks) {
  std::array<plan::Round, messages_of_round_max> rounds;
  std::size_t count = 0;
  for (std::uint32_t entry = 1; entry <= messages_of_round_max;) {
    const std::uint32_t left = divided_up(ranks, entry + 1);
    rounds[count++] = {
        .length = left, .messages = entry, .short_messages = (entry + 1) * left - ranks};
    if (left == 1) break;
    if (index_of(left) == none) add(left);
    entry = divided_up(ranks, left - 1) - 1;
  }
  const std::size_t first = rounds_.size();
  for (std::size_t at = 0; at < count; ++at)
    rounds_.push_back(
        {.round = rounds[at], .left = rounds[at].length == 1 ? none : index_of(rounds[at].length)});
  index_of(ranks) = states_.size();
  states_.push_back({.first = first, .end = rounds_.size()});
}

plan::PerRound cheapest_vector(std::uint32_t rank_count, std::uint32_t partners_max,
                               const RoundPrice& price) {
  return VectorSearch(rank_count, partners_max).cheapest(price);
}

}  // namespace tutti::tune
