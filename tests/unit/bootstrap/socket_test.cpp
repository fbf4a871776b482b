// Promise: what a connection says of its other end depends on the network alone, not on what else
// this process does.
#include "bootstrap/socket.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

#include "silent_hosts.hpp"
#include "tutti/detail/clock.hpp"

namespace tutti::bootstrap {
namespace {

using namespace std::chrono_literals;

/// Sends signals to the thread that made it, which are handled, until its end.
class Signals {
 public:
  Signals()
      : thread_([this, to = ::pthread_self()] {
          while (!ends_) {
            std::this_thread::sleep_for(5ms);
            ::pthread_kill(to, SIGUSR1);
          }
        }) {}
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals() {
    ends_ = true;
    thread_.join();
    ::sigaction(SIGUSR1, &before_, nullptr);
  }

 private:
  static struct sigaction handle() {
    struct sigaction ignored {
    }, before{};
    ignored.sa_handler = [](int) {};
    ::sigaction(SIGUSR1, &ignored, &before);
    return before;
  }

  struct sigaction before_ = handle();
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

/// Protects: a program that handles signals does not take a rank for gone because of them.
TEST(Socket, signals_are_no_silence) {
  Port port(here);
  port.fill_queue();
  const Signals signals;
  const auto now = [] { return detail::MonotonicClock::read(); };
  const Deadline deadline = Deadline::after(200ms, now());
  EXPECT_FALSE(connect_to({&port.place(), 1}, deadline));
  EXPECT_EQ(errno, ETIMEDOUT);
  EXPECT_TRUE(deadline.passed(now()));
}

/// Protects: a client that connects again whenever its connection is closed does not keep
/// close_waiting() busy forever.
TEST(Socket, a_queue_is_emptied_of_so_many_at_most) {
  const Port port(here);
  std::vector<UnsharedDescriptor> waiting;
  for (int i = 0; i < 3; ++i)
    waiting.push_back(
        connect_to({&port.place(), 1}, Deadline::after(5s, detail::MonotonicClock::read())));
  EXPECT_EQ(close_waiting(port.listener(), 2), 2u);
  EXPECT_EQ(close_waiting(port.listener(), 2), 1u);
  EXPECT_EQ(close_waiting(port.listener(), 2), 0u);
}

}  // namespace
}  // namespace tutti::bootstrap
