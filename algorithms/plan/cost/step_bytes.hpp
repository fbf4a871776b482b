// How long the messages and parts of a call are, as far as a plan tells.
#pragma once

#include <cstdint>

#include "plan/core/plan.hpp"
#include "plan/cost/makespan.hpp"

namespace tutti::plan {

inline std::uint64_t part_bytes(const Plan& plan, const Call& call, std::uint16_t part) {
  const std::uint64_t elements = call.payload_bytes / call.element_bytes;
  return (elements / plan.parts + (part < elements % plan.parts ? 1 : 0)) * call.element_bytes;
}

/// All of several payloads but the last one are as long as the longest part, the first one.
inline std::uint64_t message_bytes(const Plan& plan, const Call& call, const Step& put) {
  if (put.payloads == 0) return 0;
  return (put.payloads - std::uint64_t{1}) * part_bytes(plan, call, 0) +
         part_bytes(plan, call, put.part);
}

/// A line, and the room for payload in it; the rest is its number.
inline constexpr std::uint64_t line_bytes = 64, line_payload_bytes = 56;

/// Whether a message to another node goes as a line, by the room in the slot of its receiver.
inline bool goes_as_line(const Plan& plan, const Call& call, const Step& step) {
  if (!call.lines || plan.zero_copy || step.into_target) return false;
  return step.slot >= plan.slot_count - plan.line_slot_count ||
         payloads_of_slot(plan, step.slot) * part_bytes(plan, call, 0) <= line_payload_bytes;
}

/// Its bytes on the network: without payload the number alone is written.
inline std::uint64_t bytes_of_line(const Plan& plan, const Call& call, const Step& put) {
  return message_bytes(plan, call, put) == 0 ? line_bytes - line_payload_bytes : line_bytes;
}

/// Inside a node a reference is an address, and where the node has one target, a put into it moves
/// nothing.
inline std::uint64_t message_bytes_in_node(const Plan& plan, const Call& call, const Step& put) {
  if (put.by_reference) return sizeof(std::uint64_t);
  return put.into_target ? 0 : message_bytes(plan, call, put);
}

}  // namespace tutti::plan
