// Both fabrics where time is simulated: what goes through shared memory takes the time that the
// clock charges for it, and is seen by its receiver no earlier.  Lines come when the device says
// so, and are charged for when they are taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tutti/detail/clock.hpp>
#include <tutti/status.hpp>

#include "runtime/joined_fabric.hpp"

namespace tutti::runtime {

/// The Fabric concept of the engine, over a fabric and a clock that outlive it.
struct TimedFabric {
  JoinedFabric& joined;
  detail::Clock& clock;

  Status put(JoinedChannel& channel, std::uint32_t parity, std::size_t put) noexcept {
    if (!channel.node.holds_put(parity, put)) return joined.put(channel, parity, put);
    const shm::PreparedStore& store = channel.node.put_silently(parity, put);
    clock.announce(store.word, store.messages, store.message_bytes);
    return Status::ok;
  }
  bool take(JoinedChannel& channel, std::uint32_t parity, std::uint32_t slot) noexcept {
    if (!joined.take(channel, parity, slot)) return false;
    if (channel.node.holds_slot(parity, slot))
      clock.charge_message();
    else if (channel.network.awaits_lines(parity, slot))
      clock.charge_line();  // of others, polling has charged for the completion
    return true;
  }
  bool sent(const JoinedChannel& channel) const noexcept { return joined.sent(channel); }
  Status read(JoinedChannel& channel, std::uint32_t slot, std::uint64_t from, std::byte* into,
              std::size_t bytes) noexcept {
    const Status status = joined.read(channel, slot, from, into, bytes);
    if (status == Status::ok) clock.charge_reading(bytes);
    return status;
  }
};

}  // namespace tutti::runtime
