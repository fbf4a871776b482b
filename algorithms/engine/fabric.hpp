// What the engine needs of a way to move data.  verbs::VerbsFabric is such a fabric; tests have
// another one.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <tutti/status.hpp>

namespace tutti::engine {

/// The fabric keeps one `C` for each operation.
///  put:   sends message number `put` of the plan, the payload before the notification.  It returns
///         in_progress if there is no room now; the caller polls and tries again.  The fabric may
///         read the memory until two calls later (the parity rule of the plan), or, if it is a
///         user's buffer, until the plan says so.
///  take:  whether the message for `slot` has arrived.  It is true once for each message, whose
///         payload is visible then.
///  sent:  whether all that was put from the target has left it, or never will.
///  read:  copies `bytes` from address `from` of the peer that writes `slot`; fails if the peer has
///         died.
/// A fabric may also have
///  mapped:    the memory that read() would copy from, if it is mapped here; else null
///  was_lent:  ok, if what was read there belonged to the engine of its owner until now; otherwise
///             what read() would have returned.
/// The caller of the engine polls the fabric between two calls of the engine.
template <class F, class C>
concept Fabric = requires(F& fabric, C& channel, std::uint32_t parity, std::size_t put,
                          std::uint32_t slot, std::uint64_t from, std::byte* into,
                          std::size_t bytes) {
  { fabric.put(channel, parity, put) }
  noexcept->std::same_as<Status>;
  { fabric.take(channel, parity, slot) }
  noexcept->std::same_as<bool>;
  { fabric.sent(channel) }
  noexcept->std::same_as<bool>;
  { fabric.read(channel, slot, from, into, bytes) }
  noexcept->std::same_as<Status>;
};

}  // namespace tutti::engine
