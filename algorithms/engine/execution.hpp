// One run of a plan: where its registers are, and how far it has come.  The position is data, so
// resuming is free.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tutti/detail/check.hpp>
#include <tutti/reduction.hpp>

#include "plan/plan.hpp"

namespace tutti::engine {

/// Memory of a plan's registers.  Partials and slots exist twice, by parity of the call: finishing
/// call c+1 needs every rank to have entered it, hence to have left call c, so nothing of call c is
/// in use when call c+2 begins, and no acknowledgement is needed.
struct RegisterMemory {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  std::array<std::byte*, 2> partials = {};
  std::array<std::byte*, 2> slots = {};
  std::size_t register_bytes = 0;  // stride of a partial or slot, all segments
  std::size_t payload_bytes = 0;   // of one segment
};

struct Execution {
  std::span<const plan::Step> steps;
  RegisterMemory memory;
  Reduction reduction;
  std::size_t element_count = 0;

  std::size_t next = 0;        // step
  std::size_t puts_done = 0;   // in this call; numbers the puts for the fabric
  std::uint64_t sequence = 0;  // calls started, counted from 1
  bool in_flight = false;

  std::uint32_t parity() const noexcept { return static_cast<std::uint32_t>(sequence & 1); }

  void begin() noexcept {
    detail::check(!in_flight, "an operation is started when it is not in flight", sequence);
    ++sequence;
    next = 0;
    puts_done = 0;
    in_flight = true;
  }

  std::byte* address(const plan::Register& where) const noexcept {
    const std::size_t offset =
        where.index * memory.register_bytes + where.segment * memory.payload_bytes;
    switch (where.place) {
      case plan::Place::source:
        return const_cast<std::byte*>(memory.source);  // only ever read
      case plan::Place::target:
        return memory.target;
      case plan::Place::partial:
        return memory.partials[parity()] + offset;
      case plan::Place::slot:
        return memory.slots[parity()] + offset;
    }
    __builtin_unreachable();
  }
};

}  // namespace tutti::engine
