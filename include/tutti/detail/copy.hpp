// Copies of payloads.  glibc's memcpy copies some KiB and more by `rep movsb` where the processor
// says that this is fast.  On AMD's family 25 (Zen 3) it is, unless the target begins 1 to 31 bytes
// after the source, counted within a page: then it copies 1.5 GB/s, where other distances have 30
// to 80 (docs/performance.md).  Large vectors are 16 bytes behind the beginning of a page, and
// blocks of an arena are at its beginning, so a copy from an arena to its user has such a distance.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tutti::detail {

/// Whether `rep movsb` from `from` to `into` is slow on some processors.
inline bool repeats_slowly(std::uint64_t into, std::uint64_t from) noexcept {
  constexpr std::uint64_t page_bytes = 4096, slow_to = 31;
  return (into - from - 1) % page_bytes < slow_to;
}

/// Below so many bytes, memcpy does not use `rep movsb`.
inline constexpr std::size_t repeated_bytes_min = 2048;

inline bool overlap(const std::byte* into, const std::byte* from, std::size_t bytes) noexcept {
  const auto target = reinterpret_cast<std::uintptr_t>(into);
  const auto source = reinterpret_cast<std::uintptr_t>(from);
  return target < source + bytes && source < target + bytes;
}

/// Copies like memcpy, at about the same speed for all distances.  Nothing is copied from or into
/// null.
inline void copy_memory(std::byte* into, const std::byte* from, std::size_t bytes) noexcept {
#if defined(__x86_64__)
  if (bytes >= repeated_bytes_min && repeats_slowly(reinterpret_cast<std::uintptr_t>(into),
                                                    reinterpret_cast<std::uintptr_t>(from)))
      [[unlikely]] {
    std::size_t piece_bytes = repeated_bytes_min / 2;
    asm("" : "+r"(piece_bytes));  // of a constant length, the compiler could make `rep movsq`
    for (; bytes > piece_bytes; bytes -= piece_bytes) {
      std::memcpy(into, from, piece_bytes);
      into += piece_bytes;
      from += piece_bytes;
    }
  }
#endif
  if (bytes > 0) std::memcpy(into, from, bytes);
}

/// Likewise, like memmove.
inline void move_memory(std::byte* into, const std::byte* from, std::size_t bytes) noexcept {
  if (!overlap(into, from, bytes)) return copy_memory(into, from, bytes);
  std::memmove(into, from, bytes);
}

}  // namespace tutti::detail
