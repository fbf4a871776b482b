// Says which device an object belongs to, and calls its function.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstddef>
#include <type_traits>

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

/// The name of a function as a template argument.
template <std::size_t size>
struct Name {
  constexpr Name(const char (&text_)[size]) { std::copy_n(text_, size, text); }
  char text[size] = {};
};

/// Calls the entry of the driver if `object` belongs to the software device, else the system's
/// function of that name, which takes and returns the same.
template <Name name, class Result, class First, class... Rest>
Result route(Result (*Driver::*entry)(First, Rest...), std::type_identity_t<First> object,
             std::type_identity_t<Rest>... rest) {
  static const Real<Result(First, Rest...)> real(name.text);
  return is_soft(object) ? (soft_driver().*entry)(object, rest...) : real(object, rest...);
}

/// The answer to a request for something that the device does not offer.
inline std::nullptr_t not_offered() {
  errno = EOPNOTSUPP;
  return nullptr;
}

}  // namespace tutti::verbs::soft
