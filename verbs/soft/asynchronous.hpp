// Asynchronous events: what happens to an object without its owner's doing.  An initiator that
// causes one leaves a bit in the target's segment and calls the owner, whose helper thread then
// looks at all such words.  So no event is lost if the message cannot be sent or the initiator
// dies.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "verbs/soft/event_queue.hpp"

namespace tutti::verbs::soft {

class Process;
struct CompletionQueue;
struct QueuePair;
struct SharedReceiveQueue;

void raise_overrun(CompletionQueue& queue) noexcept;
void raise_drained(QueuePair& pair) noexcept;

/// Raises the events that the initiator has left.  False when it is still at work, and the caller
/// has to look again.  Process::mutex is held.
bool report_news(QueuePair& pair) noexcept;
bool report_all_news(Process& process) noexcept;

/// Sets the limit: an event is raised once when there are fewer receives; 0: none is raised.
/// Process::mutex is held.
int set_limit(SharedReceiveQueue& queue, std::uint32_t limit);
std::uint32_t limit_of(const SharedReceiveQueue& queue);

int get_asynchronous_event(ibv_context* context, ibv_async_event* event);
void acknowledge_asynchronous_event(ibv_async_event* event);

}  // namespace tutti::verbs::soft
