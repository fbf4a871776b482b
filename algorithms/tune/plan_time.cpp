#include "tune/plan_time.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "plan/cost/in_chunks.hpp"
#include "plan/cost/makespan.hpp"
#include "tune/choose.hpp"
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

plan::Call call_of(const Query& query, std::size_t element_count) {
  const CollectiveRequest& request = query.request;
  return {.payload_bytes = all_bytes(request, element_count, query.topology.rank_count),
          .element_bytes = std::max(request.reduction.element_bytes, 1u),
          .order = takes_any_order(request) ? plan::CombineOrder::as_seen
                                            : plan::CombineOrder::as_planned};
}

plan::Picoseconds time_of(const Query& query, std::size_t element_count,
                          const std::function<plan::Plan(Rank)>& plan_of) {
  const std::uint32_t rank_count = query.topology.rank_count;
  std::vector<plan::Plan> plans;
  plans.reserve(rank_count);
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) plans.push_back(plan_of(Rank{rank}));
  const auto chunks = static_cast<std::uint32_t>(chunks_of(query, element_count, plans.front()));
  if (chunks > 1)
    for (plan::Plan& plan : plans) plan = plan::in_chunks(plan, chunks);
  return plan::makespan(plans, query.network, query.topology.node_of,
                        call_of(query, element_count));
}

/// The time of the events of one node, whose ranks stand for those of all other nodes.
plan::Picoseconds priced_node_time(const Query& query,
                                   const std::function<plan::Plan(Rank)>& plan_of) {
  const Topology& topology = query.topology;
  std::vector<plan::Plan> plans;
  std::vector<std::uint32_t> places;
  if (topology.has_shared_nodes()) {
    const std::uint32_t ranks = topology.largest_node();
    for (std::uint32_t rank = 0; rank < topology.rank_count; ++rank) places.push_back(rank % ranks);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) plans.push_back(plan_of(Rank{rank}));
  } else {
    plans.push_back(plan_of(Rank{0}));
  }
  return plan::makespan_of_node(plans, query.network, topology.node_of, places,
                                call_of(query, priced_elements(query.request)));
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

bool nodes_do_alike(const Query& query, const Row& row, const Variant& variant,
                    const plan::Plan& first) {
  const Topology& topology = query.topology;
  const bool has_rounds =
      row.collective == Collective::allreduce || row.collective == Collective::barrier;
  if (!has_rounds || topology.is_one_node() || !topology.has_equal_nodes() ||
      (topology.has_shared_nodes() && !topology.has_runs()))
    return false;
  if (variant.turns > 0) return true;
  // Halves are exchanged in pairs, so that no node stands where another one does.
  if (!variant.across)
    return first.all_alike && first.payloads == 1 && row.algorithm != Algorithm::canonical_halving;
  const Choice& across = *variant.across;
  return nodes_do_alike(across.query(), across.row(), across.variant(), across.first_plan());
}

// One node is not followed if all nodes together have few messages, nor among so many ranks that
// even the plans of one node take long to be made.
bool is_followed_by_node(const Query& query, const Row& row, const Variant& variant,
                         const plan::Plan& first) {
  constexpr std::uint32_t ranks_max = 1024;
  constexpr std::size_t few = messages_followed_max / 32;
  const std::uint32_t rank_count = query.topology.rank_count;
  return rank_count <= ranks_max && std::size_t{first.slot_count} * rank_count > few &&
         nodes_do_alike(query, row, variant, first);
}

std::optional<plan::Picoseconds> followed_time(const Query& query, const Row& row,
                                               const Variant& variant, const plan::Plan& first) {
  const auto plan_of = [&](Rank self) { return row.build(query, variant, self); };
  if (!is_followed_by_node(query, row, variant, first)) return priced_plan_time(query, plan_of);
  const plan::Picoseconds time = priced_node_time(query, plan_of);
  if (time == std::numeric_limits<plan::Picoseconds>::max()) return {};
  return time;
}

std::size_t messages_followed(const Query& query, const Row& row, const Variant& variant,
                              const plan::Plan& first) {
  const CollectiveRequest& request = query.request;
  if (row.is_flow || request.zero_copy || request.reads_in_place || request.shares_target ||
      !request.block_bytes.empty() || !request.has_equal_blocks ||
      request.collective == Collective::allreduce_ssp)
    return SIZE_MAX;
  const std::size_t chunks = chunks_of(query, priced_elements(request), first);
  if (chunks * first.slot_count > UINT16_MAX / 2 || chunks * first.parts > UINT16_MAX / 2)
    return SIZE_MAX;
  const Topology& topology = query.topology;
  return chunks * first.slot_count *
         (is_followed_by_node(query, row, variant, first) ? topology.largest_node()
                                                          : topology.rank_count);
}

}  // namespace tutti::tune
