// How often the calling thread has allocated: malloc, calloc, realloc, and so operator new; links
// with allocations.cpp.  Only this thread counts, because the software device's helper thread
// answers peers at any time.
#pragma once

#include <cstdint>

namespace tutti::test {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool allocations_are_counted = false;  // the allocator is the sanitizer's
#else
constexpr bool allocations_are_counted = true;
#endif

std::uint64_t allocation_count() noexcept;

}  // namespace tutti::test
