// The files that registered memory lies in.  A range that lies wholly in a shared mapping of a
// memfd that is sealed against shrinking can be mapped by a peer too, and is then reached by plain
// stores.
// The number of a backing is never reused.  Guarded by the mutex of Process.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>

#include "tutti/detail/descriptor.hpp"

namespace tutti::verbs::soft {

/// Whether the file has all these F_SEAL_ bits; false for one that cannot be sealed.
bool is_sealed(int descriptor, int seals);

struct Backing {
  detail::Descriptor descriptor;
  dev_t device;
  ino_t inode;
  std::size_t bytes;
  std::uint32_t users;
};

class Backings {
 public:
  struct Place {
    // EFAULT: not mapped, or not writable although that was asked for.  ENOMEM: no pages for it.
    int error = 0;
    std::uint32_t number = 0;  // 0: private memory, or a file that no peer should map
    std::size_t offset = 0;
  };

  struct FileRange;

  /// Looks the range up in this process's mappings; a backing found gets one more user, and the
  /// range all its memory.
  Place find(const void* address, std::size_t bytes, bool writable);

  /// One user less; true when that was the last one and peers should unmap it.
  bool release(std::uint32_t number);

  const Backing* get(std::uint32_t number) const;

  /// Closes the descriptors, in a child of fork that has no use for them.
  void abandon();

 private:
  Backing* find_or_add(const FileRange& range, std::size_t bytes, std::uint32_t& number);

  std::map<std::uint32_t, Backing> backings_;
  std::uint32_t last_number_ = 0;
};

}  // namespace tutti::verbs::soft
