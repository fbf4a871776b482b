#include "verbs/soft/soft_clock.hpp"

#include <atomic>
#include <cstdint>

#include "tutti/detail/check.hpp"
#include "verbs/soft/process.hpp"
#include "verbs/soft/virtual_time.hpp"

namespace tutti::verbs::soft {
namespace {

bool is_virtual() noexcept {
  const VirtualTime* const virtual_time = VirtualTime::joined();
  return virtual_time && virtual_time->is_entered();
}

/// Never steps back: real time goes on from where virtual time has ended, and vice versa.
class SoftClock final : public detail::Clock {
 public:
  Timeout now() noexcept override {
    if (!is_virtual()) return detail::MonotonicClock::read() + ahead_;
    return entered_at_ +
           std::chrono::nanoseconds(VirtualTime::joined()->now() / picoseconds_per_ns);
  }
  bool is_simulated() const noexcept override { return VirtualTime::joined() != nullptr; }
  void charge_work(std::size_t bytes) noexcept override {
    if (!is_virtual()) return;
    if (Process* const process = Process::of_this_process())
      process->timing()->charge_work(*process, bytes);
  }

  void announce(std::uint64_t* word, std::uint64_t message, std::size_t bytes) noexcept override {
    if (!is_virtual()) return std::atomic_ref(*word).store(message, std::memory_order_release);
    if (Process* const process = Process::of_this_process())
      process->timing()->announce(*process, word, message, bytes);
  }
  void charge_message() noexcept override {
    if (!is_virtual()) return;
    if (Process* const process = Process::of_this_process())
      process->timing()->charge_message(*process);
  }
  void charge_line() noexcept override {
    if (!is_virtual()) return;
    if (Process* const process = Process::of_this_process())
      process->timing()->charge_receives(*process, 1);
  }
  void charge_reading(std::size_t bytes) noexcept override {
    if (!is_virtual()) return;
    if (Process* const process = Process::of_this_process())
      process->timing()->charge_reading(*process, bytes);
  }

  void charge_copying(std::size_t bytes) noexcept override {
    if (!is_virtual()) return;
    if (Process* const process = Process::of_this_process())
      process->timing()->charge_copying(*process, bytes);
  }
  void say_busy(bool busy) noexcept override {
    if (!is_virtual()) return;
    if (Process* const process = Process::of_this_process()) process->timing()->say_busy(busy);
  }

  void begin_virtual(Timeout at) noexcept { entered_at_ = at; }
  void end_virtual(Timeout at) noexcept { ahead_ = at - detail::MonotonicClock::read(); }

 private:
  Timeout ahead_{0};
  Timeout entered_at_{0};
};

SoftClock clock;

Process& process_in_network() noexcept {
  Process* const process = Process::of_this_process();
  detail::check(VirtualTime::joined() && process && process->timing(),
                "virtual time needs a joined rank, an open device and TUTTI_SOFT_FABRIC", 0);
  return *process;
}

}  // namespace

detail::Clock& soft_clock() noexcept {
  return clock;
}

void enter_virtual_time() noexcept {
  Process& process = process_in_network();
  process.forget_times();
  clock.begin_virtual(clock.now());
  VirtualTime::joined()->enter(process.mutex);
}

void leave_virtual_time() noexcept {
  Process& process = process_in_network();
  process.timing()->drain(process);
  const Timeout end = clock.now();
  VirtualTime::joined()->leave(process.mutex);
  clock.end_virtual(end);
  process.wake_helper();
}

}  // namespace tutti::verbs::soft
