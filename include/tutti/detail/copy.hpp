// Copies of payloads. glibc's memcpy copies 2 KiB and more by `rep movsb` where the processor says
// that this is fast.  On AMD's family 25 (Zen 3) it is slow if the target begins 1 to 31 bytes
// after the source, modulo a page: 1.5 GB/s instead of 30 to 80 (docs/performance.md).  Copies from
// an arena to its user are often so: arena blocks begin with a page, large vectors 16 bytes later.
// A processor on which they are as fast as others makes them like others.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tutti::detail {

/// Whether `into` is at a distance from `from` at which `rep movsb` is slow on some processors.
inline bool is_slow_distance(std::uint64_t into, std::uint64_t from) noexcept {
  constexpr std::uint64_t page_bytes = 4096, slow_to = 31;
  return (into - from - 1) % page_bytes < slow_to;
}

/// Whether `rep movsb` is slow on this processor at such distances.  The first call measures it in
/// up to 0.2 ms; the making of a context is one, so that none of the calls that move data is.
inline bool has_slow_distances() noexcept {
#if defined(__x86_64__)
  static const bool is_found = []() noexcept {
    constexpr std::size_t page_bytes = 4096, slow_distance = 16, other_distance = 64;
    constexpr int tries = 4, copies = 16;
    std::array<std::byte, 2 * page_bytes + other_distance> memory{};
    const auto least_time = [&](std::size_t distance) {
      auto time = std::chrono::nanoseconds::max();
      for (int i = 0; i < tries; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        for (int copy = 0; copy < copies; ++copy) {
          const std::byte* from = memory.data();
          std::byte* into = memory.data() + page_bytes + distance;
          std::size_t count = page_bytes;
          asm volatile("rep movsb" : "+S"(from), "+D"(into), "+c"(count) : : "memory");
        }
        time = std::min<std::chrono::nanoseconds>(time, std::chrono::steady_clock::now() - begin);
      }
      return time;
    };
    return least_time(slow_distance) > 3 * least_time(other_distance);
  }();
  return is_found;
#else
  return false;
#endif
}

/// Whether `rep movsb` from `from` to `into` is slow on this processor.
inline bool repeats_slowly(std::uint64_t into, std::uint64_t from) noexcept {
  return is_slow_distance(into, from) && has_slow_distances();
}

/// Below so many bytes, memcpy does not use `rep movsb`.
inline constexpr std::size_t repeated_bytes_min = 2048;

inline bool overlap(const std::byte* into, const std::byte* from, std::size_t bytes) noexcept {
  const auto target = reinterpret_cast<std::uintptr_t>(into);
  const auto source = reinterpret_cast<std::uintptr_t>(from);
  return target < source + bytes && source < target + bytes;
}

/// Copies like memcpy, but never by `rep movsb`.
inline void copy_in_pieces(std::byte* into, const std::byte* from, std::size_t bytes) noexcept {
  std::size_t piece_bytes = repeated_bytes_min / 2;
  asm("" : "+r"(piece_bytes));  // else the compiler may make `rep movsq` of a constant length
  for (; bytes > piece_bytes; bytes -= piece_bytes) {
    std::memcpy(into, from, piece_bytes);
    into += piece_bytes;
    from += piece_bytes;
  }
  if (bytes > 0) std::memcpy(into, from, bytes);
}

/// Copies like memcpy, at about the same speed for all distances.  With no bytes, pointers may be
/// null.
inline void copy_memory(std::byte* into, const std::byte* from, std::size_t bytes) noexcept {
  if (bytes >= repeated_bytes_min && repeats_slowly(reinterpret_cast<std::uintptr_t>(into),
                                                    reinterpret_cast<std::uintptr_t>(from)))
      [[unlikely]]
    copy_in_pieces(into, from, bytes);
  else if (bytes > 0)
    std::memcpy(into, from, bytes);
}

/// Like copy_memory(), but source and target may overlap.
inline void move_memory(std::byte* into, const std::byte* from, std::size_t bytes) noexcept {
  if (!overlap(into, from, bytes)) return copy_memory(into, from, bytes);
  std::memmove(into, from, bytes);
}

}  // namespace tutti::detail
