// The segment of this process: one sealed memfd, mapped once, and a simple allocator over its heap.
// Memory is committed before it is used: lack of memory is an error of the call that asks for it,
// never a SIGBUS at a later access.  The class is not thread-safe: Process::mutex guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "tutti/detail/descriptor.hpp"
#include "verbs/soft/layout.hpp"

namespace tutti::verbs::soft {

class Segment {
 public:
  /// 0 or an errno value.
  int create(std::uint32_t id, std::uint64_t nonce);

  SegmentView view() const { return {mapping_.data()}; }
  int descriptor() const { return descriptor_.get(); }

  /// Backs the table entries up to and including `index` with memory; 0 or ENOMEM.
  int commit_queue_pair(std::uint32_t index);

  /// Offset of zeroed memory, aligned to a line; 0 when there is none.  Throws std::bad_alloc, in
  /// which case it has changed nothing.
  std::size_t allocate(std::size_t bytes);
  /// Gives back what allocate() returned.  Any other offset does nothing, 0 among them: peers can
  /// write to the segment, and so to the offsets that are kept there.  Needs no memory.
  void free(std::size_t offset) noexcept;

  /// Closes the descriptor, in a child of fork; the mapping is not inherited.
  void abandon() { descriptor_ = detail::Descriptor(); }

 private:
  int commit(std::size_t offset, std::size_t bytes);

  detail::Descriptor descriptor_;
  detail::Mapping mapping_;
  std::vector<bool> committed_;                       // by granule
  using Places = std::map<std::size_t, std::size_t>;  // offset -> bytes
  Places free_;                                       // no two of them are adjacent
  Places allocated_;  // each becomes a free place without a new node of the map
};

}  // namespace tutti::verbs::soft
