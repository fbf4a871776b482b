// The control path of verbs as a table, so that the real libibverbs and the software device are
// used by the same code without interposing any ibv_* symbol.  The data path needs no table:
// ibv_post_send, ibv_post_recv, ibv_post_srq_recv and ibv_poll_cq are inline functions of
// <infiniband/verbs.h> that dispatch through context->ops of whichever device made the object.
#pragma once

#include <infiniband/verbs.h>

#include "tutti/detail/clock.hpp"

namespace tutti::verbs {

/// Each entry behaves as the libibverbs function of the same name: NULL with errno, or an errno
/// value, on failure.
struct Driver {
  const char* name;  // "libibverbs" or "soft"

  /// Not a function of libibverbs: the clock of the users of these devices.
  detail::Clock& (*clock)() noexcept;

  ibv_device** (*get_device_list)(int* count);
  void (*free_device_list)(ibv_device** list);
  const char* (*get_device_name)(ibv_device* device);
  ibv_context* (*open_device)(ibv_device* device);
  int (*close_device)(ibv_context* context);

  int (*query_device)(ibv_context* context, ibv_device_attr* attributes);
  int (*query_port)(ibv_context* context, uint8_t port, ibv_port_attr* attributes);
  /// As ibv_query_gid_ex with flags 0: returns an errno value, ENODATA for an empty entry.
  int (*query_gid)(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry);

  ibv_pd* (*alloc_pd)(ibv_context* context);
  int (*dealloc_pd)(ibv_pd* domain);
  ibv_mr* (*reg_mr)(ibv_pd* domain, void* address, size_t bytes, int access);
  /// Returns 0, or ibv_rereg_mr_err_code with errno.
  int (*rereg_mr)(ibv_mr* region, int flags, ibv_pd* domain, void* address, size_t bytes,
                  int access);
  int (*dereg_mr)(ibv_mr* region);

  ibv_ah* (*create_ah)(ibv_pd* domain, ibv_ah_attr* attributes);
  int (*destroy_ah)(ibv_ah* handle);

  ibv_comp_channel* (*create_comp_channel)(ibv_context* context);
  int (*destroy_comp_channel)(ibv_comp_channel* channel);
  ibv_cq* (*create_cq)(ibv_context* context, int entries, void* cq_context,
                       ibv_comp_channel* channel, int vector);
  int (*resize_cq)(ibv_cq* queue, int entries);
  int (*destroy_cq)(ibv_cq* queue);
  int (*get_cq_event)(ibv_comp_channel* channel, ibv_cq** queue, void** cq_context);
  void (*ack_cq_events)(ibv_cq* queue, unsigned int count);

  ibv_srq* (*create_srq)(ibv_pd* domain, ibv_srq_init_attr* attributes);
  int (*modify_srq)(ibv_srq* queue, ibv_srq_attr* attributes, int mask);
  int (*query_srq)(ibv_srq* queue, ibv_srq_attr* attributes);
  int (*destroy_srq)(ibv_srq* queue);

  ibv_qp* (*create_qp)(ibv_pd* domain, ibv_qp_init_attr* attributes);
  /// NULL unless ibv_create_qp_ex, which is inline, made it with IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.
  ibv_qp_ex* (*qp_to_qp_ex)(ibv_qp* pair);
  int (*modify_qp)(ibv_qp* pair, ibv_qp_attr* attributes, int mask);
  int (*query_qp)(ibv_qp* pair, ibv_qp_attr* attributes, int mask, ibv_qp_init_attr* initial);
  int (*destroy_qp)(ibv_qp* pair);
  /// Not part of libibverbs: whether the writes of the peer of a connected pair are placed in the
  /// order of its requests, so that a process that sees a word of one request also sees everything
  /// that earlier requests wrote.  Verbs promise it for no device: ibv_query_qp_data_in_order() is
  /// about the bytes of one request.  What a stress has found is in Port::placement.
  bool places_writes_in_order;
  /// Not part of libibverbs: asks the device to keep lines whole from now on.  A process that sees
  /// the last 8 bytes of an aligned line of 64 bytes that a peer writes with one inline request
  /// then sees the whole line, and an aligned word of 8 bytes that is written alone is seen whole.
  /// NULL: the device does so, and a write that it cannot do like that fails; else why not, as a
  /// sentence about the device.  Verbs promise it for no device, either.
  const char* (*keep_lines_whole)(ibv_context* context);

  int (*get_async_event)(ibv_context* context, ibv_async_event* event);
  void (*ack_async_event)(ibv_async_event* event);
};

/// The system's libibverbs.
const Driver& libibverbs_driver() noexcept;

/// The user-space software device of verbs/soft.
const Driver& soft_driver() noexcept;

}  // namespace tutti::verbs
