#include "runtime/context.hpp"

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <random>
#include <string>
#include <tutti/detail/check.hpp>
#include <tutti/detail/copy.hpp>
#include <utility>

#include "engine/advance.hpp"
#include "runtime/liveness.hpp"
#include "runtime/operation.hpp"
#include "runtime/report.hpp"
#include "verbs/lock_limit.hpp"

namespace tutti {
namespace {

/// How long a context takes its leave of its peers.  A peer that is alive and whose device needs no
/// help from its program answers within microseconds.  If a peer does not answer, nothing is lost
/// but this time.
constexpr Timeout farewell_timeout = std::chrono::seconds(1);

static_assert(verbs::Arena::header_bytes >= shm::OfferedMapping::header_bytes);
static_assert(runtime::ActivityBoard::offset >= shm::SleepBoard::offset + sizeof(shm::SleepBoard));
static_assert(runtime::ActivityBoard::offset + sizeof(runtime::ActivityBoard) <=
              verbs::Arena::header_bytes);

}  // namespace

std::uint64_t runtime::random_key() {
  std::random_device source;
  return std::uint64_t{source()} << 32 | source() | 1;
}

Context::Implementation::Implementation(const ContextOptions& given)
    : settings(runtime::context_settings(given)),
      process_key(runtime::random_key()),
      fabric({.device = settings.device,
              .arena_bytes = settings.arena_bytes,
              .bytes_besides = runtime::staging_bytes(settings.arena_bytes),
              .connections = {.by_cm = settings.connect == ConnectBy::cm,
                              .count_max = settings.connections_max,
                              .process = process_key,
                              .raises_events = settings.wait == WaitPolicy::block}}),
      offered(process_key, fabric.arena().mapping(), fabric.arena().descriptor()),
      activity(fabric.arena().mapping()->data(), fabric.connections().completion_errors()),
      clock(fabric.port().driver().clock()),
      found_table(runtime::find_table(settings, fabric.port())) {
  fabric.learn(runtime::found_placement(found_table));
  if (settings.notify == Notify::flag) fabric.require_lines();
  shared_notifications = runtime::choose_shared_notifications(
                             settings.shared_notifications, runtime::promises_order(fabric.port()),
                             clock.is_simulated())
                             .in_force;
  if (const std::size_t bytes = runtime::staging_bytes(settings.arena_bytes); bytes > 0)
    staging_memory = {fabric.arena().set_aside(bytes), bytes};
  if (settings.wait == WaitPolicy::block && !clock.is_simulated())
    sleeper.emplace(fabric.arena().mapping());
  static_cast<void>(detail::has_slow_distances());  // measured now, not while data move
  if (settings.report_signal != 0) {
    runtime::report_on_signal(settings.report_signal);
    reports_printed = runtime::report_signals();
  }
  if (!clock.is_simulated()) return;
  if (settings.ranks_per_node.empty()) settings.ranks_per_node = {1};
  // What a probe finds depends on the machine, which virtual time does not.
  if (!settings.single_copy_bytes) settings.single_copy_bytes = SIZE_MAX;
}

Context::Implementation::~Implementation() {
  detail::check(communicators.empty(), "communicators are destroyed before their context",
                communicators.size());
  detail::check(segments.empty(), "segments are destroyed before their context", segments.size());
  if (!fabric.connections().has_met_failure()) fabric.take_leave(clock, farewell_timeout);
}

shm::StagingRing* Context::Implementation::use_staging_ring() {
  if (staging_ring) return &*staging_ring;
  if (staging_memory.empty()) return nullptr;
  try {
    fabric.arena().provide(staging_memory.data(), staging_memory.size());
  } catch (const Error&) {  // partials stay in the blocks of their operations
    return nullptr;
  }
  detail::enter_pages(staging_memory.data(), staging_memory.size());
  return &staging_ring.emplace(staging_memory.data(), staging_memory.size());
}

std::string Context::Implementation::open_trace(Rank rank) try {
  if (settings.trace_file.empty() || trace) return "";
  trace = std::make_unique<runtime::Trace>(settings.trace_file, rank, settings.trace_bytes, clock);
  // In simulated time a stamp costs nothing.
  if (settings.trace_samples && !clock.is_simulated()) trace->sample(trace->measure_stamp());
  return "";
} catch (const Error& error) {
  return error.what();
} catch (const std::bad_alloc&) {
  return "TUTTI_TRACE_BYTES=" + std::to_string(settings.trace_bytes) + ": no memory for so many";
}

const ibv_mr& Context::Implementation::neighbour_arena(std::uint64_t process,
                                                       const runtime::NeighbourMapping& theirs) {
  const auto known = neighbour_arenas.find(process);
  if (known != neighbour_arenas.end()) return *known->second.region;
  // The software device lets peers map a file of which whoever registers it has a descriptor.
  const detail::Descriptor file = shm::open_offered(theirs.card);
  verbs::RegionHandle region = fabric.register_memory(
      theirs.mapping->data(), theirs.mapping->size(),
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | verbs::access_on_demand(fabric.port()),
      "the arena of a rank of this node");
  return *neighbour_arenas.emplace(process, NeighbourArena{theirs.mapping, std::move(region)})
              .first->second.region;
}

void Context::Implementation::print_reports_slow() noexcept {
  reports_printed = runtime::report_signals();
  try {
    std::string text;
    for (const Communicator::Implementation* communicator : communicators)
      text += runtime::report_of(*communicator, ReportFormat::text);
    std::fputs(text.c_str(), stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tutti: no report: %s\n", error.what());
  }
}

void Context::Implementation::disown_slow() noexcept {
  for (Communicator::Implementation* communicator : communicators) communicator->disown();
}

std::size_t Context::Implementation::progress() noexcept {
  const std::size_t completions = live_network_operations > 0 ? fabric.poll() : 0;
  runtime::JoinedFabric joined{fabric};
  for (std::size_t i = 0; i < in_flight.size();) {
    Operation::Implementation& operation = *in_flight[i];
    // Whatever else advance() says, the operation stays in flight: after a failed connection until
    // its communicator has been told and has found out why.
    if (operation.advance(joined) == Status::ok) {
      in_flight[i] = in_flight.back();
      in_flight.pop_back();
    } else {
      ++i;
    }
  }
  if (fabric.connections().has_news()) [[unlikely]]
    hear_failures_slow();
  return completions;
}

void Context::Implementation::trace_untimed_calls_slow() noexcept {
  for (Operation::Implementation* operation : in_flight) operation->trace_untimed_call();
}

std::uint64_t Context::Implementation::position() const noexcept {
  std::uint64_t position = 0;
  for (const Operation::Implementation* operation : in_flight) position += operation->position();
  return position;
}

bool Context::Implementation::can_be_woken() const noexcept {
  // Lines, and words that the ranks of a node share, come without a completion.
  return sleeper && std::none_of(in_flight.begin(), in_flight.end(), [](const auto* operation) {
           return operation->uses_lines || operation->ring() != nullptr;
         });
}

void Context::Implementation::sleep(runtime::Liveness& watched, Timeout now,
                                    Timeout at_most) noexcept {
  assert(can_be_woken());
  const bool polls_device = live_network_operations > 0;
  const std::uint64_t before = position();
  sleeper->lie_down();
  const bool is_armed = !polls_device || fabric.request_event();
  bool is_alarmed = sleeper->takes_alarm();
  // What has come before both were armed wakes nobody.  If this step meets a failure, a check is
  // due at once.
  if (progress() == 0 && position() == before && !is_alarmed && now < watched.next_check()) {
    // Where the device refuses events, it is polled again after a nap.
    constexpr Timeout nap = std::chrono::milliseconds(1);
    const bool has_event =
        is_armed ? sleeper->sleep(polls_device ? fabric.event_descriptor() : -1, at_most)
                 : sleeper->sleep(-1, std::min(at_most, nap));
    // A signal handler may have forked, and the word of the sleeper is not the child's.
    if (mark.is_inherited()) return;
    if (has_event) fabric.take_events();
    is_alarmed = sleeper->takes_alarm();
  }
  sleeper->get_up();
  // Whichever communicator it was for.
  if (is_alarmed)
    for (Communicator::Implementation* communicator : communicators)
      communicator->liveness.alarm(clock.now());
}

bool Context::Implementation::has_retired() const noexcept {
  return std::any_of(communicators.begin(), communicators.end(),
                     [](const auto* communicator) { return !communicator->retired.empty(); });
}

void Context::Implementation::hear_failures_slow() noexcept {
  verbs::Connections& connections = fabric.connections();
  while (connections.has_news()) {
    const verbs::TransportFailure cause = connections.next_failure();
    for (Communicator::Implementation* communicator : communicators)
      if (const Rank peer = communicator->rank_of(cause.process);
          peer != no_rank && (!cause.was_let_go || communicator->uses_connection(cause.connection)))
        communicator->liveness.suspect(cause, peer);
  }
}

Context::Context(const ContextOptions& options)
    : implementation_(std::make_unique<Implementation>(options)) {}
Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&& other) noexcept {
  Context taken(std::move(other));
  std::swap(implementation_, taken.implementation_);
  return *this;
}
Context::~Context() {
  if (implementation_) runtime::destroy_own(implementation_, implementation_->mark);
}

std::string Context::device_name() const {
  return implementation_->fabric.port().name();
}

std::string Context::device_choice() const {
  const verbs::Port& port = implementation_->fabric.port();
  return port.name() + " (" + port.reason + "), GID[" + std::to_string(port.gid.index) + "] " +
         verbs::text_of(port.gid.gid) + " " + verbs::name_of(port.gid.type);
}

}  // namespace tutti
