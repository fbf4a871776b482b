// Making an operation takes three small exchanges out of band.  If each rank knows only how long
// its own blocks are, there are two more before them, one of cards and one of these sizes.
//   1. every rank's card: what it asks for, and whether it failed so far.  As a rule all are equal,
//      and then only that is told;
//   2. letters between partners: where their slots are, and the endpoints of new connections;
//   3. every rank's verdict after connecting, which is also the barrier after which any rank may
//      send.  All are equal as a rule.
// If one of two partners has closed its end of a connection, and the other had not known when it
// began, they swap letters once more, and there is another verdict.  A set-up keeps the connections
// that it found at its beginning, also if it polls meanwhile that a peer has closed one: only the
// letters decide what is replaced.
// Ranks that share a ring of nodes write to all; they tell each other in between by which key their
// node's block is written, and once more at the end that it has been.
// A rank that fails locally still takes part, so that the others hear the reason instead of
// waiting.
#include "runtime/make_operation.hpp"

#include <sched.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <tutti/detail/check.hpp>
#include <tutti/detail/hash.hpp>
#include <tutti/detail/names.hpp>
#include <type_traits>

#include "runtime/card.hpp"
#include "runtime/first_call.hpp"
#include "runtime/float_mode.hpp"
#include "runtime/messages.hpp"
#include "runtime/operation.hpp"
#include "runtime/operation_memory.hpp"
#include "tune/choose.hpp"

namespace tutti::runtime {
namespace {

/// How long a rank waits for peers to acknowledge that it closes its connection to them.  Their
/// devices do that, within microseconds; if one does not, its rank learns of it when both next need
/// a connection.
constexpr Timeout disconnect_timeout = std::chrono::seconds(1);

/// What a rank tells each of its partners.
struct Letter {
  Places places = {};
  verbs::Endpoint endpoint = {};   // of the connection to the partner, if it is new
  std::uint32_t is_here = 0;       // 1: a letter has come
  std::uint32_t is_connected = 0;  // to the partner already, as its set-up has found it
  std::uint32_t reserved = 0;
};
static_assert(std::is_trivially_copyable_v<Letter>);

/// How a set-up ends on a rank, so far.
struct Outcome {
  Verdict verdict;
  std::uint8_t swaps_again = 0;  // 1: this rank has yet to connect a partner
};
static_assert(std::has_unique_object_representations_v<Outcome>);

template <class T>
std::vector<T> gather(Communicator::Implementation& communicator, SetUpCall& call,
                      std::span<const T> mine) {
  std::vector<T> all(mine.size() * communicator.exchange.rank_count());
  communicator.gather(call, std::as_bytes(mine), std::as_writable_bytes(std::span(all)));
  return all;
}

/// As gather(), but only what this rank brings if all ranks bring the same.
template <class T>
std::vector<T> gather_unless_equal(Communicator::Implementation& communicator, SetUpCall& call,
                                   const T& mine) {
  static_assert(std::has_unique_object_representations_v<T>);
  std::vector<T> all(communicator.exchange.rank_count());
  if (communicator.gather_unless_equal(call, std::as_bytes(std::span(&mine, 1)),
                                       std::as_writable_bytes(std::span(all))))
    all.assign(1, mine);
  return all;
}

std::uint64_t hash_of(const std::vector<std::uint32_t>& vector) {
  detail::Hash hash;
  for (const std::uint32_t entry : vector) hash.add(entry);
  return hash.value();
}

/// The ranks to which this one sends, or which send to it, in order.
std::vector<Rank> peers_of(const Operation::Implementation& operation) {
  std::vector<Rank> peers;
  for (const plan::Step& step : operation.plan.steps)
    if (step.action == plan::Action::put || step.action == plan::Action::await)
      peers.push_back(step.peer);
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

/// The peers on other nodes, which need connections.
std::vector<Rank> partners_of(const Operation::Implementation& operation) {
  std::vector<Rank> partners = peers_of(operation);
  std::erase_if(partners, [&](Rank peer) { return operation.communicator.is_neighbour(peer); });
  return partners;
}

/// Makes room for connections to all partners, at the cost of those that no live operation needs;
/// refused before anything is made, and anything closed but what peers have closed, if live
/// operations need too many.
void make_room(const Operation::Implementation& operation) {
  Communicator::Implementation& communicator = operation.communicator;
  Context::Implementation& context = communicator.context;
  std::vector<std::uint64_t> processes;
  for (const Rank partner : partners_of(operation))
    processes.push_back(communicator.process_of[index_of(partner)]);
  // An operation that is destroyed, but whose peers have yet to read, needs its connections a
  // little longer.
  const verbs::Connections& connections = context.fabric.connections();
  const Deadline deadline =
      Deadline::after(context.settings.setup_timeout / 4, context.clock.now());
  while (!connections.can_have_room_for(processes) && context.has_retired() &&
         !deadline.passed(context.clock.now())) {
    context.progress();  // whoever still has to read may wait for another operation first
    communicator.liveness.check(context.clock.now());
    communicator.require_usable();
    for (Communicator::Implementation* one : context.communicators) one->reap();
    sched_yield();
  }
  context.fabric.make_room_for(processes, context.clock,
                               std::min(disconnect_timeout, context.settings.setup_timeout / 4));
}

/// The connections to all partners are those of this operation, as long as it exists.
void use_connections(Operation::Implementation& operation) {
  for (const Rank partner : partners_of(operation))
    operation.communicator.context.fabric.use(operation.channel.network,
                                              operation.communicator.make_connection_to(partner));
}

/// For the messages of all partners, or of one.
void reserve_receives(Operation::Implementation& operation, Rank partner = no_rank) {
  Communicator::Implementation& communicator = operation.communicator;
  std::map<std::uint32_t, std::uint32_t> reserved;  // by connection
  for (const plan::Step& step : operation.plan.steps) {
    if (!is_arrival(step) || communicator.is_neighbour(step.peer)) continue;
    if (partner != no_rank && step.peer != partner) continue;
    verbs::Connection& connection = communicator.connection_to(step.peer);
    if (operation.ring()) {
      for (std::uint64_t i = operation.ring()->notified_max(); i > 0; i -= 2)
        operation.channel.network.reserve_receive(connection);
      continue;
    }
    if (travels_as_line(operation, step)) {
      use_lines(operation, connection);
      continue;  // they take no receive
    }
    // A reservation is for two messages.
    if (operation.plan.incoming_max > 0 &&
        2 * reserved[connection.index] >= operation.plan.incoming_max)
      continue;
    operation.channel.network.reserve_receive(connection);
    ++reserved[connection.index];
  }
}

/// Refuses partners that are lost for good.
void require_no_failed_connection(Operation::Implementation& operation) {
  for (const Rank partner : partners_of(operation))
    if (operation.communicator.connection_to(partner).failed)
      throw Error(ErrorCode::peer_failed, "the connection to rank " +
                                              std::to_string(index_of(partner)) +
                                              " has failed earlier; make another context");
}

/// What this rank writes to a peer.
Letter letter_to(const Operation::Implementation& operation, const Places& places, Rank peer) {
  Communicator::Implementation& communicator = operation.communicator;
  Letter letter{.places = places, .is_here = 1};
  if (communicator.is_neighbour(peer)) return letter;
  // Also if the peer has closed it since: its letter says so, and both replace it then.
  const verbs::Connection& connection = communicator.connection_to(peer);
  letter.is_connected = connection.connected ? 1 : 0;
  if (!connection.connected)
    letter.endpoint = communicator.context.fabric.connections().endpoint(connection.index);
  return letter;
}

std::vector<Letter> swap_letters(Communicator::Implementation& communicator, SetUpCall& call,
                                 std::span<const Rank> peers, std::span<const Letter> mine) {
  std::vector<Letter> theirs(peers.size());
  communicator.swap(call, peers, sizeof(Letter), std::as_bytes(mine),
                    std::as_writable_bytes(std::span(theirs)));
  return theirs;
}

/// Another connection in place of one that the peer has closed at its end, though this rank had not
/// heard of it.
void replace_connection(Operation::Implementation& operation, Rank partner) {
  Communicator::Implementation& communicator = operation.communicator;
  verbs::VerbsFabric& fabric = communicator.context.fabric;
  fabric.supersede(operation.channel.network, communicator.connection_to(partner));
  fabric.use(operation.channel.network, communicator.make_connection_to(partner));
  reserve_receives(operation, partner);
}

/// Connects the partners whose letters have an endpoint, and replaces what they have closed.
/// Returns those with which one more letter has to be swapped.
std::vector<Rank> connect_partners(Operation::Implementation& operation,
                                   std::span<const Rank> peers, std::span<const Letter> letters) {
  Communicator::Implementation& communicator = operation.communicator;
  std::vector<verbs::NewPartner> partners;
  std::vector<Rank> again;
  for (std::size_t i = 0; i < peers.size(); ++i) {
    const std::string name = "rank " + std::to_string(index_of(peers[i]));
    if (letters[i].is_here == 0)
      throw Error(ErrorCode::mismatch, name + " does not expect a connection from this rank");
    if (communicator.is_neighbour(peers[i])) continue;
    const verbs::Connection& connection = communicator.connection_to(peers[i]);
    const bool is_known_there = letters[i].is_connected != 0;
    assert(!is_known_there || !connection.peer_closed);  // it is in use at the other end, too
    if (connection.connected != is_known_there) {
      if (connection.connected) replace_connection(operation, peers[i]);
      again.push_back(peers[i]);
    } else if (!connection.connected) {
      partners.push_back(
          {.connection = connection.index, .remote = letters[i].endpoint, .name = name});
    }
  }
  // Connecting may take half of the set-up timeout: a rank that has already failed waits for the
  // verdicts of the others meanwhile, and its own timeout must not pass first.
  communicator.context.fabric.connections().connect(
      partners, {.timeout = communicator.context.settings.setup_timeout / 2, .is_pointless = [&] {
                   return communicator.exchange.incident().kind != Incident::Kind::none;
                 }});
  return again;
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
  explicit NewConnections(verbs::Connections& all) : all_(all), first_(all.made()) {}
  NewConnections(const NewConnections&) = delete;
  NewConnections& operator=(const NewConnections&) = delete;
  ~NewConnections() {
    if (!kept_) all_.abandon_from(first_);
  }
  void keep() noexcept { kept_ = true; }

 private:
  verbs::Connections& all_;
  std::uint64_t first_;
  bool kept_ = false;
};

/// What this rank asks for; the same on all ranks but for the verdict.
Card card_of(const Communicator::Implementation& communicator, const OperationRequest& request) {
  Card card;
  std::strncpy(card.collective, request.collective, sizeof card.collective - 1);
  const tune::CollectiveRequest& asked = request.asked;
  const Reduction& reduction = asked.reduction;
  card.element_count = asked.element_count;
  card.ordinal = communicator.operations_made;
  card.element_bytes = reduction.element_bytes;
  card.built_in = reduction.built_in;
  card.element_type = reduction.element_type;
  card.agreement = asked.agreement;
  card.root = index_of(asked.root);
  card.properties = static_cast<std::uint8_t>(
      (reduction.properties.commutative ? 1 : 0) | (reduction.properties.idempotent ? 2 : 0) |
      (reduction.inverse ? 4 : 0) | (reduction.properties.exact ? 8 : 0));
  const ElementType type = reduction.element_type;
  // Whether ranks that round differently could spoil what is promised.
  const bool bits_agree = asked.agreement == Agreement::reproducible ||
                          (asked.agreement == Agreement::identical && asked.root == no_rank);
  if (bits_agree && reduction.combine != nullptr && !reduction.properties.exact &&
      (is_floating(type) || type == ElementType::other))
    card.float_mode = static_cast<std::uint8_t>(float_mode());
  return card;
}

/// What plan this rank's slots belong to.
void fill_in(Card& card, const Operation::Implementation& operation) {
  std::strncpy(card.algorithm, operation.plan.algorithm.c_str(), sizeof card.algorithm - 1);
  std::vector<std::uint32_t> parameters = operation.plan.per_round;
  parameters.insert(parameters.end(),
                    {operation.plan.n, operation.plan.parts, operation.plan.payloads,
                     static_cast<std::uint32_t>(operation.execution.chunk_count)});
  // The block of a node depends on the payload and its laps, whatever the level of checks.
  if (operation.ring()) {
    const plan::RingLaps& laps = operation.ring()->laps();
    parameters.insert(parameters.end(), {laps.count, laps.in_flight});
    std::vector<std::uint64_t> numbers{card.element_count, card.element_bytes};
    const std::span<const std::size_t> blocks = operation.ring()->block_elements();
    numbers.insert(numbers.end(), blocks.begin(), blocks.end());
    for (const std::uint64_t number : numbers)
      parameters.insert(parameters.end(), {static_cast<std::uint32_t>(number),
                                           static_cast<std::uint32_t>(number >> 32)});
  }
  card.parameters_hash = hash_of(parameters);
  card.register_bytes = static_cast<std::uint32_t>(operation.execution.memory.register_bytes);
  card.slot_count = operation.plan.slot_count;
  if (operation.ring()) card.slot_count = operation.plan.parts;  // chunks; what is awaited differs
}

/// Where this rank's slots are.
Places places_of(const Operation::Implementation& operation) {
  Places places;
  for (std::size_t parity = 0; parity < 2; ++parity)
    places.slots[parity] =
        reinterpret_cast<std::uint64_t>(operation.execution.memory.slots[parity]);
  if (operation.plan.zero_copy) {
    places.target = reinterpret_cast<std::uint64_t>(operation.execution.memory.target);
    places.target_key = operation.target.remote_key;
  }
  if (operation.ring()) {
    places.slots[0] = reinterpret_cast<std::uint64_t>(operation.block);
    places.slots[1] = operation.ring()->ahead();
  }
  places.numbers_from = operation.channel.network.numbers_from();
  places.finished = reinterpret_cast<std::uint64_t>(operation.finished);
  places.remote_key = operation.communicator.context.fabric.arena().remote_key();
  places.channel = operation.channel_id;
  places.tells_places = operation.staging != nullptr;  // as yet it only sends
  return places;
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

/// The first exchange: ranks ask for the same, and none has failed, or all throw the reason.  If
/// `members` ask for different things, the other ranks do not know that: then it is kept in `error`
/// until the verdicts, and these throw it on all ranks.
/// Whether first calls have chosen on that rank, and nothing is wrong there but a lack of room.
bool lacks_at_most_room(const Card& card) {
  return card.is_by_calls != 0 &&
         (!card.verdict.failed() ||
          static_cast<ErrorCode>(card.verdict.code) == ErrorCode::limit_exceeded);
}

void agree_on_card(Communicator::Implementation& communicator, SetUpCall& call, const Card& card,
                   std::optional<Error>& error, std::span<const Rank> members) {
  const std::vector<Card> cards = gather_unless_equal(communicator, call, card);
  try {
    agree<Card>(error, cards);
  } catch (const Error& refused) {
    if (std::all_of(cards.begin(), cards.end(), lacks_at_most_room)) throw NoRoomForChoice(refused);
    throw;
  }
  if (cards.size() != communicator.exchange.rank_count()) return;  // one card is everybody's
  const auto compare = [&] {
    require_same(cards, index_of(communicator.exchange.self()), communicator.context.settings.check,
                 members);
  };
  if (members.empty())
    compare();
  else
    attempt(error, compare);
}

/// The sizes that every rank has told, by rank.  Ranks that ask for something else tell other
/// sizes, or none, so the cards are compared first.
std::vector<std::uint64_t> rows_of(Communicator::Implementation& communicator, SetUpCall& call,
                                   const OperationRequest& request, const Card& card) {
  if (request.row.empty()) return {};
  std::optional<Error> error;
  agree_on_card(communicator, call, card, error, {});
  const std::size_t width = request.row.size(), ranks = communicator.exchange.rank_count();
  if (!request.has_equal_rows) return gather<std::uint64_t>(communicator, call, request.row);
  std::vector<std::uint64_t> all(width * ranks);
  if (communicator.gather_unless_equal(call, std::as_bytes(std::span(request.row)),
                                       std::as_writable_bytes(std::span(all))))
    for (std::size_t rank = 0; rank < ranks; ++rank)
      std::copy(request.row.begin(), request.row.end(),
                all.begin() + static_cast<std::ptrdiff_t>(rank * width));
  return all;
}

/// The barrier after which every rank has connected, or all throw the reason.  Returns whether any
/// rank `swaps_again`.
bool agree_on_all(Communicator::Implementation& communicator, SetUpCall& call,
                  const std::optional<Error>& error, bool swaps_again = false) {
  const Outcome mine{Verdict::of(error), static_cast<std::uint8_t>(swaps_again ? 1 : 0)};
  const std::vector<Outcome> outcomes = gather_unless_equal(communicator, call, mine);
  agree<Outcome>(error, outcomes);
  return std::any_of(outcomes.begin(), outcomes.end(),
                     [](const Outcome& outcome) { return outcome.swaps_again != 0; });
}

bool is_stale(const tune::CollectiveRequest& asked) {
  return asked.collective == tune::Collective::allreduce_ssp;
}

/// The operation of a plan, with its memory, but with nobody to send to yet.
std::unique_ptr<Operation::Implementation> lay_out(Communicator::Implementation& communicator,
                                                   const OperationRequest& request,
                                                   const Completed& completed, plan::Plan&& plan) {
  const tune::CollectiveRequest& asked = completed.asked;
  auto operation = std::make_unique<Operation::Implementation>(communicator, std::move(plan),
                                                               request.collective);
  operation->execution.reduction = request.asked.reduction;
  if (UserOperator::may_fail(request.asked.reduction)) {
    operation->user_operator.reduction = request.asked.reduction;
    operation->execution.reduction = operation->user_operator.guarded();
  }
  operation->coverage = {request.asked.element_count, asked.participant_count > 0
                                                          ? asked.participant_count
                                                          : communicator.exchange.rank_count()};
  const bool combines_all = asked.collective == tune::Collective::allreduce ||
                            asked.collective == tune::Collective::reduce;
  operation->execution.any_order =
      combines_all && tune::takes_any_order(asked) && operation->plan.payloads == 1;
  const bool both_write = asked.collective == tune::Collective::allreduce ||
                          asked.collective == tune::Collective::reduce_scatter;
  operation->execution.into_partials[0] = communicator.neighbours.copies_for_readers(both_write);
  if (is_stale(asked))
    operation->calls.emplace<engine::StaleCalls>(operation->plan.steps, operation->plan.slot_count,
                                                 asked.slack + 1, asked.slack);
  if (communicator.context.clock.is_simulated() && asked.reduction.combine) charge_for(*operation);
  make_room(*operation);
  // In simulated time polling the network is what lets time pass.
  const bool is_simulated = communicator.context.clock.is_simulated();
  operation->is_timed = is_simulated && (communicator.members_of_node() > 1 ||
                                         communicator.context.settings.notify == Notify::flag);
  operation->uses_network = is_simulated || !partners_of(*operation).empty();
  if (operation->uses_network) ++communicator.context.live_network_operations;
  if (operation->plan.algorithm == name_of(Algorithm::shared_ring))
    operation->calls.emplace<SharedRingOperation>(*operation, request, completed);
  else
    lay_out_memory(*operation, request, completed);
  stage_partials(*operation);
  if ((operation->is_timed || operation->may_fail()) &&
      std::holds_alternative<Operation::Implementation::PlanCalls>(operation->calls))
    operation->calls.emplace<Operation::Implementation::OtherPlanCalls>();
  try {
    use_connections(*operation);
    reserve_receives(*operation);
  } catch (const Error& refused) {
    if (!is_stale(asked)) throw;
    throw Error(refused.code(), "slack " + std::to_string(asked.slack) + ": " + refused.what() +
                                    ", or ask for less slack");
  }
  return operation;
}

/// Once more between partners of whom one had closed its connection; then all are connected.
void connect_again(Operation::Implementation& operation, SetUpCall& call,
                   std::span<const Rank> partners, std::optional<Error>& error) {
  Communicator::Implementation& communicator = operation.communicator;
  std::vector<Letter> letters;
  for (const Rank partner : partners) letters.push_back(letter_to(operation, {}, partner));
  const std::vector<Letter> answers = swap_letters(communicator, call, partners, letters);
  attempt(error, [&] {
    const std::vector<Rank> left = connect_partners(operation, partners, answers);
    detail::check(left.empty(), "partners whose connections are new agree on that", left.size());
  });
  (void)agree_on_all(communicator, call, error);
}

/// The second exchange and the third: letters, connections, verdicts.  Returns where the slots of
/// the peers are, by rank.
std::vector<Places> meet_peers(Operation::Implementation& operation, SetUpCall& call,
                               std::optional<Error>& error) {
  Communicator::Implementation& communicator = operation.communicator;
  const std::vector<Rank> peers = peers_of(operation);
  const Places mine = places_of(operation);
  std::vector<Letter> letters;
  letters.reserve(peers.size());
  for (const Rank peer : peers) letters.push_back(letter_to(operation, mine, peer));
  letters = swap_letters(communicator, call, peers, letters);
  std::vector<Places> places(communicator.exchange.rank_count());
  for (std::size_t i = 0; i < peers.size(); ++i) places[index_of(peers[i])] = letters[i].places;
  std::vector<Rank> again;
  attempt(error, [&] { again = connect_partners(operation, peers, letters); });
  if (!operation.ring()) attempt(error, [&] { prepare_messages(operation, places); });
  if (agree_on_all(communicator, call, error, !again.empty()))
    connect_again(operation, call, again, error);
  return places;
}

/// Ranks of a shared ring exchange the keys by which the blocks of their nodes are written, then
/// whether all could join, and last whether the first writes have arrived.
void join_ring(Operation::Implementation& operation, SetUpCall& call, std::optional<Error>& error) {
  Communicator::Implementation& communicator = operation.communicator;
  const Places mine = places_of(operation);
  const std::vector<Places> places = gather<Places>(communicator, call, {&mine, 1});
  RingDoor door;
  attempt(error, [&] { door = operation.ring()->open(places); });
  const std::vector<RingDoor> doors = gather<RingDoor>(communicator, call, {&door, 1});
  attempt(error, [&] { operation.ring()->join(doors); });
  agree_on_all(communicator, call, error);
  operation.ring()->share();
  attempt(error, [&] { operation.ring()->greet(); });
  const Verdict verdict = Verdict::of(error);
  const std::vector<Verdict> verdicts = gather<Verdict>(communicator, call, {&verdict, 1});
  operation.ring()->hear(verdicts);
  agree<Verdict>(error, verdicts);
}

}  // namespace

/// From top to bottom what happens to a request, on all ranks at the same time.
std::unique_ptr<Operation::Implementation> set_up(Communicator::Implementation& communicator,
                                                  const OperationRequest& request) {
  ++communicator.operations_made;
  std::optional<Error> error;
  NewConnections connections(communicator.context.fabric.connections());  // outlives what uses them
  std::unique_ptr<Operation::Implementation> operation;
  Card card = card_of(communicator, request);
  SetUpCall call{CallKind::operation, request.collective};
  const std::vector<std::uint64_t> rows = rows_of(communicator, call, request, card);
  attempt(error, [&] {
    Completed completed = request.complete ? request.complete(rows) : Completed{request.asked};
    if (completed.asked.only.empty())
      completed.asked.only = request.only.empty() ? communicator.only : request.only;
    plan::Plan plan = request.plan_of ? request.plan_of(completed.asked)
                                      : tune::plan_for(completed.asked, communicator.topology(),
                                                       communicator.exchange.self(),
                                                       communicator.tuning->knowledge);
    operation = lay_out(communicator, request, completed, std::move(plan));
    operation->asked = std::move(completed.asked);
    operation->chosen_by = request.chosen_by;
    operation->is_chosen = !request.plan_of;
    card.is_trial = request.is_trial ? 1 : 0;
    require_no_failed_connection(*operation);
    fill_in(card, *operation);
  });
  card.verdict = Verdict::of(error);
  card.is_by_calls = request.chosen_by.empty() || request.is_trial ? 0 : 1;
  agree_on_card(communicator, call, card, error, request.members);
  const std::vector<Places> places = meet_peers(*operation, call, error);
  if (operation->ring())
    join_ring(*operation, call, error);
  else
    find_messages_in_place(*operation, places);
  connections.keep();
  if (!request.is_trial) operation->trace();
  operation->publish();
  return operation;
}

std::vector<std::uint64_t> split_off_last(std::vector<std::uint64_t>& rows,
                                          std::size_t rank_count) {
  assert(rank_count > 0 && rows.size() >= rank_count && rows.size() % rank_count == 0);
  const std::size_t width = rows.size() / rank_count;
  std::vector<std::uint64_t> others, last;
  for (std::size_t rank = 0; rank < rank_count; ++rank) {
    const auto row = std::span<const std::uint64_t>(rows).subspan(rank * width, width);
    others.insert(others.end(), row.begin(), row.end() - 1);
    last.push_back(row.back());
  }
  rows = std::move(others);
  return last;
}

Operation make_operation(Communicator& handle, const OperationRequest& request) {
  Communicator::Implementation& communicator = handle.implementation();
  communicator.require_usable();
  communicator.reap();
  if (may_be_timed(communicator, request))
    return Operation(make_by_first_call(communicator, request));
  return Operation(set_up(communicator, request));
}

}  // namespace tutti::runtime
