// Memory of one process that others of its node map.  Each context has one such mapping, of a
// sealed memfd: nothing is visible in a file system, and nothing is left behind by a process that
// dies.
//
// The others map it through /proc/<process>/fd, which needs the same user (or root) and the same
// namespace of process ids.  Its first bytes hold a nonce.  A process that has read it back has
// mapped the right memory, even if the process id has been reused meanwhile.
//
// Ranks that are threads of one process share one mapping, because ThreadSanitizer knows addresses,
// not memory: it would miss a race across two mappings of one file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tutti/detail/descriptor.hpp>
#include <type_traits>

namespace tutti::shm {

/// What others need to map the memory; a plain value that allgather can carry.
struct MappingCard {
  std::uint64_t nonce = 0;
  std::uint64_t bytes = 0;
  std::uint64_t address = 0;  // where it starts in its own process
  std::int32_t process = 0;   // the owner's id, in its own namespace
  std::int32_t descriptor = -1;
};
static_assert(sizeof(MappingCard) == 32);
static_assert(std::is_trivially_copyable_v<MappingCard>);
static_assert(std::has_unique_object_representations_v<MappingCard>);

/// Offers this process's memory to the others of its node as long as the object exists.  The
/// mapping starts with the nonce.
class OfferedMapping {
 public:
  /// `nonce`: random, not 0.  `descriptor`: the file, sealed against shrinking; it is borrowed and
  /// must outlive this object.
  OfferedMapping(std::uint64_t nonce, std::shared_ptr<detail::Mapping> mapping, int descriptor);
  ~OfferedMapping();
  OfferedMapping(const OfferedMapping&) = delete;
  OfferedMapping& operator=(const OfferedMapping&) = delete;

  MappingCard card() const noexcept;

  /// Bytes at the start of the mapping that hold the nonce.
  static constexpr std::size_t header_bytes = 64;

 private:
  std::uint64_t nonce_;
  std::shared_ptr<detail::Mapping> mapping_;
  int descriptor_;
};

/// The memory behind a card; the mapping stays the same as long as somebody holds it, and readable
/// when its owner is gone.  Throws Error{system} that says which step failed, and what to look at.
std::shared_ptr<detail::Mapping> map_offered(const MappingCard& card);

/// Opens the file behind a card, for callers that need more than its mapping.  Throws as
/// map_offered() does.
detail::Descriptor open_offered(const MappingCard& card);

}  // namespace tutti::shm
