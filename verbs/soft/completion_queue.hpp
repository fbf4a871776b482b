// A completion queue has one ring for what this process itself completes (sends, flushes), private
// to it, and polls besides the rings of the queue pairs that receive into it: there the connected
// initiator writes, one producer each.  An empty poll costs a lock and one load per ring.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "verbs/soft/spin_lock.hpp"

namespace tutti::verbs::soft {

class Process;
struct QueuePair;

/// A completion that this process wrote.  Polling it retires what it stands for.
struct LocalCompletion {
  ibv_wc completion;
  QueuePair* pair;        // NULL: the queue pair is gone, and the completion with it
  std::uint64_t retires;  // sends: position behind the request; receives: unused
  bool is_receive;
};

struct CompletionQueue : ibv_cq {
  explicit CompletionQueue(std::size_t entries);

  /// Adds a local completion.  The lock is held.
  void push(const LocalCompletion& added) noexcept;
  /// Forgets the queued completions of a queue pair that is reset or destroyed.
  void forget(const QueuePair& pair) noexcept;

  SpinLock lock;  // guards all below, and the consumer's side of the receivers' rings
  std::vector<QueuePair*> receivers;
  std::size_t first_receiver = 0;  // polled first: all get their turn
  std::uint64_t load = 0;          // completions that can be outstanding at once
  std::uint32_t users = 0;         // queue pairs, guarded by Process::mutex
  bool failed = false;             // overrun: completions were lost
  // Set by whoever moves a receiver to the error state, or posts a receive there; the next poll
  // flushes.  Release and acquire: it must then see that state.
  std::atomic<bool> attention{false};

  std::size_t local_mask;
  std::unique_ptr<LocalCompletion[]> local;
  std::uint64_t local_head = 0;
  std::uint64_t local_tail = 0;
};

int poll_completion_queue(ibv_cq* queue, int count, ibv_wc* completions) noexcept;

}  // namespace tutti::verbs::soft
