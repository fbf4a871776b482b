// How the ranks of a communicator come to choose by one table.
//
// A choice depends on nothing that only one rank knows, or ranks would make different plans and
// wait for each other without end.  So each rank says in its introduction what it has found:
// nothing, a file and its hash, or a file that it was told to take and cannot.
//   one cannot            all throw the same reason, which names the lowest such rank
//   all have one table    each takes its own copy, and says by itself whether that is stale here;
//                         nothing more is sent
//   they differ           rank 0 sends its file along a binomial tree of all ranks, who read it
//                         alike, and compare its hash, and whose differs, all throw; where rank 0
//                         has none, no table is in force
//
// The file goes in steps that every exchange has room for (a chunk of 64 KiB up to 256 ranks, of
// 16 MiB / P beyond), in as many swaps as there are steps and levels of the tree: a file of 8 MiB
// takes 136 swaps among 256 ranks, and 2,062 among 4096.  An exchange that gathers instead of
// swapping holds at most ceil(log2 P) records of each rank: 224 MiB up to 16,384 ranks.
//
// The preset that prices fall back to is that of the slowest port of all ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tutti/communicator.hpp>
#include <type_traits>

#include "runtime/context.hpp"
#include "runtime/set_up_call.hpp"
#include "runtime/tuning_table.hpp"
#include "tune/json_text.hpp"
#include "tune/knowledge.hpp"
#include "verbs/wire.hpp"

namespace tutti::runtime {

/// What the ranks of a communicator, and of those that are split from it, choose by.
struct TuningInForce {
  tune::Knowledge knowledge = {};
  TuningMode mode = TuningMode::file;
  std::string table = {};  // which table that is, and what it is made of, as words
};

/// What a rank says in its introduction.
struct TuningCard {
  std::uint64_t table_hash = 0;    // of the file's bytes
  std::uint64_t letter_bytes = 0;  // of what rank 0 would send; 0: it has found no table
  std::uint32_t mode = 0;          // TuningMode
  std::uint32_t keeps_bits = 0;
  std::uint32_t is_refused = 0;  // it was told to take a file that it cannot take
  std::uint32_t reserved = 0;
};
static_assert(std::has_unique_object_representations_v<TuningCard>);

/// What rank 0 sends is its path, a remark and the file, which has a bound of its own.
inline constexpr std::uint64_t letter_bytes_max = tune::json_bytes_max + (16u << 10);
/// What it sends of that in one step: a record has to fit a chunk, with the rank that it is for.
std::size_t bytes_of_step(std::uint64_t rank_count);

/// Throws Error{mismatch}, alike on all ranks, if a card announces more than there may be.
void require_sendable(const TuningCard& of_rank_0);

/// Throws Error if it is not what the card of rank 0 announces.
TuningTable table_of_letter(const std::string& letter, const TuningCard& of_rank_0);

TuningCard tuning_card_of(const Context::Implementation& context);
/// The card of what was found, but without the settings.
TuningCard tuning_card_of(const FoundTable& found);

/// Collective, as a step of `call`.  `cards` and `ports` are those of all ranks.  Throws
/// Error{mismatch} if ranks are told different things about tuning, or if the file of rank 0 has
/// not come to all as it is, Error{invalid_argument} if one was told to take a file that it cannot
/// take; in the same words on all ranks.
std::shared_ptr<const TuningInForce> agree_on_tuning(Communicator::Implementation& communicator,
                                                     SetUpCall& call,
                                                     std::span<const TuningCard> cards,
                                                     std::span<const verbs::PortCard> ports);

/// What a single rank would choose by, if all ranks have found what it has.
TuningInForce tuning_of_one(const FoundTable& found, const ContextSettings& settings,
                            const verbs::PortCard& port);

}  // namespace tutti::runtime
