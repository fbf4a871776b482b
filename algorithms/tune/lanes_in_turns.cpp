#include "tune/lanes_in_turns.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "tune/chunks.hpp"
#include "tune/names.hpp"
#include "tune/prices.hpp"
#include "tune/rows.hpp"

namespace tutti::tune {
namespace {

constexpr std::uint32_t turns_of_shapes[] = {2, 3, 4, 6, 8, 12, 16, 24, 32};
constexpr std::uint32_t pieces_of_shapes[] = {1, 2, 4, 8};
constexpr std::uint32_t exchanges_max = 2;  // more send far more bytes than they save messages
/// So many shapes, those with the least estimates, are priced by their events, if they have no more
/// messages than this together.  Thousands of ranks have longer events.
constexpr std::size_t priced_max = 24, priced_of_thousands_max = 12;
constexpr std::uint64_t priced_messages_max = 1u << 16;
/// The shape with the fewest messages is taken of those whose price is at most half a hundredth
/// above the least: its time changes least if the network's gap is not exactly what it is taken
/// for.
constexpr plan::Picoseconds close_share = 200;
/// Shapes that a race may look at: this one, and those with the least prices.
constexpr std::size_t raced_max = 6;

/// Whether lanes may go in turns.  Where ranks share CPUs, more messages cost more than the model
/// knows.
bool may_go_in_turns(const Query& query) {
  const CollectiveRequest& request = query.request;
  return request.collective == Collective::allreduce && !request.is_asked_for() &&
         !request.is_undivided && !request.shares_target && !query.topology.shares_cpus &&
         request.reduction.properties.commutative && !is_reproducible_in_bits(request) &&
         request.bytes() >= cut_again_from_bytes && query.topology.node_count() > 1;
}

/// Rounds across: factors of the number of nodes, less one each.  The first one, or each, is the
/// largest factor of at most messages_max + 1; the others are prime.  Where no such factor is left,
/// the rest is one round.
plan::PerRound rounds_across(std::uint32_t node_count, std::uint32_t messages_max, bool each) {
  plan::PerRound rounds;
  while (node_count > 1) {
    const std::uint32_t most = each || rounds.empty() ? messages_max : 1;
    std::uint32_t extent = std::min(node_count, most + 1);
    while (node_count % extent != 0) --extent;
    if (extent == 1)
      for (extent = 2; node_count % extent != 0;) ++extent;
    rounds.push_back(extent - 1);
    node_count /= extent;
  }
  return rounds;
}

std::vector<plan::PerRound> vectors_across(const Query& query) {
  const std::uint32_t node_count = query.topology.node_count();
  std::vector<plan::PerRound> vectors;
  for (const std::uint32_t messages_max : {1u, 3u, 7u, 15u, 31u})
    for (const bool each : {true, false}) {
      plan::PerRound rounds = rounds_across(node_count, messages_max, each);
      const std::uint64_t partners =
          std::accumulate(rounds.begin(), rounds.end(), std::uint64_t{0});
      if (partners <= query.request.partners_max &&
          std::find(vectors.begin(), vectors.end(), rounds) == vectors.end())
        vectors.push_back(std::move(rounds));
    }
  return vectors;
}

/// A plan without steps, of which the numbers of parts, payloads and registers are set.
plan::Plan sizes_of(const plan::LaneTurnsExtent& extent) {
  plan::Plan sizes;
  sizes.parts = static_cast<std::uint16_t>(extent.parts);
  sizes.payloads = static_cast<std::uint16_t>(extent.payloads);
  sizes.slot_count = static_cast<std::uint16_t>(extent.slots);
  sizes.short_slot_count = static_cast<std::uint16_t>(extent.short_slots);
  sizes.short_payloads = static_cast<std::uint16_t>(extent.short_payloads);
  sizes.partials_max = static_cast<std::uint16_t>(extent.partials);
  return sizes;
}

/// Whether the registers keep to their budget.  With thousands of ranks they do not, because a part
/// has at least part_bytes_min bytes.
bool has_room(const plan::Plan& sizes) {
  constexpr std::size_t line = 64;
  const std::size_t bytes =
      payloads_of_registers(sizes, sizes.partials_max) * chunk_bytes_for(sizes, true);
  const std::size_t registers = std::size_t{sizes.slot_count} + sizes.partials_max;
  // Each ends with a sequence number, and is rounded up.
  return 2 * (bytes + registers * 2 * line) <= plan_registers_bytes;
}

bool is_possible(const Query& query, const plan::LaneTurns& shape, const plan::NodeCounts& counts) {
  if (!plan::is_lane_turns(shape, counts)) return false;
  const plan::LaneTurnsExtent extent = plan::lane_turns_extent(shape, counts);
  return query.request.element_count >= extent.parts &&
         query.request.bytes() >= extent.parts * part_bytes_min && has_room(sizes_of(extent));
}

/// Bytes that go through the plan at a time: a large payload goes in chunks.
std::uint64_t bytes_at_a_time(const Query& query, const plan::LaneTurns& shape,
                              const plan::NodeCounts& counts) {
  const plan::Plan sizes = sizes_of(plan::lane_turns_extent(shape, counts));
  const std::size_t bytes = query.request.bytes();
  const std::size_t chunks = chunk_count(bytes, 1, sizes.parts, chunk_bytes_for(sizes, true));
  return std::max<std::uint64_t>(bytes / chunks, 1);
}

/// By a price of what goes through the plan at a time.
template <class F>
plan::Picoseconds in_chunks(const Query& query, std::uint64_t at_a_time, F&& price) {
  const std::uint64_t priced = priced_bytes(query.request.bytes());
  const plan::Picoseconds time = price(std::min(priced, at_a_time));
  return priced <= at_a_time ? time : scaled(time, priced, at_a_time);
}

/// Whether to look at a shape with its exchanges.  If the last round is of two ranks, they always
/// exchange, because they then send as many bytes in half as many messages.  Other rounds exchange
/// where the messages that this saves are shorter than the port's gap.
bool are_worth_pricing(const Query& query, const plan::LaneTurns& shape,
                       const plan::NodeCounts& counts, std::uint64_t bytes) {
  const plan::PerRound& rounds = shape.per_round;
  if (shape.exchanges == 0) return rounds.size() == 1 || rounds.back() > 1;
  if (shape.exchanges == 1 && rounds.back() == 1) return true;
  std::uint64_t ranges = std::uint64_t{shape.turns} * counts.largest;
  for (std::size_t round = 0; round + shape.exchanges <= rounds.size(); ++round)
    ranges *= rounds[round] + std::uint64_t{1};
  return bytes / ranges < bytes_of_gap(query.network.between);
}

/// Calls visit(shape) for all that are possible.
template <class F>
void for_each_shape(const Query& query, const std::vector<plan::PerRound>& vectors,
                    const plan::NodeCounts& counts, F&& visit) {
  plan::LaneTurns shape{.rank_count = query.topology.rank_count, .node_of = query.topology.node_of};
  for (const plan::PerRound& vector : vectors) {
    shape.per_round = vector;
    for (const std::uint32_t turns : turns_of_shapes)
      for (const std::uint32_t pieces : pieces_of_shapes)
        for (std::uint32_t exchanges = 0; exchanges <= exchanges_max; ++exchanges) {
          shape.turns = turns;
          shape.pieces = pieces;
          shape.exchanges = exchanges;
          if (is_possible(query, shape, counts)) visit(shape);
        }
  }
}

Variant variant_of(const Query& query, const plan::LaneTurns& shape) {
  return {.per_round = shape.per_round,
          .lane_count = query.topology.largest_node(),
          .turns = shape.turns,
          .turn_pieces = shape.pieces,
          .turn_exchanges = shape.exchanges};
}

std::vector<Variant> named(const Query& query) {
  const std::string& name = query.request.only;
  if (!parts_of(name).across.empty()) return {};
  std::vector<plan::PerRound> vectors = vectors_across(query);
  if (const auto vector = vector_in(name)) vectors = {*vector};  // also one that nothing proposes
  std::vector<Variant> variants;
  for_each_shape(query, vectors, query.topology.counts(), [&](const plan::LaneTurns& shape) {
    variants.push_back(variant_of(query, shape));
  });
  return variants;
}

plan::Picoseconds cost_of(const Query& query, const plan::LaneTurns& shape,
                          const plan::NodeCounts& counts) {
  return in_chunks(query, bytes_at_a_time(query, shape, counts), [&](std::uint64_t bytes) {
    return plan::lane_turns_time(shape, counts, query.network, bytes);
  });
}

/// The shapes that are worth pricing by their events, those with the least estimates first.
std::vector<plan::LaneTurns> shapes_by_estimate(const Query& query,
                                                const plan::NodeCounts& counts) {
  struct Estimated {
    plan::Picoseconds estimate;
    plan::LaneTurns shape;
  };
  std::vector<Estimated> all;
  for_each_shape(query, vectors_across(query), counts, [&](const plan::LaneTurns& shape) {
    const std::uint64_t at_a_time = bytes_at_a_time(query, shape, counts);
    if (!are_worth_pricing(query, shape, counts, at_a_time)) return;
    const auto estimate = [&](std::uint64_t bytes) {
      return plan::lane_turns_estimate(shape, counts, query.network, bytes);
    };
    all.push_back({in_chunks(query, at_a_time, estimate), shape});
  });
  std::stable_sort(all.begin(), all.end(), [](const Estimated& left, const Estimated& right) {
    return left.estimate < right.estimate;
  });
  const std::size_t most = query.topology.rank_count > 2048 ? priced_of_thousands_max : priced_max;
  std::vector<plan::LaneTurns> shapes;
  std::uint64_t messages = 0;
  for (Estimated& one : all) {
    messages += plan::lane_turns_extent(one.shape, counts).slots;
    if (shapes.size() == most || (messages > priced_messages_max && !shapes.empty())) break;
    shapes.push_back(std::move(one.shape));
  }
  return shapes;
}

}  // namespace

plan::LaneTurns lane_turns_of(const Query& query, const Variant& variant) {
  return {.rank_count = query.topology.rank_count,
          .node_of = query.topology.node_of,
          .per_round = variant.per_round,
          .turns = variant.turns,
          .pieces = variant.turn_pieces,
          .exchanges = variant.turn_exchanges};
}

plan::Picoseconds lane_turns_cost(const Query& query, const Variant& variant) {
  return cost_of(query, lane_turns_of(query, variant), query.topology.counts());
}

std::vector<Variant> lanes_in_turns(const Query& query) {
  if (!may_go_in_turns(query)) return {};
  if (!query.request.only.empty()) return named(query);
  const plan::NodeCounts counts = query.topology.counts();
  struct Priced {
    plan::Picoseconds cost;
    std::uint64_t messages;
    const plan::LaneTurns* shape;
  };
  std::vector<Priced> priced;
  const std::vector<plan::LaneTurns> shapes = shapes_by_estimate(query, counts);
  priced.reserve(shapes.size());
  for (const plan::LaneTurns& shape : shapes)
    priced.push_back(
        {cost_of(query, shape, counts), plan::lane_turns_extent(shape, counts).slots, &shape});
  if (priced.empty()) return {};
  const auto by_cost = [](const Priced& left, const Priced& right) {
    return left.cost < right.cost;
  };
  std::stable_sort(priced.begin(), priced.end(), by_cost);
  const plan::Picoseconds least = priced.front().cost;
  const auto far = std::find_if(priced.begin(), priced.end(), [&](const Priced& one) {
    return one.cost - least > least / close_share;
  });
  const auto by_messages = [](const Priced& left, const Priced& right) {
    return std::tie(left.messages, left.cost) < std::tie(right.messages, right.cost);
  };
  const auto taken = std::min_element(priced.begin(), far, by_messages);
  std::rotate(priced.begin(), taken, std::next(taken));
  priced.resize(std::min(priced.size(), query.request.for_race ? raced_max : 1));
  std::vector<Variant> variants;
  variants.reserve(priced.size());
  for (const Priced& one : priced) variants.push_back(variant_of(query, *one.shape));
  return variants;
}

}  // namespace tutti::tune
