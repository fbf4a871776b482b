#include "runtime/operation_memory.hpp"

#include <sched.h>

#include <algorithm>
#include <string>

#include "runtime/kernels.hpp"
#include "shm/message_policy.hpp"

namespace tutti::runtime {
namespace {

std::size_t rounded_to_lines(std::size_t bytes) {
  return (bytes + verbs::Arena::alignment - 1) / verbs::Arena::alignment * verbs::Arena::alignment;
}

/// Stride of a register: whole lines, which end in the sequence word of a slot.
std::size_t register_bytes_for(std::size_t payload_bytes) {
  return rounded_to_lines(payload_bytes + sizeof(shm::SequenceWord));
}

/// How long allocate_block() waits, when the arena is full, for peers to read what destroyed
/// operations sent.  It is short, because a peer that waits for this rank does not read meanwhile.
constexpr Timeout reading_time = std::chrono::milliseconds(100);

/// How many bytes of a payload by reference are read at once before they are combined.  They stay
/// in the second cache.  Smaller pieces are slower, because every reading is a system call
/// (measured, docs/performance.md).
constexpr std::size_t piece_bytes = 256u << 10;

void make_room_for_references(engine::Execution& execution, const plan::Plan& plan,
                              std::size_t element_bytes, std::size_t bytes_at_a_time) {
  execution.references.resize(runtime::put_count(plan));
  const auto combines = [](const plan::Step& step) {
    return step.by_reference && step.action == plan::Action::combine;
  };
  if (std::none_of(plan.steps.begin(), plan.steps.end(), combines)) return;
  execution.combine_apart = combine_apart(execution.reduction);
  execution.piece_elements = std::max<std::size_t>(bytes_at_a_time / element_bytes, 1);
  execution.piece.resize(rounded_to_lines(execution.piece_elements * element_bytes) /
                         engine::RegisterMemory::line_bytes);
}

/// The most parts of chunks that an operation may have.  Their table takes 40 bytes for each.  This
/// number is enough for 512 GiB in chunks of 128 KiB.
constexpr std::size_t chunk_parts_max = std::size_t{1} << 22;

void require_few_chunks(std::size_t payload_bytes, std::size_t chunk_count, std::size_t parts) {
  if (chunk_count <= chunk_parts_max / parts) return;
  throw Error(ErrorCode::limit_exceeded,
              "a payload of " + std::to_string(payload_bytes) + " bytes takes " +
                  std::to_string(chunk_count) + " chunks of " + std::to_string(parts) +
                  (parts == 1 ? " part" : " parts") + ", and an operation has at most " +
                  std::to_string(chunk_parts_max) +
                  " such parts; raise TUTTI_CHUNK_BYTES, or make several operations of it");
}

/// Element i of `count` pieces of a block, which begin on a line of it.
engine::Range piece_of(const engine::Range& block, std::size_t count, std::size_t i) {
  constexpr std::size_t line = engine::RegisterMemory::line_bytes;
  const std::size_t lines = (block.bytes + line - 1) / line;
  const auto begin = [&](std::size_t piece) {
    return std::min(lines * piece / count * line, block.bytes);
  };
  return {block.offset + begin(i), begin(i + 1) - begin(i)};
}

/// Each block in as many parts as a plan has for its owner; as they are, if it does not say.
Blocks in_pieces(const Blocks& blocks, const std::vector<Rank>& owners) {
  if (owners.empty()) return blocks;
  std::vector<std::size_t> count(blocks.of_rank.size()), next(blocks.of_rank.size());
  for (const Rank owner : owners) ++count[index_of(owner)];
  Blocks cut;
  for (const Rank owner : owners) {
    const engine::Part& block = blocks.of_rank[index_of(owner)];
    const std::size_t pieces = count[index_of(owner)], i = next[index_of(owner)]++;
    cut.of_rank.push_back(
        {.source = piece_of(block.source, pieces, i), .target = piece_of(block.target, pieces, i)});
    cut.longest_bytes = std::max(cut.longest_bytes, cut.of_rank.back().target.bytes);
  }
  return cut;
}

/// Whether all long messages stay in the partials of their senders, where receivers read them
/// (shm/message_policy), so that slots need no room for them.  Not in simulated time, which is
/// charged as if they arrived in slots.
bool keeps_long_messages_with_senders(const Operation::Implementation& operation,
                                      tune::Collective collective) {
  const Communicator::Implementation& communicator = operation.communicator;
  const plan::Plan& plan = operation.plan;
  const bool is_direct =
      tune::sends_blocks_directly(plan) ||
      (collective == tune::Collective::broadcast && tune::is_flat_broadcast(plan));
  return communicator.neighbours.nodes.node_count == 1 &&
         !communicator.context.clock.is_simulated() && is_direct && plan.answers.empty() &&
         !plan.zero_copy && !plan.shares_target && !operation.stale();
}

/// Which part of source and target each chunk is, and how long the longest one of all ranks.
void cut_into_chunks(Operation::Implementation& operation, const OperationRequest& request,
                     const Completed& completed) {
  const Blocks blocks = in_pieces(completed.blocks, operation.plan.owners);
  engine::Execution& execution = operation.execution;
  const plan::Plan& plan = operation.plan;
  const Communicator::Implementation& communicator = operation.communicator;
  const std::size_t element_bytes = request.asked.reduction.element_bytes;
  const std::size_t element_count = request.asked.element_count;
  if (operation.stale()) {  // calls overlap, so chunks cannot
    execution.parts = engine::parts_of(element_count, element_bytes, 1);
    execution.memory.label_bytes = sizeof(std::uint64_t);
    const std::size_t words = (execution.parts[0].source.bytes + 7) / sizeof(std::uint64_t);
    execution.memory.payload_bytes = (words + 1) * sizeof(std::uint64_t);
    return;
  }
  if (blocks.of_rank.empty()) {
    const bool is_broadcast = request.asked.collective == tune::Collective::broadcast;
    const std::size_t chunk_bytes =
        communicator.chunk_bytes(plan, is_broadcast ? element_count * element_bytes : 0);
    execution.chunk_count = tune::chunk_count(element_count, element_bytes, plan.parts,
                                              std::min(chunk_bytes, request.chunk_bytes_max));
    require_few_chunks(element_count * element_bytes, execution.chunk_count, plan.parts);
    execution.parts =
        engine::parts_of(element_count, element_bytes, plan.parts, execution.chunk_count);
    execution.memory.payload_bytes = execution.parts[0].source.bytes;
    return;
  }
  detail::check(blocks.of_rank.size() == plan.parts, "a plan has a part for each block or piece",
                blocks.of_rank.size(), plan.parts);
  const std::size_t longest = blocks.longest_bytes / element_bytes;
  execution.chunk_count =
      tune::chunk_count(longest, element_bytes, 1, communicator.chunk_bytes(plan, 0));
  require_few_chunks(blocks.longest_bytes, execution.chunk_count, plan.parts);
  execution.parts = engine::parts_of(blocks.of_rank, element_bytes, execution.chunk_count);
  execution.memory.payload_bytes = engine::share(longest, execution.chunk_count, 0) * element_bytes;
}

void register_buffer(Operation::Implementation& operation,
                     Operation::Implementation::RegisteredBuffer& buffer, const char* name,
                     const void* memory, std::size_t bytes, int access) {
  Context::Implementation& context = operation.communicator.context;
  buffer.memory = static_cast<const std::byte*>(memory);
  buffer.bytes = bytes;
  buffer.segment = registered_segment_with(context, memory, bytes);
  if (buffer.segment != nullptr) {
    ++buffer.segment->users;
    buffer.local_key = context.fabric.arena().local_key();
    buffer.remote_key = context.fabric.arena().remote_key();
    return;
  }
  buffer.region = context.fabric.register_memory(buffer.memory, bytes, access, name);
  buffer.local_key = buffer.region->lkey;
  buffer.remote_key = buffer.region->rkey;
}

/// Bytes of source or target up to the end of the last part.
std::size_t end_of(const std::vector<engine::Part>& parts, engine::Range engine::Part::*which) {
  std::size_t end = 0;
  for (const engine::Part& part : parts)
    if ((part.*which).bytes > 0) end = std::max(end, (part.*which).offset + (part.*which).bytes);
  return end;
}

/// Where buffers stand in for registers, each chunk has puts of its own, if they go to other nodes.
/// What only its user and ranks of the node touch need not be registered.
void use_buffers(Operation::Implementation& operation, const OperationRequest& request) {
  engine::Execution& execution = operation.execution;
  const std::vector<plan::Step>& steps = operation.plan.steps;
  if (std::any_of(steps.begin(), steps.end(), [&](const plan::Step& step) {
        return step.action == plan::Action::put && !operation.communicator.is_neighbour(step.peer);
      })) {
    execution.puts_per_chunk = put_count(operation.plan);
    operation.channel.make_room(execution.puts_per_chunk * execution.chunk_count);
  }
  if (plan::exposes_source(operation.plan))
    register_buffer(operation, operation.source, "the source", request.source,
                    end_of(execution.parts, &engine::Part::source), 0);
  if (plan::exposes_target(operation.plan))
    register_buffer(operation, operation.target, "the target", request.target,
                    end_of(execution.parts, &engine::Part::target),
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
}

}  // namespace

std::byte* allocate_block(Context::Implementation& context, std::size_t bytes) {
  verbs::Arena& arena = context.fabric.arena();
  std::byte* block = arena.allocate(bytes);
  const auto is_retired = [](const Communicator::Implementation* one) {
    return !one->retired.empty();
  };
  std::vector<Communicator::Implementation*>& all = context.communicators;
  const Deadline deadline = Deadline::after(reading_time, context.clock.now());
  while (block == nullptr && std::any_of(all.begin(), all.end(), is_retired) &&
         !deadline.passed(context.clock.now())) {
    context.progress();
    for (Communicator::Implementation* one : all) one->reap();
    block = arena.allocate(bytes);
    if (block == nullptr) sched_yield();
  }
  return block;
}

/// Cuts the operation's block out of the arena: [parity][slots | partials], then the node's
/// shm::ReaderWords.
void lay_out_memory(Operation::Implementation& operation, const OperationRequest& request,
                    const Completed& completed) {
  engine::RegisterMemory& memory = operation.execution.memory;
  const plan::Plan& plan = operation.plan;
  verbs::VerbsFabric& fabric = operation.communicator.context.fabric;
  memory.source = static_cast<const std::byte*>(request.source);
  memory.target = static_cast<std::byte*>(request.target);
  cut_into_chunks(operation, request, completed);
  if (plan.zero_copy) use_buffers(operation, request);
  if (plan.shares_target) {
    std::size_t end = request.asked.bytes();
    for (const engine::Part& block : completed.blocks.of_rank)
      end = std::max(end, block.target.offset + block.target.bytes);
    operation.target.segment = segment_with(operation.communicator.context, request.target, end);
    // A rank that is alone on its node may have its target anywhere.
    detail::check(
        operation.target.segment != nullptr || operation.communicator.members_of_node() == 1,
        "a target that a node shares is in a segment", end);
    if (operation.target.segment != nullptr) ++operation.target.segment->users;
  }
  if (plan::is_by_reference(plan)) {
    // Simulated time charges for a payload as a whole.
    const bool is_simulated = operation.communicator.context.clock.is_simulated();
    make_room_for_references(operation.execution, plan, request.asked.reduction.element_bytes,
                             is_simulated ? memory.payload_bytes : piece_bytes);
  }
  const std::size_t message_bytes_max =
      std::min<std::size_t>(fabric.port().description.attributes.max_msg_sz, UINT32_MAX / 2);
  if ((plan.zero_copy || !plan::is_by_reference(plan)) &&
      memory.payload_bytes > message_bytes_max / std::max<std::size_t>(plan.payloads, 1))
    throw Error(ErrorCode::limit_exceeded,
                std::to_string(memory.payload_bytes) + " bytes in messages of " +
                    std::to_string(plan.payloads) + " payloads (" + plan.algorithm +
                    ") exceed the device's " + std::to_string(message_bytes_max) +
                    " bytes a message; " +
                    (plan::has_no_registers(plan)
                         ? "use buffers outside of segments, and TUTTI_REGISTER_BUFFERS=0"
                         : "lower TUTTI_CHUNK_BYTES"));
  memory.register_bytes = register_bytes_for(plan.payloads * memory.payload_bytes);
  memory.short_slot_bytes = register_bytes_for(plan.short_payloads * memory.payload_bytes);
  memory.data_slot_count = std::uint32_t{plan.slot_count} - plan.line_slot_count;
  memory.long_slot_count = memory.data_slot_count - plan.short_slot_count;
  if (keeps_long_messages_with_senders(operation, request.asked.collective)) {
    const std::size_t longest =
        shm::long_from_bytes(plan.flow_control == plan::FlowControl::one_way);
    memory.long_slot_count = 0;
    memory.short_slot_bytes = register_bytes_for(std::min(memory.payload_bytes, longest));
  }
  const std::size_t slots_bytes = memory.offset_of_slot(plan.slot_count);
  const std::size_t registers_bytes =
      2 * (slots_bytes + plan.partial_count * memory.register_bytes);
  if (registers_bytes == 0) return;
  const std::size_t ranks_of_node = operation.communicator.members_of_node();
  const std::size_t bytes =
      registers_bytes + rounded_to_lines(shm::ReaderWords::bytes_for(ranks_of_node));
  operation.block = allocate_block(operation.communicator.context, bytes);
  if (operation.block == nullptr)
    throw Error(
        ErrorCode::limit_exceeded,
        "needs " + std::to_string(bytes) + " bytes of the arena, whose largest gap is " +
            std::to_string(fabric.arena().largest_gap()) + " of " +
            std::to_string(fabric.arena().size()) + ": raise TUTTI_ARENA_BYTES, " +
            (operation.stale() ? "ask for less slack than " + std::to_string(completed.asked.slack)
                               : "lower TUTTI_CHUNK_BYTES") +
            (plan.parts > 1 ? "" : ", use fewer messages per round") + ", or destroy operations");
  for (std::size_t parity = 0; parity < 2; ++parity) {
    memory.slots[parity] = operation.block + parity * (registers_bytes / 2);
    memory.partials[parity] = memory.slots[parity] + slots_bytes;
  }
  operation.finished = operation.block + registers_bytes;
  if (plan::is_by_reference(plan))
    operation.withdrawn = reinterpret_cast<shm::SequenceWord*>(
        shm::ReaderWords(reinterpret_cast<std::uint64_t>(operation.finished), ranks_of_node)
            .withdrawn());
}

}  // namespace tutti::runtime
