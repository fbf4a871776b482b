// Tells the CPU that this is a loop which waits: it leaves room for the other thread of its core,
// and does not guess ahead.
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
