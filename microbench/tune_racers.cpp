#include "microbench/tune_racers.hpp"

#include <algorithm>
#include <iterator>
#include <new>
#include <tutti/reduction.hpp>
#include <tutti/status.hpp>
#include <utility>

#include "tune/candidates.hpp"
#include "tune/plan_time.hpp"

namespace tutti::bench {
namespace {

/// An operator of that class, built in if possible, on elements whose size divides `bytes`.
Reduction reduction_of(tune::OperatorClass operators, std::uint64_t bytes) {
  using tune::OperatorClass;
  const bool rounds = operators == OperatorClass::rounding;
  const BuiltIn op = operators == OperatorClass::idempotent ? BuiltIn::max : BuiltIn::sum;
  if (operators != OperatorClass::ordered && bytes % 8 == 0)
    return built_in_reduction(op, rounds ? ElementType::float64 : ElementType::int64);
  if (operators != OperatorClass::ordered && bytes % 4 == 0)
    return built_in_reduction(op, rounds ? ElementType::float32 : ElementType::int32);
  return {.element_bytes = 1,
          .properties = {.commutative = operators != OperatorClass::ordered,
                         .idempotent = operators == OperatorClass::idempotent,
                         .exact = !rounds && operators != OperatorClass::ordered}};
}

bool is_rooted(tune::Collective collective) {
  using tune::Collective;
  return collective == Collective::broadcast || collective == Collective::reduce ||
         collective == Collective::gather || collective == Collective::scatter;
}

}  // namespace

Racers racers_of(const tune::CollectiveRequest& request, const tune::Topology& topology,
                 const tune::Knowledge& machine, const tune::Knowledge& untuned) {
  const bool is_one_node = topology.is_one_node();
  const std::size_t most = is_one_node ? racers_in_node_max : racers_max;
  Racers racers{.choices =
                    tune::candidates(request, topology, machine, most, tune::messages_of_race_max,
                                     is_one_node ? most : racers_alike_max)};
  racers.untuned = tune::choose(request, topology, untuned).name();
  std::vector<tune::Choice>& choices = racers.choices;
  auto first = std::find_if(choices.begin(), choices.end(),
                            [&](const tune::Choice& one) { return one.name() == racers.untuned; });
  if (first == choices.end() && is_one_node) {
    // Names of trees contain a latency of the network, which differs here, so plans are compared.
    const tune::Choice usual = tune::choose(request, topology, untuned);
    first = std::find_if(choices.begin(), choices.end(), [&](const tune::Choice& one) {
      return tune::have_same_plans(one, usual);
    });
    if (first != choices.end()) racers.untuned = first->name();
  }
  if (first == choices.end()) {
    std::optional<tune::Choice> other =
        tune::choice_named(racers.untuned, request, topology, machine);
    if (!other) return racers;
    if (choices.size() == most || choices.size() == racers_alike_max) choices.pop_back();
    choices.push_back(std::move(*other));
    first = std::prev(choices.end());
  }
  // The first one wins unless another one is faster by more than a race can tell.
  std::rotate(choices.begin(), first, std::next(first));
  return racers;
}

tune::CollectiveRequest request_of(const tune::Finding& finding) {
  tune::CollectiveRequest request{.collective = finding.collective,
                                  .agreement = finding.agreement,
                                  .ring_room = tune::RingRoom::there};
  if (is_rooted(finding.collective)) request.root = Rank{0};
  if (finding.collective == tune::Collective::barrier) return request;
  request.reduction = finding.operators == tune::OperatorClass::none
                          ? Reduction{.element_bytes = 1}
                          : reduction_of(finding.operators, finding.bytes);
  request.element_count = finding.bytes / request.reduction.element_bytes;
  return request;
}

std::optional<tune::Topology> topology_of(const tune::Finding& finding) {
  const std::uint64_t rank_count = std::uint64_t{finding.nodes} * finding.ranks_per_node;
  if (rank_count > ranks_priced_max) return {};
  tune::Topology topology{.rank_count = static_cast<std::uint32_t>(rank_count)};
  if (finding.ranks_per_node > 1)
    for (std::uint32_t rank = 0; rank < topology.rank_count; ++rank)
      topology.node_of.push_back(Node{rank / finding.ranks_per_node});
  return topology.counted();
}

void price_anew(tune::Finding& finding, const tune::CollectiveRequest& request,
                const tune::Topology& topology, const tune::Knowledge& machine,
                std::size_t messages_max) {
  const auto price = [&](tune::Timing& timing) {
    std::optional<tune::Choice> choice =
        tune::choice_named(timing.choice, request, topology, machine);
    if (!choice) {
      tune::CollectiveRequest other = request;
      other.reads_in_place = !request.reads_in_place;
      choice = tune::choice_named(timing.choice, other, topology, machine);
    }
    if (choice) timing.predicted = choice->expected(messages_max);
  };
  try {
    tune::Finding priced = finding;
    price(priced.winner);
    for (tune::Timing& other : priced.others) price(other);
    finding = std::move(priced);
  } catch (const std::bad_alloc&) {
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
