// The devices that a test program shall use: those of DEVICES_UNDER_TEST ("rxe0,rxe1:1"), else
// every port of a real device that is active.  Without any, main() says why and ends with 77, which
// CTest reports as skipped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::test {

/// Ports that can be connected by address, as "name:port"; never empty.
const std::vector<std::string>& devices();

/// The device of rank `rank`, where ranks share `count` devices in turn.
inline const std::string& device_of(std::uint32_t rank, std::size_t count) {
  return devices()[rank % count];
}

}  // namespace tutti::test
