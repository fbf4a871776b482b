#include <string>
#include <tutti/detail/c_boundary.hpp>

#include "bootstrap/pmix_exchange.h"
#include "bootstrap/pmix_exchange.hpp"

tutti_status tutti_pmix_exchange(int64_t timeout_ns, tutti_exchange** exchange,
                                 tutti_failure* failure) {
  using namespace tutti;
  return detail::at_c_boundary(failure, [&] {
    if (exchange == nullptr)
      throw Error(ErrorCode::invalid_argument,
                  "exchange NULL: expected where it is to be written to");
    if (timeout_ns < 0)
      throw Error(ErrorCode::invalid_argument,
                  "timeout_ns " + std::to_string(timeout_ns) + ": expected 0 or more");
    *exchange = new tutti_exchange{.owned = timeout_ns == 0 ? pmix_exchange()
                                                            : pmix_exchange(Timeout(timeout_ns))};
  });
}
