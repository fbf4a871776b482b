// Large copies into memory whose next reader is another CPU: by plain stores, or by streaming ones,
// which go past the caches.  A plain store first takes the line from the cache of whoever read it
// last.  Among CPUs that share a cache this costs little, and the reader finds the line close by;
// else it can cost many times what streaming does (DEVICE.md).  Where the scheduler, or the
// host of a virtual machine, places two ranks changes from second to second, so that each
// connection measures.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti::verbs::soft {

enum class Stores : std::uint8_t { automatic, plain, streaming };  // plain: memcpy's

/// The kind of stores that pays, by what both have taken lately.  One thread at a time.
class StoreChoice {
 public:
  /// For the next copy; never `automatic`.  The other kind now and then, so that a change is seen.
  Stores next() noexcept;
  /// What a copy has taken.
  void took(Stores kind, std::size_t bytes, std::uint64_t ticks) noexcept;

 private:
  /// Streaming leaves the reader to fetch from memory: an allreduce gains from it where the copies
  /// take a third of the time, and loses where they take half of it.
  static constexpr double gain_min = 3;
  static constexpr unsigned alternating_copies = 4;  // the first ones
  static constexpr unsigned copies_between_trials = 32;
  /// A trial of what takes ten times as long comes ten times as seldom; up to here.
  static constexpr double seldom_max = 16;
  /// What a copy may seem to have taken, of the mean: it may have been interrupted, or the first
  /// into its pages.  For the same reason, much less than the mean is believed at once.
  static constexpr double outlier = 4;

  Stores preferred() const noexcept;

  std::array<double, 2> costs_{};  // ticks per byte, of plain and streaming stores; 0: unknown
  unsigned alternated_ = 0;
  unsigned until_trial_ = 0;
};

/// Copies of one initiator to one target.  One thread at a time.
class BulkCopy {
 public:
  /// Fewer bytes are to be copied otherwise: than those of 32 KiB without the last word.
  static constexpr std::size_t bytes_min = (32 << 10) - 8;

  explicit BulkCopy(Stores asked) : asked_(asked) {}
  /// As memmove, also in order: before what this thread stores afterwards with release.
  void operator()(std::byte* target, const std::byte* source, std::size_t bytes) noexcept;

  /// The copies from here to the end are steps of one: of one kind, and measured together.
  void begin_steps() noexcept;
  void end_steps() noexcept;

 private:
  [[maybe_unused]] Stores asked_;
  StoreChoice choice_;
  [[maybe_unused]] Stores kind_of_steps_ = Stores::automatic;  // that: not within steps
  [[maybe_unused]] std::size_t steps_bytes_ = 0;
  [[maybe_unused]] std::uint64_t steps_ticks_ = 0;
};

}  // namespace tutti::verbs::soft
