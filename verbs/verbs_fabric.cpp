#include "verbs/verbs_fabric.hpp"

#include <endian.h>
#include <sched.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "verbs/lock_limit.hpp"

namespace tutti::verbs {
namespace {

constexpr int poll_batch = 16;

}  // namespace

VerbsFabric::VerbsFabric(const VerbsFabricOptions& options)
    : port_(open_port(options.device)),
      domain_(make_domain(port_)),
      arena_(port_, domain_.get(), options.arena_bytes, options.bytes_besides),
      connections_(port_, domain_.get(), options.connections) {}

void VerbsFabric::require_lines() const {
  if (const std::string obstacle = why_not_lines(port_); !obstacle.empty())
    throw Error(ErrorCode::unsupported, "TUTTI_NOTIFY=flag (or notify in code): " + obstacle);
}

RegionHandle VerbsFabric::register_memory(const std::byte* memory, std::size_t bytes, int access,
                                          const char* name) {
  check_lockable(port_, bytes, name);
  return register_on(port_, domain_.get(), const_cast<std::byte*>(memory), bytes, access,
                     std::string(name) + ", " + std::to_string(bytes) + " bytes,");
}

std::uint32_t VerbsFabric::attach(VerbsChannel& channel) {
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

void VerbsFabric::detach(VerbsChannel& channel, bool orderly) noexcept {
  assert(channel.id_ < channels_.size());
  channels_[channel.id_] = orderly ? &closed_ : nullptr;
  for (const VerbsChannel::Arrival& arrival : channel.arrivals_)
    if (orderly && arrival.connection != no_connection && arrival.last() != arrival.taken)
      (void)take_failed_slow(arrival);
  for (const std::uint32_t connection : channel.reserved_) {
    assert(connections_[connection].receives_reserved >= 2);
    connections_[connection].receives_reserved -= 2;
  }
  channel.reserved_.clear();
  for (const std::uint32_t connection : channel.used_)
    connections_.end_use(connections_[connection], orderly);
  channel.used_.clear();
}

void VerbsFabric::use(VerbsChannel& channel, Connection& connection) {
  assert(connection.pair);
  if (std::find(channel.used_.begin(), channel.used_.end(), connection.index) !=
      channel.used_.end())
    return;
  channel.used_.push_back(connection.index);
  connections_.begin_use(connection);
}

void VerbsFabric::supersede(VerbsChannel& channel, Connection& connection) noexcept {
  const auto count = static_cast<std::uint32_t>(std::erase(channel.reserved_, connection.index));
  assert(connection.receives_reserved >= 2 * count);
  connection.receives_reserved -= 2 * count;
  if (std::erase(channel.used_, connection.index) > 0) connections_.end_use(connection, true);
  // The peer has said "disconnect" before it offered another one, as a rule, and all else before.
  empty_queues();
  connections_.supersede(connection);
  forget_closed();
}

void VerbsFabric::forget(std::span<const std::uint64_t> processes) noexcept {
  empty_queues();
  connections_.forget(processes);
  forget_closed();
}

void VerbsFabric::make_room_for(std::span<const std::uint64_t> processes, detail::Clock& clock,
                                Timeout timeout) {
  if (connections_.count() + processes.size() > connections_.count_max())
    empty_queues();  // with what peers have sent that have closed their ends
  else
    (void)poll();
  forget_closed();
  // The messages polled then may say that peers have closed more.
  while (connections_.close_those_of_peers()) forget_closed();
  const std::vector<std::uint32_t> in_the_way = connections_.in_the_way_of(processes);
  if (in_the_way.empty()) return;
  const Deadline deadline = Deadline::after(timeout, clock.now());
  for (bool all_know = false; !all_know && !deadline.passed(clock.now());) {
    all_know = true;
    for (const std::uint32_t index : in_the_way) {
      Connection& connection = connections_[index];
      if (connection.is_idle() && connection.sends.has_credit())
        connections_.say_disconnect(connection);
      const bool knows = connection.failed || connection.left ||
                         (connection.took_leave && connection.sends.in_flight() == 0);
      all_know = all_know && knows;
    }
    if (poll() == 0 && !all_know) sched_yield();
  }
  for (const std::uint32_t index : in_the_way) connections_.close(connections_[index]);
  // What was polled meanwhile may say that peers have closed some, too.
  do forget_closed();
  while (connections_.close_those_of_peers());
}

void VerbsFabric::empty_queues() noexcept {
  for (const CompletionQueues::Queue& queue : connections_.completion_queues().all()) {
    // As many as were there at the beginning, at most; what comes meanwhile need not be polled.
    const std::size_t entries =
        std::size_t{queue.connections_max} * connections_.completion_queues().entries_each();
    std::size_t polled = 0;
    for (std::size_t more = 1; more > 0 && polled < entries; polled += more)
      more = poll(queue.handle.get());
  }
}

void VerbsFabric::forget_closed() noexcept {
  if (!connections_.has_closed()) return;
  empty_queues();
  connections_.recycle();
}

Status VerbsFabric::write(Connection& connection, const NotifiedWrite& given) noexcept {
  if (const Status status = connection.room(1); status != Status::ok) return status;
  ibv_sge piece;
  ibv_send_wr request = connection.request_of(given, piece);
  assert(is_local(piece));
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.imm_data = htobe32(given.notification.encoded());
  const int error = connection.sends.post(connection.pair->get(), request);
  return error == 0 ? Status::ok : connections_.post_failed_slow(connection, error);
}

Status VerbsFabric::write(Connection& connection, const PlainWrite& given) noexcept {
  if (const Status status = connection.room(1); status != Status::ok) return status;
  ibv_sge piece;
  ibv_send_wr request = connection.request_of(given, piece);
  assert(is_local(piece));
  const int error = connection.sends.post(connection.pair->get(), request);
  return error == 0 ? Status::ok : connections_.post_failed_slow(connection, error);
}

Status VerbsFabric::write(Connection& connection, const WordedWrite& given) noexcept {
  if (const Status status = connection.room(2); status != Status::ok) return status;
  assert(given.remote_word % sizeof given.word == 0);
  ibv_sge piece;
  ibv_send_wr request = connection.request_of(given, piece);
  assert(is_local(piece));
  if (given.bytes > 0)
    if (const int error = connection.sends.post(connection.pair->get(), request); error != 0)
      return connections_.post_failed_slow(connection, error);
  piece = {
      .addr = reinterpret_cast<std::uint64_t>(&given.word), .length = sizeof given.word, .lkey = 0};
  request.num_sge = 1;
  request.send_flags = IBV_SEND_INLINE;
  request.wr.rdma.remote_addr = given.remote_word;
  if (const int error = connection.sends.post(connection.pair->get(), request); error != 0)
    return connections_.post_failed_slow(connection, error);
  return Status::ok;
}

Status VerbsFabric::mark(Connection& connection, std::uint16_t number) noexcept {
  if (const Status status = connection.room(1); status != Status::ok) return status;
  const int error =
      connection.sends.notify(connection.pair->get(), connection.index, Immediate::marker(number));
  return error == 0 ? Status::ok : connections_.post_failed_slow(connection, error);
}

std::size_t VerbsFabric::poll_several() noexcept {
  std::size_t count = 0;
  for (const CompletionQueues::Queue& queue : connections_.completion_queues().all())
    count += poll(queue.handle.get());
  return count;
}

std::size_t VerbsFabric::poll(ibv_cq* queue) noexcept {
  std::array<ibv_wc, poll_batch> completions;
  const int count = ibv_poll_cq(queue, poll_batch, completions.data());
  if (count <= 0) {
    if (count < 0) [[unlikely]]
      connections_.fail_all_of(queue, "the completion queue is in error (overrun?)");
    return 0;
  }
  assert(count <= poll_batch);
  for (int i = 0; i < count; ++i) {
    const ibv_wc& completion = completions[static_cast<std::size_t>(i)];
    const CompletionTag tag = CompletionTag::decoded(completion.wr_id);
    Connection& connection = connections_[tag.connection];
    if (completion.status != IBV_WC_SUCCESS || !connection.pair) [[unlikely]] {
      // wr_id, status, qp_num and vendor_err are valid in error completions, the opcode is not.
      connections_.fail_by(connection, completion);
    } else if ((completion.opcode & IBV_WC_RECV) == 0) {
      assert(completion.qp_num == connection.pair->get()->qp_num);
      connection.sends.completed(tag.finished);
    } else {
      assert(completion.qp_num == connection.pair->get()->qp_num);
      assert(tag.finished == 0);
      raise(connection, be32toh(completion.imm_data));
      if (++connection.receives_used == receive_batch(connection.pair->receives_max()))
        connections_.refill(connection);
    }
  }
  return static_cast<std::size_t>(count);
}

std::size_t VerbsFabric::take_events() noexcept {
  assert(raises_events());
  ibv_cq* queue = nullptr;
  void* of_queue = nullptr;
  std::size_t taken = 0;
  // A queue can be destroyed only when its events are acknowledged.
  for (; port_.driver().get_cq_event(connections_.events(), &queue, &of_queue) == 0; ++taken)
    port_.driver().ack_cq_events(queue, 1);
  return taken;
}

void VerbsFabric::raise(Connection& connection, std::uint32_t immediate) noexcept {
  static_assert(Immediate::disconnect + 1 == Immediate::farewell && Immediate::farewell + 1 == 0);
  if (immediate >= Immediate::others_from) [[unlikely]] {
    if (immediate == Immediate::disconnect) return connections_.hear_disconnect(connection);
    if (immediate == Immediate::farewell)
      connection.left = true;
    else
      connection.marker_heard = static_cast<std::uint16_t>(immediate - Immediate::others_from);
    return;
  }
  const Immediate notification = Immediate::decoded(immediate);
  VerbsChannel* const channel =
      notification.operation < channels_.size() ? channels_[notification.operation] : nullptr;
  if (channel == nullptr) [[unlikely]]
    return;
  if (notification.slot >= channel->slot_count_) [[unlikely]] {
    if (channel->words_.first == nullptr)
      return fail_hasty_slow(connection,
                             "sent a message for an operation that is gone: it calls more often");
    if (!channel->words_.republish(notification.parity, notification.slot)) [[unlikely]]
      return fail_hasty_slow(connection,
                             "sent a chunk of the ring twice, or none: it calls more often");
    for (VerbsChannel::Received& one : channel->received_)
      if (one.connection == connection.index) ++one.count;
    return;
  }
  VerbsChannel::Arrival& arrival =
      channel->arrivals_[channel->place_of(notification.parity, notification.slot)];
  if (arrival.raised != arrival.taken) [[unlikely]]
    return fail_hasty_slow(connection, "sent a second message for one slot: it calls more often");
  ++arrival.raised;
}

bool VerbsFabric::take_failed_slow(const VerbsChannel::Arrival& arrival) noexcept {
  fail_hasty_slow(connections_[arrival.connection],
                  "wrote a line that is not the next message for its slot: it, or another peer, "
                  "calls more often");
  return false;
}

void VerbsFabric::fail_hasty_slow(Connection& connection, const char* what) noexcept {
  connections_.fail(connection, {.process = connection.process, .what = what});
}

bool VerbsFabric::drain(const VerbsChannel& channel, detail::Clock& clock, Timeout timeout,
                        const std::function<bool(std::uint64_t process)>& has_gone) noexcept {
  const Deadline deadline = Deadline::after(timeout, clock.now());
  for (unsigned turn = 0;; ++turn) {
    bool idle = true;
    for (const PreparedPut& put : channel.puts_[0]) {  // the other parity has the same connections
      if (put.connection == no_connection) continue;
      Connection& connection = connections_[put.connection];
      if (connection.failed || connection.left || connection.sends.in_flight() == 0) continue;
      if (turn % 64 == 63 && has_gone(connection.process)) continue;
      idle = false;
      if (!connection.sends.has_credit()) continue;
      if (const int error = connection.sends.flush(connection.pair->get(), put.connection);
          error != 0)
        (void)connections_.post_failed_slow(connection, error);
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
    const bool idle = poll() == 0;  // first, because a peer that has left need not be told
    if (connections_.say_farewells() || deadline.passed(clock.now())) return;
    if (idle) sched_yield();
  }
}

}  // namespace tutti::verbs
