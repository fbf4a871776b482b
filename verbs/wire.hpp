// Every value of this layer that crosses the network, with fixed widths, without padding,
// little-endian.
#pragma once

#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tutti::verbs {

static_assert(std::endian::native == std::endian::little,
              "the exchanged structures are defined as little-endian");

/// One end of a queue pair, as the other end needs to know it.
struct Endpoint {
  std::uint32_t queue_pair_number;
  std::uint32_t packet_sequence;  // of the first packet that this end sends, 24 bits
  std::uint16_t lid;
  std::uint8_t gid_type;   // verbs::GidType
  std::uint8_t path_mtu;   // ibv_mtu: the active MTU of this end's port
  std::uint8_t reads_max;  // RDMA reads this end can serve at once
  std::uint8_t reserved;
  std::uint16_t service_port;  // where this end listens, if it is connected by address; else 0
  std::uint8_t gid[16];
};
static_assert(sizeof(Endpoint) == 32 && std::is_trivially_copyable_v<Endpoint>);

/// A port, as the ranks describe it to each other before any queue pair is made.
struct PortCard {
  char name[72];  // for people: "mlx5_0:1"; the kernel's names of devices have at most 63 bytes
  std::uint8_t is_software;
  std::uint8_t link_layer;  // verbs::LinkLayer
  std::uint8_t gid_type;    // verbs::GidType
  std::uint8_t is_ipv4;     // whether the GID is an IPv4 address
  std::uint8_t path_mtu;    // ibv_mtu
  std::uint8_t reserved[3];
  std::uint64_t subnet;               // of the GID on InfiniBand: its first half as a number
  std::uint32_t gigabits_per_second;  // 0: not known
  std::uint32_t reserved_too;
};
static_assert(sizeof(PortCard) == 96 && std::is_trivially_copyable_v<PortCard>);

/// Private data of a request to the connection manager and of its acceptance: the processes and the
/// queue pairs that are to be connected.  The connection manager does not use the packet sequences;
/// they tell a queue pair from an earlier one of the same number.
struct ConnectionRequest {
  static constexpr std::uint32_t magic_of_tutti = 0x74'75'74'74;
  static constexpr std::uint16_t current_version = 1;

  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t reserved;
  std::uint64_t from_process;
  std::uint64_t to_process;
  std::uint32_t from_queue_pair;
  std::uint32_t from_sequence;
  std::uint32_t to_queue_pair;
  std::uint32_t to_sequence;
};
// A request has 56 bytes of private data: the kernel puts the IP addresses into the other 36.
static_assert(sizeof(ConnectionRequest) == 40 && std::is_trivially_copyable_v<ConnectionRequest>);

/// Private data of a rejection.
struct ConnectionRefusal {
  std::uint32_t magic;  // ConnectionRequest::magic_of_tutti
  std::uint16_t version;
  std::uint16_t reason;  // verbs::Refusal
};
static_assert(sizeof(ConnectionRefusal) == 8 && std::is_trivially_copyable_v<ConnectionRefusal>);

/// A message and its notification in one aligned cache line, which the sender writes with a single
/// request.  It needs a device that keeps lines whole: a receiver that sees `number` then sees the
/// payload, too.  The payload comes first and the number last, as in a slot inside a node.
struct alignas(64) Line {
  static constexpr std::size_t payload_bytes_max = 56;

  std::byte payload[payload_bytes_max];
  std::uint64_t number;  // of the message; the receiver decides where they begin
};
static_assert(sizeof(Line) == 64 && offsetof(Line, number) == Line::payload_bytes_max);

/// The immediate of a notification: the slot and the operation at the receiver.
struct Immediate {
  static constexpr std::uint32_t operations_max = (1u << 16) - 1;
  static constexpr std::uint32_t slots_max = 1u << 15;
  /// The last message of a connection: its sender has received everything that it waited for.
  static constexpr std::uint32_t farewell = UINT32_MAX;
  /// Likewise, of a sender that goes on, and only closes this connection, which nothing needs.
  static constexpr std::uint32_t disconnect = UINT32_MAX - 1;
  /// Immediates from here on belong to no operation.
  static constexpr std::uint32_t others_from = operations_max << 16;
  /// A marker: once it has arrived, so has everything that its sender had sent before.  Markers are
  /// numbered from 1 on.
  static constexpr std::uint16_t markers_max = (1u << 16) - 3;
  static constexpr std::uint32_t marker(std::uint16_t number) noexcept {
    assert(number > 0 && number <= markers_max);
    return others_from | number;
  }

  std::uint32_t operation;  // the receiver's id of the operation
  std::uint32_t parity;     // of the call
  std::uint32_t slot;

  constexpr std::uint32_t encoded() const noexcept {
    assert(operation < operations_max);
    assert(parity < 2);
    assert(slot < slots_max);
    return operation << 16 | parity << 15 | slot;
  }
  static constexpr Immediate decoded(std::uint32_t word) noexcept {
    return {.operation = word >> 16, .parity = word >> 15 & 1, .slot = word & (slots_max - 1)};
  }
};
static_assert(Immediate::decoded(Immediate{77, 1, 1234}.encoded()).slot == 1234);
static_assert(Immediate::decoded(Immediate{77, 1, 1234}.encoded()).parity == 1);
static_assert(Immediate::decoded(Immediate{65534, 0, 32767}.encoded()).operation == 65534);
static_assert(Immediate::decoded(Immediate::farewell).operation >= Immediate::operations_max);
static_assert(Immediate::decoded(Immediate::disconnect).operation >= Immediate::operations_max);
static_assert(Immediate::marker(Immediate::markers_max) + 1 == Immediate::disconnect);
static_assert(Immediate::decoded(Immediate::marker(1)).operation >= Immediate::operations_max);

}  // namespace tutti::verbs
