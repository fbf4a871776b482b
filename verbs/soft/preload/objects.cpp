// The functions of libibverbs about domains, regions, queues and queue pairs.  Each goes to the
// software device if its object belongs to that device, and to the system's libibverbs otherwise.
#include <endian.h>

#include <cerrno>
#include <cstdint>

#include "is_soft.hpp"
#include "real.hpp"

using namespace tutti::verbs;
using namespace tutti::verbs::soft;

namespace {

/// Registers a region; only regions whose remote addresses equal those of the memory are offered.
ibv_mr* register_at(ibv_pd* domain, void* address, size_t bytes, uint64_t remote, int access) {
  if (remote != reinterpret_cast<std::uintptr_t>(address)) return not_offered();
  return soft_driver().reg_mr(domain, address, bytes, access);
}

/// The address of the sender of a datagram.
ibv_ah_attr way_back(const ibv_wc& completion, const ibv_grh& header, std::uint8_t port) {
  ibv_ah_attr attributes{};
  attributes.dlid = completion.slid;
  attributes.sl = completion.sl;
  attributes.src_path_bits = completion.dlid_path_bits;
  attributes.port_num = port;
  if ((completion.wc_flags & IBV_WC_GRH) == 0) return attributes;
  const std::uint32_t flow = be32toh(header.version_tclass_flow);
  attributes.is_global = 1;
  attributes.grh.dgid = header.sgid;
  attributes.grh.flow_label = flow & 0xfffff;
  attributes.grh.traffic_class = static_cast<std::uint8_t>(flow >> 20);
  attributes.grh.hop_limit = 0xff;
  return attributes;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// --- Domains and regions ------------------------------------------------------------------------

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  return route<&Driver::alloc_pd>("ibv_alloc_pd", context);
}

int ibv_dealloc_pd(ibv_pd* domain) {
  return route<&Driver::dealloc_pd>("ibv_dealloc_pd", domain);
}

ibv_mr* ibv_reg_mr(ibv_pd* domain, void* address, size_t bytes, int access) {
  return route<&Driver::reg_mr>("ibv_reg_mr", domain, address, bytes, access);
}

ibv_mr* ibv_reg_mr_iova(ibv_pd* domain, void* address, size_t bytes, uint64_t remote, int access) {
  static const Real<decltype(ibv_reg_mr_iova)> real("ibv_reg_mr_iova");
  return is_soft(domain) ? register_at(domain, address, bytes, remote, access)
                         : real(domain, address, bytes, remote, access);
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* domain, void* address, size_t bytes, uint64_t remote,
                         unsigned int access) {
  static const Real<decltype(ibv_reg_mr_iova2)> real("ibv_reg_mr_iova2");
  return is_soft(domain) ? register_at(domain, address, bytes, remote, static_cast<int>(access))
                         : real(domain, address, bytes, remote, access);
}

ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* domain, uint64_t offset, size_t bytes, uint64_t remote,
                          int descriptor, int access) {
  static const Real<decltype(ibv_reg_dmabuf_mr)> real("ibv_reg_dmabuf_mr");
  if (is_soft(domain)) return not_offered();
  return real(domain, offset, bytes, remote, descriptor, access);
}

int ibv_rereg_mr(ibv_mr* region, int flags, ibv_pd* domain, void* address, size_t bytes,
                 int access) {
  return route<&Driver::rereg_mr>("ibv_rereg_mr", region, flags, domain, address, bytes, access);
}

int ibv_dereg_mr(ibv_mr* region) {
  return route<&Driver::dereg_mr>("ibv_dereg_mr", region);
}

ibv_pd* ibv_import_pd(ibv_context* context, uint32_t handle) {
  static const Real<decltype(ibv_import_pd)> real("ibv_import_pd");
  if (is_soft(context)) return not_offered();
  return real(context, handle);
}

ibv_mr* ibv_import_mr(ibv_pd* domain, uint32_t handle) {
  static const Real<decltype(ibv_import_mr)> real("ibv_import_mr");
  if (is_soft(domain)) return not_offered();
  return real(domain, handle);
}

ibv_dm* ibv_import_dm(ibv_context* context, uint32_t handle) {
  static const Real<decltype(ibv_import_dm)> real("ibv_import_dm");
  if (is_soft(context)) return not_offered();
  return real(context, handle);
}

// --- Completion queues --------------------------------------------------------------------------

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  return route<&Driver::create_comp_channel>("ibv_create_comp_channel", context);
}

int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  return route<&Driver::destroy_comp_channel>("ibv_destroy_comp_channel", channel);
}

ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* cq_context,
                      ibv_comp_channel* channel, int vector) {
  return route<&Driver::create_cq>("ibv_create_cq", context, entries, cq_context, channel, vector);
}

int ibv_resize_cq(ibv_cq* queue, int entries) {
  return route<&Driver::resize_cq>("ibv_resize_cq", queue, entries);
}

int ibv_destroy_cq(ibv_cq* queue) {
  return route<&Driver::destroy_cq>("ibv_destroy_cq", queue);
}

int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** queue, void** cq_context) {
  return route<&Driver::get_cq_event>("ibv_get_cq_event", channel, queue, cq_context);
}

void ibv_ack_cq_events(ibv_cq* queue, unsigned int count) {
  route<&Driver::ack_cq_events>("ibv_ack_cq_events", queue, count);
}

// --- Shared receive queues ----------------------------------------------------------------------

ibv_srq* ibv_create_srq(ibv_pd* domain, ibv_srq_init_attr* attributes) {
  return route<&Driver::create_srq>("ibv_create_srq", domain, attributes);
}

int ibv_modify_srq(ibv_srq* queue, ibv_srq_attr* attributes, int mask) {
  return route<&Driver::modify_srq>("ibv_modify_srq", queue, attributes, mask);
}

int ibv_query_srq(ibv_srq* queue, ibv_srq_attr* attributes) {
  return route<&Driver::query_srq>("ibv_query_srq", queue, attributes);
}

int ibv_destroy_srq(ibv_srq* queue) {
  return route<&Driver::destroy_srq>("ibv_destroy_srq", queue);
}

// --- Queue pairs --------------------------------------------------------------------------------

ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* attributes) {
  return route<&Driver::create_qp>("ibv_create_qp", domain, attributes);
}

ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* pair) {
  return route<&Driver::qp_to_qp_ex>("ibv_qp_to_qp_ex", pair);
}

int ibv_modify_qp(ibv_qp* pair, ibv_qp_attr* attributes, int mask) {
  return route<&Driver::modify_qp>("ibv_modify_qp", pair, attributes, mask);
}

int ibv_query_qp(ibv_qp* pair, ibv_qp_attr* attributes, int mask, ibv_qp_init_attr* initial) {
  return route<&Driver::query_qp>("ibv_query_qp", pair, attributes, mask, initial);
}

int ibv_query_qp_data_in_order(ibv_qp* pair, ibv_wr_opcode opcode, uint32_t flags) {
  static const Real<decltype(ibv_query_qp_data_in_order)> real("ibv_query_qp_data_in_order");
  return is_soft(pair) ? 0 : real(pair, opcode, flags);  // only the last word is stored in order
}

int ibv_destroy_qp(ibv_qp* pair) {
  return route<&Driver::destroy_qp>("ibv_destroy_qp", pair);
}

int ibv_set_ece(ibv_qp* pair, ibv_ece* options) {
  static const Real<decltype(ibv_set_ece)> real("ibv_set_ece");
  return is_soft(pair) ? EOPNOTSUPP : real(pair, options);
}

int ibv_query_ece(ibv_qp* pair, ibv_ece* options) {
  static const Real<decltype(ibv_query_ece)> real("ibv_query_ece");
  return is_soft(pair) ? EOPNOTSUPP : real(pair, options);
}

int ibv_attach_mcast(ibv_qp* pair, const ibv_gid* gid, uint16_t lid) {
  static const Real<decltype(ibv_attach_mcast)> real("ibv_attach_mcast");
  return is_soft(pair) ? EOPNOTSUPP : real(pair, gid, lid);
}

int ibv_detach_mcast(ibv_qp* pair, const ibv_gid* gid, uint16_t lid) {
  static const Real<decltype(ibv_detach_mcast)> real("ibv_detach_mcast");
  return is_soft(pair) ? EOPNOTSUPP : real(pair, gid, lid);
}

// --- Address handles ----------------------------------------------------------------------------

ibv_ah* ibv_create_ah(ibv_pd* domain, ibv_ah_attr* attributes) {
  return route<&Driver::create_ah>("ibv_create_ah", domain, attributes);
}

int ibv_init_ah_from_wc(ibv_context* context, uint8_t port, ibv_wc* completion, ibv_grh* header,
                        ibv_ah_attr* attributes) {
  static const Real<decltype(ibv_init_ah_from_wc)> real("ibv_init_ah_from_wc");
  if (!is_soft(context)) return real(context, port, completion, header, attributes);
  *attributes = way_back(*completion, *header, port);
  return 0;
}

ibv_ah* ibv_create_ah_from_wc(ibv_pd* domain, ibv_wc* completion, ibv_grh* header, uint8_t port) {
  static const Real<decltype(ibv_create_ah_from_wc)> real("ibv_create_ah_from_wc");
  if (!is_soft(domain)) return real(domain, completion, header, port);
  ibv_ah_attr attributes = way_back(*completion, *header, port);
  return soft_driver().create_ah(domain, &attributes);
}

int ibv_destroy_ah(ibv_ah* handle) {
  return route<&Driver::destroy_ah>("ibv_destroy_ah", handle);
}

}  // extern "C"
#pragma GCC visibility pop
