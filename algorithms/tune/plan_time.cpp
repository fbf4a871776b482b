#include "tune/plan_time.hpp"

#include <algorithm>
#include <vector>

#include "plan/cost/in_chunks.hpp"
#include "plan/cost/makespan.hpp"
#include "tune/chunks.hpp"
#include "tune/prices.hpp"

namespace tutti::tune {
namespace {

bool goes_in_chunks(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce;
}
bool has_blocks(Collective collective) {
  return collective == Collective::allgather || collective == Collective::alltoall ||
         collective == Collective::gather || collective == Collective::scatter;
}

std::size_t chunks_of(const Query& query, std::size_t element_count, const plan::Plan& plan) {
  const CollectiveRequest& request = query.request;
  if (!goes_in_chunks(request.collective)) return 1;
  return chunk_count(element_count, request.reduction.element_bytes, plan.parts,
                     chunk_bytes_for(plan, query.topology.has_shared_nodes()));
}

/// The elements of a call, or as many as priced_bytes() are; at least one, if there are any.
std::size_t priced_elements(const CollectiveRequest& request) {
  const std::size_t element_bytes = std::max(request.reduction.element_bytes, 1u);
  return request.bytes() <= priced_bytes(request.bytes())
             ? request.element_count
             : std::max<std::size_t>(priced_bytes(request.bytes()) / element_bytes, 1);
}

/// All blocks together; beyond some GiB proportions do not change any more, and 64 bits end.
std::uint64_t all_bytes(const CollectiveRequest& request, std::size_t element_count,
                        std::uint32_t rank_count) {
  constexpr std::uint64_t bytes_max = std::uint64_t{8} << 30;
  const std::uint64_t blocks = has_blocks(request.collective) ? rank_count : 1;
  const std::uint64_t element = std::max(request.reduction.element_bytes, 1u);
  const std::uint64_t most = std::max(bytes_max / blocks / element, std::uint64_t{1}) * element;
  return std::min<std::uint64_t>(element_count * request.reduction.element_bytes, most) * blocks;
}

plan::Picoseconds time_of(const Query& query, std::size_t element_count,
                          const std::function<plan::Plan(Rank)>& plan_of) {
  const CollectiveRequest& request = query.request;
  const std::uint32_t rank_count = query.topology.rank_count;
  std::vector<plan::Plan> plans;
  plans.reserve(rank_count);
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) plans.push_back(plan_of(Rank{rank}));
  const auto chunks = static_cast<std::uint32_t>(chunks_of(query, element_count, plans.front()));
  if (chunks > 1)
    for (plan::Plan& plan : plans) plan = plan::in_chunks(plan, chunks);
  return plan::makespan(plans, query.network, query.topology.node_of,
                        {.payload_bytes = all_bytes(request, element_count, rank_count),
                         .element_bytes = std::max(request.reduction.element_bytes, 1u),
                         .order = takes_any_order(request) ? plan::CombineOrder::as_seen
                                                           : plan::CombineOrder::as_planned});
}

}  // namespace

std::uint64_t followed_bytes(const CollectiveRequest& request, std::uint32_t rank_count) {
  return all_bytes(request, request.element_count, rank_count);
}

plan::Picoseconds plan_time(const Query& query, const std::function<plan::Plan(Rank)>& plan_of) {
  return time_of(query, query.request.element_count, plan_of);
}

plan::Picoseconds priced_plan_time(const Query& query,
                                   const std::function<plan::Plan(Rank)>& plan_of) {
  return time_of(query, priced_elements(query.request), plan_of);
}

std::size_t messages_followed(const Query& query, const Row& row, const plan::Plan& plan) {
  const CollectiveRequest& request = query.request;
  if (row.is_flow || request.zero_copy || request.reads_in_place || request.shares_target ||
      !request.block_bytes.empty() || !request.has_equal_blocks ||
      request.collective == Collective::allreduce_ssp)
    return SIZE_MAX;
  const std::size_t chunks = chunks_of(query, priced_elements(request), plan);
  if (chunks * plan.slot_count > UINT16_MAX / 2 || chunks * plan.parts > UINT16_MAX / 2)
    return SIZE_MAX;
  return chunks * plan.slot_count * query.topology.rank_count;
}

}  // namespace tutti::tune
