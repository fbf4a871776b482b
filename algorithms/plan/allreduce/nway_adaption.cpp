// See nway.hpp.  Here: which adaptions there are.
//
// In P = s Q + a - b both 1 <= a <= Q and 0 <= b <= Q, so that s is one of two numbers, and b
// follows from s and a: all borders of the sender are tried.  Products stay below (n+1) P, in 64
// bits.
#include <algorithm>
#include <cassert>
#include <tuple>

#include "plan/allreduce/nway.hpp"

namespace tutti::plan {
namespace {

/// The lengths of prefixes for n messages a round, and of the whole, Q.
class Prefixes {
 public:
  Prefixes(std::uint32_t rank_count, std::uint32_t n) : n_(n) {
    for (std::uint64_t reached = 1; reached < rank_count; reached *= n + std::uint64_t{1})
      strides_.push_back(reached);
  }

  std::uint32_t rounds() const { return static_cast<std::uint32_t>(strides_.size()); }
  std::uint64_t whole() const { return strides_.back(); }

  std::uint64_t length(Border border) const {
    return border.round == 0 ? 1 : (border.message + std::uint64_t{1}) * strides_[border.round - 1];
  }

  /// The border of the prefix of that length, if there is one.
  std::optional<Border> border(std::uint64_t length) const {
    if (length == 1) return Border{};
    if (length < 1 || length > whole()) return {};
    const auto above = std::lower_bound(strides_.begin(), strides_.end(), length);
    const std::uint64_t stride = *(above - 1);
    if (length % stride != 0) return {};
    return Border{.round = static_cast<std::uint32_t>(above - strides_.begin()),
                  .message = static_cast<std::uint32_t>(length / stride - 1)};
  }

  /// All borders, in their order.
  std::vector<Border> borders() const {
    std::vector<Border> all{{}};
    for (std::uint32_t round = 1; round < rounds(); ++round)
      for (std::uint32_t message = 1; message <= n_; ++message) all.push_back({round, message});
    return all;
  }

 private:
  std::uint32_t n_;
  std::vector<std::uint64_t> strides_;  // (n+1)^(l-1) of round l, as long as less than P
};

/// Theorem 1, as it is meant: what is sent and taken out for a 5-tuple.
Adaption by_theorem(const Prefixes& prefixes, Adaption tuple) {
  tuple.whole_messages = tuple.senders - 1;
  tuple.prefix_sent = static_cast<std::uint32_t>(prefixes.length(tuple.sent));
  tuple.taken_out = static_cast<std::uint32_t>(prefixes.length(tuple.received));
  if (tuple.received.round > 0) {
    tuple.theorem_case =
        tuple.sent.round > 0 ? AdaptionCase::both_borders : AdaptionCase::own_data_sent;
    // Equal borders: sender s would be the receiver.
    if (tuple.sent == tuple.received) tuple.prefix_sent = tuple.taken_out = 0;
  } else if (tuple.sent.round == 0) {
    tuple.theorem_case = AdaptionCase::whole_partials;
    tuple.prefix_sent = tuple.taken_out = 0;
  } else if (tuple.sent.round == 1) {
    tuple.theorem_case = AdaptionCase::first_round_sent;
    tuple.prefix_sent = tuple.sent.message;  // one rank less than up to that border
    tuple.taken_out = 0;
  } else {
    tuple.theorem_case = AdaptionCase::own_data_taken_out;
  }
  return tuple;
}

/// The adaption at the base border, where nothing is taken out.
Adaption at_base_border(const Prefixes& prefixes, Adaption tuple) {
  const bool all = tuple.senders == tuple.n && prefixes.length(tuple.sent) == prefixes.whole();
  tuple.theorem_case = all ? AdaptionCase::power : AdaptionCase::base_border;
  tuple.whole_messages = tuple.senders - 1;
  tuple.prefix_sent = static_cast<std::uint32_t>(prefixes.length(tuple.sent));
  return tuple;
}

std::uint64_t last_messages(const Adaption& adaption) {
  return std::uint64_t{adaption.whole_messages} + (adaption.prefix_sent > 0 ? 1 : 0);
}

bool fits_slots(const Adaption& adaption) {
  const std::uint64_t before = adaption.rounds > 0 ? adaption.rounds - 1 : 0;
  return before * adaption.n + last_messages(adaption) <= slots_max;
}

}  // namespace

std::vector<Adaption> adaptions(std::uint32_t rank_count, std::uint32_t n) {
  if (rank_count == 0 || n == 0) return {};
  const Prefixes prefixes(rank_count, n);
  Adaption tuple;
  tuple.n = n;
  tuple.rounds = prefixes.rounds();
  if (rank_count == 1) return {tuple};
  if ((prefixes.rounds() - 1) * std::uint64_t{n} > slots_max) return {};

  std::vector<Adaption> ordinary, at_base;
  const std::uint64_t whole = prefixes.whole();
  const std::uint64_t first = (rank_count - 1) / whole;
  const std::vector<Border> borders = prefixes.borders();
  for (std::uint64_t s = first; s <= std::min<std::uint64_t>(n, first + 1); ++s) {
    for (const Border border : borders) {
      tuple.senders = static_cast<std::uint32_t>(s);
      tuple.sent = border;
      tuple.received = {};
      const std::uint64_t reached = s * whole + prefixes.length(border);
      if (reached < rank_count) continue;
      if (reached == rank_count) at_base.push_back(at_base_border(prefixes, tuple));
      const std::optional<Border> received = prefixes.border(reached - rank_count);
      if (!received) continue;
      tuple.received = *received;
      ordinary.push_back(by_theorem(prefixes, tuple));
    }
  }
  ordinary.insert(ordinary.end(), at_base.begin(), at_base.end());
  std::erase_if(ordinary, [](const Adaption& adaption) { return !fits_slots(adaption); });
  return ordinary;
}

std::optional<Adaption> adaption(std::uint32_t rank_count, std::uint32_t n) {
  const std::vector<Adaption> all = adaptions(rank_count, n);
  const auto key = [](const Adaption& candidate) {
    return std::tuple{last_messages(candidate), candidate.taken_out, candidate.prefix_sent > 0};
  };
  const auto best = std::min_element(
      all.begin(), all.end(),
      [&](const Adaption& left, const Adaption& right) { return key(left) < key(right); });
  return best == all.end() ? std::nullopt : std::optional(*best);
}

bool is_adaptable(std::uint32_t rank_count, std::uint32_t n) {
  return adaption(rank_count, n).has_value();
}

std::uint32_t nearest_adaptable_n(std::uint32_t rank_count, std::uint32_t n) {
  assert(rank_count >= 1 && n >= 1);
  if (is_adaptable(rank_count, n)) return n;
  // Between slots_max and P-1 every n takes more than slots_max messages.
  const auto middle = static_cast<std::uint32_t>(std::min<std::uint64_t>(n, slots_max));
  for (std::uint32_t distance = 0;; ++distance) {
    if (distance < middle && is_adaptable(rank_count, middle - distance)) return middle - distance;
    if (is_adaptable(rank_count, middle + distance)) return middle + distance;
  }
}

PerRound nway_rounds(const Adaption& adaption) {
  if (adaption.rounds == 0) return {};
  PerRound rounds(adaption.rounds, adaption.n);
  rounds.back() = static_cast<std::uint32_t>(last_messages(adaption));
  return rounds;
}

}  // namespace tutti::plan
