// The verifier: runs the plans of all ranks together, on symbols instead of numbers, and says what
// is wrong with them.  It knows the meaning of the steps (plan.hpp) and what the collective
// promises, and nothing about how plans are built.  A value is the ordered list of ranks whose
// contributions it holds, kept as runs of consecutive ranks.
//
// It proves, for the plans it is given and every order of arrival:
//   - puts and awaits match one to one: peer, slot, number of payloads; no rank sends to itself, or
//     twice in a round about one part to one peer; messages per round are what the plan says;
//     nobody waits for ever;
//   - nothing is read before it is defined, a slot only after its await; a slot is written once; a
//     partial is not written after it was put (the NIC may still be reading it);
//   - the source is not read once the target was written (they may be the same memory);
//   - the promise below holds on every rank.
// One order of execution stands for all: plans do not branch, and a slot has one writer.
//
// Plans are *synchronising* if completing needs every rank to have entered, which lets the engine
// use two parities without acknowledgements.  A one-way plan has to declare it: each sender of a
// message awaits a credit of its receiver before, and every credit that is awaited is given.  In an
// acknowledged plan whoever puts to a peer awaits something of it in the same call.
//
// The happens-before test proves the rest: a credit is given after the last reading, so that two
// parities suffice; what a reference leads to is not written before it is read, and what is sent
// from source or target is not written before it has left.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "plan/core/plan.hpp"

namespace tutti::plan {

enum class Promise : std::uint8_t {
  barrier,          // every rank has received, directly or through others, from every rank
  each_once,        // the target holds every contribution exactly once, in any order
  same_result,      // each_once, and one expression on all ranks: equal in all bits
  rank_order,       // the target is 0 o 1 o ... o P-1
  same_expression,  // rank_order, and associated alike on all ranks: equal in all bits
  canonical_tree,   // rank_order, and associated along the tree of canonical_tree.hpp: equal in
                    // all bits whatever the schedule
  at_least_once,    // the target holds every contribution
  broadcast,        // the target of every rank but the root holds the root's contribution
  // Plans whose parts are blocks, one for each rank:
  gather,   // block p of the target holds that of rank p (which is meant for this one, if
            // the plan swaps blocks)
  scatter,  // block p of the target of rank p holds that of the root, and no other is written
  reduce_scatter,  // block p of the target of rank p holds all contributions, along the canonical
                   // tree, and no other is written
  reduce_scatter_any_order,  // reduce_scatter in any order, each contribution once
  // Plans of prefixes:
  scan,    // the target of rank p is 0 o ... o p
  exscan,  // the target of rank p is 0 o ... o p-1, that of rank 0 is not written
};

/// The first violation found in the plans of all ranks (`plans[i]` is that of rank i), as a
/// sentence; nullopt: none.  With a root, only its target has to keep the promise, and the others'
/// stay as they are; with Promise::broadcast it is the other way round.
std::optional<std::string> first_violation(std::span<const Plan> plans, Promise promise,
                                           Rank root = no_rank);

/// first_violation() of plans made by `plan_of`; all of them are kept for the duration of the call.
std::optional<std::string> first_violation(std::uint32_t rank_count,
                                           const std::function<Plan(Rank)>& plan_of,
                                           Promise promise, Rank root = no_rank);

}  // namespace tutti::plan
