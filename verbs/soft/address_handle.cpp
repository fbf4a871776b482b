#include "verbs/soft/address_handle.hpp"

#include <cassert>
#include <cerrno>
#include <mutex>

#include "verbs/soft/context.hpp"
#include "verbs/soft/device.hpp"
#include "verbs/soft/guarded.hpp"
#include "verbs/soft/limits.hpp"

namespace tutti::verbs::soft {
namespace {

int check_attributes(const SoftDevice& device, const ibv_ah_attr& attributes) {
  constexpr std::uint16_t multicast_first = 0xc000;
  if (!device.has_port(attributes.port_num) ||
      (attributes.is_global != 0 && attributes.grh.sgid_index != 0))
    return EINVAL;
  const bool is_multicast = attributes.is_global != 0 ? attributes.grh.dgid.raw[0] == 0xff
                                                      : attributes.dlid >= multicast_first;
  return is_multicast ? EOPNOTSUPP : 0;
}

}  // namespace

ibv_ah* create_address_handle(ibv_pd* domain, ibv_ah_attr* attributes) {
  Process& process = process_of(domain->context);
  const SoftDevice& device = device_of(domain->context);
  if (const int error = process.inherited() ? EINVAL : check_attributes(device, *attributes))
    return refuse(error);
  const std::lock_guard guard(process.mutex);
  if (process.address_handles_count == address_handles_max) return refuse(ENOMEM);
  auto* const handle = new AddressHandle{};
  handle->context = domain->context;
  handle->pd = domain;
  handle->attributes = *attributes;
  handle->destination = find_destination(device, *attributes);
  ++process.address_handles_count;
  add_object(domain->context, domain);
  return handle;
}

int destroy_address_handle(ibv_ah* handle) {
  Process& process = process_of(handle->context);
  if (process.inherited()) return EINVAL;
  const std::lock_guard guard(process.mutex);
  assert(process.address_handles_count > 0);
  --process.address_handles_count;
  remove_object(handle->context, handle->pd);
  delete static_cast<AddressHandle*>(handle);
  return 0;
}

}  // namespace tutti::verbs::soft
