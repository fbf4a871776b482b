// Words in memory that the ranks of a node share, by which the rank that polls a notification tells
// the others of it: a completion queue is one process's own, and where a device does not promise
// that who sees a word it has written sees all it wrote before, only a completion says that a
// payload is there.
//
//   device -> payload, completion | poll of the owner -> word (release) | others (acquire) ->
//   payload
//
// Who polls has the payload: the completion was written after it, and polling orders the reads that
// follow (verbs).  The release hands that order on to whoever reads the word with acquire.  Without
// the release another rank could see the word and, on a CPU that may reorder them, the payload of
// two calls before.
//
// Words hold numbers of calls.  A notification carries the parity of its call only, which is
// enough: its sender has ended the call before, to which this rank had to contribute, and this rank
// had to poll all notifications of a call to end it.  So it is of the call that this rank has begun
// last, or of the next one.
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

  /// A notification was polled.  False: nobody may have sent it, or not twice.
  bool republish(std::uint32_t parity, std::uint32_t number) const noexcept {
    const std::uint64_t of_call = *call + ((*call ^ parity) & 1);
    if (number >= count || of_call == 0) return false;
    const std::atomic_ref word(
        *reinterpret_cast<std::uint64_t*>(first + (std::size_t{parity} * count + number) * stride));
    // Written by nobody else in this call: the notification came here.
    if (word.load(std::memory_order_relaxed) == of_call) return false;
    word.store(of_call, std::memory_order_release);
    return true;
  }
};

}  // namespace tutti::detail
