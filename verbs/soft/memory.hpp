// Memory regions: the table that initiators check their keys against, and the moving of data
// between a process's own memory and a region of its peer.
#pragma once

#include <infiniband/verbs.h>
#include <sys/uio.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <tutti/detail/bulk_copy.hpp>
#include "verbs/soft/layout.hpp"

namespace tutti::verbs::soft {

/// A consistent copy of a RegionEntry.
struct Region {
  std::uint64_t address;
  std::uint64_t bytes;
  std::uint64_t backing_offset;
  std::uint32_t domain;
  std::uint32_t access;
  std::uint32_t backing;

  bool covers(std::uint64_t first, std::uint64_t count) const {  // cannot overflow
    return count <= bytes && first >= address && first - address <= bytes - count;
  }
};

/// False when no region has this key, or none has it any more.
bool find_region(const SegmentView& segment, std::uint32_t key, Region& region) noexcept;

/// A list of memory pieces; it has one more than a work request, because the last may be split.
struct Pieces {
  std::array<iovec, scatter_max + 1> items;
  unsigned count = 0;
  std::size_t bytes = 0;

  void add(void* data, std::size_t piece_bytes) noexcept {
    if (piece_bytes == 0) return;
    assert(count < items.size());
    items[count++] = {data, piece_bytes};
    bytes += piece_bytes;
  }
};

/// The part of the list from byte `first` to before `first + bytes`.
Pieces part_of(const Pieces& whole, std::size_t first, std::size_t bytes) noexcept;

/// Copies all of `source` to the beginning of `target`.  A thread that sees the last word of the
/// target (up to 8 bytes, within its aligned word) sees everything before it; programs that poll
/// memory rely on that.  `bulk`: how large pieces are copied; NULL: in the same way as small ones.
void copy(const Pieces& source, const Pieces& target, detail::BulkCopy* bulk = nullptr) noexcept;

/// Copies into, or out of, the memory of another process, in the same order.  0 or an errno value.
int copy_to_process(pid_t process, const Pieces& source, const Pieces& target) noexcept;
int copy_from_process(pid_t process, const Pieces& source, const Pieces& target) noexcept;

/// Copies between memory of this process and a file, in the same order.  The kernel does it, so
/// that unmapped memory is an error, not a signal.
int copy_from_file(int descriptor, std::size_t offset, const Pieces& target) noexcept;
int copy_to_file(int descriptor, std::size_t offset, const Pieces& source) noexcept;

/// 0, or the errno value with which the system denies this process all memory of the other one.
/// `address` is readable there.
int refusal_of_process(pid_t process, std::uint64_t address) noexcept;
/// Whether an access that failed with this errno value was denied as such, and did nothing.
inline bool is_refusal(int error) {
  return error == EPERM || error == ENOSYS;
}

}  // namespace tutti::verbs::soft
