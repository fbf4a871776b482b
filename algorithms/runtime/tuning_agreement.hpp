// How the ranks of a communicator come to choose by one table.
//
// A choice depends on nothing that only one rank knows, or ranks would make different plans and
// wait for each other without end.  So each rank says in its introduction what it has found:
// nothing, a file and its hash, or a file that it was told to take and cannot.
//   one cannot            all throw the same reason, which names the lowest such rank
//   all have one table    each takes its own copy; nothing more is sent
//   they differ           rank 0 sends its file along a binomial tree of all ranks, who read it
//                         alike; where rank 0 has none, no table is in force
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

TuningCard tuning_card_of(const Context::Implementation& context);

/// Collective, as a step of `call`.  `cards` and `ports` are those of all ranks.  Throws
/// Error{mismatch} if ranks are told different things about tuning, Error{invalid_argument} if one
/// was told to take a file that it cannot take; in the same words on all ranks.
std::shared_ptr<const TuningInForce> agree_on_tuning(Communicator::Implementation& communicator,
                                                     SetUpCall& call,
                                                     std::span<const TuningCard> cards,
                                                     std::span<const verbs::PortCard> ports);

/// What a single rank would choose by, if all ranks have found what it has.
TuningInForce tuning_of_one(const FoundTable& found, const ContextSettings& settings,
                            const verbs::PortCard& port);

}  // namespace tutti::runtime
