// A watch remembers where in shared memory the next entry of a ring will appear, so that a poll can
// see whether there is one without taking the lock of the rings.  There are watches for the rings
// of queue pairs, whose entries are completions, and for rings of datagrams.
#pragma once

#include <array>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "verbs/soft/layout.hpp"

namespace tutti::verbs::soft {

/// Where the next entry of one ring will appear.  Written with the lock of the rings held.  A poll
/// that reads it half changed (another thread is polling) is wrong for a moment at most.  Never
/// freed before the Watches object that it belongs to.
struct Watch {
  // Acquire and release: the ring behind the pointer.  NULL: the watch is not in use.
  std::atomic<const std::atomic<std::uint64_t>*> sequence{nullptr};
  std::atomic<std::uint64_t> expected{0};  // relaxed: only a hint, checked again with the lock held
};

/// The watches of one consumer, which has one lock for all its rings.
class Watches {
 public:
  /// A watch that is not in use, for which reserve() has made room.  The lock is held.
  Watch& take() noexcept;
  void reserve();
  /// Whether any ring has an entry.  Takes no lock.
  bool any_ready() const noexcept;

 private:
  static constexpr std::size_t chunk_size = 64;
  static_assert(queue_pairs_max % chunk_size == 0);
  using Chunk = std::array<Watch, chunk_size>;
  Watch& at(std::size_t index) const {
    assert(index / chunk_size < chunks_.size());
    return (*chunks_[index / chunk_size])[index % chunk_size];
  }

  std::array<std::unique_ptr<Chunk>, queue_pairs_max / chunk_size> chunks_;
  // The number of watches used so far; release and acquire: their chunk's pointer, which then never
  // changes.
  std::atomic<std::size_t> count_{0};
};

}  // namespace tutti::verbs::soft
