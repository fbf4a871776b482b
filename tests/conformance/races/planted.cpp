// The initiator's half of a request once more, with a fault: nothing is released.  Linked before
// the library, whose own copy then stays out.  Everything that remote.cpp includes comes first, so
// that the fault is in that file and nowhere else.

#include "verbs/soft/atomic.hpp"
#include "verbs/soft/context.hpp"
#include "verbs/soft/limits.hpp"
#include "verbs/soft/memory.hpp"
#include "verbs/soft/notification.hpp"
#include "verbs/soft/receive_queue.hpp"
#include "verbs/soft/remote.hpp"

#define memory_order_release memory_order_relaxed
#include "verbs/soft/remote.cpp"
