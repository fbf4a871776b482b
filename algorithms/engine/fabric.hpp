// What the engine needs of a way to move data.  verbs::VerbsFabric is one; tests have another.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <tutti/status.hpp>

namespace tutti::engine {

/// `C` is whatever the fabric keeps for one operation.
///  put:   sends message number `put` of the plan, payload before notification.  in_progress: there
///         is no room now, poll and try again.  The memory it is sent from is the fabric's until
///         two calls later (the parity rule of the plan), or as the plan says, if it is the user's.
///  take:  whether the message for `slot` has arrived, at most once per message: payload visible.
///  sent:  whether what was put from the target has left it, or never will.
///  read:  `bytes` from `from`, which the peer that writes `slot` has told of; ok, or why not: the
///         peer may have died.
/// Whoever drives the engine polls the fabric in between.
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
