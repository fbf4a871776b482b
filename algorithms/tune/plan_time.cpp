#include "tune/plan_time.hpp"

#include <algorithm>
#include <vector>

#include "plan/cost/in_chunks.hpp"
#include "plan/cost/makespan.hpp"
#include "tune/chunks.hpp"

namespace tutti::tune {
namespace {

bool goes_in_chunks(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce;
}
bool has_blocks(Collective collective) {
  return collective == Collective::allgather || collective == Collective::alltoall ||
         collective == Collective::gather || collective == Collective::scatter;
}

std::size_t chunks_of(const Query& query, const plan::Plan& plan) {
  const CollectiveRequest& request = query.request;
  if (!goes_in_chunks(request.collective)) return 1;
  return chunk_count(request.element_count, request.reduction.element_bytes, plan.parts,
                     chunk_bytes_for(plan, query.topology.has_shared_nodes()));
}

}  // namespace

plan::Picoseconds plan_time(const Query& query, const std::function<plan::Plan(Rank)>& plan_of) {
  const CollectiveRequest& request = query.request;
  const std::uint32_t rank_count = query.topology.rank_count;
  std::vector<plan::Plan> plans;
  plans.reserve(rank_count);
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) plans.push_back(plan_of(Rank{rank}));
  const auto chunks = static_cast<std::uint32_t>(chunks_of(query, plans.front()));
  if (chunks > 1)
    for (plan::Plan& plan : plans) plan = plan::in_chunks(plan, chunks);
  return plan::makespan(
      plans, query.network, query.topology.node_of,
      {.payload_bytes = request.bytes() * (has_blocks(request.collective) ? rank_count : 1),
       .element_bytes = std::max(request.reduction.element_bytes, 1u),
       .order = takes_any_order(request) ? plan::CombineOrder::as_seen
                                         : plan::CombineOrder::as_planned});
}

std::size_t messages_followed(const Query& query, const Row& row, const plan::Plan& plan) {
  const CollectiveRequest& request = query.request;
  if (row.is_flow || request.zero_copy || request.reads_in_place || request.shares_target ||
      !request.block_bytes.empty() || !request.has_equal_blocks ||
      request.collective == Collective::allreduce_ssp)
    return SIZE_MAX;
  const std::size_t chunks = chunks_of(query, plan);
  if (chunks * plan.slot_count > UINT16_MAX / 2 || chunks * plan.parts > UINT16_MAX / 2)
    return SIZE_MAX;
  return chunks * plan.slot_count * query.topology.rank_count;
}

}  // namespace tutti::tune
