// Where datagrams go: a port of a host, described as in a connected queue pair's path.  The queue
// pair number in each request names the process.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace tutti::verbs::soft {

struct AddressHandle : ibv_ah {
  ibv_ah_attr attributes{};
  std::uint32_t destination = 0;  // see find_destination(); datagrams to 0 are lost
};

/// NULL with errno: EINVAL, or EOPNOTSUPP for a multicast group.
ibv_ah* create_address_handle(ibv_pd* domain, ibv_ah_attr* attributes);
int destroy_address_handle(ibv_ah* handle);

}  // namespace tutti::verbs::soft
