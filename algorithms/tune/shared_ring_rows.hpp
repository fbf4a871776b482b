// The rows of the shared ring: an allreduce, and either half of it.
#pragma once

#include "plan/core/plan.hpp"
#include "tune/registry.hpp"

namespace tutti::tune {

std::string why_not_shared_ring(const Query& query);
std::string why_not_shared_ring_unasked(const Query& query);
plan::Picoseconds cost_of_shared_ring(const Query& query, const Variant& variant);
plan::Plan build_shared_ring(const Query& query, const Variant& variant, Rank self);

constexpr Row shared_ring_row(Collective collective, const char* instead) {
  return {.collective = collective,
          .name = "shared_ring",
          .association = collective == Collective::allgather ? Association::canonical
                                                             : Association::expression,
          .algorithm = Algorithm::shared_ring,
          .keeps_rank_order = collective == Collective::allgather,
          .is_flow = true,
          .takes = PerRoundIs::nothing,
          .rounds = "has one node to send to,",
          .instead = instead,
          .why_not = why_not_shared_ring,
          .why_not_unasked = why_not_shared_ring_unasked,
          .cost = cost_of_shared_ring,
          .build = build_shared_ring};
}

}  // namespace tutti::tune
