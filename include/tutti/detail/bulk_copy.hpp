// Large copies into memory whose next reader is another CPU: by plain stores, or by streaming ones,
// which go past the caches.  A plain store first takes the line from the cache of its last reader.
// Between CPUs that share a cache this costs little, and the reader finds the line close by;
// between others it can cost many times what streaming does (verbs/soft/DEVICE.md).  The scheduler,
// or the host of a virtual machine, may move two ranks from second to second, so each connection
// measures.
//
// LongCopy is for long copies between the private buffers of one rank: by one call of memcpy, or by
// one for each piece.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tutti/detail/copy.hpp"
#include "tutti/detail/faster_of_two.hpp"

// GCC's ThreadSanitizer does not see streaming stores, so there are none under it.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define TUTTI_HAS_STREAMING 1
#include <emmintrin.h>
#endif

namespace tutti::detail {

enum class Stores : std::uint8_t { automatic, plain, streaming };  // plain: memcpy's

/// Copies of one initiator to one target.  One thread at a time.
class BulkCopy {
 public:
  /// The software device uses it from this size on: 32 KiB without the last word.
  static constexpr std::size_t bytes_min = (32 << 10) - 8;
  /// Streaming leaves the reader to fetch from memory: an allreduce gains from streaming where the
  /// copies then take a third of the time, and loses where they take half of it.
  static constexpr double gain_of_streaming = 3;
  /// A reader whose CPU shares no cache with this one fetches from elsewhere in any case, so that
  /// streaming costs it little more (docs/performance.md, "Reading in place").
  static constexpr double gain_between_caches = 1.2;

  /// `gain_min`: how many times as fast as plain stores streaming ones must be.
  explicit BulkCopy(Stores asked, double gain_min = gain_of_streaming)
      : asked_(asked),
        measures_(asked == Stores::automatic),
        gain_min_(gain_min),
        choice_(gain_min) {}
  /// Plain stores, whose costs are measured.
  static BulkCopy measured_plain() noexcept {
    BulkCopy copy(Stores::plain);
    copy.measures_ = true;
    return copy;
  }
  /// Copies like memmove.  Others see the copy before what this thread stores afterwards with
  /// release.
  void operator()(std::byte* target, const std::byte* source, std::size_t bytes) noexcept;

  /// The copies between begin_steps() and end_steps() are of one kind, and are measured together.
  void begin_steps() noexcept;
  void end_steps() noexcept;

  double gain_min() const noexcept { return gain_min_; }
  /// Ticks per byte of the copies so far by plain stores; 0: unknown, as where nothing is measured.
  double cost_of_plain() const noexcept { return choice_.cost(Either::usual); }
  /// Likewise by streaming stores, including what they cost the reader.
  double cost_of_streaming() const noexcept { return gain_min_ * choice_.cost(Either::other); }

 private:
  static constexpr Either either(Stores kind) noexcept {
    return kind == Stores::streaming ? Either::other : Either::usual;
  }
  Stores next_kind() noexcept {
    if (asked_ != Stores::automatic) return asked_;
    return choice_.next() == Either::other ? Stores::streaming : Stores::plain;
  }

  [[maybe_unused]] Stores asked_;
  [[maybe_unused]] bool measures_;
  double gain_min_;
  FasterOfTwo choice_;
  [[maybe_unused]] Stores kind_of_steps_ = Stores::automatic;  // automatic: not within steps
  [[maybe_unused]] std::size_t steps_bytes_ = 0;
  [[maybe_unused]] std::uint64_t steps_ticks_ = 0;
};

/// Copies within the private memory of one rank, whole or in pieces, whichever has been faster.
/// Where `rep movsb` is fast, memcpy uses it only for copies that fit the second cache.  For longer
/// ones it has loops whose stores first fetch each line: in pieces, such a copy takes 0.6 to 0.9 of
/// the time (docs/performance.md).  On other CPUs memcpy streams the longest copies, which pieces
/// would prevent.  One thread at a time.
class LongCopy {
 public:
  static constexpr std::size_t bytes_min = 512 << 10;
  static constexpr std::size_t piece_bytes = 256 << 10;

  /// Copies like memmove.
  void operator()(std::byte* target, const std::byte* source, std::size_t bytes) noexcept;

  /// Ticks per byte; 0: it has not been tried.
  double cost_of_pieces() const noexcept { return pieces_.cost(Either::other); }

 private:
  FasterOfTwo pieces_;  // the usual way is whole, the other one in pieces
};

#if defined(TUTTI_HAS_STREAMING)

inline constexpr std::size_t streamed_line_bytes = 64;

/// Streams whole lines; the target begins with a line.
inline void stream_lines(std::byte* target, const std::byte* source, std::size_t bytes) noexcept {
  for (std::size_t done = 0; done < bytes; done += streamed_line_bytes) {
    const auto* const from = reinterpret_cast<const __m128i*>(source + done);
    auto* const to = reinterpret_cast<__m128i*>(target + done);
    const __m128i first = _mm_loadu_si128(from), second = _mm_loadu_si128(from + 1);
    const __m128i third = _mm_loadu_si128(from + 2), fourth = _mm_loadu_si128(from + 3);
    _mm_stream_si128(to, first);
    _mm_stream_si128(to + 1, second);
    _mm_stream_si128(to + 2, third);
    _mm_stream_si128(to + 3, fourth);
  }
  _mm_sfence();  // streaming stores may be seen after later plain ones
}

inline void BulkCopy::operator()(std::byte* target, const std::byte* source,
                                 std::size_t bytes) noexcept {
  if (overlap(target, source, bytes)) return move_memory(target, source, bytes);
  const bool is_step = kind_of_steps_ != Stores::automatic;
  const Stores kind = is_step ? kind_of_steps_ : next_kind();
  const std::uint64_t begin = measures_ ? __builtin_ia32_rdtsc() : 0;
  if (kind == Stores::plain) {
    copy_memory(target, source, bytes);
  } else {
    const std::size_t head = -reinterpret_cast<std::uintptr_t>(target) % streamed_line_bytes;
    const std::size_t lines = (bytes - head) / streamed_line_bytes * streamed_line_bytes;
    std::memcpy(target, source, head);
    std::memcpy(target + head + lines, source + head + lines, bytes - head - lines);
    stream_lines(target + head, source + head, lines);
  }
  if (!measures_) return;
  const std::uint64_t ticks = __builtin_ia32_rdtsc() - begin;
  if (!is_step) return choice_.took(either(kind), bytes, ticks);
  steps_bytes_ += bytes;
  steps_ticks_ += ticks;
}

inline void LongCopy::operator()(std::byte* target, const std::byte* source,
                                 std::size_t bytes) noexcept {
  if (bytes < bytes_min || overlap(target, source, bytes))
    return move_memory(target, source, bytes);
  const Either way = pieces_.next();
  const std::size_t at_once = way == Either::usual ? bytes : piece_bytes;
  const std::uint64_t begin = __builtin_ia32_rdtsc();
  for (std::size_t done = 0; done < bytes; done += at_once)
    copy_memory(target + done, source + done, std::min(at_once, bytes - done));
  pieces_.took(way, bytes, __builtin_ia32_rdtsc() - begin);
}

inline void BulkCopy::begin_steps() noexcept {
  kind_of_steps_ = next_kind();
  steps_bytes_ = 0;
  steps_ticks_ = 0;
}

inline void BulkCopy::end_steps() noexcept {
  if (asked_ == Stores::automatic && steps_bytes_ != 0)
    choice_.took(either(kind_of_steps_), steps_bytes_, steps_ticks_);
  kind_of_steps_ = Stores::automatic;
}

#else

inline void BulkCopy::operator()(std::byte* target, const std::byte* source,
                                 std::size_t bytes) noexcept {
  move_memory(target, source, bytes);
}
inline void LongCopy::operator()(std::byte* target, const std::byte* source,
                                 std::size_t bytes) noexcept {
  move_memory(target, source, bytes);
}
inline void BulkCopy::begin_steps() noexcept {}
inline void BulkCopy::end_steps() noexcept {}

#endif

}  // namespace tutti::detail
