#include "support/allocations.hpp"

#include <cstddef>

namespace {
thread_local constinit std::uint64_t count = 0;
}  // namespace

std::uint64_t tutti::test::allocation_count() noexcept {
  return count;
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
extern "C" {  // glibc's own, under the names by which they may be replaced
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);

[[gnu::visibility("default")]] void* malloc(std::size_t bytes) {
  ++count;
  return __libc_malloc(bytes);
}
[[gnu::visibility("default")]] void* calloc(std::size_t elements, std::size_t bytes) {
  ++count;
  return __libc_calloc(elements, bytes);
}
[[gnu::visibility("default")]] void* realloc(void* memory, std::size_t bytes) {
  ++count;
  return __libc_realloc(memory, bytes);
}
}
#endif
