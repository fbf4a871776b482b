// See soft_clock.hpp.
#include "verbs/soft/soft_clock.hpp"

#include "verbs/soft/process.hpp"
#include "verbs/soft/virtual_time.hpp"

namespace tutti::verbs::soft {
namespace {

bool is_virtual() noexcept {
  const VirtualTime* const virtual_time = VirtualTime::joined();
  return virtual_time && virtual_time->is_entered();
}

class SoftClock final : public detail::Clock {
 public:
  Timeout now() noexcept override {
    if (!is_virtual()) return detail::MonotonicClock::read();
    return std::chrono::nanoseconds(VirtualTime::joined()->now() / picoseconds_per_ns);
  }
  bool is_simulated() const noexcept override { return VirtualTime::joined() != nullptr; }
  void charge_work(std::size_t bytes) noexcept override {
    if (!is_virtual()) return;
    if (Process* const process = Process::of_this_process())
      process->timing()->charge_work(*process, bytes);
  }
};

}  // namespace

detail::Clock& soft_clock() noexcept {
  static SoftClock clock;
  return clock;
}

void enter_virtual_time() noexcept {
  VirtualTime::joined()->enter();
}

void leave_virtual_time() noexcept {
  if (Process* const process = Process::of_this_process()) process->timing()->drain(*process);
  VirtualTime::joined()->leave();
}

}  // namespace tutti::verbs::soft
