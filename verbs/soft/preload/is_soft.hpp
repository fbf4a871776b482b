// Says which device an object belongs to.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>

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

/// The answer to a request for something that the device does not offer.
inline std::nullptr_t not_offered() {
  errno = EOPNOTSUPP;
  return nullptr;
}

}  // namespace tutti::verbs::soft
