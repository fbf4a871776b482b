// Where datagrams go: a port of a host, in the same terms as a connected queue pair's path.  The
// process is named by the queue pair number of each request.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace tutti::verbs::soft {

struct AddressHandle : ibv_ah {
  ibv_ah_attr attributes{};
  std::uint32_t destination = 0;  // see find_destination(); what is sent to 0 is lost
};

/// NULL with errno: EINVAL, or EOPNOTSUPP for a multicast group.
ibv_ah* create_address_handle(ibv_pd* domain, ibv_ah_attr* attributes);
int destroy_address_handle(ibv_ah* handle);

}  // namespace tutti::verbs::soft
