// Compare-and-swap and fetch-and-add on one aligned word of a target's memory.
//
// Memory in a file that all initiators map is changed by the CPU's atomic instructions, which are
// atomic towards everybody, programs included.  Private memory is reached by two system calls, a
// read and a write.  There the initiators of all processes take turns by a word in the segment of
// the memory's owner, so their operations are atomic towards each other and towards nothing else
// (IBV_ATOMIC_HCA).  Which of the two ways is used depends on the region, never on the initiator.
#pragma once

#include <atomic>
#include <cassert>
#include <cstdint>

#include "tutti/detail/pause.hpp"
#include "verbs/soft/queue_pair.hpp"
#include "verbs/soft/remote.hpp"

namespace tutti::verbs::soft {

inline bool is_atomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/// The right that a request other than a send needs to the target's memory.
inline std::uint32_t needed_right(ibv_wr_opcode opcode) {
  if (is_atomic(opcode)) return IBV_ACCESS_REMOTE_ATOMIC;
  return opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
}

/// Whether an atomic operation changes a word that has the value `former`; `value` is the new one.
inline bool changes(std::uint64_t former, ibv_wr_opcode opcode, std::uint64_t operand,
                    std::uint64_t swap, std::uint64_t& value) {
  assert(is_atomic(opcode));
  const bool adds = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  value = adds ? former + operand : swap;
  return adds || former == operand;
}

/// An initiator's turn to change a process's private memory; see SegmentHeader::atomic_turn.
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

/// Changes the word at `mapped`, in this process, and returns its former value.
std::uint64_t change_mapped_word(void* mapped, const Request& request) noexcept;

/// Changes a word of private memory of the target's process and stores its former value in
/// `former`; the outcome is `wait` while another initiator has the turn.
Outcome change_private_word(const QueuePair& pair, const Request& request,
                            std::uint64_t& former) noexcept;

}  // namespace tutti::verbs::soft
