#include "verbs/soft/peer.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <mutex>
#include <new>
#include <utility>

#include "tutti/detail/clock.hpp"
#include "verbs/soft/backing.hpp"

namespace tutti::verbs::soft {

Peer::Peer(std::uint32_t id, const SegmentView& own)
    : id_(id),
      is_self_(true),
      state_(PeerState::attached),
      segment_(own),
      nonce_(own.header().nonce),
      process_(::getpid()) {
  assert(segment_.base != nullptr);
  assert(nonce_ != 0);
}

bool Peer::connect(const Message& hello) {
  assert(hello.kind == MessageKind::hello);
  assert(!connection_);
  assert(!is_self_);
  detail::Descriptor connection;
  int error = connect_to_peer(id_, connection);
  if (error == 0) {
    bool same_user = false;
    process_ = process_behind(connection.get(), same_user);
    error = same_user ? send_message(connection.get(), hello) : EACCES;
  }
  // Nobody has that name, or another user has it: the process is gone.  Any other error says
  // something about this process or the moment, and nothing about the peer.
  if (error == ECONNREFUSED || error == EACCES || is_gone(error)) {
    die();
    return true;
  }
  if (error != 0) return false;
  // Not every container lets us see the process; then the end of the connection shows its death.
  if (process_ > 0)
    liveness_ = detail::Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, process_, 0)));
  connection_ = std::move(connection);
  return true;
}

std::uint32_t Peer::receive() {
  assert(connection_);
  // The number is bounded because a mutex is held.  What is left wakes the helper thread again.
  constexpr unsigned turn_max = 64;
  for (unsigned count = 0; count < turn_max; ++count) {
    Message message{};
    detail::Descriptor attached;
    switch (receive_message(connection_.get(), message, attached)) {
      case Reception::nothing:
        return 0;
      case Reception::closed:
        die();
        return 0;
      case Reception::cut:
        // It is asked for again: the segment by another connection, a backing by the next request.
        if (message.kind == MessageKind::welcome) {
          connection_ = detail::Descriptor();
          return 0;
        }
        (void)drop_backing(message.backing);
        continue;
      case Reception::message:
        break;
    }
    switch (message.kind) {
      case MessageKind::welcome:
        take_segment(message, std::move(attached));
        break;
      case MessageKind::backing:
        take_backing(message, attached);
        break;
      case MessageKind::backing_gone:
        return message.backing;
      case MessageKind::look:
        break;  // the helper thread looks after every message
      case MessageKind::hello:
      case MessageKind::backing_wanted:
      case MessageKind::call:
      case MessageKind::datagrams:
      case MessageKind::ring_wanted:
      case MessageKind::ring:
      case MessageKind::ring_begins:
      case MessageKind::ring_calls:
        die();
        return 0;  // a target does not send these
    }
    if (state() == PeerState::dead) return 0;
  }
  return 0;
}

void Peer::take_segment(const Message& message, detail::Descriptor attached) {
  constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  struct stat status;
  if (mapping_ || !attached || message.layout_version != layout_version ||
      !is_sealed(attached.get(), seals) || ::fstat(attached.get(), &status) != 0 ||
      status.st_size != segment_bytes)
    return die();
  mapping_ = detail::Mapping(::mmap(nullptr, segment_bytes, PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_NORESERVE, attached.get(), 0),
                             segment_bytes);
  if (!mapping_) return die();
  ::madvise(mapping_.data(), segment_bytes, MADV_DONTFORK);
  segment_ = {mapping_.data()};
  const SegmentHeader& header = segment_.header();
  if (header.magic != segment_magic || header.version != layout_version || header.id != id_ ||
      header.nonce != message.nonce)
    return die();
  nonce_ = message.nonce;
  state_.store(PeerState::attached, std::memory_order_release);
}

void Peer::take_backing(const Message& message, const detail::Descriptor& attached) {
  if (!attached) {  // the backing is gone, and the keys that name it are, too: nobody will ask
                    // again
    (void)drop_backing(message.backing);
    return;
  }
  detail::Mapping mapping;
  struct stat status;
  // Its pages must stay there, whatever the peer does to the file.
  if (is_sealed(attached.get(), F_SEAL_SHRINK) && ::fstat(attached.get(), &status) == 0 &&
      static_cast<std::uint64_t>(status.st_size) >= message.bytes)
    mapping = detail::Mapping(::mmap(nullptr, message.bytes, PROT_READ | PROT_WRITE,
                                     MAP_SHARED | MAP_NORESERVE, attached.get(), 0),
                              message.bytes);
  if (mapping) ::madvise(mapping.data(), mapping.size(), MADV_DONTFORK);
  const std::lock_guard guard(backings_lock_);
  MappedBacking& backing = backings_[message.backing];
  backing.state = mapping ? BackingState::mapped : BackingState::refused;
  backing.mapping = std::move(mapping);
}

BackingView Peer::find_backing(std::uint32_t number) {
  assert(number != 0);
  assert(!is_self_);
  const std::lock_guard guard(backings_lock_);
  if (const auto place = backings_.find(number); place != backings_.end()) {
    const MappedBacking& backing = place->second;
    return {backing.state, backing.mapping.data(), backing.mapping.size()};
  }
  const Message request{.kind = MessageKind::backing_wanted, .id = id_, .backing = number};
  // A stopped peer's socket may be full: the next request asks again.
  try {
    const auto place = backings_.emplace(number, MappedBacking{}).first;
    if (send_message(connection_.get(), request) != 0) backings_.erase(place);
  } catch (const std::bad_alloc&) {  // the next request asks again
  }
  return {};
}

bool Peer::call(std::uint64_t where) noexcept {
  assert(where != 0);
  assert(!is_self_);
  const int error =
      send_message(connection_.get(), {.kind = MessageKind::call, .id = id_, .bytes = where});
  if (error == 0 || is_gone(error)) return true;
  owes_call_.store(true, std::memory_order_relaxed);
  return false;
}

bool Peer::owes_call() noexcept {
  return owes_call_.exchange(false, std::memory_order_relaxed) && !call(everything);
}

bool Peer::is_there() noexcept {
  assert(!is_self_);
  // Process ids are given out in turn: none comes back within so short a time.
  constexpr std::int64_t believed_ns = 1'000'000;
  const std::int64_t now = detail::MonotonicClock::read().count();
  if (now - seen_ns_.load(std::memory_order_relaxed) < believed_ns) return true;
  pollfd ends[] = {{.fd = liveness_.get(), .events = POLLIN, .revents = 0},
                   {.fd = connection_.get(), .events = 0, .revents = 0}};
  if (::poll(ends, 2, 0) > 0) return false;
  seen_ns_.store(now, std::memory_order_relaxed);
  return true;
}

bool Peer::leaves_slow() const noexcept {
  // When a program is replaced, its memory goes a moment before its descriptors do.
  constexpr int patience_ms = 10;
  pollfd end{.fd = connection_.get(), .events = 0, .revents = 0};  // the end is always reported
  return !is_self_ && ::poll(&end, 1, patience_ms) > 0;
}

detail::Mapping Peer::drop_backing(std::uint32_t number) {
  const std::lock_guard guard(backings_lock_);
  auto node = backings_.extract(number);
  return node ? std::move(node.mapped().mapping) : detail::Mapping();
}

void Peer::die() {
  // The mappings stay, because a request may be using them.  They go with the last queue pair.
  state_.store(PeerState::dead, std::memory_order_release);
}

void Peer::abandon() {
  connection_ = detail::Descriptor();
  liveness_ = detail::Descriptor();
}

}  // namespace tutti::verbs::soft
