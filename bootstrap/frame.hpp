// Cuts a byte stream into frames, and makes frames.  The peer may be anybody: a length is believed
// only up to a limit that the owner sets, and no memory is allocated because a stranger announces
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "bootstrap/wire.hpp"

namespace tutti::bootstrap {

/// One frame; the payload is borrowed from the reader until its next call.
struct Frame {
  wire::FrameType type{};
  std::span<const std::byte> payload;
};

class FrameReader {
 public:
  explicit FrameReader(std::size_t payload_bytes_max) noexcept
      : payload_bytes_max_(payload_bytes_max) {}

  /// Allows longer frames from now on, because the peer has shown who it is.
  void set_limit(std::size_t payload_bytes_max) noexcept { payload_bytes_max_ = payload_bytes_max; }

  /// Where the next bytes belong: a few KiB, or more while a long frame is coming in.  Invalidates
  /// payloads.
  std::span<std::byte> space();
  void received(std::size_t bytes) noexcept;

  /// The next complete frame.  Empty if more bytes are needed or the stream is malformed.
  std::optional<Frame> next() noexcept;

  /// Whether a header has announced more than the limit.  It stays so.
  bool malformed() const noexcept { return malformed_; }

 private:
  std::size_t payload_bytes_max_;
  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0;  // where the bytes begin that next() has not returned
  std::size_t end_ = 0;    // where the received bytes end
  bool malformed_ = false;
};

/// The struct at the front of a payload; empty if the payload is too short.
template <class T>
std::optional<T> front_of(std::span<const std::byte> payload) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  if (payload.size() < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, payload.data(), sizeof value);
  return value;
}

template <class T>
std::span<const std::byte> bytes_of(const T& value) noexcept {
  static_assert(std::is_trivially_copyable_v<T> && std::has_unique_object_representations_v<T>);
  return std::as_bytes(std::span{&value, 1});
}

/// Appends a frame whose payload is `front` followed by `rest`.
void append_frame(std::vector<std::byte>& stream, wire::FrameType type,
                  std::span<const std::byte> front, std::span<const std::byte> rest = {});

/// The list of ranks in a `missing` or `gave_up` payload; only ranks below `rank_count` are read.
std::vector<std::uint32_t> ranks_in(std::span<const std::byte> payload, std::uint32_t rank_count);

}  // namespace tutti::bootstrap
