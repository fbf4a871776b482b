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
struct sigaction before[NSIG] = {};  // by signal: the handler that the program had

void count(int signal, siginfo_t* information, void* context) {
  signals.fetch_add(1, std::memory_order_relaxed);
  const struct sigaction& own = before[signal];
  if ((own.sa_flags & SA_SIGINFO) != 0)
    own.sa_sigaction(signal, information, context);
  else if (own.sa_handler != SIG_DFL && own.sa_handler != SIG_IGN)
    own.sa_handler(signal);
}

[[noreturn]] void refuse(int signal) {
  throw Error(
      ErrorCode::system,
      "TUTTI_REPORT_SIGNAL: sigaction(" + std::to_string(signal) + "): " + std::strerror(errno),
      errno);
}

}  // namespace

void report_on_signal(int signal) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  struct sigaction now = {};
  if (::sigaction(signal, nullptr, &now) != 0) refuse(signal);
  const bool is_installed = (now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == count;
  if (is_installed) return;
  const bool is_handled =
      (now.sa_flags & SA_SIGINFO) != 0 || (now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN);
  before[signal] = now;
  struct sigaction action = {};
  action.sa_sigaction = count;
  // Where the program has a handler, what its signal does to system calls stays as it is.
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | (is_handled ? now.sa_flags & SA_RESTART : SA_RESTART);
  action.sa_mask = now.sa_mask;
  if (::sigaction(signal, &action, nullptr) != 0) refuse(signal);
}

std::uint32_t report_signals() noexcept {
  return signals.load(std::memory_order_relaxed);
}

}  // namespace tutti::runtime
