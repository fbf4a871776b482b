// Windows: memory of one process that others of its node map.  Each context has one, a sealed
// memfd, so nothing is visible in a file system and nothing is left behind by whoever dies.
//
// A window is mapped through /proc/<process>/fd, which asks for the same user (or root) and the
// same namespace of process ids.  Its first bytes hold a nonce: only who has read it back has
// mapped what was meant, whatever became of the process id meanwhile.
//
// Ranks that are threads of one process share one mapping.  (ThreadSanitizer knows addresses, not
// memory: it would miss a race across two mappings of one file.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tutti/detail/descriptor.hpp>
#include <type_traits>

namespace tutti::shm {

/// What others need to map a window; a plain value that allgather can carry.
struct WindowCard {
  std::uint64_t nonce = 0;
  std::uint64_t bytes = 0;
  std::uint64_t address = 0;  // in its own process
  std::int32_t process = 0;   // id, in its own namespace
  std::int32_t descriptor = -1;
};
static_assert(sizeof(WindowCard) == 32);
static_assert(std::is_trivially_copyable_v<WindowCard>);
static_assert(std::has_unique_object_representations_v<WindowCard>);

/// Offers this process's memory to the others of its node while it exists.  The mapping starts with
/// the nonce.
class OfferedWindow {
 public:
  /// `nonce`: random, not 0.  `descriptor`, of a file that is sealed against shrinking, is borrowed
  /// and must outlive this.
  OfferedWindow(std::uint64_t nonce, std::shared_ptr<detail::Mapping> mapping, int descriptor);
  ~OfferedWindow();
  OfferedWindow(const OfferedWindow&) = delete;
  OfferedWindow& operator=(const OfferedWindow&) = delete;

  WindowCard card() const noexcept;

  /// Bytes at the start of the mapping that hold the nonce.
  static constexpr std::size_t header_bytes = 64;

 private:
  std::uint64_t nonce_;
  std::shared_ptr<detail::Mapping> mapping_;
  int descriptor_;
};

/// The memory behind a card; the same mapping as long as somebody holds it.  Stays readable when
/// its owner is gone.  Throws Error{system} that says which step failed, and what to look at.
std::shared_ptr<detail::Mapping> map_window(const WindowCard& card);

/// The file behind a card, opened: for those who need more of it than its mapping.  Throws as
/// map_window() does.
detail::Descriptor open_window(const WindowCard& card);

}  // namespace tutti::shm
