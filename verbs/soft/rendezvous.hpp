// How processes find each other: abstract unix sockets, whose names vanish with their process.
// Binding the name allocates the process's id.  A connection carries small messages and
// descriptors; its end is the death of the other side.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tutti/detail/descriptor.hpp"

namespace tutti::verbs::soft {

enum class MessageKind : std::uint32_t {
  hello = 1,       // initiator -> target: id and nonce of the sender
  welcome,         // target -> initiator: nonce, and the segment's descriptor
  backing_wanted,  // initiator -> target: number of a file that a region lies in
  backing,         // target -> initiator: number, bytes, and the descriptor if it still exists
  backing_gone,    // target -> initiator: the last region in it is gone; unmap it
  look,            // target -> initiator: a receive was posted that you waited for
  call,            // initiator -> target: there is an event for you; `bytes` says where
  datagrams,       // sender -> target: all that follows on this connection are datagrams, or:
  ring_wanted,     // sender -> target: a DatagramRing
  ring,            // target -> sender: nonce, and where in the segment it is (`bytes`); 0: nowhere
  ring_begins,     // sender -> target: later datagrams come by the ring
  ring_calls,      // sender -> target: a datagram was stored there while you wanted to be called
};

struct Message {
  MessageKind kind;
  std::uint32_t layout_version;
  std::uint32_t id;
  std::uint32_t backing;
  std::uint64_t nonce;
  std::uint64_t bytes;
};
static_assert(sizeof(Message) == 32);
static_assert(offsetof(Message, nonce) == 16);
static_assert(std::is_trivially_copyable_v<Message>);
static_assert(std::has_unique_object_representations_v<Message>);

/// Binds the first free name from `first_id` on, cyclically, and listens.  0 or an errno value.
int listen_for_peers(std::uint32_t first_id, detail::Descriptor& listener, std::uint32_t& id);

/// Never waits, even for a stopped process.  0, EAGAIN (its backlog is full) or an errno value.
int connect_to_peer(std::uint32_t id, detail::Descriptor& connection);

/// Accepts one waiting connection; it stays empty for a process of another user.  0, EAGAIN when
/// none waits, or an errno value when the system lacks what it takes: the connection waits on.
int accept_peer(int listener, detail::Descriptor& connection);

/// Process id of the other side; 0 when it belongs to another user or lives in a process-id
/// namespace that we do not see.
pid_t process_behind(int connection, bool& same_user);

/// 0, or an errno value; see is_gone().
int send_message(int connection, const Message& message, int attached = -1);

/// Whether this error of send_message means that there is no other side any more.  Others pass: a
/// full socket, a lack of memory or descriptors.
bool is_gone(int error);

/// `cut`: a message whose descriptor was lost, as this process cannot have one more.
enum class Reception { message, cut, nothing, closed };
Reception receive_message(int connection, Message& message, detail::Descriptor& attached);

}  // namespace tutti::verbs::soft
