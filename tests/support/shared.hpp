// Memory that the ranks of a test share even if they are processes.  It is made before they start.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <memory>
#include <span>
#include <tutti/detail/descriptor.hpp>
#include <type_traits>

namespace tutti::test {

/// One value, or `count` of them.  All processes of the test see what any of them writes.
template <class T>
class Shared {
 public:
  static_assert(std::is_trivially_destructible_v<T>);

  explicit Shared(std::size_t count = 1)
      : mapping_(::mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0),
                 count * sizeof(T)),
        all_(reinterpret_cast<T*>(mapping_.data()), count) {
    std::uninitialized_value_construct(all_.begin(), all_.end());
  }

  T& operator*() const noexcept { return all_.front(); }
  T* operator->() const noexcept { return all_.data(); }
  T& operator[](std::size_t position) const { return all_[position]; }
  std::span<T> all() const noexcept { return all_; }

 private:
  detail::Mapping mapping_;
  std::span<T> all_;
};

}  // namespace tutti::test
