// Rows of barrier over all ranks, of the stale-synchronous allreduce, and of prefix reductions.
#include <bit>

#include "plan/allreduce/dissemination.hpp"
#include "plan/allreduce/scan.hpp"
#include "plan/allreduce/two_partial.hpp"
#include "plan/core/copies.hpp"
#include "tune/asked_per_round.hpp"
#include "tune/assumed_network.hpp"
#include "tune/rows.hpp"

namespace tutti::tune {
namespace {

std::vector<Variant> barrier_variants(const Query& query) {
  const CollectiveRequest& request = query.request;
  return {{.per_round = covering(
               request.per_round.empty() ? request.per_round_by_default : request.per_round,
               query.topology.rank_count, 0)}};
}

plan::Picoseconds cost_of_barrier(const Query& query, const Variant& variant) {
  const plan::LogGP network = network_of(query);
  plan::Picoseconds cost = 0;
  for (const plan::Round& round :
       plan::two_partial_rounds(query.topology.rank_count, variant.per_round))
    cost += round_cost(network, round.messages, 1, 0, false);
  return cost;
}

/// Throws Error{invalid_argument} if there are not slots enough for so many copies.
plan::Plan stale_plan(const Query& query, const Variant& variant, Rank self) {
  const std::uint32_t rank_count = query.topology.rank_count, slack = query.request.slack;
  const plan::Plan plan =
      plan::two_partial_allreduce(self, rank_count, variant.per_round, plan::Order::commutative);
  if (slack == UINT32_MAX || !plan::has_room_for_copies(plan, slack + 1))
    throw Error(
        ErrorCode::invalid_argument,
        "allreduce_ssp: slack " + std::to_string(slack) + ": expected at most " +
            std::to_string(plan::slots_max / std::max<std::size_t>(plan.slot_count, 1) - 1) +
            " with " + std::to_string(rank_count) + " ranks");
  return plan::in_copies(plan, slack + 1);
}

std::string why_not_node_scan(const Query& query) {
  if (query.topology.rank_count == 1) return "there is one rank";
  return query.topology.has_runs() ? "" : "the ranks of a node do not follow each other";
}

/// Rounds across nodes, in each of which all ranks of a node send through its port, or one alone.
plan::Picoseconds cost_across(const Query& query, plan::Picoseconds senders_of_node) {
  const auto rounds =
      static_cast<plan::Picoseconds>(std::bit_width(query.topology.node_count() - 1));
  return rounds * (round_cost(query.network.between, 1, 1, priced_bytes(query.request.bytes())) +
                   (senders_of_node - 1) * query.network.between.gap);
}

plan::Prefix prefix_of(const Query& query) {
  return query.request.collective == Collective::scan ? plan::Prefix::inclusive
                                                      : plan::Prefix::exclusive;
}

/// The bits of a scan depend on the number of ranks alone.
constexpr Row doubling(Collective collective) {
  return {.collective = collective,
          .name = "doubling",
          .cost = [](const Query& query,
                     const Variant&) { return cost_across(query, query.topology.largest_node()); },
          .build =
              [](const Query& query, const Variant&, Rank self) {
                return plan::doubling_scan(self, query.topology.rank_count, prefix_of(query));
              }};
}

constexpr Row node_doubling(Collective collective) {
  return {.collective = collective,
          .name = "node_doubling",
          .association = Association::any,
          .why_not = why_not_node_scan,
          .cost = [](const Query& query,
                     const Variant&) { return cost_across(query, 1) + hop_in_memory; },
          .build =
              [](const Query& query, const Variant&, Rank self) {
                return plan::node_scan(self, query.topology.node_of, prefix_of(query));
              }};
}

constexpr Row table[] = {
    {.collective = Collective::barrier,
     .name = "dissemination",
     .algorithm = Algorithm::dissemination,
     .variants = barrier_variants,
     .cost = cost_of_barrier,
     .build =
         [](const Query& query, const Variant& variant, Rank self) {
           return plan::dissemination_barrier(self, query.topology.rank_count, variant.per_round);
         }},
    {.collective = Collective::allreduce_ssp,
     .name = "two_partial_dissemination",
     .association = Association::any,
     .variants =
         [](const Query& query) {
           return std::vector<Variant>{
               {.per_round = covering(query.request.per_round_by_default, query.topology.rank_count,
                                      query.request.bytes())}};
         },
     .build = stale_plan},
    doubling(Collective::scan),
    node_doubling(Collective::scan),
    doubling(Collective::exscan),
    node_doubling(Collective::exscan),
};

}  // namespace

std::span<const Row> other_rows() {
  return table;
}

}  // namespace tutti::tune
