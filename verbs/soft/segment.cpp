#include "verbs/soft/segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <cassert>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>

#include "tutti/detail/file_space.hpp"

namespace tutti::verbs::soft {
namespace {

// Each granule is committed by one call of fallocate, which is never undone.
constexpr std::size_t granule_bytes = std::size_t{64} * 1024;
static_assert(segment_bytes % granule_bytes == 0);

std::size_t rounded_to_line(std::size_t bytes) {
  return (bytes + line_bytes - 1) / line_bytes * line_bytes;
}

}  // namespace

int Segment::create(std::uint32_t id, std::uint64_t nonce) {
  assert(id != 0);
  assert(id < process_ids_max);
  assert(nonce != 0);
  assert(!descriptor_);
  if (detail::exceeds_file_limit(segment_bytes)) {
    std::fprintf(stderr,
                 "tutti: the software device needs files of %zu bytes in memory, and RLIMIT_FSIZE "
                 "is lower; raise it (ulimit -f unlimited)\n",
                 segment_bytes);
    return EFBIG;
  }
  descriptor_ = detail::Descriptor(::memfd_create("tutti-soft", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!descriptor_ || ::ftruncate(descriptor_.get(), segment_bytes) != 0) return errno;
  // A peer that maps the file must be able to rely on its size.
  if (::fcntl(descriptor_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return errno;
  mapping_ = detail::Mapping(::mmap(nullptr, segment_bytes, PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_NORESERVE, descriptor_.get(), 0),
                             segment_bytes);
  if (!mapping_) return ENOMEM;
  // A child of fork must not act in the name of its parent.
  if (::madvise(mapping_.data(), segment_bytes, MADV_DONTFORK) != 0) return errno;

  committed_.assign(segment_bytes / granule_bytes, false);
  free_ = {{heap_offset, segment_bytes - heap_offset}};
  if (const int error = commit(0, queue_pairs_offset); error != 0) return error;
  SegmentHeader& header = view().header();
  header.magic = segment_magic;
  header.version = layout_version;
  header.id = id;
  header.nonce = nonce;
  return 0;
}

int Segment::commit(std::size_t offset, std::size_t bytes) {
  assert(bytes != 0);
  assert(offset + bytes <= segment_bytes);
  for (std::size_t granule = offset / granule_bytes; granule * granule_bytes < offset + bytes;
       ++granule) {
    if (committed_[granule]) continue;
    if (detail::allocate_file_space(descriptor_.get(), granule * granule_bytes, granule_bytes) != 0)
      return ENOMEM;
    committed_[granule] = true;
  }
  return 0;
}

int Segment::commit_queue_pair(std::uint32_t index) {
  assert(index < queue_pairs_max);
  std::atomic<std::uint32_t>& committed = view().header().queue_pairs_committed;
  if (index < committed.load(std::memory_order_relaxed)) return 0;
  const int error =
      commit(queue_pairs_offset + index * sizeof(QueuePairEntry), sizeof(QueuePairEntry));
  if (error == 0) committed.store(index + 1, std::memory_order_release);
  return error;
}

std::size_t Segment::allocate(std::size_t bytes) {
  assert(bytes != 0);
  bytes = rounded_to_line(bytes);
  for (auto place = free_.begin(); place != free_.end(); ++place) {
    const auto [offset, free_bytes] = *place;
    if (free_bytes < bytes) continue;
    // If there is no memory for this place, another place may be committed already.
    if (commit(offset, bytes) != 0) continue;
    allocated_.emplace(offset, bytes);
    auto rest = free_.extract(place);
    if (free_bytes > bytes) {
      rest.key() = offset + bytes;
      rest.mapped() = free_bytes - bytes;
      free_.insert(std::move(rest));
    }
    assert(offset >= heap_offset);
    assert(offset % line_bytes == 0);
    assert(offset + bytes <= segment_bytes);
    std::memset(mapping_.data() + offset, 0, bytes);
    return offset;
  }
  return 0;
}

void Segment::free(std::size_t offset) noexcept {
  auto node = allocated_.extract(offset);
  if (node.empty()) return;
  auto place = free_.insert(std::move(node)).position;
  const auto next = std::next(place);
  assert(next == free_.end() || place->first + place->second <= next->first);
  if (next != free_.end() && place->first + place->second == next->first) {
    place->second += next->second;
    free_.erase(next);
  }
  if (place == free_.begin()) return;
  const auto before = std::prev(place);
  assert(before->first + before->second <= place->first);
  if (before->first + before->second == place->first) {
    before->second += place->second;
    free_.erase(place);
  }
}

}  // namespace tutti::verbs::soft
