#include "bootstrap/board.hpp"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <new>

#include "tutti/detail/check.hpp"
#include "tutti/status.hpp"

namespace tutti::bootstrap {

// Lock-free atomics work between processes in the same way as between threads.
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));  // a futex word

struct alignas(64) Board::Head {
  // Kind in the upper half, rank in the lower; 0 while there is no incident.  Any rank sets it once
  // by compare-and-swap, so that all read the same first incident.
  std::atomic<std::uint64_t> incident{0};
  // The futex word.  Whoever changes anything here adds one afterwards and then wakes the sleepers.
  // A sleeper read it before it looked around, so it is either woken or does not fall asleep.
  std::atomic<std::uint32_t> changes{0};
};

struct alignas(64) Board::Column {
  // Written by the column's rank, after slot and total_bytes and with release.  A rank that reads
  // `posted` >= s with acquire sees the contents of step s.
  std::atomic<std::uint64_t> posted{0};
  std::atomic<std::uint32_t> left{0};
  std::uint64_t total_bytes[2] = {};
  std::uint64_t chunk_bytes[2] = {};
};

Board::Board(std::uint32_t rank_count) : rank_count_(rank_count) {
  const std::size_t bytes =
      sizeof(Head) + rank_count * (sizeof(Column) + 2 * Board::chunk_bytes_max);
  mapping_ = detail::Mapping(
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), bytes);
  if (!mapping_) {
    throw Error(ErrorCode::system,
                "cannot map " + std::to_string(bytes) + " shared bytes for " +
                    std::to_string(rank_count) + " local ranks: " + std::strerror(errno),
                errno);
  }
  new (mapping_.data()) Head;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) new (&column(Rank{rank})) Column;
}

Board::Head& Board::head() const noexcept {
  return *reinterpret_cast<Head*>(mapping_.data());
}

Board::Column& Board::column(Rank rank) const noexcept {
  detail::check(index_of(rank) < rank_count_, "the rank is on the board", index_of(rank),
                rank_count_);
  return reinterpret_cast<Column*>(mapping_.data() + sizeof(Head))[index_of(rank)];
}

std::byte* Board::slot(Rank rank, std::uint64_t step) const noexcept {
  std::byte* slots = mapping_.data() + sizeof(Head) + rank_count_ * sizeof(Column);
  return slots + (2 * std::size_t{index_of(rank)} + step % 2) * chunk_bytes_max;
}

void Board::post(Rank rank, std::uint64_t step, std::uint64_t total_bytes,
                 std::span<const std::byte> chunk) noexcept {
  detail::check(chunk.size() <= chunk_bytes_max, "a chunk fits its slot", chunk.size(),
                chunk_bytes_max);
  Column& own = column(rank);
  std::copy(chunk.begin(), chunk.end(), slot(rank, step));
  own.total_bytes[step % 2] = total_bytes;
  own.chunk_bytes[step % 2] = chunk.size();
  own.posted.store(step, std::memory_order_release);
  wake_all();
}

bool Board::has_posted(Rank rank, std::uint64_t step) const noexcept {
  return column(rank).posted.load(std::memory_order_acquire) >= step;
}

std::vector<Rank> Board::missing(std::uint64_t step) const {
  std::vector<Rank> ranks;
  for (std::uint32_t rank = 0; rank < rank_count_; ++rank) {
    if (!has_posted(Rank{rank}, step)) ranks.push_back(Rank{rank});
  }
  return ranks;
}

std::uint64_t Board::total_bytes(Rank rank, std::uint64_t step) const noexcept {
  return column(rank).total_bytes[step % 2];
}

std::span<const std::byte> Board::chunk(Rank rank, std::uint64_t step) const noexcept {
  return {slot(rank, step), column(rank).chunk_bytes[step % 2]};
}

Incident Board::incident() const noexcept {
  const std::uint64_t word = head().incident.load(std::memory_order_acquire);
  if (word == 0) return {};
  return {.kind = Incident::Kind{static_cast<std::uint32_t>(word >> 32)},
          .rank = Rank{static_cast<std::uint32_t>(word)}};
}

void Board::announce(Incident incident) noexcept {
  if (incident.kind == Incident::Kind::none) return;
  std::uint64_t none = 0;
  const std::uint64_t word =
      std::uint64_t{static_cast<std::uint32_t>(incident.kind)} << 32 | index_of(incident.rank);
  if (head().incident.compare_exchange_strong(none, word, std::memory_order_acq_rel)) wake_all();
}

bool Board::has_left(Rank rank) const noexcept {
  return column(rank).left.load(std::memory_order_acquire) != 0;
}

void Board::leave(Rank rank) noexcept {
  column(rank).left.store(1, std::memory_order_release);
  wake_all();
}

std::uint32_t Board::changes() const noexcept {
  return head().changes.load(std::memory_order_acquire);
}

void Board::wake_all() noexcept {
  head().changes.fetch_add(1, std::memory_order_acq_rel);
  ::syscall(SYS_futex, &head().changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Board::sleep_while(std::uint32_t changes, Timeout at_most) const noexcept {
  timespec time{};
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at_most);
  time.tv_sec = seconds.count();
  time.tv_nsec = (at_most - seconds).count();
  // Not FUTEX_PRIVATE, because the sleepers may be processes.  It returns early for signals;
  // callers loop.
  ::syscall(SYS_futex, &head().changes, FUTEX_WAIT, changes,
            at_most == wait_forever ? nullptr : &time, nullptr, 0);
}

}  // namespace tutti::bootstrap
