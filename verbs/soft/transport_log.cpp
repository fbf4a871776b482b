#include "verbs/soft/transport_log.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <new>
#include <tutti/detail/enumerators.hpp>

#include "verbs/soft/memory.hpp"
#include "verbs/soft/queue_pair.hpp"

namespace tutti::verbs::soft {
namespace {

const char* name_of(Way way) {
  return detail::name_in<Way::none>(
      {"plain copies", "shared map", "process_vm_writev", "bounce", "no transport"}, way);
}

}  // namespace

void log_way_slow(QueuePair& pair, Way way, const Region* region, const char* reason,
                  int error) noexcept {
  LoggedWays& logged = pair.target.logged;
  const std::pair said(region ? region->backing : 0, way);
  if (std::find(logged.begin(), logged.end(), said) != logged.end()) return;
  try {
    logged.push_back(said);
  } catch (const std::bad_alloc&) {
    return;
  }
  char place[64] = "all memory";
  if (region)
    std::snprintf(place, sizeof(place), "region at 0x%" PRIx64 " of %" PRIu64 " bytes",
                  region->address, region->bytes);
  // One call, because other threads and processes write there, too.
  std::fprintf(stderr, "tutti: %s: queue pair 0x%x -> 0x%x, %s: %s, as %s%s%s\n",
               pair.context->device->name, pair.qp_num, pair.attributes.dest_qp_num, place,
               name_of(way), reason, error != 0 ? ": " : "",
               error != 0 ? std::strerror(error) : "");
}

}  // namespace tutti::verbs::soft
