// Set-up steps that may fail on one rank only: all ranks learn of it and throw the same error, so
// that one of them can report it and none waits for a rank that has given up.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <tutti/exchange.hpp>
#include <tutti/status.hpp>
#include <type_traits>
#include <vector>

namespace tutti::bench {

inline constexpr Timeout setup_timeout = std::chrono::seconds(60);

/// Returns the contribution of every rank, in rank order.  Collective.
template <class T>
requires std::is_trivially_copyable_v<T> std::vector<T> gather(Exchange& exchange, const T& mine) {
  std::vector<T> all(exchange.rank_count());
  exchange.allgather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)),
                     setup_timeout);
  return all;
}

/// Returns the text that rank 0 gives.  Collective.
std::string share(Exchange& exchange, const std::string& text);

/// An Error that every rank has thrown alike, so that one rank need report it.
class ErrorOfAll : public Error {
 public:
  using Error::Error;
};

/// Runs `step`, which may throw Error, on every rank; throws the Error of the lowest rank on which
/// it did, as an ErrorOfAll.  A std::bad_alloc counts as Error{limit_exceeded}.  Collective. `step`
/// itself may be collective if it fails on all ranks or on none.
void together(Exchange& exchange, const std::function<void()>& step);

}  // namespace tutti::bench
