#include "verbs/cm_driver.hpp"

namespace tutti::verbs {

const CmDriver& librdmacm_driver() noexcept {
  static constexpr CmDriver driver{
      .create_event_channel = rdma_create_event_channel,
      .destroy_event_channel = rdma_destroy_event_channel,
      .get_cm_event = rdma_get_cm_event,
      .ack_cm_event = rdma_ack_cm_event,
      .create_id = rdma_create_id,
      .destroy_id = rdma_destroy_id,
      .bind_addr = rdma_bind_addr,
      .listen = rdma_listen,
      .get_src_port = rdma_get_src_port,
      .resolve_addr = rdma_resolve_addr,
      .resolve_route = rdma_resolve_route,
      .connect = rdma_connect,
      .establish = rdma_establish,
      .accept = rdma_accept,
      .reject = rdma_reject,
      .init_qp_attr = rdma_init_qp_attr,
  };
  return driver;
}

}  // namespace tutti::verbs
