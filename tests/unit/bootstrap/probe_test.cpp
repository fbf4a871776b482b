// Promise: a rank that does not come to a meeting is given up only if its port or its host says
// that it is gone; one that is stopped or late is waited for.
#include "bootstrap/probe.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "bootstrap/socket.hpp"
#include "silent_hosts.hpp"
#include "tutti/detail/clock.hpp"
#include "tutti/exchange.hpp"

namespace tutti::bootstrap {
namespace {

using namespace std::chrono_literals;
using Finding = Probe::Finding;

/// A probe by a rank of this host.  The test sets the time.
class Probing {
 public:
  explicit Probing(const Address& place) : probe_(place, at_host(here)) {}

  /// Takes the next answer of the network, which must come.
  Finding answer() {
    if (probe_.begin(now_) != Finding::undecided) return Finding::gone;
    pollfd awaited = probe_.awaited();
    EXPECT_EQ(::poll(&awaited, 1, 10'000), 1) << "nothing was said";
    return probe_.look(awaited.revents, now_);
  }
  /// Lets time pass without an answer.
  Finding silence(Timeout time) {
    if (probe_.begin(now_) != Finding::undecided) return Finding::gone;
    now_ += time;
    return probe_.look(0, now_);
  }
  /// Takes an answer after a time in which nobody has looked.  The thread was stopped before poll()
  /// told it of the answer, or after that.
  Finding late_answer(Timeout time, bool is_told_of_it) {
    if (probe_.begin(now_) != Finding::undecided) return Finding::gone;
    pollfd awaited = probe_.awaited();
    EXPECT_EQ(::poll(&awaited, 1, 10'000), 1) << "nothing was said";
    now_ += time;
    return probe_.look(is_told_of_it ? awaited.revents : short{0}, now_);
  }
  /// The time until the probe connects again; nothing while it has a connection or is making one.
  std::optional<Timeout> pause() const {
    if (probe_.awaited().fd >= 0) return std::nullopt;
    return probe_.sleep_max(now_);
  }
  Timeout sleep_max() const { return probe_.sleep_max(now_); }
  int socket() const { return probe_.awaited().fd; }
  void reset() { probe_.reset(); }

 private:
  Probe probe_;
  Timeout now_ = detail::now();
};

TEST(Probe, finds_that_nobody_has_the_port) {
  std::optional<Port> port(here);
  Probing probing(port->place());
  port.reset();
  EXPECT_EQ(probing.answer(), Finding::gone);
}

TEST(Probe, waits_for_a_rank_that_has_not_come) {
  for (const std::uint32_t host : {here, elsewhere}) {
    const Port port(host);
    Probing probing(port.place());
    EXPECT_EQ(probing.answer(), Finding::undecided);
    EXPECT_EQ(probing.silence(24h), Finding::undecided);
    EXPECT_EQ(probing.sleep_max(), wait_forever);
  }
}

TEST(Probe, finds_that_another_program_has_the_port) {
  Port port(here);
  Probing probing(port.place());
  EXPECT_EQ(probing.answer(), Finding::undecided);
  const UnsharedDescriptor connection = port.accept();
  ASSERT_EQ(::send(connection.get(), "220", 3, MSG_NOSIGNAL), 3);
  EXPECT_EQ(probing.answer(), Finding::gone);
}

/// A rank that empties the queue of its port ends the connections in it.
TEST(Probe, connects_again_after_pauses_that_grow) {
  Port port(here);
  Probing probing(port.place());
  for (const Timeout pause : {5ms, 10ms, 20ms, 40ms, 80ms, 160ms, 200ms, 200ms}) {
    EXPECT_EQ(probing.answer(), Finding::undecided);
    ASSERT_EQ(probing.pause(), std::nullopt);
    (void)port.accept();
    EXPECT_EQ(probing.answer(), Finding::undecided);
    ASSERT_EQ(probing.pause(), pause);
    EXPECT_EQ(probing.silence(pause - 1ns), Finding::undecided);
    EXPECT_EQ(probing.silence(1ns), Finding::undecided);
    EXPECT_EQ(probing.pause(), Timeout::zero());
  }
  probing.reset();
  EXPECT_EQ(probing.answer(), Finding::undecided);
  (void)port.accept();
  EXPECT_EQ(probing.answer(), Finding::undecided);
  EXPECT_EQ(probing.pause(), 5ms);
}

TEST(Probe, takes_no_answer_on_its_own_host_for_a_full_queue) {
  Port port(here);
  port.fill_queue();
  Probing probing(port.place());
  EXPECT_EQ(probing.silence(24h), Finding::undecided);
  EXPECT_EQ(probing.sleep_max(), wait_forever);
}

/// The queue of the port is full, but its host refuses connections to the other port, which is an
/// answer.
TEST(Probe, asks_another_host_whether_it_is_still_there) {
  Port port(elsewhere);
  port.fill_queue();
  Probing probing(port.place());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(probing.silence(0s), Finding::undecided);
    EXPECT_EQ(probing.sleep_max(), vanished_after - host_answers_within);
    EXPECT_EQ(probing.silence(vanished_after - host_answers_within), Finding::undecided);
    if (!probing.pause()) {
      EXPECT_EQ(probing.answer(), Finding::undecided);
    }
    ASSERT_NE(probing.pause(), std::nullopt);
    EXPECT_EQ(probing.silence(*probing.pause()), Finding::undecided);
  }
}

TEST(Probe, finds_that_a_host_has_vanished) {
  Port port(elsewhere);
  port.fill_queue();
  const std::unique_ptr<Port> other_port = silent_port_1(elsewhere);
  if (!other_port) GTEST_SKIP() << "port 1 is not free for this process";
  Probing probing(port.place());
  EXPECT_EQ(probing.silence(vanished_after - host_answers_within), Finding::undecided);
  EXPECT_EQ(probing.silence(host_answers_within - 1ns), Finding::undecided);
  EXPECT_EQ(probing.silence(1ns), Finding::host_gone);
}

/// The rank's queue was so full that its kernel has lost the connection, of which this one has
/// heard nothing.  The host refuses connections at port 1, which is an answer.
TEST(Probe, asks_the_host_after_a_connection_that_ended_in_silence) {
  Port port(elsewhere);
  port.fall_silent();
  Probing probing(port.place());
  EXPECT_EQ(probing.answer(), Finding::undecided);
  expect_answers_soon(probing.socket());
  ASSERT_EQ(::send(probing.socket(), "?", 1, MSG_NOSIGNAL), 1);
  EXPECT_EQ(probing.answer(), Finding::undecided);
  EXPECT_EQ(probing.sleep_max(), probing.pause() ? probe_pause_first : host_answers_within);
  if (!probing.pause()) {
    EXPECT_EQ(probing.answer(), Finding::undecided);
  }
  ASSERT_NE(probing.pause(), std::nullopt);
  EXPECT_EQ(probing.silence(*probing.pause()), Finding::undecided);
  EXPECT_EQ(probing.answer(), Finding::undecided);
  EXPECT_EQ(probing.sleep_max(), wait_forever) << "it was not taken for connected";
}

/// "No route" comes from the network, not from the host, so it does not count as an answer.
TEST(Probe, finds_that_there_is_no_way_to_a_host) {
  Probing probing(at_no_host());
  Timeout passed = 0s;
  for (int attempts = 0;; ++attempts) {
    ASSERT_LT(attempts, 1000);
    if (probing.silence(0s) == Finding::host_gone) break;
    ASSERT_NE(probing.pause(), std::nullopt);
    passed += *probing.pause();
    if (probing.silence(*probing.pause()) == Finding::host_gone) break;
  }
  EXPECT_GE(passed, vanished_after);
  EXPECT_LE(passed, vanished_after + probe_pause_last);
}

/// A hub that was stopped for a while looks late at an answer that its kernel has received in time.
TEST(Probe, an_answer_counts_however_late_it_is_looked_at) {
  for (const bool is_told_of_it : {false, true}) {
    Port port(elsewhere);
    Probing probing(port.place());
    EXPECT_EQ(probing.late_answer(vanished_after, is_told_of_it), Finding::undecided);
    EXPECT_EQ(probing.sleep_max(), wait_forever) << "it was not taken for connected";
  }
}

/// While the queue of the rank's port is full, this also holds for an answer of its host.
TEST(Probe, an_answer_of_the_host_counts_however_late_it_is_looked_at) {
  for (const bool is_told_of_it : {false, true}) {
    Port port(elsewhere);
    port.fill_queue();
    std::optional<Port> other_port;
    try {
      other_port.emplace(elsewhere, std::uint16_t{1});
    } catch (const Error& error) {
      GTEST_SKIP() << "port 1 is not free for this process: " << error.what();
    }
    Probing probing(port.place());
    EXPECT_EQ(probing.silence(vanished_after - host_answers_within), Finding::undecided);
    EXPECT_EQ(probing.late_answer(host_answers_within, is_told_of_it), Finding::undecided);
    EXPECT_NE(probing.pause(), std::nullopt) << "the answer was not taken";
  }
}

}  // namespace
}  // namespace tutti::bootstrap
