// Making an operation takes three small exchanges out of band.  If each rank knows only how long
// its own blocks are, there are two more before them, one of cards and one of these sizes.
//   1. every rank's card: what it asks for, where its slots are, and whether it failed so far;
//   2. the endpoints of new connections, if any rank has some, and then those with which others
//      answer that had not known that the old connection was closed;
//   3. every rank's verdict after connecting, which is also the barrier after which any rank may
//   send.
// Ranks that share a ring of nodes tell each other in between by which key their node's block is
// written, and once more at the end that it has been.
// A rank that fails locally still takes part, so that the others hear the reason instead of
// waiting.
#include "runtime/make_operation.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <string>

#include "runtime/card.hpp"
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

struct NewConnection {
  std::uint32_t peer = UINT32_MAX;
  verbs::Endpoint endpoint = {};
};

template <class T>
std::vector<T> gather(Communicator::Implementation& communicator, SetUpCall& call,
                      std::span<const T> mine) {
  std::vector<T> all(mine.size() * communicator.exchange.rank_count());
  communicator.gather(call, std::as_bytes(mine), std::as_writable_bytes(std::span(all)));
  return all;
}

std::uint64_t hash_of(const std::vector<std::uint32_t>& vector) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const std::uint32_t entry : vector) hash = (hash ^ entry) * 0x100000001b3;
  return hash;
}

/// The peers on other nodes, which need connections.
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

/// Makes room for connections to all partners, at the cost of those that no live operation needs;
/// refused before anything is made or closed, if live operations need too many.
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
                                              operation.communicator.connection_to(partner));
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

NewConnection offer_to(const Communicator::Implementation& communicator, Rank partner,
                       const verbs::Connection& connection) {
  return {.peer = index_of(partner),
          .endpoint = communicator.context.fabric.connections().endpoint(connection.index)};
}

/// Endpoints of the partners that are not connected yet, made here and sent to all.
std::vector<NewConnection> offer_connections(Operation::Implementation& operation) {
  Communicator::Implementation& communicator = operation.communicator;
  std::vector<NewConnection> offers;
  for (const Rank partner : partners_of(operation)) {
    const verbs::Connection& connection = communicator.connection_to(partner);
    if (connection.failed)
      throw Error(ErrorCode::peer_failed, "the connection to rank " +
                                              std::to_string(index_of(partner)) +
                                              " has failed earlier; make another context");
    if (!connection.connected) offers.push_back(offer_to(communicator, partner, connection));
  }
  return offers;
}

/// What ranks have offered to each other, by the rank that offers, in the order of those to whom.
using Offers = std::vector<std::vector<NewConnection>>;

const NewConnection* offer_between(const Offers& offers, std::uint32_t from, std::uint32_t to) {
  const std::vector<NewConnection>& all = offers[from];
  const auto found = std::lower_bound(
      all.begin(), all.end(), to,
      [](const NewConnection& offer, std::uint32_t peer) { return offer.peer < peer; });
  return found != all.end() && found->peer == to ? &*found : nullptr;
}

/// Ranks that have made an offer without one in return, by the rank that they have made it to.
std::vector<std::vector<std::uint32_t>> unanswered(const Offers& offers) {
  std::vector<std::vector<std::uint32_t>> all(offers.size());
  for (std::uint32_t from = 0; from < offers.size(); ++from)
    for (const NewConnection& offer : offers[from])
      if (offer_between(offers, offer.peer, from) == nullptr) all[offer.peer].push_back(from);
  return all;
}

/// One exchange, in which no rank offers more than `each`; adds what they offer.
void exchange_offers(Communicator::Implementation& communicator, SetUpCall& call,
                     std::vector<NewConnection> mine, std::size_t each, Offers& offers) {
  mine.resize(each);
  const std::vector<NewConnection> all = gather<NewConnection>(communicator, call, mine);
  for (std::size_t rank = 0; rank < offers.size(); ++rank) {
    for (const NewConnection& offer : std::span(all).subspan(rank * each, each))
      if (offer.peer < offers.size()) offers[rank].push_back(offer);
    std::sort(offers[rank].begin(), offers[rank].end(),
              [](const auto& one, const auto& other) { return one.peer < other.peer; });
  }
}

/// New connections in place of those that these ranks have closed at their ends, though this rank
/// has not heard of it.
std::vector<NewConnection> answer(Operation::Implementation& operation,
                                  std::span<const std::uint32_t> ranks) {
  Communicator::Implementation& communicator = operation.communicator;
  verbs::VerbsFabric& fabric = communicator.context.fabric;
  const std::vector<Rank> partners = partners_of(operation);
  std::vector<NewConnection> offers;
  for (const std::uint32_t rank : ranks) {
    const Rank partner{rank};
    if (!std::binary_search(partners.begin(), partners.end(), partner))
      throw Error(ErrorCode::mismatch,
                  "rank " + std::to_string(rank) + " expects a connection that this rank does not");
    fabric.supersede(operation.channel.network, communicator.connection_to(partner));
    verbs::Connection& made = communicator.connection_to(partner);
    fabric.use(operation.channel.network, made);
    reserve_receives(operation, partner);
    offers.push_back(offer_to(communicator, partner, made));
  }
  return offers;
}

void connect_partners(Operation::Implementation& operation, const Offers& offers) {
  Communicator::Implementation& communicator = operation.communicator;
  const std::uint32_t self = index_of(communicator.exchange.self());
  std::vector<verbs::NewPartner> partners;
  for (const NewConnection& mine : offers[self]) {
    const NewConnection* const theirs = offer_between(offers, mine.peer, self);
    if (theirs == nullptr)
      throw Error(ErrorCode::peer_failed,
                  "rank " + std::to_string(mine.peer) + " could not make its end of a connection");
    partners.push_back({.connection = communicator.connection_to(Rank{mine.peer}).index,
                        .remote = theirs->endpoint,
                        .name = "rank " + std::to_string(mine.peer)});
  }
  // Connecting may take half of the set-up timeout: a rank that has already failed waits for the
  // verdicts of the others meanwhile, and its own timeout must not pass first.
  communicator.context.fabric.connections().connect(
      partners, {.timeout = communicator.context.settings.setup_timeout / 2, .is_pointless = [&] {
                   return communicator.exchange.incident().kind != Incident::Kind::none;
                 }});
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
  card.properties = static_cast<std::uint8_t>((reduction.properties.commutative ? 1 : 0) |
                                              (reduction.properties.idempotent ? 2 : 0) |
                                              (reduction.inverse ? 4 : 0));
  const ElementType type = reduction.element_type;
  // Whether ranks that round differently could spoil what is promised.
  const bool bits_agree = asked.agreement == Agreement::reproducible ||
                          (asked.agreement == Agreement::identical && asked.root == no_rank);
  if (bits_agree && reduction.combine != nullptr &&
      (is_floating(type) || type == ElementType::other))
    card.float_mode = static_cast<std::uint8_t>(float_mode());
  return card;
}

/// Where this rank's slots are, and what plan they belong to.
void fill_in(Card& card, const Operation::Implementation& operation) {
  std::strncpy(card.algorithm, operation.plan.algorithm.c_str(), sizeof card.algorithm - 1);
  std::vector<std::uint32_t> parameters = operation.plan.per_round;
  parameters.insert(parameters.end(),
                    {operation.plan.n, operation.plan.parts, operation.plan.payloads,
                     static_cast<std::uint32_t>(operation.execution.chunk_count)});
  // The block of a node depends on the payload and its laps, whatever the level of checks.
  if (operation.ring()) {
    const plan::RingLaps& laps = operation.ring()->laps();
    parameters.insert(parameters.end(), {laps.count, laps.in_flight, laps.ahead});
    for (const std::uint64_t number : {card.element_count, std::uint64_t{card.element_bytes}})
      parameters.insert(parameters.end(), {static_cast<std::uint32_t>(number),
                                           static_cast<std::uint32_t>(number >> 32)});
  }
  card.parameters_hash = hash_of(parameters);
  card.register_bytes = static_cast<std::uint32_t>(operation.execution.memory.register_bytes);
  card.slot_count = operation.plan.slot_count;
  for (std::size_t parity = 0; parity < 2; ++parity)
    card.slots[parity] = reinterpret_cast<std::uint64_t>(operation.execution.memory.slots[parity]);
  if (operation.plan.zero_copy) {
    card.target = reinterpret_cast<std::uint64_t>(operation.execution.memory.target);
    card.target_key = operation.target.remote_key;
  }
  if (operation.ring()) {
    card.slot_count = operation.plan.parts;  // chunks; what a rank awaits differs
    card.slots[0] = reinterpret_cast<std::uint64_t>(operation.block);
  }
  card.numbers_from = operation.channel.network.numbers_from();
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

/// The sizes that every rank has told, by rank.  Ranks that ask for something else tell other
/// sizes, or none, so the cards are compared first.
std::vector<std::uint64_t> rows_of(Communicator::Implementation& communicator, SetUpCall& call,
                                   const OperationRequest& request, const Card& card) {
  if (request.row.empty()) return {};
  const std::vector<Card> cards = gather<Card>(communicator, call, {&card, 1});
  agree<Card>({}, cards);
  require_same(cards, index_of(communicator.exchange.self()), communicator.context.settings.check);
  return gather<std::uint64_t>(communicator, call, request.row);
}

/// The barrier after which every rank has connected, or all throw the reason.
void agree_on_all(Communicator::Implementation& communicator, SetUpCall& call,
                  std::optional<Error>& error) {
  const Verdict verdict = Verdict::of(error);
  agree<Verdict>(error, gather<Verdict>(communicator, call, {&verdict, 1}));
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
  operation->coverage = {request.asked.element_count, asked.participant_count > 0
                                                          ? asked.participant_count
                                                          : communicator.exchange.rank_count()};
  const bool combines_all = asked.collective == tune::Collective::allreduce ||
                            asked.collective == tune::Collective::reduce;
  operation->execution.any_order =
      combines_all && tune::takes_any_order(asked) && operation->plan.payloads == 1;
  if (is_stale(asked))
    operation->calls.emplace<engine::StaleCalls>(operation->plan.steps, operation->plan.slot_count,
                                                 asked.slack + 1, asked.slack);
  if (communicator.context.clock.is_simulated() && asked.reduction.combine) charge_for(*operation);
  make_room(*operation);
  // In simulated time polling the network is what lets time pass.
  const bool is_simulated = communicator.context.clock.is_simulated();
  operation->is_timed = is_simulated && communicator.members_of_node() > 1;
  operation->uses_network = is_simulated || !partners_of(*operation).empty();
  if (operation->uses_network) ++communicator.context.live_network_operations;
  if (asked.algorithm == Algorithm::shared_ring)
    operation->calls.emplace<SharedRingOperation>(*operation, request);
  else
    lay_out_memory(*operation, request, completed);
  if (operation->is_timed &&
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

/// The second exchange, if any rank has new connections, and then a third one, if one of them has
/// closed its end of a connection that the other still holds to be there.
void meet_partners(Operation::Implementation& operation, SetUpCall& call,
                   std::span<const NewConnection> mine, std::span<const Card> cards,
                   std::optional<Error>& error) {
  Communicator::Implementation& communicator = operation.communicator;
  std::size_t each = 0;
  for (const Card& theirs : cards) each = std::max<std::size_t>(each, theirs.new_connections);
  if (each == 0) return;
  Offers offers(cards.size());
  exchange_offers(communicator, call, {mine.begin(), mine.end()}, each, offers);
  const std::vector<std::vector<std::uint32_t>> owed = unanswered(offers);
  each = 0;
  for (const std::vector<std::uint32_t>& ranks : owed) each = std::max(each, ranks.size());
  if (each > 0) {
    std::vector<NewConnection> answers;
    attempt(error,
            [&] { answers = answer(operation, owed[index_of(communicator.exchange.self())]); });
    exchange_offers(communicator, call, answers, each, offers);
  }
  attempt(error, [&] { connect_partners(operation, offers); });
}

/// Ranks of a shared ring exchange the keys by which the blocks of their nodes are written, then
/// whether all could join, and last whether the first writes have arrived.
void join_ring(Operation::Implementation& operation, SetUpCall& call,
               const std::vector<Card>& cards, std::optional<Error>& error) {
  Communicator::Implementation& communicator = operation.communicator;
  RingDoor door;
  attempt(error, [&] { door = operation.ring()->open(cards); });
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

/// From top to bottom what happens to a request, on all ranks at the same time.
std::unique_ptr<Operation::Implementation> set_up(Communicator::Implementation& communicator,
                                                  const OperationRequest& request) {
  std::optional<Error> error;
  NewConnections connections(communicator.context.fabric.connections());  // outlives what uses them
  std::unique_ptr<Operation::Implementation> operation;
  std::vector<NewConnection> offers;
  Card card = card_of(communicator, request);
  SetUpCall call{CallKind::operation, request.collective};
  const std::vector<std::uint64_t> rows = rows_of(communicator, call, request, card);
  attempt(error, [&] {
    const Completed completed =
        request.complete ? request.complete(rows) : Completed{request.asked};
    plan::Plan plan = request.plan_of ? request.plan_of(completed.asked)
                                      : tune::plan_for(completed.asked, communicator.topology(),
                                                       communicator.exchange.self());
    operation = lay_out(communicator, request, completed, std::move(plan));
    offers = offer_connections(*operation);
    fill_in(card, *operation);
    card.new_connections = static_cast<std::uint32_t>(offers.size());
  });
  card.verdict = Verdict::of(error);
  const std::vector<Card> cards = gather<Card>(communicator, call, {&card, 1});
  agree<Card>(error, cards);
  require_same(cards, index_of(communicator.exchange.self()), communicator.context.settings.check,
               request.members);

  meet_partners(*operation, call, offers, cards, error);
  if (operation->ring()) {
    join_ring(*operation, call, cards, error);
  } else {
    attempt(error, [&] { prepare_messages(*operation, cards); });
    agree_on_all(communicator, call, error);
    find_messages_in_place(*operation, cards);
  }
  connections.keep();
  return operation;
}

}  // namespace

Operation make_operation(Communicator& handle, const OperationRequest& request) {
  Communicator::Implementation& communicator = handle.implementation();
  communicator.require_usable();
  communicator.reap();
  ++communicator.operations_made;
  return Operation(set_up(communicator, request));
}

}  // namespace tutti::runtime
