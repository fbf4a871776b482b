// A plan several times over, each time on partials and slots of its own: for operations whose calls
// overlap by more than the two parities allow.  The copies follow each other in `steps`, equally
// long; copy c adds c times the plan's counts to the numbers of its partials and slots.
#pragma once

#include "plan/core/plan.hpp"

namespace tutti::plan {

/// Whether `count` copies of the plan keep to slots_max.
bool has_room_for_copies(const Plan& plan, std::uint32_t count) noexcept;

/// Needs has_room_for_copies(), and a plan whose slots all have room for a payload.
Plan in_copies(const Plan& plan, std::uint32_t count);

/// The plan with each of its parts cut into `count` sub-blocks, which go through copies of it round
/// by round, one copy after the other: while messages of one are on their way, another one is
/// combined.  As `rings` with sub-blocks do.  Needs has_room_for_copies(), a plan of whole parts
/// (one payload, no room for lines), and parts x `count` that can be numbered.
Plan in_sub_blocks(const Plan& plan, std::uint32_t count);

}  // namespace tutti::plan
