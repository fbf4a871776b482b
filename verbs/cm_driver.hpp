// librdmacm as a table, so that tests can play the kernel and the peers; see verbs/driver.hpp.
#pragma once

#include <rdma/rdma_cma.h>

#include <memory>

namespace tutti::verbs {

/// Each entry behaves as the librdmacm function of the same name: NULL or -1 with errno on failure.
struct CmDriver {
  rdma_event_channel* (*create_event_channel)();
  void (*destroy_event_channel)(rdma_event_channel* channel);
  int (*get_cm_event)(rdma_event_channel* channel, rdma_cm_event** event);
  int (*ack_cm_event)(rdma_cm_event* event);

  int (*create_id)(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                   rdma_port_space space);
  int (*destroy_id)(rdma_cm_id* id);
  int (*bind_addr)(rdma_cm_id* id, sockaddr* address);
  int (*listen)(rdma_cm_id* id, int backlog);
  __be16 (*get_src_port)(rdma_cm_id* id);

  int (*resolve_addr)(rdma_cm_id* id, sockaddr* source, sockaddr* target, int timeout_ms);
  int (*resolve_route)(rdma_cm_id* id, int timeout_ms);
  int (*connect)(rdma_cm_id* id, rdma_conn_param* parameters);
  int (*establish)(rdma_cm_id* id);
  int (*accept)(rdma_cm_id* id, rdma_conn_param* parameters);
  int (*reject)(rdma_cm_id* id, const void* private_data, uint8_t private_data_bytes);
  int (*init_qp_attr)(rdma_cm_id* id, ibv_qp_attr* attributes, int* mask);
};

/// The system's librdmacm.
const CmDriver& librdmacm_driver() noexcept;

struct DestroyEventChannel {
  const CmDriver* driver = nullptr;
  void operator()(rdma_event_channel* channel) const noexcept {
    driver->destroy_event_channel(channel);
  }
};
using EventChannelHandle = std::unique_ptr<rdma_event_channel, DestroyEventChannel>;

/// Destroying the id of an established connection makes the kernel send the other end a
/// DISCONNECTED event and nothing else: the queue pairs are not the kernel's and stay as they are.
struct DestroyId {
  const CmDriver* driver = nullptr;
  void operator()(rdma_cm_id* id) const noexcept { driver->destroy_id(id); }
};
using IdHandle = std::unique_ptr<rdma_cm_id, DestroyId>;

}  // namespace tutti::verbs
