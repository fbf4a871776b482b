// The driver table of the software device: contexts, domains, completion queues and shared receive
// queues.  Regions and queue pairs have files of their own.
#include "verbs/driver.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <mutex>
#include <new>
#include <span>

#include "verbs/soft/address_handle.hpp"
#include "verbs/soft/asynchronous.hpp"
#include "verbs/soft/completion_queue.hpp"
#include "verbs/soft/context.hpp"
#include "verbs/soft/device.hpp"
#include "verbs/soft/extended.hpp"
#include "verbs/soft/guarded.hpp"
#include "verbs/soft/limits.hpp"
#include "verbs/soft/notification.hpp"
#include "verbs/soft/process.hpp"
#include "verbs/soft/queue_pair.hpp"
#include "verbs/soft/receive_queue.hpp"
#include "verbs/soft/region.hpp"
#include "verbs/soft/send.hpp"
#include "verbs/soft/settings.hpp"
#include "verbs/soft/soft_clock.hpp"

namespace tutti::verbs {
namespace {

using namespace soft;

// --- Device -------------------------------------------------------------------------------------

ibv_device** get_device_list(int* count) {
  const std::span<SoftDevice> all = devices();
  auto** const list = new ibv_device*[all.size() + 1];
  std::transform(all.begin(), all.end(), list, [](SoftDevice& device) { return &device; });
  list[all.size()] = nullptr;
  if (count) *count = static_cast<int>(all.size());
  return list;
}

void free_device_list(ibv_device** list) {
  delete[] list;
}

const char* get_device_name(ibv_device* device) {
  return device->name;
}

struct Release {
  void operator()(Process* process) const { process->release(); }
};

ibv_context* open_device(ibv_device* device) {
  Settings settings;
  if (const int error = read_settings(settings)) return refuse(error);
  (void)gid_of(1);  // reads the host's number while there is a descriptor for it
  int error = 0;
  auto made = std::make_unique<Context>();
  std::unique_ptr<Process, Release> kept(Process::acquire(settings, error));
  Process* const process = kept.get();
  if (!process) {
    if (error == EBUSY)
      std::fprintf(stderr, "tutti: TUTTI_SOFT_* differ from when this process opened the device\n");
    return refuse(error == EBUSY ? EINVAL : error);
  }
  if (error = made->events.open(); error != 0) return refuse(error);
  offer_extended(*made);
  ibv_context* const context = &made->context;
  context->device = device;
  context->ops.post_send = post_send;
  context->ops.post_recv = post_receive;
  context->ops.post_srq_recv = post_shared_receive;
  context->ops.poll_cq = poll_completion_queue;
  context->ops.req_notify_cq = request_notification;
  // No commands go to this descriptor, but programs may duplicate it and ask to import a context by
  // it; libtutti-softverbs then recognises this device by it, and refuses.
  context->cmd_fd = process->segment.descriptor();
  context->async_fd = made->events.descriptor();
  context->num_comp_vectors = 1;
  made->process = process;
  const std::lock_guard guard(process->mutex);
  process->contexts.push_back(made.get());
  (void)made.release();
  (void)kept.release();
  return context;
}

int close_device(ibv_context* handle) {
  Context& context = context_of(handle);
  Process& process = *context.process;
  if (process.inherited()) return EINVAL;
  {
    const std::lock_guard guard(process.mutex);
    assert(context.objects == 0);
    if (context.objects != 0) return EBUSY;
    std::erase(process.contexts, &context);
  }
  delete &context;
  process.release();
  return 0;
}

int query_device(ibv_context* context, ibv_device_attr* attributes) {
  describe_device(device_of(context), *attributes);
  return 0;
}

int query_port(ibv_context* context, uint8_t port, ibv_port_attr* attributes) {
  const SoftDevice& device = device_of(context);
  if (!device.has_port(port)) return EINVAL;
  describe_port(device, port, context_of(context).process->emulated(), *attributes);
  return 0;
}

int query_gid(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry) {
  const SoftDevice& device = device_of(context);
  if (!device.has_port(port) || index != 0) return EINVAL;
  *entry = {.gid = gid_of(place_of(device, port)),
            .gid_index = index,
            .port_num = port,
            .gid_type = IBV_GID_TYPE_IB,
            .ndev_ifindex = 0};
  return 0;
}

// --- Domains ------------------------------------------------------------------------------------

ibv_pd* alloc_pd(ibv_context* context) {
  Process& process = process_of(context);
  if (process.inherited()) return refuse(EINVAL);
  const std::lock_guard guard(process.mutex);
  if (process.domains_count == domains_max) return refuse(ENOMEM);
  auto* const domain = new ProtectionDomain{};
  domain->context = context;
  domain->handle = ++process.last_domain;
  ++process.domains_count;
  add_object(context);
  return domain;
}

int dealloc_pd(ibv_pd* handle) {
  Process& process = process_of(handle->context);
  if (process.inherited()) return EINVAL;
  const std::lock_guard guard(process.mutex);
  auto* const domain = static_cast<ProtectionDomain*>(handle);
  if (domain->users != 0) return EBUSY;
  assert(process.domains_count > 0);
  --process.domains_count;
  remove_object(domain->context);
  delete domain;
  return 0;
}

// --- Completion queues --------------------------------------------------------------------------

ibv_cq* create_cq(ibv_context* context, int entries, void* cq_context, ibv_comp_channel* channel,
                  int vector) {
  Process& process = process_of(context);
  if (process.inherited() || entries < 1 || entries > static_cast<int>(completions_max) ||
      vector != 0 || (channel && channel->context != context))
    return refuse(EINVAL);
  const std::lock_guard guard(process.mutex);
  std::vector<CompletionQueue*>& queues = process.completion_queues;
  if (queues.size() == completion_queues_max) return refuse(ENOMEM);
  auto made = std::make_unique<CompletionQueue>(static_cast<std::uint32_t>(entries));
  if (queues.size() == queues.capacity()) queues.reserve(2 * queues.size() + 1);
  if (channel && !process.notifiers.add(*made, process.segment)) return refuse(ENOMEM);
  CompletionQueue* const queue = made.release();
  if (channel) ++channel->refcnt;
  queue->channel = channel;
  queue->context = context;
  queue->cq_context = cq_context;
  queues.push_back(queue);
  add_object(context);
  return queue;
}

int destroy_cq(ibv_cq* handle) {
  Process& process = process_of(handle->context);
  if (process.inherited()) return EINVAL;
  std::unique_lock guard(process.mutex);
  auto* const queue = static_cast<CompletionQueue*>(handle);
  if (queue->users != 0) return EBUSY;
  if (queue->channel) process.notifiers.remove(*queue);
  guard.unlock();  // acknowledgements may take long
  if (queue->channel)
    static_cast<CompletionChannel*>(queue->channel)->events.retire(queue->completion_events);
  context_of(queue->context).events.retire(queue->asynchronous_events);
  guard.lock();
  assert(!queue->channel || queue->channel->refcnt > 0);
  if (queue->channel) --queue->channel->refcnt;
  if (queue->crowd.is_open()) process.crowd_entries.give_back(queue->crowd.offset());
  std::erase(process.completion_queues, queue);
  remove_object(queue->context);
  delete queue;
  return 0;
}

// --- Shared receive queues ----------------------------------------------------------------------

ibv_srq* create_srq(ibv_pd* domain, ibv_srq_init_attr* attributes) {
  Process& process = process_of(domain->context);
  const ibv_srq_attr& wanted = attributes->attr;
  if (process.inherited() || wanted.max_wr == 0 || wanted.max_wr > work_requests_max ||
      wanted.max_sge > scatter_max)
    return refuse(EINVAL);
  const std::lock_guard guard(process.mutex);
  if (process.shared_receive_queues.size() == shared_receive_queues_max) return refuse(ENOMEM);
  const std::uint32_t slots = std::bit_ceil(wanted.max_wr);
  const std::uint32_t stride = stride_of(wanted.max_sge);
  assert(slots >= wanted.max_wr);
  assert(stride % line_bytes == 0);
  auto made = std::make_unique<SharedReceiveQueue>();
  process.shared_receive_queues.reserve(process.shared_receive_queues.size() + 1);
  std::size_t offset = 0, slots_offset = 0;
  try {
    offset = process.segment.allocate(sizeof(SharedReceiveEntry));
    if (offset != 0) slots_offset = process.segment.allocate(std::size_t{slots} * stride);
  } catch (const std::bad_alloc&) {  // treated as a segment without room
  }
  if (slots_offset == 0) {
    process.segment.free(offset);
    return refuse(ENOMEM);
  }
  SharedReceiveQueue* const queue = made.release();
  queue->context = domain->context;
  queue->srq_context = attributes->srq_context;
  queue->pd = domain;
  queue->offset = offset;
  queue->entry = process.view().at<SharedReceiveEntry>(offset);
  queue->entry->slots_offset = slots_offset;
  queue->entry->slots = slots;
  queue->entry->stride_bytes = stride;
  queue->entry->domain = domain->handle;
  queue->attributes = wanted;
  queue->attributes.srq_limit = 0;  // the manual page says that the argument is ignored
  queue->events.object = queue;
  process.shared_receive_queues.push_back(queue);
  add_object(domain->context, domain);
  return queue;
}

int modify_srq(ibv_srq* handle, ibv_srq_attr* attributes, int mask) {
  Process& process = process_of(handle->context);
  if (process.inherited() || (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0) return EINVAL;
  if ((mask & IBV_SRQ_MAX_WR) != 0) return EOPNOTSUPP;  // no IBV_DEVICE_SRQ_RESIZE
  if ((mask & IBV_SRQ_LIMIT) == 0) return 0;
  const std::lock_guard guard(process.mutex);
  return set_limit(*static_cast<SharedReceiveQueue*>(handle), attributes->srq_limit);
}

int query_srq(ibv_srq* handle, ibv_srq_attr* attributes) {
  const auto& queue = *static_cast<SharedReceiveQueue*>(handle);
  *attributes = queue.attributes;
  attributes->srq_limit = limit_of(queue);
  return 0;
}

int destroy_srq(ibv_srq* handle) {
  Process& process = process_of(handle->context);
  if (process.inherited()) return EINVAL;
  std::unique_lock guard(process.mutex);
  auto* const queue = static_cast<SharedReceiveQueue*>(handle);
  // The queue pairs that used it are gone; an initiator may still be at work on one of them.
  if (queue->users != 0 || !process.wait_for_initiators_slow(guard)) return EBUSY;
  process.segment.free(queue->entry->slots_offset);
  process.segment.free(queue->offset);
  std::erase(process.shared_receive_queues, queue);
  guard.unlock();
  context_of(queue->context).events.retire(queue->events);
  guard.lock();
  remove_object(queue->context, queue->pd);
  delete queue;
  return 0;
}

/// The last word of a mapped line is stored after the rest (copy() in memory.hpp).  The kernel may
/// copy byte by byte, also when the owner copies by its file.
const char* keep_lines_whole(ibv_context* context) {
  Process& process = process_of(context);
  switch (process.transport()) {
    case Transport::automatic:
    case Transport::shared:
      process.keep_lines_whole();
      return nullptr;
    case Transport::cma:
      return "by TUTTI_SOFT_TRANSPORT=cma the kernel copies, perhaps byte by byte; unset it";
    case Transport::bounce:
      return "by TUTTI_SOFT_TRANSPORT=bounce the kernel copies, perhaps byte by byte; unset it";
  }
  __builtin_unreachable();
}

}  // namespace

const Driver& soft_driver() noexcept {
  static constexpr Driver driver{
      .name = "soft",
      .clock = soft_clock,
      .get_device_list = guarded<get_device_list>,
      .free_device_list = free_device_list,
      .get_device_name = get_device_name,
      .open_device = guarded<open_device>,
      .close_device = close_device,
      .query_device = query_device,
      .query_port = query_port,
      .query_gid = query_gid,
      .alloc_pd = guarded<alloc_pd>,
      .dealloc_pd = guarded<dealloc_pd>,
      .reg_mr = guarded<register_region>,
      .rereg_mr = reregister_region,
      .dereg_mr = guarded<deregister_region>,
      .create_ah = guarded<create_address_handle>,
      .destroy_ah = guarded<destroy_address_handle>,
      .create_comp_channel = guarded<create_completion_channel>,
      .destroy_comp_channel = guarded<destroy_completion_channel>,
      .create_cq = guarded<create_cq>,
      .resize_cq = guarded<resize_completion_queue>,
      .destroy_cq = guarded<destroy_cq>,
      .get_cq_event = get_completion_event,
      .ack_cq_events = acknowledge_completion_events,
      .create_srq = guarded<create_srq>,
      .modify_srq = guarded<modify_srq>,
      .query_srq = query_srq,
      .destroy_srq = guarded<destroy_srq>,
      .create_qp = guarded<create_queue_pair>,
      .qp_to_qp_ex = extended_queue_pair,
      .modify_qp = guarded<modify_queue_pair>,
      .query_qp = query_queue_pair,
      .destroy_qp = guarded<destroy_queue_pair>,
      // The initiator writes one after the other (remote.cpp).
      .places_writes_in_order = true,
      .keep_lines_whole = keep_lines_whole,
      .get_async_event = get_asynchronous_event,
      .ack_async_event = acknowledge_asynchronous_event,
  };
  return driver;
}

}  // namespace tutti::verbs
