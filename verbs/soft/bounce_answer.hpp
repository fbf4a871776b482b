// The owner's side of bounce.hpp: done by the helper thread when it is called, and by polls, which
// are there sooner if the program does little else.  All this runs under Process::mutex, as does
// what makes memory the program's again: a copy is over, or finds the key gone.
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
  /// Makes the area, or the copy, that the initiator of this queue pair asks for.  False when it
  /// has to be tried again soon, as another has its turn at private memory.
  bool answer(Process& process, std::uint32_t index);
  /// The same for all queue pairs.
  bool answer_all(Process& process);
  /// The same for those that have an area.
  void answer(Process& process);

  /// For so many queue pairs, none of which lacks memory to be listed later.
  void reserve(std::size_t count) { queue_pairs_.reserve(count); }

  /// Gives the area's memory back, after the last engagement.
  void remove(Process& process, std::uint32_t index);

 private:
  std::vector<std::uint32_t> queue_pairs_;  // that have an area
};

/// Nothing has been asked: after a reset, while no initiator is engaged.
void reset_bounce(const SegmentView& segment, QueuePairEntry& entry) noexcept;

}  // namespace tutti::verbs::soft
