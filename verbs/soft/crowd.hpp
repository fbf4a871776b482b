// The receivers of one completion queue beyond the first few, which each have a Watch.  A poll does
// not look at their rings one by one: initiators mark in the segment which of them may have a new
// completion (CrowdEntry), and a poll looks at one word as long as nothing is marked.
//
// The first few go without marks because a mark costs: two locked instructions of the initiator, on
// a line that travels to the owner beside the completion itself.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "verbs/soft/layout.hpp"
#include "verbs/soft/watch.hpp"

namespace tutti::verbs::soft {

class Segment;
struct QueuePair;

/// Says that the ring of a receiver in this group has something new.  Called by the initiator after
/// it has stored the completion; see CrowdEntry.
void mark(CrowdEntry& entry, std::uint32_t group) noexcept;

/// The entries of all crowds of a process.  Guarded by Process::mutex.
class CrowdEntries {
 public:
  /// The offset of one in the segment; 0: there is no memory.  Throws std::bad_alloc.
  std::size_t take(Segment& segment);
  void give_back(std::size_t offset) noexcept;

 private:
  // They are not given back to the segment: an initiator that was stopped may still mark one.  The
  // next crowd then looks at a ring in vain.
  std::vector<std::size_t> unused_;
  std::size_t made_count_ = 0;
};

/// Guarded by the lock of the completion queue, except where it is said.
class Crowd {
 public:
  /// Whether open() was called; before that there is no room for members.
  bool is_open() const { return entry_ != nullptr; }
  /// `watch` then shows polls without the lock that something is marked.
  void open(CrowdEntry& entry, std::size_t offset, Watch& watch) noexcept;
  /// Where the entry lies in the segment; 0 before open().
  std::size_t offset() const { return offset_; }

  /// Makes room for one more member.  Throws std::bad_alloc.
  void reserve();
  /// The seat of the new member, for which reserve() has made room.
  std::uint32_t add(QueuePair& pair) noexcept;
  void remove(std::uint32_t seat) noexcept;
  /// By seat; NULL where nobody sits.
  std::span<QueuePair* const> members() const { return members_; }
  /// What initiators have to mark for the member in this seat.
  static std::uint32_t group_of(std::uint32_t seat) { return seat % CrowdEntry::groups_count; }

  /// On behalf of an initiator that may have failed to.  Without the lock; Process::mutex is held.
  void mark_seat(std::uint32_t seat) noexcept;

  /// Takes the marks: their members are to be looked at.
  void collect() noexcept;
  /// How many are to be looked at.
  std::size_t expected_count() const { return expected_count_; }
  /// The seat of the next of them, in turn: who was next is not the next again while there are
  /// others.  There must be one.
  std::uint32_t next() noexcept;
  /// The ring of this member was found empty, after collect(): it is not looked at before it is
  /// marked again.
  void settle(std::uint32_t seat) noexcept;
  /// The poll ends: makes sure that another one comes for the members that it has not settled.
  void keep_expected() noexcept;

 private:
  static constexpr std::uint32_t word_bits = 64;
  void expect(std::uint32_t seat) noexcept;

  CrowdEntry* entry_ = nullptr;
  std::size_t offset_ = 0;
  std::vector<QueuePair*> members_;
  std::vector<std::uint64_t> expected_;  // a bit for each seat
  std::size_t expected_count_ = 0;
  std::uint32_t turn_ = 0;  // the seat from which next() looks
};

}  // namespace tutti::verbs::soft
