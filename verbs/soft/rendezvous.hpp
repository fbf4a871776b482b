// How processes find each other: abstract unix sockets, whose names vanish with their process.
// Binding the name allocates the process's id.  A connection carries small messages and
// descriptors; its end is the death of the other side.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tutti/detail/descriptor.hpp"
#include "verbs/soft/layout.hpp"

namespace tutti::verbs::soft {

enum class MessageKind : std::uint32_t {
  hello = 1,       // initiator to target: id and nonce of the sender
  welcome,         // target to initiator: nonce, and the segment's descriptor
  backing_wanted,  // initiator to target: number of a file that a region lies in
  backing,         // target to initiator: number, bytes, and the descriptor if it still exists
  backing_gone,    // target to initiator: the last region in the file is gone; unmap it
  look,            // target to initiator: a receive that you waited for was posted
  call,            // initiator to target: there is an event for you; `bytes` says where
  datagrams,       // sender to target: all that follows on this connection is datagrams, or
  ring_wanted,     // sender to target: asks for a DatagramRing
  ring,         // target to sender: nonce, and the ring's offset in the segment (`bytes`); 0: none
  ring_begins,  // sender to target: later datagrams come by the ring
  ring_calls,   // sender to target: a datagram was stored there while you wanted to be called
};

struct Message {
  MessageKind kind{};
  std::uint32_t layout_version = soft::layout_version;
  std::uint32_t id = 0;
  std::uint32_t backing = 0;
  std::uint64_t nonce = 0;
  std::uint64_t bytes = 0;
};
static_assert(sizeof(Message) == 32);
static_assert(offsetof(Message, nonce) == 16);
static_assert(std::is_trivially_copyable_v<Message>);
static_assert(std::has_unique_object_representations_v<Message>);

/// Binds the first free name from `first_id` on, cyclically, and listens.  0 or an errno value.
int listen_for_peers(std::uint32_t first_id, detail::Descriptor& listener, std::uint32_t& id);

/// Never waits, not even for a stopped process.  0, EAGAIN (its backlog is full) or an errno value.
int connect_to_peer(std::uint32_t id, detail::Descriptor& connection);

/// Accepts one waiting connection; `connection` stays empty if it is another user's.  0, EAGAIN
/// when none waits, or an errno value when the system lacks a resource: the connection then waits
/// on.
int accept_peer(int listener, detail::Descriptor& connection);

/// Process id of the other side; 0 when it belongs to another user or lives in a process-id
/// namespace that this process does not see.
pid_t process_behind(int connection, bool& same_user);

/// 0, or an errno value; see is_gone().
int send_message(int connection, const Message& message, int attached = -1);

/// Whether this error of send_message means that there is no other side any more.  Other errors
/// pass: a full socket, a lack of memory or descriptors.
bool is_gone(int error);

/// `cut`: the message's descriptor was lost, because this process cannot have one more.
enum class Reception { message, cut, nothing, closed };
Reception receive_message(int connection, Message& message, detail::Descriptor& attached);

}  // namespace tutti::verbs::soft
