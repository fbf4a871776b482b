#include "verbs/queue_pair.hpp"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <random>
#include <tutti/status.hpp>

namespace tutti::verbs {
namespace {

constexpr int access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE;

/// 24 random bits, so that a late packet of an earlier connection with the same queue pair number
/// is not taken for one of this connection.
std::uint32_t random_packet_sequence() {
  std::random_device source;
  return static_cast<std::uint32_t>(source()) & 0xffffffu;
}

std::string attribute_names(int mask) {
  static constexpr struct {
    int bit;
    const char* name;
  } names[] = {{IBV_QP_STATE, "state"},
               {IBV_QP_PKEY_INDEX, "pkey_index"},
               {IBV_QP_PORT, "port"},
               {IBV_QP_ACCESS_FLAGS, "access_flags"},
               {IBV_QP_AV, "address"},
               {IBV_QP_PATH_MTU, "path_mtu"},
               {IBV_QP_DEST_QPN, "dest_qpn"},
               {IBV_QP_RQ_PSN, "rq_psn"},
               {IBV_QP_MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic"},
               {IBV_QP_MIN_RNR_TIMER, "min_rnr_timer"},
               {IBV_QP_TIMEOUT, "timeout"},
               {IBV_QP_RETRY_CNT, "retry_cnt"},
               {IBV_QP_RNR_RETRY, "rnr_retry"},
               {IBV_QP_SQ_PSN, "sq_psn"},
               {IBV_QP_MAX_QP_RD_ATOMIC, "max_rd_atomic"}};
  std::string text;
  for (const auto& [bit, name] : names)
    if (mask & bit) text += (text.empty() ? "" : ",") + std::string(name);
  return text;
}

const char* mtu_text(std::uint8_t mtu) {
  static constexpr const char* texts[] = {"?", "256", "512", "1024", "2048", "4096"};
  return mtu < std::size(texts) ? texts[mtu] : "?";
}

}  // namespace

ibv_gid gid_of(const Endpoint& endpoint) noexcept {
  ibv_gid gid{};
  std::memcpy(gid.raw, endpoint.gid, sizeof gid.raw);
  return gid;
}

std::string text_of(const Endpoint& endpoint) {
  const ibv_gid gid = gid_of(endpoint);
  return "qpn " + std::to_string(endpoint.queue_pair_number) + " psn " +
         std::to_string(endpoint.packet_sequence) + " lid " + std::to_string(endpoint.lid) +
         " gid " + text_of(gid) + " (" + name_of(static_cast<GidType>(endpoint.gid_type)) +
         ") mtu " + mtu_text(endpoint.path_mtu);
}

QueuePair::QueuePair(const Port& port, ibv_pd* domain, ibv_cq* completions,
                     const QueuePairLimits& wanted)
    : port_(port) {
  const std::uint32_t requests_max = requests_max_of(port);
  ibv_qp_init_attr attributes{};
  attributes.send_cq = completions;
  attributes.recv_cq = completions;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = std::min(wanted.sends_max, requests_max);
  attributes.cap.max_recv_wr = std::min(wanted.receives_max, requests_max);
  attributes.cap.max_send_sge = 1;
  attributes.cap.max_recv_sge = 1;
  attributes.cap.max_inline_data = wanted.inline_bytes_max;
  // A device may refuse the inline size without saying which one it would accept: halve it until it
  // is accepted.
  for (;;) {
    ibv_qp_init_attr granted = attributes;
    pair_ = QueuePairHandle(port.driver().create_qp(domain, &granted), {&port.driver()});
    if (pair_) {
      inline_bytes_ = granted.cap.max_inline_data;
      break;
    }
    if (attributes.cap.max_inline_data == 0 || errno == ENOMEM)
      throw Error(ErrorCode::limit_exceeded,
                  "create_qp on " + port.name() + ": " + std::strerror(errno) + " (device limit " +
                      std::to_string(port.limits.max_qp) + " queue pairs, " +
                      std::to_string(port.limits.max_qp_wr) + " requests each)",
                  errno);
    attributes.cap.max_inline_data /= 2;
  }
  // Credits are counted against the numbers that were asked for, although some devices grant more.
  sends_max_ = attributes.cap.max_send_wr;
  receives_max_ = attributes.cap.max_recv_wr;
  assert(sends_max_ > 0);
  assert(receives_max_ > 0);

  ibv_qp_attr init{};
  init.qp_state = IBV_QPS_INIT;
  init.pkey_index = 0;
  init.port_num = port.description.port;
  init.qp_access_flags = access_flags;
  const int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  if (const int error = port.driver().modify_qp(pair_.get(), &init, mask); error != 0)
    throw Error(ErrorCode::system,
                "modify_qp to INIT on " + port.name() + " refused " + attribute_names(mask) + ": " +
                    std::strerror(error),
                error);

  endpoint_ = {
      .queue_pair_number = pair_->qp_num,
      .packet_sequence = random_packet_sequence(),
      .lid = port.description.attributes.lid,
      .gid_type = static_cast<std::uint8_t>(port.gid.type),
      .path_mtu = static_cast<std::uint8_t>(port.description.attributes.active_mtu),
      .reads_max = static_cast<std::uint8_t>(std::clamp(port.limits.max_qp_rd_atom, 0, 16)),
      .reserved = 0,
      .service_port = 0,
      .gid = {}};
  std::memcpy(endpoint_.gid, port.gid.gid.raw, sizeof endpoint_.gid);
  assert(endpoint_.queue_pair_number <= 0xffffffu);
  assert(endpoint_.packet_sequence <= 0xffffffu);
}

void QueuePair::modify(const char* state, ibv_qp_attr& attributes, int mask, const Endpoint& remote,
                       const std::string& peer_name) {
  if (const int error = port_.driver().modify_qp(pair_.get(), &attributes, mask); error != 0)
    throw Error(ErrorCode::system,
                std::string("modify_qp to ") + state + " towards " + peer_name + " refused " +
                    attribute_names(mask) + ": " + std::strerror(error) + "; here " +
                    text_of(endpoint_) + "; there " + text_of(remote),
                error);
}

std::uint8_t timeout_on(const PortDescription& port, const PathDefaults& path) noexcept {
  const bool is_virtual = !port.is_software() && port.kernel_driver.empty();
  return is_virtual ? std::max(path.timeout, path.timeout_of_virtual_devices) : path.timeout;
}

void QueuePair::connect(const Endpoint& remote, const std::string& peer_name,
                        const PathDefaults& path) {
  assert(remote.queue_pair_number <= 0xffffffu);
  assert(remote.packet_sequence <= 0xffffffu);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = static_cast<ibv_mtu>(std::min(endpoint_.path_mtu, remote.path_mtu));
  attributes.dest_qp_num = remote.queue_pair_number;
  attributes.rq_psn = remote.packet_sequence;
  attributes.max_dest_rd_atomic = std::min(endpoint_.reads_max, remote.reads_max);
  attributes.min_rnr_timer = path.receiver_not_ready_timer;
  attributes.ah_attr.dlid = remote.lid;
  attributes.ah_attr.sl = path.service_level;
  attributes.ah_attr.port_num = port_.description.port;
  if (port_.description.link == LinkLayer::ethernet ||
      (port_.description.attributes.flags & IBV_QPF_GRH_REQUIRED) != 0) {
    attributes.ah_attr.is_global = 1;
    std::memcpy(attributes.ah_attr.grh.dgid.raw, remote.gid, sizeof remote.gid);
    attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(port_.gid.index);
    attributes.ah_attr.grh.hop_limit = path.hop_limit;
    attributes.ah_attr.grh.traffic_class = path.traffic_class;
  }
  int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  modify("RTR", attributes, mask, remote, peer_name);

  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = timeout_on(port_.description, path);
  attributes.retry_cnt = path.retries;
  attributes.rnr_retry = path.receiver_not_ready_retries;
  attributes.sq_psn = endpoint_.packet_sequence;
  attributes.max_rd_atomic = std::min(endpoint_.reads_max, remote.reads_max);
  mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
         IBV_QP_MAX_QP_RD_ATOMIC;
  modify("RTS", attributes, mask, remote, peer_name);
}

void QueuePair::connect_by(const AttributeSource& source, const Endpoint& remote,
                           const std::string& peer_name, const PathDefaults& path) {
  for (const auto& [state, name] : {std::pair(IBV_QPS_INIT, "INIT"), std::pair(IBV_QPS_RTR, "RTR"),
                                    std::pair(IBV_QPS_RTS, "RTS")}) {
    ibv_qp_attr attributes{};
    attributes.qp_state = state;
    int mask = 0;
    if (source(&attributes, &mask) != 0)
      throw Error(ErrorCode::system,
                  std::string("rdma_init_qp_attr for ") + name + " towards " + peer_name + ": " +
                      std::strerror(errno) + "; here " + text_of(endpoint_) + "; there " +
                      text_of(remote),
                  errno);
    attributes.qp_access_flags = access_flags;
    if (mask & IBV_QP_PATH_MTU)
      attributes.path_mtu = std::min(
          attributes.path_mtu, static_cast<ibv_mtu>(std::min(endpoint_.path_mtu, remote.path_mtu)));
    // The kernel leaves the receiver-not-ready timer at 0, which is the longest, and assumes RoCE's
    // worst network: with its timeout a dead peer would be noticed after half a minute.
    attributes.min_rnr_timer = path.receiver_not_ready_timer;
    attributes.timeout = timeout_on(port_.description, path);
    attributes.retry_cnt = path.retries;
    attributes.rnr_retry = path.receiver_not_ready_retries;
    modify(name, attributes, mask, remote, peer_name);
  }
}

void QueuePair::close() noexcept {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  // The device refuses only if the pair is in that state already, or if the device is gone.
  (void)port_.driver().modify_qp(pair_.get(), &attributes, IBV_QP_STATE);
}

}  // namespace tutti::verbs
