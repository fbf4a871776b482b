// Promise: a rank of another host that is stopped or late is waited for, also if the queue of its
// port is full.  The test takes longer than a host may be silent.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "bootstrap/reunion.hpp"
#include "bootstrap/socket.hpp"
#include "tutti/detail/clock.hpp"

namespace tutti::bootstrap {
namespace {

using namespace std::chrono_literals;

/// On another host, as far as addresses tell, a rank whose queue is full answers nobody, as a host
/// that has vanished.  Its host answers at another port.
TEST(FullQueue, is_no_host_that_has_vanished) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
  Address elsewhere;
  std::memcpy(&elsewhere.storage, &address, sizeof address);
  elsewhere.bytes = sizeof address;
  const UnsharedDescriptor listener = listen_at(std::vector{elsewhere}, "the test's port");
  ASSERT_EQ(::listen(listener.get(), 0), 0);
  const Address full = own_end_of(listener.get());
  std::memcpy(&address, &full.storage, sizeof address);
  std::vector<UnsharedDescriptor> waiting;
  for (int i = 0; i < 8; ++i) waiting.push_back(begin_to_connect(full));
  std::vector<std::thread> threads;
  for (const std::uint32_t stopped : {0u, 1u})  // a leader, and one who is awaited
    threads.emplace_back([&, stopped] {
      const Rank self{1 - stopped};
      MeetingPlace place(true);
      std::vector<MeetingCard> cards(2, place.card(Rank{0}));
      cards[stopped].address = {127, 0, 0, 2};
      cards[stopped].port = address.sin_port;
      place.know(cards, self);
      const MeetingPlace::Met met =
          place.meet(Deadline::after(vanished_after + 7s, detail::MonotonicClock::read()), 10s);
      EXPECT_EQ(met.exchange, nullptr);
      EXPECT_EQ(met.missing, std::vector{Rank{stopped}});
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tutti::bootstrap
