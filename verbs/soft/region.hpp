// Memory regions as the caller has them: made, changed, taken down.  Initiators see the table of
// memory.hpp instead.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>

namespace tutti::verbs::soft {

ibv_mr* register_region(ibv_pd* domain, void* address, std::size_t bytes, int access);

/// Like ibv_rereg_mr(3), with errno on failure.  The keys change, so that the former ones stay
/// refused.  IBV_REREG_MR_ERR_INPUT: the region is unchanged.  IBV_REREG_MR_ERR_CMD, with EBUSY: an
/// initiator stays at work, and nobody can use the region until it is changed once more,
/// successfully.
int reregister_region(ibv_mr* region, int flags, ibv_pd* domain, void* address, std::size_t bytes,
                      int access);

int deregister_region(ibv_mr* region);

}  // namespace tutti::verbs::soft
