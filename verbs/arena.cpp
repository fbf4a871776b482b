#include "verbs/arena.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string>
#include <tutti/detail/check.hpp>
#include <tutti/detail/file_space.hpp>
#include <tutti/status.hpp>

#include "verbs/lock_limit.hpp"
#include "verbs/memory_left.hpp"

namespace tutti::verbs {
namespace {

std::size_t rounded(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

[[noreturn]] void refuse(const std::string& what, int error) {
  throw Error(error == ENOMEM || error == ENOSPC ? ErrorCode::limit_exceeded : ErrorCode::system,
              what + ": " + std::strerror(error), error);
}

/// What an arena takes, as its user knows it, e.g. "TUTTI_ARENA_BYTES=16777216 (and 2097152 bytes
/// besides)".
std::string text_of_size(std::size_t bytes, std::size_t besides) {
  return "TUTTI_ARENA_BYTES=" + std::to_string(bytes) +
         (besides > 0 ? " (and " + std::to_string(besides) + " bytes besides)" : "");
}

/// Refuses to allocate more than there is, which would wake the out-of-memory killer.  `size`: of
/// the arena, in words.
void require_memory(std::size_t wanted, std::size_t arena_bytes, const std::string& size) {
  // Covers the memory that other ranks allocate between two calls of this function.
  constexpr std::size_t reserve = 32u << 20;
  const MemoryLeft left = memory_left();
  if (left.bytes > reserve && wanted <= left.bytes - reserve) return;
  throw Error(ErrorCode::limit_exceeded,
              size + ": " + left.limited_by + " has only " + std::to_string(left.bytes) +
                  " bytes left, of which " + std::to_string(reserve) + " are not touched" +
                  (wanted < arena_bytes ? " for another " + std::to_string(wanted) : "") +
                  "; lower it, also if several ranks are here",
              ENOMEM);
}

/// Asks before each part how much memory is left, because other ranks allocate at the same time.
/// `all`: the bytes of the arena.
void allocate_watchfully(int descriptor, std::size_t offset, std::size_t bytes, std::size_t all,
                         const std::string& size) {
  constexpr std::size_t part_bytes = std::size_t{2} << 20;
  for (std::size_t done = 0; done < bytes;) {
    require_memory(bytes - done, all, size);
    const std::size_t part = std::min(part_bytes, bytes - done);
    if (const int error = detail::allocate_file_space(descriptor, offset + done, part); error != 0)
      refuse("no memory for an arena of " + std::to_string(all) + " bytes (TUTTI_ARENA_BYTES)",
             error);
    done += part;
  }
}

}  // namespace

std::size_t Arena::total_bytes(std::size_t bytes) noexcept {
  return header_bytes + rounded(std::max<std::size_t>(bytes, 1), 4096);
}

Arena::Arena(const Port& port, ibv_pd* domain, std::size_t asked, std::size_t besides)
    : size_(text_of_size(asked, besides)) {
  const std::size_t bytes = total_bytes(asked + besides);
  const std::size_t usable = bytes - header_bytes;
  check_lockable(port, bytes, "the arena");
  if (detail::exceeds_file_limit(bytes))
    throw Error(
        ErrorCode::limit_exceeded,
        size_ + ": RLIMIT_FSIZE is lower; raise it (ulimit -f unlimited) or lower the arena",
        EFBIG);
  memory_ = detail::Descriptor(memfd_create("tutti-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory_) refuse("memfd_create", errno);
  if (ftruncate(memory_.get(), static_cast<off_t>(bytes)) != 0)
    refuse("ftruncate to " + std::to_string(bytes) + " bytes (TUTTI_ARENA_BYTES)", errno);
  file_bytes_ = bytes;
  // Pages exist before they are used and can never be cut off: no SIGBUS later, on neither side.
  const bool has_all = locks_memory(port);
  require_memory(bytes, bytes, size_);
  has_pages_.assign((bytes + granule_bytes - 1) / granule_bytes, false);
  give_pages(0, has_all ? bytes : header_bytes);
  if (fcntl(memory_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    refuse("sealing the arena", errno);
  mapping_ = std::make_shared<detail::Mapping>(
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (has_all ? MAP_POPULATE : 0),
           memory_.get(), 0),
      bytes);
  if (!*mapping_) refuse("mapping the arena", errno);
  // A forked child does not get the arena, so that the memory ends with this process.
  if (madvise(mapping_->data(), bytes, MADV_DONTFORK) != 0)
    refuse("madvise(MADV_DONTFORK) of the arena", errno);
  // Strict ordering (no IBV_ACCESS_RELAXED_ORDERING): a notification must not overtake its payload.
  region_ = register_on(port, domain, mapping_->data(), bytes,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | access_on_demand(port),
                        "an arena of " + std::to_string(bytes) + " bytes (TUTTI_ARENA_BYTES)");
  assert(region_->addr == mapping_->data());
  assert(region_->length == bytes);
  gaps_.emplace(header_bytes, usable);
}

void Arena::give_pages(std::size_t offset, std::size_t bytes) {
  const std::size_t end = (offset + bytes + granule_bytes - 1) / granule_bytes;
  assert(end <= has_pages_.size());
  for (std::size_t first = offset / granule_bytes; first < end; ++first) {
    if (has_pages_[first]) continue;
    std::size_t last = first;  // of those that have none
    while (last + 1 < end && !has_pages_[last + 1]) ++last;
    const std::size_t begin = first * granule_bytes;
    allocate_watchfully(memory_.get(), begin,
                        std::min((last + 1) * granule_bytes, file_bytes_) - begin, file_bytes_,
                        size_);
    for (; first <= last; ++first) has_pages_[first] = true;
  }
}

std::byte* Arena::take(std::size_t bytes, bool gives_pages_to_it) {
  bytes = rounded(std::max<std::size_t>(bytes, 1), alignment);
  const auto gap = std::find_if(gaps_.begin(), gaps_.end(),
                                [&](const auto& entry) { return entry.second >= bytes; });
  if (gap == gaps_.end()) return nullptr;
  const auto [offset, available] = *gap;
  if (gives_pages_to_it) give_pages(offset, bytes);
  gaps_.erase(gap);
  if (available > bytes) gaps_.emplace(offset + bytes, available - bytes);
  assert(offset % alignment == 0);
  assert(offset >= header_bytes);
  assert(offset + bytes <= mapping_->size());
  blocks_.emplace(offset, bytes);
  return mapping_->data() + offset;
}

std::byte* Arena::allocate(std::size_t bytes) {
  std::byte* const block = take(bytes, true);
  if (block != nullptr) std::memset(block, 0, rounded(std::max<std::size_t>(bytes, 1), alignment));
  return block;
}

std::byte* Arena::set_aside(std::size_t bytes) {
  assert(bytes % alignment == 0);
  std::byte* const block = take(bytes, false);
  detail::check(block != nullptr, "an arena has room for what is set aside", bytes);
  set_aside_ += bytes;
  return block;
}

void Arena::provide(const std::byte* aside, std::size_t bytes) {
  const auto offset = static_cast<std::size_t>(aside - mapping_->data());
  assert(offset + bytes <= mapping_->size());
  give_pages(offset, bytes);
}

void Arena::release(std::byte* block) {
  const auto found = blocks_.find(static_cast<std::size_t>(block - mapping_->data()));
  detail::check(found != blocks_.end(), "a released block was allocated");
  auto [offset, bytes] = *found;
  blocks_.erase(found);
  const auto next = gaps_.lower_bound(offset);
  assert(next == gaps_.end() || next->first >= offset + bytes);
  if (next != gaps_.end() && next->first == offset + bytes) {
    bytes += next->second;
    gaps_.erase(next);
  }
  const auto after = gaps_.lower_bound(offset);
  if (after != gaps_.begin()) {
    const auto before = std::prev(after);
    assert(before->first + before->second <= offset);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  gaps_.emplace(offset, bytes);
}

std::size_t Arena::bytes_with_pages() const noexcept {
  const auto granules =
      static_cast<std::size_t>(std::count(has_pages_.begin(), has_pages_.end(), true));
  return std::min(granules * granule_bytes, file_bytes_);
}

std::size_t Arena::largest_gap() const noexcept {
  std::size_t largest = 0;
  for (const auto& [offset, bytes] : gaps_) largest = std::max(largest, bytes);
  return largest;
}

}  // namespace tutti::verbs
