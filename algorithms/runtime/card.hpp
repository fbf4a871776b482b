// What the ranks tell each other when they make an operation, and how they find out that they ask
// for different things.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <tutti/communicator.hpp>
#include <tutti/reduction.hpp>
#include <tutti/status.hpp>
#include <type_traits>

namespace tutti::runtime {

/// Text and code of an error, in a form that travels; an empty text is success.
struct Verdict {
  std::uint8_t code = 0;
  char text[327] = {};

  static Verdict of(const std::optional<Error>& given) {
    if (!given) return {};
    const Error& error = *given;
    Verdict verdict{.code = static_cast<std::uint8_t>(error.code()), .text = {}};
    std::strncpy(verdict.text, error.what(), sizeof verdict.text - 1);
    return verdict;
  }
  bool failed() const { return text[0] != '\0'; }
};

/// What a rank asks for.  All of it must be equal on all ranks, as far as they check that, and is
/// as a rule: then it does not travel to all.
struct Card {
  Verdict verdict;
  char collective[16] = {};
  char algorithm[48] = {};
  std::uint64_t element_count = 0;
  std::uint64_t ordinal = 0;
  std::uint64_t parameters_hash = 0;  // of the plan
  std::uint32_t element_bytes = 0;
  std::uint32_t register_bytes = 0;
  std::uint32_t slot_count = 0;
  std::uint32_t root = 0;
  BuiltIn built_in = BuiltIn::none;
  ElementType element_type = ElementType::other;
  Agreement agreement = Agreement::identical;
  std::uint8_t properties = 0;
  std::uint8_t float_mode = 0;   // 0 where it does not matter
  std::uint8_t is_trial = 0;     // 1: of a schedule (first_call.hpp)
  std::uint8_t is_by_calls = 0;  // 1: first calls have chosen, of a user's operation
  std::uint8_t reserved = 0;
};
// Without padding, because its bytes are compared.
static_assert(std::is_trivially_copyable_v<Card> && std::has_unique_object_representations_v<Card>);

/// What the partners of a rank need to know to send to it.
struct Places {
  // Address by parity.  Of a shared ring: address of the block, and the laps contributed ahead.
  std::array<std::uint64_t, 2> slots = {};
  std::uint64_t target = 0;        // address, where peers write it
  std::uint64_t numbers_from = 0;  // of lines that come to this rank
  std::uint64_t finished = 0;      // address of the words of the node's ranks, by LocalRank
  std::uint32_t remote_key = 0;
  std::uint32_t target_key = 0;
  std::uint32_t channel = 0;
  bool tells_places = false;  // of its messages that stay with it (runtime/staging.hpp)
  std::uint8_t reserved[3] = {};
};
static_assert(std::is_trivially_copyable_v<Places>);

/// How far an error is from its cause.  When one rank gives up, others wait in vain for it, or
/// learn that it gave up; their errors explain less than its own.
inline int distance_from_cause(ErrorCode code) {
  if (code == ErrorCode::peer_failed) return 2;
  return code == ErrorCode::timed_out ? 1 : 0;
}

/// The error that all ranks throw, because one has failed.
struct Cause {
  Error error;
  std::optional<Rank> rank;  // whose it is; none: this one's
};

/// The error that is nearest to the cause; if several ranks have such an error, this rank's own,
/// else that of the lowest rank.  Nothing: no rank has failed.
template <class HasVerdict>
std::optional<Cause> cause_of(const std::optional<Error>& own, std::span<const HasVerdict> all) {
  std::optional<Cause> nearest;
  if (own) nearest = {*own, std::nullopt};
  for (std::uint32_t rank = 0; rank < all.size(); ++rank) {
    const Verdict& verdict = [&]() -> const Verdict& {
      if constexpr (std::is_same_v<HasVerdict, Verdict>)
        return all[rank];
      else
        return all[rank].verdict;
    }();
    const auto code = static_cast<ErrorCode>(verdict.code);
    if (verdict.failed() &&
        (!nearest || distance_from_cause(code) < distance_from_cause(nearest->error.code())))
      nearest = {Error(code, "rank " + std::to_string(rank) + ": " + verdict.text), Rank{rank}};
  }
  return nearest;
}

/// If a rank has failed, throws on every rank what cause_of() finds.
template <class HasVerdict>
void agree(const std::optional<Error>& own, std::span<const HasVerdict> all) {
  if (const std::optional<Cause> cause = cause_of(own, all)) throw Error(cause->error);
}

/// Throws Error{mismatch} unless all cards, or those of `members` if there are some, ask for the
/// same, as far as `level` looks, by the same plan; what the ranks ask for is named.
void require_same(std::span<const Card> all, std::size_t self, CheckLevel level,
                  std::span<const Rank> members = {});

}  // namespace tutti::runtime
