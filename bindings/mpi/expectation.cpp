#include "expectation.hpp"

#include <unistd.h>

#include <algorithm>
#include <exception>

#include "bootstrap/node_map.hpp"
#include "runtime/settings.hpp"
#include "runtime/tuning_agreement.hpp"
#include "runtime/tuning_table.hpp"
#include "tune/choose.hpp"
#include "verbs/device.hpp"

namespace tutti::interposer {
namespace {

/// The model follows so many messages where a closed form would be less near.
constexpr std::size_t messages_max = 4096;

std::optional<tune::Collective> priced_as(Collective collective) {
  switch (collective) {
    case Collective::barrier:
      return tune::Collective::barrier;
    case Collective::allreduce:
      return tune::Collective::allreduce;
    case Collective::broadcast:
      return tune::Collective::broadcast;
    case Collective::reduce:
      return tune::Collective::reduce;
    case Collective::allgather:
    case Collective::allgatherv:
      return tune::Collective::allgather;
    case Collective::alltoall:
    case Collective::alltoallv:
      return tune::Collective::alltoall;
    case Collective::gather:
    case Collective::gatherv:
      return tune::Collective::gather;
    case Collective::scatter:
    case Collective::scatterv:
      return tune::Collective::scatter;
    case Collective::reduce_scatter:
    case Collective::reduce_scatter_block:
      return tune::Collective::reduce_scatter;
    case Collective::scan:
      return tune::Collective::scan;
    case Collective::exscan:
      return tune::Collective::exscan;
    case Collective::ibarrier:  // what a nonblocking call takes is not what its collective takes
    case Collective::iallreduce:
    case Collective::ibroadcast:
    case Collective::ireduce:
    case Collective::barrier_init:
    case Collective::allreduce_init:
    case Collective::broadcast_init:
    case Collective::reduce_init:
    case Collective::allgather_init:
    case Collective::allgatherv_init:
    case Collective::alltoall_init:
    case Collective::alltoallv_init:
    case Collective::alltoallw_init:
    case Collective::gather_init:
    case Collective::gatherv_init:
    case Collective::scatter_init:
    case Collective::scatterv_init:
    case Collective::reduce_scatter_init:
    case Collective::reduce_scatter_block_init:
    case Collective::scan_init:
    case Collective::exscan_init:
      break;
  }
  return std::nullopt;
}

/// With the settings' shape of nodes, if they have one.
tune::Topology topology_of(const std::vector<std::uint32_t>& node_of,
                           const runtime::ContextSettings& settings) {
  tune::Topology topology{.rank_count = static_cast<std::uint32_t>(node_of.size())};
  if (!settings.ranks_per_node.empty())
    topology.node_of = bootstrap::imposed_node_map({.rank_count = topology.rank_count,
                                                    .ranks_per_node = settings.ranks_per_node,
                                                    .placement = settings.placement})
                           .node;
  else
    for (const std::uint32_t node : node_of) topology.node_of.push_back(Node{node});
  topology.shares_cpus = topology.largest_node() > std::max(1l, ::sysconf(_SC_NPROCESSORS_ONLN));
  return topology;
}

}  // namespace

struct Expectation::Known {
  runtime::ContextSettings settings;
  tune::Knowledge knowledge;
};

Expectation::Expectation() {
  try {
    const runtime::ContextSettings settings = runtime::context_settings({});
    const verbs::Port port = verbs::open_port(settings.device);
    const runtime::FoundTable found = runtime::find_table(settings, port);
    if (found.refusal) throw *found.refusal;
    runtime::TuningInForce in_force =
        runtime::tuning_of_one(found, settings, runtime::port_card_of(port, settings));
    source_ = in_force.table;
    known_ = std::make_unique<Known>(Known{settings, std::move(in_force.knowledge)});
  } catch (const std::exception& error) {
    source_ = error.what();
  }
}

Expectation::~Expectation() = default;

std::uint32_t Expectation::nodes(const std::vector<std::uint32_t>& node_of) const {
  return topology_of(node_of, known_ ? known_->settings : runtime::ContextSettings{}).node_count();
}

std::optional<double> Expectation::of(const ShapeKey& key, const std::vector<std::size_t>& blocks,
                                      const std::vector<std::uint32_t>& node_of) const {
  const std::optional<tune::Collective> collective = priced_as(key.collective);
  if (!known_ || !collective) return std::nullopt;
  std::uint64_t no_calls = 0;
  Shape shape(key, no_calls);
  tune::CollectiveRequest request{.collective = *collective, .element_count = key.element_count};
  if (key.combining != Combining::none)
    request.reduction = shape.reduction();
  else
    request.reduction.element_bytes = 1;  // bytes are passed on
  if (key.collective == Collective::reduce_scatter_block) request.element_count *= node_of.size();
  if (key.collective == Collective::allgatherv) {
    request.block_bytes = blocks;
    request.element_count = *std::max_element(blocks.begin(), blocks.end());
  }
  if (has_root(key.collective)) request.root = Rank{static_cast<std::uint32_t>(key.root)};
  request.per_round_by_default = known_->settings.per_round;
  const tune::Topology topology = topology_of(node_of, known_->settings);
  try {
    const tune::Choice choice = tune::choose(request, topology, known_->knowledge);
    const plan::Picoseconds time = choice.expected(messages_max);
    if (time > 0) return static_cast<double>(time) / 1e3;
  } catch (const std::exception&) {  // no schedule does it
  }
  return std::nullopt;
}

}  // namespace tutti::interposer
