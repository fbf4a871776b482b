// memcpy, also where the CPU's string instructions are slow.
//
// From about 2 KiB on, memcpy leaves the copy to `rep movsb` if the CPU calls that fast.  On Zen 3
// it takes 17 to 27 times as long as loads and stores if the target lies 1 to 31 bytes behind the
// source, modulo the size of a page (docs/performance.md, "Copies that `rep movsb` makes slow").
// This is common: malloc places a large array 16 bytes behind the begin of a page, and what the
// library shares begins with a page.  glibc 2.39 and later do not use `rep movsb` there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define TUTTI_AVOIDS_STRING_COPIES 1
#include <emmintrin.h>
#endif

namespace tutti::detail {

/// Shorter copies are never made by `rep movsb`.
inline constexpr std::size_t string_copy_bytes_min = 2048;

/// Whether `target` lies where `rep movsb` may be slow.
inline bool lies_close_behind(const std::byte* target, const std::byte* source) noexcept {
  constexpr std::uintptr_t page = 4096, close = 32;
  const std::uintptr_t behind =
      reinterpret_cast<std::uintptr_t>(target) - reinterpret_cast<std::uintptr_t>(source);
  return behind % page - 1 < close - 1;
}

#if defined(TUTTI_AVOIDS_STRING_COPIES)

/// Copies like memcpy, by loads and stores.
inline void copy_by_loads(std::byte* target, const std::byte* source, std::size_t bytes) noexcept {
  constexpr std::size_t line = 64;
  std::size_t done = 0;
  for (; done + line <= bytes; done += line) {
    const auto* const from = reinterpret_cast<const __m128i*>(source + done);
    auto* const to = reinterpret_cast<__m128i*>(target + done);
    const __m128i first = _mm_loadu_si128(from), second = _mm_loadu_si128(from + 1);
    const __m128i third = _mm_loadu_si128(from + 2), fourth = _mm_loadu_si128(from + 3);
    _mm_storeu_si128(to, first);
    _mm_storeu_si128(to + 1, second);
    _mm_storeu_si128(to + 2, third);
    _mm_storeu_si128(to + 3, fourth);
  }
  std::memcpy(target + done, source + done, bytes - done);
}

/// Whether memcpy takes many times as long as copy_by_loads() to where lies_close_behind().
/// Measured in about 20 us, by the least of several tries.
inline bool string_copies_are_slow_here() noexcept {
  constexpr std::size_t page = 4096;
  std::size_t bytes = page;
  asm("" : "+r"(bytes));  // or the compiler would write the copy out
  constexpr int tries = 8;
  constexpr std::uint64_t many = 4;
  alignas(page) static std::byte memory[3 * page];
  std::uint64_t by_memcpy = UINT64_MAX, by_loads = UINT64_MAX;
  std::byte* const target = memory + page + 16;
  for (int i = 0; i < tries; ++i) {
    const std::uint64_t begin = __builtin_ia32_rdtsc();
    std::memcpy(target, memory, bytes);
    asm("" ::: "memory");
    const std::uint64_t between = __builtin_ia32_rdtsc();
    copy_by_loads(target, memory, bytes);
    asm("" ::: "memory");
    by_memcpy = std::min(by_memcpy, between - begin);
    by_loads = std::min<std::uint64_t>(by_loads, __builtin_ia32_rdtsc() - between);
  }
  return by_memcpy > many * by_loads;
}

/// As memcpy, to where lies_close_behind().  Not inline, so that callers of plain_copy() stay
/// small.
[[gnu::noinline]] inline void copy_close_behind(std::byte* target, const std::byte* source,
                                                std::size_t bytes) noexcept {
  static const bool are_slow = string_copies_are_slow_here();
  if (are_slow)
    copy_by_loads(target, source, bytes);
  else
    std::memcpy(target, source, bytes);
}

/// As memcpy.
inline void plain_copy(std::byte* target, const std::byte* source, std::size_t bytes) noexcept {
  if (bytes >= string_copy_bytes_min && lies_close_behind(target, source)) [[unlikely]]
    copy_close_behind(target, source, bytes);
  else
    std::memcpy(target, source, bytes);
}

#else

inline void plain_copy(std::byte* target, const std::byte* source, std::size_t bytes) noexcept {
  std::memcpy(target, source, bytes);
}

#endif

}  // namespace tutti::detail
