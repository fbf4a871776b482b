// Promise: what the ranks of a host tell the others is the incident that was first on that host.
#include "runtime/watched_exchange.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "bootstrap/node_map.hpp"

namespace tutti::runtime {
namespace {

/// A side channel that remembers what it was told, and delivers nothing yet.
class SlowChannel final : public Exchange {
 public:
  explicit SlowChannel(std::uint32_t self) : self_(self) {}
  Rank self() const noexcept override { return Rank{self_}; }
  std::uint32_t rank_count() const noexcept override { return 2; }
  void allgather(std::span<const std::byte>, std::span<std::byte>, Timeout) override {}
  void barrier(Timeout) override {}
  void announce(Incident incident) noexcept override { announced.push_back(incident); }

  std::vector<Incident> announced;

 private:
  std::uint32_t self_;
};

TEST(WatchedExchange, announces_the_incident_that_was_first_on_its_host) {
  SlowChannel channels[] = {SlowChannel(0), SlowChannel(1)};
  WatchedExchange first(channels[0], 71), second(channels[1], 72);
  std::vector<WatchedRank> all;
  for (const WatchedExchange* one : {&first, &second})
    all.push_back({.host = bootstrap::host_identity(), .process = ::getpid(), .card = one->card()});
  bootstrap::ProcessWatches watches;
  second.watch(all, watches);
  first.watch(all, watches);
  second.announce({.kind = Incident::Kind::aborted, .rank = Rank{1}});
  // Rank 0 has heard of it from the board, and gives up in turn.
  EXPECT_EQ(first.incident().rank, Rank{1});
  first.announce({.kind = Incident::Kind::aborted, .rank = Rank{0}});
  for (const SlowChannel& channel : channels) {
    ASSERT_EQ(channel.announced.size(), 1u);
    EXPECT_EQ(channel.announced[0].rank, Rank{1});
  }
}

/// A process that has ended has ended for good, also if its rank had left before.
TEST(WatchedExchange, knows_which_processes_have_ended) {
  const pid_t child = ::fork();
  if (child == 0) {
    (void)::pause();
    ::_exit(0);
  }
  SlowChannel channel(0);
  WatchedExchange first(channel, 73);
  WatchedRank own{.host = bootstrap::host_identity(), .process = ::getpid(), .card = first.card()};
  WatchedRank other = own;
  other.process = child;
  other.card = {};
  bootstrap::ProcessWatches watches;
  first.watch(std::vector{own, other}, watches);
  EXPECT_FALSE(first.has_ended(Rank{0}));
  EXPECT_FALSE(first.has_ended(Rank{1}));
  ::kill(child, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(first.has_ended(Rank{0}));
  EXPECT_TRUE(first.has_ended(Rank{1}));
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(first.has_ended(Rank{1}));
}

}  // namespace
}  // namespace tutti::runtime
