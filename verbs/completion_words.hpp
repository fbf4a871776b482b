// Completion statuses in words: what has happened, and what to look at.  The specification has them
// in InfiniBand Architecture 1.4, 11.6.2 (completion return status); ibv_poll_cq(3).
#pragma once

#include <infiniband/verbs.h>

#include <string_view>

namespace tutti::verbs {

/// Static texts.  `meaning` follows "rank 3: ", the peer of the connection.
struct CompletionWords {
  const char* name;  // "IBV_WC_RETRY_EXC_ERR"
  const char* meaning;
  const char* hint;
};

/// Also for a status that this header does not know.
CompletionWords words_of(ibv_wc_status status) noexcept;

}  // namespace tutti::verbs
