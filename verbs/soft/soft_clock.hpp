// What time it is for the users of the device: real, or virtual while they are in virtual time.
#pragma once

#include "tutti/detail/clock.hpp"

namespace tutti::verbs::soft {

detail::Clock& soft_clock() noexcept;

/// Collective over the ranks of the VirtualTime that this process has joined, with a context open
/// and connections that have been used once.  Between the two the ranks may not wait for each other
/// but through the device.
void enter_virtual_time() noexcept;
/// After this rank's messages have been delivered.
void leave_virtual_time() noexcept;

}  // namespace tutti::verbs::soft
