// See bulk_copy.hpp.
#include "verbs/soft/bulk_copy.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

// Not under GCC's ThreadSanitizer, which does not see streaming stores.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define TUTTI_HAS_STREAMING 1
#include <emmintrin.h>
#include <x86intrin.h>
#endif

namespace tutti::verbs::soft {

Stores StoreChoice::preferred() const noexcept {
  return costs_[0] > gain_min * costs_[1] ? Stores::streaming : Stores::plain;
}

Stores StoreChoice::next() noexcept {
  if (alternated_ < alternating_copies)
    return alternated_++ % 2 == 0 ? Stores::plain : Stores::streaming;
  const Stores best = preferred();
  if (until_trial_ != 0) {
    --until_trial_;
    return best;
  }
  const auto [low, high] = std::minmax(costs_[0], costs_[1]);
  const double seldom = low > 0 ? std::min(high / low, seldom_max) : 1;
  until_trial_ = static_cast<unsigned>(copies_between_trials * seldom);
  return best == Stores::plain ? Stores::streaming : Stores::plain;
}

void StoreChoice::took(Stores kind, std::size_t bytes, std::uint64_t ticks) noexcept {
  if (static_cast<std::int64_t>(ticks) <= 0) return;  // counters of two CPUs
  const double sample = static_cast<double>(ticks) / static_cast<double>(bytes);
  double& mean = costs_[kind == Stores::streaming ? 1 : 0];
  if (mean == 0 || sample < mean / 2)
    mean = sample;
  else
    mean += (std::min(sample, outlier * mean) - mean) / 4;
}

#if defined(TUTTI_HAS_STREAMING)
namespace {

constexpr std::size_t line_bytes = 64;

/// Whole lines; the target begins with one.
void stream(std::byte* target, const std::byte* source, std::size_t bytes) noexcept {
  for (std::size_t done = 0; done < bytes; done += line_bytes) {
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

bool overlap(const std::byte* target, const std::byte* source, std::size_t bytes) {
  const auto to = reinterpret_cast<std::uintptr_t>(target);
  const auto from = reinterpret_cast<std::uintptr_t>(source);
  return to < from + bytes && from < to + bytes;
}

}  // namespace

void BulkCopy::operator()(std::byte* target, const std::byte* source, std::size_t bytes) noexcept {
  assert(bytes >= bytes_min);
  if (overlap(target, source, bytes)) {
    std::memmove(target, source, bytes);
    return;
  }
  const bool is_step = kind_of_steps_ != Stores::automatic;
  const Stores kind = is_step                       ? kind_of_steps_
                      : asked_ == Stores::automatic ? choice_.next()
                                                    : asked_;
  const std::uint64_t begin = asked_ == Stores::automatic ? __rdtsc() : 0;
  if (kind == Stores::plain) {
    std::memcpy(target, source, bytes);
  } else {
    const std::size_t head = -reinterpret_cast<std::uintptr_t>(target) % line_bytes;
    const std::size_t lines = (bytes - head) / line_bytes * line_bytes;
    std::memcpy(target, source, head);
    std::memcpy(target + head + lines, source + head + lines, bytes - head - lines);
    stream(target + head, source + head, lines);
  }
  if (asked_ != Stores::automatic) return;
  const std::uint64_t ticks = __rdtsc() - begin;
  if (!is_step) return choice_.took(kind, bytes, ticks);
  steps_bytes_ += bytes;
  steps_ticks_ += ticks;
}

void BulkCopy::begin_steps() noexcept {
  kind_of_steps_ = asked_ == Stores::automatic ? choice_.next() : asked_;
  steps_bytes_ = 0;
  steps_ticks_ = 0;
}

void BulkCopy::end_steps() noexcept {
  if (asked_ == Stores::automatic && steps_bytes_ != 0)
    choice_.took(kind_of_steps_, steps_bytes_, steps_ticks_);
  kind_of_steps_ = Stores::automatic;
}

#else

void BulkCopy::operator()(std::byte* target, const std::byte* source, std::size_t bytes) noexcept {
  std::memmove(target, source, bytes);
}
void BulkCopy::begin_steps() noexcept {}
void BulkCopy::end_steps() noexcept {}

#endif

}  // namespace tutti::verbs::soft
