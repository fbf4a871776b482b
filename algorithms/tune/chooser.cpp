#include "tune/chooser.hpp"

#include <algorithm>
#include <cassert>
#include <memory>
#include <tuple>
#include <tutti/detail/check.hpp>
#include <tutti/detail/names.hpp>
#include <tutti/status.hpp>

#include "tune/asked_per_round.hpp"
#include "tune/canonical_time.hpp"
#include "tune/explanation.hpp"
#include "tune/hierarchy.hpp"
#include "tune/prices.hpp"
#include "tune/rows.hpp"

namespace tutti::tune {
namespace {

/// Why a row does not serve() a request, as the words after its name.
std::string why_not_served(const Row& row, const CollectiveRequest& request) {
  const Reduction& reduction = request.reduction;
  const std::string name = name_of(reduction.built_in);
  if (serves(row, request)) return {};
  if (row.needs_idempotent && !reduction.properties.idempotent)
    return "lets contributions enter more than once, and " + name + " is not idempotent";
  if (!row.keeps_rank_order && !reduction.properties.commutative)
    return "does not keep rank order, and " + name + " does not commute";
  if (row.needs_inverse && reduction.inverse == nullptr)
    return "takes contributions out again, and " + name + " of " + name_of(reduction.element_type) +
           " has no inverse";
  return std::string("promises no more than ") + name_of(agreement_of(row)) + " results for " +
         name + " of " + name_of(reduction.element_type) + ", and " + name_of(request.agreement) +
         " is asked for";
}

[[noreturn]] void refuse(const std::string& whose, const std::string& why,
                         const std::string& instead) {
  const bool has_remedy = why.find(';') != std::string::npos;
  throw Error(ErrorCode::unsupported, whose + " " + why + (has_remedy ? "" : "; use " + instead));
}

/// Throws unless an allreduce can go by the row that it asks for.
void require(const Row& row, const Query& query) {
  const CollectiveRequest& request = query.request;
  const std::string whose = std::string(name_of(request.collective)) + ": algorithm " + row.name;
  if (const std::string why = why_not_served(row, request); !why.empty()) {
    std::string others = "automatic";
    for (const Row& other : named_schedules())
      if (other.collective == request.collective && serves(other, request))
        others += std::string(", ") + other.name;
    refuse(whose, why, others);
  }
  if (row.takes == PerRoundIs::nothing && !request.per_round.empty())
    refuse_vector(request.per_round, std::string(": algorithm ") + row.name + " " + row.rounds +
                                         " whatever is asked for; leave per_round out, or use " +
                                         row.instead);
  if (const std::string why = why_not(row, query, &row); !why.empty())
    refuse(whose, why, row.instead);
}

template <class Enumeration>
void require_defined(Enumeration given, Enumeration last, const char* collective, const char* what,
                     const char* type) {
  if (given > last)
    throw Error(ErrorCode::invalid_argument,
                std::string(collective) + ": " + what + " " +
                    std::to_string(static_cast<unsigned>(given)) +
                    " is none; use one of the enumerators of tutti::" + type);
}

/// Throws if the call asks for something that its collective does not have.
void require_possible(const CollectiveRequest& request) {
  const char* const name = name_of(request.collective);
  require_defined(request.tree, Tree::fibonacci, name, "tree", "Tree");
  if (request.collective == Collective::barrier && request.algorithm != Algorithm::automatic &&
      request.algorithm != Algorithm::dissemination)
    throw Error(ErrorCode::unsupported, std::string("barrier: algorithm ") +
                                            name_of(request.algorithm) +
                                            " is not offered; use automatic or dissemination");
  const bool has_ring_alone = request.collective == Collective::allgather ||
                              request.collective == Collective::reduce_scatter;
  if (has_ring_alone && request.algorithm != Algorithm::automatic &&
      request.algorithm != Algorithm::shared_ring) {
    require_defined(request.algorithm, Algorithm::canonical_halving, name, "algorithm",
                    "Algorithm");
    throw Error(ErrorCode::unsupported, std::string(name) + ": algorithm " +
                                            name_of(request.algorithm) +
                                            " is not offered; use automatic or shared_ring");
  }
  require_defined(request.across, Across::lanes, name, "across", "Across");
  if (request.collective == Collective::reduce && is_reproducible_in_bits(request) &&
      request.tree != Tree::automatic && request.tree != Tree::binomial)
    throw Error(ErrorCode::unsupported,
                std::string("reduce: tree ") + name_of(request.tree) +
                    " gives other bits than the canonical tree, and reproducible ones are asked "
                    "for; use automatic or binomial");
}

/// The row that is asked for by name; nullptr: none is.
const Row* named_row(const CollectiveRequest& request, std::optional<Hierarchy> hierarchy) {
  if (request.algorithm == Algorithm::automatic) return nullptr;
  if (request.collective == Collective::allreduce)
    return hierarchy == Hierarchy::flat ? &row_of(request.algorithm) : nullptr;
  if (request.collective == Collective::barrier) return nullptr;
  const auto found = std::find_if(registry().begin(), registry().end(), [&](const Row& row) {
    return row.collective == request.collective && row.algorithm == request.algorithm;
  });
  return found == registry().end() ? nullptr : &*found;
}

/// Whether the bits that come out are those of the canonical tree.
bool gives_canonical_bits(const Row& row) {
  return row.hierarchy == Hierarchy::flat && row.association == Association::canonical &&
         !row.has_other_bits;
}

/// The network as ranks of a single node that share CPUs see it: a message is seen when the
/// scheduler lets its receiver run again.  Measured with 4 and 8 ranks on 2 CPUs, each further
/// round takes 0.75 us for each rank (docs/performance.md).
plan::Network by_turns(plan::Network network, const Topology& topology) {
  constexpr plan::Picoseconds turn = 750'000;
  constexpr std::uint32_t ranks_max = 16;  // more were not measured
  if (topology.shares_cpus && topology.is_one_node())
    network.inside.latency = std::max(
        network.inside.latency,
        static_cast<plan::Picoseconds>(std::min(topology.largest_node(), ranks_max)) * turn);
  return network;
}

}  // namespace

bool says_how(const CollectiveRequest& request) {
  return request.is_asked_for() || request.across != Across::automatic ||
         request.tree != Tree::automatic || !request.only.empty();
}

std::string why_not(const Row& row, const Query& query, const Row* named) {
  if (named != nullptr && named->algorithm != row.algorithm) return another_is_asked_for;
  if (named == nullptr && !row.is_in_place && is_zero_copy_in_nodes(query))
    return "payloads stay in their users' buffers";
  std::string why = why_not_served(row, query.request);
  if (why.empty() && named == nullptr && row.why_not_unasked != nullptr)
    why = row.why_not_unasked(query);
  if (why.empty() && row.why_not != nullptr) why = row.why_not(query);
  return why;
}

Chooser::Chooser(const CollectiveRequest& request, const Topology& topology,
                 const plan::Network& network)
    : request_(request),
      topology_(topology),
      faster_by_bits_(excess_bits(network, request, topology)),
      network_(faster(by_turns(network, topology), faster_by_bits_)) {}

Chooser::Chooser(const CollectiveRequest& request, const Topology& topology,
                 const Knowledge& knowledge)
    : Chooser(request, topology, knowledge.priced().network()) {
  machine_ = words_of(knowledge.priced());
  if (knowledge.keeps_to_untuned()) machine_ += ", which the tuning file does not contradict";
  // Where ranks share CPUs, nothing is raced.
  corrections_ = topology.shares_cpus ? nullptr : &knowledge.corrections;
  follows_ = !topology.shares_cpus;
}

std::optional<Choice> Chooser::try_choose(std::string* why) const {
  try {
    return choose();
  } catch (const Error& error) {
    if (why != nullptr) *why = error.what();
    return {};
  }
}

/// The price, and a fiftieth more for holding several payloads where no bits ask for it, or a
/// quarter more for a shared ring on nodes of several ranks or of an allgather: it takes memory and
/// more exchanges when it is made, and its price is 0.8 to 1.1 of its time.
plan::Picoseconds Chooser::weighed(const Choice& choice, const Choice::Rival& rival) {
  const plan::Picoseconds price = choice.price_of(rival);
  if (rival.row->is_flow &&
      (choice.topology_.has_shared_nodes() || choice.request_.collective == Collective::allgather))
    return price + price / 4;
  return rival.row->algorithm == Algorithm::canonical_dissemination &&
                 choice.request_.agreement != Agreement::reproducible
             ? price + price / 50
             : price;
}

/// Follows the events of the few cheapest candidates, and puts first the one that then takes least.
/// A candidate with too many messages to be followed is compared with the others by its price, if
/// the prices of such a call are near the events, or if no cheaper candidate is followed.
/// Otherwise it is skipped.
void Chooser::follow(const Choice& choice, Prices& prices) const {
  constexpr std::size_t followed_max = 12, considered_max = 2 * followed_max;
  // Prices of canonical dissemination among few ranks are those of events, so a few of its many
  // vectors are enough, and other schedules are followed, too.
  constexpr std::size_t disseminations_max = 8;
  const bool are_few = topology_.rank_count <= canonical_ranks_of_all;
  Budget own_budget;
  Budget& budget = budget_ == nullptr ? own_budget : *budget_;
  // Two plans at least are compared, and each rank has a message.
  if (topology_.rank_count > ranks_followed_max || budget.of_all / 2 < topology_.rank_count) return;
  const Query query = choice.query();
  const plan::Picoseconds most = 2 * prices.front().first;
  // Prices near the least one are computed more closely, unless the first is far ahead.
  const plan::Picoseconds half_more = prices.front().first + prices.front().first / 2;
  const plan::Picoseconds near = prices.size() > 1 && prices[1].first <= half_more ? half_more : 0;
  const bool prices_are_near = has_canonical_time(query);
  const bool has_equal_nodes = topology_.has_equal_nodes();
  Budget unused = budget;
  std::size_t end = 0, considered = 0, disseminations = 0;
  std::vector<std::size_t> followed, compared;
  for (; end < prices.size(); ++end) {
    const auto& [price, rival] = prices[end];
    if (followed.size() == followed_max || considered == considered_max || price > most) break;
    const Row& row = *rival->row;
    if (prices_are_near && are_few && row.algorithm == Algorithm::canonical_dissemination &&
        ++disseminations > disseminations_max)
      continue;
    ++considered;
    const plan::Plan first = row.build(query, rival->variant, Rank{0});
    std::size_t more = messages_followed(query, row, rival->variant, first);
    // closer_cost() needs no plans: it follows dissemination about as exactly in less time, and
    // halving, which has many more messages, nearly so.
    if (prices_are_near && row.closer_cost != nullptr) {
      const bool is_halving = row.algorithm == Algorithm::canonical_halving;
      // Plans of canonical dissemination take longer to build, so their messages count fourfold; if
      // they are too many, the price is already as close.
      if (!is_halving && are_few && topology_.rank_count > 32 && more <= unused.of_all) more *= 4;
      if (is_halving ? more > unused.of_all && price <= near : !are_few && more <= unused.of_all)
        rival->time = row.closer_cost(query, rival->variant);
      if (rival->time && is_halving) more = 0;
    }
    const bool is_of_node = is_followed_by_node(query, row, rival->variant, first);
    std::size_t& room = is_of_node ? unused.of_nodes : unused.of_all;
    const bool is_followed = more <= room;
    if (!is_followed && !prices_are_near && followed.empty() && !has_equal_nodes) break;
    if (is_followed || prices_are_near || followed.empty()) compared.push_back(end);
    if (is_followed) {
      room -= more;
      followed.push_back(end);
    }
  }
  if (compared.size() < 2 || followed.empty()) return;
  budget = unused;
  for (const std::size_t i : compared) prices[i].second->is_finalist = true;
  for (const std::size_t i : followed) {
    Choice::Rival& rival = *prices[i].second;
    const Row& row = *rival.row;
    if (!rival.time)
      rival.time =
          followed_time(query, row, rival.variant, row.build(query, rival.variant, Rank{0}));
    prices[i].first = weighed(choice, rival);
  }
  const auto end_of_finalists =
      std::stable_partition(prices.begin(), prices.begin() + static_cast<std::ptrdiff_t>(end),
                            [](const auto& priced) { return priced.second->is_finalist; });
  std::stable_sort(prices.begin(), end_of_finalists,
                   [](const auto& left, const auto& right) { return left.first < right.first; });
}

void Chooser::add_rivals(Choice& choice, const Query& query, const Row& row, const Row* named,
                         const NameParts& only, bool only_canonical) {
  if (!only.own.empty() && !may_be_named(row, only.own)) return;
  std::string why = why_not(row, query, named);
  if (why.empty() && only_canonical && !gives_canonical_bits(row))
    why = "gives other bits than the choice without a tuning file";
  if (!why.empty()) {
    choice.rivals_.push_back({&row, {}, std::move(why)});
    return;
  }
  const std::vector<Variant> variants =
      row.variants == nullptr ? std::vector<Variant>{{}} : row.variants(query);
  for (const Variant& variant : variants) {
    if (!only.own.empty() && described(row, variant) != only.own) continue;
    choice.rivals_.push_back({&row, variant, {}});
  }
}

void Chooser::take_cheapest(Choice& choice) const {
  std::vector<Choice::Rival*> priced;
  for (Choice::Rival& rival : choice.rivals_)
    if (rival.why_not.empty()) priced.push_back(&rival);
  if (priced.empty()) {
    const std::string whose = std::string(name_of(request_.collective)) + ": ";
    if (choice.rivals_.empty() || !request_.only.empty())
      throw Error(ErrorCode::unsupported,
                  whose + "there is no \"" + request_.only + "\"" +
                      (choice.rivals_.empty() ? "" : ", " + choice.rivals_.front().why_not) +
                      "; use automatic");
    const Choice::Rival& out = choice.rivals_.front();
    refuse(whose + (out.row->hierarchy == Hierarchy::flat ? "" : "across ") + out.row->name,
           out.why_not, "automatic");
  }
  Choice::Rival* best = priced.front();
  // One alone needs no price, which may take longer to compute than its plan.
  if (priced.size() > 1) {
    Prices prices;
    for (Choice::Rival* const rival : priced) {
      detail::check(rival->row->cost != nullptr, "rows that are considered together have prices");
      if (corrections_ != nullptr && !corrections_->empty())
        rival->factor = corrections_->factor(family_of(full_name(*rival->row, rival->variant)),
                                             request_.collective, request_.bytes(),
                                             topology_.node_count(), topology_.largest_node());
      prices.emplace_back(weighed(choice, *rival), rival);
    }
    std::stable_sort(prices.begin(), prices.end(),
                     [](const auto& left, const auto& right) { return left.first < right.first; });
    if (follows_) follow(choice, prices);
    best = prices.front().second;
  }
  choice.row_ = best->row;
  choice.variant_ = best->variant;
  choice.time_ = best->time;
}

Choice Chooser::choose() const {
  assert(topology_.rank_count > 0);
  assert(topology_.node_of.empty() || topology_.node_of.size() == topology_.rank_count);
  assert(request_.block_bytes.empty() || request_.block_bytes.size() == topology_.rank_count);
  assert(
      (request_.collective != Collective::broadcast && request_.collective != Collective::reduce) ||
      index_of(request_.root) < topology_.rank_count);
  require_possible(request_);
  Choice choice;
  choice.request_ = request_;
  choice.topology_ = topology_.counted();
  choice.network_ = network_;
  choice.machine_ = machine_;
  KnownChoices own;
  const Query query{choice.request_, choice.topology_, choice.network_,
                    known_ == nullptr ? &own : known_};
  const std::optional<Hierarchy> hierarchy = hierarchy_of(query);
  const Row* const named = named_row(request_, hierarchy);
  if (named != nullptr) require(*named, query);
  const NameParts only = parts_of(request_.only);
  for (const Row& row : registry())
    if (row.collective == request_.collective && (!hierarchy || row.hierarchy == hierarchy))
      add_rivals(choice, query, row, named, only, only_canonical_);
  take_cheapest(choice);
  if (faster_by_bits_ > 0)
    remark(choice, "prices are those of a machine that is 2^" + std::to_string(faster_by_bits_) +
                       " times as fast, as 64 bits would not hold those of this one");
  return choice;
}

Choice Chooser::with(const Choice& choice, const Choice::Rival& rival) {
  Choice other = choice.with(*rival.row, rival.variant);
  other.time_ = rival.time;
  return other;
}

/// Returns it with another vector: its own, or that of the schedule across.
Choice Chooser::with_vector(const Choice& choice, const plan::PerRound& vector) {
  Choice other = choice.with(*choice.row_, choice.variant_);
  Variant& variant = other.variant_;
  if (variant.across)
    variant.across = std::make_shared<const Choice>(with_vector(*variant.across, vector));
  else
    variant.per_round = vector;
  return other;
}

/// Returns it with a tree of another latency.
Choice Chooser::with_latency(const Choice& choice, std::uint32_t latency) {
  Choice other = choice.with(*choice.row_, choice.variant_);
  other.variant_.fans.across_by.latency = latency;
  return other;
}

/// Returns both times, corrected by findings: those of the events if both together have few enough
/// messages, else the prices.  Returns nothing if one of them has no price, or if `found` was
/// chosen by its events and those of `usual` are not modelled.
std::optional<Chooser::Times> Chooser::times_of(Choice& found, Choice& usual,
                                                const Corrections& corrections,
                                                std::size_t budget) {
  for (const Choice::Rival& rival : found.rivals_)
    if (rival.time && rival.row == usual.row_ &&
        full_name(*rival.row, rival.variant) == usual.name())
      usual.time_ = rival.time;
  if (found.row_->cost == nullptr || usual.row_->cost == nullptr) return {};
  const auto messages_of = [](const Choice& choice) {
    return choice.time_ ? 0
                        : messages_followed(choice.query(), *choice.row_, choice.variant_,
                                            choice.first_plan());
  };
  const std::size_t of_found = messages_of(found), of_usual = messages_of(usual);
  if (found.time_ && of_usual == SIZE_MAX) return {};
  if (of_found <= budget && of_usual <= budget - of_found)
    for (Choice* const choice : {&found, &usual}) choice->follow(budget);
  const bool are_followed = found.time_ && usual.time_;
  const auto factor_of = [&](const Choice& choice) {
    const Topology& topology = choice.topology_;
    return corrections.factor(family_of(choice.name()), choice.request_.collective,
                              choice.request_.bytes(), topology.node_count(),
                              topology.largest_node());
  };
  const auto time = [&](const Choice& choice, std::int64_t factor) {
    return corrected(are_followed ? *choice.time_ : choice.cost(), factor);
  };
  const std::int64_t factor_of_found = factor_of(found), factor_of_usual = factor_of(usual);
  return Times{time(found, factor_of_found), time(usual, factor_of_usual), factor_of_found,
               factor_of_usual, are_followed};
}

std::string name_with_vector(const Choice& choice, const plan::PerRound& vector) {
  return Chooser::with_vector(choice, vector).name();
}

std::string name_with_latency(const Choice& choice, std::uint32_t latency) {
  return Chooser::with_latency(choice, latency).name();
}

Choice choose(const CollectiveRequest& request, const Topology& topology,
              const plan::Network& network) {
  return Chooser(request, topology, network).choose();
}

Kept kept_bits(const CollectiveRequest& request, const Topology& topology,
               const Knowledge& knowledge) {
  if (knowledge.bits == TuningBits::free || operator_class_of(request) == OperatorClass::none ||
      !order_shows_in_bits(request.reduction))
    return {};
  const Knowledge without_file = untuned(knowledge.untuned);
  Chooser chooser(request, topology, without_file);  // with a budget of its own
  Kept kept{.untuned = chooser.choose()};
  kept.is_canonical = gives_canonical_bits(kept.untuned->row());
  return kept;
}

bool KnownChoices::Known::is_of(const CollectiveRequest& other, const Topology& ranks,
                                const plan::Network& network) const {
  const auto key = [](const CollectiveRequest& one) {
    return std::tie(one.element_count, one.only, one.algorithm, one.across, one.shares_target,
                    one.zero_copy, one.reads_in_place, one.is_undivided, one.one_value_only);
  };
  return key(request) == key(other) && topology.rank_count == ranks.rank_count &&
         topology.shares_cpus == ranks.shares_cpus && topology.node_of == ranks.node_of &&
         ranks_at_port == network.between.ranks_at_port;
}

std::shared_ptr<const Choice> KnownChoices::choose(const CollectiveRequest& request,
                                                   const Topology& topology,
                                                   const plan::Network& network) {
  const auto found = std::find_if(all_.begin(), all_.end(), [&](const Known& one) {
    return one.is_of(request, topology, network);
  });
  if (found != all_.end()) return found->choice;
  Chooser chooser(request, topology, network);
  chooser.know(*this);
  std::shared_ptr<const Choice> choice;
  if (request.only.empty())
    choice = std::make_shared<const Choice>(chooser.choose());
  else if (std::optional<Choice> named = chooser.try_choose())
    choice = std::make_shared<const Choice>(std::move(*named));
  all_.push_back({request, topology, network.between.ranks_at_port, choice});
  return choice;
}

std::vector<Choice> rivals(const CollectiveRequest& request, const Topology& topology,
                           const plan::Network& network) {
  const Choice choice = choose(request, topology, network);
  std::vector<Choice> all;
  for (const auto& [price, rival] : Chooser::by_price(choice))
    all.push_back(Chooser::with(choice, *rival));
  return all;
}

}  // namespace tutti::tune
