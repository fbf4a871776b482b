// Memory in which the ranks of a host tell each other how they end.  One rank offers it, the others
// map it, so it stays readable whoever dies.
//
//   +-------+----------+------+------------------------------+
//   | nonce | incident | text | a state for each rank        |
//   +-------+----------+------+------------------------------+
//
// The incident is set once: by a compare-exchange, so that all ranks read the same one, whoever was
// first.  A rank that announces itself may have said before why, in the text, which belongs to the
// first rank that takes it.  Each rank writes its own state, absent -> present -> left.  A process
// that has ended while its state was `present` has died; one whose state is `absent` never mapped
// the board, which then says nothing about it.
//
//   rank that leaves                      rank that watches
//     its last messages                     sees that the process has ended
//     state = left (release)                reads the state (acquire)
//     the process ends
//
// A rank that sees that a process has ended also sees all that this process has stored before, as
// the kernel orders both.  Who reads `left` while the process still runs also sees the messages
// before it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <tutti/detail/descriptor.hpp>
#include <tutti/exchange.hpp>
#include <tutti/types.hpp>
#include <utility>

#include "shm/offered_mapping.hpp"

namespace tutti::shm {

/// A view of the memory; any thread.
class IncidentBoard {
 public:
  enum class State : std::uint32_t { absent, present, left };

  /// `mapping`: zeroed but for its nonce, and of bytes_for() ranks.
  IncidentBoard(std::shared_ptr<detail::Mapping> mapping, std::uint32_t rank_count) noexcept;

  static std::size_t bytes_for(std::uint32_t rank_count) noexcept;

  /// The first incident; none as long as nobody has announced one.
  Incident incident() const noexcept;
  /// Ignored if there was one before.  `incident` has a kind.
  void announce(Incident incident) noexcept;

  /// Ends with a zero.
  using Text = std::array<char, 184>;
  /// Called before an incident that names this rank is announced.  False if another rank has set a
  /// text, or is setting one.
  bool set_text(Rank self, const Text& text) noexcept;
  /// Empty, if this rank has set none.
  Text text_of(Rank rank) const noexcept;

  State state_of(Rank rank) const noexcept;
  void set_state(Rank self, State state) noexcept;

 private:
  /// Its writer: takes `owner` (0: nobody, else a rank + 1), writes, then sets `is_whole`.
  struct OwnedText {
    std::uint32_t owner, is_whole;
    Text text;
  };
  static constexpr std::size_t incident_offset = OfferedMapping::header_bytes;
  static constexpr std::size_t text_offset = incident_offset + 64;
  static constexpr std::size_t states_offset = text_offset + sizeof(OwnedText);

  OwnedText& owned_text() const noexcept;
  std::uint64_t& incident_word() const noexcept;
  std::uint32_t& state_word(Rank rank) const noexcept;

  std::shared_ptr<detail::Mapping> mapping_;
  std::uint32_t rank_count_;
};
static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);

/// Memory for a board, which this process offers as long as the object exists.
class OfferedBoard {
 public:
  /// `nonce`: random, not 0.  Throws Error{system}.
  OfferedBoard(std::uint64_t nonce, std::uint32_t rank_count);

  MappingCard card() const noexcept { return offered_.card(); }
  const std::shared_ptr<detail::Mapping>& mapping() const noexcept { return memory_.mapping; }

 private:
  struct Memory {
    explicit Memory(std::size_t bytes);
    detail::Descriptor file;
    std::shared_ptr<detail::Mapping> mapping;
  };
  Memory memory_;
  OfferedMapping offered_;
};

}  // namespace tutti::shm
