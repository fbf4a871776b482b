// The registered memory of a context: one sealed memfd, mapped and registered as a whole, cut into
// blocks by a first-fit allocator.  Peers address it by (key, address).
//
// For a device that locks memory, the whole arena gets its pages at once.  For the software device,
// a block gets its pages when it is allocated, before its address is given to anyone; the rest of
// the arena takes only address space.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tutti/detail/descriptor.hpp>
#include <vector>

#include "verbs/device.hpp"
#include "verbs/handle.hpp"

namespace tutti::verbs {

class Arena {
 public:
  /// Every block starts on a cache line, so that two messages never share one.
  static constexpr std::size_t alignment = 64;

  /// Bytes in front of the blocks, where a process that maps the arena finds its nonce.
  static constexpr std::size_t header_bytes = 4096;

  /// Memory that an arena of so many usable bytes takes at most, and locks if the device needs
  /// that.
  static std::size_t total_bytes(std::size_t bytes) noexcept;

  /// Makes room for `asked` bytes, and for `besides` further bytes for set_aside().  Throws Error:
  /// memory, RLIMIT_FSIZE or RLIMIT_MEMLOCK too small (saying what to set), registration refused.
  Arena(const Port& port, ibv_pd* domain, std::size_t asked, std::size_t besides = 0);

  /// `bytes` of zeroed memory; nullptr if no gap is large enough.  Throws Error{limit_exceeded} if
  /// the host has no memory for it.
  std::byte* allocate(std::size_t bytes);
  /// Takes back a block that allocate() returned.  Nobody may read or write it any more: every send
  /// from it is finished, and no peer will write to it.
  void release(std::byte* block);

  /// Takes memory that no operation or segment uses; to be called before the first allocate().
  /// size() does not count it, and it is never released.  Nobody uses it before provide() has given
  /// it its pages.
  std::byte* set_aside(std::size_t bytes);
  /// Gives pages to what was set aside; they are zeroed once.  Throws as allocate() does.
  void provide(const std::byte* aside, std::size_t bytes);

  std::size_t size() const noexcept { return mapping_->size() - header_bytes - set_aside_; }
  const std::shared_ptr<detail::Mapping>& mapping() const noexcept { return mapping_; }
  int descriptor() const noexcept { return memory_.get(); }
  std::size_t largest_gap() const noexcept;
  /// Bytes that have pages.
  std::size_t bytes_with_pages() const noexcept;
  /// Whether all of these bytes lie in the arena; `address` is that of a work request.
  bool holds(std::uint64_t address, std::size_t bytes) const noexcept {
    const std::uint64_t offset = address - reinterpret_cast<std::uint64_t>(mapping_->data());
    return offset <= mapping_->size() && bytes <= mapping_->size() - offset;
  }
  std::uint32_t local_key() const noexcept { return region_->lkey; }
  std::uint32_t remote_key() const noexcept { return region_->rkey; }

 private:
  /// Pages are given in parts of so many bytes.  Giving such a part takes 30 us, and asking how
  /// much memory is left takes longer, so that smaller parts would save nothing.
  static constexpr std::size_t granule_bytes = std::size_t{256} << 10;

  std::byte* take(std::size_t bytes, bool gives_pages_to_it);
  void give_pages(std::size_t offset, std::size_t bytes);

  std::string size_;            // what was asked for, in words
  std::size_t file_bytes_ = 0;  // of everything
  detail::Descriptor memory_;
  std::shared_ptr<detail::Mapping> mapping_;
  RegionHandle region_;
  std::map<std::size_t, std::size_t> gaps_;    // offset -> bytes
  std::map<std::size_t, std::size_t> blocks_;  // offset -> bytes
  std::vector<bool> has_pages_;                // by granule
  std::size_t set_aside_ = 0;
};

}  // namespace tutti::verbs
