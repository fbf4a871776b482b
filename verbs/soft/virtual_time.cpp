// Everything here that is not atomic belongs to the rank that has the turn.  The turn is handed
// over by the word `turns` of the next rank's seat, stored with release and loaded with acquire.
#include "verbs/soft/virtual_time.hpp"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <string>
#include <tutti/status.hpp>
#include <utility>

namespace tutti::verbs::soft {
namespace {

VirtualTime* joined_one = nullptr;

constexpr int patience_s = 30;  // in real time; a rank that computes for longer counts as lost

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, const timespec& timeout) {
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}
void futex_wake(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

}  // namespace

struct alignas(64) VirtualTime::Seat {
  std::atomic<std::uint32_t> turns;  // how often this rank was given the turn
  Picoseconds clock;
  bool listening;
  bool woken;
};

struct alignas(64) VirtualTime::Table {
  std::atomic<std::uint32_t> entered;
  std::atomic<std::uint32_t> hand_overs;
  std::atomic<std::uint32_t> broken;  // 1: no rank waits for its turn any more
};

VirtualTime::VirtualTime(std::uint32_t rank_count, std::span<const std::uint32_t> node_of)
    : rank_count_(rank_count), ports_(rank_count, node_of) {
  static_assert(std::is_standard_layout_v<Seat>);
  static_assert(sizeof(Seat) == 64);
  static_assert(sizeof(Table) == 64);
  static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));  // a futex word
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
  const std::size_t bytes = sizeof(Table) + rank_count * (sizeof(Seat) + sizeof(Picoseconds));
  mapping_ = detail::Mapping(
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), bytes);
  if (!mapping_)
    throw Error(ErrorCode::system, "virtual time: " + std::to_string(bytes) +
                                       " bytes of shared memory could not be had");
}

VirtualTime::Table& VirtualTime::table() const noexcept {
  return *reinterpret_cast<Table*>(mapping_.data());
}
VirtualTime::Seat& VirtualTime::seat(std::uint32_t rank) const noexcept {
  assert(rank < rank_count_);
  return reinterpret_cast<Seat*>(mapping_.data() + sizeof(Table))[rank];
}
Picoseconds& VirtualTime::wake(std::uint32_t rank) const noexcept {
  assert(rank < rank_count_);
  return reinterpret_cast<Picoseconds*>(mapping_.data() + sizeof(Table) +
                                        rank_count_ * sizeof(Seat))[rank];
}

void VirtualTime::join(std::uint32_t rank) noexcept {
  assert(rank < rank_count_);
  rank_ = rank;
  joined_one = this;
}
VirtualTime* VirtualTime::joined() noexcept {
  return joined_one;
}

bool VirtualTime::is_entered() const noexcept {
  return entered_.load(std::memory_order_relaxed) && !is_broken();
}
bool VirtualTime::is_broken() const noexcept {
  return table().broken.load(std::memory_order_relaxed) != 0;
}

Picoseconds VirtualTime::now() const noexcept {
  return own().clock;
}

void VirtualTime::enter(std::mutex& guard) noexcept {
  assert(!entered_.load(std::memory_order_relaxed));
  const std::uint32_t before = own().turns.load(std::memory_order_relaxed);
  // The last rank to enter sets all clocks: the others sleep already, or are about to.
  if (table().entered.fetch_add(1, std::memory_order_acq_rel) + 1 == rank_count_) {
    table().entered.store(0, std::memory_order_relaxed);
    for (std::uint32_t rank = 0; rank < rank_count_; ++rank) {
      seat(rank).clock = wake(rank) = 0;
      seat(rank).listening = seat(rank).woken = false;
    }
    ports_.free_all();
    hand_over();
  }
  await_turn(before);
  const std::lock_guard held(guard);
  entered_.store(true, std::memory_order_relaxed);
}

void VirtualTime::leave(std::mutex& guard) noexcept {
  assert(entered_.load(std::memory_order_relaxed));
  {
    const std::lock_guard held(guard);
    entered_.store(false, std::memory_order_relaxed);
  }
  wake(rank_) = never_ps;
  own().listening = false;
  hand_over();
}

bool VirtualTime::sleep(Picoseconds until, bool listening) noexcept {
  assert(until >= 0);
  Seat& self = own();
  wake(rank_) = std::max(until, self.clock);
  self.listening = listening;
  self.woken = false;
  const std::uint32_t before = self.turns.load(std::memory_order_relaxed);
  hand_over();
  await_turn(before);
  self.clock = wake(rank_);
  self.listening = false;
  return self.woken;
}

void VirtualTime::arrive_at(std::uint32_t rank) noexcept {
  if (rank >= rank_count_) return;  // the process is outside of the job
  Seat& target = seat(rank);
  if (!target.listening || wake(rank) <= now()) return;
  wake(rank) = now();
  target.woken = true;
}

void VirtualTime::arrive_at_neighbours() noexcept {
  const SharedPorts::Ports* const ports_of_node = ports_.ports_of(rank_);
  for (std::uint32_t rank = 0; rank < rank_count_; ++rank)
    if (rank != rank_ && ports_.ports_of(rank) == ports_of_node) arrive_at(rank);
}

SharedPorts::Ports& VirtualTime::ports_of(std::uint32_t rank) const noexcept {
  SharedPorts::Ports* const ports = ports_.ports_of(rank);
  return ports == nullptr ? *ports_.ports_of(rank_) : *ports;
}

/// Gives the turn to the earliest rank, which may be this one; to nobody when all have left.
void VirtualTime::hand_over() noexcept {
  const std::span<const Picoseconds> wakes(&wake(0), rank_count_);
  const auto next =
      static_cast<std::uint32_t>(std::min_element(wakes.begin(), wakes.end()) - wakes.begin());
  if (wakes[next] == never_ps) return;
  table().hand_overs.fetch_add(1, std::memory_order_relaxed);
  seat(next).turns.fetch_add(1, std::memory_order_release);
  if (next != rank_) futex_wake(seat(next).turns);
}

void VirtualTime::await_turn(std::uint32_t before) noexcept {
  constexpr timespec slice{.tv_sec = 1, .tv_nsec = 0};
  std::atomic<std::uint32_t>& turns = own().turns;
  std::uint32_t seen = table().hand_overs.load(std::memory_order_relaxed);
  for (int seconds = 0; turns.load(std::memory_order_acquire) == before;) {
    errno = 0;
    futex_wait(turns, before, slice);
    if (is_broken()) return;
    const std::uint32_t now_seen = table().hand_overs.load(std::memory_order_relaxed);
    if (std::exchange(seen, now_seen) != now_seen) seconds = 0;
    if (errno == ETIMEDOUT && ++seconds == patience_s &&
        table().broken.exchange(1, std::memory_order_relaxed) == 0) {
      std::fprintf(stderr,
                   "tutti: virtual time ends: nobody has had a turn for %d s; a rank must have "
                   "ended, or have blocked outside the device\n",
                   patience_s);
    }
  }
}

}  // namespace tutti::verbs::soft
