// Every value of this layer that crosses the network.  Fixed widths, no padding, little-endian.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace tutti::verbs {

static_assert(std::endian::native == std::endian::little,
              "the exchanged structures are defined as little-endian");

/// One end of a queue pair, as the other end needs to know it.
struct Endpoint {
  std::uint32_t queue_pair_number;
  std::uint32_t packet_sequence;  // first one sent by this end, 24 bits
  std::uint16_t lid;
  std::uint8_t link_layer;  // verbs::LinkLayer
  std::uint8_t gid_type;    // verbs::GidType
  std::uint8_t path_mtu;    // ibv_mtu: the active MTU of this end's port
  std::uint8_t reads_max;   // RDMA reads this end can serve at once
  std::uint8_t is_software;
  std::uint8_t reserved;
  std::uint8_t gid[16];
};
static_assert(sizeof(Endpoint) == 32 && std::is_trivially_copyable_v<Endpoint>);

/// A port, as the ranks tell each other before any queue pair is made.
struct PortCard {
  char name[72];  // for people: "mlx5_0:1"; the kernel's names of devices have at most 63 bytes
  std::uint8_t is_software;
  std::uint8_t link_layer;  // verbs::LinkLayer
  std::uint8_t gid_type;    // verbs::GidType
  std::uint8_t is_ipv4;     // whether the GID is an IPv4 address
  std::uint8_t path_mtu;    // ibv_mtu
  std::uint8_t reserved[3];
};
static_assert(sizeof(PortCard) == 80 && std::is_trivially_copyable_v<PortCard>);

/// The immediate of a notification: which arrival flag to raise at the receiver.
struct Immediate {
  static constexpr std::uint32_t operations_max = 1u << 16;
  static constexpr std::uint32_t slots_max = 1u << 15;

  std::uint32_t operation;  // the receiver's id of the operation
  std::uint32_t parity;     // of the call
  std::uint32_t slot;

  constexpr std::uint32_t encoded() const noexcept { return operation << 16 | parity << 15 | slot; }
  static constexpr Immediate decoded(std::uint32_t word) noexcept {
    return {.operation = word >> 16, .parity = word >> 15 & 1, .slot = word & (slots_max - 1)};
  }
};
static_assert(Immediate::decoded(Immediate{77, 1, 1234}.encoded()).slot == 1234);
static_assert(Immediate::decoded(Immediate{77, 1, 1234}.encoded()).parity == 1);
static_assert(Immediate::decoded(Immediate{65535, 0, 32767}.encoded()).operation == 65535);

}  // namespace tutti::verbs
