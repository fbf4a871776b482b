#include <sched.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <string>
#include <tutti/detail/check.hpp>

#include "api/implementation.hpp"
#include "bootstrap/node_map.hpp"

namespace tutti {
namespace {

/// What every rank tells every other when a communicator is made.
struct Introduction {
  std::uint64_t version;
  std::uint64_t process_key;
  std::uint64_t check_level;
  std::array<std::uint64_t, 16> cpus;  // allowed, as a bit set
  bootstrap::HostIdentity host;
};
static_assert(std::is_trivially_copyable_v<Introduction>);

constexpr std::uint64_t protocol_version = 1;

std::array<std::uint64_t, 16> allowed_cpus() {
  std::array<std::uint64_t, 16> set{};
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return set;
  for (unsigned cpu = 0; cpu < 1024 && cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) set[cpu / 64] |= std::uint64_t{1} << cpu % 64;
  return set;
}

/// Whether the ranks that may run only where this one may are more than those CPUs.
bool is_oversubscribed(std::span<const Introduction> all, const Introduction& self) {
  int cpus = 0;
  for (const std::uint64_t word : self.cpus) cpus += std::popcount(word);
  const auto confined = std::count_if(all.begin(), all.end(), [&](const Introduction& other) {
    if (other.host.boot != self.host.boot) return false;  // CPUs are shared across namespaces
    for (std::size_t i = 0; i < self.cpus.size(); ++i)
      if ((other.cpus[i] & ~self.cpus[i]) != 0) return false;
    return true;
  });
  return cpus > 0 && confined > cpus;
}

}  // namespace

Communicator::Implementation::Implementation(Context::Implementation& owner, Exchange& given)
    : context(owner), exchange(given) {
  const Introduction self{.version = protocol_version,
                          .process_key = context.process_key,
                          .check_level = static_cast<std::uint64_t>(context.options.check),
                          .cpus = allowed_cpus(),
                          .host = bootstrap::host_identity()};
  std::vector<Introduction> all(exchange.rank_count());
  exchange.allgather(std::as_bytes(std::span(&self, 1)), std::as_writable_bytes(std::span(all)),
                     context.options.setup_timeout);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].version != protocol_version)
      throw Error(ErrorCode::mismatch, "rank " + std::to_string(rank) + " speaks protocol " +
                                           std::to_string(all[rank].version) + ", this rank " +
                                           std::to_string(protocol_version) +
                                           ": use one version of tutti everywhere");
    if (all[rank].check_level != self.check_level)
      throw Error(ErrorCode::mismatch,
                  "rank " + std::to_string(rank) +
                      " has another check level than this rank: set TUTTI_CHECK alike everywhere");
    process_of.push_back(all[rank].process_key);
  }
  context.oversubscribed = context.oversubscribed || is_oversubscribed(all, self);
  context.communicators.push_back(this);
}

Communicator::Implementation::~Implementation() {
  std::erase(context.communicators, this);
}

Rank Communicator::Implementation::rank_of(std::uint64_t process) const noexcept {
  const auto found = std::find(process_of.begin(), process_of.end(), process);
  return process == 0 || found == process_of.end()
             ? no_rank
             : Rank{static_cast<std::uint32_t>(found - process_of.begin())};
}

void Communicator::Implementation::fail(Status status, Rank peer, const char* what,
                                        const Operation::Implementation* met_by,
                                        std::uint32_t completion, int system_errno) noexcept {
  if (failed()) return;
  failure = {.status = status,
             .peer = peer,
             .operation = met_by ? met_by->ordinal : 0,
             .sequence = met_by ? met_by->execution.sequence : 0,
             .round = met_by ? met_by->round() : 0,
             .completion = completion,
             .system_errno = system_errno,
             .text = {}};
  char who[32] = "a peer";
  if (peer != no_rank) std::snprintf(who, sizeof who, "rank %u", index_of(peer));
  if (met_by)
    std::snprintf(failure.text, sizeof failure.text, "%s: %s: %s (%s #%u, call %llu, round %u)",
                  name_of(status), who, what, met_by->name, met_by->ordinal,
                  static_cast<unsigned long long>(failure.sequence), failure.round);
  else
    std::snprintf(failure.text, sizeof failure.text, "%s: %s: %s", name_of(status), who, what);
  std::erase_if(context.in_flight, [&](Operation::Implementation* operation) {
    if (&operation->communicator != this) return false;
    operation->execution.in_flight = false;
    return true;
  });
}

bool Communicator::Implementation::adopt_incident() noexcept {
  const Incident incident = exchange.incident();
  const auto witness =
      std::find_if(context.in_flight.begin(), context.in_flight.end(),
                   [&](const auto* operation) { return &operation->communicator == this; });
  const Operation::Implementation* met_by = witness == context.in_flight.end() ? nullptr : *witness;
  switch (incident.kind) {
    case Incident::Kind::none:
      return false;
    case Incident::Kind::died:
      fail(Status::peer_failed, incident.rank, "has died", met_by);
      return true;
    case Incident::Kind::aborted:
      fail(Status::aborted, incident.rank, "gave up", met_by);
      return true;
  }
  return false;
}

void Communicator::Implementation::check_liveness(Timeout now) noexcept {
  if (failed() || now < next_liveness_check) return;
  next_liveness_check = now + std::chrono::milliseconds(100);
  if (adopt_incident()) return;
  // A peer that has said goodbye sends nothing more.  What it sent before is there: it drained its
  // sends first, and one more poll after the goodbye shows everything.
  for (std::size_t i = 0; i < context.in_flight.size(); ++i) {
    const Operation::Implementation& operation = *context.in_flight[i];
    if (&operation.communicator != this) continue;
    const engine::Execution& execution = operation.execution;
    const plan::Step& step = execution.steps[execution.next];
    if (step.action != plan::Action::await || !exchange.has_left(step.peer)) continue;
    const std::uint64_t sequence = execution.sequence;
    const std::size_t position = execution.next;
    if (context.progress() != Status::ok) return;
    if (execution.in_flight && execution.sequence == sequence && execution.next == position) {
      fail(Status::peer_failed, step.peer, "has left while it was awaited", &operation);
      return;
    }
    i = static_cast<std::size_t>(-1);  // progress() changed the list: look again from the start
  }
}

Communicator::Communicator(Context& context, Exchange& exchange)
    : implementation_(std::make_unique<Implementation>(context.implementation(), exchange)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

Rank Communicator::rank() const noexcept {
  return implementation_->exchange.self();
}

std::uint32_t Communicator::rank_count() const noexcept {
  return implementation_->exchange.rank_count();
}

void Communicator::abort() noexcept {
  if (implementation_->failed()) return;
  implementation_->exchange.announce({Incident::Kind::aborted, rank()});
  implementation_->fail(Status::aborted, rank(), "abort() was called", nullptr);
}

void Communicator::synchronize() {
  implementation_->exchange.barrier(implementation_->context.options.setup_timeout);
}

Status Communicator::progress() noexcept {
  (void)implementation_->context.progress();
  return implementation_->failure.status;
}

const Failure& Communicator::failure() const noexcept {
  return implementation_->failure;
}

}  // namespace tutti
