#include "tune/candidates.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "tune/beside.hpp"
#include "tune/chooser.hpp"
#include "tune/names.hpp"

namespace tutti::tune {

bool have_same_plans(const Choice& left, const Choice& right) {
  const auto key = [](const plan::Plan& plan) {
    return std::tie(plan.flow_control, plan.parts, plan.owners, plan.is_pipeline, plan.zero_copy,
                    plan.swaps_blocks, plan.payloads, plan.shares_target, plan.takes_out,
                    plan.partial_count, plan.slot_count, plan.line_slot_count,
                    plan.short_slot_count, plan.short_payloads, plan.answers, plan.steps);
  };
  const std::uint32_t rank_count = left.first_plan().rank_count;
  if (key(left.first_plan()) != key(right.first_plan())) return false;
  for (std::uint32_t rank = 1; rank < rank_count; ++rank) {
    const plan::Plan one = left.plan(Rank{rank}), other = right.plan(Rank{rank});
    if (key(one) != key(other)) return false;
  }
  return true;
}

std::vector<Choice> candidates(const CollectiveRequest& request, const Topology& topology,
                               const Knowledge& knowledge, std::size_t count,
                               std::size_t messages_max, std::size_t alike_count) {
  constexpr std::uint32_t compared_ranks_max = 64;
  const bool is_one_node = topology.is_one_node();
  std::vector<Choice> found{choose(request, topology, knowledge)};
  std::set<std::string> names{name_when_trimmed(found.front())};
  std::set<Trees> trees;
  if (has_latency(found.front())) trees.insert(trees_of(found.front()));
  const auto add = [&](Choice choice, std::size_t places) {
    if (found.size() >= places || !names.insert(name_when_trimmed(choice)).second) return;
    if (has_latency(choice) && !trees.insert(trees_of(choice)).second) return;
    const auto is_same = [&](const Choice& other) { return have_same_plans(choice, other); };
    if (is_one_node && topology.rank_count <= compared_ranks_max &&
        std::any_of(found.begin(), found.end(), is_same))
      return;
    found.push_back(std::move(choice));
  };
  if (says_how(request)) return found;
  Chooser::Budget budget{.of_all = messages_max, .of_nodes = messages_max / 2};
  const Kept kept = kept_bits(request, topology, knowledge);
  if (kept.decides()) return found;
  CollectiveRequest raced = request;
  raced.for_race = true;
  Chooser chooser(raced, topology, knowledge);
  chooser.share(budget);
  if (kept.is_canonical) chooser.only_canonical();
  const std::optional<Choice> priced = chooser.try_choose();
  if (!priced) return found;
  const auto all = Chooser::by_price(*priced);
  // One of five places is for another family that is not far behind.  Inside a node, where prices
  // hardly tell schedules apart, all places but one are for other families, however far behind.
  const plan::Picoseconds most =
      is_one_node ? INT64_MAX : all.front().first + all.front().first / 2;
  const std::size_t families_max = is_one_node ? count - 1 : count / 2;
  std::set<std::string> families{family_of(found.front().name())};
  std::vector<Choice> others;  // what is left
  for (const auto& [price, rival] : all) {
    if (!families.insert(family_of(full_name(*rival->row, rival->variant))).second) continue;
    Choice choice = Chooser::with(*priced, *rival);
    if (found.size() < families_max && price <= most)
      add(std::move(choice), count);
    else
      others.push_back(std::move(choice));
  }
  const Choice best = Chooser::with(*priced, *all.front().second);
  add(best, count);  // which may have given way to the choice without a file
  // Choices of any family that may be as fast as the cheapest one.  They are sorted by their events
  // instead of their prices, whose relative error depends on the number of lanes.
  constexpr plan::Picoseconds close_share = 4;
  constexpr std::size_t close_max = 12;
  std::vector<Choice> near;
  std::set<std::string> seen = names;
  for (const auto& [price, rival] : all) {
    if (is_one_node || near.size() == close_max) break;
    if (price - all.front().first > all.front().first / close_share) continue;
    Choice choice = Chooser::with(*priced, *rival);
    if (seen.insert(name_when_trimmed(choice)).second) near.push_back(std::move(choice));
  }
  near = by_events(std::move(near), messages_max);
  const Choice& first = is_one_node && !has_vector(best) ? found.front() : best;
  const std::vector<Choice> middles = worth_varying(first, found, near);
  for (const Choice& middle : middles)
    for (Choice& choice : beside(middle, raced, topology, knowledge, messages_max / middles.size()))
      near.push_back(std::move(choice));
  near = by_events(std::move(near), messages_max);
  // Parameters that are off by a few percent move times by as much.
  constexpr plan::Picoseconds alike_share = 25;
  plan::Picoseconds least = near.empty() ? 0 : near.front().known_time();
  if (alike_count > count)
    for (Choice& one : found) least = std::min(least, one.follow(messages_max / found.size()));
  for (Choice& choice : on_both_sides_first(std::move(near), found)) {
    const bool is_alike = choice.known_time() - least <= least / alike_share;
    add(std::move(choice), is_alike ? std::max(count, alike_count) : count);
  }
  // The choice without a file comes next, and then whatever is left.
  if (kept.untuned)
    add(*kept.untuned, count);
  else if (std::optional<Choice> choice =
               Chooser(request, topology, untuned(knowledge.untuned)).try_choose())
    add(std::move(*choice), count);
  for (Choice& choice : others) add(std::move(choice), count);
  return found;
}

}  // namespace tutti::tune
