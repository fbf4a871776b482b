#include "tune/beside.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "plan/rooted/divided_tree.hpp"
#include "tune/chooser.hpp"
#include "tune/rows.hpp"
#include "tune/vectors.hpp"

namespace tutti::tune {
namespace {

/// The innermost choice, whose vector is that of the rounds across.
const Choice& innermost(const Choice& choice) {
  return choice.variant().across ? innermost(*choice.variant().across) : choice;
}

}  // namespace

bool has_vector(const Choice& choice) {
  const Choice& across = innermost(choice);
  return !across.variant().per_round.empty() && across.variant().turns == 0 &&
         across.row().takes != PerRoundIs::uniform;
}

std::string name_when_trimmed(const Choice& choice) {
  if (!has_vector(choice)) return choice.name();
  return name_with_vector(choice, innermost(choice).first_plan().per_round);
}

std::vector<Choice> with_uniform_vectors(const Choice& choice, const CollectiveRequest& request,
                                         const Topology& topology, const Knowledge& knowledge) {
  std::vector<Choice> uniform;
  if (!has_vector(choice)) return uniform;
  const std::uint32_t members = innermost(choice).plan(Rank{0}).rank_count;
  std::set<std::string> names;
  for (std::uint32_t n = 1; n <= 7; ++n)
    if (std::optional<Choice> one = choice_named(
            name_with_vector(choice, plan::uniform(members, n)), request, topology, knowledge);
        one && names.insert(name_when_trimmed(*one)).second)
      uniform.push_back(std::move(*one));
  return uniform;
}

bool has_latency(const Choice& choice) {
  const plan::TreeFans& fans = choice.variant().fans;
  return fans.across_by.rule == plan::Branching::Rule::fibonacci && !fans.is_chain;
}

Trees trees_of(const Choice& choice) {
  const Variant& variant = choice.variant();
  Trees trees{choice.row().name, variant.lane_count, {}};
  std::vector<std::uint32_t> left{choice.query().topology.node_count()};
  while (!left.empty()) {
    const std::uint32_t count = left.back();
    left.pop_back();
    const auto [place, is_new] = std::get<2>(trees).try_emplace(count);
    if (!is_new) continue;
    place->second = plan::subtree_sizes(count, variant.fans.across_by);
    left.insert(left.end(), place->second.begin(), place->second.end());
  }
  return trees;
}

std::vector<Choice> by_events(std::vector<Choice> choices, std::size_t messages_max) {
  std::vector<std::pair<plan::Picoseconds, Choice>> by_time;
  by_time.reserve(choices.size());
  for (Choice& choice : choices) {
    const plan::Picoseconds time = choice.follow(2 * messages_max / choices.size());
    by_time.emplace_back(time, std::move(choice));
  }
  std::stable_sort(by_time.begin(), by_time.end(),
                   [](const auto& left, const auto& right) { return left.first < right.first; });
  for (std::size_t i = 0; i < choices.size(); ++i) choices[i] = std::move(by_time[i].second);
  return choices;
}

namespace {

std::uint32_t latency_of(const Choice& choice) {
  return choice.variant().fans.across_by.latency;
}

/// Equal for choices that differ only in the messages of their rounds, or only in the latency of
/// their tree.
std::string shape_of(const Choice& choice) {
  if (has_vector(choice)) return name_with_vector(choice, {1});
  return has_latency(choice) ? name_with_latency(choice, 1) : choice.name();
}

/// For each n up to 7, the largest core with n messages in each round, and the largest of two
/// rounds with n in the first.
std::vector<plan::PerRound> usual_cores(const Choice& choice) {
  constexpr std::uint32_t most = 7;
  const std::uint32_t members = choice.first_plan().rank_count;
  std::vector<plan::PerRound> cores;
  for (std::uint32_t n = 1; n <= most && n < members; ++n) {
    plan::PerRound core;
    for (std::uint64_t product = n + 1; product <= members; product *= n + 1) core.push_back(n);
    cores.push_back(std::move(core));
    const std::uint32_t last = members / (n + 1) - 1;
    if (last > 0 && last <= messages_of_round_max) cores.push_back({n, last});
  }
  return cores;
}

/// Calls add(name) with the names of `choice` with other latencies of its Fibonacci tree: some near
/// its own, because that is a quotient of two parameters of the network and has the errors of both;
/// and a few far from it, because a nearly flat tree may be faster than all trees of latencies in
/// between, where messages hardly keep a rank busy.
template <class F>
void add_latencies(const Choice& choice, F&& add) {
  constexpr std::uint32_t share = 4, reach_max = 4;
  const std::uint32_t latency = latency_of(choice);
  const std::uint32_t reach = std::clamp(latency / share, 1u, reach_max);
  for (std::uint32_t near = 1; near <= plan::latency_max; ++near)
    if (near != latency && near + reach >= latency && near <= latency + reach)
      add(name_with_latency(choice, near));
  const std::uint32_t nodes = choice.query().topology.node_count();
  for (const std::uint32_t far : {nodes / 4, nodes / 2, nodes / 4 * 3, nodes - 2})
    if (far > 0 && far <= plan::latency_max && (far + reach < latency || far > latency + reach))
      add(name_with_latency(choice, far));
}

}  // namespace

std::vector<Choice> beside(const Choice& choice, const CollectiveRequest& request,
                           const Topology& topology, const Knowledge& knowledge,
                           std::size_t messages_max) {
  constexpr std::size_t count_max = 3;
  std::vector<Choice> found;
  std::set<std::string> names{name_when_trimmed(choice)};
  const auto take = [&](Choice other) {
    if (names.insert(name_when_trimmed(other)).second) found.push_back(std::move(other));
  };
  const auto add = [&](const std::string& name) {
    if (std::optional<Choice> other = choice_named(name, request, topology, knowledge))
      take(std::move(*other));
  };
  if (has_vector(choice)) {
    for (Choice& uniform : with_uniform_vectors(choice, request, topology, knowledge))
      take(std::move(uniform));
    const plan::PerRound& vector = innermost(choice).variant().per_round;
    for (const plan::PerRound& other : neighbours_of(vector)) add(name_with_vector(choice, other));
    if (innermost(choice).row().takes == PerRoundIs::core)
      for (const plan::PerRound& core : usual_cores(innermost(choice)))
        if (std::accumulate(core.begin(), core.end(), 0u) <= request.partners_max)
          add(name_with_vector(choice, core));
  }
  if (has_latency(choice)) {
    add_latencies(choice, add);
    std::set<Trees> trees{trees_of(choice)};
    std::erase_if(found,
                  [&](const Choice& other) { return !trees.insert(trees_of(other)).second; });
  }
  found = by_events(std::move(found), messages_max);
  if (has_latency(choice)) {
    // Parameters that are off a little move the best latency to one side.
    auto first = found.begin();
    for (const bool is_more : {false, true}) {
      const auto fastest = std::find_if(first, found.end(), [&](const Choice& other) {
        return (latency_of(other) > latency_of(choice)) == is_more;
      });
      if (fastest == found.end()) continue;
      std::rotate(first, fastest, std::next(fastest));
      ++first;
    }
  }
  if (found.size() > count_max) found.erase(found.begin() + count_max, found.end());
  return found;
}

std::vector<Choice> worth_varying(const Choice& first, const std::vector<Choice>& found,
                                  const std::vector<Choice>& fastest_first) {
  constexpr std::size_t count_max = 4;
  std::vector<Choice> varied{first};
  std::set<std::string> shapes{shape_of(first)};
  for (const Choice& one : found) {
    if (!has_latency(one) || one.name() == first.name()) continue;
    shapes.insert(shape_of(one));
    varied.push_back(one);
  }
  for (const Choice& one : fastest_first)
    if (varied.size() < count_max && (has_vector(one) || has_latency(one)) &&
        shapes.insert(shape_of(one)).second)
      varied.push_back(one);
  return varied;
}

std::vector<Choice> on_both_sides_first(std::vector<Choice> fastest_first,
                                        const std::vector<Choice>& found) {
  std::map<std::string, std::uint32_t> middles;  // latencies, by shapes
  for (const Choice& one : found)
    if (has_latency(one)) middles.try_emplace(shape_of(one), latency_of(one));
  std::set<std::pair<std::string, bool>> sides;
  std::vector<Choice> first, later;
  for (Choice& choice : fastest_first) {
    const std::uint32_t latency = latency_of(choice);
    const auto middle = middles.find(shape_of(choice));
    const bool is_second = middle != middles.end() && latency != middle->second &&
                           !sides.emplace(middle->first, latency > middle->second).second;
    (is_second ? later : first).push_back(std::move(choice));
  }
  std::move(later.begin(), later.end(), std::back_inserter(first));
  return first;
}

}  // namespace tutti::tune
