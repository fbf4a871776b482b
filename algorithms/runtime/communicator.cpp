#include "runtime/communicator.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <map>
#include <new>
#include <string>
#include <tutti/detail/check.hpp>
#include <tutti/detail/clock.hpp>
#include <tutti/detail/cpu_set.hpp>
#include <tutti/detail/hash.hpp>
#include <tutti/detail/names.hpp>
#include <utility>

#include "bootstrap/node_map.hpp"
#include "runtime/operation.hpp"
#include "runtime/report.hpp"
#include "runtime/shrink.hpp"
#include "runtime/wait_policy.hpp"
#include "shm/copy_costs.hpp"
#include "verbs/arena.hpp"
#include "verbs/completion_words.hpp"
#include "verbs/port_card.hpp"

namespace tutti {
namespace {

/// What every rank tells every other when a communicator is made.
struct Introduction {
  std::uint64_t process_key;
  std::uint64_t communicators_made;  // of its context, with this one
  std::uint32_t check_level;
  std::uint32_t connect_by;
  std::uint32_t notify;
  std::uint32_t shared_notifications;
  std::uint32_t is_automatic;   // nobody has asked for these
  std::uint32_t lacks_trace;    // this rank cannot write the trace that it is asked for
  std::uint64_t node_shape;     // hash of what is imposed on nodes and domains
  std::uint64_t shrinkable_in;  // the network where it would listen; 0: it cannot be shrunk
  std::uint64_t connections_max;
  std::uint64_t receives_max;  // of a connection
  detail::CpuSet cpus;         // allowed
  runtime::NeighbourCard neighbour;
  runtime::WatchCard watch;  // nothing, if another communicator watches its ranks
  verbs::PortCard port;
  runtime::TuningCard tuning;
};
static_assert(std::is_trivially_copyable_v<Introduction>);
static_assert(sizeof(Introduction) <= runtime::SetUpBlock::payload_bytes_max);  // one exchange

/// Raised with every change of what ranks tell each other at set-up.
constexpr std::uint64_t protocol_version = 24;

/// How long a communicator waits at its end for peers that have not read everything.
constexpr Timeout retirement_max = std::chrono::seconds(8);
/// How often it checks whether any of them can still report that it has read.  A check takes longer
/// than a poll.
constexpr Timeout retirement_look_interval = std::chrono::milliseconds(5);

const char* name_of(std::uint32_t shared_notifications) noexcept {
  return shared_notifications == static_cast<std::uint32_t>(SharedNotifications::words)
             ? "by words"
             : "republished";
}

std::uint64_t hash_of_shape(const runtime::ContextSettings& settings) {
  detail::Hash hash;
  hash.add(static_cast<std::uint64_t>(settings.placement));
  hash.add(settings.ranks_per_node.size());
  for (const std::uint32_t ranks : settings.ranks_per_node) hash.add(ranks);
  hash.add(settings.domains_above);
  hash.add(settings.ranks_per_domain.size());
  for (const std::uint32_t ranks : settings.ranks_per_domain) hash.add(ranks);
  return hash.value();
}

/// A name for the communicator that these ranks make.  It is computed from their contexts and how
/// many communicators each context has made, so no other communicator has the same name.
std::uint64_t id_of(std::span<const Introduction> all) {
  detail::Hash hash;
  for (const Introduction& rank : all) {
    hash.add(rank.process_key);
    hash.add(rank.communicators_made);
  }
  return hash.value() | 1;  // never 0
}

/// Where the ranks of each host may run, across namespaces.
auto cpus_by_host(std::span<const Introduction> all) {
  std::map<std::array<std::byte, 16>, std::vector<detail::CpuSet>> hosts;
  for (const Introduction& rank : all) hosts[rank.neighbour.host.boot].push_back(rank.cpus);
  return hosts;
}

/// Throws on every rank, in the same words, because all see the same cards.
void require_ports_of_one_kind(std::span<const verbs::PortCard> ports) {
  if (const std::string reason = verbs::incompatibility(ports); !reason.empty())
    throw Error(ErrorCode::mismatch, "these ranks cannot talk to each other: " + reason);
}

/// `own`: why this rank cannot write its trace.
void require_traces(std::span<const Introduction> all, const std::string& own) {
  if (!own.empty()) throw Error(ErrorCode::invalid_argument, own);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank].lacks_trace != 0)
      throw Error(ErrorCode::invalid_argument,
                  "rank " + std::to_string(rank) +
                      " cannot write the file of its TUTTI_TRACE; its own error says why");
}

/// Memory of the arena for a probe, which a partner that is late may still read after it.
struct LentMemory {
  verbs::Arena& arena;
  std::span<std::byte> bytes = {};

  explicit LentMemory(verbs::Arena& of) : arena(of) {}
  LentMemory(const LentMemory&) = delete;
  LentMemory& operator=(const LentMemory&) = delete;
  ~LentMemory() { release(); }

  /// Empty where there is no room.
  void take(std::size_t count) {
    if (std::byte* const memory = arena.allocate(count)) bytes = {memory, count};
  }
  void release() {
    if (!bytes.empty()) arena.release(std::exchange(bytes, {}).data());
  }
};

/// One side of what two ranks of a node measure together.
std::optional<shm::CopyCosts> measure_copies(Context::Implementation& context,
                                             const runtime::Measuring& what,
                                             std::uint64_t communicator, LentMemory& lent) try {
  // What a probe finds depends on the machine, which virtual time does not.
  if (context.clock.is_simulated()) return std::nullopt;
  verbs::Arena& arena = context.fabric.arena();
  shm::CopyProbe probe{.id = communicator & ~std::uint64_t{0xffff},
                       .mine = shm::board_of(arena.mapping()->data()),
                       .theirs = shm::board_of(what.theirs.mapping->data()),
                       .blocks = {},
                       .their_block_at = [&](std::uint64_t address) -> const std::byte* {
                         return what.theirs.at(address, shm::costs_chunk_bytes);
                       },
                       .their_process = what.theirs.card.process,
                       .copies = what.copies};
  const bool begins = !what.is_settled || (!what.leads && shm::leader_begins(probe));
  if (begins && what.theirs.mapping->size() >= shm::costs_chunk_bytes) {
    // Operations use the ring where each rank has a CPU, and where there is one.  Before the first
    // of them its memory is free.
    const std::span<std::byte> ring = context.staging_memory;
    if (!ring.empty() && !context.oversubscribed) {
      if (context.staging_ring)
        lent.take(ring.size());
      else
        arena.provide(ring.data(), ring.size());
      probe.blocks = context.staging_ring ? lent.bytes : ring;
    }
    if (probe.blocks.empty()) {
      lent.take(shm::costs_chunk_bytes);
      probe.blocks = lent.bytes;
    }
  }
  const shm::CopyOutcome outcome =
      what.leads ? shm::measure_copies_as_leader(probe) : shm::measure_copies_as_partner(probe);
  if (outcome.blocks_are_free) lent.release();
  return outcome.costs;
} catch (const std::exception&) {
  // There is no memory, and nothing is measured.  An exception would leave the other ranks in the
  // exchange that follows.
  return std::nullopt;
}

}  // namespace

Communicator::Implementation::Implementation(Context::Implementation& owner, Exchange& given)
    : context(owner),
      watched(std::make_unique<runtime::WatchedExchange>(given, runtime::random_key())),
      exchange(*watched) {
  introduce({});
}

Communicator::Implementation::Implementation(
    Context::Implementation& owner, std::unique_ptr<Exchange> given, runtime::Neighbourhood known,
    std::shared_ptr<const runtime::TuningInForce> inherited)
    : context(owner),
      own_exchange(std::move(given)),
      exchange(*own_exchange),
      tuning(std::move(inherited)) {
  introduce(std::move(known));
}

Communicator::Implementation::Implementation(Communicator::Implementation& whole,
                                             std::unique_ptr<Exchange> given,
                                             std::vector<Rank> ranks, Timeout at_most)
    : context(whole.context),
      made_by(Deadline::after(at_most, detail::MonotonicClock::read())),
      meeting_place(whole.meeting_place),
      original(std::move(ranks)),
      original_nodes(whole.original_nodes),
      own_exchange(std::move(given)),
      watched(std::make_unique<runtime::WatchedExchange>(*own_exchange, runtime::random_key())),
      exchange(*watched),
      tuning(whole.tuning) {
  try {
    introduce({});
    runtime::SetUpCall call{runtime::CallKind::communicator, "shrink"};
    runtime::agree_on_connections(whole, *this, call);
  } catch (...) {
    exchange.announce({Incident::Kind::aborted, exchange.self()});
    std::erase(context.communicators, this);
    throw;
  }
  made_by.reset();
}

Timeout Communicator::Implementation::step_timeout() const noexcept {
  const Timeout each = context.settings.setup_timeout;
  return made_by ? std::min(each, made_by->remaining(detail::MonotonicClock::read())) : each;
}

void Communicator::Implementation::introduce(std::optional<runtime::Neighbourhood> known) {
  const std::string no_trace = context.open_trace(exchange.self());
  number = ++context.communicators_made;
  const Introduction self{
      .process_key = context.process_key,
      .communicators_made = number,
      .check_level = static_cast<std::uint32_t>(context.settings.check),
      .connect_by = static_cast<std::uint32_t>(context.settings.connect),
      .notify = static_cast<std::uint32_t>(context.settings.notify),
      .shared_notifications = static_cast<std::uint32_t>(context.shared_notifications),
      .is_automatic = context.settings.shared_notifications == SharedNotifications::automatic,
      .lacks_trace = !no_trace.empty(),
      .node_shape = hash_of_shape(context.settings),
      .shrinkable_in = context.settings.shrinkable ? bootstrap::network_identity() : 0,
      .connections_max = context.fabric.connections().count_max(),
      .receives_max = context.fabric.connections().receives_promised_max(),
      .cpus = detail::allowed_cpus(),
      .neighbour = {.host = bootstrap::host_identity(),
                    .domain = bootstrap::domain_of(detail::allowed_cpus()).name(),
                    .mapping = context.offered.card(),
                    .sleeper = context.sleeper ? context.sleeper->descriptor()
                                               : runtime::NeighbourCard::no_sleeper},
      .watch = watched ? watched->card() : runtime::WatchCard{},
      .port = runtime::port_card_of(context.fabric.port(), context.settings),
      .tuning = runtime::tuning_card_of(context)};
  std::vector<Introduction> all(exchange.rank_count());
  runtime::SetUpCall call{runtime::CallKind::communicator, "Communicator"};
  gather(call, std::as_bytes(std::span(&self, 1)), std::as_writable_bytes(std::span(all)));
  std::vector<verbs::PortCard> ports;
  std::vector<runtime::TuningCard> tables;
  for (const Introduction& rank : all) {
    ports.push_back(rank.port);
    tables.push_back(rank.tuning);
  }
  require_ports_of_one_kind(ports);  // before what follows from the kind
  require_traces(all, no_trace);
  // A file that one rank has found may forbid it words, about which nobody has asked.
  const bool all_are_automatic = std::all_of(
      all.begin(), all.end(), [](const Introduction& rank) { return rank.is_automatic != 0; });
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].check_level != self.check_level)
      throw Error(ErrorCode::mismatch,
                  "rank " + std::to_string(rank) +
                      " has another check level than this rank: set TUTTI_CHECK alike everywhere");
    if (all[rank].connect_by != self.connect_by)
      throw Error(ErrorCode::mismatch, "rank " + std::to_string(rank) +
                                           " connects in another way than this rank: set "
                                           "TUTTI_CONNECT alike everywhere");
    if (all[rank].notify != self.notify)
      throw Error(ErrorCode::mismatch,
                  "rank " + std::to_string(rank) + " notifies by " +
                      name_of(static_cast<Notify>(all[rank].notify)) + ", this rank by " +
                      name_of(context.settings.notify) +
                      ": set TUTTI_NOTIFY (or notify in code) alike everywhere");
    const bool is_alike = all[rank].shared_notifications == self.shared_notifications;
    if (!is_alike && all_are_automatic)
      shared_notifications = SharedNotifications::republished;
    else if (!is_alike)
      throw Error(ErrorCode::mismatch, "rank " + std::to_string(rank) +
                                           " has shared notifications " +
                                           name_of(all[rank].shared_notifications) +
                                           ", this rank " + name_of(self.shared_notifications) +
                                           ": set TUTTI_SHARED_NOTIFICATIONS (or "
                                           "shared_notifications in code) alike everywhere");
    if (all[rank].node_shape != self.node_shape)
      throw Error(ErrorCode::mismatch, "rank " + std::to_string(rank) +
                                           " imposes another node shape than this rank: set "
                                           "TUTTI_RANKS_PER_NODE, TUTTI_PLACEMENT, "
                                           "TUTTI_RANKS_PER_DOMAIN and TUTTI_DOMAINS_ABOVE alike "
                                           "everywhere");
    if ((all[rank].shrinkable_in != 0) != (self.shrinkable_in != 0))
      throw Error(ErrorCode::mismatch,
                  "rank " + std::to_string(rank) +
                      (self.shrinkable_in != 0 ? " cannot be shrunk, this rank can: "
                                               : " can be shrunk, this rank cannot: ") +
                      "set TUTTI_SHRINKABLE (or shrinkable in code) alike everywhere");
    process_of.push_back(all[rank].process_key);
    partners_max = std::min(partners_max, static_cast<std::uint32_t>(all[rank].connections_max));
    receives_max = std::min(receives_max, static_cast<std::uint32_t>(all[rank].receives_max));
  }
  if (watched) {
    std::vector<runtime::WatchedRank> ranks;
    ranks.reserve(all.size());
    for (const Introduction& rank : all)
      ranks.push_back({.host = rank.neighbour.host,
                       .process = rank.neighbour.mapping.process,
                       .card = rank.watch});
    watched->watch(ranks, context.process_watches);
  }
  if (context.settings.shrinkable && !meeting_place)
    find_meeting_place(
        call, std::all_of(all.begin(), all.end(), [&](const Introduction& rank) {
          return bootstrap::share_process_ids(rank.neighbour.host, self.neighbour.host) &&
                 rank.shrinkable_in == self.shrinkable_in && rank.shrinkable_in != UINT64_MAX;
        }));
  if (!tuning) tuning = runtime::agree_on_tuning(*this, call, tables, ports);
  std::vector<runtime::NeighbourCard> cards;
  cards.reserve(all.size());
  for (const Introduction& rank : all) cards.push_back(rank.neighbour);
  const auto hosts = cpus_by_host(all);
  context.oversubscribed =
      context.oversubscribed ||
      runtime::is_oversubscribed(hosts.at(self.neighbour.host.boot), self.cpus);
  const std::uint64_t made_id = id_of(all);
  if (known) {
    neighbours = std::move(*known);
  } else {
    // Until every rank has told the others its figures, when none measures any more.
    LentMemory lent{context.fabric.arena()};
    neighbours = runtime::meet_neighbours(
        exchange.self(), cards, imposed_nodes(), context.settings, context.wakers,
        context.known_costs,
        [&](std::span<const std::byte> mine) {
          std::vector<std::byte> everybodys(mine.size() * all.size());
          gather(call, mine, everybodys);
          return everybodys;
        },
        [&](const runtime::Measuring& what) {
          return measure_copies(context, what, made_id, lent);
        });
  }
  if (!original_nodes && !context.settings.ranks_per_node.empty())
    original_nodes = std::make_shared<const bootstrap::NodeMap>(neighbours.nodes);
  id = made_id;
  neighbours.domain = runtime::domains_of(neighbours.nodes, cards, context.settings);
  shares_cpus =
      !context.clock.is_simulated() &&
      std::any_of(hosts.begin(), hosts.end(), [](const auto& host) {
        return std::any_of(host.second.begin(), host.second.end(), [&](const detail::CpuSet& cpus) {
          return runtime::is_oversubscribed(host.second, cpus);
        });
      });
  reads = runtime::reads_of(neighbours, context.settings, shares_cpus);
  context.communicators.push_back(this);
}

std::optional<bootstrap::NodeMap> Communicator::Implementation::imposed_nodes() const {
  if (context.settings.ranks_per_node.empty()) return std::nullopt;
  if (original_nodes) return runtime::nodes_of(original, *original_nodes);
  return runtime::imposed_nodes(exchange.rank_count(), context.settings);
}

void Communicator::Implementation::find_meeting_place(runtime::SetUpCall& call, bool all_are_here) {
  std::optional<Error> error;
  bootstrap::MeetingCard own;
  std::shared_ptr<bootstrap::MeetingPlace> found;
  try {
    found = std::make_shared<bootstrap::MeetingPlace>(all_are_here);
    own = found->card(exchange.self());
  } catch (const Error& thrown) {
    error = thrown;
  }
  std::vector<bootstrap::MeetingCard> all(exchange.rank_count());
  gather(call, std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
  if (error) throw *error;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    original.push_back(Rank{static_cast<std::uint32_t>(rank)});
    if (all[rank].port == 0)
      throw Error(ErrorCode::system,
                  "rank " + std::to_string(rank) +
                      " cannot listen, as TUTTI_SHRINKABLE asks; its own error says why");
  }
  found->know(all, exchange.self());
  if (!all_are_here) {
    const std::string obstacle =
        found->obstacle(Deadline::after(step_timeout() / 4, detail::MonotonicClock::read()));
    const std::uint32_t is_cut_off = obstacle.empty() ? 0 : 1;
    std::vector<std::uint32_t> are_cut_off(all.size());
    gather(call, std::as_bytes(std::span(&is_cut_off, 1)),
           std::as_writable_bytes(std::span(are_cut_off)));
    found->empty_queue();  // of the others' attempts
    if (!obstacle.empty()) throw Error(ErrorCode::system, obstacle);
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      if (are_cut_off[rank] != 0)
        throw Error(ErrorCode::system,
                    "rank " + std::to_string(rank) +
                        " cannot connect to another host, as TUTTI_SHRINKABLE needs; its own "
                        "error says why");
  }
  meeting_place = std::move(found);
}

void Communicator::Implementation::retire(
    std::unique_ptr<Operation::Implementation> operation) noexcept {
  reap();
  operation->unpublish();
  if (operation->execution.in_flight || failed() || operation->collect_credits()) return;
  if (!operation->plan.zero_copy) operation->give_back_buffers(false);
  try {
    retired.push_back(std::move(operation));
  } catch (const std::bad_alloc&) {  // its block stays out of use, which is all that is needed
  }
}

void Communicator::Implementation::reap() noexcept {
  if (context.live_network_operations > 0 && !retired.empty()) context.fabric.poll();
  std::erase_if(retired, [&](auto& operation) { return failed() || operation->collect_credits(); });
}

Communicator::Implementation::~Implementation() {
  const Deadline deadline = Deadline::after(retirement_max, context.clock.now());
  Deadline next_look = Deadline::after(Timeout::zero(), context.clock.now());
  while (!retired.empty() && !deadline.passed(context.clock.now())) {
    // This is checked before the last poll, so that a report is not missed that had arrived when
    // its sender left.
    bool in_vain = false;
    if (next_look.passed(context.clock.now())) {
      next_look = Deadline::after(retirement_look_interval, context.clock.now());
      in_vain = std::none_of(retired.begin(), retired.end(),
                             [](const auto& operation) { return operation->may_collect_more(); });
    }
    // A rank that still has to read may wait for another operation first.
    const std::size_t came = context.progress();
    liveness.check(context.clock.now());
    reap();
    if (in_vain && came == 0) break;
    if (!retired.empty()) sched_yield();
  }
  retired.clear();
  detail::check(live_operations == 0,
                "operations, and what was split off, are destroyed before their communicator",
                live_operations);
  std::erase(context.communicators, this);
  if (context.settings.stragglers) runtime::print_stragglers(*this);
}

template <class Step>
auto Communicator::Implementation::over_exchange(Step&& step) {
  require_own();
  // Ranks that meet without this one have looked whether it is there, perhaps often.
  if (meeting_place) meeting_place->make_room_in_queue();
  try {
    return step();
  } catch (const Error& error) {
    liveness.fail_exchange(error);
    throw;
  }
}

runtime::SetUpBlock Communicator::Implementation::block_of(runtime::SetUpCall& call,
                                                           std::span<const std::byte> mine) const {
  runtime::SetUpBlock block{.version = protocol_version,
                            .communicator = id,
                            .payload_bytes = mine.size(),
                            .kind = call.kind,
                            .step = call.step++,
                            .name = {},
                            .payload = {}};
  std::strncpy(block.name, call.name, sizeof block.name - 1);
  std::copy_n(mine.begin(), std::min(mine.size(), runtime::SetUpBlock::payload_bytes_max),
              block.payload.begin());
  return block;
}

void Communicator::Implementation::require_one_call(const runtime::SetUpCall& call,
                                                    std::span<const runtime::SetUpBlock> blocks) {
  try {
    runtime::require_one_call(blocks);
  } catch (const Error&) {
    // A rank that makes another call, perhaps on another communicator, has not counted this one.
    if (call.kind == runtime::CallKind::operation) --operations_made;
    throw;
  }
}

void Communicator::Implementation::gather(runtime::SetUpCall& call, std::span<const std::byte> mine,
                                          std::span<std::byte> everybodys) {
  const runtime::SetUpBlock block = block_of(call, mine);
  std::vector<runtime::SetUpBlock> blocks(exchange.rank_count());
  over_exchange([&] {
    exchange.allgather(std::as_bytes(std::span(&block, 1)),
                       std::as_writable_bytes(std::span(blocks)), step_timeout());
  });
  require_one_call(call, blocks);
  const auto first = mine.first(std::min(mine.size(), runtime::SetUpBlock::payload_bytes_max));
  const auto rest = mine.subspan(first.size());
  std::vector<std::byte> rests(rest.size() * blocks.size());
  if (!rest.empty()) over_exchange([&] { exchange.allgather(rest, rests, step_timeout()); });
  for (std::size_t rank = 0; rank < blocks.size(); ++rank) {
    const auto theirs = everybodys.subspan(rank * mine.size(), mine.size());
    std::copy_n(blocks[rank].payload.begin(), first.size(), theirs.begin());
    std::copy_n(rests.begin() + static_cast<std::ptrdiff_t>(rank * rest.size()), rest.size(),
                theirs.subspan(first.size()).begin());
  }
}

bool Communicator::Implementation::gather_unless_equal(runtime::SetUpCall& call,
                                                       std::span<const std::byte> mine,
                                                       std::span<std::byte> everybodys) {
  detail::check(mine.size() <= runtime::SetUpBlock::payload_bytes_max, "it fits a block",
                mine.size(), runtime::SetUpBlock::payload_bytes_max);
  const runtime::SetUpBlock block = block_of(call, mine);
  std::vector<runtime::SetUpBlock> blocks(exchange.rank_count());
  if (over_exchange([&] {
        return exchange.allgather_unless_equal(std::as_bytes(std::span(&block, 1)),
                                               std::as_writable_bytes(std::span(blocks)),
                                               step_timeout());
      }))
    return true;
  require_one_call(call, blocks);
  for (std::size_t rank = 0; rank < blocks.size(); ++rank)
    std::copy_n(blocks[rank].payload.begin(), mine.size(),
                everybodys.subspan(rank * mine.size()).begin());
  return false;
}

void Communicator::Implementation::swap(runtime::SetUpCall& call, std::span<const Rank> partners,
                                        std::size_t record_bytes, std::span<const std::byte> mine,
                                        std::span<std::byte> theirs) {
  ++call.step;
  over_exchange([&] { exchange.swap(partners, record_bytes, mine, theirs, step_timeout()); });
}

Rank Communicator::Implementation::rank_of(std::uint64_t process) const noexcept {
  const auto found = std::find(process_of.begin(), process_of.end(), process);
  return process == 0 || found == process_of.end()
             ? no_rank
             : Rank{static_cast<std::uint32_t>(found - process_of.begin())};
}

bool Communicator::Implementation::uses_connection(std::uint32_t index) const noexcept {
  const auto uses = [&](const auto& operation) {
    const std::span<const std::uint32_t> used = operation->channel.network.used();
    return std::find(used.begin(), used.end(), index) != used.end();
  };
  return std::any_of(operations.begin(), operations.end(), uses) ||
         std::any_of(retired.begin(), retired.end(), uses);
}

void Communicator::Implementation::fail(Status status, Rank peer, const char* what,
                                        const Operation::Implementation* met_by,
                                        std::uint32_t completion, int system_errno) noexcept {
  if (failed()) return;
  context.fabric.connections().note_failure(process_of, true, connections_end);
  usable = &unusable;
  if (met_by == nullptr) met_by = any_in_flight();
  failure = {.status = status,
             .peer = peer,
             .operation = met_by ? met_by->ordinal : 0,
             .sequence = met_by ? met_by->execution.call() : 0,
             .round = met_by ? met_by->round() : 0,
             .completion = completion,
             .system_errno = system_errno,
             .text = {}};
  // Who is not of this part of a communicator has no number here.
  char who[32] = "a peer";
  if (!watched) std::strcpy(who, "a rank of another part");
  if (peer != no_rank) std::snprintf(who, sizeof who, "rank %u", index_of(peer));
  if (met_by)
    std::snprintf(failure.text, sizeof failure.text,
                  "%s: %s: %s (%s #%u%s%s%s, call %llu, round %u)", name_of(status), who, what,
                  met_by->name, met_by->ordinal, *met_by->record.label != 0 ? " \"" : "",
                  met_by->record.label, *met_by->record.label != 0 ? "\"" : "",
                  static_cast<unsigned long long>(failure.sequence), failure.round);
  else
    std::snprintf(failure.text, sizeof failure.text, "%s: %s: %s", name_of(status), who, what);
  if (completion != IBV_WC_SUCCESS) {  // as much of the hint as there is room for
    const std::size_t used = std::strlen(failure.text);
    std::snprintf(failure.text + used, sizeof failure.text - used, "; %s",
                  verbs::words_of(static_cast<ibv_wc_status>(completion)).hint);
  }
  context.trace_untimed_calls();
  const auto end_call = [&](Operation::Implementation* operation) {
    if (&operation->communicator != this) return false;
    operation->execution.in_flight = false;
    if (operation->tracing) operation->tracing->fail();
    if (operation->withdrawn != nullptr) shm::withdraw(operation->withdrawn);
    return true;
  };
  std::erase_if(context.in_flight, end_call);
  std::erase_if(set_aside, end_call);
  // Neighbours that sleep ask for the reason now, not when they next ask by themselves; also those
  // that are not of this part of a communicator, whose exchange has heard of it.
  context.wakers.alarm();
  if (context.trace) context.trace->fail(failure.text);  // last, because it takes its time
}

void Communicator::Implementation::fail_by(const verbs::TransportFailure& cause, Status status,
                                           Rank peer) noexcept {
  if (failed()) return;
  if (cause.completion == IBV_WC_SUCCESS)
    return fail(status, peer, cause.what.data(), nullptr, 0, cause.system_errno);
  const verbs::CompletionWords words = verbs::words_of(cause.completion);
  char what[128];
  std::snprintf(what, sizeof what, "%s (%s of a %s)", words.meaning, words.name,
                cause.is_receive ? "receive" : "write");
  fail(status, peer, what, nullptr, static_cast<std::uint32_t>(cause.completion),
       cause.system_errno);
}

void Communicator::Implementation::fail_all(Incident incident, const char* what,
                                            const Operation::Implementation* met_by) noexcept {
  exchange.announce(incident);
  fail(incident.kind == Incident::Kind::aborted ? Status::aborted : Status::peer_failed,
       incident.rank, what, met_by);
}

void Communicator::Implementation::announce_failed_operator(
    const Operation::Implementation& operation) noexcept {
  shm::IncidentBoard::Text reason{};
  std::snprintf(reason.data(), reason.size(), "its operator failed in %s #%u, call %llu: %s",
                operation.name, operation.ordinal,
                static_cast<unsigned long long>(operation.execution.call()),
                operation.user_operator.text.data());
  if (spreads_by == nullptr || spreads_by->explain(reason))
    exchange.announce({Incident::Kind::aborted, exchange.self()});
}

shm::IncidentBoard::Text Communicator::Implementation::reason_of_incident() const noexcept {
  shm::IncidentBoard::Text reason{};
  if (spreads_by != nullptr) reason = spreads_by->explanation();
  if (reason.front() == '\0') std::snprintf(reason.data(), reason.size(), "gave up");
  return reason;
}

const Operation::Implementation* Communicator::Implementation::any_in_flight() const noexcept {
  if (!set_aside.empty()) return set_aside.front();
  const auto found =
      std::find_if(context.in_flight.begin(), context.in_flight.end(),
                   [&](const auto* operation) { return &operation->communicator == this; });
  return found == context.in_flight.end() ? nullptr : *found;
}

void Communicator::Implementation::disown() noexcept {
  usable = &unusable;
  if (!failed()) {
    failure = {.status = Status::aborted, .text = {}};
    std::snprintf(failure.text, sizeof failure.text, "%s: %s", name_of(failure.status),
                  runtime::text_for_forked_child);
  }
  const auto end_call = [&](Operation::Implementation* operation) {
    if (&operation->communicator != this) return false;
    operation->execution.in_flight = false;
    return true;
  };
  std::erase_if(context.in_flight, end_call);
  std::erase_if(set_aside, end_call);
}

void Communicator::Implementation::require_own() const {
  if (context.mark.is_inherited())
    throw Error(ErrorCode::invalid_argument, runtime::text_for_forked_child);
}

void Communicator::Implementation::require_usable() const {
  require_own();
  if (failed())
    throw Error(ErrorCode::peer_failed,
                std::string("the communicator has failed: ") + failure.text);
}

Communicator::Communicator(Context& context, Exchange& exchange)
    : implementation_(std::make_unique<Implementation>(context.implementation(), exchange)) {}
Communicator::Communicator(std::unique_ptr<Implementation> made) noexcept
    : implementation_(std::move(made)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&& other) noexcept {
  Communicator taken(std::move(other));
  std::swap(implementation_, taken.implementation_);
  return *this;
}
Communicator::~Communicator() {
  if (implementation_) runtime::destroy_own(implementation_, implementation_->context.mark);
}

Rank Communicator::rank() const noexcept {
  return implementation_->exchange.self();
}

std::uint32_t Communicator::rank_count() const noexcept {
  return implementation_->exchange.rank_count();
}

Node Communicator::node() const noexcept {
  return implementation_->neighbours.nodes.node[index_of(rank())];
}

std::uint32_t Communicator::node_count() const noexcept {
  return implementation_->neighbours.nodes.node_count;
}

std::string Communicator::single_copy_remark() const {
  const runtime::Neighbourhood& neighbours = implementation_->neighbours;
  if (neighbours.nodes.node_count != 1) return "never: ranks are on several nodes";
  if (rank_count() == 1) return "never: there is one rank";
  if (!neighbours.reads_peers)
    return "never: not every rank may, or is asked to (process_vm_readv)";
  const std::string ranges = shm::text_of(implementation_->reads);
  if (implementation_->context.settings.single_copy_bytes) return ranges + " (as asked)";
  if (neighbours.costs.empty() || !neighbours.costs.front() ||
      neighbours.costs.front()->is_word_alone)
    return "never: the two ranks that measure what it costs did not meet in time, or their figures "
           "did not agree (busy CPUs?); results are the same, large payloads may take longer";
  return ranges + " (measured: " + shm::text_of(*neighbours.costs.front()) + ")";
}

const std::string& Communicator::node_remark() const noexcept {
  return implementation_->neighbours.remark;
}

Communicator Communicator::shrink(Timeout timeout) {
  return Communicator(runtime::shrink(*implementation_, timeout));
}

void Communicator::abort() noexcept {
  if (implementation_->settled() == Status::ok)
    implementation_->fail_all({Incident::Kind::aborted, rank()}, "abort() was called", nullptr);
}

void Communicator::synchronize() {
  runtime::SetUpCall call{runtime::CallKind::synchronize, "synchronize"};
  std::byte none{};  // GCC 12 warns of copies of no bytes from a null pointer
  implementation_->gather(call, {&none, 0}, {&none, 0});  // No rank leaves before all enter.
}

Status Communicator::progress() noexcept {
  if (implementation_->context.mark.is_inherited()) return implementation_->settled();
  implementation_->context.progress();
  implementation_->liveness.check_now_and_then();
  return implementation_->failure.status;
}

std::string Communicator::report(ReportFormat format) const {
  implementation_->require_own();
  return runtime::report_of(*implementation_, format);
}

const Failure& Communicator::failure() const noexcept {
  (void)implementation_->settled();  // which is a failure in a forked child
  return implementation_->failure;
}

}  // namespace tutti
