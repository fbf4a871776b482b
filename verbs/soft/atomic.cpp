#include "verbs/soft/atomic.hpp"

#include <atomic>
#include <cassert>

#include "verbs/soft/memory.hpp"
#include "verbs/soft/process.hpp"

namespace tutti::verbs::soft {
namespace {

using Kind = Outcome::Kind;

Pieces word_at(const void* address) {
  Pieces pieces;
  pieces.add(const_cast<void*>(address), sizeof(std::uint64_t));
  return pieces;
}

}  // namespace

std::uint64_t change_mapped_word(void* mapped, const Request& request) noexcept {
  assert(is_atomic(request.opcode));
  // Sequentially consistent, because a program's own use of the word may need it.
  const std::atomic_ref word(*static_cast<std::uint64_t*>(mapped));
  if (request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) return word.fetch_add(request.operand);
  std::uint64_t former = request.operand;
  word.compare_exchange_strong(former, request.swap);
  return former;
}

Outcome change_private_word(const QueuePair& pair, const Request& request,
                            std::uint64_t& former) noexcept {
  assert(is_atomic(request.opcode));
  const Turn turn(pair.target.segment.header().atomic_turn, pair.token);
  if (!turn) return {.kind = Kind::wait};
  auto* const address = reinterpret_cast<void*>(request.remote_address);
  if (pair.peer->is_self()) {
    former = change_mapped_word(address, request);
    return {.kind = Kind::done};
  }
  const pid_t process = pair.peer->process();
  if (!pair.peer->is_there()) return failed_access(pair, ESRCH);
  int error = copy_from_process(process, word_at(address), word_at(&former));
  std::uint64_t value = 0;
  if (error == 0 && changes(former, request.opcode, request.operand, request.swap, value))
    error = copy_to_process(process, word_at(&value), word_at(address));
  return error == 0 ? Outcome{.kind = Kind::done} : failed_access(pair, error);
}

}  // namespace tutti::verbs::soft
