#include "tune/choose.hpp"

#include <algorithm>
#include <optional>
#include <tutti/detail/names.hpp>
#include <tutti/status.hpp>
#include <utility>

#include "tune/chooser.hpp"
#include "tune/explanation.hpp"
#include "tune/hierarchy.hpp"
#include "tune/rows.hpp"
#include "tune/uncertainty.hpp"

namespace tutti::tune {
namespace {

bool fits(const Rule& rule, const CollectiveRequest& request, const Topology& topology) {
  return rule.collective == request.collective && rule.bytes.contains(request.bytes()) &&
         rule.ranks.contains(topology.rank_count) && rule.nodes.contains(topology.node_count()) &&
         rule.ranks_per_node.contains(topology.largest_node()) &&
         (!rule.agreement || *rule.agreement == request.agreement);
}

/// "the rule for allreduce of 0 to 8192 bytes".
std::string words_of(const Rule& rule) {
  std::string text = std::string("the rule for ") + name_of(rule.collective);
  if (rule.bytes.to != UINT64_MAX || rule.bytes.from != 0)
    text += " of " + std::to_string(rule.bytes.from) +
            (rule.bytes.to == UINT64_MAX ? " bytes and more"
                                         : " to " + std::to_string(rule.bytes.to) + " bytes");
  return text;
}

CollectiveRequest with_rule(CollectiveRequest request, const Rule& rule, const Topology& topology) {
  // A ring has to be prepared for, unless every rank has told that it has room.
  if (rule.algorithm == Algorithm::shared_ring)
    request.only = name_of(Algorithm::shared_ring);
  else
    request.algorithm = rule.algorithm;
  request.across = rule.across;
  request.tree = rule.tree;
  const bool has_own_vector =
      request.collective == Collective::allreduce || request.collective == Collective::barrier;
  (has_own_vector ? request.per_round : request.per_round_by_default) = rule.per_round;
  // What the rule asks for may copy payloads where the call without it would not.
  request.zero_copy = request.zero_copy && may_be_zero_copy(request, topology);
  return request;
}

Finding call_of(const CollectiveRequest& request, const Topology& topology) {
  return {.collective = request.collective,
          .bytes = request.bytes(),
          .nodes = topology.node_count(),
          .ranks_per_node = topology.largest_node(),
          .agreement = request.agreement,
          .operators = operator_class_of(request)};
}

/// The choice of the first rule that fits and serves; remarks on those that do not.
std::optional<Choice> by_rule(const CollectiveRequest& request, const Topology& topology,
                              const Knowledge& knowledge, bool only_canonical,
                              Chooser::Budget& budget, std::vector<std::string>& remarks) {
  for (const Rule& rule : knowledge.rules) {
    if (!fits(rule, request, topology)) continue;
    const CollectiveRequest ruled = with_rule(request, rule, topology);
    Chooser chooser(ruled, topology, knowledge);
    chooser.share(budget);
    if (only_canonical) chooser.only_canonical();
    std::string why;
    if (std::optional<Choice> choice = chooser.try_choose(&why)) {
      Chooser::decide(*choice, "as " + words_of(rule) + " says");
      return choice;
    }
    remarks.push_back(words_of(rule) + " is passed over: " + why);
  }
  return {};
}

std::optional<Choice> by_finding(const CollectiveRequest& request, const Topology& topology,
                                 const Knowledge& knowledge, bool only_canonical,
                                 std::vector<std::string>& remarks) {
  if (topology.shares_cpus || knowledge.findings.empty()) return {};
  const Finding call = call_of(request, topology);
  for (const Finding& finding : knowledge.findings) {
    if (finding.is_noisy || !finding.is_about_same(call)) continue;
    CollectiveRequest asked = request;
    asked.only = finding.winner.choice;
    Chooser chooser(asked, topology, knowledge);
    if (only_canonical) chooser.only_canonical();
    std::string why;
    if (std::optional<Choice> choice = chooser.try_choose(&why)) {
      Chooser::decide(*choice,
                      "measured to be the fastest, " + microseconds(finding.winner.measured));
      return choice;
    }
    remarks.push_back("a finding is passed over: " + why);
  }
  return {};
}

/// The nearest findings of the same call with fewer and with more bytes; empty unless there are
/// both, at most 2^reach_in_bytes times apart.
struct Around {
  const Finding* below = nullptr;
  const Finding* above = nullptr;

  explicit operator bool() const { return below != nullptr && above != nullptr; }
};
Around findings_around(const Finding& call, const std::vector<Finding>& findings) {
  constexpr std::uint64_t times_max = std::uint64_t{1} << Corrections::reach_in_bytes;
  Around around;
  for (const Finding& finding : findings) {
    Finding same = call;
    same.bytes = finding.bytes;
    if (finding.is_noisy || !finding.is_about_same(same)) continue;
    const Finding*& nearest = finding.bytes < call.bytes ? around.below : around.above;
    const bool is_nearer =
        nearest == nullptr || (finding.bytes < call.bytes ? nearest->bytes < finding.bytes
                                                          : finding.bytes < nearest->bytes);
    if (is_nearer) nearest = &finding;
  }
  if (around && around.above->bytes / times_max > around.below->bytes) return {};
  return around;
}

/// The fastest timing of a family; nullptr if none was raced.
const Timing* fastest_of(std::string_view family, const Finding& finding) {
  const Timing* fastest = nullptr;
  const auto look_at = [&](const Timing& timing) {
    if (family_of(timing.choice) == family &&
        (fastest == nullptr || timing.measured < fastest->measured))
      fastest = &timing;
  };
  look_at(finding.winner);
  for (const Timing& other : finding.others) look_at(other);
  return fastest;
}

/// Replaces the choice of a rule inside a node by one that is faster according to races of fewer
/// and of more bytes; times in between are interpolated.  Corrected prices would not do, because
/// the model hardly tells schedules of a node apart, and beyond the races nothing is known.
void take_measured_in_node(Choice& ruled, const CollectiveRequest& request,
                           const Topology& topology, const Knowledge& knowledge,
                           bool only_canonical) {
  constexpr plan::Picoseconds unit = 1 << 10, margin_share = 50;
  if (!topology.is_one_node() || topology.shares_cpus || says_how(request)) return;
  const Finding call = call_of(request, topology);
  const Around around = findings_around(call, knowledge.findings);
  if (!around) return;
  const auto share = static_cast<plan::Picoseconds>((call.bytes - around.below->bytes) *
                                                    static_cast<std::uint64_t>(unit) /
                                                    (around.above->bytes - around.below->bytes));
  const auto time_of = [&](std::string_view family) -> std::optional<plan::Picoseconds> {
    const Timing* const below = fastest_of(family, *around.below);
    const Timing* const above = fastest_of(family, *around.above);
    if (below == nullptr || above == nullptr) return {};
    return below->measured + (above->measured - below->measured) * share / unit;
  };
  const std::optional<plan::Picoseconds> usual = time_of(family_of(ruled.name()));
  if (!usual) return;
  std::optional<plan::Picoseconds> least;
  std::string family;
  const auto look_at = [&](const Timing& timing) {
    const std::string other = family_of(timing.choice);
    const std::optional<plan::Picoseconds> time = time_of(other);
    if (!time || (least && *least <= *time)) return;
    least = time;
    family = other;
  };
  look_at(around.below->winner);
  for (const Timing& other : around.below->others) look_at(other);
  if (!least || *least >= *usual - *usual / margin_share) return;
  for (const Finding* const finding : {around.below, around.above}) {
    CollectiveRequest asked = request;
    asked.only = fastest_of(family, *finding)->choice;
    Chooser chooser(asked, topology, knowledge);
    if (only_canonical) chooser.only_canonical();
    std::optional<Choice> choice = chooser.try_choose();
    if (!choice) continue;
    Chooser::decide(*choice, "as measured for " + std::to_string(around.below->bytes) + " and " +
                                 std::to_string(around.above->bytes) + " bytes, between which " +
                                 ruled.name() + " takes " + microseconds(*usual) + ", and this " +
                                 microseconds(*least));
    ruled = std::move(*choice);
    return;
  }
}

/// Whether `found` is clearly faster than `usual`, the choice that is made without a tuning file.
/// It depends on how much longer `usual` takes:
///   - By at most 1 %: no, so that choices that are about equally fast do not change from file to
///     file.
///   - By more than 10 %: yes.
///   - In between, is_worth_it() decides.  Corrections come from findings of other calls, so the
///     relative difference between the two corrections is a part of the uncertainty.
bool is_clearly_faster(const Choice& found, const Choice& usual, const Chooser::Times& times,
                       const Machine& machine) {
  constexpr std::int64_t least = million / 100;
  const std::int64_t gain = relative_change(times.found, times.usual);
  if (gain <= least) return false;
  if (gain > gain_enough) return true;  // is_worth_it() agrees, but needs many prices first
  const std::int64_t of_findings = relative_change(times.factor_of_found, times.factor_of_usual);
  return is_worth_it(gain, uncertainty_of(found, usual, machine), of_findings);
}

/// Replaces `found` by the choice that is made without a tuning file, unless `found` is clearly
/// faster.  To find the choice without a file, as many messages may be followed as in a program
/// without a file, so that it is the same.  The comparison may follow another
/// messages_followed_max.
void keep_untuned_if_close(Choice& found, const Kept& kept, const CollectiveRequest& request,
                           const Topology& topology, const Knowledge& knowledge) {
  if (knowledge.priced() == knowledge.untuned || says_how(request) || topology.is_one_node() ||
      topology.shares_cpus || topology.rank_count > ranks_followed_max)
    return;
  const Knowledge without_file = untuned(knowledge.untuned);
  Chooser chooser(request, topology, without_file);
  const std::optional<Choice> usual = kept.untuned ? kept.untuned : chooser.try_choose();
  if (!usual || usual->name() == found.name()) return;
  std::optional<Choice> here = choice_named(usual->name(), request, topology, knowledge);
  if (!here) return;
  const auto times = Chooser::times_of(found, *here, knowledge.corrections, messages_followed_max);
  if (!times || is_clearly_faster(found, *here, *times, knowledge.priced())) return;
  Chooser::decide(found, "as without a tuning file, " + microseconds(times->usual) +
                             (times->are_followed ? "" : " by price") + " where " + found.name() +
                             " takes " + microseconds(times->found) +
                             (times->found < times->usual ? ", too little to be certain" : ""));
  Chooser::replace(found, *here);
}

}  // namespace

Choice choose(const CollectiveRequest& request, const Topology& given, const Knowledge& knowledge) {
  const Topology topology = given.counted();
  if (!request.only.empty()) return Chooser(request, topology, knowledge).choose();
  Chooser::Budget budget;
  Kept kept = kept_bits(request, topology, knowledge);
  if (kept.decides()) {
    Chooser::decide(*kept.untuned, "kept as without a tuning file, for the bits of results");
    return std::move(*kept.untuned);
  }
  std::vector<std::string> remarks;
  std::optional<Choice> choice;
  if (!says_how(request)) {
    choice = by_rule(request, topology, knowledge, kept.is_canonical, budget, remarks);
    if (!choice) choice = by_finding(request, topology, knowledge, kept.is_canonical, remarks);
  }
  if (!choice) {
    Chooser chooser(request, topology, knowledge);
    chooser.share(budget);
    if (kept.is_canonical) chooser.only_canonical();
    choice = chooser.choose();
    keep_untuned_if_close(*choice, kept, request, topology, knowledge);
    take_measured_in_node(*choice, request, topology, knowledge, kept.is_canonical);
  }
  for (std::string& remark : remarks) Chooser::remark(*choice, std::move(remark));
  return std::move(*choice);
}

std::optional<Choice> choice_named(const std::string& name, const CollectiveRequest& request,
                                   const Topology& topology, const Knowledge& knowledge) {
  CollectiveRequest asked = request;
  asked.only = name;
  return Chooser(asked, topology, knowledge).try_choose();
}

bool depends_on_ring_room(const CollectiveRequest& request, const Topology& topology,
                          const Knowledge& knowledge) {
  // Most calls need no second choice to be made for them.
  if (request.algorithm != Algorithm::automatic || request.ring_room != RingRoom::not_told ||
      topology.shares_cpus || topology.is_one_node() || topology.rank_count == 2 ||
      std::none_of(
          registry().begin(), registry().end(),
          [&](const Row& row) { return row.is_flow && row.collective == request.collective; }) ||
      shared_ring_bytes(request, topology) < shared_ring_from_bytes)
    return false;
  CollectiveRequest with_room = request;
  with_room.ring_room = RingRoom::there;
  const plan::Network network = knowledge.priced().network();
  const Query query{with_room, topology, network};
  if (std::none_of(registry().begin(), registry().end(), [&](const Row& row) {
        return row.is_flow && row.collective == request.collective &&
               why_not(row, query, nullptr).empty();
      }))
    return false;
  try {
    return choose(with_room, topology, knowledge).row().is_flow;
  } catch (const Error&) {
    return false;  // the choice itself will say why, once all ranks are there to hear it
  }
}

}  // namespace tutti::tune
