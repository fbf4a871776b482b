// How ranks meet again after some of them have died.  Each rank has listened since all were there,
// and knows where the others do, so nobody has to be told anything.  The leader, which is the
// lowest rank that is still there, runs a hub at its own port (hub.hpp); the others connect to it.
//
//   rank 0  dead               its port refuses connections: gone, for everybody and for good
//   rank 1  leads              waits until each rank has come or is gone, then welcomes all of them
//   rank 2  0 is gone; joins 1
//   rank 3  stopped            its kernel still accepts connections: it is late, and waited for
//   rank 4  dead               found by rank 1: its port refuses connections
//
// All ranks try the same ports in the same order, so they find the same leader, without a vote and
// even at different times: a port that once refuses connections accepts none again, unless another
// program gets it.  A leader that dies before it has welcomed all is found by those that wait for
// it, and the next one leads.  Ranks are numbered as in the first communicator, whatever it was
// shrunk to since.  So ranks that have got a communicator, and shrink that one, meet ranks that
// have not got it.
//
// Another program may get the port of a dead rank.  If it says anything that no rank would say, the
// rank is gone.  If it accepts connections in silence, it looks like a rank that is stopped: the
// meeting times out and names the rank.  So ranks that have been welcomed take all others for gone
// in later meetings, whatever listens at the others' ports, and also each rank whose process is
// known to have ended.  The first meeting after such a death still times out on ranks of other
// hosts.
//
// If a host has vanished, all of its ranks are gone, for this call and for those of the next minute
// (vanished_remembered) that begin before the next meeting.  While a leader does not answer, a rank
// probes all other hosts, too, so that several vanished hosts are found at the same time.  What it
// finds of hosts above the next leader counts only if it leads itself.
//
// Two ranks whose hosts cannot reach each other take each other's hosts for vanished, and then both
// sides of the network go on by themselves.
//
// The ranks' secret goes through the exchange by which they tell each other where they listen: it
// is as safe as that.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "bootstrap/socket.hpp"
#include "bootstrap/unshared_descriptor.hpp"
#include "tutti/exchange.hpp"
#include "tutti/timeout.hpp"
#include "tutti/types.hpp"

namespace tutti::bootstrap {

struct Silences;  // what a hub has found (hub.hpp)

/// What names the network of this process on its host (its namespace); never 0.
std::uint64_t network_identity() noexcept;

/// Where a rank listens; a plain value that allgather can carry.
struct MeetingCard {
  std::array<std::uint8_t, 16> address{};  // IPv4: the first four bytes
  std::array<std::uint8_t, 32> secret{};   // random, of rank 0; zero from all others
  std::uint64_t network = 0;               // names the network of its host; 0: not known
  std::uint16_t is_v6 = 0;
  std::uint16_t port = 0;  // 0: it cannot listen
  std::uint32_t reserved = 0;
};
static_assert(sizeof(MeetingCard) == 64 && std::is_trivially_copyable_v<MeetingCard>);

/// How long a rank remembers that a host has vanished, so that its next call gets further if
/// several hosts have.  Then it forgets it: otherwise ranks that find it out at different times
/// might never meet.
inline constexpr std::chrono::seconds vanished_remembered{60};

/// A rank's part of all meetings of the ranks of one communicator.  One thread at a time.
class MeetingPlace {
 public:
  /// Listens at a free port: of the loopback if all ranks are on this host and its network, else of
  /// the first interface.  Throws Error{system}.
  explicit MeetingPlace(bool all_are_here, const Patience& patience = {});

  /// What this rank tells the others.  Throws Error{system}.
  MeetingCard card(Rank self) const;
  /// Takes the cards of all ranks.  Throws Error{mismatch}, with the same words on all ranks, if
  /// two of them have the same address in different networks: each would look for the other at its
  /// own host.
  void know(std::span<const MeetingCard> all, Rank self);

  /// Why this rank cannot connect to a rank of the next host; empty: it can, or there is no other
  /// host, or the queue of that rank's port is full.  Where a firewall refuses connections, ranks
  /// that are still there would look as if they were gone.  Tries until the deadline or a refusal,
  /// and empties this rank's own queue meanwhile; then it asks whether the host answers at all, for
  /// as long again, but at most 3 s.
  std::string obstacle(Deadline deadline);

  /// Closes the connections that wait in the queue of this rank's port, for instance those that
  /// others' obstacle() and past meetings have left there.  A rank that is still waiting for this
  /// one over such a connection connects again, up to 200 ms later.
  void empty_queue() noexcept;
  /// Likewise if the queue is at least half full, because a full one answers nobody.  Otherwise it
  /// makes one system call and closes nothing.
  void make_room_in_queue() noexcept;

  struct Met {
    std::unique_ptr<Exchange> exchange;  // of those that have come; none: time is up
    std::vector<Rank> present = {};      // with it: who has come, in its order
    std::vector<Rank> missing = {};      // without it: who has not come, at least one
    std::string remark = {};             // likewise: what else is known, or empty
  };
  /// Meets the ranks that are still there, each of which calls it.  `linger`: of the exchange's
  /// destructor.  `ended`: ranks whose processes are known to have ended.  Throws Error{system},
  /// and Error{peer_failed} if the others go on without this rank.
  Met meet(Deadline deadline, Timeout linger, std::span<const Rank> ended = {});

 private:
  std::optional<std::size_t> counterpart() const;
  std::optional<Rank> listen_to_silence(Rank leader, Timeout since, Deadline deadline,
                                        std::vector<bool>& is_gone);
  int try_to_connect(const Address& place, Deadline deadline) noexcept;
  std::vector<std::optional<Timeout>> silences() const;
  void remember(const Silences& silences);

  UnsharedDescriptor listener_;
  std::string secret_;
  std::vector<Address> places_;                          // by rank
  std::vector<bool> is_gone_;                            // likewise: for good
  std::vector<std::optional<Deadline>> vanished_until_;  // likewise: its host is taken for gone
  struct Silence {
    Timeout since, asked;
  };
  // By rank: an earlier call ended while nothing answered at its port.
  std::vector<std::optional<Silence>> silence_;
  Patience patience_;
  Rank self_{0};
};

}  // namespace tutti::bootstrap
