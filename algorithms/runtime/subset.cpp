#include "runtime/subset.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tutti/detail/check.hpp>
#include <utility>

#include "runtime/make_operation.hpp"
#include "runtime/operation.hpp"
#include "tune/choose.hpp"

namespace tutti {
namespace runtime {
namespace {

Rank position_of(Rank rank, std::span<const Rank> members) noexcept {
  const auto found = std::find(members.begin(), members.end(), rank);
  return found == members.end() ? no_rank
                                : Rank{static_cast<std::uint32_t>(found - members.begin())};
}

Neighbourhood neighbourhood_of(std::span<const Rank> members, const Neighbourhood& whole) {
  Neighbourhood part{.nodes = nodes_of(members, whole.nodes),
                     .mappings = {},
                     .reads_peers = whole.reads_peers,
                     .domain = {},
                     .remark = whole.remark};
  part.costs.resize(part.nodes.node_count);
  for (std::size_t i = 0; i < members.size(); ++i) {
    const std::size_t member = index_of(members[i]);
    part.mappings.push_back(whole.mappings[member]);
    if (!whole.costs.empty())
      part.costs[index_of(part.nodes.node[i])] = whole.costs[index_of(whole.nodes.node[member])];
  }
  return part;
}

/// An allreduce of the members, as a plan of the ranks that they are in the whole.
plan::Plan plan_of_members(Rank self, std::span<const Rank> members,
                           const tune::CollectiveRequest& request, const tune::Topology& topology,
                           const tune::Knowledge& knowledge) {
  plan::Plan plan = tune::plan_for(request, topology, self, knowledge);
  for (plan::Step& step : plan.steps)
    if (step.peer != no_rank) step.peer = members[index_of(step.peer)];
  plan.self = members[index_of(self)];
  return plan;
}

Operation make_allreduce(Communicator& whole, std::span<const Rank> members,
                         std::size_t element_count) {
  const Communicator::Implementation& ranks = whole.implementation();
  const bootstrap::NodeMap nodes = nodes_of(members, ranks.neighbours.nodes);
  const tune::CollectiveRequest asked{
      .element_count = element_count,
      .reduction = built_in_reduction(BuiltIn::bit_or, ElementType::uint64),
      .per_round_by_default = ranks.context.settings.per_round,
      .partners_max = ranks.partners_max};
  const tune::Topology topology{.rank_count = static_cast<std::uint32_t>(members.size()),
                                .node_of = nodes.node,
                                .shares_cpus = ranks.shares_cpus};
  return make_operation(whole, {.collective = "split",
                                .asked = asked,
                                .chunk_bytes_max = 4096,  // it lives as long as what is split off
                                .members = {members.begin(), members.end()},
                                .plan_of = [&](const tune::CollectiveRequest&) {
                                  return plan_of_members(position_of(whole.rank(), members),
                                                         members, asked, topology,
                                                         ranks.tuning->knowledge);
                                }});
}

}  // namespace

SubsetExchange::SubsetExchange(Communicator& whole, std::vector<Rank> members)
    : whole_(whole.implementation()),
      members_(std::move(members)),
      self_(position_of(whole.rank(), members_)),
      own_(members_.size()),
      all_(members_.size()),
      operation_(make_allreduce(whole, members_,
                                members_.size() * sizeof(Block) / sizeof(std::uint64_t))) {}

std::uint32_t SubsetExchange::rank_count() const noexcept {
  return static_cast<std::uint32_t>(members_.size());
}

void SubsetExchange::exchange_blocks(Timeout timeout) {
  Status status = operation_.start(own_.data(), all_.data());
  if (status == Status::ok) status = operation_.wait(timeout);
  if (status == Status::ok) return;
  if (status == Status::timed_out) {
    const std::string missing = operation_.describe();
    // Messages in flight cannot be taken back.
    whole_.fail(Status::aborted, whole_.exchange.self(),
                "ranks of a part of it did not come in time", nullptr);
    throw Error(ErrorCode::timed_out,
                "ranks of a communicator that was split did not come, or wait for others who did "
                "not (numbers of the whole): " +
                    missing);
  }
  throw Error(ErrorCode::peer_failed,
              std::string("the communicator that was split has failed: ") + whole_.failure.text);
}

void SubsetExchange::allgather(std::span<const std::byte> mine, std::span<std::byte> all,
                               Timeout timeout) {
  detail::check(all.size() == mine.size() * members_.size(),
                "an allgather has room for every rank's contribution", all.size(), mine.size());
  if (out_of_step_)
    throw Error(ErrorCode::peer_failed,
                "an earlier step of this communicator's set-up has failed; make another one");
  out_of_step_ = true;  // until the end of this
  const Deadline deadline = Deadline::after(timeout, whole_.context.clock.now());
  Block& own = own_[index_of(self_)];
  std::size_t done = 0;
  do {
    const std::size_t bytes = std::min(mine.size() - done, own.payload.size());
    own.total_bytes = mine.size();
    if (bytes > 0) std::memcpy(own.payload.data(), mine.data() + done, bytes);
    exchange_blocks(deadline.remaining(whole_.context.clock.now()));
    for (std::size_t rank = 0; rank < all_.size(); ++rank) {
      if (all_[rank].total_bytes != mine.size())
        throw Error(ErrorCode::mismatch, "rank " + std::to_string(rank) + " contributes " +
                                             std::to_string(all_[rank].total_bytes) +
                                             " bytes, this rank " + std::to_string(mine.size()));
      if (bytes > 0)
        std::memcpy(all.data() + rank * mine.size() + done, all_[rank].payload.data(), bytes);
    }
    done += bytes;
  } while (done < mine.size());
  out_of_step_ = false;
}

Rank SubsetExchange::rank_here(Rank rank_there) const noexcept {
  return position_of(rank_there, members_);
}
Rank SubsetExchange::rank_there(Rank rank_here) const noexcept {
  return rank_here == no_rank ? no_rank : members_[index_of(rank_here)];
}

Incident SubsetExchange::incident() noexcept {
  const Incident known = whole_.exchange.incident();
  return {known.kind, rank_here(known.rank)};
}

bool SubsetExchange::has_left(Rank rank) noexcept {
  return rank != no_rank && whole_.exchange.has_left(rank_there(rank));
}

void SubsetExchange::announce(Incident incident) noexcept {
  whole_.exchange.announce({incident.kind, rank_there(incident.rank)});
}

}  // namespace runtime

namespace {

/// What a rank says when a communicator is split.
struct Choice {
  runtime::Verdict verdict;
  std::uint64_t has_color = 0;
  std::uint64_t color = 0;
  std::int64_t key = 0;
};

}  // namespace

std::optional<Communicator> Communicator::split(std::optional<std::uint32_t> color,
                                                std::int64_t key) {
  return runtime::split(*this, color, key, std::nullopt);
}

std::optional<Communicator> runtime::split(Communicator& whole, std::optional<std::uint32_t> color,
                                           std::int64_t key, const std::optional<Error>& error) {
  Communicator::Implementation& ranks = whole.implementation();
  ranks.require_usable();
  const Choice own{Verdict::of(error), color ? 1u : 0u, color.value_or(0), key};
  std::vector<Choice> choices(whole.rank_count());
  SetUpCall call{CallKind::split, "split"};
  ranks.gather(call, std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(choices)));
  agree<Choice>(error, choices);
  std::vector<Rank> members;
  for (std::uint32_t index = 0; index < choices.size(); ++index)
    if (color ? choices[index].has_color != 0 && choices[index].color == *color
              : Rank{index} == whole.rank())
      members.push_back(Rank{index});
  std::stable_sort(members.begin(), members.end(), [&](Rank one, Rank other) {
    return choices[index_of(one)].key < choices[index_of(other)].key;
  });
  Neighbourhood neighbours = neighbourhood_of(members, ranks.neighbours);
  auto exchange = std::make_unique<SubsetExchange>(whole, std::move(members));
  if (!color) return std::nullopt;  // it took part, which the others needed
  auto part = std::make_unique<Communicator::Implementation>(ranks.context, std::move(exchange),
                                                             std::move(neighbours), ranks.tuning);
  part->spreads_by = ranks.spreads_by;
  part->has_segments = ranks.has_segments;
  part->has_node_segments = ranks.has_node_segments;
  return Communicator(std::move(part));
}

}  // namespace tutti
