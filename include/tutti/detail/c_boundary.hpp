// Where the C interface (tutti.h) meets the C++ one: what is shared by the libraries that have a
// part of it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include "tutti/exchange.hpp"
#include "tutti/status.hpp"
#include "tutti/timeout.hpp"
#include "tutti/tutti.h"

struct tutti_exchange {
  std::unique_ptr<tutti::Exchange> owned;  // nullptr: borrowed, from tutti_run_local()
  tutti::Exchange* exchange = owned.get();
  int communicators = 0;  // that use it
};

namespace tutti::detail {

/// Copies a text into the failure; a text without room is cut and ends in "...".
inline void set_text(tutti_failure& failure, std::string_view text) noexcept {
  constexpr std::size_t room = sizeof failure.text - 1;
  const std::size_t length = std::min(text.size(), room);
  std::memcpy(failure.text, text.data(), length);
  failure.text[length] = '\0';
  if (length < text.size()) std::memcpy(failure.text + room - 3, "...", 3);
}

inline tutti_status report(tutti_failure* failure, ErrorCode code, std::string_view text,
                           int system_errno = 0) noexcept {
  const tutti_status status =
      code == ErrorCode::invalid_argument ? TUTTI_INVALID_ARGUMENT : TUTTI_SETUP_FAILED;
  if (failure != nullptr) {
    *failure = {};
    failure->status = status;
    failure->error = static_cast<tutti_error>(code) + 1;
    failure->peer = -1;
    failure->system_errno = system_errno;
    set_text(*failure, text);
  }
  return status;
}

/// Calls `f`, and turns what it throws into a failure.
template <class F>
tutti_status at_c_boundary(tutti_failure* failure, F&& f) noexcept {
  try {
    f();
    return TUTTI_OK;
  } catch (const Error& error) {
    return report(failure, error.code(), error.what(), error.system_errno());
  } catch (const std::bad_alloc&) {
    return report(failure, ErrorCode::limit_exceeded, "no memory left");
  } catch (const std::exception& error) {
    return report(failure, ErrorCode::system, error.what());
  } catch (...) {
    return report(failure, ErrorCode::system, "an exception of no known type");
  }
}

/// Writes the exchange that `make` returns, of a timeout that is 30 s if `timeout_ns` is 0.
template <class Make>
tutti_status make_exchange(int64_t timeout_ns, tutti_exchange** exchange, tutti_failure* failure,
                           Make&& make) {
  return at_c_boundary(failure, [&] {
    if (exchange == nullptr)
      throw Error(ErrorCode::invalid_argument,
                  "exchange NULL: expected where it is to be written to");
    if (timeout_ns < 0)
      throw Error(ErrorCode::invalid_argument,
                  "timeout_ns " + std::to_string(timeout_ns) + ": expected 0 or more");
    const Timeout timeout = timeout_ns == 0 ? std::chrono::seconds(30) : Timeout(timeout_ns);
    *exchange = new tutti_exchange{.owned = make(timeout)};
  });
}

}  // namespace tutti::detail
