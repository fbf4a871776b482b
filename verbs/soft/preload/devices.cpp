// The functions of libibverbs about devices and contexts.  Each goes to the software device if its
// object belongs to that device, and to the system's libibverbs otherwise.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <mutex>
#include <new>
#include <vector>

#include "is_soft.hpp"
#include "real.hpp"
#include "verbs/soft/context.hpp"
#include "verbs/soft/process.hpp"
#include "verbs/soft/queue_pair.hpp"

using namespace tutti::verbs;
using namespace tutti::verbs::soft;

namespace {

std::size_t count_of(ibv_device** list) {
  std::size_t count = 0;
  while (list && list[count]) ++count;
  return count;
}

/// Reports an error in libibverbs' way: -1 and errno.
int failed(int error) {
  if (error == 0) return 0;
  errno = error;
  return -1;
}

/// Resets the queue pairs of a context that will not be used any more.  Its objects stay until the
/// process ends; nobody knows them.
void disconnect_all(ibv_context* context) {
  Process& process = process_of(context);
  std::vector<ibv_qp*> left;
  {
    const std::lock_guard guard(process.mutex);
    for (QueuePair* const pair : process.queue_pairs)
      if (pair->context == context) left.push_back(pair);
  }
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RESET;
  for (ibv_qp* const pair : left) (void)soft_driver().modify_qp(pair, &attributes, IBV_QP_STATE);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// --- The list -----------------------------------------------------------------------------------

// The list has the real devices and then the software devices.  The entry before the first one is
// the real library's list: its devices live as long as that list is not freed.
ibv_device** ibv_get_device_list(int* count) {
  static const Real<decltype(ibv_get_device_list)> real("ibv_get_device_list");
  static const Real<decltype(ibv_free_device_list)> real_free("ibv_free_device_list");
  ibv_device** const real_list = real(nullptr);  // NULL also where the kernel knows no RDMA
  const std::size_t real_count = count_of(real_list);
  const auto soft = devices();
  auto** const list = new (std::nothrow) ibv_device*[real_count + soft.size() + 2];
  if (!list) {
    if (real_list) real_free(real_list);
    errno = ENOMEM;
    return nullptr;
  }
  list[0] = reinterpret_cast<ibv_device*>(real_list);
  std::copy_n(real_list, real_count, list + 1);
  ibv_device** const end = std::transform(soft.begin(), soft.end(), list + real_count + 1,
                                          [](SoftDevice& device) { return &device; });
  *end = nullptr;
  if (count) *count = static_cast<int>(real_count + soft.size());
  return list + 1;
}

void ibv_free_device_list(ibv_device** list) {
  static const Real<decltype(ibv_free_device_list)> real("ibv_free_device_list");
  if (!list) return;
  --list;
  if (list[0]) real(reinterpret_cast<ibv_device**>(list[0]));
  delete[] list;
}

const char* ibv_get_device_name(ibv_device* device) {
  return route<&Driver::get_device_name>("ibv_get_device_name", device);
}

__be64 ibv_get_device_guid(ibv_device* device) {
  static const Real<decltype(ibv_get_device_guid)> real("ibv_get_device_guid");
  if (!is_soft(device)) return real(device);
  return gid_of(place_of(*static_cast<SoftDevice*>(device), 1)).global.interface_id;
}

int ibv_get_device_index(ibv_device* device) {
  static const Real<decltype(ibv_get_device_index)> real("ibv_get_device_index");
  return is_soft(device) ? -1 : real(device);  // the kernel has no number for it
}

// --- Contexts -----------------------------------------------------------------------------------

ibv_context* ibv_open_device(ibv_device* device) {
  return route<&Driver::open_device>("ibv_open_device", device);
}

// The kernel takes down what a program left on a real device, and programs rely on that.  So a
// context that refuses to be closed here counts as closed.
int ibv_close_device(ibv_context* context) {
  static const Real<decltype(ibv_close_device)> real("ibv_close_device");
  if (!is_soft(context)) return real(context);
  const int error = soft_driver().close_device(context);
  if (error == EBUSY) disconnect_all(context);
  return error == EBUSY ? 0 : failed(error);
}

int ibv_query_device(ibv_context* context, ibv_device_attr* attributes) {
  return route<&Driver::query_device>("ibv_query_device", context, attributes);
}

// For programs older than the inline function: their struct lacks the later members.
int ibv_query_port(ibv_context* context, uint8_t port, _compat_ibv_port_attr* attributes) {
  static const Real<decltype(ibv_query_port)> real("ibv_query_port");
  if (!is_soft(context)) return real(context, port, attributes);
  ibv_port_attr described{};
  const int error = soft_driver().query_port(context, port, &described);
  if (error == 0)
    std::memcpy(static_cast<void*>(attributes), &described,
                offsetof(ibv_port_attr, port_cap_flags2));
  return error;
}

int ibv_query_pkey(ibv_context* context, uint8_t port, int index, __be16* key) {
  static const Real<decltype(ibv_query_pkey)> real("ibv_query_pkey");
  if (!is_soft(context)) return real(context, port, index, key);
  if (!device_of(context).has_port(port) || index != 0) return failed(EINVAL);
  *key = 0xffff;  // the default partition, the same in either byte order
  return 0;
}

int ibv_get_pkey_index(ibv_context* context, uint8_t port, __be16 key) {
  static const Real<decltype(ibv_get_pkey_index)> real("ibv_get_pkey_index");
  if (!is_soft(context)) return real(context, port, key);
  return device_of(context).has_port(port) && key == 0xffff ? 0 : failed(ENOENT);
}

// --- GIDs ---------------------------------------------------------------------------------------

int ibv_query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) {
  static const Real<decltype(ibv_query_gid)> real("ibv_query_gid");
  if (!is_soft(context)) return real(context, port, index, gid);
  ibv_gid_entry entry{};
  const int error = soft_driver().query_gid(context, port, static_cast<uint32_t>(index), &entry);
  if (error == 0) *gid = entry.gid;
  return failed(error);
}

int _ibv_query_gid_ex(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry,
                      uint32_t flags, size_t entry_bytes) {
  static const Real<decltype(_ibv_query_gid_ex)> real("_ibv_query_gid_ex");
  if (!is_soft(context)) return real(context, port, index, entry, flags, entry_bytes);
  if (flags != 0) return EOPNOTSUPP;
  ibv_gid_entry described{};
  const int error = soft_driver().query_gid(context, port, index, &described);
  if (error == 0) std::memcpy(entry, &described, std::min(entry_bytes, sizeof(described)));
  return error;
}

ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t entries_max,
                             uint32_t flags, size_t entry_bytes) {
  static const Real<decltype(_ibv_query_gid_table)> real("_ibv_query_gid_table");
  if (!is_soft(context)) return real(context, entries, entries_max, flags, entry_bytes);
  // There is one GID for each port.
  const std::uint32_t ports_count = device_of(context).ports_count;
  if (entries_max < ports_count) return -EINVAL;
  auto* place = reinterpret_cast<std::byte*>(entries);
  for (std::uint32_t port = 1; port <= ports_count; ++port, place += entry_bytes)
    if (const int error = _ibv_query_gid_ex(
            context, port, 0, reinterpret_cast<ibv_gid_entry*>(place), flags, entry_bytes))
      return -error;
  return static_cast<ssize_t>(ports_count);
}

// No installed header declares it.  `type` is an enumeration in which 0 is InfiniBand or RoCE v1.
int ibv_query_gid_type(ibv_context* context, uint8_t port, unsigned int index, unsigned int* type);
int ibv_query_gid_type(ibv_context* context, uint8_t port, unsigned int index, unsigned int* type) {
  static const Real<decltype(ibv_query_gid_type)> real("ibv_query_gid_type");
  if (!is_soft(context)) return real(context, port, index, type);
  if (!device_of(context).has_port(port) || index != 0) return failed(EINVAL);
  *type = 0;
  return 0;
}

int ibv_resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attributes, uint8_t* mac,
                                uint16_t* vlan) {
  static const Real<decltype(ibv_resolve_eth_l2_from_gid)> real("ibv_resolve_eth_l2_from_gid");
  return is_soft(context) ? -EOPNOTSUPP : real(context, attributes, mac, vlan);
}

ibv_context* ibv_import_device(int descriptor) {
  static const Real<decltype(ibv_import_device)> real("ibv_import_device");
  std::uint64_t magic = 0;
  if (::pread(descriptor, &magic, sizeof(magic), 0) != sizeof(magic) || magic != segment_magic)
    return real(descriptor);
  errno = EOPNOTSUPP;
  return nullptr;
}

// --- Asynchronous events ------------------------------------------------------------------------

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  return route<&Driver::get_async_event>("ibv_get_async_event", context, event);
}

void ibv_ack_async_event(ibv_async_event* event) {
  static const Real<decltype(ibv_ack_async_event)> real("ibv_ack_async_event");
  const auto is_one_of = [event](std::initializer_list<ibv_event_type> types) {
    return std::find(types.begin(), types.end(), event->event_type) != types.end();
  };
  // Others concern a port, which needs no acknowledgement, or what only real devices have.
  const ibv_context* context = nullptr;
  if (event->event_type == IBV_EVENT_CQ_ERR)
    context = event->element.cq->context;
  else if (is_one_of({IBV_EVENT_SRQ_ERR, IBV_EVENT_SRQ_LIMIT_REACHED}))
    context = event->element.srq->context;
  else if (is_one_of({IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR,
                      IBV_EVENT_COMM_EST, IBV_EVENT_SQ_DRAINED, IBV_EVENT_PATH_MIG,
                      IBV_EVENT_PATH_MIG_ERR, IBV_EVENT_QP_LAST_WQE_REACHED}))
    context = event->element.qp->context;
  if (context && is_soft(context))
    soft_driver().ack_async_event(event);
  else
    real(event);
}

}  // extern "C"
#pragma GCC visibility pop
