// One run of a plan: where its registers are, and how far it has come.  The position is data, so
// resuming is free.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tutti/detail/bulk_copy.hpp>
#include <tutti/detail/check.hpp>
#include <tutti/reduction.hpp>
#include <vector>

#include "plan/core/plan.hpp"

namespace tutti::engine {

/// Memory of a plan's registers.  Partials and slots exist twice, by parity of the call: a rank can
/// finish call c+1 only when every rank has entered it, and hence has left call c.  So nothing of
/// call c is in use when call c+2 begins, and no acknowledgement is needed.  Where a rank can run
/// ahead, the plan awaits credits instead.
struct RegisterMemory {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  std::array<std::byte*, 2> partials = {};
  std::array<std::byte*, 2> slots = {};
  std::uint32_t long_slot_count = 0;  // the slots behind these are short
  std::uint32_t data_slot_count = 0;  // the slots behind these have one line each
  /// The address here of a message that stays in its sender's memory, by parity, then by slot.  A
  /// null pointer means that the message lands in its slot; an empty vector, that every message
  /// does.
  std::array<std::vector<std::byte*>, 2> in_place = {};
  std::size_t register_bytes = 0;    // stride of a partial or slot, all payloads
  std::size_t short_slot_bytes = 0;  // stride of a short slot
  std::size_t payload_bytes = 0;     // of one payload: room for the longest part
  std::size_t label_bytes = 0;       // at the end of payload_bytes, for a label (stale.hpp)

  static constexpr std::size_t line_bytes = 64;

  std::size_t label_offset() const noexcept { return payload_bytes - label_bytes; }
  std::size_t bytes_of_slot(std::size_t slot) const noexcept {
    if (slot < long_slot_count) return register_bytes;
    return slot < data_slot_count ? short_slot_bytes : line_bytes;
  }
  /// Bytes between the begin of the first slot and that of `slot`.
  std::size_t offset_of_slot(std::size_t slot) const noexcept {
    if (slot < long_slot_count) return slot * register_bytes;
    const std::size_t long_bytes = long_slot_count * register_bytes;
    return slot < data_slot_count
               ? long_bytes + (slot - long_slot_count) * short_slot_bytes
               : long_bytes + (data_slot_count - long_slot_count) * short_slot_bytes +
                     (slot - data_slot_count) * line_bytes;
  }
};

/// Consecutive bytes of a buffer.
struct Range {
  std::size_t offset = 0;
  std::size_t bytes = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

/// Where a part lies in source and target.  Both ranges have `element_count` elements, except for
/// blocks that ranks swap, whose source and target may differ in length.
struct Part {
  Range source = {};
  Range target = {};
  std::size_t element_count = 0;
};

/// Length of piece i when `whole` is cut into `count` pieces as evenly as possible, the longer ones
/// first.
inline constexpr std::size_t share(std::size_t whole, std::size_t count, std::size_t i) noexcept {
  assert(i < count);
  return whole / count + (i < whole % count ? 1 : 0);
}

/// Cuts `element_count` elements into `chunk_count` chunks, and each chunk into `part_count` parts,
/// as evenly as possible and the longer ones first.  No part is longer than the part with its
/// number in the first chunk.
inline std::vector<Part> parts_of(std::size_t element_count, std::size_t element_bytes,
                                  std::size_t part_count, std::size_t chunk_count = 1) {
  std::vector<Part> parts;
  parts.reserve(part_count * chunk_count);
  std::size_t first = 0;
  for (std::size_t chunk = 0; chunk < chunk_count; ++chunk)
    for (std::size_t i = 0; i < part_count; ++i) {
      const std::size_t count = share(share(element_count, chunk_count, chunk), part_count, i);
      const Range range{first * element_bytes, count * element_bytes};
      parts.push_back({range, range, count});
      first += count;
    }
  assert(first == element_count);
  return parts;
}

/// Cuts blocks that the user has laid out into `chunk_count` chunks each.  The ranges are of whole
/// elements.
inline std::vector<Part> parts_of(std::span<const Part> blocks, std::size_t element_bytes,
                                  std::size_t chunk_count = 1) {
  std::vector<Part> parts;
  parts.reserve(blocks.size() * chunk_count);
  const auto chunk_of = [&](const Range& block, std::size_t chunk) {
    assert(block.bytes % element_bytes == 0);
    const std::size_t count = block.bytes / element_bytes;
    const std::size_t before = count / chunk_count * chunk + std::min(chunk, count % chunk_count);
    return Range{block.offset + before * element_bytes,
                 share(count, chunk_count, chunk) * element_bytes};
  };
  for (std::size_t chunk = 0; chunk < chunk_count; ++chunk)
    for (const Part& block : blocks) {
      const Range target = chunk_of(block.target, chunk);
      parts.push_back({chunk_of(block.source, chunk), target, target.bytes / element_bytes});
    }
  return parts;
}

/// Where a step reads or writes, in calls of one parity.
struct Operand {
  enum class Base : std::uint8_t { memory, source, target } base = Base::memory;
  std::byte* memory = nullptr;  // of a register
  std::size_t offset = 0;       // in the user's buffer, which may be another one in each call
};
/// What a copy, combine or take_out works on.
struct Operands {
  Operand from = {}, into = {};
  std::size_t bytes = 0;  // of a copy
  std::size_t element_count = 0;
};

/// A payload of several chunks runs through the plan chunk by chunk, as if each were a call: the
/// parities alternate, and the rules that keep two calls apart keep two chunks apart.  So registers
/// hold one chunk.  Where ranks can run ahead of each other, two chunks are on their way at once:
/// the two buffers of SRM (V. Tipparaju, J. Nieplocha, D. Panda, IPDPS 2003, 2.2).
struct Execution {
  std::span<plan::Step> steps;
  RegisterMemory memory;
  Reduction reduction;
  std::vector<Part> parts;                             // as many as the plan has, for each chunk
  std::size_t chunk_count = 1;                         // of a call
  std::array<std::vector<Operands>, 2> operands = {};  // by parity, then by step; or none
  std::vector<std::uint64_t> references = {};          // addresses that puts by reference send
  struct alignas(RegisterMemory::line_bytes) Line {
    std::byte bytes[RegisterMemory::line_bytes];
  };
  std::size_t puts_per_chunk = 0;  // if each chunk has puts of its own (zero-copy); else 0
  std::vector<Line> piece = {};    // room for what a combine by reference reads at a time
  std::size_t piece_elements = 0;  // that a combine by reference reads at a time
  /// For combines by reference: result = incoming o own.  Null: the reduction has no such function.
  void (*combine_apart)(const void* incoming, const void* own, void* result,
                        std::size_t element_count) noexcept = nullptr;

  // The position.
  std::size_t first_part = 0;  // of the chunk on its way
  std::size_t first_put = 0;   // of the chunk on its way
  std::size_t next = 0;        // step
  std::size_t puts_done = 0;   // in this chunk; first_put + puts_done is the number for the fabric
  std::uint64_t sequence = 0;  // chunks started in all calls, counted from 1
  bool in_flight = false;

  bool any_order = false;  // whether arrivals may be combined as they come; see advance.hpp
  /// Long copies into partials of the operation's own block, and into partials that its caller has
  /// put elsewhere for this chunk.  The latter are not streamed: what was streamed is in no cache
  /// when its place comes round, so that plain stores would seem slow for ever.
  std::array<detail::BulkCopy, 2> into_partials{detail::BulkCopy{detail::Stores::automatic},
                                                detail::BulkCopy::measured_plain()};
  bool partials_are_elsewhere = false;
  detail::LongCopy into_target;  // long copies that no other rank reads

  std::uint32_t parity() const noexcept { return static_cast<std::uint32_t>(sequence & 1); }

  /// With more steps than these, finding the operands takes a small part of the time.
  static constexpr std::size_t resolved_steps_max = 256;

  /// Finds the operands of all steps, for payloads of one chunk.  Computing them anew in each call
  /// would be most of the cost of a small call.  All of `memory` must be known.
  void resolve() {
    if (chunk_count != 1 || steps.size() > resolved_steps_max) return;
    for (std::uint32_t of_parity = 0; of_parity < 2; ++of_parity) {
      operands[of_parity].assign(steps.size(), {});
      for (std::size_t i = 0; i < steps.size(); ++i) {
        const plan::Step& step = steps[i];
        const bool moves = step.action == plan::Action::copy ||
                           step.action == plan::Action::combine ||
                           step.action == plan::Action::take_out;
        if (!moves || step.by_reference) continue;
        operands[of_parity][i] = {.from = operand(step.from, part_of(step), of_parity),
                                  .into = operand(step.into, part_of(step), of_parity),
                                  .bytes = bytes_of(step),
                                  .element_count = part_of(step).element_count};
      }
    }
  }
  std::byte* address(const Operand& where) const noexcept {
    switch (where.base) {
      case Operand::Base::memory:
        assert(where.memory != nullptr);
        return where.memory;
      case Operand::Base::source:
        return const_cast<std::byte*>(memory.source) + where.offset;  // only read
      case Operand::Base::target:
        return memory.target + where.offset;
    }
    __builtin_unreachable();
  }

  void begin() noexcept {
    detail::check(!in_flight, "an operation is started when it is not in flight", sequence);
    assert(parts.size() % chunk_count == 0);
    ++sequence;
    next = 0;
    puts_done = 0;
    first_part = 0;
    first_put = 0;
    in_flight = true;
  }

  /// As if no call had been started.  Nothing of one may be on its way, on any rank, and all ranks
  /// do the same before they start one.
  void forget_calls() noexcept {
    next = puts_done = 0;
    first_part = first_put = 0;
    sequence = 0;
    in_flight = false;
  }

  /// Goes on to the next chunk; false if there is none, which means that the call is finished.
  bool begin_next_chunk() noexcept {
    assert(next == steps.size());
    assert(puts_per_chunk == 0 || puts_done == puts_per_chunk);
    if (chunk_count == 1) return false;
    first_part += parts.size() / chunk_count;
    if (first_part >= parts.size()) return false;
    first_put += puts_per_chunk;
    ++sequence;
    next = 0;
    puts_done = 0;
    return true;
  }

  bool is_last_chunk() const noexcept {
    return first_part + parts.size() / chunk_count >= parts.size();
  }

  const Part& part_of(const plan::Step& step) const noexcept {
    assert(first_part + step.part < parts.size());
    return parts[first_part + step.part];
  }
  /// How many calls have been started.
  std::uint64_t call() const noexcept { return (sequence + chunk_count - 1) / chunk_count; }
  /// The chunk on its way, counted from 1 in each call.
  std::uint64_t chunk() const noexcept {
    assert(sequence > 0);
    return sequence - (call() - 1) * chunk_count;
  }

  std::byte* address(const plan::Register& where, const Part& part) const noexcept {
    return address(operand(where, part, parity()));
  }
  Operand operand(const plan::Register& where, const Part& part,
                  std::uint32_t of_parity) const noexcept {
    assert(of_parity < 2);
    switch (where.place) {
      case plan::Place::source:
        return {.base = Operand::Base::source, .offset = part.source.offset};
      case plan::Place::target:
        return {.base = Operand::Base::target, .offset = part.target.offset};
      case plan::Place::partial:
        return {.memory = memory.partials[of_parity] + offset_of(where)};
      case plan::Place::slot:
        assert(where.index >= memory.data_slot_count || where.index >= memory.long_slot_count ||
               (where.payload + 1u) * memory.payload_bytes <= memory.bytes_of_slot(where.index));
        return {.memory = slot(where.index, of_parity) + where.payload * memory.payload_bytes};
    }
    __builtin_unreachable();
  }

  /// Where the message of a slot is, in this call or in calls of a given parity.
  std::byte* slot(std::size_t index) const noexcept { return slot(index, parity()); }
  std::byte* slot(std::size_t index, std::uint32_t of_parity) const noexcept {
    assert(of_parity < 2);
    if (index < memory.in_place[of_parity].size())
      if (std::byte* const there = memory.in_place[of_parity][index]) return there;
    return memory.slots[of_parity] + memory.offset_of_slot(index);
  }

  /// The first line of a message on its way to a slot.  Null without payload, and if the message
  /// stays with its sender: to look at a line that the sender is writing takes it away from the
  /// sender.
  const std::byte* incoming_line(std::size_t index) const noexcept {
    if (memory.payload_bytes == 0) return nullptr;
    const std::vector<std::byte*>& elsewhere = memory.in_place[parity()];
    const bool stays = index < elsewhere.size() && elsewhere[index] != nullptr;
    return stays ? nullptr : slot(index);
  }

  /// Bytes between the begin of the first partial, or of the first slot, and `where`.
  std::size_t offset_of(const plan::Register& where) const noexcept {
    assert((where.payload + 1u) * memory.payload_bytes <= memory.register_bytes);
    return where.index * memory.register_bytes + where.payload * memory.payload_bytes;
  }

  /// Bytes that a copy moves, or that the message of a put or an await has.  Before the first call,
  /// these are the bytes of the first chunk, whose messages are the longest.
  std::size_t bytes_of(const plan::Step& step) const noexcept {
    if (step.by_reference) return sizeof(std::uint64_t);
    if (step.payloads == 0) return 0;
    const bool is_message = step.action == plan::Action::put || step.action == plan::Action::await;
    if (is_message && memory.label_bytes > 0) return memory.payload_bytes;  // one payload
    const Part& part = part_of(step);
    const bool leaves =
        (step.action == plan::Action::put && !step.forwards) ||
        (step.action != plan::Action::await && step.from.place == plan::Place::source);
    return (step.payloads - 1u) * memory.payload_bytes +
           (leaves ? part.source.bytes : part.target.bytes);
  }
};

}  // namespace tutti::engine
