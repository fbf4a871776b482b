#include "verbs/connections.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "verbs/port_card.hpp"

namespace tutti::verbs {
namespace {

std::optional<ConnectionManager> make_manager(const Port& port, const ConnectionOptions& options) {
  if (!options.by_cm) return std::nullopt;
  const std::string obstacle = obstacle_to_address(port.description, port.gid);
  if (!obstacle.empty())
    throw Error(ErrorCode::unsupported,
                "TUTTI_CONNECT=cm (or code): " + port.name() + " is " + obstacle);
  return std::optional<ConnectionManager>(std::in_place, port, options.process, librdmacm_driver(),
                                          options.path);
}

CompletionChannelHandle make_events(const Port& port, bool are_wanted) {
  if (!are_wanted) return nullptr;
  CompletionChannelHandle events(port.driver().create_comp_channel(port.device.get()),
                                 {&port.driver()});
  if (!events)
    throw Error(ErrorCode::system,
                "create_comp_channel on " + port.name() + ": " + std::strerror(errno) +
                    " (TUTTI_WAIT=block sleeps there)",
                errno);
  // All events are taken after a sleep, until there is none.
  const int flags = ::fcntl(events->fd, F_GETFL);
  if (flags < 0 || ::fcntl(events->fd, F_SETFL, flags | O_NONBLOCK) != 0)
    throw Error(ErrorCode::system, std::string("fcntl: ") + std::strerror(errno), errno);
  return events;
}

/// Completions that a queue pair can have unpolled, see QueuePair::completions_max().
std::uint32_t completions_each(const Port& port, const QueuePairLimits& wanted) {
  const std::uint32_t requests_max = requests_max_of(port);
  return std::min(wanted.receives_max, requests_max) + std::min(wanted.sends_max, requests_max);
}

}  // namespace

Connections::Connections(const Port& port, ibv_pd* domain, const ConnectionOptions& options)
    : port_(port),
      domain_(domain),
      options_(options),
      manager_(make_manager(port, options)),
      events_(make_events(port, options.raises_events)),
      completion_queues_(port, completions_each(port, options.queue_pair), events_.get()) {}

std::uint32_t Connections::count_max() const noexcept {
  return completion_queues_.connections_max();
}

void Connections::require_room_for(std::span<const std::uint64_t> processes) const {
  const auto added = static_cast<std::size_t>(
      std::count_if(processes.begin(), processes.end(),
                    [&](std::uint64_t process) { return !by_process_.contains(process); }));
  const std::size_t sum = by_process_.size() + added;
  if (sum <= count_max()) return;
  throw Error(ErrorCode::limit_exceeded,
              "this rank has " + std::to_string(by_process_.size()) + " connections and needs " +
                  std::to_string(added) + " more, and a context on " + port_.name() +
                  " has at most " + std::to_string(count_max()) + " (device limit " +
                  std::to_string(port_.limits.max_qp) + " queue pairs, " +
                  completion_queues_.limits() + ", of which a connection takes " +
                  std::to_string(completion_queues_.entries_each()) +
                  "); use fewer messages per round, or an algorithm that connects fewer ranks");
}

std::uint32_t Connections::receives_promised_max() const noexcept {
  const std::uint32_t receives_max =
      std::min(options_.queue_pair.receives_max, requests_max_of(port_));
  return receives_max - receive_batch(receives_max);
}

std::uint32_t Connections::to(std::uint64_t process) {
  if (const auto found = by_process_.find(process); found != by_process_.end())
    return found->second;
  if (by_process_.size() >= static_cast<std::size_t>(port_.limits.max_qp))
    throw Error(ErrorCode::limit_exceeded, port_.name() + " has at most " +
                                               std::to_string(port_.limits.max_qp) +
                                               " queue pairs; use fewer messages per round");
  const std::uint32_t index = count();
  const std::uint32_t queue = completion_queues_.add_connection();
  try {
    QueuePair pair(port_, domain_, completion_queues_[queue], options_.queue_pair);
    assert(pair.completions_max() == completion_queues_.entries_each());
    Connection& made = connections_.emplace_back(index, process, std::move(pair));
    made.completion_queue = queue;
    if (const int error = made.post_receives(made.pair->receives_max()); error != 0)
      throw Error(ErrorCode::system, "post_recv on " + port_.name() + ": " + std::strerror(error),
                  error);
    by_process_.emplace(process, index);
  } catch (...) {
    while (count() > index) connections_.pop_back();
    completion_queues_.remove_connection(queue);
    throw;
  }
  return index;
}

Endpoint Connections::endpoint(std::uint32_t index) const {
  Endpoint endpoint = (*this)[index].pair->endpoint();
  if (manager_) endpoint.service_port = manager_->service_port();
  return endpoint;
}

void Connections::connect(std::span<const NewPartner> partners, const ConnectPatience& patience) {
  for (const NewPartner& partner : partners) {
    const Endpoint local = endpoint(partner.connection);
    if (const std::string reason = incompatibility(card_of(local), card_of(partner.remote));
        !reason.empty())
      throw Error(ErrorCode::mismatch, "cannot connect to " + partner.name + ": " + reason +
                                           "; here " + text_of(local) + "; there " +
                                           text_of(partner.remote));
  }
  if (manager_) {
    connect_by_cm(partners, patience);
  } else {
    for (const NewPartner& partner : partners)
      connections_[partner.connection].pair->connect(partner.remote, partner.name, options_.path);
  }
  for (const NewPartner& partner : partners) connections_[partner.connection].connected = true;
}

void Connections::connect_by_cm(std::span<const NewPartner> partners,
                                const ConnectPatience& patience) {
  std::vector<CmPartner> asked;
  for (const NewPartner& partner : partners) {
    Connection& connection = connections_[partner.connection];
    asked.push_back({.ends = {.process = options_.process,
                              .peer = connection.process,
                              .local = endpoint(partner.connection),
                              .remote = partner.remote},
                     .pair = &*connection.pair,
                     .name = partner.name});
  }
  manager_->connect(asked, port_.driver().clock(), patience);
  for (std::size_t i = 0; i < asked.size(); ++i)
    connections_[partners[i].connection].id = std::move(asked[i].id);
}

void Connections::abandon_from(std::uint32_t first) noexcept {
  for (std::uint32_t i = first; i < count(); ++i) {
    Connection& connection = connections_[i];
    if (!connection.pair) continue;
    assert(connection.receives_reserved == 0);
    by_process_.erase(connection.process);
    if (connection.unheard) --unheard_;
    connection.unheard.reset();
    connection.pair.reset();
    connection.id.reset();
    completion_queues_.remove_connection(connection.completion_queue);
  }
}

void Connections::fail(Connection& connection, const TransportFailure& failure) noexcept {
  if (connection.failed || !connection.pair) return;
  assert(failure.process == connection.process);
  assert(!failure.what.empty());
  connection.failed = true;
  connection.sends.close();
  // Whatever the reason, nothing may leave it or come through it from now on.
  connection.pair->close();
  connection.unheard = failure;
  ++unheard_;
}

void Connections::fail_all_of(const ibv_cq* completion_queue, const char* what) noexcept {
  for (Connection& connection : connections_)
    if (completion_queues_[connection.completion_queue] == completion_queue)
      fail(connection, {.process = connection.process, .what = what});
}

Status Connections::post_failed_slow(Connection& connection, int error) noexcept {
  fail(connection, {.process = connection.process, .system_errno = error, .what = "ibv_post_send"});
  return Status::transport_failed;
}

TransportFailure Connections::next_failure() noexcept {
  const auto found =
      std::find_if(connections_.begin(), connections_.end(),
                   [](const Connection& connection) { return connection.unheard.has_value(); });
  assert(found != connections_.end());
  const TransportFailure failure = *found->unheard;
  found->unheard.reset();
  --unheard_;
  return failure;
}

void Connections::refill(Connection& connection) noexcept {
  const std::uint32_t used = std::exchange(connection.receives_used, 0);
  if (const int error = connection.post_receives(used); error != 0)
    fail(connection, {.process = connection.process, .system_errno = error, .what = "post_recv"});
}

bool Connections::say_farewells() noexcept {
  bool known = true;
  for (Connection& connection : connections_) known = knows_farewell(connection) && known;
  return known;
}

bool Connections::knows_farewell(Connection& connection) noexcept {
  if (!connection.pair || !connection.connected || connection.failed || connection.left)
    return true;
  if (connection.took_leave) return connection.sends.in_flight() == 0;
  if (!connection.sends.has_credit()) return false;
  connection.took_leave = true;
  const int error =
      connection.sends.notify(connection.pair->get(), connection.index, Immediate::farewell);
  if (error != 0) (void)post_failed_slow(connection, error);
  return error != 0;
}

}  // namespace tutti::verbs
