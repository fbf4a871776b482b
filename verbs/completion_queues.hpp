// The completion queues of a context, over which its connections are distributed.
//
// A connection belongs to one queue, which has an entry for every receive and every send of it,
// because a queue pair in error completes all of them.  There is one queue as long as its entries
// are enough.  When they are promised, the next queue has twice as many, up to the device's limit.
// A poll looks at one queue after the other.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "verbs/device.hpp"
#include "verbs/handle.hpp"

namespace tutti::verbs {

/// One thread at a time.
class CompletionQueues {
 public:
  struct Queue {
    CompletionQueueHandle handle;
    std::uint32_t connections_max = 0;  // for which it has entries
    std::uint32_t connections = 0;
  };

  /// Makes the first queue.  A connection takes `entries_each` entries.  `port` must outlive this.
  /// The queues raise events there, unless it is NULL.  Throws Error.
  CompletionQueues(const Port& port, std::uint32_t entries_each,
                   ibv_comp_channel* events = nullptr);

  /// In the order in which they were made; never empty.  To be polled one after the other.
  std::span<const Queue> all() const noexcept { return queues_; }
  /// The queue, as long as there is one; else NULL.
  ibv_cq* only_one() const noexcept { return only_one_; }
  ibv_cq* operator[](std::uint32_t index) const noexcept {
    assert(index < queues_.size());
    return queues_[index].handle.get();
  }
  std::uint32_t entries_each() const noexcept { return entries_each_; }

  /// For how many connections the device has entries, in all queues that it may have.
  std::uint32_t connections_max() const noexcept;
  /// The limits behind connections_max(), for Error: "65536 completion queues of 65535 entries".
  std::string limits() const;

  /// The index of a queue with entries for one more connection, which it then has.  Makes a queue
  /// if no other has room.  Throws Error.
  std::uint32_t add_connection();
  /// The entries can be promised again: nothing of the connection is in the queue any more.
  void remove_connection(std::uint32_t index) noexcept;

 private:
  std::uint32_t queues_max() const noexcept;
  std::uint32_t entries_of(std::size_t index) const noexcept;
  Queue make_next() const;

  const Port& port_;
  std::uint32_t entries_each_;
  ibv_comp_channel* events_;
  std::vector<Queue> queues_;
  ibv_cq* only_one_ = nullptr;
};

}  // namespace tutti::verbs
