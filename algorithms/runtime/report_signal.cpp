#include "runtime/report_signal.hpp"

#include <signal.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <string>
#include <tutti/status.hpp>

namespace tutti::runtime {
namespace {

std::atomic<std::uint32_t> signals = 0;
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
struct sigaction before = {};

void count(int signal, siginfo_t* information, void* context) {
  signals.fetch_add(1, std::memory_order_relaxed);
  if ((before.sa_flags & SA_SIGINFO) != 0)
    before.sa_sigaction(signal, information, context);
  else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
    before.sa_handler(signal);
}

}  // namespace

void report_on_signal(int signal) {
  static std::mutex one_at_a_time;
  static int installed = 0;
  const std::lock_guard lock(one_at_a_time);
  if (installed == signal) return;
  struct sigaction action = {};
  action.sa_sigaction = count;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  if (::sigaction(signal, &action, &before) != 0)
    throw Error(
        ErrorCode::system,
        "TUTTI_REPORT_SIGNAL: sigaction(" + std::to_string(signal) + "): " + std::strerror(errno),
        errno);
  installed = signal;
}

std::uint32_t report_signals() noexcept {
  return signals.load(std::memory_order_relaxed);
}

}  // namespace tutti::runtime
