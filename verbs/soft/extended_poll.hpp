// Polling by ibv_start_poll, ibv_next_poll, ibv_end_poll and the ibv_wc_read_ functions: one
// completion at a time is polled as usual, and then read from where it was stored.
#pragma once

#include <infiniband/verbs.h>

#include "verbs/soft/spin_lock.hpp"

namespace tutti::verbs::soft {

struct ExtendedPoll {
  // Held from start_poll to end_poll, unless the caller has promised to use one thread.
  SpinLock lock;
  bool is_single_threaded = false;
  ibv_wc completion{};  // the one polled last
};

ibv_cq_ex* create_extended_queue(ibv_context* context, ibv_cq_init_attr_ex* attributes);

}  // namespace tutti::verbs::soft
