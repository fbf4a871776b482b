// Copies of payloads. glibc's memcpy copies 2 KiB and more by `rep movsb` where the processor says
// that this is fast.  On AMD's family 25 (Zen 3) it is slow if the target begins 1 to 31 bytes
// after the source, modulo a page: 1.5 GB/s instead of 30 to 80 (docs/performance.md).  Copies from
// an arena to its user are often so: arena blocks begin with a page, large vectors 16 bytes later.
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

/// Copies like memcpy, at about the same speed for all distances.  With no bytes, pointers may be
/// null.
inline void copy_memory(std::byte* into, const std::byte* from, std::size_t bytes) noexcept {
#if defined(__x86_64__)
  if (bytes >= repeated_bytes_min && repeats_slowly(reinterpret_cast<std::uintptr_t>(into),
                                                    reinterpret_cast<std::uintptr_t>(from)))
      [[unlikely]] {
    std::size_t piece_bytes = repeated_bytes_min / 2;
    asm("" : "+r"(piece_bytes));  // else the compiler may make `rep movsq` of a constant length
    for (; bytes > piece_bytes; bytes -= piece_bytes) {
      std::memcpy(into, from, piece_bytes);
      into += piece_bytes;
      from += piece_bytes;
    }
  }
#endif
  if (bytes > 0) std::memcpy(into, from, bytes);
}

/// Like copy_memory(), but source and target may overlap.
inline void move_memory(std::byte* into, const std::byte* from, std::size_t bytes) noexcept {
  if (!overlap(into, from, bytes)) return copy_memory(into, from, bytes);
  std::memmove(into, from, bytes);
}

}  // namespace tutti::detail
