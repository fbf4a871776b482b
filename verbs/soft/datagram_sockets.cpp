#include "verbs/soft/datagram_sockets.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <new>

namespace tutti::verbs::soft {
namespace {

constexpr std::size_t waiting_max = 2048;  // for each process; at most 8 MiB
// A ring pays after this number of datagrams: it takes 264 KiB of the receiver's memory for each
// sending process.  Programs that only exchange addresses before they connect need fewer datagrams.
constexpr unsigned ring_from = 16;
// The number of datagrams of one source that are taken in one turn.
constexpr unsigned turn_max = 16;

int send_bytes(int connection, std::span<const std::byte> bytes) {
  return ::send(connection, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno
                                                                                         : 0;
}

/// Whether there is nobody to send to.  Other errors pass.
bool is_lost(int error) {
  return error == ECONNREFUSED || error == EACCES || is_gone(error);
}

/// The ring that another process has granted at `offset`; NULL if no ring can be there.
DatagramRing* ring_at(const SegmentView& segment, std::uint64_t offset) {
  const bool is_whole = offset >= heap_offset && offset % line_bytes == 0 &&
                        offset <= segment_bytes - sizeof(DatagramRing);
  return is_whole ? segment.at<DatagramRing>(offset) : nullptr;
}

}  // namespace

// --- Sending ------------------------------------------------------------------------------------

int DatagramSockets::connect(std::uint32_t process_id, const Message& opening, Outgoing& to) {
  assert(!to.connection);
  detail::Descriptor connection;
  if (const int error = connect_to_peer(process_id, connection)) return error;
  bool same_user = false;
  process_behind(connection.get(), same_user);
  if (!same_user) return EACCES;
  if (const int error = send_message(connection.get(), opening)) return error;
  to.connection = std::move(connection);
  return 0;
}

/// 0, EAGAIN when there is no room, or another errno value.
int DatagramSockets::send_one(Outgoing& to, std::span<const std::byte> datagram) {
  if (!to.ring) {
    assert(datagram.size() <= datagram_header_max_bytes + datagram_max_bytes);
    const int error = send_bytes(to.connection.get(), datagram);
    to.sent += error == 0 && to.sent < ring_from ? 1 : 0;
    return error;
  }
  if (!to.ring.write(datagram)) return EAGAIN;
  if (!to.ring.finds_bell()) return 0;
  // If the call finds no room, the receiver has something to read on that connection, and looks.
  const int error = send_message(to.connection.get(), {.kind = MessageKind::ring_calls});
  return is_gone(error) ? error : 0;
}

int DatagramSockets::send_waiting(Outgoing& to) {
  for (; !to.waiting.empty(); to.waiting.pop_front())
    if (const int error = send_one(to, to.waiting.front())) return error;
  return 0;
}

/// Whether the receiver has ended.  Its ring would still accept datagrams.
bool DatagramSockets::is_dead(const Outgoing& to) {
  return to.ring && to.peer->state() == PeerState::dead;
}

bool DatagramSockets::send(std::uint32_t process_id, const Message& opening,
                           std::span<const std::byte> datagram) {
  assert(process_id < process_ids_max);
  assert(datagram.size() > sizeof(Message));
  Outgoing& to = outgoing_[process_id];
  int error = is_dead(to) ? EPIPE : 0;
  if (error == 0 && !to.connection) error = connect(process_id, opening, to);
  if (error == 0) error = send_waiting(to);
  if (error == 0) error = send_one(to, datagram);
  if (error == 0) return to.way == Way::connection && to.sent == ring_from;
  if (is_lost(error)) {
    outgoing_.erase(process_id);
    return false;
  }
  if (to.waiting.size() < waiting_max) to.waiting.emplace_back(datagram.begin(), datagram.end());
  if (to.ring) ring_is_full_.store(true, std::memory_order_relaxed);
  return true;
}

/// Takes the steps towards a ring that can be taken now.
void DatagramSockets::seek_ring(std::uint32_t process_id, Outgoing& to, Connections& connections) {
  if (to.way == Way::connection && to.sent == ring_from) {
    to.peer = connections.attach(process_id);
    const int error =
        send_message(to.connection.get(), connections.message(MessageKind::ring_wanted));
    if (error == 0) to.way = Way::asked;
    if (is_gone(error)) to.way = Way::none;  // The next datagram connects anew.
  }
  if (to.way == Way::asked) take_grant(to);
  if (to.way == Way::granted) begin_ring(to, connections.message(MessageKind::ring_begins));
}

void DatagramSockets::take_grant(Outgoing& to) {
  assert(to.way == Way::asked);
  detail::Descriptor attached;
  const Reception reception = soft::receive_message(to.connection.get(), to.grant, attached);
  if (reception == Reception::nothing) return;
  to.way = reception == Reception::message && to.grant.bytes != 0 ? Way::granted : Way::none;
}

void DatagramSockets::begin_ring(Outgoing& to, const Message& beginning) {
  assert(to.way == Way::granted);
  assert(to.peer);
  // The receiver's segment cannot be mapped here, or the receiver is ending.
  if (to.peer->state() == PeerState::dead) to.way = Way::none;
  // Datagrams that wait are sent first.
  if (to.peer->state() != PeerState::attached || !to.waiting.empty()) return;
  DatagramRing* const ring = ring_at(to.peer->segment(), to.grant.bytes);
  if (!ring || to.peer->nonce() != to.grant.nonce) {
    to.way = Way::none;
    return;
  }
  const int error = send_message(to.connection.get(), beginning);
  if (is_gone(error)) to.way = Way::none;  // The next datagram connects anew.
  if (error != 0) return;
  to.ring = DatagramWriter(*ring);
  to.way = Way::ring;
}

bool DatagramSockets::flush(Connections& connections, bool may_have_rings) {
  bool again = false;
  bool ring_is_full = false;
  for (auto place = outgoing_.begin(); place != outgoing_.end();) {
    Outgoing& to = place->second;
    int error = is_dead(to) ? EPIPE : 0;
    if (error == 0 && !to.connection && !to.waiting.empty())
      error = connect(place->first, connections.message(MessageKind::datagrams), to);
    if (error == 0) error = send_waiting(to);
    if (!may_have_rings) to.way = Way::none;
    if (error == 0 && to.connection) {
      try {
        seek_ring(place->first, to, connections);
      } catch (const std::bad_alloc&) {  // datagrams then stay on the connection
        to.way = Way::none;
      }
      // The message that asks for the ring, or says that it begins, has found no room.
      again |= (to.way == Way::connection && to.sent == ring_from) ||
               (to.way == Way::granted && to.peer->state() == PeerState::attached);
    }
    again |= error != 0 && (!to.connection || to.ring);
    ring_is_full |= error != 0 && to.ring;
    place = is_lost(error) ? outgoing_.erase(place) : std::next(place);
  }
  ring_is_full_.store(ring_is_full, std::memory_order_relaxed);
  return again;
}

void DatagramSockets::collect(std::vector<pollfd>& descriptors) const {
  for (const auto& [id, to] : outgoing_) {
    const int events =
        (to.ring || to.waiting.empty() ? 0 : POLLOUT) | (to.way == Way::asked ? POLLIN : 0);
    if (to.connection && events != 0)
      descriptors.push_back(
          {.fd = to.connection.get(), .events = static_cast<short>(events), .revents = 0});
  }
  for (const Source& source : incoming_)
    descriptors.push_back({.fd = source.connection.get(), .events = POLLIN, .revents = 0});
}

// --- Receiving ----------------------------------------------------------------------------------

Reception DatagramSockets::receive_one(int source, std::span<const std::byte>& datagram) {
  ssize_t bytes = ::recv(source, received_.data(), received_.size(), MSG_DONTWAIT);
  // A sender that ends with an answer unread resets the connection.  The error is reported once,
  // and before the datagrams that it has sent.
  if (bytes < 0 && errno == ECONNRESET)
    bytes = ::recv(source, received_.data(), received_.size(), MSG_DONTWAIT);
  if (bytes < 0) return is_gone(errno) ? Reception::closed : Reception::nothing;
  if (bytes == 0) return Reception::closed;
  datagram = std::span(received_).first(static_cast<std::size_t>(bytes));
  return Reception::message;
}

/// Answers with the offset of a ring, or says that there is none.
void DatagramSockets::grant_ring(Source& source, Message answer, Segment& segment) {
  if (!source.ring) {
    try {
      arrivals_.reserve();
      source.ring_offset = segment.allocate(sizeof(DatagramRing));
    } catch (const std::bad_alloc&) {  // treated as a segment without room
    }
    if (source.ring_offset != 0) {
      assert(source.ring_offset % line_bytes == 0);
      source.ring.emplace(*segment.view().at<DatagramRing>(source.ring_offset), arrivals_.take());
    }
  }
  answer.bytes = source.ring_offset;
  // If the answer finds no room, which only a sender that asks again and again can bring about,
  // that sender goes on by the connection.
  (void)send_message(source.connection.get(), answer);
}

void DatagramSockets::receive_message(Source& source, const Message& message, const Message& answer,
                                      Segment& segment) {
  if (message.layout_version != layout_version) return;
  if (message.kind == MessageKind::ring_wanted) grant_ring(source, answer, segment);
  if (message.kind != MessageKind::ring_begins || !source.ring || source.ring->has_begun()) return;
  source.ring->begin();
  rings_count_.fetch_add(1, std::memory_order_relaxed);
}

unsigned DatagramSockets::receive_by_ring(Source& source, unsigned count_max,
                                          const Deliver& deliver) {
  unsigned count = 0;
  for (; source.ring && count < count_max && source.ring->is_ready(); ++count) {
    deliver(source.ring->front());
    source.ring->release_front();
  }
  return count;
}

/// When to look next, after the helper thread has received `received` datagrams by the ring.
DatagramSockets::Again DatagramSockets::rest(Source& source, unsigned received) {
  if (!source.ring || !source.ring->has_begun()) return Again::when_called;
  const bool is_polled = source.ring->taken() - source.looked_at != received;
  source.looked_at = source.ring->taken();
  // While polls take the datagrams no calls are wanted: one for each datagram would cost its sender
  // more than all the rest, and the polling thread its CPU.  A datagram that comes after the last
  // poll waits for the next look.
  if (is_polled) return Again::soon;
  return source.ring->want_call() ? Again::at_once : Again::when_called;
}

DatagramSockets::Again DatagramSockets::receive(const Connections& connections, Segment& segment,
                                                const Deliver& deliver) {
  Again again = Again::when_called;
  for (auto source = incoming_.begin(); source != incoming_.end();) {
    Reception reception = Reception::message;
    for (unsigned count = 0; count < turn_max && reception == Reception::message; ++count) {
      std::span<const std::byte> datagram;
      reception = receive_one(source->connection.get(), datagram);
      if (reception != Reception::message) continue;
      if (datagram.size() != sizeof(Message)) {
        deliver(datagram);  // datagrams that are left keep the socket readable
        continue;
      }
      Message message;
      std::memcpy(&message, datagram.data(), sizeof(message));
      receive_message(*source, message, connections.message(MessageKind::ring), segment);
    }
    const bool has_ended = reception == Reception::closed;
    const unsigned received = receive_by_ring(
        *source, has_ended ? unsigned{DatagramRing::slots_count} : turn_max, deliver);
    if (has_ended) {
      if (source->ring && source->ring->has_begun()) {
        assert(rings_count_.load(std::memory_order_relaxed) > 0);
        rings_count_.fetch_sub(1, std::memory_order_relaxed);
      }
      source->ring.reset();
      segment.free(source->ring_offset);
      source = incoming_.erase(source);
      continue;
    }
    again = std::max(again, rest(*source, received));
    ++source;
  }
  return again;
}

void DatagramSockets::poll(const Deliver& deliver) {
  for (Source& source : incoming_) (void)receive_by_ring(source, turn_max, deliver);
  if (!ring_is_full_.load(std::memory_order_relaxed)) return;
  bool is_full = false;
  for (auto& [id, to] : outgoing_) is_full |= to.ring && !is_dead(to) && send_waiting(to) != 0;
  ring_is_full_.store(is_full, std::memory_order_relaxed);
}

void DatagramSockets::want_calls() noexcept {
  // No call is needed for a datagram that is there already: one has been made, or the helper thread
  // is going to look.
  for (Source& source : incoming_)
    if (source.ring) (void)source.ring->want_call();
}

void DatagramSockets::abandon() {
  for (auto& [id, to] : outgoing_) to.connection = detail::Descriptor();
  for (Source& source : incoming_) source.connection = detail::Descriptor();
}

}  // namespace tutti::verbs::soft
