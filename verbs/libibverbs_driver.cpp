// The system's libibverbs behind the driver table.  Several of its functions are macros or inline
// functions, and have lambdas here.
#include "verbs/driver.hpp"

namespace tutti::verbs {

const Driver& libibverbs_driver() noexcept {
  static constexpr Driver driver{
      .name = "libibverbs",
      .clock = []() noexcept -> detail::Clock& {
        static detail::MonotonicClock clock;
        return clock;
      },
      .get_device_list = ibv_get_device_list,
      .free_device_list = ibv_free_device_list,
      .get_device_name = ibv_get_device_name,
      .open_device = ibv_open_device,
      .close_device = ibv_close_device,
      .query_device = ibv_query_device,
      .query_port =
          [](ibv_context* context, uint8_t port, ibv_port_attr* attributes) {
            return ibv_query_port(context, port, attributes);
          },
      .query_gid =
          [](ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry) {
            return ibv_query_gid_ex(context, port, index, entry, 0);
          },
      .alloc_pd = ibv_alloc_pd,
      .dealloc_pd = ibv_dealloc_pd,
      .reg_mr = [](ibv_pd* domain, void* address, size_t bytes,
                   int access) { return ibv_reg_mr(domain, address, bytes, access); },
      .rereg_mr = ibv_rereg_mr,
      .dereg_mr = ibv_dereg_mr,
      .create_ah = ibv_create_ah,
      .destroy_ah = ibv_destroy_ah,
      .create_comp_channel = ibv_create_comp_channel,
      .destroy_comp_channel = ibv_destroy_comp_channel,
      .create_cq = ibv_create_cq,
      .resize_cq = ibv_resize_cq,
      .destroy_cq = ibv_destroy_cq,
      .get_cq_event = ibv_get_cq_event,
      .ack_cq_events = ibv_ack_cq_events,
      .create_srq = ibv_create_srq,
      .modify_srq = ibv_modify_srq,
      .query_srq = ibv_query_srq,
      .destroy_srq = ibv_destroy_srq,
      .create_qp = ibv_create_qp,
      .qp_to_qp_ex = ibv_qp_to_qp_ex,
      .modify_qp = ibv_modify_qp,
      .query_qp = ibv_query_qp,
      .destroy_qp = ibv_destroy_qp,
      .places_writes_in_order = false,
      .keep_lines_whole =
          [](ibv_context*) {
            return "no tuning file says that it was seen to do so (tutti-tune looks)";
          },
      .get_async_event = ibv_get_async_event,
      .ack_async_event = ibv_ack_async_event,
  };
  return driver;
}

}  // namespace tutti::verbs
