// See decomposition.hpp for the schedule.  Here: which register holds what, and when.
//
//   partials   0 .. L     S of each round that puts it, one each: a partial that was put is not
//                         written again
//              then       the low part of the result (rank order only), and the joined digits
//   target     the result, from the first S on that is not put, or after the last
//   slots      of plain dissemination in the order of rounds and messages, then of the other pieces
//              in the order in which they are joined, from right to left
//
// The source is read once, by the first step, so it may be the target as well.
#include "plan/allreduce/decomposition.hpp"

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

#include "plan/allreduce/seam.hpp"
#include "plan/core/steps.hpp"

namespace tutti::plan {
namespace {

/// One digit of P, in base n+1.
struct Digit {
  std::uint64_t stride;  // q_l
  std::uint32_t value;   // d_l
};

/// The lowest digit first; the last one is at least 1.
std::vector<Digit> digits_of(std::uint32_t rank_count, std::uint32_t n) {
  std::vector<Digit> digits;
  const std::uint64_t base = n + std::uint64_t{1};
  std::uint64_t stride = 1;
  for (std::uint64_t rest = rank_count; rest > 0; rest /= base, stride *= base)
    digits.push_back({stride, static_cast<std::uint32_t>(rest % base)});
  return digits;
}

/// A message that is not plain dissemination.
struct Piece {
  std::uint64_t offset;
  std::uint64_t length;
  std::uint32_t round;  // in which it is put
};

/// All of them in the order in which they are joined, those of later rounds first.
std::vector<Piece> pieces_of(const std::vector<Digit>& digits, Digits form) {
  std::vector<Piece> pieces;
  std::uint64_t offset = digits.back().stride;  // the own S comes before
  const auto cut = [&](std::uint64_t length, std::size_t round) {
    pieces.push_back({offset, length, static_cast<std::uint32_t>(round)});
    offset += length;
  };
  for (std::size_t l = digits.size(); l-- > 0;) {
    const bool top = l + 1 == digits.size();
    const auto [stride, value] = digits[l];
    if (!top && form == Digits::joined && value > 1) {
      cut(value * stride, l + 1);
      continue;
    }
    for (std::uint32_t i = top ? 1 : 0; i < value; ++i) cut(stride, l);
  }
  return pieces;
}

PerRound rounds_of(std::uint32_t n, std::size_t plain_rounds, const std::vector<Piece>& pieces) {
  PerRound rounds(plain_rounds, n);
  if (!pieces.empty() && pieces.front().round == plain_rounds) rounds.push_back(0);
  for (const Piece& piece : pieces) ++rounds[piece.round];
  return rounds;
}

class Builder {
 public:
  Builder(Rank self, std::uint32_t rank_count, std::uint32_t n, Digits form, Order order)
      : n_(n),
        digits_(digits_of(rank_count, n)),
        pieces_(pieces_of(digits_, form)),
        rounds_(rounds_of(n, digits_.size() - 1, pieces_)),
        pieces_to_put_(pieces_.size()),
        seam_(steps_, plan_, order) {
    plan_.self = self;
    plan_.rank_count = rank_count;
    plan_.n = n;
    plan_.algorithm = form == Digits::joined ? "decomposition" : "decomposition_digits";
    for (const std::uint32_t messages : rounds_)
      plan_.slot_count = static_cast<std::uint16_t>(plan_.slot_count + messages);
    if (rounds_.empty()) return;
    plan_.partial_count = static_cast<std::uint16_t>(plain_rounds() + (top_is_put() ? 1 : 0));
    if (order == Order::rank_order) {
      plan_.payloads = 2;
      beside_ = partial_register(plan_.partial_count++);
    }
  }

  Plan build() && {
    if (rounds_.empty()) {
      steps_.copy(source_register, target_register);
      return std::move(plan_);
    }
    for (std::uint32_t round = 0; round < rounds_.size(); ++round) build_round(round);
    join_pieces();
    return std::move(plan_);
  }

 private:
  std::uint32_t plain_rounds() const { return static_cast<std::uint32_t>(digits_.size() - 1); }
  /// Whether the S of all plain rounds is put.
  bool top_is_put() const { return digits_.back().value > 1; }

  std::uint16_t first_piece_slot() const {
    return static_cast<std::uint16_t>(plan_.slot_count - pieces_.size());
  }

  void build_round(std::uint32_t round) {
    steps_.begin_round(rounds_[round]);
    const Partial s =
        partial_in(static_cast<std::uint16_t>(round), {plan_.self, digits_[round].stride});
    if (round == 0) steps_.copy(source_register, s.low);
    const bool is_plain = round < plain_rounds();
    if (is_plain) put_plain(round, s);
    put_pieces(round, s);
    if (!is_plain) {
      if (top_is_put()) result_ = seam_.begin_result(s, beside_);
    } else if (round + 1 < plain_rounds() || top_is_put()) {
      Partial grown = partial_in(static_cast<std::uint16_t>(round + 1), {});
      seam_.copy(s, grown);
      grow(round, grown);
    } else {
      result_ = seam_.begin_result(s, beside_);
      grow(round, result_);
    }
  }

  void put_plain(std::uint32_t round, const Partial& s) {
    for (std::uint32_t message = 0; message < n_; ++message)
      seam_.put((message + std::uint64_t{1}) * digits_[round].stride, plain_slot(round, message),
                s);
  }

  /// After what others wait for in this round: what they need at the end.
  void put_pieces(std::uint32_t round, const Partial& s) {
    for (; pieces_to_put_ > 0 && pieces_[pieces_to_put_ - 1].round == round; --pieces_to_put_) {
      const Piece& piece = pieces_[pieces_to_put_ - 1];
      const auto slot = static_cast<std::uint16_t>(first_piece_slot() + pieces_to_put_ - 1);
      seam_.put(piece.offset, slot, piece.length == s.ranks.length ? s : prefix_);
    }
  }

  /// Awaits plain dissemination, and keeps the prefix that is to be sent for the digit.
  void grow(std::uint32_t round, Partial& into) {
    const std::uint64_t stride = digits_[round].stride;
    for (std::uint32_t message = 0; message < n_; ++message) {
      seam_.receive((message + std::uint64_t{1}) * stride, plain_slot(round, message), stride,
                    into);
      if (!is_joined_prefix(round, into.ranks.length)) continue;
      prefix_ = partial_in(plan_.partial_count++, {});
      seam_.copy(into, prefix_);
    }
  }

  /// Whether the next piece to be put, which is one of the next round, is such a prefix.
  bool is_joined_prefix(std::uint32_t round, std::uint64_t length) const {
    if (pieces_to_put_ == 0) return false;
    const Piece& piece = pieces_[pieces_to_put_ - 1];
    return piece.round == round + 1 && piece.length == length && length < digits_[round + 1].stride;
  }

  /// The pieces have been on their way since their rounds.
  void join_pieces() {
    for (std::size_t i = 0; i < pieces_.size(); ++i)
      seam_.receive(pieces_[i].offset, static_cast<std::uint16_t>(first_piece_slot() + i),
                    pieces_[i].length, result_);
    seam_.finish_result(result_);
  }

  std::uint16_t plain_slot(std::uint32_t round, std::uint32_t message) const {
    return static_cast<std::uint16_t>(round * n_ + message);
  }

  std::uint32_t n_;
  std::vector<Digit> digits_;
  std::vector<Piece> pieces_;
  PerRound rounds_;
  std::size_t pieces_to_put_;  // the last one first
  Plan plan_;
  StepWriter steps_{plan_};
  SeamWriter seam_;
  Register beside_ = {};  // for the low part of the result, in rank order
  Partial prefix_ = {};   // of the last digit that is joined
  Partial result_ = {};
};

}  // namespace

bool is_decomposable(std::uint32_t rank_count, std::uint32_t n, Digits digits) {
  if (rank_count == 0 || n == 0) return false;
  const std::vector<Digit> all = digits_of(rank_count, n);
  std::uint64_t messages = (all.size() - 1) * std::uint64_t{n} + all.back().value - 1;
  for (std::size_t l = 0; l + 1 < all.size(); ++l)
    messages += digits == Digits::joined ? std::min(all[l].value, 1u) : all[l].value;
  return messages <= slots_max;
}

Plan decomposition_allreduce(Rank self, std::uint32_t rank_count, std::uint32_t n, Digits digits,
                             Order order) {
  assert(is_decomposable(rank_count, n, digits) && index_of(self) < rank_count);
  return Builder(self, rank_count, n, digits, order).build();
}

}  // namespace tutti::plan
