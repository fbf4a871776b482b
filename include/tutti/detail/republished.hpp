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
// Words hold numbers of calls.  A notification carries only the parity of its call, which is
// enough: its sender has ended the call before, to which this rank had to contribute, and this rank
// had to poll all notifications of a call to end it.  So the notification belongs to the call that
// this rank has begun last, or to the next one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tutti::detail {

struct RepublishedWords {
  std::byte* first = nullptr;           // [parity][number]; null: none
  std::size_t stride = 0;               // bytes from one word to the next
  std::uint32_t count = 0;              // of one parity
  const std::uint64_t* call = nullptr;  // the call that this rank has begun last, from 1 on

  /// Writes the word of a notification that was polled.  Returns false if no rank may have sent it,
  /// or if it was sent twice.
  bool republish(std::uint32_t parity, std::uint32_t number) const noexcept {
    const std::uint64_t of_call = *call + ((*call ^ parity) & 1);
    if (number >= count || of_call == 0) return false;
    const std::atomic_ref word(
        *reinterpret_cast<std::uint64_t*>(first + (std::size_t{parity} * count + number) * stride));
    // No other rank writes the word in this call, because the notification came to this one.
    if (word.load(std::memory_order_relaxed) == of_call) return false;
    word.store(of_call, std::memory_order_release);
    return true;
  }
};

}  // namespace tutti::detail
