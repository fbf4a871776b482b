// The owner's side of bounce.hpp.  All this runs under Process::mutex, as does what makes memory
// the program's again: a copy is over, or finds the key gone.
#pragma once

#include <cstdint>

namespace tutti::verbs::soft {

class Process;
struct QueuePairEntry;

/// Makes the area, or the copy, that an initiator asks for.  False when it has to be tried again
/// soon, as another has its turn at private memory.
bool answer_bounce(Process& process, std::uint32_t index) noexcept;
bool answer_all_bounces(Process& process) noexcept;

/// Nothing has been asked: after a reset, while no initiator is engaged.
void reset_bounce(Process& process, QueuePairEntry& entry) noexcept;
/// Gives the area's memory back, after the last engagement.
void free_bounce(Process& process, QueuePairEntry& entry);

}  // namespace tutti::verbs::soft
