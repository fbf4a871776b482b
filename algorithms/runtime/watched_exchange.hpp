// The exchange of a communicator's user, with what the ranks of a host find out by themselves: that
// a process has ended (bootstrap/process), and what others of the host have found or announced
// (shm/incident_board).  So the ranks of a host hear of a death there even if the exchange has no
// side channel, as over MPI on one host, or if its side channel is silent because the process that
// relays is stopped.
//
//   incident()   what the exchange's own side channel knows, which all ranks of all hosts hear
//                else what was announced on the board of this host
//                else a process of this host that has ended while its rank was still there
//   announce()   on the board, and what was first there to the side channel
//   has_left()   the state of the rank on the board; of other hosts what the exchange says
//
// A rank is there from when it has mapped the board to when its communicator is destroyed.  Stopped
// and slow processes have not ended, so nothing is said about them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <tutti/exchange.hpp>
#include <vector>

#include "bootstrap/node_map.hpp"
#include "bootstrap/process.hpp"
#include "shm/incident_board.hpp"

struct pollfd;

namespace tutti::runtime {

/// What a rank tells the others, besides its host and the id of its process, so that those of its
/// host can watch it.  Short, because it has to fit the first block of a set-up.
struct WatchCard {
  std::uint64_t started = 0;          // as in ProcessCard
  std::uint64_t board_nonce = 0;      // of the memory that it offers; 0: none
  std::int32_t board_descriptor = 0;  // likewise
  std::uint32_t clock_namespace = 0;  // likewise; the kernel numbers them in 32 bits
};
static_assert(sizeof(WatchCard) == 24);

/// A rank, as the others see it.
struct WatchedRank {
  bootstrap::HostIdentity host;
  std::int32_t process;  // id
  WatchCard card;
};

/// One thread at a time, as any exchange.  incident() makes one system call of its own, three for
/// each process that is watched without a descriptor.
class WatchedExchange final : public Exchange {
 public:
  /// `given` is borrowed.  `nonce`: random, not 0.
  WatchedExchange(Exchange& given, std::uint64_t nonce);
  /// Tells the ranks of this host that this one has left in good order.
  ~WatchedExchange() override;

  WatchCard card() const noexcept;
  /// Begins to watch the ranks of this host, given all.  Throws std::bad_alloc.
  void watch(std::span<const WatchedRank> all, bootstrap::ProcessWatches& watches);
  /// Says why this rank is about to give up, to those of its host.  False if another rank has done
  /// so before, and is about to give up itself.
  bool explain(const shm::IncidentBoard::Text& why) noexcept;
  /// Why the rank of the incident gave up; empty if it has not said so, or not here.
  shm::IncidentBoard::Text explanation() noexcept;
  /// Whether the process of a rank of this host is known to have ended, in good order or not.
  bool has_ended(Rank rank) noexcept;
  /// How many processes are watched.
  std::size_t watched_count() const noexcept { return watched_.size(); }

  Rank self() const noexcept override { return given_.self(); }
  std::uint32_t rank_count() const noexcept override { return given_.rank_count(); }
  void allgather(std::span<const std::byte> mine, std::span<std::byte> all,
                 Timeout timeout) override {
    given_.allgather(mine, all, timeout);
  }
  bool allgather_unless_equal(std::span<const std::byte> mine, std::span<std::byte> all,
                              Timeout timeout) override {
    return given_.allgather_unless_equal(mine, all, timeout);
  }
  void swap(std::span<const Rank> partners, std::size_t record_bytes,
            std::span<const std::byte> mine, std::span<std::byte> theirs,
            Timeout timeout) override {
    given_.swap(partners, record_bytes, mine, theirs, timeout);
  }
  void barrier(Timeout timeout) override { given_.barrier(timeout); }

  Incident incident() noexcept override;
  bool has_left(Rank rank) noexcept override;
  void announce(Incident incident) noexcept override;

 private:
  using State = shm::IncidentBoard::State;
  struct Watched {
    Rank rank;
    std::shared_ptr<bootstrap::ProcessWatch> process;
  };

  /// A rank whose process has ended while it was still there; no_rank: none.
  Rank find_dead() noexcept;
  bool has_died(const Watched& watched) noexcept;

  Exchange& given_;
  std::unique_ptr<shm::OfferedBoard> offered_;  // null: another rank's is taken, or none
  std::optional<shm::IncidentBoard> board_;
  std::vector<Watched> watched_;     // those with a descriptor first
  std::vector<pollfd> descriptors_;  // of the first of them
  std::size_t next_without_descriptor_ = 0;
};

}  // namespace tutti::runtime
