// Memory for payloads that stay with their sender: operations take areas of it one after the other,
// round and round, so that an area is written again only after all others have been.
//
// A store into a line that another CPU has in its second cache waits until that cache has dropped
// the line, which costs many times what the store costs otherwise (measured, docs/performance.md).
// An operation whose partials take turns between two places always meets such lines.  The ring is
// larger than a second cache: when its writer comes round, the reader's cache has dropped the lines
// by itself.
//
//   | free | oldest | ....... | youngest | free |     oldest ones are dropped when their readers
//          ^ begin_                      ^ end_      have read them
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>

namespace tutti::shm {

/// One thread at a time.
class StagingRing {
 public:
  /// Smaller areas gain nothing: between CPUs that share a cache, 16 KiB take as long as elsewhere.
  static constexpr std::size_t area_bytes_min = 16u << 10;
  /// Areas of which fewer than these would fit are not put into the ring.  It is seven because
  /// 2 MiB have room for seven chunks of 256 KiB, each with its control words.
  static constexpr std::size_t areas_min = 7;

  StagingRing(std::byte* memory, std::size_t bytes) noexcept : memory_(memory), bytes_(bytes) {
    assert(memory != nullptr);
    assert(bytes >= areas_min * area_bytes_min);
  }

  /// Whether areas of so many bytes are for a ring of `ring_bytes`.
  static bool suits(std::size_t bytes, std::size_t ring_bytes) noexcept {
    return bytes >= area_bytes_min && bytes <= ring_bytes / areas_min;
  }
  bool suits(std::size_t bytes) const noexcept { return suits(bytes, bytes_); }

  /// How many areas of so many bytes there are.
  std::size_t areas_of(std::size_t bytes) const noexcept { return bytes_ / bytes; }

  /// The next area of so many bytes, for a chunk of `user`; null if what lies there is still in
  /// use.  `is_read(user, chunk)`: whether everything that it has put there has been read.
  template <class F>
  std::byte* take(std::size_t bytes, const void* user, std::uint64_t chunk, F&& is_read) noexcept {
    assert(suits(bytes));
    assert(user != nullptr);
    std::uint64_t at = end_;
    if (at % bytes_ + bytes > bytes_) at += bytes_ - at % bytes_;  // an area is in one piece
    while (oldest_ != next_ && at + bytes > area(oldest_).begin + bytes_) {
      const Area& old = area(oldest_);
      if (old.is_stuck || (old.user != nullptr && !is_read(old.user, old.chunk))) return nullptr;
      ++oldest_;
    }
    if (next_ - oldest_ == areas_.size()) return nullptr;
    area(next_++) = {.begin = at, .user = user, .chunk = chunk, .is_stuck = false};
    end_ = at + bytes;
    return memory_ + at % bytes_;
  }

  /// The user is going.  `may_be_read`: its areas are in use for ever.
  void forget(const void* user, bool may_be_read) noexcept {
    for (std::uint64_t i = oldest_; i != next_; ++i) {
      if (area(i).user != user) continue;
      area(i).user = nullptr;
      area(i).is_stuck = may_be_read;
    }
  }

 private:
  struct Area {
    std::uint64_t begin = 0;     // counted on and on
    const void* user = nullptr;  // null: it has gone
    std::uint64_t chunk = 0;
    bool is_stuck = false;
  };
  Area& area(std::uint64_t number) noexcept { return areas_[number % areas_.size()]; }

  std::byte* memory_;
  std::size_t bytes_;
  std::array<Area, 256> areas_ = {};
  std::uint64_t oldest_ = 0, next_ = 0;  // areas, counted on and on
  std::uint64_t end_ = 0;                // of the youngest
};

}  // namespace tutti::shm
