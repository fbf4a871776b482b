#include <tutti/collectives.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "runtime/communicator.hpp"
#include "runtime/make_operation.hpp"
#include "runtime/segment.hpp"
#include "runtime/shared_ring.hpp"
#include "shm/single_copy_rule.hpp"
#include "tune/choose.hpp"
#include "tune/hierarchy.hpp"
#include "tune/request.hpp"

namespace tutti {
namespace {

/// Checks the arguments of a collective that combines.
template <class Arguments>
void check_arguments(const std::string& collective, const Arguments& given, CheckLevel level,
                     bool has_target = true) {
  const std::string name = collective + ": ";
  const Reduction& reduction = given.reduction;
  if (reduction.combine == nullptr || reduction.element_bytes == 0)
    throw Error(ErrorCode::invalid_argument,
                name +
                    "the reduction has no combine function or element_bytes is 0; use "
                    "tutti::sum and friends, elementwise<>(), or fill in both");
  if (given.element_count > std::numeric_limits<std::size_t>::max() / 4 / reduction.element_bytes)
    throw Error(ErrorCode::invalid_argument,
                name + std::to_string(given.element_count) + " elements of " +
                    std::to_string(reduction.element_bytes) + " bytes do not fit into memory");
  if (level == CheckLevel::off || given.element_count == 0) return;
  if (given.source == nullptr || (has_target && given.target == nullptr))
    throw Error(ErrorCode::invalid_argument, name + "source or target is null");
  if (!has_target) return;
  const auto* source = static_cast<const std::byte*>(given.source);
  const auto* target = static_cast<const std::byte*>(given.target);
  const std::size_t bytes = given.element_count * reduction.element_bytes;
  if (source != target && source < target + bytes && target < source + bytes)
    throw Error(ErrorCode::invalid_argument,
                name + "source and target overlap; they may be equal or apart");
}

void check_root(const char* collective, Rank root, std::uint32_t rank_count) {
  if (index_of(root) >= rank_count)
    throw Error(ErrorCode::invalid_argument,
                std::string(collective) + ": root " + std::to_string(index_of(root)) +
                    ": expected a rank, 0 .. " + std::to_string(rank_count - 1));
}

void check_fraction(const char* collective, const char* name, double fraction) {
  if (fraction > 0 && fraction <= 1) return;
  throw Error(ErrorCode::invalid_argument, std::string(collective) + ": " + name + " " +
                                               std::to_string(fraction) +
                                               ": expected more than 0 and at most 1");
}

/// The least part of `whole` that is no less than the fraction of it; rounding is no part of it.
std::size_t share_of(double fraction, std::size_t whole) {
  if (!(fraction > 0) || fraction >= 1) return whole;
  const auto all = static_cast<double>(whole);
  auto part = static_cast<std::size_t>(std::ceil(fraction * all));
  while (part > 1 && static_cast<double>(part - 1) / all >= fraction) --part;
  return std::min(part, whole);
}

/// What this rank says about its buffers, if the choice of the plan may depend on that: whether
/// they are registered, and where in the memory of its node the target is.
std::vector<std::uint64_t> whereabouts(const Communicator::Implementation& ranks,
                                       const tune::CollectiveRequest& asked,
                                       const AllreduceArguments& arguments) {
  if (!runtime::may_be_zero_copy(ranks, asked) && !ranks.has_node_segments) return {};
  const Context::Implementation& context = ranks.context;
  const std::size_t bytes = asked.bytes();
  return {std::min(runtime::registration_of(context, arguments.source, bytes),
                   runtime::registration_of(context, arguments.target, bytes)),
          bytes > 0 ? runtime::place_in_node(context, arguments.target, bytes) : 0};
}

bool are_in_segments(std::span<const std::uint64_t> registrations) {
  const auto in_segment = static_cast<std::uint64_t>(runtime::Registration::in_segment);
  return std::all_of(registrations.begin(), registrations.end(),
                     [&](std::uint64_t one) { return one == in_segment; });
}

/// Completes the request by the whereabouts of all ranks' buffers.
tune::CollectiveRequest with_whereabouts(tune::CollectiveRequest asked,
                                         const Communicator::Implementation& ranks,
                                         std::span<const std::uint64_t> rows) {
  if (rows.empty()) return asked;
  const tune::Topology topology = ranks.topology();
  std::vector<std::uint64_t> registrations, place_of_rank;
  for (std::size_t i = 0; i < rows.size(); i += 2) {
    registrations.push_back(rows[i]);
    place_of_rank.push_back(rows[i + 1]);
  }
  // Ranks that share a node combine what lies in segments, which are mapped.  Reading registered
  // buffers by the kernel takes longer than copying them (measured, docs/performance.md).
  asked.zero_copy = runtime::may_be_zero_copy(ranks, asked) &&
                    runtime::allow_zero_copy(ranks, registrations) &&
                    (!topology.has_shared_nodes() || are_in_segments(registrations));
  asked.shares_target = runtime::is_one_buffer_a_node({"allreduce", "targets", asked.bytes()},
                                                      topology.node_of, place_of_rank);
  if (!asked.shares_target) return asked;
  asked.zero_copy = asked.zero_copy && !topology.has_shared_nodes();
  if (const std::string why = tune::why_not_shared_target(asked, topology); !why.empty())
    throw Error(ErrorCode::unsupported, "allreduce: the ranks of a node have one target, but " +
                                            why + "; give each rank a target of its own");
  return asked;
}

}  // namespace

void detail::refuse_segment(Communicator& communicator, const char* why) {
  const Error error(ErrorCode::invalid_argument, std::string("allocate: ") + why);
  (void)runtime::allocate(communicator, 0, Scope::rank, error);
  throw error;
}

void detail::refuse(Communicator& communicator, const char* collective, const char* why) {
  const Error error(ErrorCode::invalid_argument, std::string(collective) + ": " + why);
  (void)runtime::make_operation(
      communicator,
      {.collective = collective,
       .complete = [&](std::span<const std::uint64_t>) -> runtime::Completed { throw error; }});
  throw error;
}

Operation barrier(Communicator& communicator, const BarrierArguments& arguments) {
  return runtime::make_operation(
      communicator, {.collective = "barrier",
                     .asked = {.collective = tune::Collective::barrier,
                               .algorithm = arguments.algorithm,
                               .across = arguments.across,
                               .per_round = arguments.per_round,
                               .per_round_by_default =
                                   communicator.implementation().context.settings.per_round}});
}

Operation allreduce(Communicator& communicator, const AllreduceArguments& arguments) {
  const Communicator::Implementation& ranks = communicator.implementation();
  const Context::Implementation& context = ranks.context;
  tune::CollectiveRequest asked{
      .element_count = arguments.element_count,
      .reduction = arguments.reduction,
      .agreement = arguments.agreement,
      .algorithm = arguments.algorithm,
      .across = arguments.across,
      .per_round = arguments.per_round,
      .per_round_by_default = context.settings.per_round,
      .only = ranks.only,
      .partners_max = ranks.partners_max,
      .reads_in_place = ranks.takes_single_copy(
          shm::ReadFor::allreduce, arguments.element_count * arguments.reduction.element_bytes)};
  const bool tells_room =
      tune::depends_on_ring_room(asked, ranks.topology(), ranks.tuning->knowledge);
  const auto complete = [&](std::span<const std::uint64_t> rows) -> runtime::Completed {
    std::vector<std::uint64_t> own_rows(rows.begin(), rows.end());
    const tune::RingRoom room =
        tells_room ? runtime::split_off_ring_room(own_rows, ranks) : tune::RingRoom::not_told;
    tune::CollectiveRequest completed = with_whereabouts(asked, ranks, own_rows);
    completed.ring_room = room;
    check_arguments("allreduce", arguments, context.settings.check);
    if (completed.shares_target && arguments.source == arguments.target)
      throw Error(ErrorCode::invalid_argument,
                  "allreduce: the target is that of a whole node, and the source, too; give each "
                  "rank a source of its own");
    return {completed};
  };
  std::vector<std::uint64_t> row = whereabouts(ranks, asked, arguments);
  if (tells_room) {
    communicator.implementation().reap();  // what is destroyed takes no room
    row.push_back(runtime::has_room_for_ring(ranks, asked) ? 1 : 0);
  }
  return runtime::make_operation(communicator, {.collective = "allreduce",
                                                .asked = asked,
                                                .source = arguments.source,
                                                .target = arguments.target,
                                                .row = std::move(row),
                                                .has_equal_rows = true,
                                                .complete = complete});
}

Operation allreduce_ssp(Communicator& communicator, const AllreduceSspArguments& arguments) {
  const runtime::ContextSettings& settings = communicator.implementation().context.settings;
  const tune::CollectiveRequest asked{.collective = tune::Collective::allreduce_ssp,
                                      .element_count = arguments.element_count,
                                      .reduction = arguments.reduction,
                                      .agreement = Agreement::relaxed,
                                      .slack = arguments.slack,
                                      .per_round_by_default = settings.per_round};
  const auto complete = [&](std::span<const std::uint64_t>) -> runtime::Completed {
    check_arguments("allreduce_ssp", arguments, settings.check);
    if (!arguments.reduction.properties.commutative)
      throw Error(ErrorCode::unsupported,
                  "allreduce_ssp: the operator does not commute; use allreduce");
    return {asked};
  };
  return runtime::make_operation(communicator, {.collective = "allreduce_ssp",
                                                .asked = asked,
                                                .source = arguments.source,
                                                .target = arguments.target,
                                                .complete = complete});
}

Operation broadcast(Communicator& communicator, const BroadcastArguments& arguments) {
  const Communicator::Implementation& ranks = communicator.implementation();
  const std::size_t element_bytes = std::max<std::size_t>(arguments.element_bytes, 1);
  const std::size_t elements = share_of(arguments.data_fraction, arguments.bytes / element_bytes);
  const tune::CollectiveRequest asked{
      .collective = tune::Collective::broadcast,
      .element_count = elements,
      .reduction = {.element_bytes = static_cast<std::uint32_t>(element_bytes)},
      .root = arguments.root,
      .tree = arguments.tree,
      .per_round_by_default = ranks.context.settings.per_round,
      .reads_in_place = ranks.takes_single_copy(shm::ReadFor::broadcast, elements * element_bytes)};
  const bool may_be_zero_copy = runtime::may_be_zero_copy(ranks, asked);
  const auto complete = [&](std::span<const std::uint64_t> rows) -> runtime::Completed {
    check_root("broadcast", arguments.root, communicator.rank_count());
    check_fraction("broadcast", "data_fraction", arguments.data_fraction);
    if (arguments.element_bytes == 0 || arguments.bytes % element_bytes != 0 ||
        element_bytes > std::numeric_limits<std::uint32_t>::max())
      throw Error(ErrorCode::invalid_argument,
                  "broadcast: element_bytes " + std::to_string(arguments.element_bytes) +
                      ": expected a size of which " + std::to_string(arguments.bytes) +
                      " bytes are a multiple");
    if (arguments.bytes > std::numeric_limits<std::size_t>::max() / 4)
      throw Error(ErrorCode::invalid_argument, "broadcast: " + std::to_string(arguments.bytes) +
                                                   " bytes do not fit into memory");
    if (ranks.context.settings.check != CheckLevel::off && arguments.bytes > 0 &&
        arguments.buffer == nullptr)
      throw Error(ErrorCode::invalid_argument, "broadcast: buffer is null");
    tune::CollectiveRequest completed = asked;
    if (rows.empty()) return {std::move(completed)};
    std::vector<std::uint64_t> registrations, places;
    for (std::size_t i = 0; i < rows.size(); i += 2) {
      registrations.push_back(rows[i]);
      places.push_back(rows[i + 1]);
    }
    completed.shares_target = runtime::is_one_buffer_a_node({"broadcast", "buffers", asked.bytes()},
                                                            ranks.topology().node_of, places);
    completed.zero_copy = may_be_zero_copy && !completed.shares_target &&
                          runtime::allow_zero_copy(ranks, registrations);
    return {std::move(completed)};
  };
  std::vector<std::uint64_t> row;
  if (may_be_zero_copy || ranks.has_node_segments)
    row = {runtime::registration_of(ranks.context, arguments.buffer, asked.bytes()),
           asked.bytes() > 0
               ? runtime::place_in_node(ranks.context, arguments.buffer, asked.bytes())
               : 0};
  return runtime::make_operation(communicator, {.collective = "broadcast",
                                                .asked = asked,
                                                .source = arguments.buffer,
                                                .target = arguments.buffer,
                                                .row = std::move(row),
                                                .complete = complete});
}

Operation reduce(Communicator& communicator, const ReduceArguments& arguments) {
  const Communicator::Implementation& ranks = communicator.implementation();
  const std::size_t elements = share_of(arguments.data_fraction, arguments.element_count);
  const tune::CollectiveRequest asked{
      .collective = tune::Collective::reduce,
      .element_count = elements,
      .reduction = arguments.reduction,
      .agreement = arguments.agreement,
      .root = arguments.root,
      .participant_count =
          static_cast<std::uint32_t>(share_of(arguments.rank_fraction, communicator.rank_count())),
      .tree = arguments.tree,
      .per_round_by_default = ranks.context.settings.per_round,
      .reads_in_place = ranks.takes_single_copy(shm::ReadFor::reduce,
                                                elements * arguments.reduction.element_bytes)};
  const bool may_be_zero_copy = ranks.has_segments && runtime::may_be_zero_copy(ranks, asked);
  const auto complete = [&](std::span<const std::uint64_t> registrations) -> runtime::Completed {
    check_root("reduce", arguments.root, communicator.rank_count());
    check_fraction("reduce", "data_fraction", arguments.data_fraction);
    check_fraction("reduce", "rank_fraction", arguments.rank_fraction);
    check_arguments("reduce", arguments, ranks.context.settings.check,
                    communicator.rank() == arguments.root);
    tune::CollectiveRequest completed = asked;
    completed.zero_copy = may_be_zero_copy && are_in_segments(registrations);
    return {std::move(completed)};
  };
  std::vector<std::uint64_t> row;
  if (may_be_zero_copy)
    row = {runtime::registration_of(ranks.context, arguments.source, asked.bytes())};
  return runtime::make_operation(communicator, {.collective = "reduce",
                                                .asked = asked,
                                                .source = arguments.source,
                                                .target = arguments.target,
                                                .row = std::move(row),
                                                .has_equal_rows = true,
                                                .complete = complete});
}

namespace {

Operation prefix(Communicator& communicator, const ScanArguments& arguments,
                 tune::Collective kind) {
  const tune::CollectiveRequest asked{.collective = kind,
                                      .element_count = arguments.element_count,
                                      .reduction = arguments.reduction};
  const auto complete = [&](std::span<const std::uint64_t>) -> runtime::Completed {
    check_arguments(tune::name_of(kind), arguments,
                    communicator.implementation().context.settings.check,
                    kind == tune::Collective::scan || communicator.rank() != Rank{0});
    return {asked};
  };
  return runtime::make_operation(communicator, {.collective = tune::name_of(kind),
                                                .asked = asked,
                                                .source = arguments.source,
                                                .target = arguments.target,
                                                .complete = complete});
}

}  // namespace

Operation scan(Communicator& communicator, const ScanArguments& arguments) {
  return prefix(communicator, arguments, tune::Collective::scan);
}

Operation exscan(Communicator& communicator, const ScanArguments& arguments) {
  return prefix(communicator, arguments, tune::Collective::exscan);
}

}  // namespace tutti
