#include "verbs/soft/watch.hpp"

#include <algorithm>
#include <cassert>

namespace tutti::verbs::soft {

void Watches::reserve() {
  const std::size_t count = count_.load(std::memory_order_relaxed);
  if (std::unique_ptr<Chunk>& next = chunks_[std::min(count / chunk_size, chunks_.size() - 1)];
      !next)
    next = std::make_unique<Chunk>();
}

Watch& Watches::take() noexcept {
  const std::size_t count = count_.load(std::memory_order_relaxed);
  assert(count / chunk_size < chunks_.size());
  for (std::size_t index = 0; index < count; ++index)
    if (Watch& watch = at(index); watch.sequence.load(std::memory_order_relaxed) == nullptr)
      return watch;
  assert(chunks_[count / chunk_size] != nullptr);
  count_.store(count + 1, std::memory_order_release);
  return at(count);
}

bool Watches::any_ready() const noexcept {
  const std::size_t count = count_.load(std::memory_order_acquire);
  for (std::size_t index = 0; index < count; ++index) {
    const Watch& watch = at(index);
    const auto* const sequence = watch.sequence.load(std::memory_order_acquire);
    if (sequence == nullptr) continue;
    // Relaxed: the poll that follows loads it again, with acquire.
    if (sequence->load(std::memory_order_relaxed) == watch.expected.load(std::memory_order_relaxed))
      return true;
  }
  return false;
}

}  // namespace tutti::verbs::soft
