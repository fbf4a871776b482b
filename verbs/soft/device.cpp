#include "verbs/soft/device.hpp"

#include <endian.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cassert>
#include <cstdio>
#include <cstring>

#include "verbs/port_rate.hpp"
#include "verbs/soft/fabric_model.hpp"
#include "verbs/soft/limits.hpp"

namespace tutti::verbs::soft {
namespace {

std::uint64_t read_boot_number() {
  char text[17] = {};
  if (std::FILE* const file = std::fopen("/proc/sys/kernel/random/boot_id", "re")) {
    // 8-4-4 hexadecimal digits: the first 64 bits.
    (void)std::fscanf(file, "%8[0-9a-f]-%4[0-9a-f]-%4[0-9a-f]", text, text + 8, text + 12);
    std::fclose(file);
  }
  const std::uint64_t number = std::strtoull(text, nullptr, 16);
  return number != 0 ? number : static_cast<std::uint64_t>(::gethostid()) | 1;
}

/// Processes find each other by names that belong to a network namespace.  It is read each time,
/// because a child of fork may have moved to another one.
std::uint64_t read_network_number() {
  struct stat network;
  if (::stat("/proc/self/ns/net", &network) != 0) return 0;
  // The constant, 2^64 divided by the golden ratio, spreads neighbouring inode numbers.
  return network.st_ino * 0x9e3779b97f4a7c15;
}

constexpr std::uint64_t link_local_prefix = 0xfe80000000000000;

/// The LIDs of a host follow each other.
std::uint16_t first_lid(HostNumber host) {
  constexpr std::uint64_t unicast_count = 0xbfff;  // from 1 on
  static_assert(places_count <= unicast_count);
  return static_cast<std::uint16_t>(1 + static_cast<std::uint64_t>(host) %
                                            (unicast_count - places_count + 1));
}

}  // namespace

/// The lowest bits distinguish places; they are as random as the other bits.
HostNumber read_host_number_slow() {
  static const std::uint64_t boot_number = read_boot_number();
  return HostNumber{boot_number ^ read_network_number()};
}

ibv_gid gid_of(std::uint32_t place, HostNumber host) {
  static_assert(std::has_single_bit(places_count));
  assert(place >= 1);
  assert(place <= places_count);
  ibv_gid gid{};
  gid.global.subnet_prefix = htobe64(link_local_prefix);
  gid.global.interface_id = htobe64(static_cast<std::uint64_t>(host) ^ (place - 1));
  return gid;
}

std::uint16_t lid_of(std::uint32_t place, HostNumber host) {
  return static_cast<std::uint16_t>(first_lid(host) + place - 1);
}

std::uint32_t find_destination(const SoftDevice& device, const ibv_ah_attr& attributes) {
  if (!device.is_up(attributes.port_num)) return 0;
  const ibv_gid& gid = attributes.grh.dgid;
  const HostNumber host = read_host_number_slow();
  std::uint64_t distance = std::uint64_t{attributes.dlid} - first_lid(host);
  if (attributes.is_global != 0) {
    if (gid.global.subnet_prefix != htobe64(link_local_prefix)) return 0;
    distance = be64toh(gid.global.interface_id) ^ static_cast<std::uint64_t>(host);
  }
  return distance < places_count ? static_cast<std::uint32_t>(distance) + 1 : 0;
}

void describe_device(const SoftDevice& device, ibv_device_attr& attributes) {
  attributes = {};
  std::strcpy(attributes.fw_ver, "tutti");
  attributes.node_guid = gid_of(place_of(device, 1)).global.interface_id;
  attributes.sys_image_guid = gid_of(1).global.interface_id;
  // The number is registered to nobody: its bit 0x020000 says that it is locally administered.
  attributes.vendor_id = 0x027574;
  attributes.vendor_part_id = 1;
  attributes.hw_ver = 1;
  attributes.max_mr_size = ~std::uint64_t{0};
  attributes.page_size_cap = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  attributes.max_qp = queue_pairs_max;
  attributes.max_qp_wr = work_requests_max;
  attributes.device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SYS_IMAGE_GUID;
  attributes.max_sge = scatter_max;
  attributes.max_sge_rd = scatter_max;
  attributes.max_cq = completion_queues_max;
  attributes.max_cqe = completions_max;
  attributes.max_mr = regions_max;
  attributes.max_pd = domains_max;
  attributes.max_qp_rd_atom = reads_in_flight_max;
  attributes.max_qp_init_rd_atom = reads_in_flight_max;
  attributes.max_res_rd_atom = queue_pairs_max * reads_in_flight_max;
  attributes.atomic_cap = IBV_ATOMIC_HCA;  // and more where the memory lies in a sealed file
  attributes.max_ah = address_handles_max;
  attributes.max_srq = shared_receive_queues_max;
  attributes.max_srq_wr = work_requests_max;
  attributes.max_srq_sge = scatter_max;
  attributes.max_pkeys = 1;
  attributes.phys_port_cnt = device.ports_count;
}

void describe_port(const SoftDevice& device, std::uint32_t port, const FabricModel* emulated,
                   ibv_port_attr& attributes) {
  constexpr std::uint8_t disabled = 3, link_up = 5;
  assert(device.has_port(port));
  const bool is_up = device.is_up(port);
  attributes = {};
  attributes.state = is_up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attributes.max_mtu = IBV_MTU_4096;
  attributes.active_mtu = IBV_MTU_4096;
  attributes.gid_tbl_len = 1;
  attributes.max_msg_sz = message_max_bytes;
  attributes.pkey_tbl_len = 1;
  attributes.lid = lid_of(place_of(device, port));
  attributes.sm_lid = lid_of(1);
  attributes.max_vl_num = 1;
  constexpr double edr = 100, bits_per_byte = 8, picoseconds_per_ns_of_rate = 1000;
  const bool has_rate = emulated != nullptr && emulated->per_byte > 0;
  set_rate(attributes,
           has_rate ? bits_per_byte * picoseconds_per_ns_of_rate / emulated->per_byte : edr);
  attributes.phys_state = is_up ? link_up : disabled;
  attributes.link_layer = IBV_LINK_LAYER_INFINIBAND;
}

}  // namespace tutti::verbs::soft
