// Says which device an object belongs to, and calls its function.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstddef>

#include "real.hpp"
#include "verbs/driver.hpp"
#include "verbs/soft/device.hpp"

// The header has macros in front of these functions, which are defined here.
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace tutti::verbs::soft {

inline bool is_soft(const ibv_device* device) {
  const auto all = devices();
  return std::any_of(all.begin(), all.end(), [device](auto& soft) { return &soft == device; });
}
inline bool is_soft(const ibv_context* context) {
  return is_soft(context->device);
}
/// For a domain, region, channel, queue, queue pair or address handle.
template <class Object>
bool is_soft(const Object* object) {
  return is_soft(object->context);
}

/// Calls the entry of the driver if `object` belongs to the software device, else the system's
/// function `name`, which takes and returns the same and has no other entry.
/// Hidden, as programs are to see nothing else of this library than libibverbs' functions.
template <auto entry, class Object, class... Rest>
[[gnu::visibility("hidden")]] auto route(const char* name, Object* object, Rest... rest) {
  using Result = decltype((soft_driver().*entry)(object, rest...));
  static const Real<Result(Object*, Rest...)> real(name);
  return is_soft(object) ? (soft_driver().*entry)(object, rest...) : real(object, rest...);
}

/// The answer to a request for something that the device does not offer.
inline std::nullptr_t not_offered() {
  errno = EOPNOTSUPP;
  return nullptr;
}

}  // namespace tutti::verbs::soft
