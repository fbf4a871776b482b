// How a message between two ranks of a node travels, and who may read what where.  Both ends decide
// by the same figures, so both know where the payload lies.
//
//   copied   the payload goes into the receiver's slot, the word behind it
//   stays    the payload stays in its sender's mapping, and only the word travels
//   answers  the payload goes back into the mapping that the question was read from
//
// What stays with its sender is not written before the chunk after the next.  The block in which it
// lies is used again only when its readers have said, in the block's ReaderWords, up to which chunk
// they have read.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "shm/mailbox.hpp"

namespace tutti::shm {

enum class Travel : std::uint8_t { copied, stays, answers };

/// Messages of so many bytes and more are not copied into a slot.  Measured for one-way plans
/// (docs/performance.md); otherwise a first guess.
constexpr std::size_t long_from_bytes(bool is_one_way) noexcept {
  return is_one_way ? 512 : 4096;
}

/// What of a message decides how it travels; alike at both ends.
struct MessageKind {
  std::size_t bytes = 0;
  bool is_one_way = false;     // in its plan one rank can run ahead of another
  bool is_answer = false;      // to a message that its receiver had sent, as the plan says
  bool has_own_place = false;  // the plan says where it goes: into a user's buffer
};

constexpr Travel travel_of(const MessageKind& message) noexcept {
  if (message.bytes < long_from_bytes(message.is_one_way)) return Travel::copied;
  if (message.is_answer) return Travel::answers;
  return message.has_own_place ? Travel::copied : Travel::stays;
}

/// The words of a block through which the ranks of a node say what they have read of it, one for
/// each rank; and one more word, by which the owner withdraws what it has lent them, because the
/// memory is its user's again.
class ReaderWords {
 public:
  /// `address`: where they begin, in any process.  `ranks`: of the node.
  ReaderWords(std::uint64_t address, std::size_t ranks) noexcept
      : address_(address), ranks_(ranks) {
    assert(address % sizeof(SequenceWord) == 0);
  }
  static constexpr std::size_t bytes_for(std::size_t ranks) noexcept {
    return (ranks + 1) * sizeof(SequenceWord);
  }
  /// The address of the word in which that rank of the node says up to which chunk it has read.
  std::uint64_t of_reader(std::size_t local_rank) const noexcept {
    assert(local_rank < ranks_);
    return address_ + local_rank * sizeof(SequenceWord);
  }
  /// The address of the word in which 1 says that nothing may be read any more.
  std::uint64_t withdrawn() const noexcept { return address_ + ranks_ * sizeof(SequenceWord); }

 private:
  std::uint64_t address_;
  std::size_t ranks_;
};

}  // namespace tutti::shm
