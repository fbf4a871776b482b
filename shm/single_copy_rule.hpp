// Decides from which size on the ranks of a node read payloads in their users' buffers instead of
// copying them into a mapping and out of it.  It compares what both ways cost on this machine
// (shm/copy_costs.hpp).  Pure, so that the rule can be judged with the figures of machines that are
// not at hand.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "shm/copy_costs.hpp"

namespace tutti::shm {

/// What a payload is for: that decides what else is done with it, and by whom at the same time.
enum class ReadFor : std::uint8_t {
  broadcast,
  reduce,
  allreduce,
  gather,
  scatter,
  allgather,
  alltoall,
};
inline constexpr std::size_t read_for_count = 7;
const char* name_of(ReadFor what) noexcept;

/// The sizes of payloads that are read; of several blocks, the longest counts.
struct ReadRange {
  std::size_t from = SIZE_MAX;
  std::size_t to = 0;

  bool holds(std::size_t bytes) const noexcept { return bytes >= from && bytes <= to; }
};
using ReadRanges = std::array<ReadRange, read_for_count>;

/// Larger ones are faster in chunks that both sides copy at the same time (measured,
/// docs/performance.md).
inline constexpr std::size_t single_copy_broadcast_bytes_max = 2u << 20;
inline constexpr std::size_t single_copy_reduce_bytes_max = 512u << 10;
/// An allreduce of two ranks: so many times single_copy_bytes at least.
inline constexpr std::size_t single_copy_allreduce_times = 64;

/// None: nothing is read.
ReadRanges no_reading() noexcept;

/// The ranges for a size that the user has given.  Broadcasts and reduces are read from `bytes` on,
/// blocks from twice that size on, allreduces from single_copy_allreduce_times that size on, each
/// up to its limit above.  SIZE_MAX means never; 0 and 1 mean always, whatever the size.
ReadRanges reading_from(std::size_t bytes) noexcept;

/// By what it costs.  Allreduces are never read; nor are, where ranks share CPUs, broadcasts,
/// gathers and allgathers: one rank's payload is then read by several in turn, each of which pays
/// for a system call and for pages, where a copy in shared memory is still in the CPU's cache.
ReadRanges reading_by_costs(const CopyCosts& costs, bool shares_cpus = false) noexcept;

/// How many nanoseconds reading or copying one payload takes by these figures.  The rule compares
/// the two.
double reading_ns(ReadFor what, std::size_t bytes, const CopyCosts& costs) noexcept;
double copying_ns(ReadFor what, std::size_t bytes, const CopyCosts& costs) noexcept;

/// For people: "broadcast 16K to 2M, reduce never, ..."
std::string text_of(const ReadRanges& ranges);
std::string text_of(const CopyCosts& costs);

}  // namespace tutti::shm
