// Tells the CPU that this is a loop which waits, so that it leaves room for the other thread of its
// core.  CPUs that have no such instruction do nothing.
#pragma once

namespace tutti::detail {

inline void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm("yield");  // without outputs, so it is never removed
#endif
}

}  // namespace tutti::detail
