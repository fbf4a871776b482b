#include "shm/single_copy_rule.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <tutti/detail/enumerators.hpp>
#include <utility>

namespace tutti::shm {
namespace {

constexpr double page = costs_page_bytes;
constexpr double chunk = costs_chunk_bytes;
constexpr double large = costs_large_bytes;

/// A line through a page and a chunk; what is shorter than a page, in proportion.
double between(double of_page, double of_chunk, double bytes) noexcept {
  if (bytes <= page) return of_page * bytes / page;
  return std::max(of_page, of_page + (of_chunk - of_page) * (bytes - page) / (chunk - page));
}

double read(double bytes, const CopyCosts& costs) noexcept {
  return costs.read_call + costs.read_per_byte() * bytes +
         costs.read_per_page() * std::ceil(bytes / page);
}
double put(double bytes, const CopyCosts& costs) noexcept {
  return between(costs.put_page, costs.put_chunk, bytes);
}
double get(double bytes, const CopyCosts& costs) noexcept {
  return between(costs.get_page, costs.get_chunk, bytes);
}
double own(double bytes, const CopyCosts& costs) noexcept {
  return costs.own_chunk * bytes / chunk;
}

/// By how much copies of both ranks slow each other down: 1.0 to 1.5 on two cores, 1.9 on two
/// threads of one core (docs/performance.md, "Reading in place").
double factor_at_once(const CopyCosts& costs) noexcept {
  return std::max(1.0,
                  (costs.exchange_chunk - 2 * costs.word) / (costs.put_chunk + costs.get_chunk));
}

/// Who copies first and who copies then: the second waits for the first chunk only.  From then on
/// both copy at the same time, which takes `factor` times as long.
double one_after_the_other(double bytes, double first, double second, double factor = 1) noexcept {
  const double chunks = bytes / chunk;
  if (chunks <= 1) return first + second;
  return first / chunks + second / chunks + std::max(first, second) * (1 - 1 / chunks) * factor;
}

/// The time of what is longer than a chunk: a line through the times of a chunk and of
/// costs_large_bytes, or in proportion to that of a chunk where nothing large was measured.
double beyond_chunk(double of_chunk, double of_large, double bytes) noexcept {
  if (of_large == 0) return of_chunk * bytes / chunk;
  return std::max(of_chunk, of_chunk + (of_large - of_chunk) * (bytes - chunk) / (large - chunk));
}

/// The time of a read while the other rank reads, too.  Up to a chunk, what this adds to the time
/// of a rank that reads alone grows with the payload.
double read_at_once(double bytes, const CopyCosts& costs) noexcept {
  const double of_chunk = std::max(costs.read_chunk, costs.read_chunk_at_once - 2 * costs.word);
  if (bytes <= chunk) return read(bytes, costs) + (of_chunk - costs.read_chunk) * bytes / chunk;
  if (!costs.has_large()) return read(bytes, costs) * of_chunk / costs.read_chunk;
  return beyond_chunk(of_chunk, costs.read_large_at_once, bytes);
}

/// The time of a read by a rank alone.  What is longer than costs_large_bytes fills the caches of
/// its reader as two such reads at once do, and takes as long for each byte.
double read_beyond_caches(double bytes, const CopyCosts& costs) noexcept {
  if (bytes <= large || !costs.has_large()) return read(bytes, costs);
  return std::max(read(bytes, costs), costs.read_large_at_once * bytes / large);
}

/// A larger second-level cache counts as one of this size, with which the rule was measured: what a
/// virtual machine says of its caches need not be true.
constexpr double second_cache_most = 2u << 20;

/// Whether a reduce is no longer than a chunk, or its root's source, what the root has read and the
/// result fill at most half of a second-level cache.
bool is_near_reduce(double bytes, const CopyCosts& costs) noexcept {
  return bytes <= std::max(chunk, std::min(costs.second_cache_bytes, second_cache_most) / (2 * 3));
}

/// The time in which the root of a reduce combines what it has read: that of a copy, or half as
/// long again if the reduce is not near (single_copy_rule_test.cpp).
double combining(double bytes, const CopyCosts& costs) noexcept {
  return (is_near_reduce(bytes, costs) ? 1 : 1.5) * own(bytes, costs);
}

/// The time of a put and a get while the other rank makes both, too.  This slows both ranks down by
/// a factor, which is measured for a chunk, and is smaller for small payloads, which stay in the
/// first-level caches.
double copy_at_once(double bytes, const CopyCosts& costs) noexcept {
  const double alone = put(bytes, costs) + get(bytes, costs);
  const double factor = factor_at_once(costs);
  if (bytes <= chunk) return alone * (1 + (factor - 1) * bytes / chunk);
  return beyond_chunk((costs.put_chunk + costs.get_chunk) * factor, costs.exchange_large, bytes);
}

constexpr std::size_t bytes_min = 1u << 10;  // less is not worth a system call anywhere
constexpr std::size_t bytes_max = std::size_t{64} << 20;
/// Reading is chosen only if it takes at most this fraction of the time of copying: tries that
/// agree differ by up to a tenth, and at equal times copying is better, because it makes no system
/// call.
constexpr double margin = 0.95;
/// As much for a single chunk of a broadcast or gather, where nothing overlaps: there, reading
/// takes no longer than copying where their figures are equal, and 0.8 of it once the host of a
/// virtual machine has moved the CPUs (docs/performance.md, "Reading in place").
constexpr double margin_of_chunk = 1.05;
/// The margin for a reduce that is not near.  One whose figures said 0.90 of the time of copying
/// took 1.33 ("Xeon with large caches" in single_copy_rule_test.cpp).
constexpr double margin_of_far_reduce = 0.85;

double margin_of(ReadFor what, std::size_t bytes, const CopyCosts& costs) noexcept {
  if (what == ReadFor::reduce && !is_near_reduce(static_cast<double>(bytes), costs))
    return margin_of_far_reduce;
  const bool goes_one_way = what == ReadFor::broadcast || what == ReadFor::gather;
  return goes_one_way && bytes <= costs_chunk_bytes ? margin_of_chunk : margin;
}

/// The largest size to read.  Above it chunks are faster, because both sides copy at the same time
/// and within their second caches.  The cost of one chunk does not show this (docs/performance.md):
/// where reading was faster by the figures of a chunk, reading 8 MiB took 2.0 times as long as
/// copying in a reduce, and 1.36 times in a gather ("EPYC" in single_copy_rule_test.cpp).  Nothing
/// large is measured for collectives in which only one rank copies at a time.
constexpr std::size_t most_to_read(ReadFor what) noexcept {
  if (what == ReadFor::broadcast || what == ReadFor::gather) return single_copy_broadcast_bytes_max;
  if (what == ReadFor::reduce) return single_copy_reduce_bytes_max;
  return SIZE_MAX;
}

/// Whether an exchange is longer than all that was measured.  It is read only if a shorter one is:
/// otherwise the gain that a line through two figures promises is smaller than the error of these
/// figures.
bool is_beyond_all_figures(ReadFor what, std::size_t bytes, const CopyCosts& costs) noexcept {
  const bool is_exchange = what == ReadFor::allgather || what == ReadFor::alltoall;
  return is_exchange && costs.has_large() && bytes > costs_large_bytes;
}

}  // namespace

const char* name_of(ReadFor what) noexcept {
  return detail::name_in<ReadFor::alltoall>(
      {"broadcast", "reduce", "allreduce", "gather", "scatter", "allgather", "alltoall"}, what);
}

double reading_ns(ReadFor what, std::size_t payload_bytes, const CopyCosts& costs) noexcept {
  const auto bytes = static_cast<double>(payload_bytes);
  switch (what) {
    case ReadFor::broadcast:
      return 2 * costs.word + read_beyond_caches(bytes, costs);
    case ReadFor::scatter:  // The root copies its own block meanwhile.
      return 2 * costs.word + read(bytes, costs);
    case ReadFor::reduce:
      return 2 * costs.word + read(bytes, costs) + combining(bytes, costs);
    case ReadFor::gather:
      return 2 * costs.word + read_beyond_caches(bytes, costs) + own(bytes, costs);
    case ReadFor::allgather:
    case ReadFor::alltoall:
      return 2 * costs.word + read_at_once(bytes, costs) + own(bytes, costs);
    case ReadFor::allreduce:
      break;
  }
  // Two ranks that copy write their results into the lines which they have just read (answers,
  // plan/core/plan.hpp); reading has been slower than that at every size
  // (single_copy_rule_test.cpp).
  return std::numeric_limits<double>::infinity();
}

double copying_ns(ReadFor what, std::size_t payload_bytes, const CopyCosts& costs) noexcept {
  const auto bytes = static_cast<double>(payload_bytes);
  const double put_all = put(bytes, costs), get_all = get(bytes, costs);
  switch (what) {
    case ReadFor::broadcast:
      return costs.word + one_after_the_other(bytes, put_all, get_all, factor_at_once(costs));
    case ReadFor::reduce: {
      // Beyond a chunk the root combines what it gets while the other rank copies the next chunk.
      // It also reads its own source for that, which is half of a copy.
      const double own_read = bytes > chunk ? own(bytes, costs) / 2 : 0;
      return costs.word +
             one_after_the_other(bytes, put_all, get_all + own_read, factor_at_once(costs));
    }
    // The root copies its own block before it waits for the first one.  With the factor of a
    // broadcast, the rule would read what takes longer so on two machines of its test; the same
    // holds for a scatter.
    case ReadFor::gather:
      if (bytes <= chunk) return costs.word + std::max(put_all, own(bytes, costs)) + get_all;
      return costs.word + one_after_the_other(bytes, put_all, own(bytes, costs) + get_all);
    case ReadFor::scatter:
      return costs.word + one_after_the_other(bytes, put_all + own(bytes, costs), get_all);
    case ReadFor::allgather:
    case ReadFor::alltoall:
      return costs.word + copy_at_once(bytes, costs) + own(bytes, costs);
    case ReadFor::allreduce:  // It is never read, so nobody asks.
      break;
  }
  return 0;
}

ReadRanges no_reading() noexcept {
  return {};
}

ReadRanges reading_from(std::size_t bytes) noexcept {
  ReadRanges ranges = no_reading();
  if (bytes == SIZE_MAX) return ranges;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const auto what = static_cast<ReadFor>(i);
    std::size_t times = 2;  // both sides copy what they send, so reading gains later
    if (what == ReadFor::broadcast || what == ReadFor::reduce) times = 1;
    if (what == ReadFor::allreduce) times = single_copy_allreduce_times;
    ranges[i].from = bytes <= 1 ? 0 : bytes > SIZE_MAX / times ? SIZE_MAX : bytes * times;
    ranges[i].to = bytes <= 1 || what == ReadFor::gather ? SIZE_MAX : most_to_read(what);
  }
  return ranges;
}

ReadRanges reading_by_costs(const CopyCosts& costs, bool shares_cpus) noexcept {
  ReadRanges ranges = no_reading();
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const auto what = static_cast<ReadFor>(i);
    if (shares_cpus &&
        (what == ReadFor::broadcast || what == ReadFor::gather || what == ReadFor::allgather))
      continue;  // docs/performance.md, "Reading in place"
    const std::size_t most = most_to_read(what);
    for (std::size_t bytes = bytes_min; bytes <= std::min(most, bytes_max); bytes *= 2) {
      const bool pays = reading_ns(what, bytes, costs) <
                        margin_of(what, bytes, costs) * copying_ns(what, bytes, costs);
      ReadRange& range = ranges[i];
      if (range.from == SIZE_MAX && is_beyond_all_figures(what, bytes, costs)) break;
      if (pays && range.from == SIZE_MAX) range.from = bytes;
      if (pays) range.to = bytes == std::min(most, bytes_max) ? most : bytes;
      if (!pays && range.from != SIZE_MAX) break;
    }
  }
  return ranges;
}

std::string text_of(const ReadRanges& ranges) {
  const auto size = [](std::size_t bytes) {
    if (bytes >= 1u << 20 && bytes % (1u << 20) == 0) return std::to_string(bytes >> 20) + "M";
    if (bytes >= 1u << 10 && bytes % (1u << 10) == 0) return std::to_string(bytes >> 10) + "K";
    return std::to_string(bytes);
  };
  std::string text;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    text += (i == 0 ? "" : "; ") + std::string(name_of(static_cast<ReadFor>(i)));
    const ReadRange& range = ranges[i];
    if (range.from > range.to)
      text += " never";
    else if (range.to == SIZE_MAX)
      text += " from " + size(range.from) + " on";
    else
      text += " " + size(range.from) + (range.from < range.to ? " to " + size(range.to) : "");
  }
  return text;
}

std::string text_of(const CopyCosts& costs) {
  char text[600], large_text[100] = "", cache_text[60] = "";
  if (costs.has_large())
    std::snprintf(large_text, sizeof large_text, ", 512K read in %.0f and copied in %.0f ns",
                  costs.read_large_at_once, costs.exchange_large);
  if (costs.second_cache_bytes > 0)
    std::snprintf(cache_text, sizeof cache_text, "; second-level cache %.0f KiB",
                  costs.second_cache_bytes / 1024);
  std::snprintf(
      text, sizeof text,
      "process_vm_readv %.0f ns before the first byte, %.0f a page of 4K, %.3f a byte (4K "
      "%.0f, 64K %.0f ns); through shared memory: 4K in %.0f and out %.0f, 64K in %.0f and out "
      "%.0f ns; both ranks at once: 64K read in %.0f and copied in %.0f ns%s; a word %.0f ns; "
      "64K in own memory %.0f ns%s",
      costs.read_call, costs.read_per_page(), costs.read_per_byte(), costs.read_page,
      costs.read_chunk, costs.put_page, costs.get_page, costs.put_chunk, costs.get_chunk,
      costs.read_chunk_at_once, costs.exchange_chunk, large_text, costs.word, costs.own_chunk,
      cache_text);
  return text;
}

}  // namespace tutti::shm
