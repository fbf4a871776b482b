// The owner's side of bounce.hpp.  The helper thread answers when it is called; polls answer too,
// and come sooner if the program does little else.  All of it runs under Process::mutex, as does
// the code that gives memory back to the program: a copy is either finished, or finds the key gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::verbs::soft {

class Process;
struct QueuePairEntry;
struct SegmentView;

class Bounces {
 public:
  /// Makes the area or the copy that the initiator of this queue pair asks for.  False when it has
  /// to be tried again soon, because another has the turn at private memory.
  bool answer(Process& process, std::uint32_t index);
  /// Calls answer() for all queue pairs.
  bool answer_all(Process& process);
  /// Calls answer() for the queue pairs that have an area.
  void answer(Process& process);

  /// Makes room for this many queue pairs, so that listing one later needs no memory.
  void reserve(std::size_t count) { queue_pairs_.reserve(count); }

  /// Frees the area's memory, after the last engagement.
  void remove(Process& process, std::uint32_t index);

 private:
  std::vector<std::uint32_t> queue_pairs_;  // those that have an area
};

/// Marks that nothing has been asked: after a reset, while no initiator is engaged.
void reset_bounce(const SegmentView& segment, QueuePairEntry& entry) noexcept;

}  // namespace tutti::verbs::soft
