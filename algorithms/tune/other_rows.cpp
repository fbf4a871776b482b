// Rows of barrier over all ranks, of the stale-synchronous allreduce, and of prefix reductions.
#include <algorithm>
#include <bit>

#include "plan/allreduce/dissemination.hpp"
#include "plan/allreduce/scan.hpp"
#include "plan/allreduce/two_partial.hpp"
#include "plan/core/copies.hpp"
#include "tune/asked_per_round.hpp"
#include "tune/rows.hpp"

namespace tutti::tune {
namespace {

/// Returns the vector that is asked for, else that in the name, else the cheapest one.
template <class Price>
std::vector<Variant> covering_or(const Query& query, const plan::PerRound& asked, Price&& price) {
  const std::uint32_t rank_count = query.topology.rank_count;
  if (const auto vector = vector_in(query.request.only)) return covering_named(*vector, rank_count);
  if (!asked.empty()) return {{.per_round = covering(asked, rank_count)}};
  return {{.per_round = cheapest_vector(rank_count, partners_max_of(query), price)}};
}

std::vector<Variant> barrier_variants(const Query& query) {
  const CollectiveRequest& request = query.request;
  return covering_or(query,
                     request.per_round.empty() ? request.per_round_by_default : request.per_round,
                     [prices = RoundPrices(query)](const plan::Round& round) {
                       return prices.ahead(round, 1, 0, false);
                     });
}

plan::Picoseconds cost_of_barrier(const Query& query, const Variant& variant) {
  const RoundPrices prices(query);
  plan::Picoseconds cost = 0;
  for (const plan::Round& round :
       plan::two_partial_rounds(query.topology.rank_count, variant.per_round))
    cost += prices.ahead(round, 1, 0, false);
  return cost;
}

std::vector<Variant> stale_variants(const Query& query) {
  return covering_or(query, query.request.per_round_by_default,
                     [prices = RoundPrices(query), bytes = priced_bytes(query.request.bytes())](
                         const plan::Round& round) { return prices.ahead(round, 1, bytes); });
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
  if (!query.topology.has_shared_nodes()) return "ranks do not share nodes";
  return query.topology.has_runs() ? "" : "the ranks of a node do not follow each other";
}

/// Every round has messages between nodes, as many from one as ranks of the next one wait for them.
/// Where there are two nodes, all rounds but the last stay inside them.  In the last one, all ranks
/// of the second node wait for what the first one sends.
plan::Picoseconds cost_of_doubling(const Query& query, const Variant&) {
  const plan::LogGP& network = query.network.between;
  const std::uint64_t bytes = priced_bytes(query.request.bytes());
  const std::uint32_t ranks = query.topology.largest_node();
  if (query.topology.node_count() == 2 && ranks > 1 && query.topology.has_runs())
    return round_cost(share_of_port(network, ranks), 1, 1, bytes) +
           std::bit_width(ranks - 1) *
               (hop_in_node(query.network.inside, bytes) + network.work_time(bytes));
  plan::Picoseconds cost = 0;
  for (std::uint64_t ahead = 1; ahead < query.topology.rank_count; ahead *= 2)
    cost += round_cost(
        share_of_port(network, static_cast<std::uint32_t>(std::min<std::uint64_t>(ahead, ranks))),
        1, 1, bytes);
  return cost;
}

/// Rounds inside nodes, then between them, and a message to each other rank of the node.
plan::Picoseconds cost_of_node_doubling(const Query& query, const Variant&) {
  const plan::NodeMemory& memory = query.network.inside;
  const std::uint64_t bytes = priced_bytes(query.request.bytes());
  const std::uint32_t ranks = query.topology.largest_node();
  const auto rounds_of = [](std::uint32_t count) {
    return static_cast<plan::Picoseconds>(std::bit_width(count - 1));
  };
  const plan::Picoseconds hop = hop_in_node(memory, bytes) + query.network.between.work_time(bytes);
  return (rounds_of(ranks) + 1) * hop +
         static_cast<plan::Picoseconds>(ranks - 1) * memory.store_time(bytes) +
         rounds_of(query.topology.node_count()) * round_cost(query.network.between, 1, 1, bytes);
}

plan::Prefix prefix_of(const Query& query) {
  return query.request.collective == Collective::scan ? plan::Prefix::inclusive
                                                      : plan::Prefix::exclusive;
}

/// The bits of a scan depend on the number of ranks alone.
constexpr Row doubling(Collective collective) {
  return {.collective = collective,
          .name = "doubling",
          .cost = cost_of_doubling,
          .build = [](const Query& query, const Variant&, Rank self) {
            return plan::doubling_scan(self, query.topology.rank_count, prefix_of(query));
          }};
}

constexpr Row node_doubling(Collective collective) {
  return {.collective = collective,
          .name = "node_doubling",
          .association = Association::any,
          .why_not = why_not_node_scan,
          .cost = cost_of_node_doubling,
          .build = [](const Query& query, const Variant&, Rank self) {
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
     .variants = stale_variants,
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
