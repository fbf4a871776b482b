// How ranks exchange data before they are connected, and how they learn that one of them has died.
// All of it is for set-up, except incident() and has_left(): a rank that has been waiting for a
// while calls these ten times a second, and more often once a connection has failed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "tutti/status.hpp"
#include "tutti/timeout.hpp"
#include "tutti/types.hpp"

namespace tutti {

/// The first bad news about a rank.  Every rank that receives an incident receives the same one.
struct Incident {
  enum class Kind : std::uint32_t {
    none,
    died,
    aborted,  // gave up, and said so
    left,     // in good order, but another rank still needed it
    silent,   // does not answer the transport, for a reason that is not known
  };
  Kind kind = Kind::none;
  Rank rank = no_rank;
};

/// Out-of-band exchange between all ranks, and their side channel.  Users may supply their own
/// (PMI, sockets); see bootstrap/ for MPI, TCP and one-machine implementations.
/// One thread at a time.  After a collective has thrown, ranks are out of step: further collectives
/// throw Error{peer_failed}; only the side channel and destruction remain.
class Exchange {
 public:
  Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  virtual ~Exchange() = default;

  virtual Rank self() const noexcept = 0;
  virtual std::uint32_t rank_count() const noexcept = 0;

  /// Gathers the bytes of every rank on all ranks.  Collective.  `mine` has the same size on every
  /// rank; `all` has rank_count times that size and receives the contributions in rank order.
  /// Blocks; throws Error{timed_out} or Error{peer_failed} naming the ranks that are missing,
  /// Error{mismatch} on every rank if sizes differ.
  virtual void allgather(std::span<const std::byte> mine, std::span<std::byte> all,
                         Timeout timeout) = 0;

  /// As allgather, except that if the bytes of all ranks are equal it may return true instead, and
  /// leave `all` as it is.  Else it returns false.  All ranks return the same.  What an exchange
  /// over a relay gains by it: the bytes that it sends to each rank do not grow with the ranks.
  virtual bool allgather_unless_equal(std::span<const std::byte> mine, std::span<std::byte> all,
                                      Timeout timeout) {
    allgather(mine, all, timeout);
    return false;
  }

  /// Swaps records with some ranks.  Collective.  `partners` has no rank twice, and not this one;
  /// `mine` has a record for each of them, all of one size, which is the same on every rank, and
  /// above 0; `theirs` receives their records for this rank.  The record of a partner that has none
  /// for this rank leaves its place as it is.  Errors as for allgather, by which it is done unless
  /// an exchange knows better; also if other ranks gather meanwhile, of whom one that gathers 24
  /// bytes may then not hear of it.
  virtual void swap(std::span<const Rank> partners, std::size_t record_bytes,
                    std::span<const std::byte> mine, std::span<std::byte> theirs, Timeout timeout);

  /// No rank returns before every rank has entered.  Collective.  Errors as for allgather.
  virtual void barrier(Timeout timeout) = 0;

  /// The first incident known so far.  Never blocks.  An exchange without a side channel never
  /// has one.
  virtual Incident incident() noexcept { return {}; }

  /// Whether `rank` has left in good order: it will send nothing more, but is not dead.  Never
  /// blocks.
  virtual bool has_left(Rank /*rank*/) noexcept { return false; }

  /// Sends an incident to the other ranks; ignored if there was one before.  Never blocks long.
  /// Without a side channel it reaches no rank.  incident() may return it only a moment later, or
  /// return another one that was first.
  virtual void announce(Incident /*incident*/) noexcept {}
};

inline void Exchange::swap(std::span<const Rank> partners, std::size_t record_bytes,
                           std::span<const std::byte> mine, std::span<std::byte> theirs,
                           Timeout timeout) {
  // The mark tells a rank that gathers as many bytes from one that swaps, before they are taken for
  // a number of records.
  struct Beginning {
    std::uint64_t mark, record_bytes, count;
  };
  const Beginning own_beginning{0x7061777374747574, record_bytes, partners.size()};
  std::vector<Beginning> beginnings(rank_count());
  allgather(std::as_bytes(std::span(&own_beginning, 1)),
            std::as_writable_bytes(std::span(beginnings)), timeout);
  std::size_t most = 0;
  for (std::size_t rank = 0; rank < beginnings.size(); ++rank) {
    const Beginning& one = beginnings[rank];
    if (one.mark != own_beginning.mark || one.count >= rank_count())
      throw Error(ErrorCode::mismatch, "swap: rank " + std::to_string(rank) + " gathers instead");
    if (one.record_bytes != record_bytes)
      throw Error(ErrorCode::mismatch, "swap: this rank contributes records of " +
                                           std::to_string(record_bytes) + " bytes, rank " +
                                           std::to_string(rank) + " records of " +
                                           std::to_string(one.record_bytes) + " bytes");
    most = std::max<std::size_t>(most, one.count);
  }
  const std::size_t entry_bytes = sizeof(Rank) + record_bytes;  // whom it is for, and the record
  std::vector<std::byte> own(most * entry_bytes, std::byte{0xff}), all(own.size() * rank_count());
  for (std::size_t i = 0; i < partners.size(); ++i) {
    std::memcpy(&own[i * entry_bytes], &partners[i], sizeof(Rank));
    std::memcpy(&own[i * entry_bytes + sizeof(Rank)], &mine[i * record_bytes], record_bytes);
  }
  if (most > 0) allgather(own, all, timeout);
  const Rank here = self();
  for (std::size_t i = 0; i < partners.size(); ++i)
    for (std::size_t entry = 0; entry < most; ++entry) {
      const std::byte* const at = &all[(index_of(partners[i]) * most + entry) * entry_bytes];
      if (std::memcmp(at, &here, sizeof(Rank)) == 0)
        std::memcpy(&theirs[i * record_bytes], at + sizeof(Rank), record_bytes);
    }
}

}  // namespace tutti
