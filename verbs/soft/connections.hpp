// The sockets of this process, which the helper thread serves: peers (processes that this one
// initiates requests to, and whose segments it maps) and clients (processes that do the same with
// this one).  Guarded by the mutex of Process, except in open().
#pragma once

#include <poll.h>

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "tutti/detail/descriptor.hpp"
#include "verbs/soft/backing.hpp"
#include "verbs/soft/peer.hpp"
#include "verbs/soft/rendezvous.hpp"

namespace tutti::verbs::soft {

/// What the connections report.
struct Events {
  struct Death {
    std::uint32_t id;
    std::uint64_t nonce;
  };
  struct GoneBacking {
    std::shared_ptr<Peer> peer;
    std::uint32_t number;
  };
  std::vector<Death> deaths;
  std::vector<GoneBacking> gone_backings;
  std::vector<std::uint64_t> calls;                  // see Peer::call
  std::vector<detail::Descriptor> datagram_sources;  // connections that carry datagrams
};

/// Whether a process runs, as far as the system says.
enum class Life : std::uint8_t { runs, stopped, unseen };

class Connections {
 public:
  /// Binds a name and thereby an id; the search starts at `first_id`.  0 or an errno value.
  int open(std::uint32_t first_id);
  std::uint32_t id() const { return id_; }

  /// Sets what clients are given.  To be called before serve().
  void introduce(std::uint64_t nonce, const SegmentView& segment, int segment_descriptor);

  /// The peer with this id, which may not be attached yet.
  std::shared_ptr<Peer> attach(std::uint32_t id);

  /// The state of the process with this nonce, which has attached to this one.
  Life life_of(std::uint64_t nonce) const noexcept;

  /// Asks one client, or all of them (id 0), to look at its pending requests.
  void kick(std::uint32_t id);

  /// A message in the name of this process.
  Message message(MessageKind kind) const;
  void announce_gone(std::uint32_t backing) noexcept;

  void collect(std::vector<pollfd>& descriptors) const;
  /// What the system has said about these: the next serve() leaves those alone where nothing has
  /// come.  With hundreds of connections a system call for each would take longer than all else.
  void heed(std::span<const pollfd> descriptors);
  /// True when something has to be tried again soon.
  bool serve(const Backings& backings, Events& events);

  /// Closes everything, in a child of fork: it must not keep its parent's connections alive.
  void abandon();

 private:
  struct Client {
    detail::Descriptor connection;
    std::uint32_t id = 0;
    std::uint64_t nonce = 0;
    // The backings that it has asked for; it is informed when they go.
    std::set<std::uint32_t> backings;
    // Answers that a stopped client has no room for yet, each with the descriptor to pass or -1.
    // Their number is bounded: while there are some no further request is read, and the client is
    // not informed about a backing that it did not ask for.
    std::deque<std::pair<Message, int>> answers;
    bool alive = true;
  };

  void serve_client(Client& client, const Backings& backings, Events& events);
  void answer(Client& client, const Backings& backings, const Message& request, Events& events);

  std::uint32_t id_ = 0;
  std::uint64_t nonce_ = 0;
  int segment_descriptor_ = -1;
  detail::Descriptor listener_;
  bool accepts_ =
      true;  // false: no descriptor is left, and the listener would keep the thread busy
  std::map<std::uint32_t, std::shared_ptr<Peer>> peers_;
  std::list<Client> clients_;

  /// False where heed() has heard that there is nothing.  The number may be another's meanwhile; it
  /// is heard of the next time then.
  bool may_have_news(int descriptor) const {
    const auto number = static_cast<std::size_t>(descriptor);
    return descriptor < 0 || number >= is_quiet_.size() || is_quiet_[number] == 0;
  }
  std::vector<char> is_quiet_;  // by descriptor
};

}  // namespace tutti::verbs::soft
