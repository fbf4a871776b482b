// TCP sockets as this layer uses them: non-blocking, closed on exec and in forked children, without
// delay, and set to notice a peer whose host has vanished.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/unshared_descriptor.hpp"
#include "tutti/timeout.hpp"

namespace tutti::bootstrap {

/// A host that vanishes without a word is noticed after this long: silence of 4 s, then a probe
/// every 2 s, or as long without an acknowledgement of something sent.
inline constexpr std::chrono::seconds vanished_after{10};

struct Endpoint {
  std::string host;
  std::string port;
};

/// "host:port" or "[address]:port".  Throws Error{invalid_argument} with an example.
Endpoint parse_endpoint(const std::string& rendezvous);

struct Address {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
};

/// The IP address as text, without the port.
std::string text_of(const Address& address);

/// Which host that is, as far as one can tell: an IPv4 address, or the network of an IPv6 address,
/// because a host may have all of its addresses.  0 for other families.
std::uint64_t origin_of(const Address& address) noexcept;

/// Whether both have one IP address.
bool are_of_one_host(const Address& one, const Address& other) noexcept;

/// The addresses of the host now, in the resolver's order.  Empty: the resolver asks to try again
/// later.  Blocks as long as the system's resolver does.  Throws Error{invalid_argument}.
std::vector<Address> resolve(const Endpoint& endpoint, const std::string& rendezvous);

/// A socket that listens on the first of the addresses that this host has.  Throws Error{system}.
UnsharedDescriptor listen_at(std::span<const Address> addresses, const std::string& rendezvous);

/// Room for the pending connections of a job that starts all at once; the kernel has its own limit.
inline constexpr std::size_t backlog = 4096;

/// Closes connections that wait in the queue of a listening socket: at most `at_most`, because new
/// ones may come as fast as they are closed.  Returns how many.
std::size_t close_waiting(int listener, std::size_t at_most) noexcept;

/// The address and port at which a socket is bound.  Throws Error{system}.
Address own_end_of(int socket);

/// A connection to one of the addresses, or an empty owner and errno.
UnsharedDescriptor connect_to(std::span<const Address> addresses, Deadline deadline) noexcept;

/// Whether a host answers at all within that time, or cannot be asked.  It is asked at a port at
/// which nobody listens as a rule: a refusal is an answer, too.  That tells a host whose rank has a
/// full queue, for which the kernel drops what asks for a connection, from one that has vanished,
/// unless a firewall drops such packets.
inline constexpr std::chrono::seconds host_answers_within{3};
bool host_answers(const Address& address, Deadline deadline,
                  Timeout within = host_answers_within) noexcept;
/// Where host_answers() asks.
Address elsewhere_at_host_of(const Address& address) noexcept;
/// Whether `error` says that the other host does not answer, as far as the network knows: when
/// connecting has failed, or a connection has ended.
bool is_silence(int error) noexcept;
/// Whether connecting has failed for want of something that this process or host has too little of.
bool is_own_shortage(int error) noexcept;

/// How long nothing may answer at a rank's port, and then at another port of its host, until the
/// host is taken for vanished.
struct Patience {
  Timeout with_port = vanished_after - host_answers_within;
  Timeout with_host = host_answers_within;
};

/// A connection that is being made, or an empty owner and errno.
UnsharedDescriptor begin_to_connect(const Address& address) noexcept;
/// Once such a socket can be written: 0, or the errno value of why it is not connected.
int outcome_of_connecting(int socket) noexcept;

/// Must be called for every connection, accepted or made.
void set_connection_options(int socket) noexcept;

/// The remaining time in the form of poll(): rounded up, and never longer than an hour.
int poll_milliseconds(Timeout remaining) noexcept;

enum class Reception : std::uint8_t { some, nothing_yet, end };

/// One recv that does not wait.  `end`: the peer has closed, or the connection has failed.
Reception receive_some(int socket, std::span<std::byte> space, std::size_t& bytes) noexcept;

/// Sends what the kernel takes without waiting.  False: the connection has failed.
bool send_some(int socket, std::span<const std::byte> bytes, std::size_t& sent) noexcept;

/// Ends the sending side and waits until the peer's host has acknowledged everything, or until the
/// deadline: closing a socket with unread input would reset the connection, and the peer might lose
/// the last messages.
void finish_sending(int socket, Deadline deadline) noexcept;
/// Ends the sending side and waits until the peer has closed the connection, too, as it does once
/// it has read everything, or until the deadline.
void finish_and_await_end(int socket, Deadline deadline) noexcept;

}  // namespace tutti::bootstrap
