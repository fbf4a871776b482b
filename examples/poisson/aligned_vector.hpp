// Vectors that begin at a cache line.  Where the heap places them by chance, the product with the
// matrix takes some percent longer on one rank than on another, which then waits for it in the next
// reduction (docs/performance.md#a-solver).
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace poisson {

template <class T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::align_val_t alignment{64};

  LineAllocator() = default;
  template <class U>
  LineAllocator(const LineAllocator<U>&) {}

  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), alignment));
  }
  void deallocate(T* values, std::size_t) { ::operator delete(values, alignment); }
  bool operator==(const LineAllocator&) const = default;
};

template <class T>
using AlignedVector = std::vector<T, LineAllocator<T>>;

}  // namespace poisson
