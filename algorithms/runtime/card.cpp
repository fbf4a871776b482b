#include "runtime/card.hpp"

#include <algorithm>
#include <tutti/detail/names.hpp>

#include "runtime/float_mode.hpp"

namespace tutti::runtime {
namespace {

std::string text_of(const Card& card) {
  std::string text = std::string(card.collective) + " #" + std::to_string(card.ordinal);
  if (card.is_trial != 0) text += ", a first call,";
  if (Rank{card.root} != no_rank) text += " with root " + std::to_string(card.root);
  if (card.element_bytes == 0) return text;
  return text + " of " + std::to_string(card.element_count) + " x " +
         std::to_string(card.element_bytes) + " bytes (" + name_of(card.element_type) + " " +
         name_of(card.built_in) + ", " + name_of(card.agreement) + ", properties " +
         std::to_string(card.properties) + ")";
}

}  // namespace

void require_same(std::span<const Card> all, std::size_t self, CheckLevel level,
                  std::span<const Rank> members) {
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const Rank number{static_cast<std::uint32_t>(rank)};
    if (!members.empty() && std::find(members.begin(), members.end(), number) == members.end())
      continue;
    const Card& theirs = all[rank];
    const Card& ours = all[self];
    const bool same_shape =
        theirs.register_bytes == ours.register_bytes && theirs.slot_count == ours.slot_count;
    // Ranks that are out of step with each other are wrong about everything else too.
    const bool same_place =
        theirs.ordinal == ours.ordinal &&
        std::strncmp(theirs.collective, ours.collective, sizeof ours.collective) == 0 &&
        theirs.root == ours.root && theirs.is_trial == ours.is_trial;
    const bool same_request =
        theirs.element_count == ours.element_count && theirs.element_bytes == ours.element_bytes &&
        theirs.built_in == ours.built_in && theirs.element_type == ours.element_type &&
        theirs.agreement == ours.agreement && theirs.properties == ours.properties;
    const bool same_plan =
        theirs.parameters_hash == ours.parameters_hash &&
        std::strncmp(theirs.algorithm, ours.algorithm, sizeof ours.algorithm) == 0;
    if (!same_place || (level == CheckLevel::collective && !same_request))
      throw Error(ErrorCode::mismatch,
                  "ranks ask for different operations: rank " + std::to_string(rank) + " for " +
                      text_of(theirs) + ", rank " + std::to_string(self) + " for " + text_of(ours));
    if (level == CheckLevel::collective && theirs.float_mode != ours.float_mode)
      throw Error(ErrorCode::mismatch,
                  "ranks compute differently, so that " + text_of(ours) +
                      " cannot have equal bits: rank " + std::to_string(rank) + " " +
                      text_of_float_mode(theirs.float_mode) + ", rank " + std::to_string(self) +
                      " " + text_of_float_mode(ours.float_mode) +
                      "; set the floating-point environment alike on all ranks (compiler options "
                      "such as -ffast-math change it), or ask for Agreement::relaxed");
    // Plans and slots that do not fit together would write into foreign memory: never let through.
    if (!same_shape || !same_plan)
      throw Error(
          ErrorCode::mismatch,
          "ranks have different plans for " + text_of(ours) + ": rank " + std::to_string(rank) +
              " (" + theirs.algorithm + ", " + std::to_string(theirs.slot_count) + " slots of " +
              std::to_string(theirs.register_bytes) + " bytes) and rank " + std::to_string(self) +
              " (" + ours.algorithm + ", " + std::to_string(ours.slot_count) + " slots of " +
              std::to_string(ours.register_bytes) +
              " bytes); give counts, slack, per_round, tree, TUTTI_CHUNK_BYTES and "
              "TUTTI_SINGLE_COPY_BYTES "
              "alike "
              "on all ranks");
  }
}

}  // namespace tutti::runtime
