#include "runtime/messages.hpp"

#include <algorithm>
#include <cstring>

#include "shm/message_policy.hpp"

namespace tutti::runtime {
namespace {

/// How the message of a put or an await travels, if the peer is of this node.
shm::Travel travel_of(const Operation::Implementation& operation, const plan::Step& step) {
  return shm::travel_of({.bytes = operation.execution.bytes_of(step),
                         .is_one_way = operation.plan.flow_control == plan::FlowControl::one_way,
                         .is_answer = plan::answer_in(operation.plan, step.slot) != nullptr,
                         .has_own_place = operation.plan.zero_copy || step.into_target});
}

/// The words of a block of a rank of this node, which begin at `finished` there.
shm::ReaderWords reader_words(const Communicator::Implementation& communicator,
                              std::uint64_t finished) {
  return {finished, communicator.members_of_node()};
}

/// The place of a rank in the list of its node.
std::size_t local_rank_of(const Communicator::Implementation& communicator, Rank rank) {
  return index_of(communicator.neighbours.nodes.local_rank[index_of(rank)]);
}

/// Offset of a partial from the first slot of its parity; it is the same on all ranks.
std::size_t offset_of_partial(const Operation::Implementation& operation, std::size_t partial) {
  const engine::RegisterMemory& memory = operation.execution.memory;
  return memory.offset_of_slot(operation.plan.slot_count) + partial * memory.register_bytes;
}

template <class T>
void add_once(std::vector<T>& all, T one) {
  if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
}

/// A message to a rank of this node, from a partial into a slot of that rank.  If the payload stays
/// in the partial, the partial's address is written into the slot here, once for all calls.
void prepare_store(Operation::Implementation& operation, const plan::Step& step, std::size_t put,
                   const Places& theirs) {
  const engine::RegisterMemory& memory = operation.execution.memory;
  const NeighbourMapping& neighbour =
      operation.communicator.neighbours.mappings[index_of(step.peer)];
  const shm::Travel travel = travel_of(operation, step);
  for (std::uint32_t parity = 0; parity < 2; ++parity) {
    const std::size_t slot_bytes = memory.bytes_of_slot(step.slot);
    std::byte* const slot =
        neighbour.prepared(theirs.slots[parity] + memory.offset_of_slot(step.slot), slot_bytes);
    const std::byte* from =
        step.by_reference ? reinterpret_cast<const std::byte*>(&operation.execution.references[put])
                          : memory.partials[parity] + operation.execution.offset_of(step.from);
    std::size_t bytes = operation.execution.bytes_of(step);
    std::byte* remote = slot;
    if (travel == shm::Travel::answers)
      remote = neighbour.prepared(
          theirs.slots[parity] +
              offset_of_partial(operation, plan::answer_in(operation.plan, step.slot)->partial),
          memory.register_bytes);
    if (step.into_target) bytes = 0;  // it is there: the node has one target
    if (travel == shm::Travel::stays && operation.staging && operation.staging->ring) {
      from = reinterpret_cast<const std::byte*>(&operation.staging->told[put]);
      remote = slot + slot_bytes - Staging::bytes_behind_place;
      bytes = sizeof(std::uint64_t);
    } else if (travel == shm::Travel::stays) {
      const auto place = reinterpret_cast<std::uint64_t>(from);
      std::memcpy(slot, &place, sizeof place);
      bytes = 0;
    }
    operation.channel.node.prepare(
        parity, put,
        {.local = from,
         .remote = remote,
         .word = shm::word_of(slot, slot_bytes),
         .bytes = bytes,
         .message_bytes = step.into_target ? 0 : operation.execution.bytes_of(step)});
  }
  if (neighbour.waker) {
    operation.channel.node.wake_by(put, *neighbour.waker);
    operation.wakes_readers = true;
    if (!operation.stale()) operation.calls.emplace<Operation::Implementation::OtherPlanCalls>();
  }
  if (travel != shm::Travel::stays) return;
  const std::uint64_t word =
      reader_words(operation.communicator, reinterpret_cast<std::uint64_t>(operation.finished))
          .of_reader(local_rank_of(operation.communicator, step.peer));
  add_once(operation.readers, reinterpret_cast<shm::SequenceWord*>(word));
}

/// What comes from a rank of another node into the step's slot, if that is a line.
void await_lines(Operation::Implementation& operation, const plan::Step& step) {
  const engine::RegisterMemory& memory = operation.execution.memory;
  const verbs::Connection& connection = operation.communicator.connection_to(step.peer);
  for (std::uint32_t parity = 0; parity < 2; ++parity)
    operation.channel.network.await_lines(
        parity, step.slot, memory.slots[parity] + memory.offset_of_slot(step.slot), connection);
}

/// Prepares a message to a rank of another node: as a line, or with an immediate.
void prepare_write(Operation::Implementation& operation, const plan::Step& step, std::size_t put,
                   const Places& theirs) {
  const engine::RegisterMemory& memory = operation.execution.memory;
  const verbs::Connection& connection = operation.communicator.connection_to(step.peer);
  const bool is_line = travels_as_line(operation, step);
  if (is_line) use_lines(operation, connection);
  const auto bytes = static_cast<std::uint32_t>(operation.execution.bytes_of(step));
  for (std::uint32_t parity = 0; parity < 2; ++parity) {
    const std::byte* const local =
        memory.partials[parity] + operation.execution.offset_of(step.from);
    const std::uint64_t slot = theirs.slots[parity] + memory.offset_of_slot(step.slot);
    if (is_line)
      operation.channel.network.prepare_line(connection, parity, put,
                                             {.local = local,
                                              .bytes = bytes,
                                              .remote_address = slot,
                                              .remote_key = theirs.remote_key,
                                              .numbers_from = theirs.numbers_from});
    else
      operation.channel.network.prepare(
          connection, parity, put,
          {.local = local,
           .bytes = bytes,
           .local_key = operation.communicator.context.fabric.arena().local_key(),
           .remote_address = slot,
           .remote_key = theirs.remote_key,
           .notification = {.operation = theirs.channel, .parity = parity, .slot = step.slot}});
  }
}

/// Prepares the messages of each chunk to a rank of another node, where buffers may stand in for
/// registers.
void prepare_zero_copy(Operation::Implementation& operation, const plan::Step& step,
                       std::size_t put, const Places& theirs) {
  const engine::Execution& execution = operation.execution;
  const engine::RegisterMemory& memory = execution.memory;
  const verbs::Connection& connection = operation.communicator.connection_to(step.peer);
  verbs::VerbsChannel& channel = operation.channel.network;
  const bool is_written = step.into_target && step.payloads > 0;
  for (std::size_t chunk = 0; chunk < execution.chunk_count; ++chunk) {
    const engine::Part& part = execution.parts[chunk * operation.plan.parts + step.part];
    const std::size_t chunk_put = chunk * execution.puts_per_chunk + put;
    for (std::uint32_t parity = 0; parity < 2; ++parity) {
      const std::byte* local = memory.partials[parity] + execution.offset_of(step.from);
      std::uint32_t key = operation.communicator.context.fabric.arena().local_key();
      if (step.payloads == 0) {
        // A notification alone.
      } else if (step.from.place == plan::Place::source) {
        local = memory.source + part.source.offset;
        key = operation.source.local_key;
      } else if (step.from.place == plan::Place::target) {
        local = memory.target + part.target.offset;
        key = operation.target.local_key;
      }
      const engine::Range& sent =
          step.from.place == plan::Place::target ? part.target : part.source;
      channel.prepare(
          connection, parity, chunk_put,
          {.local = local,
           .bytes = static_cast<std::uint32_t>(step.payloads * sent.bytes),
           .local_key = key,
           .remote_address = is_written ? theirs.target + part.target.offset
                                        : theirs.slots[parity] + memory.offset_of_slot(step.slot),
           .remote_key = is_written ? theirs.target_key : theirs.remote_key,
           .notification = {.operation = theirs.channel, .parity = parity, .slot = step.slot}});
    }
    if (plan::is_awaited_sent(operation.plan, step)) channel.await_sent(chunk_put);
  }
}

/// Makes room for the places that other ranks tell.
void await_places(Operation::Implementation& operation, std::span<const Places> places) {
  const engine::RegisterMemory& memory = operation.execution.memory;
  const bool is_told = std::any_of(operation.plan.steps.begin(), operation.plan.steps.end(),
                                   [&](const plan::Step& step) {
                                     return step.action == plan::Action::await &&
                                            operation.communicator.is_neighbour(step.peer) &&
                                            places[index_of(step.peer)].tells_places;
                                   });
  if (is_told && !operation.staging) operation.staging = std::make_unique<Staging>();
  if (!operation.staging) return;
  operation.staging->senders.resize(memory.data_slot_count);
  operation.staging->message_bytes = memory.payload_bytes;
  operation.staging->combine_apart = combine_apart(operation.execution.reduction);
  if (std::holds_alternative<Operation::Implementation::PlanCalls>(operation.calls))
    operation.calls.emplace<Operation::Implementation::OtherPlanCalls>();
}

}  // namespace

bool travels_as_line(const Operation::Implementation& operation, const plan::Step& step) {
  return operation.communicator.context.settings.notify == Notify::flag &&
         !operation.plan.zero_copy && !step.into_target &&
         operation.execution.memory.bytes_of_slot(step.slot) == sizeof(verbs::Line);
}

void use_lines(Operation::Implementation& operation, const verbs::Connection& connection) {
  connection.require_lines();
  operation.uses_lines = true;
}

void stage_partials(Operation::Implementation& operation) {
  Context::Implementation& context = operation.communicator.context;
  const plan::Plan& plan = operation.plan;
  const engine::Execution& execution = operation.execution;
  const std::size_t bytes = plan.partial_count * execution.memory.register_bytes;
  if (!shm::StagingRing::suits(bytes, context.staging_memory.size())) return;
  if (operation.stale() || operation.ring() || context.clock.is_simulated()) return;
  // Several ranks share a cache then, and what copies cost is mostly who has the CPU.
  if (context.oversubscribed) return;
  if (plan.zero_copy || plan::is_by_reference(plan) || !plan.answers.empty() || plan.payloads != 1)
    return;
  // The puts of a device, and those that copy, know where their partials are.  Those into a target
  // that the node shares have no partial.
  auto staging = std::make_unique<Staging>();
  bool sends = false;
  for (const plan::Step& step : plan.steps) {
    if (step.action != plan::Action::put) continue;
    if (!operation.communicator.is_neighbour(step.peer)) return;
    const bool has_payload = step.payloads > 0 && !(plan.shares_target && step.into_target);
    if (has_payload && travel_of(operation, step) != shm::Travel::stays) return;
    staging->offsets.push_back(has_payload ? execution.offset_of(step.from) : 0);
    sends = sends || has_payload;
  }
  if (sends) staging->ring = context.use_staging_ring();
  if (staging->ring == nullptr) return;
  staging->block = execution.memory.partials;
  staging->bytes = bytes;
  staging->choice = StagingChoice(staging->ring->areas_of(bytes));
  staging->told.resize(staging->offsets.size());
  operation.staging = std::move(staging);
}

void find_messages_in_place(Operation::Implementation& operation, std::span<const Places> places) {
  const Communicator::Implementation& communicator = operation.communicator;
  engine::RegisterMemory& memory = operation.execution.memory;
  for (const plan::Step& step : operation.plan.steps) {
    if (step.action != plan::Action::await || !communicator.is_neighbour(step.peer)) continue;
    const shm::Travel travel = travel_of(operation, step);
    if (travel == shm::Travel::answers)
      for (std::size_t parity = 0; parity < 2; ++parity)
        memory.in_place[parity][step.slot] =
            memory.slots[parity] +
            offset_of_partial(operation, plan::answer_in(operation.plan, step.slot)->partial);
    if (travel != shm::Travel::stays) continue;
    const std::size_t bytes = operation.execution.bytes_of(step);
    const NeighbourMapping& neighbour = communicator.neighbours.mappings[index_of(step.peer)];
    const bool is_told = places[index_of(step.peer)].tells_places;
    for (std::size_t parity = 0; parity < 2; ++parity) {
      std::byte* const slot = memory.slots[parity] + memory.offset_of_slot(step.slot);
      if (is_told) {  // with each message; until then nothing is read
        memory.in_place[parity][step.slot] = slot;
        operation.staging->senders[step.slot].told[parity] =
            slot + memory.bytes_of_slot(step.slot) - Staging::bytes_behind_place;
        continue;
      }
      std::uint64_t place = 0;
      std::memcpy(&place, slot, sizeof place);
      memory.in_place[parity][step.slot] = neighbour.prepared(place, bytes);
    }
    if (is_told) {
      Staging::Sender& sender = operation.staging->senders[step.slot];
      sender.address = neighbour.card.address;
      sender.mapping = neighbour.mapping->data();
      sender.mapping_bytes = neighbour.mapping->size();
    }
    const std::uint64_t word =
        reader_words(communicator, places[index_of(step.peer)].finished)
            .of_reader(local_rank_of(communicator, communicator.exchange.self()));
    add_once(operation.is_read_here, reinterpret_cast<shm::SequenceWord*>(
                                         neighbour.prepared(word, sizeof(shm::SequenceWord))));
  }
  // Once more: some operands are elsewhere now.  Takes no more memory.
  if (!operation.stale() && !operation.staging && !memory.in_place[0].empty())
    operation.execution.resolve();
}

void prepare_messages(Operation::Implementation& operation, std::span<const Places> places) {
  const Communicator::Implementation& communicator = operation.communicator;
  const engine::RegisterMemory& memory = operation.execution.memory;
  std::size_t put = 0;
  for (const plan::Step& step : operation.plan.steps) {
    if (step.action == plan::Action::put) {
      const Places& theirs = places[index_of(step.peer)];
      const bool near = communicator.is_neighbour(step.peer);
      // A store has one counter of its messages, whatever the chunk.
      detail::check(
          !near || operation.execution.puts_per_chunk == 0 || operation.execution.chunk_count == 1,
          "a zero-copy plan with messages inside nodes and to others has one chunk",
          operation.execution.chunk_count);
      (near                       ? prepare_store
       : operation.plan.zero_copy ? prepare_zero_copy
                                  : prepare_write)(operation, step, put++, theirs);
    } else if (is_arrival(step) && communicator.is_neighbour(step.peer)) {
      for (std::uint32_t parity = 0; parity < 2; ++parity)
        operation.channel.node.await(
            parity, step.slot,
            shm::word_of(memory.slots[parity] + memory.offset_of_slot(step.slot),
                         memory.bytes_of_slot(step.slot)));
      if (step.by_reference) {
        const NeighbourMapping& neighbour = communicator.neighbours.mappings[index_of(step.peer)];
        const std::uint64_t withdrawn =
            reader_words(communicator, places[index_of(step.peer)].finished).withdrawn();
        operation.channel.node.read_from(
            step.slot, {.process = neighbour.reader(),
                        .mapping = {neighbour.mapping->data(), neighbour.mapping->size()},
                        .address = neighbour.card.address,
                        .withdrawn = reinterpret_cast<shm::SequenceWord*>(
                            neighbour.prepared(withdrawn, sizeof(shm::SequenceWord)))});
      }
    } else if (is_arrival(step) && travels_as_line(operation, step)) {
      await_lines(operation, step);
    }
  }
  // What comes after the last exchange must not fail.
  if (std::any_of(
          operation.plan.steps.begin(), operation.plan.steps.end(), [&](const plan::Step& step) {
            return step.action == plan::Action::await && communicator.is_neighbour(step.peer) &&
                   travel_of(operation, step) != shm::Travel::copied;
          }))
    for (std::vector<std::byte*>& slots : operation.execution.memory.in_place)
      slots.resize(memory.data_slot_count);
  operation.is_read_here.reserve(communicator.members_of_node());
  await_places(operation, places);
  if (!operation.stale() && !operation.staging)
    operation.execution.resolve();  // others find their operands themselves
}

}  // namespace tutti::runtime
