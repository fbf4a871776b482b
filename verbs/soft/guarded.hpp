// The functions of the driver are called from C: no exception may leave them.  What they lack
// memory for they refuse with ENOMEM and leave undone; whatever takes something down needs none.
#pragma once

#include <cerrno>
#include <new>
#include <type_traits>

namespace tutti::verbs::soft {

template <auto function>
struct Guarded;

/// `call` is `function` with bad_alloc as ENOMEM: returned, or in errno beside NULL.
template <class Result, class... Arguments, Result (*function)(Arguments...)>
struct Guarded<function> {
  static Result call(Arguments... arguments) noexcept {
    try {
      return function(arguments...);
    } catch (const std::bad_alloc&) {
      if constexpr (std::is_pointer_v<Result>) {
        errno = ENOMEM;
        return nullptr;
      } else {
        return ENOMEM;
      }
    }
  }
};

template <auto function>
inline constexpr auto guarded = Guarded<function>::call;

}  // namespace tutti::verbs::soft
