// How datagrams travel between processes: over connections of their own, one for each direction, so
// that they are in nobody's way.  What a socket has no room for waits in this process, up to a
// bound; what is beyond it, or addressed to nobody, is lost, as datagrams may be.
// Guarded by the mutex of Process.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <span>
#include <vector>

#include "tutti/detail/descriptor.hpp"
#include "verbs/soft/rendezvous.hpp"

namespace tutti::verbs::soft {

inline constexpr std::uint32_t datagram_max_bytes = 4096;  // the path's MTU
inline constexpr std::size_t datagram_header_max_bytes = 128;

class DatagramSockets {
 public:
  /// Sends, keeps for later, or drops.  True when the helper thread has to see to it.
  bool send(std::uint32_t process_id, const Message& opening, std::span<const std::byte> datagram);

  /// A connection by which another process sends.
  void adopt(detail::Descriptor source) { incoming_.push_back(std::move(source)); }

  void collect(std::vector<pollfd>& descriptors) const;

  /// Sends what waits.  True when something has to be tried again soon.
  bool flush(const Message& opening);

  /// Hands a few datagrams of each source to `deliver`: what is left keeps its socket readable, and
  /// other work gets its turn.
  template <class Deliver>
  void receive(const Deliver& deliver) {
    constexpr unsigned turn = 16;
    for (auto source = incoming_.begin(); source != incoming_.end();) {
      Reception reception = Reception::message;
      for (unsigned count = 0; count < turn && reception == Reception::message; ++count) {
        std::span<const std::byte> datagram;
        reception = receive_one(source->get(), datagram);
        if (reception == Reception::message) deliver(datagram);
      }
      source = reception == Reception::closed ? incoming_.erase(source) : std::next(source);
    }
  }

  /// Closes everything, in a child of fork.
  void abandon();

 private:
  struct Outgoing {
    detail::Descriptor connection;  // none: the other side's backlog was full
    std::deque<std::vector<std::byte>> waiting;
  };

  static int connect(std::uint32_t process_id, const Message& opening, Outgoing& to);
  static int send_waiting(Outgoing& to);
  Reception receive_one(int source, std::span<const std::byte>& datagram);

  std::map<std::uint32_t, Outgoing> outgoing_;  // by process id
  std::list<detail::Descriptor> incoming_;
  // One more than the largest: what fills it is none of ours.
  std::vector<std::byte> received_ =
      std::vector<std::byte>(datagram_header_max_bytes + datagram_max_bytes + 1);
};

}  // namespace tutti::verbs::soft
