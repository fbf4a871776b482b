// The driver table of the software device: contexts, domains, regions, completion queues and shared
// receive queues.  Queue pairs have a file of their own.
#include "verbs/driver.hpp"

#include <bit>
#include <cerrno>
#include <cstdio>
#include <mutex>
#include <new>

#include "verbs/soft/address_handle.hpp"
#include "verbs/soft/asynchronous.hpp"
#include "verbs/soft/completion_queue.hpp"
#include "verbs/soft/context.hpp"
#include "verbs/soft/device.hpp"
#include "verbs/soft/extended.hpp"
#include "verbs/soft/limits.hpp"
#include "verbs/soft/notification.hpp"
#include "verbs/soft/process.hpp"
#include "verbs/soft/promotion.hpp"
#include "verbs/soft/queue_pair.hpp"
#include "verbs/soft/receive_queue.hpp"
#include "verbs/soft/send.hpp"
#include "verbs/soft/settings.hpp"

namespace tutti::verbs {
namespace {

using namespace soft;

template <class T>
T* refuse(int error) {
  errno = error;
  return nullptr;
}

// --- Device -------------------------------------------------------------------------------------

ibv_device** get_device_list(int* count) {
  auto** const list = new ibv_device* [2] { &device(), nullptr };
  if (count) *count = 1;
  return list;
}

void free_device_list(ibv_device** list) {
  delete[] list;
}

const char* get_device_name(ibv_device* device) {
  return device->name;
}

ibv_context* open_device(ibv_device* device) {
  Settings settings;
  if (const int error = read_settings(settings)) return refuse<ibv_context>(error);
  (void)host_gid();  // reads the host's number while there is a descriptor for it
  int error = 0;
  Process* const process = Process::acquire(settings, error);
  if (!process) {
    if (error == EBUSY)
      std::fprintf(stderr, "tutti: TUTTI_SOFT_* differ from when this process opened the device\n");
    return refuse<ibv_context>(error == EBUSY ? EINVAL : error);
  }
  auto* const made = new Context{};
  if (error = made->events.open(); error != 0) {
    delete made;
    process->release();
    return refuse<ibv_context>(error);
  }
  offer_extended(*made);
  ibv_context* const context = &made->context;
  context->device = device;
  context->ops.post_send = post_send;
  context->ops.post_recv = post_receive;
  context->ops.post_srq_recv = post_shared_receive;
  context->ops.poll_cq = poll_completion_queue;
  context->ops.req_notify_cq = request_notification;
  context->cmd_fd = -1;
  context->async_fd = made->events.descriptor();
  context->num_comp_vectors = 1;
  made->process = process;
  const std::lock_guard guard(process->mutex);
  process->contexts.push_back(made);
  return context;
}

int close_device(ibv_context* handle) {
  Context& context = context_of(handle);
  Process& process = *context.process;
  if (process.inherited()) return EINVAL;
  {
    const std::lock_guard guard(process.mutex);
    if (context.objects != 0) return EBUSY;
    std::erase(process.contexts, &context);
  }
  delete &context;
  process.release();
  return 0;
}

int query_device(ibv_context*, ibv_device_attr* attributes) {
  describe_device(*attributes);
  return 0;
}

int query_port(ibv_context*, uint8_t port, ibv_port_attr* attributes) {
  if (port != port_number) return EINVAL;
  describe_port(*attributes);
  return 0;
}

int query_gid(ibv_context*, uint32_t port, uint32_t index, ibv_gid_entry* entry) {
  if (port != port_number || index != 0) return EINVAL;
  *entry = {.gid = host_gid(),
            .gid_index = index,
            .port_num = port,
            .gid_type = IBV_GID_TYPE_IB,
            .ndev_ifindex = 0};
  return 0;
}

// --- Domains and regions ------------------------------------------------------------------------

ibv_pd* alloc_pd(ibv_context* context) {
  Process& process = process_of(context);
  if (process.inherited()) return refuse<ibv_pd>(EINVAL);
  const std::lock_guard guard(process.mutex);
  if (process.domains_count == domains_max) return refuse<ibv_pd>(ENOMEM);
  auto* const domain = new Domain{};
  domain->context = context;
  domain->handle = ++process.last_domain;
  ++process.domains_count;
  ++context_of(context).objects;
  return domain;
}

int dealloc_pd(ibv_pd* handle) {
  Process& process = process_of(handle->context);
  if (process.inherited()) return EINVAL;
  const std::lock_guard guard(process.mutex);
  auto* const domain = static_cast<Domain*>(handle);
  if (domain->users != 0) return EBUSY;
  --process.domains_count;
  --context_of(domain->context).objects;
  delete domain;
  return 0;
}

int check_region(const void* address, size_t bytes, unsigned access) {
  constexpr unsigned offered = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                               IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                               IBV_ACCESS_HUGETLB |
                               IBV_ACCESS_OPTIONAL_RANGE;  // optional: may be ignored
  if ((access & ~offered) != 0) return EOPNOTSUPP;
  if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0 &&
      (access & IBV_ACCESS_LOCAL_WRITE) == 0)
    return EINVAL;
  const auto first = reinterpret_cast<std::uintptr_t>(address);
  return bytes == 0 || first + bytes < first ? EINVAL : 0;
}

/// Stores the fields and then the key (release each): see RegionEntry.
void publish(RegionEntry& entry, const MemoryRegion& region, std::size_t backing_offset,
             unsigned access) {
  constexpr auto release = std::memory_order_release;
  entry.domain.store(region.pd->handle, release);
  entry.access.store(access, release);
  entry.backing.store(region.backing, release);
  entry.backing_offset.store(backing_offset, release);
  entry.address.store(reinterpret_cast<std::uint64_t>(region.addr), release);
  entry.bytes.store(region.length, release);
  entry.key.store(region.rkey, release);
}

/// Where the memory lies; after its promotion, if it is private and that is asked for.
Backings::Place find_place(Process& process, const void* address, size_t bytes, bool writable) {
  Backings::Place place = process.backings.find(address, bytes, writable);
  if (place.error != 0 || place.number != 0 || !process.settings().promotes) return place;
  const char* reason = nullptr;
  const detail::Descriptor file = promote(address, bytes, reason);
  if (file) place = process.backings.find(address, bytes, writable);
  if (process.settings().logs_transports)
    std::fprintf(stderr, "tutti: soft0: region at %p of %zu bytes: %s%s\n", address, bytes,
                 file ? "promoted to a sealed file" : "stays private, as ", file ? "" : reason);
  return place;
}

ibv_mr* reg_mr(ibv_pd* domain, void* address, size_t bytes, int access_flags) {
  Process& process = process_of(domain->context);
  const auto access = static_cast<unsigned>(access_flags);
  if (const int error = process.inherited() ? EINVAL : check_region(address, bytes, access))
    return refuse<ibv_mr>(error);
  const std::lock_guard guard(process.mutex);
  const Backings::Place place =
      find_place(process, address, bytes, (access & IBV_ACCESS_LOCAL_WRITE) != 0);
  if (place.error != 0) return refuse<ibv_mr>(place.error);
  std::uint32_t index = 0;
  if (!process.region_slots.take(index)) {
    process.backings.release(place.number);
    return refuse<ibv_mr>(ENOMEM);
  }
  std::uint32_t& generation = process.region_generations[index];
  generation = (generation + 1) & ((1U << region_generation_bits) - 1);
  if (generation == 0) generation = 1;  // no key is 0

  auto* const region = new MemoryRegion{};
  region->context = domain->context;
  region->pd = domain;
  region->addr = address;
  region->length = bytes;
  region->handle = index;
  region->lkey = region->rkey = index << region_generation_bits | generation;
  region->backing = place.number;
  publish(process.view().regions()[index], *region, place.offset, access);
  ++static_cast<Domain*>(domain)->users;
  ++context_of(domain->context).objects;
  return region;
}

int dereg_mr(ibv_mr* handle) {
  Process& process = process_of(handle->context);
  if (process.inherited()) return EINVAL;
  std::unique_lock guard(process.mutex);
  auto* const region = static_cast<MemoryRegion*>(handle);
  // First the key, then a look at who may have read it before: QueuePairEntry::engaged.
  process.view().regions()[region->handle].key.store(0, std::memory_order_seq_cst);
  if (!process.wait_for_initiators_slow(guard)) return EBUSY;
  process.region_slots.give_back(region->handle);
  if (region->backing != 0 && process.backings.release(region->backing)) {
    process.connections.announce_gone(region->backing);
    process.wake_helper();
  }
  --static_cast<Domain*>(region->pd)->users;
  --context_of(region->context).objects;
  delete region;
  return 0;
}

// --- Completion queues --------------------------------------------------------------------------

ibv_cq* create_cq(ibv_context* context, int entries, void* cq_context, ibv_comp_channel* channel,
                  int vector) {
  Process& process = process_of(context);
  if (process.inherited() || entries < 1 || entries > static_cast<int>(completions_max) ||
      vector != 0 || (channel && channel->context != context))
    return refuse<ibv_cq>(EINVAL);
  const std::lock_guard guard(process.mutex);
  if (process.completion_queues_count == completion_queues_max) return refuse<ibv_cq>(ENOMEM);
  auto* const queue = new CompletionQueue(static_cast<std::size_t>(entries));
  if (channel && !process.notifiers.add(*queue, process.segment)) {
    delete queue;
    return refuse<ibv_cq>(ENOMEM);
  }
  if (channel) ++channel->refcnt;
  queue->channel = channel;
  queue->context = context;
  queue->cq_context = cq_context;
  queue->cqe = entries;
  ++process.completion_queues_count;
  ++context_of(context).objects;
  return queue;
}

int destroy_cq(ibv_cq* handle) {
  Process& process = process_of(handle->context);
  if (process.inherited()) return EINVAL;
  std::unique_lock guard(process.mutex);
  auto* const queue = static_cast<CompletionQueue*>(handle);
  if (queue->users != 0) return EBUSY;
  if (queue->channel) process.notifiers.remove(*queue);
  guard.unlock();  // acknowledgements may take their time
  if (queue->channel)
    static_cast<CompletionChannel*>(queue->channel)->events.retire(queue->completion_events);
  context_of(queue->context).events.retire(queue->asynchronous_events);
  guard.lock();
  if (queue->channel) --queue->channel->refcnt;
  --process.completion_queues_count;
  --context_of(queue->context).objects;
  delete queue;
  return 0;
}

// --- Shared receive queues ----------------------------------------------------------------------

ibv_srq* create_srq(ibv_pd* domain, ibv_srq_init_attr* attributes) {
  Process& process = process_of(domain->context);
  const ibv_srq_attr& wanted = attributes->attr;
  if (process.inherited() || wanted.max_wr == 0 || wanted.max_wr > work_requests_max ||
      wanted.max_sge > scatter_max)
    return refuse<ibv_srq>(EINVAL);
  const std::lock_guard guard(process.mutex);
  if (process.shared_receive_queues.size() == shared_receive_queues_max)
    return refuse<ibv_srq>(ENOMEM);
  const std::uint32_t slots = std::bit_ceil(wanted.max_wr);
  const std::uint32_t stride = stride_of(wanted.max_sge);
  const std::size_t slots_bytes = std::size_t{slots} * stride;
  const std::size_t offset = process.segment.allocate(sizeof(SharedReceiveEntry));
  const std::size_t slots_offset = process.segment.allocate(slots_bytes);
  if (offset == 0 || slots_offset == 0) {
    process.segment.free(offset, sizeof(SharedReceiveEntry));
    process.segment.free(slots_offset, slots_bytes);
    return refuse<ibv_srq>(ENOMEM);
  }
  auto* const queue = new SharedReceiveQueue{};
  queue->context = domain->context;
  queue->srq_context = attributes->srq_context;
  queue->pd = domain;
  queue->offset = offset;
  queue->slots_bytes = slots_bytes;
  queue->entry = process.view().at<SharedReceiveEntry>(offset);
  queue->entry->slots_offset = slots_offset;
  queue->entry->slots = slots;
  queue->entry->stride_bytes = stride;
  queue->entry->domain = domain->handle;
  queue->attributes = wanted;
  queue->attributes.srq_limit = 0;  // not looked at, as the manual page says
  queue->events.object = queue;
  process.shared_receive_queues.push_back(queue);
  ++static_cast<Domain*>(domain)->users;
  ++context_of(domain->context).objects;
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
  process.segment.free(queue->entry->slots_offset, queue->slots_bytes);
  process.segment.free(queue->offset, sizeof(SharedReceiveEntry));
  std::erase(process.shared_receive_queues, queue);
  guard.unlock();
  context_of(queue->context).events.retire(queue->events);
  guard.lock();
  --static_cast<Domain*>(queue->pd)->users;
  --context_of(queue->context).objects;
  delete queue;
  return 0;
}

}  // namespace

const Driver& soft_driver() noexcept {
  static constexpr Driver driver{
      .name = "soft",
      .get_device_list = get_device_list,
      .free_device_list = free_device_list,
      .get_device_name = get_device_name,
      .open_device = open_device,
      .close_device = close_device,
      .query_device = query_device,
      .query_port = query_port,
      .query_gid = query_gid,
      .alloc_pd = alloc_pd,
      .dealloc_pd = dealloc_pd,
      .reg_mr = reg_mr,
      .dereg_mr = dereg_mr,
      .create_ah = create_address_handle,
      .destroy_ah = destroy_address_handle,
      .create_comp_channel = create_completion_channel,
      .destroy_comp_channel = destroy_completion_channel,
      .create_cq = create_cq,
      .destroy_cq = destroy_cq,
      .get_cq_event = get_completion_event,
      .ack_cq_events = acknowledge_completion_events,
      .create_srq = create_srq,
      .modify_srq = modify_srq,
      .query_srq = query_srq,
      .destroy_srq = destroy_srq,
      .create_qp = create_queue_pair,
      .qp_to_qp_ex = extended_queue_pair,
      .modify_qp = modify_queue_pair,
      .query_qp = query_queue_pair,
      .destroy_qp = destroy_queue_pair,
      .get_async_event = get_asynchronous_event,
      .ack_async_event = acknowledge_asynchronous_event,
  };
  return driver;
}

}  // namespace tutti::verbs
