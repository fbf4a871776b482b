// The small objects of the driver: context, protection domain, region.  Each derives from the
// struct that the caller sees.
#pragma once

#include <infiniband/verbs.h>

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "verbs/soft/event_queue.hpp"
#include "verbs/soft/process.hpp"

namespace tutti::verbs::soft {

/// The caller holds `context`, the last member of verbs_context; the inline functions of libibverbs
/// find the other entries in front of it.
struct Context : verbs_context {
  Process* process = nullptr;
  std::uint32_t objects = 0;  // that this context has; guarded by Process::mutex
  EventQueue events;          // asynchronous events
};

struct ProtectionDomain : ibv_pd {
  std::uint32_t users = 0;  // guarded by Process::mutex; `handle` is its number in the segment
};

struct MemoryRegion : ibv_mr {
  std::uint32_t backing = 0;
};

inline Context& context_of(ibv_context* context) {
  assert(context != nullptr);
  // verbs_get_ctx() is not used, because it first asks whether there is one.
  auto* const extended = reinterpret_cast<verbs_context*>(reinterpret_cast<std::byte*>(context) -
                                                          offsetof(verbs_context, context));
  return *static_cast<Context*>(extended);
}
/// Counts an object that a context has got or lost, and that may belong to a domain. Process::mutex
/// is held.
inline void add_object(ibv_context* context, ibv_pd* domain = nullptr) {
  ++context_of(context).objects;
  if (domain) ++static_cast<ProtectionDomain*>(domain)->users;
}

inline void remove_object(ibv_context* context, ibv_pd* domain = nullptr) {
  assert(context_of(context).objects > 0);
  assert(!domain || static_cast<ProtectionDomain*>(domain)->users > 0);
  --context_of(context).objects;
  if (domain) --static_cast<ProtectionDomain*>(domain)->users;
}

inline Process& process_of(ibv_context* context) {
  Process* const process = context_of(context).process;
  assert(process != nullptr);
  return *process;
}

}  // namespace tutti::verbs::soft
