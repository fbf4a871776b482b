// See atomic.hpp.
#include "verbs/soft/atomic.hpp"

#include <atomic>

#include "verbs/soft/memory.hpp"
#include "verbs/soft/process.hpp"

namespace tutti::verbs::soft {
namespace {

using Kind = Outcome::Kind;

/// One turn at the private memory of a process; see SegmentHeader::atomic_turn.
class Turn {
 public:
  Turn(std::atomic<std::uint64_t>& word, std::uint64_t token) noexcept
      : word_(word), token_(token) {
    // A turn takes two system calls.  Longer than this and its holder is preempted, stopped or
    // dead: the request becomes pending then.
    for (unsigned tries = 0; tries < 1000 && !taken_; ++tries) {
      std::uint64_t nobody = 0;
      // Acquire: the system calls of the turn before have happened.
      taken_ = word.compare_exchange_strong(nobody, token, std::memory_order_acquire,
                                            std::memory_order_relaxed);
      if (!taken_) __builtin_ia32_pause();
    }
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    std::uint64_t own = token_;
    // The word is another's if the owner took this process for dead.
    if (taken_)
      word_.compare_exchange_strong(own, 0, std::memory_order_release, std::memory_order_relaxed);
  }
  explicit operator bool() const { return taken_; }

 private:
  std::atomic<std::uint64_t>& word_;
  std::uint64_t token_;
  bool taken_ = false;
};

Pieces word_at(const void* address) {
  Pieces pieces;
  pieces.add(const_cast<void*>(address), sizeof(std::uint64_t));
  return pieces;
}

}  // namespace

std::uint64_t change_mapped_word(void* mapped, const Request& request) noexcept {
  // Sequentially consistent, as a program's own use of the word may need it.
  const std::atomic_ref word(*static_cast<std::uint64_t*>(mapped));
  if (request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) return word.fetch_add(request.operand);
  std::uint64_t former = request.operand;
  word.compare_exchange_strong(former, request.swap);
  return former;
}

Outcome change_private_word(const QueuePair& pair, const Request& request,
                            std::uint64_t& former) noexcept {
  const Turn turn(pair.target.segment.header().atomic_turn, pair.token);
  if (!turn) return {.kind = Kind::wait};
  auto* const address = reinterpret_cast<void*>(request.remote_address);
  if (pair.peer->is_self()) {
    former = change_mapped_word(address, request);
    return {.kind = Kind::done};
  }
  const pid_t process = pair.peer->process();
  int error = copy_from_process(process, word_at(address), word_at(&former));
  const bool adds = request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  if (error == 0 && (adds || former == request.operand)) {
    const std::uint64_t value = adds ? former + request.operand : request.swap;
    error = copy_to_process(process, word_at(&value), word_at(address));
  }
  return error == 0 ? Outcome{.kind = Kind::done} : failed_access(pair, error);
}

}  // namespace tutti::verbs::soft
