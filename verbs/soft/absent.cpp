// In place of the software device where the library is built without it (TUTTI_SOFT_DEVICE=OFF): a
// driver that has no device, in a process that is never in virtual time.
#include "tutti/detail/clock.hpp"
#include "verbs/driver.hpp"
#include "verbs/soft/soft_clock.hpp"
#include "verbs/soft/virtual_time.hpp"

namespace tutti::verbs {
namespace {

ibv_device** get_device_list(int* count) {
  static ibv_device* none[] = {nullptr};
  if (count) *count = 0;
  return none;
}

void free_device_list(ibv_device**) {}

}  // namespace

const Driver& soft_driver() noexcept {
  // What takes a device or something made with one is never called.
  static const Driver driver = [] {
    Driver without{};
    without.name = "soft";
    without.clock = libibverbs_driver().clock;
    without.get_device_list = get_device_list;
    without.free_device_list = free_device_list;
    return without;
  }();
  return driver;
}

namespace soft {

VirtualTime* VirtualTime::joined() noexcept {
  return nullptr;
}
bool VirtualTime::is_entered() const noexcept {
  return false;
}
Picoseconds VirtualTime::now() const noexcept {
  return {};
}
void enter_virtual_time() noexcept {}
void leave_virtual_time() noexcept {}

}  // namespace soft

}  // namespace tutti::verbs
