// Segment: memory of the user's that peers may write and the network may read.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "tutti/export.hpp"
#include "tutti/reduction.hpp"

namespace tutti {

/// Zeroed memory out of the context's arena, made by Communicator::allocate(); begins on a cache
/// line.  Where the buffers of a collective lie in segments on all ranks, or may be registered
/// (ContextOptions::register_buffers), nothing is copied on the way from one user's buffer into
/// another's; everywhere else it is memory like any other.
///
/// That is so for allreduces of 64 KiB and more whose ranks are each a node of its own; their
/// Operation::algorithm() then ends in "_zero_copy".
///
/// Thread rule of its context.  Must outlive the operations that use it, and the context must
/// outlive it (both checked).
class TUTTI_EXPORT Segment {
 public:
  Segment(Segment&&) noexcept;
  Segment& operator=(Segment&&) noexcept;
  ~Segment();

  std::byte* data() const noexcept;
  std::size_t size() const noexcept;  // bytes

  /// As many whole elements as there is room for.
  template <Element T>
  std::span<T> as() const noexcept {
    return {reinterpret_cast<T*>(data()), size() / sizeof(T)};
  }

  struct Implementation;
  explicit Segment(std::unique_ptr<Implementation>) noexcept;

 private:
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace tutti
