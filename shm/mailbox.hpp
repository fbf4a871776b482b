// The sequence word of a slot: how a message inside a node announces itself.  Every memory order of
// this layer is here.
//
// A slot belongs to one writer and one reader.  Its last eight bytes hold the number of messages
// that have ever arrived in it; the payload is at its start.  Up to 56 bytes of payload and the
// word share one cache line, which then crosses from one core to the other once; larger messages
// end in the line of the word.
//
//   | payload ......................... | unused | word |
//   ^ slot                                       ^ slot + slot_bytes - 8
//
// Writer: payload, then the word with release.  Reader: the word with acquire, then the payload.
// Without the pair a reader could see the word and an old payload.  The word counts and is never
// reset, so an old value is never taken for a new one.  The plan ensures that nobody writes into a
// slot which is still being read (two copies of every slot, by parity of the call).
#pragma once

#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tutti/detail/plain_copy.hpp>

namespace tutti::shm {

using SequenceWord = std::uint64_t;
static_assert(std::atomic_ref<SequenceWord>::is_always_lock_free);

/// The word of a slot that begins on a cache line and has a multiple of 64 bytes.
inline SequenceWord* word_of(std::byte* slot, std::size_t slot_bytes) noexcept {
  assert(slot_bytes % 64 == 0);
  assert(reinterpret_cast<std::uintptr_t>(slot) % 64 == 0);
  return reinterpret_cast<SequenceWord*>(slot + slot_bytes - sizeof(SequenceWord));
}

// ThreadSanitizer knows no fences, and GCC refuses them there.  Under it there are none, and ranks
// that are threads rely on the order in which x86 CPUs load and store.
#if defined(__SANITIZE_THREAD__)
inline void release_fence() noexcept {}
inline void acquire_fence() noexcept {}
#else
inline void release_fence() noexcept {
  std::atomic_thread_fence(std::memory_order_release);
}
inline void acquire_fence() noexcept {
  std::atomic_thread_fence(std::memory_order_acquire);
}
#endif

inline void announce(SequenceWord* word, std::uint64_t message) noexcept {
  assert(message > 0);
  std::atomic_ref(*word).store(message, std::memory_order_release);
}

/// As if no message had come.  Relaxed: nobody else looks at the word, or writes it, until an
/// exchange has told that this is done.
inline void clear(SequenceWord* word) noexcept {
  std::atomic_ref(*word).store(0, std::memory_order_relaxed);
}

inline bool has_come(const SequenceWord* word, std::uint64_t message) noexcept {
  // atomic_ref needs an object that is not const; nothing is written.
  return std::atomic_ref(*const_cast<SequenceWord*>(word)).load(std::memory_order_acquire) >=
         message;
}

/// Says that what was lent is its user's again.  Release: who sees what the user writes from now on
/// sees the word, too, if it looks by is_withdrawn().
inline void withdraw(SequenceWord* word) noexcept {
  announce(word, 1);
  release_fence();
}

/// Called after the memory was read: if it was withdrawn meanwhile, what was read may be the user's
/// next contents.  Acquire: the word is loaded after all of the memory; has_come() alone keeps only
/// what comes after it behind it.
inline bool is_withdrawn(const SequenceWord* word) noexcept {
  acquire_fence();
  return has_come(word, 1);
}

/// Ranks wait for payloads of one element, so these are copied without a call of memcpy.
inline void copy_payload(std::byte* into, const std::byte* from, std::size_t bytes) noexcept {
  assert(bytes == 0 || into != nullptr);
  if (bytes == 8)
    std::memcpy(into, from, 8);
  else if (bytes > 0)
    detail::plain_copy(into, from, bytes);
}

}  // namespace tutti::shm
