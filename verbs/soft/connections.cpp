#include "verbs/soft/connections.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstdio>
#include <new>
#include <string_view>
#include <utility>

namespace tutti::verbs::soft {
namespace {

/// The largest number of connections, and of messages of one connection, that are handled in one
/// turn.  The mutex of the process is held meanwhile; what is left wakes the helper thread again.
constexpr unsigned turn_max = 64;

/// The state is a letter in /proc: 'T' when stopped by a signal, 't' by a debugger.
Life read_life(pid_t process) noexcept {
  char path[32];
  (void)std::snprintf(path, sizeof(path), "/proc/%d/stat", static_cast<int>(process));
  const detail::Descriptor file(::open(path, O_RDONLY | O_CLOEXEC));
  char text[128];  // number, name of up to 15 letters in parentheses, state
  const ssize_t bytes = file ? ::read(file.get(), text, sizeof(text)) : -1;
  if (bytes <= 0) return Life::unseen;
  const std::string_view line(text, static_cast<std::size_t>(bytes));
  const std::size_t name_end = line.rfind(") ");
  if (name_end == line.npos || name_end + 2 >= line.size()) return Life::unseen;
  const char state = line[name_end + 2];
  return state == 'T' || state == 't' ? Life::stopped : Life::runs;
}

}  // namespace

int Connections::open(std::uint32_t first_id) {
  assert(!listener_);
  return listen_for_peers(first_id, listener_, id_);
}

void Connections::introduce(std::uint64_t nonce, const SegmentView& segment,
                            int segment_descriptor) {
  assert(id_ != 0);
  assert(nonce != 0);
  assert(segment_descriptor >= 0);
  nonce_ = nonce;
  segment_descriptor_ = segment_descriptor;
  peers_[id_] = std::make_shared<Peer>(id_, segment);
}

Message Connections::message(MessageKind kind) const {
  assert(id_ < process_ids_max);
  return {.kind = kind, .id = id_, .nonce = nonce_};
}

std::shared_ptr<Peer> Connections::attach(std::uint32_t id) {
  assert(id < process_ids_max);
  auto made = std::make_shared<Peer>(id);  // made first, so that the table has no empty places
  std::shared_ptr<Peer>& peer = peers_[id];
  if (!peer || peer->state() == PeerState::dead) {
    peer = std::move(made);
    peer->connect(message(MessageKind::hello));
  }
  return peer;
}

Life Connections::life_of(std::uint64_t nonce) const noexcept {
  if (nonce == nonce_) return Life::runs;  // this process, which runs, as it is asking
  for (const Client& client : clients_) {
    if (client.nonce != nonce) continue;
    bool same_user = false;
    const pid_t process = process_behind(client.connection.get(), same_user);
    return process > 0 ? read_life(process) : Life::unseen;
  }
  return Life::unseen;
}

void Connections::kick(std::uint32_t id) {
  assert(id < process_ids_max);
  // A message that finds no room is lost; a waiting client also looks by itself.
  for (Client& client : clients_)
    if (id == 0 || client.id == id)
      (void)send_message(client.connection.get(), message(MessageKind::look));
}

void Connections::announce_gone(std::uint32_t backing) noexcept {
  assert(backing != 0);
  Message gone = message(MessageKind::backing_gone);
  gone.backing = backing;
  for (Client& client : clients_) {
    if (client.backings.erase(backing) == 0) continue;
    try {
      client.answers.emplace_back(gone, -1);
    } catch (const std::bad_alloc&) {  // the client keeps a mapping that no key leads to any more
    }
  }
}

void Connections::collect(std::vector<pollfd>& descriptors) const {
  const auto add = [&](int number) {
    if (number >= 0) descriptors.push_back({.fd = number, .events = POLLIN, .revents = 0});
  };
  if (accepts_) add(listener_.get());
  for (const auto& [id, peer] : peers_) {
    if (peer->state() == PeerState::dead) continue;
    add(peer->connection());
    add(peer->liveness());
  }
  // Requests that are not read yet must not keep the thread busy; a closed connection is always
  // reported.
  for (const Client& client : clients_)
    descriptors.push_back({.fd = client.connection.get(),
                           .events = static_cast<short>(client.answers.empty() ? POLLIN : 0),
                           .revents = 0});
}

void Connections::heed(std::span<const pollfd> descriptors) {
  is_quiet_.clear();
  for (const pollfd& one : descriptors) {
    const auto number = static_cast<std::size_t>(one.fd);
    if (one.fd < 0 || one.revents != 0) continue;
    if (number >= is_quiet_.size()) is_quiet_.resize(number + 1);
    is_quiet_[number] = 1;
  }
}

bool Connections::serve(const Backings& backings, Events& events) {
  int error = 0;
  for (unsigned count = 0; error == 0 && count < turn_max; ++count) {
    detail::Descriptor connection;
    error = accept_peer(listener_.get(), connection);
    if (!connection) continue;
    clients_.emplace_back();
    clients_.back().connection = std::move(connection);
  }
  accepts_ = error == 0 || error == EAGAIN || error == EINTR || error == ECONNABORTED;
  bool again = !accepts_;
  for (auto place = clients_.begin(); place != clients_.end();) {
    serve_client(*place, backings, events);
    again |= !place->answers.empty();
    if (place->alive) {
      ++place;
      continue;
    }
    const Events::Death death{place->id, place->nonce};
    place = clients_.erase(place);
    // A client that lacked a descriptor for the answer connects for a second time.
    const bool lives = std::any_of(clients_.begin(), clients_.end(), [&](const Client& client) {
      return client.id == death.id && client.nonce == death.nonce;
    });
    if (death.id != 0 && !lives) events.deaths.push_back(death);
  }
  for (auto place = peers_.begin(); place != peers_.end();) {
    const std::shared_ptr<Peer> peer = place->second;
    if (!peer->is_self() && peer->state() != PeerState::dead) {
      if (!peer->connected()) again |= !peer->connect(message(MessageKind::hello));
      pollfd gone{.fd = peer->liveness(), .events = POLLIN, .revents = 0};
      if (peer->liveness() >= 0 && may_have_news(peer->liveness()) && ::poll(&gone, 1, 0) > 0)
        peer->die();
      while (may_have_news(peer->connection()) && peer->connected() &&
             peer->state() != PeerState::dead) {
        const std::uint32_t number = peer->receive();
        if (number == 0) break;
        events.gone_backings.push_back({peer, number});
      }
      again |= peer->owes_call();
    }
    if (peer->state() != PeerState::dead) {
      again |= !peer->is_self() && !peer->connected();
      ++place;
      continue;
    }
    events.deaths.push_back({peer->id(), peer->nonce()});
    place = peers_.erase(place);
  }
  return again;
}

void Connections::serve_client(Client& client, const Backings& backings, Events& events) {
  const bool reads = may_have_news(client.connection.get());
  for (unsigned count = 0; reads && client.alive && client.answers.empty() && count < turn_max;
       ++count) {
    Message request{};
    detail::Descriptor attached;
    const Reception reception = receive_message(client.connection.get(), request, attached);
    if (reception == Reception::nothing) break;
    if (reception == Reception::closed)
      client.alive = false;
    else
      answer(client, backings, request, events);
  }
  while (client.alive && !client.answers.empty()) {
    const auto& [reply, descriptor] = client.answers.front();
    // The backing may have gone while the answer waited; its descriptor must not be used any more.
    int passed = descriptor;
    if (reply.kind == MessageKind::backing) {
      const Backing* const backing = backings.get(reply.backing);
      passed = backing ? backing->descriptor.get() : -1;
    }
    if (const int error = send_message(client.connection.get(), reply, passed); error != 0) {
      client.alive = !is_gone(error);
      break;
    }
    client.answers.pop_front();
  }
}

void Connections::answer(Client& client, const Backings& backings, const Message& request,
                         Events& events) {
  switch (request.kind) {
    case MessageKind::hello:
      if (request.layout_version != layout_version) {
        client.alive = false;
        return;
      }
      client.id = request.id;
      client.nonce = request.nonce;
      client.answers.emplace_back(message(MessageKind::welcome), segment_descriptor_);
      return;
    case MessageKind::backing_wanted: {
      Message reply = message(MessageKind::backing);
      reply.backing = request.backing;
      if (const Backing* const backing = backings.get(request.backing)) {
        reply.bytes = backing->bytes;
        client.backings.insert(request.backing);
      }
      client.answers.emplace_back(reply, -1);
      return;
    }
    case MessageKind::call:
      events.calls.push_back(request.bytes);
      return;
    case MessageKind::datagrams:
      // Its end is nobody's death: such a connection may close before its process ends.
      if (request.layout_version == layout_version && client.id == 0)
        events.datagram_sources.push_back(std::move(client.connection));
      client.alive = false;
      return;
    case MessageKind::welcome:
    case MessageKind::backing:
    case MessageKind::backing_gone:
    case MessageKind::look:
    case MessageKind::ring_wanted:
    case MessageKind::ring:
    case MessageKind::ring_begins:
    case MessageKind::ring_calls:
      client.alive = false;  // an initiator does not send these, or not on this connection
  }
}

void Connections::abandon() {
  listener_ = detail::Descriptor();
  for (Client& client : clients_) client.connection = detail::Descriptor();
  for (auto& [id, peer] : peers_) peer->abandon();
}

}  // namespace tutti::verbs::soft
