// See device.hpp.
#include "verbs/soft/device.hpp"

#include <endian.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

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

/// The names by which processes find each other are those of a network namespace.  Read each time,
/// as a child of fork may have moved to another.
std::uint64_t read_network_number() {
  struct stat network;
  if (::stat("/proc/self/ns/net", &network) != 0) return 0;
  // The constant, 2^64 divided by the golden ratio, spreads neighbouring inode numbers.
  return network.st_ino * 0x9e3779b97f4a7c15;
}

}  // namespace

ibv_device& device() {
  // Programs that ask a vendor's library whether a device is one of its own make it look behind
  // ibv_device, where libibverbs' private part would be: zeros there belong to no vendor.
  struct Padded {
    ibv_device device;
    std::array<std::byte, 4096> zeros;
  };
  static Padded soft0 = [] {
    Padded made{};
    made.device.node_type = IBV_NODE_CA;
    made.device.transport_type = IBV_TRANSPORT_IB;
    std::strcpy(made.device.name, "soft0");
    std::strcpy(made.device.dev_name, "soft0");
    return made;
  }();
  return soft0.device;
}

ibv_gid host_gid() {
  static const std::uint64_t boot_number = read_boot_number();
  ibv_gid gid{};
  gid.global.subnet_prefix = htobe64(0xfe80000000000000);
  gid.global.interface_id = htobe64(boot_number ^ read_network_number());
  return gid;
}

std::uint16_t host_lid() {
  constexpr std::uint64_t unicast_count = 0xbfff;  // from 1 on
  return static_cast<std::uint16_t>(1 + be64toh(host_gid().global.interface_id) % unicast_count);
}

bool is_this_host(const ibv_ah_attr& attributes) {
  if (attributes.is_global == 0) return attributes.dlid == host_lid();
  const ibv_gid own = host_gid();
  return std::memcmp(&attributes.grh.dgid, &own, sizeof(own)) == 0;
}

void describe_device(ibv_device_attr& attributes) {
  attributes = {};
  std::strcpy(attributes.fw_ver, "tutti");
  attributes.node_guid = host_gid().global.interface_id;
  attributes.sys_image_guid = attributes.node_guid;
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
  attributes.phys_port_cnt = 1;
}

void describe_port(ibv_port_attr& attributes) {
  attributes = {};
  attributes.state = IBV_PORT_ACTIVE;
  attributes.max_mtu = IBV_MTU_4096;
  attributes.active_mtu = IBV_MTU_4096;
  attributes.gid_tbl_len = 1;
  attributes.max_msg_sz = message_max_bytes;
  attributes.pkey_tbl_len = 1;
  attributes.lid = host_lid();
  attributes.sm_lid = host_lid();
  attributes.max_vl_num = 1;
  attributes.active_width = 2;   // 4X
  attributes.active_speed = 32;  // EDR
  attributes.phys_state = 5;     // link up
  attributes.link_layer = IBV_LINK_LAYER_INFINIBAND;
}

}  // namespace tutti::verbs::soft
