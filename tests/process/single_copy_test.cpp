// Promise: a broadcast whose ranks read the root's buffer gives what it gives otherwise, whatever
// the size, the root and the speed of the others; where one of them may not read, none does; memory
// that cannot be read any more, or that its user has back, is a failure, neither a hang nor a
// result.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <functional>
#include <iterator>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

#include "support/jobs.hpp"
#include "support/operators.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::codes_of;

ContextOptions options_of(std::uint32_t rank_count, std::size_t chunk_bytes) {
  ContextOptions options;
  options.device = "soft0";
  options.arena_bytes = 2u << 20;
  options.ranks_per_node = {rank_count};
  options.chunk_bytes = chunk_bytes;
  options.single_copy_bytes = 0;
  return options;
}

struct Task {
  std::size_t count = 1;
  std::uint64_t calls = 3;
  bool in_place = false;
  Timeout delay = Timeout::zero();  // of each rank before each call, at most
};

using Values = std::vector<std::uint64_t>;

/// Runs `operation` again and again; `fill` before a call, `wrong` after it.
int wrong_of(Operation& operation, const Task& task, std::uint32_t self, bool by_single_copy,
             const std::function<void(std::uint64_t call)>& fill,
             const std::function<int(std::uint64_t call)>& wrong) {
  if ((operation.algorithm() == "single_copy") != by_single_copy) return 10000;
  std::mt19937 random(self);
  int all = 0;
  for (std::uint64_t call = 1; call <= task.calls; ++call) {
    fill(call);
    if (task.delay > Timeout::zero())
      std::this_thread::sleep_for(task.delay * (random() % 100) / 100);
    if (operation.start() != Status::ok || operation.wait(30s) != Status::ok) return 20000;
    all += wrong(call);
  }
  return all;
}

int wrong_broadcasts(Communicator& communicator, const Task& task, Rank root,
                     bool by_single_copy = true) {
  Values buffer(task.count);
  Operation operation = broadcast<std::uint64_t>(communicator, std::span(buffer), root);
  return wrong_of(
      operation, task, index_of(communicator.rank()), by_single_copy,
      [&](std::uint64_t call) {
        for (std::size_t i = 0; i < task.count; ++i)
          buffer[i] = communicator.rank() == root ? test::input(index_of(root), call, i) : 0;
      },
      [&](std::uint64_t call) {
        int wrong = 0;
        for (std::size_t i = 0; i < task.count; ++i)
          wrong += buffer[i] != test::input(index_of(root), call, i);
        return wrong;
      });
}

int wrong_reduces(Communicator& communicator, const Task& task, Rank root, bool by_single_copy,
                  const test::Job& job = test::sum_job()) {
  const std::uint32_t self = index_of(communicator.rank());
  Values source(task.count), other(task.count);
  Values& target = task.in_place ? source : other;
  Operation operation = reduce(communicator, {.source = source.data(),
                                              .target = target.data(),
                                              .element_count = task.count,
                                              .reduction = job.reduction,
                                              .root = root});
  return wrong_of(
      operation, task, self, by_single_copy,
      [&](std::uint64_t call) {
        for (std::size_t i = 0; i < task.count; ++i) source[i] = test::input(self, call, i);
      },
      [&](std::uint64_t call) {
        int wrong = 0;
        for (std::size_t i = 0; i < task.count; ++i)
          wrong += communicator.rank() == root
                       ? target[i] != job.expected(communicator.rank_count(), call, i)
                       : source[i] != test::input(self, call, i);
        return wrong;
      });
}

int wrong_allreduces(Communicator& communicator, const Task& task, bool by_single_copy,
                     const test::Job& job = test::sum_job()) {
  const std::uint32_t self = index_of(communicator.rank());
  Values source(task.count), other(task.count);
  Values& target = task.in_place ? source : other;
  Operation operation = allreduce(communicator, {.source = source.data(),
                                                 .target = target.data(),
                                                 .element_count = task.count,
                                                 .reduction = job.reduction});
  return wrong_of(
      operation, task, self, by_single_copy,
      [&](std::uint64_t call) {
        for (std::size_t i = 0; i < task.count; ++i) source[i] = test::input(self, call, i);
      },
      [&](std::uint64_t call) {
        int wrong = 0;
        for (std::size_t i = 0; i < task.count; ++i)
          wrong += target[i] != job.expected(communicator.rank_count(), call, i);
        return wrong;
      });
}

int wrong_of_all(Communicator& communicator, const Task& task) {
  const bool two = communicator.rank_count() == 2;
  Task in_place = task;
  in_place.in_place = true;
  int wrong = wrong_allreduces(communicator, task, two);
  wrong += wrong_allreduces(communicator, in_place, two);
  wrong += wrong_allreduces(communicator, task, false, test::ordered_job());
  for (std::uint32_t root = 0; root < communicator.rank_count(); ++root) {
    wrong += wrong_reduces(communicator, task, Rank{root}, two);
    wrong += wrong_reduces(communicator, {.count = task.count, .in_place = true}, Rank{root}, two);
    wrong += wrong_reduces(communicator, task, Rank{root}, false, test::ordered_job());
  }
  for (std::uint32_t root = 0; root < communicator.rank_count(); ++root)
    wrong += wrong_broadcasts(communicator, task, Rank{root});
  return wrong;
}

TEST(SingleCopy, is_right_for_every_root_and_on_both_sides_of_the_edges_of_chunks) {
  constexpr std::size_t chunk_bytes = 4096, n = chunk_bytes / sizeof(std::uint64_t);
  for (std::uint32_t ranks = 1; ranks <= 7; ++ranks)
    for (const test::Launch launch : test::launches) {
      const auto results = launch({.rank_count = ranks}, [&](Exchange& exchange) {
        Context context(options_of(ranks, chunk_bytes));
        Communicator communicator(context, exchange);
        if (ranks == 1) return 0;
        int wrong = 0;
        for (const std::size_t count : {std::size_t{0}, std::size_t{1}, n - 1, n, n + 1, 3 * n + 1})
          wrong += wrong_of_all(communicator, {.count = count});
        return wrong;
      });
      EXPECT_EQ(codes_of(results), std::vector<int>(ranks)) << ranks << " ranks";
    }
}

/// As strict about where its elements lie as a compiler lets it be.
struct alignas(32) Wide {
  std::uint64_t value;
  char unused[24];
};
Wide sum_of(Wide left, Wide right) {
  left.value += right.value;
  return left;
}

TEST(SingleCopy, elements_lie_where_their_type_wants_them) {
  const auto results = run_local_threads({.rank_count = 2}, [](Exchange& exchange) {
    Context context(options_of(2, 0));
    Communicator communicator(context, exchange);
    int wrong = 0;
    for (const bool in_place : {false, true}) {
      std::vector<Wide> source(3000, Wide{}), other(3000, Wide{});
      for (std::size_t i = 0; i < source.size(); ++i) source[i].value = i;
      std::vector<Wide>& target = in_place ? source : other;
      Operation operation =
          reduce(communicator, {.source = source.data(),
                                .target = target.data(),
                                .element_count = source.size(),
                                .reduction = elementwise<Wide, sum_of>({.commutative = true})});
      if (operation.algorithm() != "single_copy") return 1;
      if (operation.start() != Status::ok || operation.wait(10s) != Status::ok) return 2;
      for (std::size_t i = 0; i < target.size() && exchange.self() == Rank{0}; ++i)
        wrong += target[i].value != 2 * i;
    }
    return wrong;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(2));
}

/// Sums that round: a + b is what b + a is, so all agreements are served.
TEST(SingleCopy, an_allreduce_of_two_is_reproducible) {
  const auto results = run_local_threads({.rank_count = 2}, [](Exchange& exchange) {
    Context context(options_of(2, 0));
    Communicator communicator(context, exchange);
    std::vector<double> sources[2], target(1001);
    for (std::size_t rank = 0; rank < 2; ++rank)
      for (std::size_t i = 0; i < target.size(); ++i)
        sources[rank].push_back(1.0 / static_cast<double>(3 + i * (rank + 1)));
    Operation operation =
        allreduce<double>(communicator, std::span<const double>(sources[index_of(exchange.self())]),
                          std::span(target), sum, Agreement::reproducible);
    if (operation.algorithm() != "single_copy") return 1;
    if (operation.start() != Status::ok || operation.wait(10s) != Status::ok) return 2;
    int wrong = 0;
    for (std::size_t i = 0; i < target.size(); ++i)
      wrong += target[i] != sources[0][i] + sources[1][i];
    return wrong;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(2));
}

/// Which operand is the left one differs by part, so bits could, for a user's operator.
TEST(SingleCopy, where_a_users_order_could_show_an_allreduce_is_not_by_single_copy) {
  const auto results = run_local_threads({.rank_count = 2}, [](Exchange& exchange) {
    Context context(options_of(2, 0));
    Communicator communicator(context, exchange);
    std::vector<Wide> source(3000, Wide{}), target(3000, Wide{});
    const auto algorithm_for = [&](Agreement agreement) {
      return allreduce(communicator, {.source = source.data(),
                                      .target = target.data(),
                                      .element_count = source.size(),
                                      .reduction = elementwise<Wide, sum_of>({.commutative = true}),
                                      .agreement = agreement})
          .algorithm();
    };
    if (algorithm_for(Agreement::relaxed) != "single_copy") return 1;
    if (algorithm_for(Agreement::identical) == "single_copy") return 2;
    return algorithm_for(Agreement::reproducible) == "single_copy" ? 3 : 0;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(2));
}

TEST(SingleCopy, random_delays_change_nothing) {
  for (const test::Launch launch : test::launches) {
    const auto results = launch({.rank_count = 4}, [](Exchange& exchange) {
      Context context(options_of(4, 1024));
      Communicator communicator(context, exchange);
      return wrong_of_all(communicator, {.count = 1000, .calls = 40, .delay = 1ms});
    });
    EXPECT_EQ(codes_of(results), std::vector<int>(4));
  }
}

#if !defined(__SANITIZE_THREAD__)
TEST(SingleCopy, a_stopped_rank_is_waited_for) {
  const test::SharedCount stops;
  const auto results = run_local(
      {.rank_count = 3,
       .on_started =
           [&](const std::vector<pid_t>& processes) {
             for (const pid_t process : processes) {
               std::this_thread::sleep_for(100ms);
               kill(process, SIGSTOP);
               std::this_thread::sleep_for(300ms);
               kill(process, SIGCONT);
               stops.add();
             }
           }},
      [&](Exchange& exchange) {
        Context context(options_of(3, 64u << 10));
        Communicator communicator(context, exchange);
        std::uint32_t mine = 0, over = 0;
        Operation vote = allreduce<std::uint32_t>(
            communicator, std::span<const std::uint32_t>(&mine, 1), std::span(&over, 1), min);
        int wrong = 0;
        while (over < 3) {  // and once more after the last of them, on all ranks
          mine = stops.number();
          if (vote.start() != Status::ok || vote.wait(20s) != Status::ok) return 100;
          wrong += wrong_of_all(communicator, {.count = 20000, .calls = 5, .delay = 20ms});
        }
        return wrong;
      });
  EXPECT_EQ(codes_of(results), std::vector<int>(3));
}

/// As some containers do.
bool forbid_reading_others() {
  sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{.len = std::size(filter), .filter = filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(SingleCopy, where_one_rank_may_not_read_none_does) {
  const auto results = run_local({.rank_count = 3}, [](Exchange& exchange) {
    if (exchange.self() == Rank{1} && !forbid_reading_others()) return 1;
    Context context(options_of(3, 0));
    Communicator communicator(context, exchange);
    if (communicator.node_count() != 1) return 2;
    return wrong_broadcasts(communicator, {.count = 20000}, Rank{2}, false);
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(3));
}

TEST(SingleCopy, memory_that_can_no_longer_be_read_is_a_failure_not_a_hang) {
  const auto results = run_local({.rank_count = 2}, [](Exchange& exchange) {
    Context context(options_of(2, 0));
    Communicator communicator(context, exchange);
    Values buffer(5000);
    Operation operation = broadcast<std::uint64_t>(communicator, std::span(buffer), Rank{0});
    if (operation.start() != Status::ok || operation.wait(10s) != Status::ok) return 1;
    if (exchange.self() == Rank{1} && !forbid_reading_others()) return 2;
    const Status started = operation.start();
    const Status status = started == Status::ok ? operation.wait(10s) : started;
    const std::string text = communicator.failure().text;
    if (exchange.self() == Rank{0}) return status == Status::aborted ? 0 : 3;
    if (status != Status::transport_failed) return 4;
    if (communicator.failure().system_errno != EPERM) return 5;
    return text.find("rank 0") != std::string::npos &&
                   text.find("memory cannot be read") != std::string::npos
               ? 0
               : 6;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(2));
}

/// The root gives up and uses its buffer again before the other has read it.
TEST(SingleCopy, a_buffer_that_its_user_has_back_is_no_result) {
  const test::SharedCount given_up, seen;
  const auto results = run_local({.rank_count = 2}, [&](Exchange& exchange) {
    Context context(options_of(2, 0));
    Communicator communicator(context, exchange);
    Values buffer(5000, 1);
    std::optional<Operation> operation(
        broadcast<std::uint64_t>(communicator, std::span(buffer), Rank{0}));
    if (exchange.self() == Rank{0}) {
      if (operation->start() != Status::ok || operation->wait(20ms) != Status::timed_out) return 1;
      operation.reset();
      std::fill(buffer.begin(), buffer.end(), 77);
      given_up.add();
      return seen.comes_to(1) ? 0 : 3;
    }
    if (!given_up.comes_to(1)) return 4;
    const Status started = operation->start();
    const Status status = started == Status::ok ? operation->wait(10s) : started;
    seen.add();
    return status == Status::aborted ? 0 : 2;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(2));
}

TEST(SingleCopy, a_death_is_named) {
  const auto results = run_local({.rank_count = 3}, [](Exchange& exchange) {
    Context context(options_of(3, 0));
    Communicator communicator(context, exchange);
    Values buffer(200000);
    Operation operation = broadcast<std::uint64_t>(communicator, std::span(buffer), Rank{0});
    for (int call = 0;; ++call) {
      if (exchange.self() == Rank{0} && call == 50) raise(SIGKILL);
      Status status = operation.start();
      if (status == Status::ok) status = operation.wait(10s);
      if (status == Status::ok) continue;
      return status == Status::peer_failed && communicator.failure().peer == Rank{0} ? 0 : 1;
    }
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{1000 + SIGKILL, 0, 0}));
}
#endif

TEST(SingleCopy, where_one_rank_will_not_none_does) {
  const auto results = run_local_threads({.rank_count = 3}, [](Exchange& exchange) {
    ContextOptions options = options_of(3, 0);
    if (exchange.self() == Rank{1}) options.single_copy_bytes = SIZE_MAX;
    Context context(options);
    Communicator communicator(context, exchange);
    return wrong_broadcasts(communicator, {.count = 1000}, Rank{0}, false);
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(3));
}

TEST(SingleCopy, ranks_with_different_thresholds_hear_of_it) {
  const auto results = run_local_threads({.rank_count = 2}, [](Exchange& exchange) {
    ContextOptions options = options_of(2, 0);
    if (exchange.self() == Rank{1}) options.single_copy_bytes = 1u << 20;
    Context context(options);
    Communicator communicator(context, exchange);
    Values buffer(100);
    try {
      broadcast<std::uint64_t>(communicator, std::span(buffer), Rank{0});
    } catch (const Error& error) {
      const std::string text = error.what();
      return error.code() == ErrorCode::mismatch &&
                     text.find("TUTTI_SINGLE_COPY_BYTES") != std::string::npos
                 ? 0
                 : 1;
    }
    return 2;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(2));
}

/// What a rank says it was decided by, in a form that allgather can carry.
struct Remark {
  char text[700] = {};
};

bool all_say_the_same(Communicator& communicator, Exchange& exchange) {
  Remark mine;
  communicator.single_copy_remark().copy(mine.text, sizeof mine.text - 1);
  std::vector<Remark> all(exchange.rank_count());
  exchange.allgather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)),
                     10s);
  return std::all_of(all.begin(), all.end(), [&](const Remark& one) {
    return std::string(one.text) == mine.text && one.text[0] != '\0';
  });
}

int wrong_large_broadcast(Communicator& communicator) {
  Values buffer(32768, index_of(communicator.rank()));
  Operation operation = broadcast<std::uint64_t>(communicator, std::span(buffer), Rank{1});
  if (operation.start() != Status::ok || operation.wait(30s) != Status::ok) return 20000;
  return static_cast<int>(
      std::count_if(buffer.begin(), buffer.end(), [](std::uint64_t value) { return value != 1; }));
}

TEST(SingleCopy, what_is_measured_holds_for_all_ranks) {
  for (const std::uint32_t ranks : {2u, 3u, 5u})
    for (const test::Launch launch : test::launches) {
      const auto results = launch({.rank_count = ranks}, [&](Exchange& exchange) {
        ContextOptions options = options_of(ranks, 0);
        options.single_copy_bytes = {};
        Context context(options);
        // The second one meets while the arena is in use.
        Communicator communicator(context, exchange), other(context, exchange);
        if (!all_say_the_same(communicator, exchange)) return 1;
        if (!all_say_the_same(other, exchange)) return 2;
        return wrong_large_broadcast(communicator) + wrong_large_broadcast(other);
      });
      EXPECT_EQ(codes_of(results), std::vector<int>(ranks)) << ranks << " ranks";
    }
}

/// Figures of another measurement would differ in some digit.
TEST(SingleCopy, two_ranks_measure_once_for_all_their_communicators) {
  const auto results = run_local({.rank_count = 2}, [&](Exchange& exchange) {
    ContextOptions options = options_of(2, 0);
    options.single_copy_bytes = {};
    Context context(options);
    std::string found;  // by the first communicator whose ranks have met in time
    for (int made = 0; made < 5; ++made) {
      Communicator communicator(context, exchange);
      const std::string remark = communicator.single_copy_remark();
      if (!all_say_the_same(communicator, exchange)) return 1;
      if (found.empty() && remark.find("measured: ") != std::string::npos) found = remark;
      if (!found.empty() && remark != found) return 2;
    }
    return 0;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(2));
}

TEST(SingleCopy, ranks_of_a_node_that_were_split_off_go_by_its_figures) {
  for (const test::Launch launch : test::launches) {
    const auto results = launch({.rank_count = 4}, [&](Exchange& exchange) {
      ContextOptions options = options_of(2, 0);
      options.single_copy_bytes = {};
      Context context(options);
      Communicator communicator(context, exchange);
      if (communicator.single_copy_remark() != "never: ranks are on several nodes") return 1;
      std::optional<Communicator> part = communicator.split(index_of(communicator.node()));
      if (!part || part->rank_count() != 2) return 2;
      const std::string remark = part->single_copy_remark();
      const bool is_known = remark.find("measured: ") != std::string::npos ||
                            remark.find("did not meet in time") != std::string::npos;
      return is_known ? wrong_large_broadcast(*part) : 3;
    });
    EXPECT_EQ(codes_of(results), std::vector<int>(4));
  }
}

/// A rank whose size is given follows a leader that measures copies, and hears of the difference
/// when an operation is made.
TEST(SingleCopy, one_that_was_told_may_meet_one_that_measures) {
  const auto results = run_local_threads({.rank_count = 2}, [](Exchange& exchange) {
    ContextOptions options = options_of(2, 0);
    if (exchange.self() == Rank{0}) options.single_copy_bytes = {};
    Context context(options);
    Communicator communicator(context, exchange);
    Values buffer(1000);
    try {
      // Figures of a busy machine may say the same as the size that is given.
      const Operation made = broadcast<std::uint64_t>(communicator, std::span(buffer), Rank{0});
      return made.algorithm() == "single_copy" ? 0 : 2;
    } catch (const Error& error) {
      return error.code() == ErrorCode::mismatch ? 0 : 1;
    }
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(2));
}

}  // namespace
}  // namespace tutti
