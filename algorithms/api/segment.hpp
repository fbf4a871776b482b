// What stands behind Segment: a block of the arena that belongs to the user.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tutti/communicator.hpp>
#include <tutti/segment.hpp>

namespace tutti {

struct Segment::Implementation {
  /// Throws Error{limit_exceeded}.
  Implementation(Context::Implementation& owner, std::size_t wanted);
  ~Implementation();
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;

  Context::Implementation& context;
  std::size_t bytes;
  std::byte* memory;
  std::uint32_t users = 0;      // operations, that is
  bool may_be_written = false;  // by a peer, after a failure: stays out of use
};

namespace api {

/// The segment in which all these bytes are; null: there is none.
Segment::Implementation* segment_with(const Context::Implementation& context, const void* buffer,
                                      std::size_t bytes) noexcept;

}  // namespace api
}  // namespace tutti
