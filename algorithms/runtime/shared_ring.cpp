#include "runtime/shared_ring.hpp"

#include <algorithm>
#include <string>

#include "plan/core/nodes.hpp"
#include "runtime/make_operation.hpp"
#include "runtime/operation.hpp"
#include "runtime/operation_memory.hpp"
#include "tune/choose.hpp"
#include "verbs/connection.hpp"

namespace tutti::runtime {
namespace {

std::string text_of(std::span<const Rank> ranks) {
  std::string text;
  for (const Rank rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(index_of(rank));
  return text;
}

std::string text_of(const plan::RingChunk& chunk) {
  return (chunk.stage == plan::RingChunk::Stage::allgather ? "allgather (" : "reduce_scatter (") +
         std::to_string(chunk.block) + "," + std::to_string(chunk.sub_block) + ")";
}

plan::RingLapLimits limits_of(const Context::Implementation& context, const plan::NodeRing& ring,
                              std::uint32_t largest_node, std::uint64_t payload_bytes,
                              plan::RingAsked by, bool republishes) {
  plan::RingLapLimits limits =
      plan::shared_ring_limits(ring.nodes, ring.sub_blocks, largest_node, payload_bytes, by);
  if (const std::size_t asked = context.settings.chunk_bytes; asked > 0) {
    limits.chunk_bytes = std::min<std::uint64_t>(asked, UINT32_MAX);  // no message is longer
    limits.window_bytes =
        std::uint64_t{plan::ring_laps_in_flight} * ring.parts() * limits.chunk_bytes;
  }
  if (republishes)
    limits.in_flight_max =
        std::max<std::uint32_t>(verbs::Immediate::slots_max / (ring.copies_each() * ring.ids()), 1);
  return limits;
}

/// A ring that nobody asks for leaves as much of the arena to others as it takes.
bool leaves_as_much(Context::Implementation& context, std::uint64_t bytes) {
  return bytes <= context.fabric.arena().largest_gap() / 2;
}

/// How many messages may wait along a connection at once, an even number: no more than a quarter of
/// what it promises, so that other operations have room there, too.  16 chunks of 8 KiB take 19 us
/// to send (FDR), and an answer 2 us: 1 MiB of 16 nodes takes 292.8 us of virtual time, with 48
/// chunks 290.9 us, and with 8 chunks 296.8 us.
std::uint32_t waiting_max_of(const Communicator::Implementation& communicator) {
  constexpr std::uint32_t enough = 16;
  return std::clamp(communicator.receives_max / 8 * 2, 2u, enough);
}

plan::RingAsked asked_of(const tune::CollectiveRequest& asked) {
  return asked.algorithm == Algorithm::shared_ring ? plan::RingAsked::by_name
                                                   : plan::RingAsked::unasked;
}

const char* instead_of(const tune::CollectiveRequest& asked) {
  return asked.collective == tune::Collective::allreduce ? "ring" : "automatic";
}

bool gets_on_while_it_waits(const Communicator::Implementation& communicator) {
  const Context::Implementation& context = communicator.context;
  if (context.settings.wait == WaitPolicy::block) return false;
  if (communicator.shared_notifications == SharedNotifications::republished) return true;
  return !context.clock.is_simulated() && verbs::places_writes_in_order(context.fabric.port());
}

}  // namespace

bool has_room_for_ring(const Communicator::Implementation& communicator,
                       const tune::CollectiveRequest& asked) {
  Context::Implementation& context = communicator.context;
  if (context.settings.chunk_bytes > 0 || !gets_on_while_it_waits(communicator)) return false;
  const bool has_words = communicator.shared_notifications != SharedNotifications::republished;
  if (has_words &&
      asked.reduction.element_bytes > chunk_bytes_before_words_max(context.fabric.port()))
    return false;
  const tune::Topology topology = communicator.topology();
  if (!leaves_as_much(context, tune::shared_ring_arena_bytes(asked, topology))) return false;
  if (has_words) return true;
  // Where many operations live, a ring would soon leave no receives to others: it takes four times
  // what a fold takes.  Connections that are not made yet have room.
  const plan::Plan plan = plan::shared_ring_plan(communicator.exchange.self(), topology.rank_count,
                                                 topology.node_of, 1);
  const verbs::Connections& connections = context.fabric.connections();
  return std::all_of(plan.steps.begin(), plan.steps.end(), [&](const plan::Step& step) {
    const std::uint64_t process = communicator.process_of[index_of(step.peer)];
    return step.action != plan::Action::await || communicator.is_neighbour(step.peer) ||
           !connections.has(process) ||
           connections.last_to(process).receives_left() >= communicator.receives_max / 4 * 3;
  });
}

bool tell_ring_room(Communicator& handle, const tune::CollectiveRequest& asked, bool is_usable,
                    std::vector<std::uint64_t>& row) {
  Communicator::Implementation& communicator = handle.implementation();
  const tune::Topology topology = communicator.topology();
  if (topology.shares_cpus || topology.is_one_node()) return false;
  communicator.reap();  // what is destroyed takes no room
  row.push_back(is_usable && has_room_for_ring(communicator, asked) ? 1 : 0);
  return true;
}

tune::RingRoom split_off_ring_room(std::vector<std::uint64_t>& rows,
                                   const Communicator::Implementation& communicator) {
  const std::vector<std::uint64_t> has_room =
      split_off_last(rows, communicator.exchange.rank_count());
  return std::find(has_room.begin(), has_room.end(), std::uint64_t{0}) == has_room.end()
             ? tune::RingRoom::there
             : tune::RingRoom::missing;
}

std::string SharedRingOperation::whose() const {
  return std::string(operation_.name) + ": algorithm shared_ring";
}

void SharedRingOperation::lay_out_blocks(const Completed& completed) {
  const Communicator::Implementation& communicator = operation_.communicator;
  const std::vector<engine::Part>& of_rank = completed.blocks.of_rank;
  const bool gathers = layout_.ring.phases == plan::RingPhases::allgather;
  const std::size_t element_bytes = layout_.element_bytes;
  const auto nodes = plan::members_of_nodes(static_cast<std::uint32_t>(of_rank.size()),
                                            communicator.neighbours.nodes.node);
  engine::RingBlocks& blocks = layout_.blocks;
  blocks.sources.resize(nodes.size());
  blocks.targets.resize(nodes.size());
  for (std::uint32_t block = 0; block < layout_.ring.nodes; ++block) {
    std::size_t begin = 0;
    const std::vector<Rank>& members = nodes[layout_.ring.node_of(block)];
    for (std::uint32_t member = 0; member < members.size(); ++member) {
      const std::size_t rank = index_of(members[member]);
      const engine::Part& part = of_rank[rank];
      const bool is_own = members[member] == self_;
      const std::size_t bytes = gathers ? part.target.bytes : part.source.bytes;
      if (bytes > 0 && (is_own || !gathers))
        blocks.sources[block].push_back({begin, bytes, part.source.offset, member});
      if (bytes > 0 && (is_own || gathers))
        blocks.targets[block].push_back({begin, bytes, part.target.offset, member});
      begin += bytes;
    }
    blocks.elements.push_back(begin / element_bytes);
  }
}

void SharedRingOperation::cut(const tune::CollectiveRequest& asked, std::uint32_t largest_node) {
  // Where blocks differ, as if all were as long as the longest: chunks are cut by it.
  const std::size_t elements = layout_.element_count, bytes = elements * layout_.element_bytes;
  layout_.laps =
      plan::shared_ring_laps(layout_.ring.parts(), elements, layout_.element_bytes,
                             limits_of(operation_.communicator.context, layout_.ring, largest_node,
                                       bytes, asked_of(asked), republishes_));
  if (layout_.ring.phases != plan::RingPhases::both) layout_.cut_blocks();
  layout_.ahead.assign(members_.size(), layout_.laps.in_flight);
  const std::size_t message_bytes_max = std::min<std::size_t>(
      operation_.communicator.context.fabric.port().description.attributes.max_msg_sz,
      UINT32_MAX / 2);
  if (const std::uint64_t looked_at =
          chunk_bytes_before_words_max(operation_.communicator.context.fabric.port());
      !republishes_ && layout_.chunk_bytes_max() > looked_at)
    throw Error(ErrorCode::unsupported,
                whose() + " has chunks of up to " + std::to_string(layout_.chunk_bytes_max()) +
                    " bytes with a word after each, and tutti-tune has looked at chunks of up to " +
                    std::to_string(looked_at) +
                    " bytes on this device; lower TUTTI_CHUNK_BYTES, set "
                    "TUTTI_SHARED_NOTIFICATIONS=republished on all ranks, or use " +
                    instead_of(asked));
  if (layout_.chunk_bytes_max() > message_bytes_max)
    throw Error(ErrorCode::limit_exceeded,
                whose() + " cuts the payload into " + std::to_string(layout_.laps.count) + " x " +
                    std::to_string(layout_.ring.parts()) + " chunks of up to " +
                    std::to_string(layout_.chunk_bytes_max()) +
                    " bytes, which exceeds the device's " + std::to_string(message_bytes_max) +
                    " bytes a message; lower TUTTI_CHUNK_BYTES or use " + instead_of(asked));
}

SharedRingOperation::SharedRingOperation(Operation::Implementation& operation,
                                         const OperationRequest& request,
                                         const Completed& completed)
    : operation_(operation),
      self_(operation.communicator.exchange.self()),
      republishes_(operation.communicator.shared_notifications ==
                   SharedNotifications::republished) {
  Communicator::Implementation& communicator = operation.communicator;
  verbs::VerbsFabric& fabric = communicator.context.fabric;
  const tune::CollectiveRequest& asked = completed.asked;
  if (communicator.context.clock.is_simulated() && !republishes_)
    throw Error(ErrorCode::unsupported,
                whose() +
                    " polls words in memory, and in virtual time only messages let time pass: "
                    "expected TUTTI_SHARED_NOTIFICATIONS=republished there, or automatic");
  const std::vector<Node>& node_of = communicator.neighbours.nodes.node;
  const auto nodes =
      plan::members_of_nodes(static_cast<std::uint32_t>(communicator.process_of.size()), node_of);
  const auto node_count = static_cast<std::uint32_t>(nodes.size());
  const std::uint32_t node = index_of(node_of[index_of(self_)]);
  members_ = nodes[node];
  before_ = nodes[(node + node_count - 1) % node_count];
  layout_ = {.ring = {.nodes = node_count,
                      .node = node,
                      .sub_blocks = operation.plan.parts / node_count,
                      .phases = tune::phases_of(asked.collective)},
             .members = static_cast<std::uint32_t>(members_.size()),
             .element_count = asked.element_count,
             .element_bytes = asked.reduction.element_bytes};
  if (layout_.ring.phases != plan::RingPhases::both) {
    lay_out_blocks(completed);
    layout_.element_count = plan::ring_elements_to_cut(layout_.blocks.elements);
  }
  cut(asked, static_cast<std::uint32_t>(plan::largest_node_of(node_of)));
  is_timed_ = communicator.context.clock.is_simulated() && members_.size() > 1;
  engine::Execution& execution = operation.execution;
  execution.memory.source = static_cast<const std::byte*>(request.source);
  execution.memory.target = static_cast<std::byte*>(request.target);
  const auto member = static_cast<std::uint32_t>(
      std::find(members_.begin(), members_.end(), self_) - members_.begin());
  limit_what_waits();
  // Room for the contributions to a whole payload, so that nobody has to wait for this rank after
  // start(); or else for the laps in flight.
  ahead_ = layout_.laps.count;
  const bool is_asked_for = asked_of(asked) == plan::RingAsked::by_name;
  if (layout_.laps.count > layout_.laps.in_flight && members_.size() > 1 &&
      (is_asked_for || leaves_as_much(communicator.context, own_bytes(member)))) {
    operation.block = allocate_block(communicator.context, own_bytes(member));
  }
  if (operation.block == nullptr) {
    ahead_ = layout_.laps.in_flight;
    operation.block = allocate_block(communicator.context, own_bytes(member));
  }
  const plan::RingPhases phases = layout_.ring.phases;
  if (operation.block == nullptr)
    throw Error(ErrorCode::limit_exceeded,
                whose() + " keeps " +
                    (is_first() && phases != plan::RingPhases::allgather
                         ? "2 x " + std::to_string(layout_.laps.in_flight) + " blocks of " +
                               std::to_string(layout_.block_bytes_of_lap()) + " bytes, "
                         : "") +
                    (is_first() ? "2 x " + std::to_string(layout_.laps.in_flight) + " + " : "") +
                    std::to_string(ahead_) + " laps of " + std::to_string(layout_.lap_bytes()) +
                    " bytes, the words of " + std::to_string(layout_.copies()) + " x " +
                    std::to_string(layout_.ids()) + " chunks, at " +
                    (is_first() ? "the first rank of a node" : "each rank") + " and needs " +
                    std::to_string(own_bytes(member)) + " bytes of its arena (largest gap " +
                    std::to_string(fabric.arena().largest_gap()) + " of " +
                    std::to_string(fabric.arena().size()) +
                    "): raise TUTTI_ARENA_BYTES, lower TUTTI_CHUNK_BYTES, use " +
                    instead_of(asked) + ", or destroy operations");
  if (is_first()) block_ = operation.block;
  acknowledged_ =
      reinterpret_cast<std::uint64_t*>(operation.block + layout_.bytes_of(member, ahead_));
}

void SharedRingOperation::limit_what_waits() noexcept {
  if (!republishes_) return;
  notified_max_ = layout_.laps.in_flight *
                  plan::shared_ring_waiting_max(layout_.ring.nodes, layout_.ring.sub_blocks);
  const std::uint32_t quarter = waiting_max_of(operation_.communicator);
  acknowledges_ = notified_max_ > quarter;
  if (acknowledges_) notified_max_ = quarter;
}

std::size_t SharedRingOperation::own_bytes(std::uint32_t member) const noexcept {
  // The word that is written here, and one for each rank that sends to this one.
  const std::size_t words = acknowledges_ ? 1 + before_.size() : 0;
  constexpr std::size_t line = engine::SharedRingLayout::line_bytes;
  return layout_.bytes_of(member, ahead_) +
         (words * sizeof(std::uint64_t) + line - 1) / line * line;
}

RingDoor SharedRingOperation::open(std::span<const Places> places) {
  Communicator::Implementation& communicator = operation_.communicator;
  verbs::VerbsFabric& fabric = communicator.context.fabric;
  areas_.clear();
  for (std::uint32_t member = 0; member < layout_.members; ++member) {
    const Rank rank = members_[member];
    const std::array<std::uint64_t, 2>& slots = places[index_of(rank)].slots;
    const std::uint64_t ahead = slots[1];
    detail::check(ahead == layout_.laps.in_flight || ahead == layout_.laps.count,
                  "a rank contributes to the laps in flight, or to all", ahead, layout_.laps.count);
    layout_.ahead[member] = static_cast<std::uint32_t>(ahead);
    std::byte* begin = operation_.block;
    if (rank != self_)
      begin = communicator.neighbours.mappings[index_of(rank)].prepared(
          slots[0], layout_.bytes_of(member, layout_.ahead[member]));
    if (member == 0) block_ = begin;
    areas_.push_back(begin + (member == 0 ? layout_.block_bytes() : 0));
  }
  RingDoor door{.address = reinterpret_cast<std::uint64_t>(block_),
                .remote_key = fabric.arena().remote_key(),
                .channel = operation_.channel_id,
                .acknowledged_key = fabric.arena().remote_key(),
                .acknowledged = reinterpret_cast<std::uint64_t>(acknowledged_)};
  if (is_first()) {
    local_key_ = fabric.arena().local_key();
    return door;
  }
  const Rank first = members_.front();
  const ibv_mr& region = communicator.context.neighbour_arena(
      communicator.process_of[index_of(first)], communicator.neighbours.mappings[index_of(first)]);
  local_key_ = region.lkey;
  door.remote_key = region.rkey;
  return door;
}

void SharedRingOperation::join(std::span<const RingDoor> doors) {
  Communicator::Implementation& communicator = operation_.communicator;
  for (const plan::Step& step : operation_.plan.steps) {
    if (communicator.is_neighbour(step.peer)) continue;
    verbs::Connection& connection = communicator.connection_to(step.peer);
    if (const std::string reason = republishes_ ? "" : connection.why_not_worded(); !reason.empty())
      throw Error(ErrorCode::unsupported,
                  whose() + " " + reason + "; or use " + instead_of(operation_.asked));
    if (step.action == plan::Action::put) {
      connection_ = &connection;
      next_ = doors[index_of(step.peer)];
    } else if (acknowledges_) {
      const RingDoor& door = doors[index_of(step.peer)];
      owed_.push_back({.connection = &connection,
                       .address = door.acknowledged,
                       .remote_key = door.acknowledged_key});
      operation_.channel.network.count_received(connection);
    }
  }
  if (layout_.ring.has_next()) {
    // All that drain() waits for.
    operation_.channel.network.make_room(1 + owed_.size());
    operation_.channel.network.assign(0, *connection_);
    for (std::size_t i = 0; i < owed_.size(); ++i)
      operation_.channel.network.assign(1 + i, *owed_[i].connection);
  }
  ring_.emplace(layout_, index_of(communicator.neighbours.nodes.local_rank[index_of(self_)]),
                block_, areas_);
  if (!republishes_) return;
  detail::RepublishedWords words = ring_->republished();
  if (is_timed_) words.clock = &communicator.context.clock;
  operation_.channel.network.republish(words);
}

void SharedRingOperation::greet() {
  if (!layout_.ring.has_next() || republishes_) return;
  Communicator::Implementation& communicator = operation_.communicator;
  Context::Implementation& context = communicator.context;
  verbs::VerbsFabric& fabric = context.fabric;
  const Deadline deadline =
      Deadline::after(context.settings.setup_timeout / 2, context.clock.now());
  // No lap has number 0.
  const engine::Forwarding word{.word = layout_.arrived(0, 0), .lap = 0};
  Status status = forward(word);
  while (status == Status::in_progress && !deadline.passed(context.clock.now())) {
    context.progress();
    status = forward(word);
  }
  const bool has_left =
      status == Status::ok &&
      fabric.drain(operation_.channel.network, context.clock,
                   deadline.remaining(context.clock.now()), [](std::uint64_t) { return false; });
  if (connection_->failed)
    throw Error(ErrorCode::peer_failed,
                std::string(operation_.name) + ": the next node cannot be written to");
  if (!has_left)
    throw Error(ErrorCode::timed_out,
                std::string(operation_.name) +
                    ": the next node could not be written to within half of the set-up timeout");
}

void SharedRingOperation::hear(std::span<const Verdict> greeters) noexcept {
  const auto has_greeted = [&](Rank rank) { return !greeters[index_of(rank)].failed(); };
  const bool all_have = std::none_of(greeters.begin(), greeters.end(),
                                     [](const Verdict& one) { return one.failed(); });
  // Ranks that send to this node have waited until their greetings had arrived.
  if (!all_have) is_shared_ = !std::all_of(before_.begin(), before_.end(), has_greeted);
  is_greeting_ = !all_have;
}

detail::Clock& SharedRingOperation::clock() const noexcept {
  return operation_.communicator.context.clock;
}

void SharedRingOperation::begin() noexcept {
  ring_->begin(operation_.execution);
}

bool SharedRingOperation::contribute() noexcept {
  return ring_->contribute(operation_.execution, *this);
}

Status SharedRingOperation::advance() noexcept {
  const Status status = ring_->advance(operation_.execution, *this);
  if (!owed_.empty()) (void)acknowledge();
  if (clock().is_simulated()) clock().say_busy(ring_->has_work());
  return status;
}

bool SharedRingOperation::operator_has_failed() const noexcept {
  return operation_.user_operator.has_failed;
}

Status SharedRingOperation::room() const noexcept {
  // Nor will there be one.  The peer has ended the operation, and so had all chunks of its calls
  // from this node: whatever there is to send belongs to a call too many.
  if (connection_->peer_closed) [[unlikely]]
    return operation_.communicator.context.fabric.connections().no_credit_slow(*connection_);
  if (acknowledges_ && sent_ - acknowledged() >= notified_max_)
    return connection_->failed ? Status::transport_failed : Status::in_progress;
  return connection_->room(republishes_ ? 1 : 2);
}

bool SharedRingOperation::acknowledge() noexcept {
  bool all = true;
  for (std::size_t i = 0; i < owed_.size(); ++i) {
    Acknowledgement& owed = owed_[i];
    const std::uint64_t due = due_of(operation_.channel.network.received(*owed.connection));
    if (due == owed.written) continue;
    std::uint64_t* const word = acknowledged_ + 1 + i;
    // The device reads it later, if it does not send the word inline.  Then it may send a later
    // number instead, which is as good.
    std::atomic_ref(*word).store(due, std::memory_order_relaxed);
    if (operation_.communicator.context.fabric.write(
            *owed.connection,
            verbs::PlainWrite{
                .local = reinterpret_cast<const std::byte*>(word),
                .bytes = sizeof *word,
                .local_key = operation_.communicator.context.fabric.arena().local_key(),
                .remote_address = owed.address,
                .remote_key = owed.remote_key}) == Status::ok)
      owed.written = due;
    else
      all = false;
  }
  return all;
}

bool SharedRingOperation::is_deserted() noexcept {
  if (!is_shared_) return true;
  // What this rank owes must have gone, and what it is owed must have come, into its own memory.
  if (acknowledges_ && (!acknowledge() || acknowledged() != due_of(sent_))) return false;
  return !is_first() || (!is_greeting_ && ring_->all_others_have_left());
}

void SharedRingOperation::forget_calls() noexcept {
  ring_->forget_calls(is_first());
  sent_ = 0;
  for (Acknowledgement& owed : owed_) owed.written = 0;
  if (acknowledges_) std::atomic_ref(*acknowledged_).store(0, std::memory_order_relaxed);
}

Status SharedRingOperation::forward(const engine::Forwarding& chunk) noexcept {
  bytes_sent_ += chunk.bytes;
  verbs::VerbsFabric& fabric = operation_.communicator.context.fabric;
  if (republishes_) {
    ++sent_;
    return fabric.write(*connection_,
                        verbs::NotifiedWrite{.local = block_ + chunk.from,
                                             .bytes = static_cast<std::uint32_t>(chunk.bytes),
                                             .local_key = local_key_,
                                             .remote_address = next_.address + chunk.into,
                                             .remote_key = next_.remote_key,
                                             .notification = {.operation = next_.channel,
                                                              .parity = chunk.parity,
                                                              .slot = chunk.number}});
  }
  return fabric.write(*connection_,
                      verbs::WordedWrite{.local = block_ + chunk.from,
                                         .bytes = static_cast<std::uint32_t>(chunk.bytes),
                                         .local_key = local_key_,
                                         .remote_address = next_.address + chunk.into,
                                         .remote_word = next_.address + chunk.word,
                                         .remote_key = next_.remote_key,
                                         .word = chunk.lap});
}

std::uint32_t SharedRingOperation::round() const noexcept {
  return ring_ ? ring_->step() : 0;
}

bool SharedRingOperation::is_open() const noexcept {
  for (std::uint32_t member = 0; member < layout_.members; ++member)
    if (!ring_->is_open_to(member, ring_->lap())) return false;
  return true;
}

/// Chunks of this lap that the node before sends, and whether they have come.
template <class F>
void SharedRingOperation::for_each_that_comes(F&& look) const {
  using Stage = plan::RingChunk::Stage;
  for (const Stage stage : {Stage::reduce_scatter, Stage::allgather})
    for (std::uint32_t part = 0; part < layout_.ring.parts(); ++part) {
      const plan::RingChunk chunk{stage, part / layout_.ring.sub_blocks,
                                  part % layout_.ring.sub_blocks};
      if (layout_.ring.comes(chunk)) look(chunk, ring_->has_arrived(chunk, ring_->lap()));
    }
}

Rank SharedRingOperation::awaited() const noexcept {
  for (std::uint32_t member = 0; member < layout_.members; ++member)
    if (!ring_->is_open_to(member, ring_->lap())) return members_[member];
  return before_.empty() ? no_rank : before_.front();
}

Rank SharedRingOperation::one_who_left() const noexcept {
  const auto has_left = [&](Rank rank) { return operation_.communicator.exchange.has_left(rank); };
  for (std::uint32_t member = 0; member < layout_.members; ++member)
    if (!ring_->is_open_to(member, ring_->lap()) && has_left(members_[member]))
      return members_[member];
  // Any rank of the node before may be the one to send what is missing, as long as one is there.
  if (!is_open() || !std::all_of(before_.begin(), before_.end(), has_left)) return no_rank;
  // Another rank of this node may have received the missing chunk without having polled for it yet.
  // A rank that has left or is drained has polled for everything.
  if (republishes_)
    for (std::uint32_t owner = 0; owner < owners().size(); ++owner)
      if (members_[owner] != self_ && !has_left(members_[owner]) && !ring_->is_drained(owner))
        return no_rank;
  bool is_missing = false;
  for_each_that_comes(
      [&](const plan::RingChunk&, bool has_come) { is_missing = is_missing || !has_come; });
  return is_missing ? before_.front() : no_rank;
}

bool SharedRingOperation::begins_to_drain() noexcept {
  const std::span<const Rank> notified = owners();
  if (flow_ == Flow::may_come && republishes_ && is_shared_ &&
      std::find(notified.begin(), notified.end(), self_) != notified.end() &&
      std::all_of(before_.begin(), before_.end(),
                  [&](Rank rank) { return operation_.communicator.exchange.has_left(rank); }))
    flow_ = Flow::draining;
  return flow_ == Flow::draining;
}

void SharedRingOperation::tell_drained() noexcept {
  if (flow_ != Flow::draining) return;
  ring_->tell_drained(*this);
  flow_ = Flow::drained;
}

std::string SharedRingOperation::missing() const {
  std::vector<Rank> silent;
  for (std::uint32_t member = 0; member < layout_.members; ++member)
    if (!ring_->is_open_to(member, ring_->lap())) silent.push_back(members_[member]);
  const std::string lap = layout_.laps.count == 1
                              ? ""
                              : "lap " + std::to_string(ring_->lap_of_call()) + " of " +
                                    std::to_string(layout_.laps.count) + ", ";
  if (!silent.empty()) return lap + "waiting for the contributions of ranks " + text_of(silent);
  std::uint32_t expected = 0, missing = 0;
  std::string names;
  constexpr std::uint32_t names_max = 4;
  for_each_that_comes([&](const plan::RingChunk& chunk, bool has_come) {
    ++expected;
    if (has_come) return;
    if (++missing <= names_max) names += (names.empty() ? "" : ", ") + text_of(chunk);
  });
  if (missing == 0)
    return lap + "all chunks are here; waiting for what ranks of this node (" + text_of(members_) +
           ") have taken, or for send credits";
  return lap + "waiting for " + std::to_string(missing) + " of " + std::to_string(expected) +
         " chunks from ranks " + text_of(before_) + ": " + names +
         (missing > names_max ? ", ..." : "") +
         (republishes_ ? "; of this node, ranks " + text_of(owners()) +
                             " have to poll for them, in test() or wait(), and republish them"
                       : "");
}

}  // namespace tutti::runtime
