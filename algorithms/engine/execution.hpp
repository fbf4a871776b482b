// One run of a plan: where its registers are, and how far it has come.  The position is data, so
// resuming is free.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tutti/detail/check.hpp>
#include <tutti/reduction.hpp>
#include <vector>

#include "plan/plan.hpp"

namespace tutti::engine {

/// Memory of a plan's registers.  Partials and slots exist twice, by parity of the call: finishing
/// call c+1 needs every rank to have entered it, hence to have left call c, so nothing of call c is
/// in use when call c+2 begins, and no acknowledgement is needed.  Where a rank can run ahead, the
/// plan awaits credits instead.
struct RegisterMemory {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  std::array<std::byte*, 2> partials = {};
  std::array<std::byte*, 2> slots = {};
  std::uint32_t data_slot_count = 0;  // the slots behind them have one line each, for credits
  std::size_t register_bytes = 0;     // stride of a partial or slot, all segments
  std::size_t payload_bytes = 0;      // of one segment: room for the longest part

  static constexpr std::size_t line_bytes = 64;

  std::size_t bytes_of_slot(std::uint32_t slot) const noexcept {
    return slot < data_slot_count ? register_bytes : line_bytes;
  }
  /// From the first one.
  std::size_t offset_of_slot(std::uint32_t slot) const noexcept {
    return slot < data_slot_count
               ? slot * register_bytes
               : data_slot_count * register_bytes + (slot - data_slot_count) * line_bytes;
  }
};

/// Where a part lies in source and target.
struct Part {
  std::size_t offset_bytes = 0;
  std::size_t bytes = 0;
  std::size_t element_count = 0;
};

/// `element_count` elements in `part_count` parts, as even as can be, the longer ones first.
inline std::vector<Part> parts_of(std::size_t element_count, std::size_t element_bytes,
                                  std::size_t part_count) {
  std::vector<Part> parts(part_count);
  std::size_t first = 0;
  for (std::size_t i = 0; i < part_count; ++i) {
    const std::size_t count = element_count / part_count + (i < element_count % part_count ? 1 : 0);
    parts[i] = {first * element_bytes, count * element_bytes, count};
    first += count;
  }
  return parts;
}

struct Execution {
  std::span<plan::Step> steps;
  RegisterMemory memory;
  Reduction reduction;
  std::vector<Part> parts;  // as many as the plan has

  std::size_t next = 0;        // step
  std::size_t puts_done = 0;   // in this call; numbers the puts for the fabric
  std::uint64_t sequence = 0;  // calls started, counted from 1
  bool in_flight = false;
  bool any_order = false;  // whether arrivals may be combined as they come; see advance.hpp

  std::uint32_t parity() const noexcept { return static_cast<std::uint32_t>(sequence & 1); }

  void begin() noexcept {
    detail::check(!in_flight, "an operation is started when it is not in flight", sequence);
    ++sequence;
    next = 0;
    puts_done = 0;
    in_flight = true;
  }

  std::byte* address(const plan::Register& where, const Part& part) const noexcept {
    switch (where.place) {
      case plan::Place::source:
        return const_cast<std::byte*>(memory.source) + part.offset_bytes;  // only ever read
      case plan::Place::target:
        return memory.target + part.offset_bytes;
      case plan::Place::partial:
        return memory.partials[parity()] + offset_of(where);
      case plan::Place::slot:
        return memory.slots[parity()] + offset_of(where);
    }
    __builtin_unreachable();
  }

  /// Of a partial or slot from the first one.
  std::size_t offset_of(const plan::Register& where) const noexcept {
    return where.index * memory.register_bytes + where.segment * memory.payload_bytes;
  }

  /// Of a put, await or copy.
  std::size_t bytes_of(const plan::Step& step) const noexcept {
    return step.segments * parts[step.part].bytes;
  }
};

}  // namespace tutti::engine
