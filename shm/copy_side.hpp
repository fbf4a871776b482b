// What each of two ranks does while they measure copying costs (copy_costs.hpp): the steps, and how
// a rank waits for the other one.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tutti/detail/bulk_copy.hpp>
#include <vector>

#include "shm/copy_costs.hpp"
#include "shm/peer_memory.hpp"

namespace tutti::shm::probing {

using Clock = std::chrono::steady_clock;

/// A part is what one step of a round measures.  The steps of a round have this order.
enum class Part : std::uint8_t { word, page, chunk, exchange_put, exchange_get };
inline constexpr std::uint64_t parts = 5;

constexpr std::size_t bytes_of(Part part) noexcept {
  return part == Part::word ? 0 : part == Part::page ? costs_page_bytes : costs_chunk_bytes;
}

inline constexpr std::uint64_t over = 0xffff;                  // not a step: the rank is done
inline constexpr std::uint64_t cannot_do = ~std::uint64_t{0};  // in place of a time
inline constexpr unsigned looks_per_turn = 256;                // takes about as long as a chunk

inline double nanoseconds_since(Clock::time_point begin) noexcept {
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

template <class T>
void store(T& into, T value, std::memory_order order = std::memory_order_relaxed) noexcept {
  std::atomic_ref(into).store(value, order);
}
template <class T>
T load(const T& at, std::memory_order order = std::memory_order_relaxed) noexcept {
  return std::atomic_ref(const_cast<T&>(at)).load(order);  // nothing is written
}

enum class Seen : std::uint8_t { step, end, timeout };

/// Repeats `look` until it returns something else than Seen::timeout, or until `end`.
template <class Look>
Seen await(Clock::time_point end, const Look& look) noexcept {
  for (;;) {
    for (unsigned looks = 0; looks < looks_per_turn; ++looks)
      if (const Seen seen = look(); seen != Seen::timeout) return seen;
    if (Clock::now() >= end) return Seen::timeout;
    sched_yield();
  }
}

/// Waits until the other rank's step is at least `expected`, until it is done, or until `end`.
inline Seen await_step(const CopyBoard& theirs, std::uint64_t id, std::uint64_t expected,
                       Clock::time_point end) noexcept {
  return await(end, [&] {
    const std::uint64_t step = load(theirs.step, std::memory_order_acquire) - id;
    if (step == over) return Seen::end;
    return step >= expected && step < over ? Seen::step : Seen::timeout;
  });
}

/// A way says what the ranks do in a step.  The first four ways have rounds of parts (Part).  In
/// the first three of them chunks are put as operations put them.  In `laps` they are put into all
/// blocks at once; this counts for nothing, but brings the lines of a ring to where they are when
/// an operation comes round.  In `words` nothing is put.  Each other way is a single step: both
/// ranks exchange costs_large_bytes in pieces, which are put in one of the three ways, or both
/// read.  Before each step with costs_large_bytes both ranks write their sources anew
/// (`write_large`), as programs do between two calls: otherwise the other rank would still have in
/// its caches what it has read before.
enum class Way : std::uint8_t {
  plain,
  streaming,
  ring,
  laps,
  words,
  write_large,
  pieces_plain,
  pieces_streaming,
  pieces_ring,
  read_chunk,
  read_large,
};
/// Whether the way is a single step, in which both ranks do the same.
constexpr bool is_at_once(Way way) noexcept {
  return way >= Way::write_large;
}
constexpr Part part_of(std::uint64_t step, Way way) noexcept {
  return way == Way::words ? Part::word : static_cast<Part>((step - 1) % parts);  // from 1
}

/// What either rank does in a step: it copies into its own blocks and out of those of the other
/// rank, and reads the memory that the other rank lends.
class Side {
 public:
  Side(const CopyProbe& probe, Clock::time_point end)
      : probe_(probe), end_(end), own_(costs_chunk_bytes, std::byte{1}), into_(costs_chunk_bytes) {
    store(probe.mine->blocks, std::uint64_t{block_count()});
    store(probe.mine->pieces, std::uint64_t{0});
    // The blocks stay mapped, so the other rank may still read them when this one has given up.
    store(probe.mine->lent, reinterpret_cast<std::uint64_t>(probe.blocks.data()));
  }

  /// Copies into this rank's blocks.  The caller announces the step afterwards.
  void put(Part part, Way way) noexcept {
    const std::size_t bytes = bytes_of(part);
    if (way == Way::ring && bytes == costs_chunk_bytes) at_ += costs_chunk_bytes;
    if (at_ + costs_chunk_bytes > probe_.blocks.size() || way == Way::laps) at_ = 0;
    std::byte* const block = probe_.blocks.data() + at_;
    store(probe_.mine->block, reinterpret_cast<std::uint64_t>(block));
    if (way == Way::streaming && bytes == costs_chunk_bytes)
      streaming_(block, own_.data(), bytes);
    else if (way == Way::laps && part == Part::exchange_put)
      for (std::size_t i = 0; i < block_count(); ++i)
        detail::plain_copy(block + i * costs_chunk_bytes, own_.data(), bytes);
    else if (bytes > 0)
      detail::plain_copy(block, own_.data(), bytes);
  }

  /// Copies what the other rank has put.
  void get(Part part, Way way) noexcept {
    const std::uint64_t first = load(probe_.theirs->block);
    const bool gets_all = way == Way::laps && part == Part::exchange_get;
    const std::uint64_t count = gets_all ? load(probe_.theirs->blocks) : 1;
    for (std::uint64_t i = 0; i < count; ++i)
      detail::plain_copy(into_.data(), their_block(first, i), bytes_of(part));
  }

  /// Whether both ranks have room for large payloads.
  bool can_be_large() const noexcept {
    return std::min<std::uint64_t>(block_count(), load(probe_.theirs->blocks)) *
               costs_chunk_bytes >=
           large_area_bytes;
  }
  /// Does a step in which both ranks do the same.  False: the other rank's memory cannot be read,
  /// or that rank does not answer.
  bool does(Way way) noexcept {
    if (way == Way::write_large) return writes_large();
    if (way == Way::read_chunk) return reads(costs_chunk_bytes);
    if (way == Way::read_large) return reads(costs_large_bytes, large_target());
    return exchanges_pieces(way);
  }
  bool reads(std::size_t bytes) noexcept { return reads(bytes, into_.data()); }

  void copies_own_chunk() noexcept {
    detail::plain_copy(into_.data(), own_.data(), costs_chunk_bytes);
  }
  std::size_t block_count() const noexcept { return probe_.blocks.size() / costs_chunk_bytes; }

 private:
  static constexpr std::size_t places_bytes = 2 * costs_large_bytes;
  static constexpr std::size_t large_area_bytes = places_bytes + 2 * costs_large_bytes;

  std::byte* large_source() const noexcept { return probe_.blocks.data() + places_bytes; }
  std::byte* large_target() const noexcept { return large_source() + costs_large_bytes; }

  bool reads(std::size_t bytes, std::byte* into) noexcept {
    return read_peer_memory(probe_.their_process, load(probe_.theirs->lent), into, bytes) == 0;
  }

  /// Writes the large source.  From now on pieces are put into the first half of the blocks; the
  /// large source and target are in the second half, because new pages for them would take longer
  /// than the measurement.
  bool writes_large() noexcept {
    store(probe_.mine->block, reinterpret_cast<std::uint64_t>(probe_.blocks.data()));
    store(probe_.mine->lent, reinterpret_cast<std::uint64_t>(large_source()));
    std::memset(large_source(), 1, costs_large_bytes);
    return true;
  }

  /// Puts one piece after the other.  After each, it waits until the other rank has put the same
  /// one, and gets that.  So two places suffice: a rank that has put a piece has got the one
  /// before.  False: the other rank has given up, or is too late.
  bool exchanges_pieces(Way way) noexcept {
    for (std::size_t at = 0; at < costs_large_bytes; at += costs_piece_bytes) {
      const std::uint64_t piece = load(probe_.mine->pieces);
      std::byte* const place = probe_.blocks.data() + place_of(piece, way);
      if (way == Way::pieces_streaming)
        streaming_(place, large_source() + at, costs_piece_bytes);
      else
        detail::plain_copy(place, large_source() + at, costs_piece_bytes);
      store(probe_.mine->pieces, piece + 1, std::memory_order_release);
      const Seen seen = await(end_, [&] {
        if (load(probe_.theirs->pieces, std::memory_order_acquire) > piece) return Seen::step;
        return load(probe_.theirs->step) - probe_.id == over ? Seen::end : Seen::timeout;
      });
      if (seen != Seen::step) return false;
      const std::uint64_t from = load(probe_.theirs->block) + place_of(piece, way);
      for (std::size_t i = 0; i < costs_piece_bytes / costs_chunk_bytes; ++i)
        detail::plain_copy(large_target() + at + i * costs_chunk_bytes, their_block(from, i),
                           costs_chunk_bytes);
    }
    return true;
  }

  const std::byte* their_block(std::uint64_t first, std::uint64_t number) const {
    return probe_.their_block_at(first + number * costs_chunk_bytes);
  }
  static constexpr std::size_t place_of(std::uint64_t piece, Way way) noexcept {
    const std::uint64_t places = way == Way::pieces_ring ? places_bytes / costs_piece_bytes : 2;
    return static_cast<std::size_t>(piece % places * costs_piece_bytes);
  }

  const CopyProbe& probe_;
  const Clock::time_point end_;
  std::vector<std::byte> own_, into_;
  std::size_t at_ = 0;
  detail::BulkCopy streaming_{detail::Stores::streaming};
};

}  // namespace tutti::shm::probing
