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

inline std::uint64_t message_bytes(const Plan& plan, const Call& call, const Step& put) {
  return put.payloads * part_bytes(plan, call, put.part);
}

/// Inside a node a reference is an address, and where the node has one target, a put into it moves
/// nothing.
inline std::uint64_t message_bytes_in_node(const Plan& plan, const Call& call, const Step& put) {
  if (put.by_reference) return sizeof(std::uint64_t);
  return put.into_target ? 0 : message_bytes(plan, call, put);
}

}  // namespace tutti::plan
