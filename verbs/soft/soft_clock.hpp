// The time for the users of the device: real, or virtual while they are in virtual time.
#pragma once

#include "tutti/detail/clock.hpp"

namespace tutti::verbs::soft {

detail::Clock& soft_clock() noexcept;

/// Collective over the ranks of the VirtualTime that this process has joined.  Each needs an open
/// context, TUTTI_SOFT_FABRIC, and connections that have been used once.  Between enter and leave
/// each rank uses the device with one thread, and waits for other ranks in no other way.
void enter_virtual_time() noexcept;
/// Returns after this rank's messages have been delivered.
void leave_virtual_time() noexcept;

}  // namespace tutti::verbs::soft
