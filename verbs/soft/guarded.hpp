// The functions of the driver are called from C: no exception may leave them.  A call that lacks
// memory is refused with ENOMEM and changes nothing; the functions that take something down need no
// memory.
#pragma once

#include <cerrno>
#include <cstddef>
#include <new>
#include <type_traits>

namespace tutti::verbs::soft {

/// The result of a function that makes something and fails: NULL, with errno.
inline std::nullptr_t refuse(int error) noexcept {
  errno = error;
  return nullptr;
}

template <auto function>
struct Guarded;

/// `call` is `function`, but bad_alloc becomes ENOMEM: as the result, or in errno beside NULL.
template <class Result, class... Arguments, Result (*function)(Arguments...)>
struct Guarded<function> {
  static Result call(Arguments... arguments) noexcept {
    try {
      return function(arguments...);
    } catch (const std::bad_alloc&) {
      if constexpr (std::is_pointer_v<Result>) {
        return refuse(ENOMEM);
      } else {
        return ENOMEM;
      }
    }
  }
};

template <auto function>
inline constexpr auto guarded = Guarded<function>::call;

}  // namespace tutti::verbs::soft
