#include "verbs/connections.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <tutti/detail/check.hpp>
#include <utility>

#include "verbs/completion_words.hpp"

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

constexpr std::string_view let_go_reason =
    "its connection was let go when ranks met again (shrink)";

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
  const std::uint32_t of_device = completion_queues_.connections_max();
  return options_.count_max > 0 ? std::min(options_.count_max, of_device) : of_device;
}

bool Connections::has(std::uint64_t process) const noexcept {
  const auto found = by_process_.find(process);
  return found != by_process_.end() && !(*this)[found->second].peer_closed;
}

std::size_t Connections::added_by(std::span<const std::uint64_t> processes) const noexcept {
  return static_cast<std::size_t>(
      std::count_if(processes.begin(), processes.end(), [&](std::uint64_t process) {
        const auto found = by_process_.find(process);
        return found == by_process_.end() || (*this)[found->second].is_left_over();
      }));
}

std::vector<std::uint32_t> Connections::idle_beside(
    std::span<const std::uint64_t> processes) const {
  std::vector<std::uint32_t> idle;
  for (const Connection& connection : connections_)
    if ((connection.is_idle() || connection.is_lost()) &&
        std::find(processes.begin(), processes.end(), connection.process) == processes.end())
      idle.push_back(connection.index);
  return idle;
}

bool Connections::can_have_room_for(std::span<const std::uint64_t> processes) const {
  const auto left_over = static_cast<std::size_t>(
      std::count_if(connections_.begin(), connections_.end(),
                    [](const Connection& connection) { return connection.is_left_over(); }));
  assert(left_over <= open_);
  const std::size_t sum = open_ - left_over + added_by(processes);
  return sum <= count_max() || sum - count_max() <= idle_beside(processes).size();
}

std::vector<std::uint32_t> Connections::in_the_way_of(
    std::span<const std::uint64_t> processes) const {
  const std::size_t added = added_by(processes);
  const std::size_t sum = open_ + added;
  if (sum <= count_max()) return {};
  const std::size_t surplus = sum - count_max();
  std::vector<std::uint32_t> idle = idle_beside(processes);
  if (surplus > idle.size()) {
    const auto stuck =
        std::count_if(connections_.begin(), connections_.end(),
                      [](const Connection& connection) { return connection.is_stuck(); });
    throw Error(
        ErrorCode::limit_exceeded,
        "this rank has " + std::to_string(open_) + " connections, of which " +
            std::to_string(idle.size()) + " can be closed" +
            (stuck > 0 ? " and " + std::to_string(stuck) +
                             " are lost (operations over them have failed: make another context)"
                       : "") +
            ", and needs " + std::to_string(added) + " more, and a context on " + port_.name() +
            " has at most " + std::to_string(count_max()) +
            (options_.count_max > 0
                 ? " (TUTTI_CONNECTIONS_MAX or code: " + std::to_string(options_.count_max) + ")"
                 : "") +
            // The advice comes before the details, of which other ranks may get less.
            "; destroy operations, use fewer messages per round, or an algorithm that connects "
            "fewer ranks; device limit " +
            std::to_string(port_.limits.max_qp) + " queue pairs, " + completion_queues_.limits() +
            ", of which a connection takes " + std::to_string(completion_queues_.entries_each()));
  }
  // What has failed goes first, as it serves nobody.
  std::sort(idle.begin(), idle.end(), [&](std::uint32_t one, std::uint32_t other) {
    const Connection &left = (*this)[one], &right = (*this)[other];
    return left.failed != right.failed ? left.failed : left.used_at < right.used_at;
  });
  idle.resize(surplus);
  return idle;
}

std::uint32_t Connections::receives_promised_max() const noexcept {
  const std::uint32_t receives_max =
      std::min(options_.queue_pair.receives_max, requests_max_of(port_));
  return receives_max - receive_batch(receives_max);
}

std::uint32_t Connections::to(std::uint64_t process) {
  if (const auto found = by_process_.find(process); found != by_process_.end()) {
    Connection& known = connections_[found->second];
    if (!known.peer_closed) return known.index;
    assert(known.heard_all);
    close(known);
  }
  if (open_ >= count_max())
    throw Error(ErrorCode::limit_exceeded, "a context on " + port_.name() + " has at most " +
                                               std::to_string(count_max()) +
                                               " connections; use fewer messages per round");
  const std::uint32_t queue = completion_queues_.add_connection();
  std::uint32_t index = 0;
  try {
    QueuePair pair(port_, domain_, completion_queues_[queue], options_.queue_pair);
    assert(pair.completions_max() == completion_queues_.entries_each());
    index = make(process, std::move(pair));
  } catch (...) {
    completion_queues_.remove_connection(queue);
    throw;
  }
  Connection& made = connections_[index];
  made.completion_queue = queue;
  made.has_entries = true;
  if (const int error = made.post_receives(made.pair->receives_max()); error != 0) {
    abandon_from(made.serial);
    throw Error(ErrorCode::system, "post_recv on " + port_.name() + ": " + std::strerror(error),
                error);
  }
  return index;
}

Connection& Connections::last_to(std::uint64_t process) noexcept {
  const auto found = by_process_.find(process);
  detail::check(found != by_process_.end(), "a set-up has a connection to each of its partners",
                process);
  return (*this)[found->second];
}

std::uint32_t Connections::make(std::uint64_t process, QueuePair&& pair) {
  // What may allocate comes first.
  by_process_.reserve(by_process_.size() + 1);
  const bool is_new = free_.empty();
  const std::uint32_t index =
      is_new ? static_cast<std::uint32_t>(connections_.size()) : free_.back();
  if (is_new) {
    if (closed_.capacity() <= index) closed_.reserve(2 * std::size_t{index} + 2);
    if (free_.capacity() <= index) free_.reserve(2 * std::size_t{index} + 2);
  }
  by_process_.emplace(process, index);
  try {
    if (is_new) {
      connections_.emplace_back(index, process, std::move(pair));
    } else {
      std::destroy_at(&connections_[index]);
      std::construct_at(&connections_[index], index, process, std::move(pair));
      free_.pop_back();
    }
  } catch (...) {
    by_process_.erase(process);
    throw;
  }
  connections_[index].serial = made_++;
  connections_[index].used_at = ++uses_;
  ++open_;
  return index;
}

Endpoint Connections::endpoint(std::uint32_t index) const {
  Endpoint endpoint = (*this)[index].pair->endpoint();
  if (manager_) endpoint.service_port = manager_->service_port();
  return endpoint;
}

void Connections::connect(std::span<const NewPartner> partners, const ConnectPatience& patience) {
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

void Connections::abandon_from(std::uint64_t first) noexcept {
  for (Connection& connection : connections_) {
    if (connection.serial < first || !connection.pair) continue;
    assert(connection.receives_reserved == 0);
    assert(connection.users == 0);
    if (connection.unheard) --unheard_;
    connection.unheard.reset();
    close(connection);
  }
  // Nothing can have completed on queue pairs that were not connected.
  std::erase_if(closed_, [&](std::uint32_t index) {
    return connections_[index].serial >= first && !connections_[index].connected && free(index);
  });
}

void Connections::begin_use(Connection& connection) noexcept {
  ++connection.users;
  connection.used_at = ++uses_;
}

void Connections::end_use(Connection& connection, bool orderly) noexcept {
  assert(connection.users > 0);
  --connection.users;
  connection.used_at = ++uses_;
  if (!orderly) connection.is_in_doubt = true;
}

void Connections::say_disconnect(Connection& connection) noexcept {
  assert(connection.is_idle());
  connection.took_leave = true;
  connection.is_closing = true;
  const int error =
      connection.sends.notify(connection.pair->get(), connection.index, Immediate::disconnect);
  if (error != 0) (void)post_failed_slow(connection, error);
}

void Connections::hear_disconnect(Connection& connection) noexcept {
  connection.heard_all = true;
  leave_to_peer(connection);  // a set-up under way still finds it, and replaces it at its time
}

void Connections::supersede(Connection& connection) noexcept {
  leave_to_peer(connection);
  forget_process(connection);
  if (connection.is_left_over()) close(connection);
}

void Connections::forget(std::span<const std::uint64_t> processes) noexcept {
  for (Connection& connection : connections_) {
    if (!connection.pair ||
        std::find(processes.begin(), processes.end(), connection.process) == processes.end())
      continue;
    connection.let_go = true;
    leave_to_peer(connection);
    forget_process(connection);
    // A call in flight that only receives on it would wait for ever.
    if (connection.users > 0 && !connection.unheard)
      report(connection, {.process = connection.process, .what = let_go_reason});
    if (connection.users == 0) close(connection);
  }
}

void Connections::leave_to_peer(Connection& connection) noexcept {
  connection.left = true;
  connection.peer_closed = true;
  connection.sends.close();
}

void Connections::forget_process(const Connection& connection) noexcept {
  if (leads_to_its_process(connection)) by_process_.erase(connection.process);
}

bool Connections::leads_to_its_process(const Connection& connection) const noexcept {
  const auto found = by_process_.find(connection.process);
  return found != by_process_.end() && found->second == connection.index;
}

void Connections::close(Connection& connection) noexcept {
  assert(connection.pair);
  assert(closed_.size() < closed_.capacity());
  forget_process(connection);
  connection.sends.close();
  connection.pair.reset();
  connection.id.reset();
  --open_;
  closed_.push_back(connection.index);
}

bool Connections::close_those_of_peers() noexcept {
  const std::uint32_t before = open_;
  for (Connection& connection : connections_)
    if (connection.is_left_over()) close(connection);
  return open_ < before;
}

void Connections::recycle() noexcept {
  std::erase_if(closed_, [&](std::uint32_t index) { return free(index); });
}

bool Connections::free(std::uint32_t index) noexcept {
  Connection& connection = connections_[index];
  assert(!connection.pair);
  if (connection.has_entries) completion_queues_.remove_connection(connection.completion_queue);
  connection.has_entries = false;
  // A channel still knows the index, or somebody has to be told.
  if (connection.users > 0 || connection.unheard) return false;
  free_.push_back(index);
  return true;
}

void Connections::fail_by(Connection& connection, const ibv_wc& completion) noexcept {
  // A queue pair that is closed here completes what was posted on it with an error, which is none.
  if (completion.status != IBV_WC_SUCCESS && connection.pair && !connection.is_closing)
    ++completion_errors_;
  fail(connection, {.process = connection.process,
                    .completion = completion.status,
                    .what = words_of(completion.status).meaning,
                    // Its opcode is not valid.
                    .is_receive = CompletionTag::decoded(completion.wr_id).finished == 0,
                    .vendor_error = completion.vendor_err});
}

void Connections::fail(Connection& connection, const TransportFailure& failure) noexcept {
  if (connection.failed || !connection.pair) return;
  connection.failed = true;
  connection.sends.close();
  // Whatever the reason, nothing may leave it or come through it from now on.
  connection.pair->close();
  // One end that is being closed needs nothing any more, so nor does the other, as a rule: the peer
  // has had what was sent, and the acknowledgement is lost.  But a call too many, whose send was
  // posted before "disconnect" was polled, waits for ever: it uses the connection, and there is no
  // other one to that peer.
  const bool is_called_for = connection.users > 0 && leads_to_its_process(connection);
  if (!connection.is_closing && (!connection.peer_closed || is_called_for))
    report(connection, failure);
}

void Connections::report(Connection& connection, const TransportFailure& failure) noexcept {
  assert(failure.process == connection.process);
  assert(!failure.what.empty());
  if (!connection.unheard) ++unheard_;
  connection.unheard = failure;
  connection.unheard->peer_had_left = connection.left;
}

Status Connections::no_credit_slow(Connection& connection) noexcept {
  if (connection.peer_closed)
    report(connection,
           {.process = connection.process, .what = "has ended the operation that this rank calls"});
  return connection.failed || connection.peer_closed ? Status::transport_failed
                                                     : Status::in_progress;
}

void Connections::fail_all_of(const ibv_cq* completion_queue, const char* what) noexcept {
  for (Connection& connection : connections_)
    if (connection.pair && completion_queues_[connection.completion_queue] == completion_queue)
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
  TransportFailure failure = *found->unheard;
  failure.connection = found->index;
  failure.was_let_go = found->let_go;
  found->unheard.reset();
  --unheard_;
  return failure;
}

void Connections::note_failure(std::span<const std::uint64_t> processes, bool has_failed,
                               std::uint64_t made_before) noexcept {
  for (Connection& connection : connections_)
    if (connection.serial < made_before &&
        std::find(processes.begin(), processes.end(), connection.process) != processes.end())
      connection.met_failure = has_failed;
}

bool Connections::has_met_failure() const noexcept {
  return std::any_of(connections_.begin(), connections_.end(), [](const Connection& connection) {
    return connection.pair && connection.met_failure && !connection.left;
  });
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
