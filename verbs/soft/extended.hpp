// The entries of verbs_context, through which the inline functions of libibverbs' header reach the
// device: ibv_query_port, ibv_query_device_ex, ibv_create_qp_ex, ibv_create_cq_ex.  Those functions
// themselves answer EOPNOTSUPP for entries that stay empty.
#pragma once

#include <infiniband/verbs.h>

namespace tutti::verbs::soft {

void offer_extended(verbs_context& context);

/// Like ibv_qp_to_qp_ex: NULL unless the queue pair was made to build its requests that way.
ibv_qp_ex* extended_queue_pair(ibv_qp* pair);

}  // namespace tutti::verbs::soft
