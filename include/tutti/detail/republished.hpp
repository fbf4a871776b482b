// Words in memory that the ranks of a node share.  The rank that polls a notification writes them,
// so that the others see it, too.  A completion queue belongs to one process; and where a device
// does not place writes in order, only a completion says that a payload is there.
//
//   device -> payload, completion | poll of the owner -> word (release) | others (acquire) ->
//   payload
//
// The rank that polls has the payload: the completion was written after the payload, and polling
// orders the reads that follow (verbs).  The release passes this order on to every rank that reads
// the word with acquire.  Without the release another rank could see the word and, on a CPU that
// may reorder reads or writes, the payload of two calls before.
//
// Words hold numbers of laps (engine/shared_ring.hpp), of which `copies` are in flight.  Each lap
// has a copy of the words: that of its number modulo `copies`.  A notification carries the copy,
// and as its parity whether the copy is used for an odd or an even time; both together tell the lap
// modulo 2 x copies.  That is enough, because the lap is one of the next 2 x copies after those
// that were consumed for this rank:
//  * For a lap to be consumed, for this rank or another one, this rank had to poll all of its
//    notifications.
//  * Its sender has joined the lap, so all nodes had joined that of `copies` before, for which the
//    ranks of this node had to have consumed that of 2 x copies before.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tutti/detail/clock.hpp"

namespace tutti::detail {

struct RepublishedWords {
  std::byte* first = nullptr;         // [copy][number]; null: none
  std::size_t stride = 0;             // bytes from one word to the next
  std::uint32_t count = 0;            // of one copy
  std::uint32_t copies = 1;           // laps in flight
  std::uint64_t* consumed = nullptr;  // the last lap that was consumed for this rank
  Clock* clock = nullptr;             // not null: on this clock, a word for others takes time

  /// Writes the word of a notification that was polled; `number` counts the words of all copies.
  /// Returns false if there is no such word, or if the notification of that lap has come before.  A
  /// faulty sender's second notification of a lap that was consumed is not told from a later one.
  bool republish(std::uint32_t parity, std::uint32_t number) const noexcept {
    if (number >= std::uint64_t{copies} * count) return false;
    const std::uint64_t period = 2 * std::uint64_t{copies};
    const std::uint64_t phase = std::uint64_t{parity} * copies + number / count;
    // Relaxed: whoever writes it has seen that this rank has polled all notifications of that lap.
    // It may be behind by up to 2 x copies, as said above.
    const std::uint64_t next = std::atomic_ref(*consumed).load(std::memory_order_relaxed) + 1;
    const std::uint64_t lap = next + (phase + period - next % period) % period;
    const std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(first + number * stride));
    // No other rank writes the word in this lap, because the notification came to this one.
    if (word.load(std::memory_order_relaxed) == lap) return false;
    if (clock != nullptr) [[unlikely]]
      clock->announce(reinterpret_cast<std::uint64_t*>(first + number * stride), lap, 0);
    else
      word.store(lap, std::memory_order_release);
    return true;
  }
};

}  // namespace tutti::detail
