// An initiator's turn to change a process's private memory; see SegmentHeader::atomic_turn.
#pragma once

#include <atomic>
#include <cassert>
#include <cstdint>

#include "tutti/detail/pause.hpp"

namespace tutti::verbs::soft {

class Turn {
 public:
  Turn(std::atomic<std::uint64_t>& word, std::uint64_t token) noexcept
      : word_(word), token_(token) {
    assert(token != 0);
    // A turn takes two system calls.  If it lasts longer than this loop, its holder is preempted,
    // stopped or dead, and the request becomes pending.
    for (unsigned tries = 0; tries < 1000 && !taken_; ++tries) {
      std::uint64_t nobody = 0;
      // Acquire: the system calls of the former turn have happened.
      taken_ = word.compare_exchange_strong(nobody, token, std::memory_order_acquire,
                                            std::memory_order_relaxed);
      if (!taken_) detail::pause();
    }
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    std::uint64_t own = token_;
    // The word belongs to another initiator if the owner took this process for dead.
    if (taken_)
      word_.compare_exchange_strong(own, 0, std::memory_order_release, std::memory_order_relaxed);
  }
  explicit operator bool() const { return taken_; }

 private:
  std::atomic<std::uint64_t>& word_;
  std::uint64_t token_;
  bool taken_ = false;
};

}  // namespace tutti::verbs::soft
