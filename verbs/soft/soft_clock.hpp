// What time it is for the users of the device: real, or virtual while they are in virtual time.
#pragma once

#include "tutti/detail/clock.hpp"

namespace tutti::verbs::soft {

detail::Clock& soft_clock() noexcept;

/// Collective over the ranks of the VirtualTime that this process has joined, with a context open,
/// TUTTI_SOFT_FABRIC set, and connections that have been used once.  Between the two each rank uses
/// the device with one thread, and waits for others in no other way.
void enter_virtual_time() noexcept;
/// After this rank's messages have been delivered.
void leave_virtual_time() noexcept;

}  // namespace tutti::verbs::soft
