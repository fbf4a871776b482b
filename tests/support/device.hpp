// Which device tests of collectives run on: the software device, or those of DEVICES_UNDER_TEST
// ("rxe0,rxe1"), which the ranks take in turn.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <tutti/communicator.hpp>
#include <tutti/exchange.hpp>
#include <utility>
#include <vector>

namespace tutti::test {

inline bool device_is_soft() {
  return std::getenv("DEVICES_UNDER_TEST") == nullptr;
}

/// As often as that on the software device, and less often where a message takes longer.
inline std::uint32_t times(std::uint32_t count) {
  return device_is_soft() ? count : (count + 9) / 10;
}

/// What a test goes through on the software device, or the few where each takes long.
template <class T>
std::vector<T> all_or_few(std::vector<T> all, std::vector<T> few) {
  return device_is_soft() ? std::move(all) : std::move(few);
}

/// What a test goes through, or the few that a sanitizer looks at: it looks for what shows in each
/// call, and takes many times as long.
template <class T>
std::vector<T> all_or_sanitized([[maybe_unused]] std::vector<T> all,
                                [[maybe_unused]] std::vector<T> few) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return few;
#else
  return all;
#endif
}

/// As long as that on the software device, and longer where ranks wait for an emulated processor.
inline std::chrono::milliseconds patiently(std::chrono::milliseconds time) {
  return device_is_soft() ? time : 5 * time;
}

inline std::string device_of(Rank self) {
  const char* const given = std::getenv("DEVICES_UNDER_TEST");
  if (!given) return "soft0";
  std::vector<std::string> devices(1);
  for (const char* next = given; *next != '\0'; ++next)
    if (*next == ',')
      devices.emplace_back();
    else
      devices.back() += *next;
  return devices[index_of(self) % devices.size()];
}

inline ContextOptions on_test_device(const Exchange& exchange) {
  ContextOptions options;
  options.device = device_of(exchange.self());
  options.arena_bytes = 4u << 20;
  options.ranks_per_node = {1};  // everything goes through the device
  return options;
}

}  // namespace tutti::test
