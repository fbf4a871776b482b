// The system's libibverbs.  The preload library hands on to it every call about a real device.
#pragma once

#include <cerrno>
#include <type_traits>

namespace tutti::verbs::soft {

/// The function's default version, which is the one that this library stands in front of; NULL
/// without a libibverbs.  It is looked up in that very library: RTLD_NEXT would depend on who
/// loaded it, and how.
void* find_real(const char* name) noexcept;

template <class Function>
class Real;

template <class Result, class... Arguments>
class Real<Result(Arguments...)> {
 public:
  explicit Real(const char* name) noexcept
      : function_(reinterpret_cast<Result (*)(Arguments...)>(find_real(name))) {}

  Result operator()(Arguments... arguments) const {
    if (function_) return function_(arguments...);
    errno = ENOSYS;
    if constexpr (std::is_pointer_v<Result>)
      return nullptr;
    else
      return static_cast<Result>(ENOSYS);  // also where the result is void
  }

 private:
  Result (*function_)(Arguments...);
};

}  // namespace tutti::verbs::soft
