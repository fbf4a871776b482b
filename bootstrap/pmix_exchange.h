/* The exchange of ranks that a launcher with a PMIx server has started, for the C interface
 * (tutti/tutti.h); see bootstrap/pmix_exchange.hpp.  Library tutti_pmix. */
#ifndef TUTTI_PMIX_EXCHANGE_H
#define TUTTI_PMIX_EXCHANGE_H

#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Collective over all ranks of the job.  timeout_ns: until all ranks have called it; 0: 30 s. */
TUTTI_EXPORT tutti_status tutti_pmix_exchange(int64_t timeout_ns, tutti_exchange** exchange,
                                              tutti_failure* failure);

#ifdef __cplusplus
}
#endif

#endif
