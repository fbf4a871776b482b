#include "tune/choose.hpp"

#include <algorithm>
#include <cassert>
#include <optional>
#include <set>
#include <tutti/detail/check.hpp>
#include <tutti/detail/names.hpp>
#include <tutti/status.hpp>

#include "tune/asked_per_round.hpp"
#include "tune/hierarchy.hpp"
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

constexpr const char* another_is_asked_for = "another one is asked for";

/// Why a row is out; empty: it is priced.  What is cheap to find out comes first.
std::string why_not(const Row& row, const Query& query, const Row* named) {
  if (named != nullptr && named->algorithm != row.algorithm) return another_is_asked_for;
  std::string why = why_not_served(row, query.request);
  if (why.empty() && named == nullptr && row.why_not_unasked != nullptr)
    why = row.why_not_unasked(query);
  if (why.empty() && row.why_not != nullptr) why = row.why_not(query);
  return why;
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
      if (serves(other, request)) others += std::string(", ") + other.name;
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
  if (request.collective != Collective::allreduce || hierarchy != Hierarchy::flat ||
      request.algorithm == Algorithm::automatic)
    return nullptr;
  return &row_of(request.algorithm);
}

std::vector<Variant> variants_of(const Row& row, const Query& query) {
  return row.variants == nullptr ? std::vector<Variant>{{}} : row.variants(query);
}

/// "8 lanes in 2 sub-blocks", "bruck_alltoall with 7 a round".
std::string described(const Row& row, const Variant& variant) {
  std::string text = row.name;
  if (row.hierarchy == Hierarchy::lanes && variant.lane_count > 1)
    text = std::to_string(variant.lane_count) + " " + text;
  if (variant.group_size > 0) text += " of " + std::to_string(variant.group_size);
  if (!variant.per_round.empty()) text += " with " + text_of(variant.per_round) + " a round";
  if (variant.turns > 0) text += " in " + std::to_string(variant.turns) + " turns";
  if (variant.sub_blocks > 1) text += " in " + std::to_string(variant.sub_blocks) + " sub-blocks";
  return text;
}

/// Lines after the first one.
std::string indented(std::string text) {
  for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1))
    text.insert(at + 1, "  ");
  return text;
}

std::string price_of(const Row& row, const Query& query, const Variant& variant) {
  if (row.cost == nullptr) return "without a price";
  const plan::Picoseconds nanoseconds = row.cost(query, variant) / 1000;
  const std::string fraction = std::to_string(nanoseconds % 1000);
  return std::to_string(nanoseconds / 1000) + "." + std::string(3 - fraction.size(), '0') +
         fraction + " us";
}

}  // namespace

Choice choose(const CollectiveRequest& request, const Topology& topology,
              const plan::Network& network) {
  assert(topology.rank_count > 0);
  assert(topology.node_of.empty() || topology.node_of.size() == topology.rank_count);
  assert(request.block_bytes.empty() || request.block_bytes.size() == topology.rank_count);
  assert(
      (request.collective != Collective::broadcast && request.collective != Collective::reduce) ||
      index_of(request.root) < topology.rank_count);
  require_possible(request);
  Choice choice;
  choice.request_ = request;
  choice.topology_ = topology;
  choice.network_ = network;
  const Query query = choice.query();
  const std::optional<Hierarchy> hierarchy = hierarchy_of(query);
  const Row* const named = named_row(request, hierarchy);
  if (named != nullptr) require(*named, query);
  for (const Row& row : registry()) {
    if (row.collective != request.collective || (hierarchy && row.hierarchy != hierarchy)) continue;
    std::string why = why_not(row, query, named);
    if (!why.empty()) {
      choice.rivals_.push_back({&row, {}, std::move(why)});
      continue;
    }
    for (Variant& variant : variants_of(row, query))
      choice.rivals_.push_back({&row, std::move(variant), {}});
  }
  const auto priced = [](const Choice::Rival& rival) { return rival.why_not.empty(); };
  const auto first = std::find_if(choice.rivals_.begin(), choice.rivals_.end(), priced);
  if (first == choice.rivals_.end()) {
    const auto& out = choice.rivals_.front();
    refuse(std::string(name_of(request.collective)) +
               (out.row->hierarchy == Hierarchy::flat ? ": " : ": across ") + out.row->name,
           out.why_not, "automatic");
  }
  // One alone needs no price, which may take longer to compute than its plan.
  auto best = first;
  if (std::count_if(first, choice.rivals_.end(), priced) > 1) {
    for (auto rival = first; rival != choice.rivals_.end(); ++rival)
      detail::check(!priced(*rival) || rival->row->cost != nullptr,
                    "rows that are considered together have prices");
    const auto cost = [&](const Choice::Rival& rival) {
      return rival.row->cost(query, rival.variant);
    };
    plan::Picoseconds least = cost(*first);
    for (auto rival = first + 1; rival != choice.rivals_.end(); ++rival)
      if (priced(*rival))
        if (const plan::Picoseconds price = cost(*rival); price < least) {
          least = price;
          best = rival;
        }
  }
  choice.row_ = best->row;
  choice.variant_ = best->variant;
  return choice;
}

bool depends_on_ring_room(const CollectiveRequest& request, const Topology& topology) {
  // Most calls need no second choice to be made for them.
  if (request.algorithm != Algorithm::automatic || request.ring_room != RingRoom::not_told ||
      request.bytes() < in_parts_from_bytes || topology.shares_cpus || topology.node_count() <= 2 ||
      topology.largest_node() > 1)
    return false;
  CollectiveRequest with_room = request;
  with_room.ring_room = RingRoom::there;
  try {
    return choose(with_room, topology).row().is_flow;
  } catch (const Error&) {
    return false;  // the choice itself will say why, once all ranks are there to hear it
  }
}

plan::Picoseconds Choice::cost() const {
  return row_->cost == nullptr ? 0 : row_->cost(query(), variant_);
}

plan::Plan Choice::plan(Rank self) const {
  return row_->build(query(), variant_, self);
}

std::string Choice::explanation() const {
  return explanation_for(request_);
}

std::string Choice::explanation_for(const CollectiveRequest& asked) const {
  std::vector<const Rival*> priced;
  for (const Rival& rival : rivals_)
    if (rival.why_not.empty() && rival.row->cost != nullptr) priced.push_back(&rival);
  std::stable_sort(priced.begin(), priced.end(), [&](const Rival* left, const Rival* right) {
    return left->row->cost(query(), left->variant) < right->row->cost(query(), right->variant);
  });
  std::string text = "chosen: " + described(*row_, variant_);
  if (request_.collective == Collective::allreduce && row_->algorithm != Algorithm::automatic &&
      row_->algorithm == asked.algorithm)
    text += ", which is asked for";
  else if (priced.size() < 2 && request_.algorithm == asked.algorithm)
    text += ", the only one considered";
  else
    text += ", " + price_of(*row_, query(), variant_) + " on a network like FDR InfiniBand";
  if (priced_bytes(request_.bytes()) < request_.bytes())
    text += "; prices are those of " + std::to_string(priced_bytes(request_.bytes())) + " bytes";
  if (variant_.across) text += "\n  across: " + indented(variant_.across->explanation_for(asked));
  std::size_t next = 0;
  std::set<const Row*> rows;
  std::set<Hierarchy> hierarchies{row_->hierarchy};
  for (const Rival* rival : priced) {
    const bool is_of_interest =
        (next < 2 && rival->row != row_) || !hierarchies.contains(rival->row->hierarchy);
    if (!is_of_interest || !rows.insert(rival->row).second) continue;
    ++next;
    hierarchies.insert(rival->row->hierarchy);
    text +=
        "\n  next: " + described(*rival->row, rival->variant) +
        (rival->variant.across
             ? ", " + described(rival->variant.across->row(), rival->variant.across->variant()) +
                   " across"
             : "") +
        ", " + price_of(*rival->row, query(), rival->variant);
  }
  for (const Rival& rival : rivals_)
    if (!rival.why_not.empty() && rival.why_not != another_is_asked_for)
      text += std::string("\n  not ") + rival.row->name + ": " + rival.why_not;
  return text;
}

}  // namespace tutti::tune
