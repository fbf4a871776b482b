#include "microbench/tune_racers.hpp"

#include <algorithm>
#include <iterator>
#include <tutti/status.hpp>
#include <utility>

#include "tune/plan_time.hpp"

namespace tutti::bench {

Racers racers_of(const tune::CollectiveRequest& request, const tune::Topology& topology,
                 const tune::Knowledge& machine, const tune::Knowledge& untuned) {
  const std::size_t most = topology.is_one_node() ? racers_in_node_max : racers_max;
  Racers racers{.choices = tune::candidates(request, topology, machine, most)};
  racers.untuned = tune::choose(request, topology, untuned).name();
  std::vector<tune::Choice>& choices = racers.choices;
  auto first = std::find_if(choices.begin(), choices.end(),
                            [&](const tune::Choice& one) { return one.name() == racers.untuned; });
  if (first == choices.end() && topology.is_one_node()) {
    // Names of trees have latencies of the network, which is another one here.
    const tune::Choice usual = tune::choose(request, topology, untuned);
    first = std::find_if(choices.begin(), choices.end(), [&](const tune::Choice& one) {
      return tune::have_same_plans(one, usual);
    });
    if (first != choices.end()) racers.untuned = first->name();
  }
  if (first == choices.end()) {
    std::optional<tune::Choice> other = choice_named(racers.untuned, request, topology, machine);
    if (!other) return racers;
    if (choices.size() == most) choices.pop_back();
    choices.push_back(std::move(*other));
    first = std::prev(choices.end());
  }
  // The first one wins unless another one is faster by more than a race can tell.
  std::rotate(choices.begin(), first, std::next(first));
  return racers;
}

std::optional<tune::Choice> choice_named(const std::string& name, tune::CollectiveRequest request,
                                         const tune::Topology& topology,
                                         const tune::Knowledge& machine) {
  request.only = name;
  try {
    return tune::choose(request, topology, machine);
  } catch (const Error&) {
    return {};
  }
}

tune::Finding finding_of(const tune::CollectiveRequest& request, const tune::Topology& topology,
                         const std::vector<tune::Choice>& racers, const tune::RaceResult& result) {
  tune::Finding finding{.collective = request.collective,
                        .bytes = request.bytes(),
                        .nodes = topology.node_count(),
                        .ranks_per_node = topology.largest_node(),
                        .agreement = request.agreement,
                        .operators = tune::operator_class_of(request),
                        .is_noisy = result.is_noisy};
  for (std::size_t i = 0; i < result.times.size(); ++i) {
    tune::Timing timing{racers[i].name(), result.times[i],
                        racers[i].expected(tune::messages_of_finding_max)};
    if (i == result.winner)
      finding.winner = std::move(timing);
    else
      finding.others.push_back(std::move(timing));
  }
  return finding;
}

}  // namespace tutti::bench
