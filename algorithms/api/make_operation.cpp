// Making an operation: three small exchanges out of band, and before them, of collectives whose
// ranks alone know how long their blocks are, one of cards and one of these sizes.
//   1. every rank's card: what it asks for, where its slots are, and whether it failed so far;
//   2. the endpoints of new connections, if any rank has some;
//   3. every rank's verdict after connecting, which is also the barrier after which any rank may
//   send.
// A rank that fails locally still takes part, so that the others hear the reason instead of
// waiting.
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <type_traits>

#include "api/float_mode.hpp"
#include "api/implementation.hpp"
#include "api/names.hpp"
#include "api/selection.hpp"

namespace tutti::api {
namespace {

/// Text and code of an error, in a form that travels; an empty text is success.
struct Verdict {
  std::uint8_t code = 0;
  char text[247] = {};

  static Verdict of(const std::optional<Error>& given) {
    if (!given) return {};
    const Error& error = *given;
    Verdict verdict{.code = static_cast<std::uint8_t>(error.code()), .text = {}};
    std::strncpy(verdict.text, error.what(), sizeof verdict.text - 1);
    return verdict;
  }
  bool failed() const { return text[0] != '\0'; }
};

struct Card {
  Verdict verdict;
  // What must be equal on all ranks.
  char collective[16] = {};
  char algorithm[48] = {};
  std::uint64_t element_count = 0;
  std::uint64_t ordinal = 0;
  std::uint64_t parameters_hash = 0;  // of the plan
  std::uint32_t element_bytes = 0;
  std::uint32_t register_bytes = 0;
  std::uint32_t slot_count = 0;
  BuiltIn built_in = BuiltIn::none;
  ElementType element_type = ElementType::other;
  Agreement agreement = Agreement::identical;
  std::uint8_t properties = 0;
  std::uint8_t float_mode = 0;  // 0 where it does not matter
  // What the peers need to know.
  std::array<std::uint64_t, 2> slots = {};  // address by parity
  std::uint64_t finished = 0;  // address of the words of the node's ranks, by LocalRank
  std::uint32_t remote_key = 0;
  std::uint32_t channel = 0;
  std::uint32_t new_connections = 0;
  std::uint32_t root = 0;  // must be equal, too
};
static_assert(std::is_trivially_copyable_v<Card>);

struct NewConnection {
  std::uint32_t peer = UINT32_MAX;
  verbs::Endpoint endpoint = {};
};

template <class T>
std::vector<T> gather(Communicator::Implementation& communicator, std::span<const T> mine) {
  std::vector<T> all(mine.size() * communicator.exchange.rank_count());
  communicator.gather(std::as_bytes(mine), std::as_writable_bytes(std::span(all)));
  return all;
}

std::uint64_t hash_of(const std::vector<std::uint32_t>& vector) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const std::uint32_t entry : vector) hash = (hash ^ entry) * 0x100000001b3;
  return hash;
}

/// A rank that gives up makes others wait in vain, or hear that it gave up: what they say explains
/// less than what it says.
int distance_from_cause(ErrorCode code) {
  if (code == ErrorCode::peer_failed) return 2;
  return code == ErrorCode::timed_out ? 1 : 0;
}

/// Every rank throws if one has failed: the error nearest to the cause, and of several such ones
/// its own, else the first one of the others.
template <class HasVerdict>
void agree(const std::optional<Error>& own, std::span<const HasVerdict> all) {
  std::optional<Error> nearest = own;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const Verdict& verdict = [&]() -> const Verdict& {
      if constexpr (std::is_same_v<HasVerdict, Verdict>)
        return all[rank];
      else
        return all[rank].verdict;
    }();
    const auto code = static_cast<ErrorCode>(verdict.code);
    if (verdict.failed() &&
        (!nearest || distance_from_cause(code) < distance_from_cause(nearest->code())))
      nearest = Error(code, "rank " + std::to_string(rank) + ": " + verdict.text);
  }
  if (nearest) throw *nearest;
}

std::string text_of(const Card& card) {
  std::string text = std::string(card.collective) + " #" + std::to_string(card.ordinal);
  if (Rank{card.root} != no_rank) text += " with root " + std::to_string(card.root);
  if (card.element_bytes == 0) return text;
  return text + " of " + std::to_string(card.element_count) + " x " +
         std::to_string(card.element_bytes) + " bytes (" + name_of(card.element_type) + " " +
         name_of(card.built_in) + ", " + name_of(card.agreement) + ", properties " +
         std::to_string(card.properties) + ")";
}

void require_same(std::span<const Card> all, std::size_t self, CheckLevel level) {
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const Card& theirs = all[rank];
    const Card& ours = all[self];
    const bool same_shape =
        theirs.register_bytes == ours.register_bytes && theirs.slot_count == ours.slot_count;
    // Ranks that are out of step with each other are wrong about everything else too.
    const bool same_place =
        theirs.ordinal == ours.ordinal &&
        std::strncmp(theirs.collective, ours.collective, sizeof ours.collective) == 0 &&
        theirs.root == ours.root;
    const bool same_request =
        theirs.element_count == ours.element_count && theirs.element_bytes == ours.element_bytes &&
        theirs.built_in == ours.built_in && theirs.element_type == ours.element_type &&
        theirs.agreement == ours.agreement && theirs.properties == ours.properties;
    const bool same_plan =
        theirs.parameters_hash == ours.parameters_hash &&
        std::strncmp(theirs.algorithm, ours.algorithm, sizeof ours.algorithm) == 0;
    if (!same_place || (level == CheckLevel::collective && !same_request))
      throw Error(ErrorCode::mismatch,
                  "ranks ask for different operations: rank " + std::to_string(rank) + " for " +
                      text_of(theirs) + ", rank " + std::to_string(self) + " for " + text_of(ours));
    if (level == CheckLevel::collective && theirs.float_mode != ours.float_mode)
      throw Error(ErrorCode::mismatch,
                  "ranks compute differently, so that " + text_of(ours) +
                      " cannot have equal bits: rank " + std::to_string(rank) + " " +
                      text_of_float_mode(theirs.float_mode) + ", rank " + std::to_string(self) +
                      " " + text_of_float_mode(ours.float_mode) +
                      "; set the floating-point environment alike on all ranks (compiler options "
                      "such as -ffast-math change it), or ask for Agreement::relaxed");
    // Plans and slots that do not fit together would write into foreign memory: never let through.
    if (!same_shape || !same_plan)
      throw Error(
          ErrorCode::mismatch,
          "ranks have different plans for " + text_of(ours) + ": rank " + std::to_string(rank) +
              " (" + theirs.algorithm + ", " + std::to_string(theirs.slot_count) + " slots of " +
              std::to_string(theirs.register_bytes) + " bytes) and rank " + std::to_string(self) +
              " (" + ours.algorithm + ", " + std::to_string(ours.slot_count) + " slots of " +
              std::to_string(ours.register_bytes) +
              " bytes); give counts, slack, per_round, TUTTI_CHUNK_BYTES and "
              "TUTTI_SINGLE_COPY_BYTES "
              "alike "
              "on all ranks");
  }
}

/// Those on other nodes, which need connections.
std::vector<Rank> partners_of(const Operation::Implementation& operation) {
  std::vector<Rank> partners;
  for (const plan::Step& step : operation.plan.steps)
    if ((step.action == plan::Action::put || step.action == plan::Action::await) &&
        !operation.communicator.is_neighbour(step.peer))
      partners.push_back(step.peer);
  std::sort(partners.begin(), partners.end());
  partners.erase(std::unique(partners.begin(), partners.end()), partners.end());
  return partners;
}

std::size_t rounded_to_lines(std::size_t bytes) {
  return (bytes + verbs::Arena::alignment - 1) / verbs::Arena::alignment * verbs::Arena::alignment;
}

/// Stride of a register: whole lines, which end in the sequence word of a slot.
std::size_t register_bytes_for(std::size_t payload_bytes) {
  return rounded_to_lines(payload_bytes + sizeof(shm::SequenceWord));
}

/// For neighbours to read what a destroyed operation has sent, if they are about to.  One that
/// waits for this rank before is not waited for.
constexpr Timeout reading_time = std::chrono::milliseconds(100);

/// What is read of a payload by reference before it is combined: stays in the second cache.  Less
/// than this is slower, every reading being a system call (measured, shm/README.md).
constexpr std::size_t piece_bytes = 256u << 10;

void make_room_for_references(engine::Execution& execution, const plan::Plan& plan,
                              std::size_t element_bytes) {
  execution.references.resize(api::put_count(plan));
  const auto combines = [](const plan::Step& step) {
    return step.by_reference && step.action == plan::Action::combine;
  };
  if (std::none_of(plan.steps.begin(), plan.steps.end(), combines)) return;
  execution.piece_elements = std::max<std::size_t>(piece_bytes / element_bytes, 1);
  execution.piece.resize(rounded_to_lines(execution.piece_elements * element_bytes) /
                         engine::RegisterMemory::line_bytes);
}

/// nullptr: no room.
std::byte* allocate(Context::Implementation& context, std::size_t bytes) {
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

/// Which part of source and target each chunk is, and how long the longest one of all ranks.
void cut_into_chunks(Operation::Implementation& operation, const OperationRequest& request,
                     const Blocks& blocks) {
  engine::Execution& execution = operation.execution;
  const plan::Plan& plan = operation.plan;
  const Communicator::Implementation& communicator = operation.communicator;
  const std::size_t element_bytes = request.reduction.element_bytes;
  if (request.slack) {  // calls overlap, so chunks cannot
    execution.parts = engine::parts_of(request.element_count, element_bytes, 1);
    execution.memory.label_bytes = sizeof(std::uint64_t);
    const std::size_t words = (execution.parts[0].source.bytes + 7) / sizeof(std::uint64_t);
    execution.memory.payload_bytes = (words + 1) * sizeof(std::uint64_t);
    return;
  }
  if (blocks.of_rank.empty()) {
    execution.chunk_count = api::chunk_count(request.element_count, element_bytes, plan.parts,
                                             communicator.chunk_bytes(plan));
    execution.parts =
        engine::parts_of(request.element_count, element_bytes, plan.parts, execution.chunk_count);
    execution.memory.payload_bytes = execution.parts[0].source.bytes;
    return;
  }
  const std::size_t longest = blocks.longest_bytes / element_bytes;
  execution.chunk_count =
      api::chunk_count(longest, element_bytes, 1, communicator.chunk_bytes(plan));
  execution.parts = engine::parts_of(blocks.of_rank, element_bytes, execution.chunk_count);
  execution.memory.payload_bytes = engine::share(longest, execution.chunk_count, 0) * element_bytes;
}

/// Cuts the operation's block out of the arena: [parity][slots | partials], then the words by which
/// the ranks of this node say up to which call they have read what they found in place, then that
/// by which this rank says that it has withdrawn what it has told of.
void lay_out(Operation::Implementation& operation, const OperationRequest& request,
             const Blocks& blocks) {
  engine::RegisterMemory& memory = operation.execution.memory;
  const plan::Plan& plan = operation.plan;
  verbs::VerbsFabric& fabric = operation.communicator.context.fabric;
  memory.source = static_cast<const std::byte*>(request.source);
  memory.target = static_cast<std::byte*>(request.target);
  cut_into_chunks(operation, request, blocks);
  if (plan::is_by_reference(plan))
    make_room_for_references(operation.execution, plan, request.reduction.element_bytes);
  const std::size_t message_bytes_max =
      std::min<std::size_t>(fabric.port().description.attributes.max_msg_sz, UINT32_MAX / 2);
  if (!plan::is_by_reference(plan) &&
      memory.payload_bytes > message_bytes_max / std::max<std::size_t>(plan.segments, 1))
    throw Error(ErrorCode::limit_exceeded,
                std::to_string(memory.payload_bytes) + " bytes in messages of " +
                    std::to_string(plan.segments) + " payloads (" + plan.algorithm +
                    ") exceed the device's " + std::to_string(message_bytes_max) +
                    " bytes a message; lower TUTTI_CHUNK_BYTES");
  memory.register_bytes = register_bytes_for(plan.segments * memory.payload_bytes);
  memory.data_slot_count = plan.slot_count - plan.line_slot_count;
  const std::size_t slots_bytes = memory.offset_of_slot(plan.slot_count);
  const std::size_t registers_bytes =
      2 * (slots_bytes + plan.partial_count * memory.register_bytes);
  if (registers_bytes == 0) return;
  const std::size_t bytes =
      registers_bytes +
      rounded_to_lines((operation.communicator.members_of_node() + 1) * sizeof(shm::SequenceWord));
  operation.block = allocate(operation.communicator.context, bytes);
  if (operation.block == nullptr)
    throw Error(ErrorCode::limit_exceeded,
                "needs " + std::to_string(bytes) + " bytes of the arena, whose largest gap is " +
                    std::to_string(fabric.arena().largest_gap()) + " of " +
                    std::to_string(fabric.arena().size()) + ": raise TUTTI_ARENA_BYTES, " +
                    (request.slack ? "ask for less slack than " + std::to_string(*request.slack)
                                   : "lower TUTTI_CHUNK_BYTES") +
                    (plan.parts > 1 ? "" : ", use fewer messages per round") +
                    ", or destroy operations");
  for (std::size_t parity = 0; parity < 2; ++parity) {
    memory.slots[parity] = operation.block + parity * (registers_bytes / 2);
    memory.partials[parity] = memory.slots[parity] + slots_bytes;
  }
  operation.finished = operation.block + registers_bytes;
  if (plan::is_by_reference(plan))
    operation.withdrawn = reinterpret_cast<shm::SequenceWord*>(
        operation.finished + operation.communicator.members_of_node() * sizeof(shm::SequenceWord));
}

/// Whether something comes into the step's slot.
bool is_arrival(const plan::Step& step) {
  return step.action == plan::Action::await || step.action == plan::Action::await_credit;
}

void reserve_receives(Operation::Implementation& operation) {
  Communicator::Implementation& communicator = operation.communicator;
  verbs::VerbsFabric& fabric = communicator.context.fabric;
  std::map<std::uint32_t, std::uint32_t> reserved;  // by connection
  for (const plan::Step& step : operation.plan.steps) {
    if (!is_arrival(step) || communicator.is_neighbour(step.peer)) continue;
    const std::uint32_t connection =
        fabric.connection_to(communicator.process_of[index_of(step.peer)]);
    // A reservation is for two messages.
    if (operation.plan.incoming_max > 0 && 2 * reserved[connection] >= operation.plan.incoming_max)
      continue;
    fabric.reserve_receive(operation.channel.network, connection);
    ++reserved[connection];
  }
}

/// Endpoints of the partners that are not connected yet, made here and sent to all.
std::vector<NewConnection> offer_connections(Operation::Implementation& operation) {
  Communicator::Implementation& communicator = operation.communicator;
  verbs::VerbsFabric& fabric = communicator.context.fabric;
  std::vector<NewConnection> offers;
  for (const Rank partner : partners_of(operation)) {
    const std::uint32_t connection =
        fabric.connection_to(communicator.process_of[index_of(partner)]);
    if (fabric.failed(connection))
      throw Error(ErrorCode::peer_failed, "the connection to rank " +
                                              std::to_string(index_of(partner)) +
                                              " has failed earlier; make another context");
    if (!fabric.connected(connection))
      offers.push_back({.peer = index_of(partner), .endpoint = fabric.endpoint(connection)});
  }
  return offers;
}

void connect_partners(Operation::Implementation& operation,
                      std::span<const NewConnection> offers_of_all, std::size_t offers_each) {
  Communicator::Implementation& communicator = operation.communicator;
  verbs::VerbsFabric& fabric = communicator.context.fabric;
  const std::uint32_t self = index_of(communicator.exchange.self());
  std::vector<verbs::NewPartner> partners;
  for (const Rank partner : partners_of(operation)) {
    const std::uint32_t connection =
        fabric.connection_to(communicator.process_of[index_of(partner)]);
    const auto theirs = offers_of_all.subspan(index_of(partner) * offers_each, offers_each);
    const auto offer = std::find_if(theirs.begin(), theirs.end(),
                                    [&](const NewConnection& entry) { return entry.peer == self; });
    if (fabric.connected(connection)) {
      if (offer == theirs.end()) continue;
      throw Error(ErrorCode::peer_failed,
                  "rank " + std::to_string(index_of(partner)) +
                      " has lost its connection to this rank in a set-up that failed; make another "
                      "context on all ranks");
    }
    if (offer == theirs.end())
      throw Error(ErrorCode::mismatch, "rank " + std::to_string(index_of(partner)) +
                                           " does not expect a connection from this rank");
    partners.push_back({.connection = connection,
                        .remote = offer->endpoint,
                        .name = "rank " + std::to_string(index_of(partner))});
  }
  // Half of the time: a rank that has failed already waits for the others' verdicts meanwhile, and
  // must not run out of its own.
  fabric.connect(partners,
                 {.timeout = communicator.context.settings.setup_timeout / 2, .is_pointless = [&] {
                    return communicator.exchange.incident().kind != Incident::Kind::none;
                  }});
}

/// Messages to ranks of this node from so many bytes on are not copied: they stay in the partial
/// that they are sent from, and their receiver reads them there (a first guess).  A partial that
/// was sent is not written before the call after the next, as the network may read it late, too.
constexpr std::size_t in_place_from_bytes = 4096;

/// Whether the message of a put or an await stays where it is, if the peer is of this node.
bool stays_in_place(const Operation::Implementation& operation, const plan::Step& step) {
  return operation.execution.bytes_of(step) >= in_place_from_bytes;
}

/// The word of a rank of this node in a block whose words begin at `finished`.
std::uint64_t word_address(const Communicator::Implementation& communicator, std::uint64_t finished,
                           Rank rank) {
  return finished + index_of(communicator.neighbours.nodes.local_rank[index_of(rank)]) *
                        sizeof(shm::SequenceWord);
}

template <class T>
void add_once(std::vector<T>& all, T one) {
  if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
}

/// A message to a rank of this node, from a partial into the rank's slot.  If it stays where it is,
/// the slot tells of that place once and for all.
void prepare_store(Operation::Implementation& operation, const plan::Step& step, std::size_t put,
                   const Card& theirs) {
  const engine::RegisterMemory& memory = operation.execution.memory;
  const api::NeighbourWindow& window =
      operation.communicator.neighbours.windows[index_of(step.peer)];
  for (std::uint32_t parity = 0; parity < 2; ++parity) {
    const std::size_t slot_bytes = memory.bytes_of_slot(step.slot);
    std::byte* const slot =
        window.at(theirs.slots[parity] + memory.offset_of_slot(step.slot), slot_bytes);
    const std::byte* const from =
        step.by_reference ? reinterpret_cast<const std::byte*>(&operation.execution.references[put])
                          : memory.partials[parity] + operation.execution.offset_of(step.from);
    std::size_t bytes = operation.execution.bytes_of(step);
    if (stays_in_place(operation, step)) {
      const auto place = reinterpret_cast<std::uint64_t>(from);
      std::memcpy(slot, &place, sizeof place);
      bytes = 0;
    }
    operation.channel.node.prepare(
        parity, put,
        {.local = from, .remote = slot, .word = shm::word_of(slot, slot_bytes), .bytes = bytes});
  }
  if (!stays_in_place(operation, step)) return;
  const std::uint64_t word = word_address(
      operation.communicator, reinterpret_cast<std::uint64_t>(operation.finished), step.peer);
  add_once(operation.readers, reinterpret_cast<const shm::SequenceWord*>(word));
}

/// Finds the messages that will stay where ranks of this node have them.  All of these have
/// prepared theirs.
void find_messages_in_place(Operation::Implementation& operation, std::span<const Card> cards) {
  const Communicator::Implementation& communicator = operation.communicator;
  engine::RegisterMemory& memory = operation.execution.memory;
  for (const plan::Step& step : operation.plan.steps) {
    if (step.action != plan::Action::await || !communicator.is_neighbour(step.peer)) continue;
    if (!stays_in_place(operation, step)) continue;
    const std::size_t bytes = operation.execution.bytes_of(step);
    const api::NeighbourWindow& window = communicator.neighbours.windows[index_of(step.peer)];
    for (std::size_t parity = 0; parity < 2; ++parity) {
      std::uint64_t place = 0;
      std::memcpy(&place, memory.slots[parity] + memory.offset_of_slot(step.slot), sizeof place);
      memory.in_place[parity][step.slot] = window.at(place, bytes);
    }
    const std::uint64_t word = word_address(communicator, cards[index_of(step.peer)].finished,
                                            communicator.exchange.self());
    add_once(operation.is_read_here,
             reinterpret_cast<shm::SequenceWord*>(window.at(word, sizeof(shm::SequenceWord))));
  }
}

/// The same to a rank of another node.
void prepare_write(Operation::Implementation& operation, const plan::Step& step, std::size_t put,
                   const Card& theirs) {
  Communicator::Implementation& communicator = operation.communicator;
  verbs::VerbsFabric& fabric = communicator.context.fabric;
  const engine::RegisterMemory& memory = operation.execution.memory;
  const std::uint32_t connection =
      fabric.connection_to(communicator.process_of[index_of(step.peer)]);
  for (std::uint32_t parity = 0; parity < 2; ++parity)
    fabric.prepare(
        operation.channel.network, parity, put,
        {.connection = connection,
         .local = memory.partials[parity] + operation.execution.offset_of(step.from),
         .bytes = static_cast<std::uint32_t>(operation.execution.bytes_of(step)),
         .remote_address = theirs.slots[parity] + memory.offset_of_slot(step.slot),
         .remote_key = theirs.remote_key,
         .notification = {.operation = theirs.channel, .parity = parity, .slot = step.slot}});
}

void prepare_messages(Operation::Implementation& operation, std::span<const Card> cards) {
  const Communicator::Implementation& communicator = operation.communicator;
  const engine::RegisterMemory& memory = operation.execution.memory;
  std::size_t put = 0;
  for (const plan::Step& step : operation.plan.steps) {
    if (step.action == plan::Action::put) {
      const Card& theirs = cards[index_of(step.peer)];
      const bool near = communicator.is_neighbour(step.peer);
      (near ? prepare_store : prepare_write)(operation, step, put++, theirs);
    } else if (is_arrival(step) && communicator.is_neighbour(step.peer)) {
      for (std::uint32_t parity = 0; parity < 2; ++parity)
        operation.channel.node.await(
            parity, step.slot,
            shm::word_of(memory.slots[parity] + memory.offset_of_slot(step.slot),
                         memory.bytes_of_slot(step.slot)));
      if (step.by_reference) {
        const api::NeighbourWindow& window = communicator.neighbours.windows[index_of(step.peer)];
        const std::uint64_t withdrawn = cards[index_of(step.peer)].finished +
                                        communicator.members_of_node() * sizeof(shm::SequenceWord);
        operation.channel.node.read_from(step.slot,
                                         {.process = window.process,
                                          .withdrawn = reinterpret_cast<shm::SequenceWord*>(
                                              window.at(withdrawn, sizeof(shm::SequenceWord)))});
      }
    }
  }
  // What comes after the last exchange must not fail.
  if (std::any_of(operation.plan.steps.begin(), operation.plan.steps.end(),
                  [&](const plan::Step& step) {
                    return step.action == plan::Action::await &&
                           communicator.is_neighbour(step.peer) && stays_in_place(operation, step);
                  }))
    for (std::vector<std::byte*>& places : operation.execution.memory.in_place)
      places.resize(memory.data_slot_count);
  operation.is_read_here.reserve(communicator.members_of_node());
}

/// Runs `step`; what it throws is kept instead, so that this rank goes on taking part.
template <class Step>
void attempt(std::optional<Error>& error, Step&& step) {
  if (error) return;
  try {
    step();
  } catch (const Error& thrown) {
    error = thrown;
  } catch (const std::exception& thrown) {
    error = Error(ErrorCode::system, thrown.what());
  }
}

/// Connections that a set-up made go with it if it fails: the other ends may be connected already,
/// or may have given up, and no later set-up could tell.
class NewConnections {
 public:
  explicit NewConnections(verbs::VerbsFabric& fabric)
      : fabric_(fabric), first_(fabric.connection_count()) {}
  NewConnections(const NewConnections&) = delete;
  NewConnections& operator=(const NewConnections&) = delete;
  ~NewConnections() {
    if (!kept_) fabric_.abandon_from(first_);
  }
  void keep() noexcept { kept_ = true; }

 private:
  verbs::VerbsFabric& fabric_;
  std::uint32_t first_;
  bool kept_ = false;
};

/// What this rank asks for; the same on all ranks but for the verdict.
Card card_of(const Communicator::Implementation& communicator, const OperationRequest& request) {
  Card card;
  std::strncpy(card.collective, request.collective, sizeof card.collective - 1);
  card.element_count = request.element_count;
  card.ordinal = communicator.operations_made;
  card.element_bytes = request.reduction.element_bytes;
  card.built_in = request.reduction.built_in;
  card.element_type = request.reduction.element_type;
  card.agreement = request.agreement;
  card.root = index_of(request.root);
  card.properties = static_cast<std::uint8_t>((request.reduction.properties.commutative ? 1 : 0) |
                                              (request.reduction.properties.idempotent ? 2 : 0) |
                                              (request.reduction.inverse ? 4 : 0));
  const ElementType type = request.reduction.element_type;
  // Whether ranks that round differently could spoil what is promised.
  const bool bits_agree = request.agreement == Agreement::reproducible ||
                          (request.agreement == Agreement::identical && request.root == no_rank);
  if (bits_agree && request.reduction.combine != nullptr &&
      (is_floating(type) || type == ElementType::other))
    card.float_mode = static_cast<std::uint8_t>(float_mode());
  return card;
}

/// Where this rank's slots are, and what plan they belong to.
void fill_in(Card& card, const Operation::Implementation& operation) {
  std::strncpy(card.algorithm, operation.plan.algorithm.c_str(), sizeof card.algorithm - 1);
  std::vector<std::uint32_t> parameters = operation.plan.per_round;
  parameters.insert(parameters.end(),
                    {operation.plan.n, operation.plan.parts, operation.plan.segments,
                     static_cast<std::uint32_t>(operation.execution.chunk_count)});
  card.parameters_hash = hash_of(parameters);
  card.register_bytes = static_cast<std::uint32_t>(operation.execution.memory.register_bytes);
  card.slot_count = operation.plan.slot_count;
  for (std::size_t parity = 0; parity < 2; ++parity)
    card.slots[parity] = reinterpret_cast<std::uint64_t>(operation.execution.memory.slots[parity]);
  card.finished = reinterpret_cast<std::uint64_t>(operation.finished);
  card.remote_key = operation.communicator.context.fabric.arena().remote_key();
  card.channel = operation.channel_id;
}

template <CombineFunction Reduction::*function>
void charged(const void* incoming, void* partial, std::size_t count, void* context) noexcept {
  const auto& [inner, clock] =
      *static_cast<const Operation::Implementation::ChargedReduction*>(context);
  (inner.*function)(incoming, partial, count, inner.context);
  clock->charge_work(count * inner.element_bytes);
}

/// Combining takes its time on the simulated clock.
void charge_for(Operation::Implementation& operation) {
  Reduction& reduction = operation.execution.reduction;
  operation.charged = {reduction, &operation.communicator.context.clock};
  reduction.context = &operation.charged;
  reduction.combine = charged<&Reduction::combine>;
  if (reduction.inverse) reduction.inverse = charged<&Reduction::inverse>;
}

/// The sizes that every rank tells, by rank.  Ranks that ask for something else have other rows, or
/// none, so that is found out first.
std::vector<std::uint64_t> rows_of(Communicator::Implementation& communicator,
                                   const OperationRequest& request, const Card& card) {
  if (request.row.empty()) return {};
  const std::vector<Card> cards = gather<Card>(communicator, {&card, 1});
  agree<Card>({}, cards);
  require_same(cards, index_of(communicator.exchange.self()), communicator.context.settings.check);
  return gather<std::uint64_t>(communicator, request.row);
}

std::unique_ptr<Operation::Implementation> set_up(Communicator::Implementation& communicator,
                                                  const OperationRequest& request,
                                                  const std::function<plan::Plan()>& build) {
  std::optional<Error> error;
  NewConnections connections(communicator.context.fabric);  // outlives what uses them
  std::unique_ptr<Operation::Implementation> operation;
  std::vector<NewConnection> offers;
  Card card = card_of(communicator, request);
  const std::vector<std::uint64_t> rows = rows_of(communicator, request, card);
  attempt(error, [&] {
    const Blocks blocks = request.lay_out_blocks ? request.lay_out_blocks(rows) : Blocks();
    operation =
        std::make_unique<Operation::Implementation>(communicator, build(), request.collective);
    operation->execution.reduction = request.reduction;
    operation->coverage = {request.element_count, request.participant_count > 0
                                                      ? request.participant_count
                                                      : communicator.exchange.rank_count()};
    operation->execution.any_order = request.any_order && operation->plan.segments == 1;
    if (request.slack)
      operation->stale = std::make_unique<engine::StaleCalls>(
          operation->plan.steps, operation->plan.slot_count, *request.slack + 1, *request.slack);
    if (communicator.context.clock.is_simulated() && request.reduction.combine)
      charge_for(*operation);
    operation->uses_network = !partners_of(*operation).empty();
    if (operation->uses_network) ++communicator.context.live_network_operations;
    lay_out(*operation, request, blocks);
    try {
      reserve_receives(*operation);
    } catch (const Error& refused) {
      if (!request.slack) throw;
      throw Error(refused.code(), "slack " + std::to_string(*request.slack) + ": " +
                                      refused.what() + ", or ask for less slack");
    }
    offers = offer_connections(*operation);
    fill_in(card, *operation);
    card.new_connections = static_cast<std::uint32_t>(offers.size());
  });
  card.verdict = Verdict::of(error);
  const std::vector<Card> cards = gather<Card>(communicator, {&card, 1});
  agree<Card>(error, cards);
  require_same(cards, index_of(communicator.exchange.self()), communicator.context.settings.check);

  std::size_t offers_each = 0;
  for (const Card& theirs : cards)
    offers_each = std::max<std::size_t>(offers_each, theirs.new_connections);
  if (offers_each > 0) {
    offers.resize(offers_each);
    const std::vector<NewConnection> all = gather<NewConnection>(communicator, offers);
    attempt(error, [&] { connect_partners(*operation, all, offers_each); });
  }
  attempt(error, [&] { prepare_messages(*operation, cards); });
  const Verdict verdict = Verdict::of(error);
  agree<Verdict>(error, gather<Verdict>(communicator, {&verdict, 1}));
  find_messages_in_place(*operation, cards);
  connections.keep();
  return operation;
}

}  // namespace

std::size_t put_count(const plan::Plan& plan) noexcept {
  return static_cast<std::size_t>(
      std::count_if(plan.steps.begin(), plan.steps.end(),
                    [](const plan::Step& step) { return step.action == plan::Action::put; }));
}

Operation make_operation(Communicator& handle, const OperationRequest& request,
                         const std::function<plan::Plan()>& build) {
  Communicator::Implementation& communicator = handle.implementation();
  if (communicator.failed())
    throw Error(ErrorCode::peer_failed,
                std::string("the communicator has failed: ") + communicator.failure.text);
  communicator.reap();
  ++communicator.operations_made;
  return Operation(set_up(communicator, request, build));
}

}  // namespace tutti::api
