#include <tutti/detail/c_boundary.hpp>

#include "bootstrap/pmix_exchange.h"
#include "bootstrap/pmix_exchange.hpp"

tutti_status tutti_pmix_exchange(int64_t timeout_ns, tutti_exchange** exchange,
                                 tutti_failure* failure) {
  return tutti::detail::make_exchange(timeout_ns, exchange, failure, [](tutti::Timeout timeout) {
    return tutti::pmix_exchange(timeout);
  });
}
