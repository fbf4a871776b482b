#include "verbs/soft/region.hpp"

#include <cassert>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <mutex>
#include <new>

#include "verbs/soft/context.hpp"
#include "verbs/soft/guarded.hpp"
#include "verbs/soft/process.hpp"
#include "verbs/soft/promotion.hpp"

namespace tutti::verbs::soft {
namespace {

int check_region(const void* address, std::size_t bytes, unsigned access) {
  constexpr unsigned offered = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                               IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                               IBV_ACCESS_HUGETLB | IBV_ACCESS_ON_DEMAND |
                               IBV_ACCESS_OPTIONAL_RANGE;  // optional: may be ignored
  if ((access & ~offered) != 0) return EOPNOTSUPP;
  if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0 &&
      (access & IBV_ACCESS_LOCAL_WRITE) == 0)
    return EINVAL;
  const auto first = reinterpret_cast<std::uintptr_t>(address);
  return bytes == 0 || first + bytes < first ? EINVAL : 0;
}

/// The next key of this entry of the table: one that has not been in use for long.
std::uint32_t next_key(Process& process, std::uint32_t index) {
  assert(index < regions_max);
  std::uint32_t& generation = process.region_generations[index];
  generation = (generation + 1) & ((1U << region_generation_bits) - 1);
  if (generation == 0) generation = 1;  // no key is 0
  return index << region_generation_bits | generation;
}

/// Stores the fields and then the key (release each): see RegionEntry.
void publish(Process& process, MemoryRegion& region, const Backings::Place& place, unsigned access,
             std::uint32_t key) {
  assert(key != 0);
  assert(key >> region_generation_bits == region.handle);
  assert(region.length != 0);
  assert(place.error == 0);
  constexpr auto release = std::memory_order_release;
  region.lkey = region.rkey = key;
  region.backing = place.number;
  RegionEntry& entry = process.view().regions()[region.handle];
  entry.domain.store(region.pd->handle, release);
  entry.access.store(access, release);
  entry.backing.store(place.number, release);
  entry.backing_offset.store(place.offset, release);
  entry.address.store(reinterpret_cast<std::uint64_t>(region.addr), release);
  entry.bytes.store(region.length, release);
  entry.key.store(region.rkey, release);
}

/// Takes the key away, and waits for initiators that have seen it.  False when one stays at work.
bool withdraw(Process& process, const MemoryRegion& region, std::unique_lock<std::mutex>& held) {
  assert(held.owns_lock());
  // First the key, then a look at initiators that may have read it: see QueuePairEntry::engaged.
  process.view().regions()[region.handle].key.store(0, std::memory_order_seq_cst);
  return process.wait_for_initiators_slow(held);
}

void release_backing(Process& process, std::uint32_t number) {
  if (number == 0 || !process.backings.release(number)) return;
  process.connections.announce_gone(number);
  process.wake_helper();
}

/// Requests that are on their way meet the former rights or the new ones; when this returns true,
/// nobody uses rights that were taken away.
bool change_rights(Process& process, const MemoryRegion& region, unsigned access,
                   std::unique_lock<std::mutex>& held) {
  assert(held.owns_lock());
  process.view().regions()[region.handle].access.store(access, std::memory_order_seq_cst);
  return process.wait_for_initiators_slow(held);
}

int refuse_while_busy() {
  errno = EBUSY;
  return IBV_REREG_MR_ERR_CMD;
}

int fail_input(int error) {
  errno = error;
  return IBV_REREG_MR_ERR_INPUT;
}

/// The region after the change; members that do not change are the region's present ones.
struct Change {
  ibv_pd* domain;
  void* address;
  std::size_t bytes;
  unsigned access;
};

/// 0 or an errno value.
int check_change(const MemoryRegion& region, int flags, const Change& wanted) {
  constexpr int known =
      IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
  if (flags == 0 || (flags & ~known) != 0 || !wanted.domain ||
      wanted.domain->context != region.context)
    return EINVAL;
  return check_region(wanted.address, wanted.bytes, wanted.access);
}

/// Where the memory lies; private memory is promoted first if the settings ask for that.
Backings::Place find_place(Process& process, const void* address, std::size_t bytes,
                           unsigned access) {
  assert(bytes != 0);
  const bool writable = (access & IBV_ACCESS_LOCAL_WRITE) != 0;
  const Pages pages = (access & IBV_ACCESS_ON_DEMAND) != 0 ? Pages::on_demand : Pages::now;
  Backings::Place place = process.backings.find(address, bytes, writable, pages);
  if (place.error != 0 || place.number != 0 || !process.settings().promotes) return place;
  const char* reason = nullptr;
  const detail::Descriptor file = promote(address, bytes, reason);
  if (file) place = process.backings.find(address, bytes, writable, pages);
  if (process.settings().logs_transports)
    std::fprintf(stderr, "tutti: region at %p of %zu bytes: %s%s\n", address, bytes,
                 file ? "promoted to a sealed file" : "stays private, as ", file ? "" : reason);
  return place;
}

}  // namespace

ibv_mr* register_region(ibv_pd* domain, void* address, std::size_t bytes, int access_flags) {
  Process& process = process_of(domain->context);
  const auto access = static_cast<unsigned>(access_flags);
  if (const int error = process.inherited() ? EINVAL : check_region(address, bytes, access))
    return refuse(error);
  const std::lock_guard guard(process.mutex);
  auto made = std::make_unique<MemoryRegion>();
  const Backings::Place place = find_place(process, address, bytes, access);
  if (place.error != 0) return refuse(place.error);
  std::uint32_t index = 0;
  if (!process.region_slots.take(index)) {
    process.backings.release(place.number);
    return refuse(ENOMEM);
  }
  MemoryRegion* const region = made.release();
  region->context = domain->context;
  region->pd = domain;
  region->addr = address;
  region->length = bytes;
  region->handle = index;
  publish(process, *region, place, access, next_key(process, index));
  add_object(domain->context, domain);
  return region;
}

int reregister_region(ibv_mr* handle, int flags, ibv_pd* domain, void* address, std::size_t bytes,
                      int access) {
  Process& process = process_of(handle->context);
  if (process.inherited()) return fail_input(EINVAL);
  std::unique_lock guard(process.mutex);
  auto& region = *static_cast<MemoryRegion*>(handle);
  const RegionEntry& entry = process.view().regions()[region.handle];
  Change wanted{region.pd, region.addr, region.length,
                entry.access.load(std::memory_order_relaxed)};
  if ((flags & IBV_REREG_MR_CHANGE_PD) != 0) wanted.domain = domain;
  if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0) {
    wanted.address = address;
    wanted.bytes = bytes;
  }
  if ((flags & IBV_REREG_MR_CHANGE_ACCESS) != 0) wanted.access = static_cast<unsigned>(access);
  if (const int error = check_change(region, flags, wanted)) return fail_input(error);
  // Also when only the access changes: the memory may not be writable, which the former did not
  // need.
  Backings::Place place;
  try {
    place = find_place(process, wanted.address, wanted.bytes, wanted.access);
  } catch (const std::bad_alloc&) {
    place.error = ENOMEM;
  }
  if (place.error != 0) return fail_input(place.error);

  // The keys that peers have been given stay valid where only the rights change.
  const bool keeps_keys = flags == IBV_REREG_MR_CHANGE_ACCESS;
  if (keeps_keys && place.number == region.backing &&
      entry.key.load(std::memory_order_relaxed) == region.rkey) {
    release_backing(process, place.number);  // find_place() has added a user
    return change_rights(process, region, wanted.access, guard) ? 0 : refuse_while_busy();
  }
  if (!withdraw(process, region, guard)) {
    release_backing(process, place.number);
    return refuse_while_busy();
  }
  release_backing(process, region.backing);
  assert(static_cast<ProtectionDomain*>(region.pd)->users > 0);
  --static_cast<ProtectionDomain*>(region.pd)->users;
  ++static_cast<ProtectionDomain*>(wanted.domain)->users;
  region.pd = wanted.domain;
  region.addr = wanted.address;
  region.length = wanted.bytes;
  publish(process, region, place, wanted.access,
          keeps_keys ? region.rkey : next_key(process, region.handle));
  return 0;
}

int deregister_region(ibv_mr* handle) {
  Process& process = process_of(handle->context);
  if (process.inherited()) return EINVAL;
  std::unique_lock guard(process.mutex);
  auto* const region = static_cast<MemoryRegion*>(handle);
  if (!withdraw(process, *region, guard)) return EBUSY;
  process.region_slots.give_back(region->handle);
  release_backing(process, region->backing);
  remove_object(region->context, region->pd);
  delete region;
  return 0;
}

}  // namespace tutti::verbs::soft
