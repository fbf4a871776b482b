// The files that registered memory lies in.  A peer can map a range that lies wholly in a shared
// mapping of a memfd sealed against shrinking, and then reaches it by plain stores.  The number of
// a backing is never reused.  Process::mutex guards this class.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "tutti/detail/descriptor.hpp"

namespace tutti::verbs::soft {

/// Whether the file has all these F_SEAL_ bits; false if it cannot be sealed.
bool is_sealed(int descriptor, int seals);

/// What a range of this process's memory maps.
struct MappedRange {
  bool mapped = false;  // the whole of it, readable
  bool writable = false;
  bool plain = false;   // private, anonymous, readable, writable, not executable, without a name
  bool shared = false;  // one file, shared, at contiguous offsets
  dev_t device = 0;
  ino_t inode = 0;
  std::size_t offset = 0;
  std::string name;
};

/// Looks from the address `first` to before `last`.
MappedRange look_up_range(std::size_t first, std::size_t last);

/// When a file gets the pages of a range that is registered.  `on_demand`: they come as they are
/// used, and the owner sees to it that there is memory for them: a peer that lacks it ends by a
/// signal.
enum class Pages : std::uint8_t { now, on_demand };

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
    // EFAULT: it is not mapped, or not writable although that is needed.  ENOMEM: it lacks pages.
    int error = 0;
    std::uint32_t number = 0;  // 0: the memory is private, or in a file that no peer should map
    std::size_t offset = 0;
  };

  /// Looks the range up in this process's mappings.  A backing that is found gets one more user.
  Place find(const void* address, std::size_t bytes, bool writable, Pages pages);

  /// Removes one user; true when it was the last one, and peers should unmap the file.
  bool release(std::uint32_t number);

  const Backing* get(std::uint32_t number) const;

  /// Closes the descriptors in a child of fork, which has no use for them.
  void abandon();

 private:
  Backing* find_or_add(const MappedRange& range, std::size_t bytes, std::uint32_t& number);

  std::map<std::uint32_t, Backing> backings_;
  std::uint32_t last_number_ = 0;
};

}  // namespace tutti::verbs::soft
