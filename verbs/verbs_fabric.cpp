#include "verbs/verbs_fabric.hpp"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <tutti/detail/check.hpp>

#include "verbs/lock_limit.hpp"
#include "verbs/port_card.hpp"

namespace tutti::verbs {
namespace {

/// Enough for 100 connections of 256 receives and 64 sends; taken from the device if that is less.
constexpr std::uint32_t completions_wanted = 32768;

DomainHandle make_domain(const Port& port) {
  DomainHandle domain(port.driver().alloc_pd(port.device.get()), {&port.driver()});
  if (!domain)
    throw Error(ErrorCode::system, "alloc_pd on " + port.name() + ": " + std::strerror(errno),
                errno);
  return domain;
}

std::optional<ConnectionManager> make_manager(const Port& port, const VerbsFabricOptions& options) {
  if (!options.connect_by_cm) return std::nullopt;
  const std::string obstacle = obstacle_to_address(port.description, port.gid);
  if (!obstacle.empty())
    throw Error(ErrorCode::unsupported,
                "TUTTI_CONNECT=cm (or code): " + port.name() + " is " + obstacle);
  return std::optional<ConnectionManager>(std::in_place, port, options.process, librdmacm_driver(),
                                          options.path);
}

CompletionQueueHandle make_completions(const Port& port, std::uint32_t entries) {
  CompletionQueueHandle queue(
      port.driver().create_cq(port.device.get(), static_cast<int>(entries), nullptr, nullptr, 0),
      {&port.driver()});
  if (!queue)
    throw Error(ErrorCode::limit_exceeded,
                "create_cq of " + std::to_string(entries) + " entries on " + port.name() + ": " +
                    std::strerror(errno) + " (device limit " + std::to_string(port.limits.max_cqe) +
                    " entries; check ulimit -l)",
                errno);
  return queue;
}

}  // namespace

VerbsFabric::VerbsFabric(const VerbsFabricOptions& options)
    : options_(options),
      port_(open_port(options.device)),
      manager_(make_manager(port_, options)),
      domain_(make_domain(port_)),
      arena_(port_, domain_.get(), options.arena_bytes),
      completions_max_(
          std::min(completions_wanted, static_cast<std::uint32_t>(port_.limits.max_cqe))),
      completions_(make_completions(port_, completions_max_)) {
  if (!options.sends_lines) return;
  if (const std::string obstacle = why_not_lines(port_); !obstacle.empty())
    throw Error(ErrorCode::unsupported, "TUTTI_NOTIFY=flag (or notify in code): " + obstacle);
}

VerbsFabric::~VerbsFabric() = default;

std::uint32_t VerbsFabric::connection_to(std::uint64_t process) {
  if (const auto found = by_process_.find(process); found != by_process_.end())
    return found->second;
  if (by_process_.size() >= static_cast<std::size_t>(port_.limits.max_qp))
    throw Error(ErrorCode::limit_exceeded, port_.name() + " has at most " +
                                               std::to_string(port_.limits.max_qp) +
                                               " queue pairs; use fewer messages per round");
  QueuePair pair(port_, domain_.get(), completions_.get(), options_.queue_pair);
  const std::uint32_t promised = completions_of(pair);
  if (completions_promised_ + promised > completions_max_)
    throw Error(
        ErrorCode::limit_exceeded,
        "the completion queue of " + port_.name() + " has " + std::to_string(completions_max_) +
            " entries, " + std::to_string(by_process_.size() + 1) + " connections need " +
            std::to_string(completions_promised_ + promised) + "; use fewer messages per round");
  const auto index = static_cast<std::uint32_t>(connections_.size());
  const std::uint32_t sends_max = pair.sends_max();
  connections_.emplace_back(process, std::move(pair), sends_max);
  if (const int error = post_receives(index, connections_[index].pair->receives_max());
      error != 0) {
    connections_.pop_back();
    throw Error(ErrorCode::system, "post_recv on " + port_.name() + ": " + std::strerror(error),
                error);
  }
  completions_promised_ += promised;
  by_process_.emplace(process, index);
  return index;
}

std::uint32_t VerbsFabric::connections_max() const noexcept {
  const std::uint32_t entries =
      options_.queue_pair.receives_max + options_.queue_pair.sends_max;  // see completions_of()
  return std::min(static_cast<std::uint32_t>(port_.limits.max_qp), completions_max_ / entries);
}

Endpoint VerbsFabric::endpoint(std::uint32_t connection) const {
  Endpoint endpoint = connections_[connection].pair->endpoint();
  if (manager_) endpoint.service_port = manager_->service_port();
  return endpoint;
}

void VerbsFabric::connect(std::span<const NewPartner> partners, const ConnectPatience& patience) {
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

void VerbsFabric::connect_by_cm(std::span<const NewPartner> partners,
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

void VerbsFabric::abandon_from(std::uint32_t first) noexcept {
  for (std::uint32_t i = first; i < connection_count(); ++i) {
    Connection& connection = connections_[i];
    if (!connection.pair) continue;
    by_process_.erase(connection.process);
    completions_promised_ -= completions_of(*connection.pair);
    if (connection.unheard) --unheard_;
    connection.unheard.reset();
    connection.pair.reset();
    connection.id.reset();
  }
}

std::uint32_t VerbsFabric::attach(Channel& channel) {
  if (channel.slot_count_ > Immediate::slots_max)
    throw Error(ErrorCode::limit_exceeded,
                "a plan of " + std::to_string(channel.slot_count_) + " slots; the most is " +
                    std::to_string(Immediate::slots_max) + "; use fewer messages per round");
  if (next_channel_ == channels_.size() && channels_.size() < Immediate::operations_max)
    channels_.push_back(nullptr);
  const auto size = static_cast<std::uint32_t>(channels_.size());
  for (std::uint32_t tried = 0; tried < size; ++tried) {
    const std::uint32_t id = (next_channel_ + tried) % size;
    if (channels_[id] != nullptr && channels_[id] != &closed_) continue;
    channels_[id] = &channel;
    channel.id_ = id;
    // Room for a trillion messages before the numbers of one operation are those of the next.
    channel.numbers_from_ = ++attached_ << 40;
    next_channel_ = (id + 1) % Immediate::operations_max;
    return id;
  }
  throw Error(ErrorCode::limit_exceeded,
              std::to_string(Immediate::operations_max) +
                  " live operations are the most a context can have; destroy some");
}

void VerbsFabric::detach(Channel& channel, bool orderly) noexcept {
  channels_[channel.id_] = orderly ? &closed_ : nullptr;
  for (const Channel::Arrival& arrival : channel.arrivals_)
    if (orderly && arrival.connection != UINT32_MAX && arrival.last() != arrival.taken)
      (void)take_failed_slow(arrival);
  for (const std::uint32_t connection : channel.reserved_)
    connections_[connection].receives_reserved -= 2;
  channel.reserved_.clear();
}

void VerbsFabric::reserve_receive(Channel& channel, std::uint32_t index) {
  Connection& connection = connections_[index];
  // A message of each parity can be on its way, and a farewell, while up to a batch of used
  // receives but one is not yet posted again.
  const std::uint32_t available = connection.pair->receives_max() - receive_batch(connection);
  if (connection.receives_reserved + 2 > available)
    throw Error(ErrorCode::limit_exceeded,
                "too many live operations: a queue pair holds " +
                    std::to_string(connection.pair->receives_max()) + " receives, of which " +
                    std::to_string(available) + " can be promised and " +
                    std::to_string(connection.receives_reserved) + " are; destroy some operations");
  connection.receives_reserved += 2;
  channel.reserved_.push_back(index);
}

RegionHandle VerbsFabric::register_memory(const std::byte* memory, std::size_t bytes, int access,
                                          const char* name) {
  check_lockable(port_, bytes, name);
  const Driver& driver = port_.driver();
  RegionHandle region(driver.reg_mr(domain_.get(), const_cast<std::byte*>(memory), bytes, access),
                      {&driver});
  const int error = errno;
  if (!region)
    throw Error(error == ENOMEM ? ErrorCode::limit_exceeded : ErrorCode::system,
                std::string("registering ") + name + ", " + std::to_string(bytes) + " bytes, on " +
                    port_.name() + ": " + std::strerror(error) + explain_registration(port_, error),
                error);
  return region;
}

template <class Write>
ibv_send_wr VerbsFabric::request_of(const Write& given, std::uint32_t local_key,
                                    const Connection& connection, ibv_sge& piece) noexcept {
  piece = {.addr = reinterpret_cast<std::uint64_t>(given.local),
           .length = given.bytes,
           .lkey = local_key};
  ibv_send_wr request{};
  request.wr_id = CompletionTag{given.connection, connection.sends.signal_every()}.encoded();
  request.sg_list = &piece;
  request.num_sge = given.bytes > 0 ? 1 : 0;
  request.opcode = IBV_WR_RDMA_WRITE;
  if (given.bytes <= connection.pair->inline_bytes()) request.send_flags = IBV_SEND_INLINE;
  request.wr.rdma = {.remote_addr = given.remote_address, .rkey = given.remote_key};
  return request;
}

void VerbsFabric::prepare(Channel& channel, std::uint32_t parity, std::size_t put,
                          const PutDescription& description) {
  PreparedPut& prepared = channel.puts_[parity][put];
  prepared.connection = description.connection;
  prepared.is_awaited = description.is_awaited;
  if (description.is_awaited &&
      std::none_of(channel.sent_.begin(), channel.sent_.end(), [&](const Channel::Sent& one) {
        return one.connection == description.connection;
      }))
    channel.sent_.push_back({.connection = description.connection, .posted = 0});
  prepared.request = request_of(description, description.local_key.value_or(arena_.local_key()),
                                connections_[description.connection], prepared.piece);
  prepared.request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  prepared.request.imm_data = htobe32(description.notification.encoded());
}

std::string why_not_lines(const char* tears, const std::string& port) {
  if (tears == nullptr) return {};
  return "a rank polls the last word of a line of 64 bytes that its peer writes, and " + port +
         " does not promise that the line is whole when that word is seen: " + tears +
         "; or use immediate";
}

std::string why_not_lines(const Port& port) {
  return why_not_lines(port.driver().keep_lines_whole(port.device.get()), port.name());
}

void VerbsFabric::require_lines(std::uint32_t connection) const {
  const std::uint32_t inline_bytes = connections_[connection].pair->inline_bytes();
  if (inline_bytes < sizeof(Line))
    throw Error(ErrorCode::unsupported,
                "TUTTI_NOTIFY=flag (or notify in code): a message is one inline write of " +
                    std::to_string(sizeof(Line)) + " bytes, and a queue pair of " + port_.name() +
                    " has " + std::to_string(inline_bytes) + "; use immediate");
}

void VerbsFabric::prepare_line(Channel& channel, std::uint32_t parity, std::size_t put,
                               const LineDescription& description) {
  detail::check(description.bytes <= Line::payload_bytes_max, "the payload of a line fits",
                description.bytes, Line::payload_bytes_max);
  detail::check(description.remote_address % alignof(Line) == 0, "a line is aligned",
                description.remote_address, alignof(Line));
  const Connection& connection = connections_[description.connection];
  PreparedPut& prepared = channel.puts_[parity][put];
  OutgoingLine& line = channel.lines_.emplace_back();
  line.line.number = description.numbers_from;
  line.local = description.local;
  line.bytes = description.bytes;
  // Without payload, the word alone: less to copy.
  const std::size_t skipped = description.bytes > 0 ? 0 : offsetof(Line, number);
  prepared.connection = description.connection;
  prepared.line = &line;
  prepared.piece = {.addr = reinterpret_cast<std::uint64_t>(&line.line) + skipped,
                    .length = static_cast<std::uint32_t>(sizeof(Line) - skipped),
                    .lkey = 0};
  prepared.request = {};
  prepared.request.wr_id =
      CompletionTag{description.connection, connection.sends.signal_every()}.encoded();
  prepared.request.sg_list = &prepared.piece;
  prepared.request.num_sge = 1;
  prepared.request.opcode = IBV_WR_RDMA_WRITE;
  prepared.request.send_flags = IBV_SEND_INLINE;
  prepared.request.wr.rdma = {.remote_addr = description.remote_address + skipped,
                              .rkey = description.remote_key};
}

void VerbsFabric::await_lines(Channel& channel, std::uint32_t parity, std::uint32_t slot,
                              std::byte* line, std::uint32_t connection) {
  Channel::Arrival& arrival = channel.arrivals_[parity * channel.slot_count_ + slot];
  arrival.word = reinterpret_cast<std::uint64_t*>(line + offsetof(Line, number));
  arrival.taken = channel.numbers_from_;
  arrival.connection = connection;
  // Relaxed: no peer knows of the line yet.
  std::atomic_ref(*arrival.word).store(channel.numbers_from_, std::memory_order_relaxed);
}

void VerbsFabric::assign(Channel& channel, std::size_t put, std::uint32_t connection) {
  for (std::vector<PreparedPut>& puts : channel.puts_) puts[put].connection = connection;
}

std::string why_not_worded(const WordedLimits& limits, const std::string& port) {
  if (!limits.places_writes_in_order)
    return "polls words that the device writes, and " + port +
           " does not promise that who sees one sees all before it (the software device does): "
           "expected TUTTI_SHARED_NOTIFICATIONS=republished there, or automatic";
  if (limits.inline_bytes < sizeof(WordedWrite::word) || limits.sends_max < 2)
    return "writes a chunk and then a word, inline, which takes 2 sends and 8 inline bytes; a "
           "queue pair of " +
           port + " has " + std::to_string(limits.sends_max) + " and " +
           std::to_string(limits.inline_bytes);
  return {};
}

std::string VerbsFabric::why_not_worded(std::uint32_t connection) const {
  const QueuePair& pair = *connections_[connection].pair;
  return verbs::why_not_worded({.places_writes_in_order = port_.driver().places_writes_in_order,
                                .inline_bytes = pair.inline_bytes(),
                                .sends_max = pair.sends_max()},
                               port_.name());
}

Status VerbsFabric::write(const NotifiedWrite& given) noexcept {
  if (const Status status = room(given.connection, 1); status != Status::ok) return status;
  Connection& connection = connections_[given.connection];
  ibv_sge piece;
  ibv_send_wr request = request_of(given, given.local_key, connection, piece);
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.imm_data = htobe32(given.notification.encoded());
  const int error = connection.sends.post(connection.pair->get(), request);
  return error == 0 ? Status::ok : post_failed_slow(connection, error);
}

Status VerbsFabric::write(const WordedWrite& given) noexcept {
  if (const Status status = room(given.connection, 2); status != Status::ok) return status;
  Connection& connection = connections_[given.connection];
  ibv_sge piece;
  ibv_send_wr request = request_of(given, given.local_key, connection, piece);
  if (given.bytes > 0)
    if (const int error = connection.sends.post(connection.pair->get(), request); error != 0)
      return post_failed_slow(connection, error);
  piece = {
      .addr = reinterpret_cast<std::uint64_t>(&given.word), .length = sizeof given.word, .lkey = 0};
  request.num_sge = 1;
  request.send_flags = IBV_SEND_INLINE;
  request.wr.rdma.remote_addr = given.remote_word;
  if (const int error = connection.sends.post(connection.pair->get(), request); error != 0)
    return post_failed_slow(connection, error);
  return Status::ok;
}

int VerbsFabric::post_receives(std::uint32_t index, std::uint32_t count) noexcept {
  // Receives without memory: only the immediate matters.
  constexpr std::size_t chain_max = 64;
  std::array<ibv_recv_wr, chain_max> chain{};
  while (count > 0) {
    const std::size_t length = std::min<std::size_t>(count, chain_max);
    for (std::size_t i = 0; i < length; ++i)
      chain[i] = {.wr_id = CompletionTag{index, 0}.encoded(),
                  .next = i + 1 < length ? &chain[i + 1] : nullptr,
                  .sg_list = nullptr,
                  .num_sge = 0};
    ibv_recv_wr* refused = nullptr;
    if (const int error = ibv_post_recv(connections_[index].pair->get(), chain.data(), &refused);
        error != 0)
      return error;
    count -= static_cast<std::uint32_t>(length);
  }
  return 0;
}

std::size_t VerbsFabric::poll() noexcept {
  std::array<ibv_wc, poll_batch> completions;
  const int count = ibv_poll_cq(completions_.get(), poll_batch, completions.data());
  if (count <= 0) {
    if (count < 0) [[unlikely]]
      fail_all("the completion queue is in error (overrun?)");
    return 0;
  }
  for (int i = 0; i < count; ++i) {
    const ibv_wc& completion = completions[static_cast<std::size_t>(i)];
    const CompletionTag tag = CompletionTag::decoded(completion.wr_id);
    Connection& connection = connections_[tag.connection];
    if (completion.status != IBV_WC_SUCCESS || !connection.pair) [[unlikely]] {
      completion_failed_slow(connection, completion);
    } else if ((completion.opcode & IBV_WC_RECV) == 0) {
      connection.sends.completed(tag.finished);
    } else {
      raise(connection, be32toh(completion.imm_data));
      if (++connection.receives_used == receive_batch(connection)) refill(tag.connection);
    }
  }
  return static_cast<std::size_t>(count);
}

void VerbsFabric::raise(Connection& connection, std::uint32_t immediate) noexcept {
  if (immediate == Immediate::farewell) [[unlikely]] {
    connection.left = true;
    return;
  }
  const Immediate notification = Immediate::decoded(immediate);
  Channel* const channel =
      notification.operation < channels_.size() ? channels_[notification.operation] : nullptr;
  if (channel == nullptr) [[unlikely]]
    return;
  if (notification.slot >= channel->slot_count_) [[unlikely]] {
    if (channel->words_.first != nullptr) return republish(connection, *channel, notification);
    fail(connection, {.process = connection.process,
                      .what = "sent a message for an operation that is gone: it calls more often"});
    return;
  }
  Channel::Arrival& arrival =
      channel->arrivals_[notification.parity * channel->slot_count_ + notification.slot];
  if (arrival.raised != arrival.taken) [[unlikely]]
    return fail(connection, {.process = connection.process,
                             .what = "sent a second message for one slot: it calls more often"});
  ++arrival.raised;
}

bool VerbsFabric::take_failed_slow(const Channel::Arrival& arrival) noexcept {
  Connection& connection = connections_[arrival.connection];
  fail(connection, {.process = connection.process,
                    .what = "wrote a line that is not the next message for its slot: it, or "
                            "another peer, calls more often"});
  return false;
}

void VerbsFabric::republish(Connection& connection, const Channel& channel,
                            Immediate notification) noexcept {
  if (!channel.words_.republish(notification.parity, notification.slot)) [[unlikely]]
    fail(connection, {.process = connection.process,
                      .what = "sent a chunk of the ring twice, or none: it calls more often"});
}

void VerbsFabric::refill(std::uint32_t index) noexcept {
  Connection& connection = connections_[index];
  connection.receives_used = 0;
  if (const int error = post_receives(index, receive_batch(connection)); error != 0)
    fail(connection, {.process = connection.process, .system_errno = error, .what = "post_recv"});
}

bool VerbsFabric::drain(const Channel& channel, detail::Clock& clock, Timeout timeout,
                        const std::function<bool(std::uint64_t process)>& has_gone) noexcept {
  const Deadline deadline = Deadline::after(timeout, clock.now());
  for (unsigned turn = 0;; ++turn) {
    bool idle = true;
    for (const PreparedPut& put : channel.puts_[0]) {  // the other parity has the same connections
      if (put.connection == UINT32_MAX) continue;
      Connection& connection = connections_[put.connection];
      if (connection.failed || connection.left || connection.sends.in_flight() == 0) continue;
      if (turn % 64 == 63 && has_gone(connection.process)) continue;
      idle = false;
      if (!connection.sends.has_credit()) continue;
      if (const int error = connection.sends.flush(connection.pair->get(), put.connection);
          error != 0)
        (void)post_failed_slow(connection, error);
    }
    if (idle) return true;
    if (poll() == 0 && turn > 64) {
      if (deadline.passed(clock.now())) return false;
      sched_yield();
    }
  }
}

void VerbsFabric::take_leave(detail::Clock& clock, Timeout timeout) noexcept {
  const Deadline deadline = Deadline::after(timeout, clock.now());
  for (;;) {
    const bool idle = poll() == 0;  // first: whoever has left need not be told
    bool known = true;
    for (std::uint32_t i = 0; i < connection_count(); ++i) known = !says_farewell(i) && known;
    if (known || deadline.passed(clock.now())) return;
    if (idle) sched_yield();
  }
}

bool VerbsFabric::says_farewell(std::uint32_t index) noexcept {
  Connection& connection = connections_[index];
  if (!connection.pair || !connection.connected || connection.failed || connection.left)
    return false;
  if (connection.took_leave) return connection.sends.in_flight() > 0;
  if (!connection.sends.has_credit()) return true;
  connection.took_leave = true;
  const int error = connection.sends.notify(connection.pair->get(), index, Immediate::farewell);
  if (error != 0) (void)post_failed_slow(connection, error);
  return error == 0;
}

Status VerbsFabric::post_failed_slow(Connection& connection, int error) noexcept {
  fail(connection, {.process = connection.process, .system_errno = error, .what = "ibv_post_send"});
  return Status::transport_failed;
}

void VerbsFabric::completion_failed_slow(Connection& connection,
                                         const ibv_wc& completion) noexcept {
  // wr_id, status, qp_num and vendor_err are valid in error completions, the opcode is not.
  fail(connection, {.process = connection.process,
                    .completion = completion.status,
                    .what = completion.status == IBV_WC_RETRY_EXC_ERR
                                ? "does not answer (transport retries exceeded)"
                                : ibv_wc_status_str(completion.status)});
}

void VerbsFabric::fail(Connection& connection, const TransportFailure& failure) noexcept {
  if (connection.failed || !connection.pair) return;
  connection.failed = true;
  connection.sends.close();
  // Whatever the reason: nothing may leave it or come through it from now on.
  connection.pair->close();
  connection.unheard = failure;
  ++unheard_;
}

void VerbsFabric::fail_all(const char* what) noexcept {
  for (Connection& connection : connections_)
    fail(connection, {.process = connection.process, .what = what});
}

TransportFailure VerbsFabric::next_failure() noexcept {
  const auto found =
      std::find_if(connections_.begin(), connections_.end(),
                   [](const Connection& connection) { return connection.unheard.has_value(); });
  const TransportFailure failure = *found->unheard;
  found->unheard.reset();
  --unheard_;
  return failure;
}

}  // namespace tutti::verbs
