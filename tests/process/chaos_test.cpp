// Promise: whatever collectives ranks are in, and whatever they have met by, when one of them is
// killed at a random moment, while another one may be stopped for a while, every survivor returns
// in time with the rank that died, and none that was stopped is taken for dead.  Results before
// that are right.
//
// chaos --runs=N --seed=S: the runs are S .. S + N - 1; a failure prints the seed of its run.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

#include "support/device.hpp"
#include "support/jobs.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

unsigned runs = 4;  // --runs=N
unsigned seed = 1;  // --seed=S

constexpr auto bound = 1s;            // the default
constexpr auto stopped_for = 1500ms;  // more than the bound
constexpr std::uint64_t calls = 100'000'000;

/// What happens in a run, by its seed.
struct Script {
  std::uint32_t ranks, ranks_per_node;
  int meeting;  // 0: local, 1: over TCP, 2: over an exchange without a side channel
  std::uint32_t victim, stopped;  // `ranks`: nobody is stopped
  std::chrono::microseconds stops_after, dies_after;

  explicit Script(unsigned of) {
    std::mt19937 random(of);
    const auto below = [&](std::uint32_t end) {
      return static_cast<std::uint32_t>(random() % end);
    };
    ranks = 2 + below(5);
    ranks_per_node = 1 + below(ranks);
    meeting = static_cast<int>(below(3));
    victim = below(ranks);
    stopped = below(2) == 0 ? ranks : below(ranks);
    if (stopped == victim) stopped = ranks;
    stops_after = std::chrono::microseconds(below(100'000));
    dies_after = std::chrono::microseconds(below(200'000));
  }
  std::string words() const {
    return std::to_string(ranks) + " ranks, " + std::to_string(ranks_per_node) +
           " a node, meeting " + std::to_string(meeting) + ", rank " + std::to_string(victim) +
           " dies" + (stopped < ranks ? ", rank " + std::to_string(stopped) + " is stopped" : "");
  }
};

struct Found {
  std::uint32_t rank = 0;
  std::int32_t status = 0;
  std::uint32_t peer = 0;
  Clock::time_point at = {};
  bool is_right = true;
  char text[256] = {};
};

/// Collectives in an order that all ranks share, until one fails.
Found call_until_failure(Exchange& exchange, const Script& script, unsigned of, int begun) {
  ContextOptions options = test::on_test_device(exchange);
  options.ranks_per_node = {script.ranks_per_node};
  Context context(options);
  Communicator communicator(context, exchange);
  const std::uint32_t ranks = script.ranks, self = index_of(exchange.self());
  constexpr std::size_t block = 300;
  std::vector<std::uint64_t> source(block * ranks, 1), target(block * ranks);
  const Reduction sum = built_in_reduction(BuiltIn::sum, ElementType::uint64);
  std::vector<Operation> operations;
  for (const std::size_t count : {std::size_t{1}, block})
    operations.push_back(allreduce(communicator, {.source = source.data(),
                                                  .target = target.data(),
                                                  .element_count = count,
                                                  .reduction = sum}));
  operations.push_back(barrier(communicator));
  operations.push_back(broadcast(
      communicator, {.buffer = target.data(), .bytes = 8 * block, .root = Rank{of % ranks}}));
  operations.push_back(reduce(communicator, {.source = source.data(),
                                             .target = target.data(),
                                             .element_count = 1,
                                             .reduction = sum,
                                             .root = Rank{of / 2 % ranks}}));
  operations.push_back(allgather<std::uint64_t>(
      communicator, std::span<const std::uint64_t>(source).first(block), std::span(target)));
  operations.push_back(alltoall<std::uint64_t>(communicator, std::span<const std::uint64_t>(source),
                                               std::span(target)));
  std::mt19937 random(of);
  Found found{.rank = self};
  Status status = Status::ok;
  for (std::uint64_t call = 0; status == Status::ok && call < calls; ++call) {
    const std::size_t which = random() % operations.size();
    status = operations[which].start();
    if (status == Status::ok) status = operations[which].wait(30s);
    if (which <= 1 && status == Status::ok) found.is_right = found.is_right && target[0] == ranks;
    if (call == 20 && ::write(begun, "", 1) != 1) found.is_right = false;
  }
  found.status = static_cast<std::int32_t>(status);
  found.at = Clock::now();
  found.peer = index_of(communicator.failure().peer);
  std::snprintf(found.text, sizeof found.text, "%s", communicator.failure().text);
  return found;
}

void play(unsigned of) {
  const Script script(of);
  SCOPED_TRACE("--seed=" + std::to_string(of) + " --runs=1: " + script.words());
  const std::uint16_t port = script.meeting == 1 ? test::free_port() : std::uint16_t{0};
  int ends[2], begun[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::pipe(begun), 0);
  Clock::time_point killed_at;
  const auto results = run_local(
      {.rank_count = script.ranks,
       .on_started =
           [&](const std::vector<pid_t>& processes) {
             char byte = 0;
             for (std::uint32_t rank = 0; rank < script.ranks; ++rank)
               if (::read(begun[0], &byte, 1) != 1) return;
             std::thread stopping([&] {
               if (script.stopped == script.ranks) return;
               std::this_thread::sleep_for(script.stops_after);
               ::kill(processes[script.stopped], SIGSTOP);
               std::this_thread::sleep_for(stopped_for);
               ::kill(processes[script.stopped], SIGCONT);
             });
             std::this_thread::sleep_for(script.dies_after);
             killed_at = Clock::now();
             ::kill(processes[script.victim], SIGKILL);
             stopping.join();
           }},
      [&](Exchange& local) {
        ::close(begun[0]);
        test::MuteExchange mute(local);
        const auto tcp = script.meeting == 1
                             ? test::meet_over_tcp(index_of(local.self()), script.ranks, port)
                             : nullptr;
        Exchange& exchange = tcp ? *tcp : script.meeting == 2 ? mute : local;
        const Found found = call_until_failure(exchange, script, of, begun[1]);
        return ::write(ends[1], &found, sizeof found) == sizeof found ? 0 : 2;
      });
  ::close(ends[1]);
  ::close(begun[0]);
  ::close(begun[1]);
  Found found;
  std::uint32_t survivors = 0;
  while (::read(ends[0], &found, sizeof found) == sizeof found) {
    ++survivors;
    EXPECT_TRUE(found.is_right) << "rank " << found.rank;
    EXPECT_EQ(found.status, static_cast<std::int32_t>(Status::peer_failed))
        << "rank " << found.rank << ": " << found.text;
    EXPECT_EQ(found.peer, script.victim) << "rank " << found.rank << ": " << found.text;
    const auto in_time = 2 * bound + (found.rank == script.stopped ? stopped_for : 0ms);
    EXPECT_LT(found.at - killed_at, in_time) << "rank " << found.rank << ": " << found.text;
  }
  ::close(ends[0]);
  EXPECT_EQ(survivors, script.ranks - 1);
  for (std::uint32_t rank = 0; rank < script.ranks; ++rank) {
    EXPECT_EQ(results[rank].signal, rank == script.victim ? SIGKILL : 0) << rank;
    EXPECT_EQ(results[rank].exit_status, 0) << rank;
  }
}

TEST(Chaos, every_survivor_names_the_dead_rank_in_time) {
  for (unsigned run = 0; run < runs && !HasFailure(); ++run) play(seed + run);
}

}  // namespace
}  // namespace tutti

int main(int count, char** values) {
  testing::InitGoogleTest(&count, values);
  for (int i = 1; i < count; ++i) {
    const std::string_view word = values[i];
    const auto read = [&](std::string_view name, unsigned& number) {
      if (word.starts_with(name))
        std::from_chars(word.data() + name.size(), word.data() + word.size(), number);
    };
    read("--runs=", tutti::runs);
    read("--seed=", tutti::seed);
  }
  return RUN_ALL_TESTS();
}
