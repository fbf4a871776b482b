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

/// Of several payloads all but the last one are as long as the longest part, the first one.
inline std::uint64_t message_bytes(const Plan& plan, const Call& call, const Step& put) {
  if (put.payloads == 0) return 0;
  return (put.payloads - std::uint64_t{1}) * part_bytes(plan, call, 0) +
         part_bytes(plan, call, put.part);
}

/// Inside a node a reference is an address, and where the node has one target, a put into it moves
/// nothing.
inline std::uint64_t message_bytes_in_node(const Plan& plan, const Call& call, const Step& put) {
  if (put.by_reference) return sizeof(std::uint64_t);
  return put.into_target ? 0 : message_bytes(plan, call, put);
}

/// One past the last step of a run of pairs, an await and a copy or combine of what it awaited, all
/// into the same register.
std::size_t end_of_run(const std::vector<Step>& steps, std::size_t begin);

}  // namespace tutti::plan
