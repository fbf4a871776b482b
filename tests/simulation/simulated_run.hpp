// One call of a collective on all ranks: the real engine over the simulated fabric, ranks at random
// speeds, messages late.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "engine/advance.hpp"
#include "simulated_fabric.hpp"

namespace tutti::simulation {

using Bytes = std::vector<std::byte>;

struct SimulatedCall {
  Reduction reduction;
  std::size_t element_count = 1;
  std::size_t chunk_count = 1;
  bool any_order = false;
  bool in_place = false;  // the source is the target
  std::uint64_t seed = 1;
  // For plans whose parts are blocks:
  std::vector<std::vector<engine::Part>> blocks = {};  // by rank
  std::size_t longest_block = 0;                       // elements
  std::vector<Bytes> targets = {};                     // as they are before; empty: as the sources
};

/// So many turns of ranks at random, without a message that is delivered and without a call that
/// completes, show that nobody gets on any more: each rank has had many of them.
constexpr std::uint64_t idle_turns_max(std::uint32_t rank_count) {
  return 64 * std::uint64_t{rank_count};
}

/// The memory of a rank and what it runs, but for source and target.
inline void set_up(SimulatedRank& r, plan::Plan& plan, const SimulatedCall& call) {
  const std::uint32_t rank = index_of(plan.self);
  engine::Execution& execution = r.execution;
  const std::size_t element_bytes = call.reduction.element_bytes;
  execution.parts =
      call.blocks.empty()
          ? engine::parts_of(call.element_count, element_bytes, plan.parts, call.chunk_count)
          : engine::parts_of(call.blocks[rank], element_bytes, call.chunk_count);
  execution.chunk_count = call.chunk_count;
  auto& memory = execution.memory;
  memory.payload_bytes =
      call.blocks.empty() ? execution.parts[0].source.bytes
                          : engine::share(call.longest_block, call.chunk_count, 0) * element_bytes;
  memory.register_bytes = plan.payloads * memory.payload_bytes;
  memory.data_slot_count = std::uint32_t{plan.slot_count} - plan.line_slot_count;
  memory.long_slot_count = memory.data_slot_count - plan.short_slot_count;
  memory.short_slot_bytes = plan.short_payloads * memory.payload_bytes;
  const std::size_t slots = memory.offset_of_slot(plan.slot_count);
  r.memory.resize(2 * (slots + plan.partial_count * memory.register_bytes) + 1);
  r.arrived.resize(2 * std::size_t{plan.slot_count});
  for (std::size_t parity = 0; parity < 2; ++parity) {
    memory.slots[parity] = r.memory.data() + parity * (r.memory.size() / 2);
    memory.partials[parity] = memory.slots[parity] + slots;
  }
  execution.steps = plan.steps;
  execution.reduction = call.reduction;
  execution.any_order = call.any_order;
  if (call.seed % 2 == 0) execution.resolve();  // or by computing them each time
  for (const plan::Step& step : plan.steps)
    if (step.action == plan::Action::put) r.puts.push_back(&step);
  execution.references.resize(r.puts.size());
  execution.piece_elements = 3;  // several pieces
  execution.piece.resize(3 * element_bytes);
}

/// The targets of all ranks; `plans` may be changed in the order of arrivals.  A rank that has
/// finished writes over its buffers, which are its user's again.
inline std::vector<Bytes> simulate(std::vector<plan::Plan>& plans, const SimulatedCall& call,
                                   std::vector<Bytes> sources) {
  const auto rank_count = static_cast<std::uint32_t>(plans.size());
  std::vector<Bytes> targets = call.targets.empty() ? sources : call.targets;
  std::vector<Bytes> results(rank_count);
  std::vector<SimulatedRank> ranks(rank_count);
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
    SimulatedRank& r = ranks[rank];
    set_up(r, plans[rank], call);
    engine::Execution& execution = r.execution;
    execution.memory.target = targets[rank].data();
    execution.memory.source = call.in_place ? execution.memory.target : sources[rank].data();
    execution.begin();
  }
  SimulatedFabric fabric(ranks, 2, call.seed);
  std::mt19937_64 random(call.seed);
  std::uint64_t idle_turns = 0;
  for (std::uint32_t unfinished = rank_count; unfinished > 0;) {
    if (++idle_turns > idle_turns_max(rank_count)) {
      ADD_FAILURE() << unfinished << " of " << rank_count << " ranks never complete; seed "
                    << call.seed;
      return results;
    }
    if (!fabric.idle() && random() % 2 == 0) {
      fabric.deliver_one();
      idle_turns = 0;
      continue;
    }
    auto rank = static_cast<std::uint32_t>(random() % rank_count);
    if (!ranks[rank].execution.in_flight) continue;
    if (engine::advance(ranks[rank].execution, fabric, rank) != Status::ok) continue;
    idle_turns = 0;
    --unfinished;
    results[rank] = targets[rank];
    for (Bytes* const buffer : {&sources[rank], &targets[rank]})
      std::fill(buffer->begin(), buffer->end(), std::byte{0xa5});
  }
  return results;
}

}  // namespace tutti::simulation
