// Both fabrics as one: a message to or from a rank of this node goes through shared memory, any
// other through the verbs device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tutti/status.hpp>

#include "shm/node_fabric.hpp"
#include "verbs/verbs_fabric.hpp"

namespace tutti::runtime {

struct JoinedChannel {
  JoinedChannel(std::size_t put_count, std::uint32_t slot_count)
      : network(put_count, slot_count), node(put_count, slot_count) {}
  /// For more puts than its plan has, none of which is prepared.
  void make_room(std::size_t put_count) {
    network.make_room(put_count);
    node.make_room(put_count);
  }
  verbs::VerbsChannel network;
  shm::NodeChannel node;
};

/// The Fabric concept of the engine, over a fabric that outlives it.
struct JoinedFabric {
  verbs::VerbsFabric& network;

  Status put(JoinedChannel& channel, std::uint32_t parity, std::size_t put) noexcept {
    if (!channel.node.holds_put(parity, put)) return network.put(channel.network, parity, put);
    channel.node.put(parity, put);
    return Status::ok;
  }
  bool take(JoinedChannel& channel, std::uint32_t parity, std::uint32_t slot) noexcept {
    return channel.node.holds_slot(parity, slot) ? channel.node.take(parity, slot)
                                                 : network.take(channel.network, parity, slot);
  }
  /// Says that the message of a slot will be asked for soon; only a slot inside the node is
  /// fetched.
  [[gnu::always_inline]] void expect(const JoinedChannel& channel, std::uint32_t parity,
                                     std::uint32_t slot) const noexcept {
    if (channel.node.holds_slot(parity, slot)) channel.node.expect(parity, slot);
  }
  /// Inside a node what is put is copied at once.
  bool sent(const JoinedChannel& channel) const noexcept { return network.sent(channel.network); }
  Status read(JoinedChannel& channel, std::uint32_t slot, std::uint64_t from, std::byte* into,
              std::size_t bytes) noexcept {
    return channel.node.read(slot, from, into, bytes) == 0 ? Status::ok : Status::transport_failed;
  }
  const std::byte* mapped(const JoinedChannel& channel, std::uint32_t slot, std::uint64_t from,
                          std::size_t bytes) const noexcept {
    return channel.node.mapped(slot, from, bytes);
  }
  Status was_lent(JoinedChannel& channel, std::uint32_t slot) noexcept {
    return channel.node.was_lent(slot) == 0 ? Status::ok : Status::transport_failed;
  }
  bool arrived(const JoinedChannel& channel, std::uint32_t parity,
               std::uint32_t slot) const noexcept {
    return channel.node.holds_slot(parity, slot) ? channel.node.arrived(parity, slot)
                                                 : network.arrived(channel.network, parity, slot);
  }
};

/// The fabric of ranks whose neighbours may sleep: it wakes the reader of each put.  A type of its
/// own, so that others do not even look whether somebody sleeps.
struct WakingFabric : JoinedFabric {
  Status put(JoinedChannel& channel, std::uint32_t parity, std::size_t put) noexcept {
    const Status status = JoinedFabric::put(channel, parity, put);
    if (status == Status::ok) channel.node.wake(put);
    return status;
  }
};

}  // namespace tutti::runtime
