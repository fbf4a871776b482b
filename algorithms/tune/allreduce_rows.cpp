// Rows of allreduce over all ranks.
#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <tutti/detail/names.hpp>

#include "plan/allreduce/canonical_dissemination.hpp"
#include "plan/allreduce/canonical_halving.hpp"
#include "plan/allreduce/canonical_tree.hpp"
#include "plan/allreduce/chunked_fold.hpp"
#include "plan/allreduce/circulant.hpp"
#include "plan/allreduce/decomposition.hpp"
#include "plan/allreduce/dissemination.hpp"
#include "plan/allreduce/nway.hpp"
#include "plan/allreduce/recursive_multiplying.hpp"
#include "plan/allreduce/ring.hpp"
#include "plan/allreduce/two_partial.hpp"
#include "plan/allreduce/zero_copy_allreduce.hpp"
#include "plan/rooted/single_copy.hpp"
#include "tune/asked_per_round.hpp"
#include "tune/canonical_time.hpp"
#include "tune/choose.hpp"
#include "tune/halving_time.hpp"
#include "tune/hierarchy.hpp"
#include "tune/prices.hpp"
#include "tune/rows.hpp"
#include "tune/shared_ring_rows.hpp"
#include "tune/vectors.hpp"

namespace tutti::tune {
namespace {

using plan::Picoseconds, plan::Plan;

/// More ranks than that are not all connected with each other.
constexpr std::uint32_t chunked_fold_ranks_max = partners_unasked_max + 1;

std::uint64_t price_bytes(const Query& query) {
  return priced_bytes(query.request.bytes());
}

/// What the call asks for, else what the context has by default where the schedule can follow it.
const plan::PerRound& vector_for(PerRoundIs takes, const CollectiveRequest& request) {
  static const plan::PerRound none;
  if (!request.per_round.empty()) return request.per_round;
  const plan::PerRound& vector = request.per_round_by_default;
  const bool is_mixed =
      std::adjacent_find(vector.begin(), vector.end(), std::not_equal_to<>()) != vector.end();
  if (takes == PerRoundIs::nothing || (takes == PerRoundIs::uniform && is_mixed)) return none;
  return vector;
}

/// Prices of rounds whose messages are of one value, or two in rank order.
class DisseminationPrices {
 public:
  explicit DisseminationPrices(const Query& query)
      : prices_(query),
        values_(query.request.reduction.properties.commutative ? 1 : 2),
        bytes_(price_bytes(query)) {}
  Picoseconds operator()(const plan::Round& round) const {
    return prices_.ahead(round, values_, bytes_);
  }
  Picoseconds lag(const plan::Round& round) const {
    return prices_.lag(round.messages, values_, bytes_);
  }

 private:
  RoundPrices prices_;
  std::uint64_t values_, bytes_;
};

/// The most blocks of the canonical tree, which few lengths are asked for again and again.
class BlocksMax {
 public:
  explicit BlocksMax(std::uint32_t rank_count) : tree_(rank_count) {}
  std::uint32_t of(std::uint32_t length) const {
    Known& known = known_[length % known_.size()];
    if (known.length != length) known = {length, tree_.blocks_max(length)};
    return known.blocks;
  }

 private:
  struct Known {
    std::uint32_t length = 0, blocks = 0;
  };
  plan::CanonicalTree tree_;
  mutable std::array<Known, 128> known_;
};

/// Prices of rounds whose messages are of as many values as blocks of the canonical tree, at most.
class CanonicalPrices {
 public:
  explicit CanonicalPrices(const Query& query)
      : prices_(query), blocks_max_(query.topology.rank_count), bytes_(price_bytes(query)) {}
  Picoseconds operator()(const plan::Round& round) const {
    return prices_.ahead(round, blocks_max_.of(round.length), bytes_);
  }
  Picoseconds lag(const plan::Round& round) const {
    return prices_.lag(round.messages, blocks_max_.of(round.length), bytes_);
  }

 private:
  RoundPrices prices_;
  BlocksMax blocks_max_;
  std::uint64_t bytes_;
};

template <class Prices>
Picoseconds cost_of_rounds(const Query& query, const Variant& variant) {
  const Prices price(query);
  Picoseconds cost = 0, lag = 0;
  for (const plan::Round& round :
       plan::two_partial_rounds(query.topology.rank_count, variant.per_round)) {
    cost += price(round);
    lag = std::max(lag, price.lag(round));
  }
  return cost + lag;
}

/// Returns the vector that is asked for, else the cheapest one.
template <class Prices>
std::vector<Variant> covering_variants(const Query& query) {
  const std::uint32_t rank_count = query.topology.rank_count;
  if (const auto vector = vector_in(query.request.only)) return covering_named(*vector, rank_count);
  const plan::PerRound& asked = vector_for(PerRoundIs::covering, query.request);
  if (!asked.empty()) return {{.per_round = covering(asked, rank_count)}};
  return {{.per_round = cheapest_vector(rank_count, partners_max_of(query), Prices(query))}};
}

/// Whether events may decide between vectors of a schedule over all ranks; schedules across nodes
/// are chosen by their prices.
bool has_close_vectors(const Query& query, PerRoundIs takes) {
  return query.request.only.empty() && !query.request.is_undivided &&
         vector_for(takes, query.request).empty() && !query.topology.shares_cpus &&
         !query.topology.is_one_node() && !have_lanes_across(query);
}

/// The cheapest vector, and others that may be faster by the events.
std::vector<Variant> dissemination_variants(const Query& query) {
  std::vector<Variant> variants = covering_variants<DisseminationPrices>(query);
  if (!has_close_vectors(query, PerRoundIs::covering)) return variants;
  constexpr std::size_t count_max = 3;
  const std::uint32_t rank_count = query.topology.rank_count;
  for (plan::PerRound& vector : close_uniform_vectors(
           rank_count, messages_max_of(rank_count, partners_max_of(query)), {variants[0].per_round},
           count_max, [&](const plan::PerRound& other) {
             return cost_of_rounds<DisseminationPrices>(query, {.per_round = other});
           }))
    variants.push_back({.per_round = std::move(vector)});
  return variants;
}

}  // namespace

bool has_canonical_time(const Query& query) {
  // Among more, there are many vectors to choose from, or many messages of a node to follow.
  constexpr std::uint32_t ranks_max = 1024, ranks_per_node_max = 64;
  const Topology& topology = query.topology;
  return query.request.collective == Collective::allreduce &&
         is_reproducible_in_bits(query.request) && !topology.is_one_node() &&
         !topology.shares_cpus && topology.rank_count <= ranks_max &&
         topology.largest_node() <= ranks_per_node_max && topology.has_equal_nodes() &&
         (!topology.has_shared_nodes() || topology.has_runs()) &&
         query.network.between.ranks_at_port == 1;
}

namespace {

Picoseconds cost_of_canonical_dissemination(const Query& query, const Variant& variant) {
  if (!has_canonical_time(query)) return cost_of_rounds<CanonicalPrices>(query, variant);
  return canonical_time({.rank_count = query.topology.rank_count,
                         .ranks_per_node = query.topology.largest_node(),
                         .bytes = price_bytes(query)},
                        variant.per_round, query.network);
}

std::optional<Picoseconds> closer_cost_of_dissemination(const Query& query,
                                                        const Variant& variant) {
  if (!has_canonical_time(query)) return {};
  return canonical_time_of_all({.rank_count = query.topology.rank_count,
                                .ranks_per_node = query.topology.largest_node(),
                                .bytes = price_bytes(query)},
                               variant.per_round, query.network);
}

/// Returns the vectors from which one is chosen: the cheapest one by each of several prices of a
/// round, because the sum of a vector's prices only approximates the time of its events.  If the
/// call asks for a vector, or ranks share CPUs, there is only one.  These prices are for
///   - messages that hold the largest possible number of blocks, or about the mean number;
///   - if ranks share nodes, also for messages that all leave their node, for a rank that has the
///     port to itself, and for vectors with at most three messages in a round, or at most one.
/// If has_canonical_time(), there are also, for n = 1 .. 7, the vectors uniform() and
/// nearest_covering().  Up to canonical_ranks_of_all ranks, there are then also the cheapest
/// minimal_vectors() by each price but the first, and in a race all of them.
std::vector<Variant> canonical_variants(const Query& query) {
  std::vector<Variant> variants = covering_variants<CanonicalPrices>(query);
  if (!query.request.only.empty() || !vector_for(PerRoundIs::covering, query.request).empty() ||
      query.topology.shares_cpus)
    return variants;
  // Sums over rounds are 0.85 to 1.2 of the time of the events, so several vectors by each price
  // are needed.  With 20, the choice takes 0.06 % more than the best of all in the mean; with 8, it
  // takes 0.15 % more.
  constexpr std::size_t cheapest_max = 20;
  const std::uint32_t rank_count = query.topology.rank_count;
  const std::uint32_t messages_max = messages_max_of(rank_count, partners_max_of(query));
  const bool is_followed = has_canonical_time(query);
  const std::vector<plan::PerRound> minimal = is_followed && rank_count <= canonical_ranks_of_all
                                                  ? minimal_vectors(rank_count, messages_max)
                                                  : std::vector<plan::PerRound>();
  const auto add_vector = [&](plan::PerRound vector) {
    if (std::none_of(variants.begin(), variants.end(),
                     [&](const Variant& other) { return other.per_round == vector; }))
      variants.push_back({.per_round = std::move(vector)});
  };
  VectorSearch search(rank_count, partners_max_of(query));
  const auto add = [&](const RoundPrice& price) {
    add_vector(search.cheapest(price));
    for (plan::PerRound& vector : cheapest_of(minimal, rank_count, price, cheapest_max))
      add_vector(std::move(vector));
  };
  const BlocksMax blocks_max(rank_count);
  const RoundPrices prices(query);
  const std::uint64_t bytes = price_bytes(query);
  add([&](const plan::Round& round) {
    // As counted for all P to 128.
    const auto blocks = 1u + static_cast<std::uint32_t>(std::bit_width(round.length)) / 2;
    return prices.ahead(round, std::min(round.length, blocks), bytes);
  });
  if (query.topology.has_shared_nodes() && !query.topology.is_one_node()) {
    add([&](const plan::Round& round) {
      return prices.of(round.messages, blocks_max.of(round.length), bytes);
    });
    const Picoseconds one = round_cost(query.network.between, 1, 1, bytes);
    const Picoseconds further = round_cost(query.network.between, 2, 1, bytes) - one;
    add([&](const plan::Round& round) {
      return one + (Picoseconds{round.messages} - 1) * further;
    });
    for (const std::uint32_t largest : {3u, 1u})
      add([&](const plan::Round& round) {
        constexpr Picoseconds never = 1'000'000'000'000;  // a second
        return round.messages > largest ? never
                                        : prices.ahead(round, blocks_max.of(round.length), bytes);
      });
  }
  if (!is_followed) return variants;
  for (std::uint32_t n = 1; n <= 7; ++n) {
    plan::PerRound vector = plan::uniform(rank_count, n);
    if (n * vector.size() <= messages_max) add_vector(std::move(vector));
    vector = plan::nearest_covering(rank_count, n);
    if (std::accumulate(vector.begin(), vector.end(), 0u) > messages_max) continue;
    add_vector(std::move(vector));
  }
  if (query.request.for_race)
    for (const plan::PerRound& vector : minimal) add_vector(vector);
  return variants;
}

/// What a round of recursive multiplying takes whose messages come in another order than that in
/// which they are combined: the last one first, for some rank.
plan::CorePrices core_prices(const Query& query) {
  const std::uint64_t bytes = price_bytes(query);
  const Picoseconds work = query.network.between.work_time(bytes);
  const auto prices = [&](bool combines) -> plan::CorePrices::OfRound {
    const Picoseconds combined = combines ? work : 0;
    if (query.topology.is_one_node()) {
      const plan::NodeMemory& memory = query.network.inside;
      const Picoseconds taken = memory.receive_overhead + combined;
      return {.each = memory.store_time(bytes), .least = memory.latency + taken, .busy = taken};
    }
    // Rounds of lanes overlap (round_prices.cpp).
    const bool are_lanes = have_lanes_across(query);
    const plan::LogGP network = are_lanes ? of_one_lane(query.network.between) : network_of(query);
    const Picoseconds one = round_cost(network, 1, 1, bytes, false);
    const Picoseconds further = round_cost(network, 2, 1, bytes, false) - one;
    return {.fixed = one - further,
            .each = further + combined,
            .shared = are_lanes ? query.network.between.port_time(bytes) : 0,
            .own = network.rank_gap + network.receive_overhead + combined};
  };
  return {.combining = prices(true), .out = prices(false), .largest = messages_of_round_max};
}

plan::PerRound core_vector(const Query& query) {
  const std::uint32_t rank_count = query.topology.rank_count;
  const plan::CorePrices prices = core_prices(query);
  const plan::PerRound& asked = vector_for(PerRoundIs::core, query.request);
  if (!asked.empty()) return core(asked, rank_count, prices);
  return plan::cheapest_core(rank_count, prices,
                             messages_max_of(rank_count, partners_max_of(query)));
}
Picoseconds cost_of_recursive_multiplying(const Query& query, const Variant& variant);

std::vector<Variant> core_variants(const Query& query) {
  const std::uint32_t rank_count = query.topology.rank_count;
  const auto named = vector_in(query.request.only);
  if (named && !plan::is_core(rank_count, *named)) return {};
  std::vector<Variant> variants{{.per_round = named ? *named : core_vector(query)}};
  if (named || !vector_for(PerRoundIs::core, query.request).empty() || query.topology.shares_cpus)
    return variants;
  // The cheapest of smaller entries, too, as if messages came in the order in which they are
  // combined.
  plan::CorePrices prices = core_prices(query);
  if (!query.topology.is_one_node())
    prices.combining.each -= query.network.between.work_time(price_bytes(query));
  for (const std::uint32_t largest : {7u, 3u}) {
    prices.largest = largest;
    plan::PerRound other = plan::cheapest_core(rank_count, prices,
                                               messages_max_of(rank_count, partners_max_of(query)));
    if (std::none_of(variants.begin(), variants.end(),
                     [&](const Variant& variant) { return variant.per_round == other; }))
      variants.push_back({.per_round = std::move(other)});
  }
  if (!has_close_vectors(query, PerRoundIs::core)) return variants;
  constexpr std::size_t close_max = 3;
  std::vector<plan::PerRound> known;
  known.reserve(variants.size());
  for (const Variant& variant : variants) known.push_back(variant.per_round);
  for (plan::PerRound& vector :
       close_cores(rank_count, messages_max_of(rank_count, partners_max_of(query)), known,
                   close_max, [&](const plan::PerRound& core) {
                     return cost_of_recursive_multiplying(query, {.per_round = core});
                   }))
    variants.push_back({.per_round = std::move(vector)});
  return variants;
}

bool needs_one_expression(const CollectiveRequest& request) {
  return order_shows_in_bits(request.reduction) && request.agreement == Agreement::identical;
}

std::string by_name_only(const Query&) {
  return "it is taken by name only";
}

std::string why_not_single_copy(const Query& query) {
  return is_read_in_place(query) ? "" : "the ranks do not read each other's buffers";
}

// Whole payloads.

std::string why_not_two_partial(const Query& query) {
  return query.request.one_value_only && !query.request.reduction.properties.commutative
             ? "its messages carry two values in rank order"
             : "";
}

std::string why_not_recursive_multiplying(const Query& query) {
  const CollectiveRequest& request = query.request;
  if (needs_one_expression(request)) return "";
  if (request.one_value_only && !request.reduction.properties.commutative) return "";
  return "ranks may associate operands differently, which takes no more rounds";
}

std::string why_not_along_the_tree(const Query& query) {
  if (is_reproducible_in_bits(query.request)) return "";
  if (query.request.one_value_only) return "its messages carry several values";
  return needs_one_expression(query.request) ? "" : "nobody asks for the bits of one expression";
}

/// How many ranks of the core first fold the values of ranks outside of it: one for each rank
/// outside, or all if there are at least as many outside, or in a single node.
std::uint64_t ranks_that_fold(const Query& query, const plan::PerRound& core) {
  const std::uint64_t ranks = query.topology.rank_count;
  std::uint64_t groups = 1;
  for (const std::uint32_t entry : core) groups *= entry + std::uint64_t{1};
  return query.topology.is_one_node() || ranks >= 2 * groups ? groups : ranks - groups;
}

/// Ranks that fold enter the core late, and delay ranks that receive from them.  They are the first
/// ranks of the core, so that they meet each other in its first rounds.  In later rounds they meet
/// ranks that are ahead, and wait for nobody; they also send the result out while others are still
/// in the core.  Lanes that do so send the messages of several rounds at once, one lane after the
/// other.
Picoseconds cost_of_recursive_multiplying(const Query& query, const Variant& variant) {
  const plan::PerRound& core = variant.per_round;
  const plan::PerRound rounds = plan::recursive_multiplying_rounds(query.topology.rank_count, core);
  const bool is_folded = rounds.size() != core.size();
  const plan::CorePrices prices = core_prices(query);
  const Picoseconds lanes = query.network.between.ranks_at_port;
  const std::uint64_t folding = ranks_that_fold(query, core);
  Picoseconds cost = 0, of_folding = 0, lag = 0, further = 0;
  bool is_ahead = false;     // the folding ranks did not wait in a round before
  std::uint64_t stride = 1;  // between ranks that meet in a round of the core
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    const bool is_in = is_folded && i == 0, is_out = is_folded && i + 1 == rounds.size();
    const plan::CorePrices::OfRound& price = is_out ? prices.out : prices.combining;
    const Picoseconds of_round = price.of(rounds[i]), at_once = rounds[i] * price.each;
    const bool waits = is_in || is_out || stride < folding;
    of_folding += waits ? of_round : std::max(at_once, rounds[i] * price.shared);
    if (!waits && is_ahead) further += at_once;
    is_ahead = is_ahead || !waits;
    if (!is_out) cost += of_round;
    if (!is_in) stride *= rounds[i] + std::uint64_t{1};
    if (price.shared == 0) continue;
    const Picoseconds alone = price.fixed + at_once;
    lag = std::max(lag, lag_of_lanes(lanes, rounds[i] * price.shared, alone));
  }
  if (is_folded) cost = std::max(cost + (lanes - 1) * further / 2, of_folding);
  return cost + lag;
}

// One n for all rounds.

/// The cheapest n of those that serve.
template <class Serves>
std::vector<Variant> uniform_variants(const Query& query, Serves&& serves) {
  const std::uint32_t rank_count = query.topology.rank_count;
  if (const auto vector = vector_in(query.request.only)) {
    if (vector->size() != 1 || !serves(vector->front())) return {};
    return {{.per_round = *vector}};
  }
  const DisseminationPrices price(query);
  std::uint32_t best = 1;
  Picoseconds least = INT64_MAX;
  for (std::uint32_t n = 1; n <= std::min(messages_of_round_max, std::max(rank_count, 2u) - 1);
       ++n) {
    if (!serves(n)) continue;
    Picoseconds cost = 0;
    for (const plan::Round& round :
         plan::two_partial_rounds(rank_count, plan::uniform(rank_count, n)))
      cost += price(round);
    if (cost >= least) continue;
    least = cost;
    best = n;
  }
  return {{.per_round = {best}}};
}
std::vector<Variant> nway_variants(const Query& query, Algorithm algorithm) {
  const std::uint32_t rank_count = query.topology.rank_count;
  const plan::PerRound& asked = vector_for(PerRoundIs::uniform, query.request);
  if (!asked.empty()) return {{.per_round = {nway_n(asked, rank_count, algorithm)}}};
  return uniform_variants(query,
                          [&](std::uint32_t n) { return plan::is_adaptable(rank_count, n); });
}
std::vector<Variant> decomposition_variants(const Query& query, Algorithm algorithm,
                                            plan::Digits digits) {
  const std::uint32_t rank_count = query.topology.rank_count;
  const plan::PerRound& asked = vector_for(PerRoundIs::uniform, query.request);
  if (!asked.empty())
    return {{.per_round = {decomposition_n(asked, rank_count, algorithm, digits)}}};
  return uniform_variants(
      query, [&](std::uint32_t n) { return plan::is_decomposable(rank_count, n, digits); });
}
Plan nway_plan(const Query& query, const Variant& variant, Rank self, plan::TakeOut take_out) {
  return plan::nway_allreduce(self, query.topology.rank_count, variant.per_round[0], take_out,
                              order_of(query.request.reduction));
}
Plan decomposition_plan(const Query& query, const Variant& variant, Rank self,
                        plan::Digits digits) {
  return plan::decomposition_allreduce(self, query.topology.rank_count, variant.per_round[0],
                                       digits, order_of(query.request.reduction));
}

// A part of the payload for each rank.

std::string needs_messages(const char* how_many, std::uint32_t rank_count) {
  return std::string("needs ") + how_many + " of " + std::to_string(plan::slots_max) +
         " messages, P is " + std::to_string(rank_count);
}

plan::Buffers buffers_of(const CollectiveRequest& request) {
  return request.zero_copy ? plan::Buffers::registered : plan::Buffers::anywhere;
}

}  // namespace

std::string why_not_divided(const Query& query) {
  const CollectiveRequest& request = query.request;
  if (query.topology.rank_count == 1) return "there is one rank";
  if (request.is_undivided) return "the payload is a part of one already";
  if (is_reproducible_in_bits(request))
    return request.per_round.empty() ? "" : "messages per round are asked for";
  if (request.gives_per_round()) return "messages per round are asked for";
  if (query.topology.shares_cpus || query.topology.is_one_node()) {
    const std::size_t least =
        is_open_in_node(query) ? raced_in_parts_from_bytes : in_parts_from_bytes;
    return request.bytes() < least ? "the payload is small" : "";
  }
  return request.element_count < query.topology.rank_count ? "there are fewer elements than ranks"
                                                           : "";
}

namespace {

/// Whether all ranks may be connected with each other unasked.
bool may_connect_all(const Query& query) {
  const std::uint32_t rank_count = query.topology.rank_count;
  if (is_reproducible_in_bits(query.request))
    return rank_count - query.topology.smallest_node() <= partners_unasked_max;
  return rank_count <= chunked_fold_ranks_max;
}

std::string why_not_chunked_fold(const Query& query) {
  const std::uint32_t rank_count = query.topology.rank_count;
  const std::uint32_t partners_max = query.request.partners_max;
  if (plan::is_chunked_fold(rank_count) && rank_count - 1 <= partners_max) return "";
  return "connects every rank to all others and " + needs_messages("2 (P - 1)", rank_count) +
         (partners_max == UINT32_MAX
              ? ""
              : " and a context holds " + std::to_string(partners_max) + " connections");
}

std::string why_not_all_connected(const Query& query) {
  if (std::string why = why_not_divided(query); !why.empty()) return why;
  return may_connect_all(query) ? "" : "it would connect more ranks than are connected unasked";
}

Picoseconds cost_of_chunked_fold(const Query& query, const Variant&) {
  const std::uint32_t rank_count = query.topology.rank_count;
  const std::uint64_t part = (price_bytes(query) + rank_count - 1) / rank_count;
  const RoundPrices prices(query);
  return prices.of(rank_count - 1, 1, part) + prices.of(rank_count - 1, 1, part, false);
}

/// Sub-blocks of each block.  With two, one is combined while the other travels.  Among more than
/// 64 ranks one suffices: enough messages are on their way.
std::uint32_t ring_sub_blocks(std::uint32_t rank_count) {
  return rank_count <= 64 ? 2 : 1;
}

std::string why_not_ring(const Query& query) {
  const std::uint32_t rank_count = query.topology.rank_count;
  return plan::is_ring(rank_count, ring_sub_blocks(rank_count)) ? ""
                                                                : needs_messages("2 P", rank_count);
}

/// Between two ranks with registered buffers the ring copies nothing at all, and the fold a part of
/// the result.
std::string why_not_zero_copy_ring(const Query& query) {
  if (!query.request.zero_copy || query.topology.rank_count != 2) return by_name_only(query);
  return why_not_all_connected(query);
}

Picoseconds cost_of_zero_copy_ring(const Query& query, const Variant& variant) {
  return cost_of_chunked_fold(query, variant) -
         query.network.between.work_per_byte.of(price_bytes(query) / 2);
}

/// In runs of messages of a part each, there and back.  A part is passed on as soon as it is there,
/// so that a run begins when the first message of the run before has come, or when the port has
/// sent all of these; the last run alone is awaited to its end.  The first `inside` runs stay in
/// the node.
Picoseconds cost_of_runs(const Query& query, const std::vector<std::uint32_t>& runs,
                         std::size_t inside = 0) {
  const plan::LogGP network = network_of(query);
  plan::LogGP first_at_port = network;
  first_at_port.ranks_at_port = 1;
  const std::uint64_t parts = std::accumulate(runs.begin(), runs.end(), std::uint64_t{1});
  const std::uint64_t part = (price_bytes(query) + parts - 1) / parts;
  const auto until_next = [&](std::size_t run, bool combines) {
    const std::uint32_t messages = runs[run];
    if (run < inside) return round_cost_in_node(query.network, messages, 1, part, combines);
    const Picoseconds each =
        round_cost(network, 2, 1, part, combines) - round_cost(network, 1, 1, part, combines);
    const Picoseconds own =
        network.rank_gap + network.receive_overhead + (combines ? network.work_time(part) : 0);
    return std::max(
        {messages * each, messages * own, round_cost(first_at_port, 1, 1, part, combines)});
  };
  Picoseconds cost = 0;
  for (std::size_t run = 0; run < runs.size(); ++run)
    cost += until_next(run, true) + until_next(run, false);
  if (runs.empty() || inside > 0) return cost;
  return cost - until_next(0, false) + round_cost(network, runs.front(), 1, part, false);
}

/// The time of payloads of a few KiB by the recurrence, in twentieths of the price of their runs,
/// as counted for 33 to 520 ranks.  The runs leave out two things: waiting for parts that others
/// pass on, and what ranks carry for other cubes, which is less the smaller the last cube is.
Picoseconds twentieths_of_halving(const Topology& topology) {
  const std::uint32_t rank_count = topology.rank_count;
  const auto width = static_cast<int>(std::bit_width(rank_count));
  const int bits = std::max(width - 1, 5);
  const int smaller = width - 1 - std::countr_zero(rank_count);  // the last cube than the first
  const int further_cubes = std::max(std::popcount(rank_count) - 2, 0);
  const std::uint32_t ranks_per_node = topology.largest_node();
  if (ranks_per_node == 1) return 27 + 12 * (bits - 5) + 5 * further_cubes / 2;
  if (ranks_per_node < 4) return 25 + 5 * (bits - 5);
  if (ranks_per_node < 8) return std::max({25, 19 + bits, 20 + 3 * smaller + 3 * further_cubes});
  return (smaller > 1 ? 25 : 23) + 4 * std::min(smaller, 6) + further_cubes;
}

/// Halves go to the next rank first, then twice as far, and so on.
Picoseconds cost_of_halving(const Query& query, const Variant&) {
  const Topology& topology = query.topology;
  const bool has_inside = topology.has_shared_nodes() && topology.has_runs();
  const std::size_t inside =
      has_inside ? static_cast<std::size_t>(std::bit_width(topology.largest_node())) - 1 : 0;
  const std::vector<std::uint32_t> runs = plan::canonical_halving_runs(topology.rank_count);
  const Picoseconds cost = cost_of_runs(query, runs, std::min(inside, runs.size()));
  if (has_canonical_time(query)) return cost / 20 * twentieths_of_halving(topology);
  // The factors are fitted to the recurrence.  The runs contain neither what some ranks carry for
  // other cubes nor the time for which ranks of a node wait for each other.
  const int cubes = std::popcount(topology.rank_count);
  const Picoseconds carried = cubes == 1 ? 0 : std::max(cubes, 5);
  return cost + cost / 20 * (inside == 0 ? carried : cubes == 1 ? 5 : 15);
}

std::optional<Picoseconds> closer_cost_of_halving(const Query& query, const Variant&) {
  const std::uint32_t ranks_per_node = query.topology.largest_node();
  if (!has_canonical_time(query) || !std::has_single_bit(ranks_per_node)) return {};
  return halving_time({.rank_count = query.topology.rank_count,
                       .ranks_per_node = ranks_per_node,
                       .bytes = price_bytes(query)},
                      query.network);
}

std::vector<std::uint32_t> circulant_runs(const Query& query) {
  return plan::circulant_runs(query.topology.rank_count, plan::Skips::few);
}

std::string why_not_passed_on(const Query& query, std::uint32_t ranks_max) {
  if (std::string why = why_not_divided(query); !why.empty()) return why;
  // A message takes a port for as long as longer ones do, and there is one for each part.
  if (!is_reproducible_in_bits(query.request) &&
      price_bytes(query) / query.topology.rank_count < bytes_of_gap(query.network.between) / 8)
    return "the parts would be shorter than what a port sends in the gap between messages";
  if (may_connect_all(query)) return "all ranks are connected, and each has a part";
  return query.topology.rank_count > ranks_max
             ? "its registers would take more than the arena that there is by default"
             : "";
}

std::string why_not_circulant(const Query& query) {
  const std::uint32_t rank_count = query.topology.rank_count;
  return plan::is_circulant_allreduce(rank_count) ? "" : needs_messages("4 (P - 1)", rank_count);
}

std::string why_not_circulant_unasked(const Query& query) {
  if (query.request.across == Across::automatic && query.topology.has_shared_nodes() &&
      query.topology.has_equal_nodes() && !query.topology.is_one_node())
    return "ranks share nodes, whose lanes send less";
  if (std::string why = why_not_passed_on(query, passed_on_ranks_max); !why.empty()) return why;
  return 2 * circulant_runs(query).size() > query.request.partners_max
             ? "a context does not hold so many connections"
             : "";
}

std::string why_not_canonical_halving(const Query& query) {
  const std::uint32_t rank_count = query.topology.rank_count;
  return plan::is_canonical_halving(rank_count) ? "" : needs_messages("4 P", rank_count);
}

/// It takes a sixth more of the arena than circulant.
std::string why_not_canonical_halving_unasked(const Query& query) {
  if (std::string why = why_not_passed_on(query, passed_on_ranks_max - 1); !why.empty()) return why;
  if (serves(row_of(Algorithm::circulant), query.request))
    return "circulant serves, and takes less of the arena";
  return plan::canonical_halving_partners_max(query.topology.rank_count) >
                 query.request.partners_max
             ? "a context does not hold so many connections"
             : "";
}

std::string why_not_zero_copy_in_nodes(const Query& query) {
  return is_zero_copy_in_nodes(query)
             ? ""
             : "the buffers of ranks that share nodes are not all in segments, or the payload does "
               "not suit it";
}

/// The price of what a rank with a lane does, on the largest node: it gives references to sources
/// and to results, reads both, and takes part in two rounds across.
Picoseconds cost_of_zero_copy_in_nodes(const Query& query, const Variant&) {
  const plan::ZeroCopyLanes shape = zero_copy_lanes_of(query);
  const plan::NodeMemory& memory = query.network.inside;
  const std::uint64_t parts = plan::zero_copy_parts(shape);
  const std::uint64_t part = (price_bytes(query) + parts - 1) / parts;
  const std::uint32_t nodes = query.topology.node_count();
  const Picoseconds references =
      (query.topology.largest_node() - Picoseconds{1}) * nodes * shape.pieces;
  const Picoseconds read =
      memory.store_time(sizeof(std::uint64_t)) + memory.receive_overhead + memory.read_time(part);
  const Picoseconds in_node =
      references * (2 * read + query.network.between.work_time(part)) + 3 * memory.latency;
  if (nodes == 1) return in_node;
  const std::uint32_t messages = (nodes - 1) * shape.pieces;
  return in_node + round_cost(network_of(query), messages, 1, part) +
         round_cost(network_of(query), messages, 1, part, false);
}

constexpr auto allreduce = Collective::allreduce;

/// In the order of the catalogue (algorithms/README.md).
constexpr Row table[] = {
    {.collective = allreduce,
     .name = "single_copy",
     .keeps_rank_order = false,
     .has_other_bits = true,
     .takes = PerRoundIs::nothing,
     .why_not_unasked = why_not_single_copy,
     .cost = [](const Query&, const Variant&) { return Picoseconds{0}; },  // measured: the faster
     .build = [](const Query&, const Variant&,
                 Rank self) { return plan::single_copy_allreduce(self); }},
    {.collective = allreduce,
     .name = "lanes_zero_copy",
     .association = Association::expression,
     .keeps_rank_order = false,
     .is_in_place = true,
     .takes = PerRoundIs::nothing,
     .why_not_unasked = why_not_zero_copy_in_nodes,
     .cost = cost_of_zero_copy_in_nodes,
     .build = [](const Query& query, const Variant&,
                 Rank self) { return plan::zero_copy_allreduce(self, zero_copy_lanes_of(query)); }},
    {.collective = allreduce,
     .name = "dissemination",
     .association = Association::any,
     .algorithm = Algorithm::dissemination,
     .keeps_rank_order = false,
     .needs_idempotent = true,
     .variants = dissemination_variants,
     .cost = cost_of_rounds<DisseminationPrices>,
     .build =
         [](const Query& query, const Variant& variant, Rank self) {
           return plan::dissemination_allreduce(self, query.topology.rank_count, variant.per_round);
         }},
    {.collective = allreduce,
     .name = "two_partial_dissemination",
     .association = Association::any,
     .algorithm = Algorithm::two_partial,
     .why_not_unasked = why_not_two_partial,
     .variants = dissemination_variants,
     .cost = cost_of_rounds<DisseminationPrices>,
     .build =
         [](const Query& query, const Variant& variant, Rank self) {
           return plan::two_partial_allreduce(self, query.topology.rank_count, variant.per_round,
                                              order_of(query.request.reduction));
         }},
    {.collective = allreduce,
     .name = "recursive_multiplying",
     .association = Association::expression,
     .algorithm = Algorithm::recursive_multiplying,
     .takes = PerRoundIs::core,
     .why_not_unasked = why_not_recursive_multiplying,
     .variants = core_variants,
     .cost = cost_of_recursive_multiplying,
     .build =
         [](const Query& query, const Variant& variant, Rank self) {
           return plan::recursive_multiplying_allreduce(self, query.topology.rank_count,
                                                        variant.per_round);
         }},
    {.collective = allreduce,
     .name = "nway",
     .association = Association::any,
     .algorithm = Algorithm::nway,
     .takes = PerRoundIs::uniform,
     .why_not_unasked = by_name_only,
     .variants = [](const Query& query) { return nway_variants(query, Algorithm::nway); },
     .build = [](const Query& query, const Variant& variant,
                 Rank self) { return nway_plan(query, variant, self, plan::TakeOut::recompute); }},
    {.collective = allreduce,
     .name = "nway_inverse",
     .association = Association::any,
     .algorithm = Algorithm::nway_inverse,
     .keeps_rank_order = false,
     .needs_inverse = true,
     .takes = PerRoundIs::uniform,
     .why_not_unasked = by_name_only,
     .variants = [](const Query& query) { return nway_variants(query, Algorithm::nway_inverse); },
     .build = [](const Query& query, const Variant& variant,
                 Rank self) { return nway_plan(query, variant, self, plan::TakeOut::inverse); }},
    {.collective = allreduce,
     .name = "decomposition",
     .association = Association::any,
     .algorithm = Algorithm::decomposition,
     .takes = PerRoundIs::uniform,
     .why_not_unasked = by_name_only,
     .variants =
         [](const Query& query) {
           return decomposition_variants(query, Algorithm::decomposition, plan::Digits::joined);
         },
     .build =
         [](const Query& query, const Variant& variant, Rank self) {
           return decomposition_plan(query, variant, self, plan::Digits::joined);
         }},
    {.collective = allreduce,
     .name = "decomposition_digits",
     .association = Association::any,
     .algorithm = Algorithm::decomposition_digits,
     .takes = PerRoundIs::uniform,
     .why_not_unasked = by_name_only,
     .variants =
         [](const Query& query) {
           return decomposition_variants(query, Algorithm::decomposition_digits,
                                         plan::Digits::separate);
         },
     .build =
         [](const Query& query, const Variant& variant, Rank self) {
           return decomposition_plan(query, variant, self, plan::Digits::separate);
         }},
    {.collective = allreduce,
     .name = "canonical_dissemination",
     .algorithm = Algorithm::canonical_dissemination,
     .why_not_unasked = why_not_along_the_tree,
     .variants = canonical_variants,
     .cost = cost_of_canonical_dissemination,
     .closer_cost = closer_cost_of_dissemination,
     .build =
         [](const Query& query, const Variant& variant, Rank self) {
           return plan::canonical_dissemination_allreduce(self, query.topology.rank_count,
                                                          variant.per_round);
         }},
    {.collective = allreduce,
     .name = "chunked_fold",
     .algorithm = Algorithm::chunked_fold,
     .takes = PerRoundIs::nothing,
     .rounds = "has two rounds of P - 1 messages",
     .instead = "canonical_dissemination",
     .why_not = why_not_chunked_fold,
     .why_not_unasked = why_not_all_connected,
     .cost = cost_of_chunked_fold,
     .build =
         [](const Query& query, const Variant&, Rank self) {
           return plan::chunked_fold_allreduce(self, query.topology.rank_count,
                                               buffers_of(query.request));
         }},
    {.collective = allreduce,
     .name = "ring",
     .association = Association::expression,
     .algorithm = Algorithm::ring,
     .keeps_rank_order = false,
     .takes = PerRoundIs::nothing,
     .rounds = "has 2 (P - 1) rounds",
     .instead = "recursive_multiplying",
     .why_not = why_not_ring,
     .why_not_unasked = why_not_zero_copy_ring,
     .cost = cost_of_zero_copy_ring,
     .build =
         [](const Query& query, const Variant&, Rank self) {
           const std::uint32_t rank_count = query.topology.rank_count;
           return plan::ring_allreduce(self, rank_count, ring_sub_blocks(rank_count),
                                       query.topology.node_of, buffers_of(query.request));
         }},
    {.collective = allreduce,
     .name = "circulant",
     .association = Association::expression,
     .algorithm = Algorithm::circulant,
     .keeps_rank_order = false,
     .takes = PerRoundIs::nothing,
     .rounds = "has 2 (P - 1) messages along its skips",
     .instead = "recursive_multiplying",
     .why_not = why_not_circulant,
     .why_not_unasked = why_not_circulant_unasked,
     .cost = [](const Query& query,
                const Variant&) { return cost_of_runs(query, circulant_runs(query)); },
     .build = [](const Query& query, const Variant&,
                 Rank self) { return plan::circulant_allreduce(self, query.topology.rank_count); }},
    {.collective = allreduce,
     .name = "canonical_halving",
     .algorithm = Algorithm::canonical_halving,
     .takes = PerRoundIs::nothing,
     .rounds = "has about 2 (P - 1) messages in 2 log2 P rounds",
     .instead = "canonical_dissemination",
     .why_not = why_not_canonical_halving,
     .why_not_unasked = why_not_canonical_halving_unasked,
     .cost = cost_of_halving,
     .closer_cost = closer_cost_of_halving,
     .build =
         [](const Query& query, const Variant&, Rank self) {
           return plan::canonical_halving_allreduce(self, query.topology.rank_count);
         }},
    shared_ring_row(allreduce, "ring"),
};

}  // namespace

std::span<const Row> allreduce_rows() {
  return table;
}

}  // namespace tutti::tune
