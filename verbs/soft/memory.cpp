#include "verbs/soft/memory.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <cstring>

namespace tutti::verbs::soft {
namespace {

/// How many bytes at the end of the range lie in its last aligned word.
std::size_t last_word_bytes(const iovec& piece) {
  assert(piece.iov_len != 0);
  const auto end = reinterpret_cast<std::uintptr_t>(piece.iov_base) + piece.iov_len;
  const std::size_t in_word = end % 8 == 0 ? 8 : end % 8;
  return std::min(in_word, piece.iov_len);
}

std::byte* data_of(const iovec& piece) {
  return static_cast<std::byte*>(piece.iov_base);
}

void move(std::byte* target, const std::byte* source, std::size_t bytes, detail::BulkCopy* bulk) {
  if (bulk && bytes >= detail::BulkCopy::bytes_min)
    (*bulk)(target, source, bytes);
  else
    detail::move_memory(target, source, bytes);
}

template <class Word>
void store_word(std::byte* target, const std::byte* source) {
  assert(reinterpret_cast<std::uintptr_t>(target) % sizeof(Word) == 0);
  Word word;
  std::memcpy(&word, source, sizeof(word));
  // Release: a poll of this word (acquire) must find the bytes before it.
  std::atomic_ref(*reinterpret_cast<Word*>(target)).store(word, std::memory_order_release);
}

void store_last(std::byte* target, const std::byte* source, std::size_t bytes) {
  assert(bytes >= 1);
  assert(bytes <= sizeof(std::uint64_t));
  const auto address = reinterpret_cast<std::uintptr_t>(target);
  if (bytes == 8 && address % 8 == 0) return store_word<std::uint64_t>(target, source);
  if (bytes == 4 && address % 4 == 0) return store_word<std::uint32_t>(target, source);
  for (std::size_t index = 0; index < bytes; ++index)
    store_word<std::uint8_t>(target + index, source + index);
}

/// Walks along a list of pieces.
struct Cursor {
  const Pieces& pieces;
  unsigned index = 0;
  std::size_t done_bytes = 0;  // of the current piece

  std::size_t left_bytes() const {
    assert(index < pieces.count);
    return pieces.items[index].iov_len - done_bytes;
  }
  std::byte* position() const { return data_of(pieces.items[index]) + done_bytes; }
  void advance(std::size_t bytes) {
    assert(bytes <= left_bytes());
    done_bytes += bytes;
    if (left_bytes() != 0) return;
    ++index;
    done_bytes = 0;
  }
};

/// `target`, cut to `bytes`, with its last word as a piece of its own.
Pieces with_last_word_apart(const Pieces& target, std::size_t bytes) {
  assert(bytes != 0);
  assert(bytes <= target.bytes);
  Pieces split;
  for (unsigned index = 0; index < target.count && split.bytes < bytes; ++index)
    split.add(target.items[index].iov_base,
              std::min(target.items[index].iov_len, bytes - split.bytes));
  iovec& last = split.items[split.count - 1];
  const std::size_t word_bytes = last_word_bytes(last);
  if (word_bytes == last.iov_len) return split;
  assert(split.bytes == bytes);
  assert(split.count < split.items.size());
  last.iov_len -= word_bytes;
  split.items[split.count++] = {data_of(last) + last.iov_len, word_bytes};
  return split;
}

}  // namespace

bool find_region(const SegmentView& segment, std::uint32_t key, Region& region) noexcept {
  const RegionEntry& entry = segment.regions()[key >> region_generation_bits];
  // Acquire throughout, so that the key is read first and last; the owner clears it before it
  // changes a field (RegionEntry).  The first load is also the initiator's half of the agreement
  // that QueuePairEntry::engaged describes.
  constexpr auto acquire = std::memory_order_acquire;
  if (key == 0 || entry.key.load(std::memory_order_seq_cst) != key) return false;
  region.address = entry.address.load(acquire);
  region.bytes = entry.bytes.load(acquire);
  region.backing_offset = entry.backing_offset.load(acquire);
  region.domain = entry.domain.load(acquire);
  region.access = entry.access.load(acquire);
  region.backing = entry.backing.load(acquire);
  return entry.key.load(acquire) == key;
}

Pieces part_of(const Pieces& whole, std::size_t first, std::size_t bytes) noexcept {
  assert(first <= whole.bytes);
  assert(bytes <= whole.bytes - first);
  Pieces part;
  for (unsigned index = 0; index < whole.count && part.bytes < bytes; ++index) {
    const iovec& piece = whole.items[index];
    if (first < piece.iov_len)
      part.add(data_of(piece) + first, std::min(piece.iov_len - first, bytes - part.bytes));
    first -= std::min(first, piece.iov_len);
  }
  assert(part.bytes == bytes);
  return part;
}

void copy(const Pieces& source, const Pieces& target, detail::BulkCopy* bulk) noexcept {
  assert(source.bytes <= target.bytes);
  if (source.bytes == 0) return;
  if (source.count == 1) {
    const std::byte* const from = data_of(source.items[0]);
    std::byte* const to = data_of(target.items[0]);
    if (const iovec whole{to, source.bytes}; source.bytes <= target.items[0].iov_len) {
      const std::size_t word_bytes = last_word_bytes(whole);
      const std::size_t before_bytes = source.bytes - word_bytes;
      move(to, from, before_bytes, bulk);
      return store_last(to + before_bytes, from + before_bytes, word_bytes);
    }
  }

  const Pieces split = with_last_word_apart(target, source.bytes);
  Cursor from{source}, to{split};
  while (to.index + 1 < split.count) {
    const std::size_t bytes = std::min(from.left_bytes(), to.left_bytes());
    move(to.position(), from.position(), bytes, bulk);
    from.advance(bytes);
    to.advance(bytes);
  }
  // The last word may come from several pieces.
  std::array<std::byte, 8> word;
  const iovec& last = split.items[split.count - 1];
  for (std::size_t done = 0; done < last.iov_len;) {
    const std::size_t bytes = std::min(from.left_bytes(), last.iov_len - done);
    std::memcpy(word.data() + done, from.position(), bytes);
    from.advance(bytes);
    done += bytes;
  }
  store_last(data_of(last), word.data(), last.iov_len);
}

int copy_to_process(pid_t process, const Pieces& source, const Pieces& target) noexcept {
  assert(process > 0);
  if (source.bytes == 0) return 0;
  // The kernel copies remote pieces one after the other, so the last word is a piece of its own.
  const Pieces split = with_last_word_apart(target, source.bytes);
  const ssize_t bytes = ::process_vm_writev(process, source.items.data(), source.count,
                                            split.items.data(), split.count, 0);
  if (bytes < 0) return errno;
  return static_cast<std::size_t>(bytes) == source.bytes ? 0 : EFAULT;
}

int copy_from_process(pid_t process, const Pieces& source, const Pieces& target) noexcept {
  assert(process > 0);
  assert(source.bytes == target.bytes);
  if (source.bytes == 0) return 0;
  const ssize_t bytes = ::process_vm_readv(process, target.items.data(), target.count,
                                           source.items.data(), source.count, 0);
  if (bytes < 0) return errno;
  return static_cast<std::size_t>(bytes) == source.bytes ? 0 : EFAULT;
}

// System calls are made directly, to hide these accesses from the race detector: another process
// orders them, which it cannot follow.
int copy_from_file(int descriptor, std::size_t offset, const Pieces& target) noexcept {
  assert(descriptor >= 0);
  if (target.bytes == 0) return 0;
  const Pieces split = with_last_word_apart(target, target.bytes);
  const long bytes =
      ::syscall(SYS_preadv, descriptor, split.items.data(), split.count, offset, std::size_t{0});
  if (bytes < 0) return errno;
  return static_cast<std::size_t>(bytes) == target.bytes ? 0 : EFAULT;
}

int copy_to_file(int descriptor, std::size_t offset, const Pieces& source) noexcept {
  assert(descriptor >= 0);
  const long bytes =
      ::syscall(SYS_pwritev, descriptor, source.items.data(), source.count, offset, std::size_t{0});
  if (bytes < 0) return errno;
  return static_cast<std::size_t>(bytes) == source.bytes ? 0 : EFAULT;
}

int refusal_of_process(pid_t process, std::uint64_t address) noexcept {
  if (process <= 0) return ESRCH;  // it is in a process-id namespace that this process does not see
  std::byte byte;
  const iovec local{&byte, 1};
  const iovec remote{reinterpret_cast<void*>(address), 1};
  if (::process_vm_readv(process, &local, 1, &remote, 1, 0) >= 0) return 0;
  return is_refusal(errno) ? errno : 0;  // any other error concerns this one access
}

}  // namespace tutti::verbs::soft
