// A programmer's error ends the program with both operands printed.  On in release builds too,
// outside the innermost loops.  Not a macro: the caller's position comes from the built-ins that
// both GCC 12 and Clang 14 have.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace tutti::detail {

[[noreturn]] inline void check_failed(const char* promise, unsigned long long left,
                                      unsigned long long right, const char* file, int line) {
  std::fprintf(stderr, "tutti: %s:%d: broken promise: %s (%llu, %llu)\n", file, line, promise, left,
               right);
  std::abort();
}

/// Aborts unless `condition` holds; `left` and `right` are the operands worth seeing.
inline void check(bool condition, const char* promise, unsigned long long left = 0,
                  unsigned long long right = 0, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) noexcept {
  if (!condition) [[unlikely]]
    check_failed(promise, left, right, file, line);
}

}  // namespace tutti::detail
