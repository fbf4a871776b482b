// How ranks talk before they are connected, and how they learn that one of them has died.
// Set-up only: nothing here is called by the data path, except incident() and has_left(), ten times
// a second and only by a rank that has been waiting for a while; more often once a connection has
// failed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/timeout.hpp"
#include "tutti/types.hpp"

namespace tutti {

/// The first bad news about a rank.  Every rank that hears of an incident hears of the same one.
struct Incident {
  enum class Kind : std::uint32_t {
    none,
    died,
    aborted,  // gave up, and said so
    left,     // in good order, but another rank still needed it
    silent,   // does not answer the transport, and nobody knows why
  };
  Kind kind = Kind::none;
  Rank rank = no_rank;
};

/// Out-of-band exchange between all ranks, and their side channel.  Users may supply their own
/// (PMI, sockets); see bootstrap/ for MPI, TCP and one-machine implementations.
/// One thread at a time.  After a collective has thrown, ranks are out of step: further ones throw
/// Error{peer_failed}; only the side channel and destruction remain.
class Exchange {
 public:
  Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  virtual ~Exchange() = default;

  virtual Rank self() const noexcept = 0;
  virtual std::uint32_t rank_count() const noexcept = 0;

  /// Collective.  `mine` has the same size on every rank; `all` holds rank_count times as much and
  /// receives the contributions in rank order.  Blocks; throws Error{timed_out} or
  /// Error{peer_failed} naming the ranks that are missing, Error{mismatch} on every rank if sizes
  /// differ.
  virtual void allgather(std::span<const std::byte> mine, std::span<std::byte> all,
                         Timeout timeout) = 0;

  /// Collective.  No rank returns before every rank has entered.  Errors as for allgather.
  virtual void barrier(Timeout timeout) = 0;

  /// The first incident known so far.  Never blocks.  An exchange without a side channel never
  /// has one.
  virtual Incident incident() noexcept { return {}; }

  /// Whether `rank` has said goodbye: it will send nothing more, but is not dead.  Never blocks.
  virtual bool has_left(Rank /*rank*/) noexcept { return false; }

  /// Tells the other ranks about an incident; ignored if there was one before.  Never blocks long.
  /// Without a side channel it reaches nobody.
  /// The caller itself may hear of it a moment later, as another one may have been first.
  virtual void announce(Incident /*incident*/) noexcept {}
};

}  // namespace tutti
