// Promise: when a rank dies, every other rank, adjacent to it or not, returns peer_failed within
// two seconds, names the rank, and exits cleanly; nothing is left behind.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <tutti/tutti.hpp>

#include "runtime/communicator.hpp"
#include "support/device.hpp"
#include "support/jobs.hpp"
#include "support/number_options.hpp"
#include "support/sceneries.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::codes_of;
using test::Meeting;
using test::Met;
using test::name_of_scenery;
using test::port_for;
using test::Scenery;

unsigned kills = 5;  // --kills=N

constexpr std::uint32_t rank_count = 8;

/// What is promised of every survivor of every kill.  Eight ranks that wait on the two processors
/// of an emulated machine are given longer, and the guarantees say so.
std::chrono::seconds bound() {
  return test::device_is_soft() ? 2s : 10s;
}

std::int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

/// Whether this process has anything in the file system that would outlive it.
bool maps_a_shared_file() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find(" /dev/shm/") != std::string::npos) return true;
  return false;
}

/// What a survivor found: shared with the test through a pipe, one record per rank.
struct Finding {
  std::uint32_t rank;
  std::int32_t status;
  std::uint32_t peer;
  std::int64_t at_ns;
  bool leaves_a_file = false;
};

const auto sceneries = testing::Values(Scenery{Meeting::local, 1}, Scenery{Meeting::tcp, 1},
                                       Scenery{Meeting::mute, 1}, Scenery{Meeting::local, 8},
                                       Scenery{Meeting::tcp, 3}, Scenery{Meeting::mute, 8});

ContextOptions options_of(const Exchange& exchange, std::uint32_t ranks_per_node) {
  ContextOptions options = test::on_test_device(exchange);
  options.ranks_per_node = {ranks_per_node};
  return options;
}

/// Allreduces with n = 1 until something goes wrong; a byte into `begun` after the first.
Finding reduce_until_failure(Exchange& exchange, std::uint32_t ranks_per_node, int begun) {
  Context context(options_of(exchange, ranks_per_node));
  Communicator communicator(context, exchange);
  std::uint64_t source = 1, target = 0;
  Operation operation =
      allreduce(communicator, {.source = &source,
                               .target = &target,
                               .element_count = 1,
                               .reduction = built_in_reduction(BuiltIn::sum, ElementType::uint64),
                               .per_round = {1, 1, 1}});
  Status status = Status::ok;
  while (status == Status::ok) {
    status = operation.start();
    if (status == Status::ok) status = operation.wait(20s);
    if (begun >= 0 && write(begun, "", 1) == 1) begun = -1;
  }
  const Failure& failure = communicator.failure();
  return {.rank = index_of(exchange.self()),
          .status = static_cast<std::int32_t>(status),
          .peer = index_of(failure.peer),
          .at_ns = now_ns(),
          .leaves_a_file = maps_a_shared_file()};
}

struct Scene {
  std::vector<LocalResult> results;
  std::vector<Finding> findings;
  std::uint32_t victim = 0;
  std::int64_t killed_at_ns = 0;
};

/// Until `count` bytes have come, at most a minute.
void read_bytes(int from, std::uint32_t count) {
  const auto end = std::chrono::steady_clock::now() + 60s;
  while (count > 0 && std::chrono::steady_clock::now() < end) {
    pollfd waited{.fd = from, .events = POLLIN, .revents = 0};
    char byte = 0;
    if (poll(&waited, 1, 1000) == 1 && read(from, &byte, 1) == 1) --count;
  }
  EXPECT_EQ(count, 0u) << "ranks that have not begun";
}

/// Runs the job, kills one rank at a random time after all have begun, and collects what the others
/// found.
Scene play(const Scenery& scenery, int signal_number, unsigned seed) {
  std::mt19937 random(seed);
  Scene scene;
  scene.victim = static_cast<std::uint32_t>(random() % rank_count);
  const auto delay = std::chrono::microseconds(random() % 250'000);
  const std::uint16_t port = port_for(scenery.meeting);
  int ends[2], begun[2];
  EXPECT_EQ(pipe(ends), 0);
  EXPECT_EQ(pipe(begun), 0);
  scene.results = run_local(
      {.rank_count = rank_count,
       .on_started =
           [&](const std::vector<pid_t>& processes) {
             read_bytes(begun[0], rank_count);
             std::this_thread::sleep_for(delay);
             scene.killed_at_ns = now_ns();
             kill(processes[scene.victim], signal_number);
           }},
      [&](Exchange& local) {
        const Met met(scenery.meeting, local, port);
        try {
          const Finding finding = reduce_until_failure(*met, scenery.ranks_per_node, begun[1]);
          if (write(ends[1], &finding, sizeof finding) != sizeof finding) return 2;
        } catch (const Error& error) {
          // Killed while the others were still being set up: the error must say who.
          const std::string text = error.what();
          const Finding finding{
              .rank = index_of(local.self()),
              .status = error.code() == ErrorCode::peer_failed ? -1 : -99,
              .peer = text.find("rank " + std::to_string(scene.victim)) == std::string::npos
                          ? UINT32_MAX
                          : scene.victim,
              .at_ns = now_ns()};
          if (finding.status != -1 || finding.peer == UINT32_MAX)
            std::fprintf(stderr, "set-up error: %s\n", error.what());
          if (write(ends[1], &finding, sizeof finding) != sizeof finding) return 2;
        }
        return 0;
      });
  close(ends[1]);
  close(begun[0]);
  close(begun[1]);
  Finding finding{};
  while (read(ends[0], &finding, sizeof finding) == sizeof finding)
    scene.findings.push_back(finding);
  close(ends[0]);
  return scene;
}

class Kill : public testing::TestWithParam<Scenery> {};

TEST_P(Kill, every_survivor_names_the_dead_rank_in_time) {
  if (GetParam().ranks_per_node > 1 && !test::device_is_soft())
    GTEST_SKIP() << "about shared memory";
  std::int64_t slowest_ns = 0;
  const unsigned times = test::device_is_soft() ? kills : std::min(kills, 2U);
  for (unsigned seed = 1; seed <= times; ++seed) {
    const Scene scene = play(GetParam(), SIGKILL, seed);
    EXPECT_EQ(scene.results[scene.victim].signal, SIGKILL);
    ASSERT_EQ(scene.findings.size(), rank_count - 1) << "seed " << seed;
    for (const Finding& finding : scene.findings) {
      EXPECT_EQ(finding.status, static_cast<std::int32_t>(Status::peer_failed))
          << "rank " << finding.rank << ", seed " << seed;
      EXPECT_EQ(finding.peer, scene.victim) << "rank " << finding.rank << ", seed " << seed;
      EXPECT_FALSE(finding.leaves_a_file) << "rank " << finding.rank << ", seed " << seed;
      const std::int64_t took_ns = finding.at_ns - scene.killed_at_ns;
      EXPECT_LT(took_ns, std::chrono::nanoseconds(bound()).count())
          << "rank " << finding.rank << ", seed " << seed;
      slowest_ns = std::max(slowest_ns, took_ns);
    }
    for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
      if (rank == scene.victim) continue;
      EXPECT_EQ(scene.results[rank].signal, 0);
      EXPECT_EQ(scene.results[rank].exit_status, 0);
    }
  }
  std::printf("slowest of %u kills: %.0f ms until the last survivor knew\n", times,
              static_cast<double>(slowest_ns) * 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Bootstrap, Kill, sceneries, name_of_scenery);

/// Runs `body` on three ranks with a barrier made.
std::vector<int> with_barrier(
    const std::function<int(Communicator&, Operation&, std::uint32_t self)>& body,
    Meeting meeting = Meeting::local) {
  return codes_of(run_local({.rank_count = 3}, [&](Exchange& exchange) {
    const Met met(meeting, exchange, 0);
    Context context(test::on_test_device(exchange));
    Communicator communicator(context, *met);
    Operation operation = barrier(communicator);
    return body(communicator, operation, index_of(exchange.self()));
  }));
}

const std::vector<int> all_fine = {0, 0, 0};

TEST(Abort, is_seen_by_every_rank_and_sticks) {
  for (const Meeting meeting : {Meeting::local, Meeting::mute})
    EXPECT_EQ(with_barrier(
                  [](Communicator& communicator, Operation& operation, std::uint32_t self) {
                    if (self == 2) {
                      communicator.abort();
                      return operation.start() == Status::aborted ? 0 : 1;
                    }
                    if (operation.start() != Status::ok) return 1;
                    if (operation.wait(10s) != Status::aborted) return 2;
                    if (communicator.failure().peer != Rank{2}) return 3;
                    if (operation.in_flight()) return 4;
                    const bool sticks =
                        operation.start() == Status::aborted && operation.test() == Status::aborted;
                    return sticks ? 0 : 5;
                  },
                  meeting),
              all_fine);
}

// A part of a communicator hears of a rank that it does not contain, and has no number for it.
TEST(Abort, of_a_rank_of_another_part_is_heard_without_a_side_channel) {
  const auto results = run_local({.rank_count = 4}, [](Exchange& local) {
    test::MuteExchange exchange(local);
    Context context(test::on_test_device(local));
    Communicator whole(context, exchange);
    const std::uint32_t self = index_of(whole.rank());
    std::optional<Communicator> part = whole.split(self / 2);
    Operation operation = barrier(*part);
    whole.synchronize();
    if (self == 3) whole.abort();
    if (self >= 2) return 0;
    // Rank 1 never starts it, so that rank 0 waits for what does not come.
    const auto until = std::chrono::steady_clock::now() + 10s;
    if (self == 0 && operation.start() != Status::ok) return 1;
    while (part->progress() == Status::ok && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(1ms);
    return part->failure().status == Status::aborted && part->failure().peer == no_rank ? 0 : 2;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(4));
}

// The first of two that fail is the failure of all, whoever hears of it.
TEST(Abort, of_two_ranks_at_once_names_one_of_them) {
  EXPECT_EQ(with_barrier(
                [&](Communicator& communicator, Operation& operation, std::uint32_t self) {
                  if (self != 2) {
                    communicator.abort();
                    return 0;
                  }
                  if (operation.start() != Status::ok) return 1;
                  if (operation.wait(10s) != Status::aborted) return 2;
                  const Rank peer = communicator.failure().peer;
                  return peer == Rank{0} || peer == Rank{1} ? 0 : 3;
                },
                Meeting::mute),
            all_fine);
}

// Nobody but the rank itself looks for deaths, and it looks as often as it was told.
TEST(Bound, a_rank_with_a_long_one_has_not_looked_yet_and_one_with_a_short_one_has) {
  const test::SharedCount done;
  const auto results = run_local({.rank_count = 3}, [&](Exchange& local) {
    test::MuteExchange exchange(local);
    ContextOptions options = test::on_test_device(local);
    options.ranks_per_node = {3};
    options.wait = WaitPolicy::automatic;  // one that sleeps is woken by who finds it
    options.detection_bound = local.self() == Rank{0} ? Timeout(1h) : Timeout(50ms);
    Context context(options);
    Communicator communicator(context, exchange);
    // The first look is at once.
    for (int look = 0; look < 100; ++look) (void)communicator.progress();
    Operation operation = barrier(communicator);
    if (operation.start() != Status::ok || operation.wait(10s) != Status::ok) return 1;
    if (local.self() == Rank{2}) raise(SIGKILL);
    if (operation.start() != Status::ok) return 2;
    const Status status = operation.wait(local.self() == Rank{0} ? 500ms : 10s);
    if (local.self() == Rank{0}) return status == Status::timed_out ? 0 : 3;
    return status == Status::peer_failed && communicator.failure().peer == Rank{2} ? 0 : 4;
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{0, 0, 1000 + SIGKILL}));
}

TEST(Abort, destroying_an_operation_in_flight_aborts) {
  const test::SharedCount destroyed;  // before that the others' messages could end rank 0's call
  EXPECT_EQ(with_barrier([&](Communicator& communicator, Operation& operation, std::uint32_t self) {
              if (self != 0 && !destroyed.comes_to(1)) return 3;
              if (operation.start() != Status::ok) return 1;
              if (self == 0) {
                { const Operation gone = std::move(operation); }
                destroyed.add();
                return communicator.failure().status == Status::aborted ? 0 : 1;
              }
              // Rank 0's messages of the first call had left, so that one may still complete.
              Status status = operation.wait(10s);
              if (status == Status::ok) status = operation.start();
              if (status == Status::ok) status = operation.wait(10s);
              return status == Status::aborted ? 0 : 2;
            }),
            all_fine);
}

class Leaving : public testing::TestWithParam<Scenery> {};

TEST_P(Leaving, a_rank_that_leaves_while_it_is_needed_is_a_failure_not_a_hang) {
  if (GetParam().ranks_per_node > 1 && !test::device_is_soft())
    GTEST_SKIP() << "about shared memory";
  // Rank 0 relays in the TCP exchange; with n = 1 most ranks never talk to it.
  for (const std::uint32_t leaver : {0u, 5u}) {
    const std::uint16_t port = port_for(GetParam().meeting);
    const auto results = run_local({.rank_count = rank_count}, [&](Exchange& local) {
      const std::uint32_t self = index_of(local.self());
      const Met met(GetParam().meeting, local, port);
      Context context(options_of(local, GetParam().ranks_per_node));
      Communicator communicator(context, *met);
      Operation operation = barrier(communicator, {.per_round = {1, 1, 1}});
      communicator.synchronize();
      if (self == leaver) return 0;
      if (operation.start() != Status::ok) return 1;
      if (operation.wait(10s) != Status::peer_failed) return 2;
      return communicator.failure().peer == Rank{leaver} ? 0 : 3;
    });
    EXPECT_EQ(codes_of(results), std::vector<int>(rank_count)) << "rank " << leaver << " left";
  }
}

// The rank that notices first must not be taken for the rank that is missing.
TEST_P(Leaving, a_rank_that_leaves_during_a_set_up_is_named_on_every_rank) {
  if (GetParam().ranks_per_node > 1 && !test::device_is_soft())
    GTEST_SKIP() << "about shared memory";
  for (const std::uint32_t leaver : {0u, 5u}) {
    const std::uint16_t port = port_for(GetParam().meeting);
    const auto results = run_local({.rank_count = rank_count}, [&](Exchange& local) {
      const std::uint32_t self = index_of(local.self());
      const Met met(GetParam().meeting, local, port);
      Context context(options_of(local, GetParam().ranks_per_node));
      Communicator communicator(context, *met);
      communicator.synchronize();
      if (self == leaver) return 0;
      try {
        const Operation operation = barrier(communicator);
        return 1;
      } catch (const Error& error) {
        const std::string text = error.what();
        const bool says = text.find("rank " + std::to_string(leaver)) != std::string::npos &&
                          text.find("left") != std::string::npos;
        if (!says) std::fprintf(stderr, "rank %u: %s\n", self, error.what());
        if (!says || error.code() != ErrorCode::peer_failed) return 2;
      }
      const Failure& failure = communicator.failure();
      if (failure.status != Status::peer_failed || failure.peer != Rank{leaver}) return 3;
      return std::string(failure.text).find("has left") != std::string::npos ? 0 : 4;
    });
    EXPECT_EQ(codes_of(results), std::vector<int>(rank_count)) << "rank " << leaver << " left";
  }
}

INSTANTIATE_TEST_SUITE_P(Bootstrap, Leaving, sceneries, name_of_scenery);

TEST(Silence, a_peer_that_does_not_answer_is_named_by_all_ranks) {
  const test::SharedCount gone, knowing;
  const auto results = run_local({.rank_count = 4}, [&](Exchange& exchange) {
    {
      Context context(test::on_test_device(exchange));
      Communicator communicator(context, exchange);
      Operation operation = barrier(communicator, {.per_round = {1, 1}});
      if (operation.start() != Status::ok || operation.wait(10s) != Status::ok) return 1;
      communicator.synchronize();
      if (exchange.self() != Rank{1}) {
        if (!gone.comes_to(1) || operation.start() != Status::ok) return 2;
        const Status status = operation.wait(10s);
        knowing.add();
        if (status != Status::peer_failed) return 3;
        return communicator.failure().peer == Rank{1} ? 0 : 4;
      }
    }
    // Its queue pairs are gone, but it lives and has not left.  Soft-RoCE retries without end:
    // there the others learn of it as it leaves.
    gone.add();
    if (test::device_is_soft()) return knowing.comes_to(3) ? 0 : 5;
    std::this_thread::sleep_for(6s);
    return 0;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(4));
}

TEST(Silence, a_rank_that_is_too_late_for_the_others_hears_it) {
  const test::SharedCount too_early, done;
  const auto results = run_local({.rank_count = 3}, [&](Exchange& exchange) {
    ContextOptions options = test::on_test_device(exchange);
    options.setup_timeout = test::patiently(300ms);
    Context context(options);
    Communicator communicator(context, exchange);
    Operation operation = barrier(communicator);
    if (exchange.self() == Rank{2} && !too_early.comes_to(2)) return 4;
    try {
      communicator.synchronize();
      if (exchange.self() != Rank{2}) return 1;
    } catch (const Error& error) {
      too_early.add();
      if (communicator.failure().status != Status::aborted) return 2;
    }
    Status status = operation.start();
    if (status == Status::ok) status = operation.wait(test::patiently(5s));
    done.add();
    if (exchange.self() != Rank{2} && !done.comes_to(3)) return 5;
    return status == Status::aborted ? 0 : 3;
  });
  EXPECT_EQ(codes_of(results), all_fine);
}

TEST(LeavingInGoodOrder, ranks_that_finished_may_leave_while_others_finish) {
  EXPECT_EQ(with_barrier([](Communicator&, Operation& operation, std::uint32_t self) {
              for (int call = 0; call < 100; ++call) {
                if (self == 2 && call == 99) std::this_thread::sleep_for(300ms);
                if (operation.start() != Status::ok) return 1;
                if (operation.wait(10s) != Status::ok) return 2;
              }
              return 0;
            }),
            all_fine);
}

/// Rank 0 broadcasts to two ranks, destroys the operation when nobody has read yet, calls
/// `before_end`, and destroys its communicator.  Returns how long that takes.  `others`: what the
/// other ranks do once rank 0 has sent; they receive into `value`.
struct EarlyEnd {
  std::function<void(Communicator&, Exchange&)> before_end;
  std::function<int(Operation&, const std::uint64_t& value, std::uint32_t self)> others;
  std::uint32_t ranks_per_node = 1;
  std::size_t elements = 1;
};

std::chrono::milliseconds end_early(const EarlyEnd& early) {
  const test::SharedCount sent, took_ms;
  const auto results = run_local({.rank_count = 3}, [&](Exchange& exchange) {
    const std::uint32_t self = index_of(exchange.self());
    ContextOptions options = options_of(exchange, early.ranks_per_node);
    // If the other ranks read in place, rank 0 could not finish before they have read.
    options.single_copy_bytes = SIZE_MAX;
    Context context(options);
    auto communicator = std::make_unique<Communicator>(context, exchange);
    std::vector<std::uint64_t> values(early.elements, self == 0 ? 42 : 0);
    std::optional<Operation> operation = broadcast(*communicator, std::span(values), Rank{0});
    communicator->synchronize();
    if (self != 0) {
      // If a rank left before rank 0 has sent, rank 0 would report a failure.
      return sent.comes_to(1) ? early.others(*operation, values.back(), self) : 10;
    }
    if (operation->start() != Status::ok || operation->wait(10s) != Status::ok) return 1;
    operation.reset();
    sent.add();
    early.before_end(*communicator, exchange);
    const auto begin = std::chrono::steady_clock::now();
    communicator.reset();
    for (auto left = std::chrono::steady_clock::now() - begin; left >= 1ms; left -= 1ms)
      took_ms.add();
    return 0;
  });
  EXPECT_EQ(codes_of(results), all_fine);
  return std::chrono::milliseconds(took_ms.number());
}

/// Less than the 8 s for which the destructor of a communicator waits for ranks that are late.
constexpr auto soon = 5s;

TEST(LeavingInGoodOrder, is_not_held_up_by_ranks_that_have_left_without_reading) {
  const auto until_they_have_left = [](Communicator&, Exchange& exchange) {
    while (!exchange.has_left(Rank{1}) || !exchange.has_left(Rank{2}))
      std::this_thread::sleep_for(1ms);
  };
  const auto leave = [](Operation&, const std::uint64_t&, std::uint32_t) { return 0; };
  EXPECT_LT(end_early({.before_end = until_they_have_left, .others = leave}), soon);
  if (!test::device_is_soft()) return;  // the rest is about shared memory
  // What they would have read stays with its sender.
  EXPECT_LT(end_early({.before_end = until_they_have_left,
                       .others = leave,
                       .ranks_per_node = 3,
                       .elements = 512}),
            soon);
}

TEST(LeavingInGoodOrder, waits_for_a_late_rank_of_its_node_whose_payload_stays_with_the_sender) {
  if (!test::device_is_soft()) GTEST_SKIP() << "about shared memory";
  const test::SharedCount destroying;
  const auto until_one_has_left = [&](Communicator&, Exchange& exchange) {
    while (!exchange.has_left(Rank{1})) std::this_thread::sleep_for(1ms);
    destroying.add();
  };
  const auto be_late = [&](Operation& operation, const std::uint64_t& value, std::uint32_t self) {
    if (self == 1) return 0;
    if (!destroying.comes_to(1)) return 2;
    std::this_thread::sleep_for(500ms);
    if (operation.start() != Status::ok || operation.wait(10s) != Status::ok) return 3;
    return value == 42 ? 0 : 4;
  };
  const auto took = end_early(
      {.before_end = until_one_has_left, .others = be_late, .ranks_per_node = 3, .elements = 512});
  EXPECT_GE(took, 400ms);
  EXPECT_LT(took, soon);
}

TEST(LeavingInGoodOrder,
     waits_for_ranks_that_are_late_and_not_for_those_behind_a_broken_connection) {
  const test::SharedCount broken, read;
  const auto break_one = [&](Communicator& communicator, Exchange&) {
    communicator.implementation().connection_to(Rank{1}).pair->close();
    broken.add();
  };
  const auto be_late = [&](Operation& operation, const std::uint64_t& value, std::uint32_t self) {
    if (self == 1) return read.comes_to(1) ? 0 : 2;
    if (!broken.comes_to(1)) return 3;
    std::this_thread::sleep_for(500ms);
    if (operation.start() != Status::ok || operation.wait(10s) != Status::ok) return 4;
    read.add();
    return value == 42 ? 0 : 5;
  };
  const auto took = end_early({.before_end = break_one, .others = be_late});
  EXPECT_GE(took, 400ms);
  EXPECT_LT(took, soon);
}

class Stopping : public testing::TestWithParam<Meeting> {};

TEST_P(Stopping, a_stopped_rank_is_not_dead) {
  const bool is_mute = GetParam() == Meeting::mute;
  const std::vector<LocalResult> results = run_local(
      {.rank_count = 3,
       .on_started =
           [&](const std::vector<pid_t>& processes) {
             for (int i = 0; i < (is_mute ? 1 : 3); ++i) {
               std::this_thread::sleep_for(100ms);
               kill(processes[1], SIGSTOP);
               std::this_thread::sleep_for(700ms);
               kill(processes[1], SIGCONT);
             }
           }},
      [&](Exchange& exchange) {
        const Met met(GetParam(), exchange, 0);
        ContextOptions options = test::on_test_device(exchange);
        if (is_mute) options.detection_bound = 100ms;
        Context context(options);
        Communicator communicator(context, *met);
        Operation operation = barrier(communicator);
        const auto until = std::chrono::steady_clock::now() + (is_mute ? 1s : 3s);
        std::uint64_t source = 0, more = 1;
        Operation vote = allreduce<std::uint64_t>(
            communicator, std::span<const std::uint64_t>(&source, 1), std::span(&more, 1), max);
        while (more != 0) {  // all ranks stop after the same call
          source = std::chrono::steady_clock::now() < until ? 1 : 0;
          for (Operation* one : {&operation, &vote}) {
            if (one->start() != Status::ok) return 1;
            if (one->wait(10s) != Status::ok) return 2;
          }
        }
        return 0;
      });
  EXPECT_EQ(codes_of(results), all_fine);
}

INSTANTIATE_TEST_SUITE_P(Bootstrap, Stopping, testing::Values(Meeting::local, Meeting::mute),
                         [](const auto& meeting) { return test::name_of(meeting.param); });

}  // namespace
}  // namespace tutti

int main(int count, char** values) {
  testing::InitGoogleTest(&count, values);
  tutti::test::read_options(count, values, {{"--kills", tutti::kills}});
  return RUN_ALL_TESTS();
}
