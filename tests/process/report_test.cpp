// Promise: a report says which operation hangs, in which call and round, which ranks are missing,
// and what those of this node do at this moment; it needs no other rank.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <thread>
#include <tutti/tutti.hpp>

#include "support/device.hpp"
#include "support/jobs.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::codes_of;

ContextOptions one_node(const Exchange& exchange, std::uint32_t ranks) {
  ContextOptions options = test::on_test_device(exchange);
  options.ranks_per_node = {ranks};
  return options;
}

bool tells(const std::string& text, std::initializer_list<const char*> parts) {
  bool all = true;
  for (const char* const part : parts)
    if (text.find(part) == std::string::npos) {
      std::fprintf(stderr, "no \"%s\" in: %s\n", part, text.c_str());
      all = false;
    }
  return all;
}

bool runs(Operation& operation) {
  return operation.start() == Status::ok && operation.wait(30s) == Status::ok;
}

/// Waits until the report has all of the parts, for ten seconds at most: the others may be slow.
bool comes_to_tell(Communicator& communicator, Operation& waited_for,
                   std::initializer_list<const char*> parts) {
  std::string text;
  for (int tries = 0; tries < 100; ++tries) {
    if (waited_for.wait(100ms) != Status::timed_out) return false;
    text = communicator.report();
    bool all = true;
    for (const char* const part : parts) all = all && text.find(part) != std::string::npos;
    if (all) return true;
  }
  return tells(text, parts);
}

TEST(Reports, tell_what_the_missing_rank_is_doing) {
  const auto results = run_local({.rank_count = 3}, [](Exchange& exchange) {
    Context context(one_node(exchange, 3));
    Communicator communicator(context, exchange);
    double mine = 1, sum_of_all = 0;
    Operation sums = allreduce<double>(communicator, {&mine, 1}, {&sum_of_all, 1}, sum);
    Operation meeting = barrier(communicator);
    sums.set_label("residual, solver.cpp:120");
    if (!tells(communicator.report(),
               {"no failure", "allreduce #1 \"residual, solver.cpp:120\", call 0: not in flight",
                "barrier #2, call 0: not in flight"}))
      return 1;
    if (!runs(sums) || !runs(sums)) return 2;
    if (exchange.self() == Rank{2}) {  // it is in another operation
      if (!runs(meeting)) return 3;
      return runs(sums) ? 0 : 4;
    }
    if (sums.start() != Status::ok) return 5;
    if (exchange.self() == Rank{0}) {
      if (!comes_to_tell(communicator, sums,
                         {"tutti: rank 0 of 3, node 0 of 1: no failure\n",
                          "allreduce #1 \"residual, solver.cpp:120\", call 3, round ",
                          "no progress for ", "    rank 2 (process ",
                          "has not started it, 2 calls so far; barrier #2, call 1: waiting",
                          "\n  barrier #2, call 0: not in flight\n"}))
        return 6;
      if (!tells(communicator.report(ReportFormat::json),
                 {"\"rank\": 0", "\"status\": \"ok\"", "\"label\": \"residual, solver.cpp:120\"",
                  "\"call\": 3", "\"in_flight\": true", "\"missing\": [",
                  "\"no_progress_s\": ", "\"collective\": \"barrier\""}))
        return 7;
      if (!tells(sums.describe(), {"allreduce #1 \"residual, solver.cpp:120\", call 3"})) return 8;
    }
    if (meeting.start() != Status::ok) return 9;
    if (sums.wait(30s) != Status::ok || meeting.wait(30s) != Status::ok) return 10;
    return sum_of_all == 3 ? 0 : 11;
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{0, 0, 0}));
}

TEST(Reports, tell_a_stopped_process_from_one_that_computes_and_one_of_another_node) {
  const test::SharedCount stopped;
  const auto results = run_local({.rank_count = 3}, [&](Exchange& exchange) {
    // Ranks 0 and 1 are a node, rank 2 is another.
    ContextOptions options = test::on_test_device(exchange);
    options.ranks_per_node = {2, 1};
    Context context(options);
    Communicator communicator(context, exchange);
    Operation meeting =
        barrier(communicator,
                {.per_round = {2}, .algorithm = Algorithm::dissemination, .across = Across::flat});
    if (!runs(meeting)) return 1;
    if (exchange.self() == Rank{2}) return stopped.comes_to(2) && runs(meeting) ? 0 : 2;
    if (exchange.self() == Rank{1}) {
      stopped.add();
      if (::raise(SIGSTOP) != 0) return 3;
      return runs(meeting) ? 0 : 4;
    }
    if (!stopped.comes_to(1) || meeting.start() != Status::ok) return 5;
    const bool is_told =
        comes_to_tell(communicator, meeting,
                      {"rank 0 of 3, node 0 of 2",
                       ", stopped): has not started it, 1 calls so far; nothing is in flight there",
                       "rank 2: of another node; no message of this call has come from it\n"});
    // Whose process it is the report says.
    const std::string text = communicator.report();
    const std::size_t at = text.find("rank 1 (process ");
    if (at == std::string::npos) return 6;
    const int process = std::atoi(text.c_str() + at + 16);
    if (process <= 0 || ::kill(process, SIGCONT) != 0) return 7;
    stopped.add();
    return is_told && meeting.wait(30s) == Status::ok ? 0 : 8;
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{0, 0, 0}));
}

TEST(Reports, say_of_a_rank_of_another_node_what_its_messages_show) {
  const test::SharedCount begun, looked;
  const auto results = run_local({.rank_count = 2}, [&](Exchange& exchange) {
    ContextOptions options = test::on_test_device(exchange);
    options.ranks_per_node = {1};
    Context context(options);
    Communicator communicator(context, exchange);
    std::vector<std::uint64_t> source(2), target(2);
    // Two rounds, in both of which each rank needs the other one.
    Operation sums =
        allreduce(communicator, {.source = source.data(),
                                 .target = target.data(),
                                 .element_count = source.size(),
                                 .reduction = built_in_reduction(BuiltIn::sum, ElementType::uint64),
                                 .algorithm = Algorithm::ring});
    Operation meeting = barrier(communicator);
    if (!runs(sums) || !runs(meeting)) return 1;
    if (exchange.self() == Rank{1}) {
      if (meeting.start() != Status::ok) return 2;  // which rank 0 has not begun
      begun.add();
      if (!looked.comes_to(1) || sums.start() != Status::ok) return 3;
      begun.add();
      if (!looked.comes_to(2)) return 4;
      return sums.wait(30s) == Status::ok && meeting.wait(30s) == Status::ok ? 0 : 5;
    }
    if (!begun.comes_to(1) || sums.start() != Status::ok) return 6;
    if (!comes_to_tell(communicator, sums,
                       {"rank 1: of another node; no message of this call has come from it; it has "
                        "begun barrier #2, call 2\n"}))
      return 7;
    looked.add();
    if (!begun.comes_to(2)) return 8;
    if (!comes_to_tell(
            communicator, sums,
            {"    rank 1: of another node; it has begun this call: a message of round 1 has "
             "come from it, but not all that are needed; it has begun barrier #2, call 2\n"
             "  barrier"}))
      return 9;
    if (!tells(communicator.report(ReportFormat::json),
               {"\"same_node\": false", "\"seen\": \"it has begun this call: "}))
      return 10;
    looked.add();
    if (meeting.start() != Status::ok) return 11;
    return sums.wait(30s) == Status::ok && meeting.wait(30s) == Status::ok ? 0 : 12;
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{0, 0}));
}

TEST(Reports, are_printed_on_a_signal) {
  const auto results = run_local({.rank_count = 2}, [&](Exchange& exchange) {
    static volatile sig_atomic_t own_handler_called = 0;
    ::signal(SIGUSR2, [](int) { own_handler_called = 1; });
    ContextOptions options = one_node(exchange, 2);
    options.report_signal = SIGUSR2;
    Context context(options);
    Communicator communicator(context, exchange);
    Operation meeting = barrier(communicator);
    if (exchange.self() == Rank{1}) {
      communicator.synchronize();
      return runs(meeting) ? 0 : 1;
    }
    const int file = ::memfd_create("standard error", MFD_CLOEXEC);
    if (meeting.start() != Status::ok || ::raise(SIGUSR2) != 0) return 2;
    const int before = ::dup(2);
    ::dup2(file, 2);
    const Status status = meeting.wait(500ms);
    ::dup2(before, 2);
    char text[2000] = {};
    if (::pread(file, text, sizeof text - 1, 0) <= 0 || status != Status::timed_out) return 3;
    if (!tells(text, {"tutti: rank 0 of 2", "barrier #1, call 1", "rank 1 (process "})) return 4;
    communicator.synchronize();
    return meeting.wait(30s) == Status::ok && own_handler_called == 1 ? 0 : 5;
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{0, 0}));
}

TEST(Reports, of_operations_that_are_tested_say_so_and_have_no_old_times) {
  const auto results = run_local({.rank_count = 2}, [&](Exchange& exchange) {
    Context context(one_node(exchange, 2));
    Communicator communicator(context, exchange);
    Operation first = barrier(communicator), second = barrier(communicator);
    if (exchange.self() == Rank{1}) {
      communicator.synchronize();
      if (!runs(first)) return 1;
      if (second.start() != Status::ok) return 2;  // it tests, and does not start the first one
      communicator.synchronize();
      while (second.test() == Status::in_progress) std::this_thread::yield();
      return runs(first) ? 0 : 3;
    }
    if (first.start() != Status::ok || first.wait(50ms) != Status::timed_out) return 4;
    communicator.synchronize();
    if (first.wait(30s) != Status::ok) return 5;
    communicator.synchronize();
    if (first.start() != Status::ok) return 6;
    // No wait has looked at this call yet.
    if (communicator.report().find("no progress") != std::string::npos) return 7;
    if (!comes_to_tell(communicator, first,
                       {"has not started it, 1 calls so far; barrier #2, call 1: in flight"}))
      return 8;
    if (second.start() != Status::ok || second.wait(30s) != Status::ok) return 9;
    return first.wait(30s) == Status::ok ? 0 : 10;
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{0, 0}));
}

TEST(Reports, count_calls_bytes_and_waits) {
  const test::SharedCount started, waited;
  const auto results = run_local({.rank_count = 3}, [&](Exchange& exchange) {
    ContextOptions options = test::on_test_device(exchange);
    options.ranks_per_node = {2, 1};
    Context context(options);
    Communicator communicator(context, exchange);
    std::vector<double> mine(64, 1), whole(64);
    Operation sums = allreduce(communicator,
                               {.source = mine.data(),
                                .target = whole.data(),
                                .element_count = mine.size(),
                                .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64),
                                .agreement = Agreement::relaxed,
                                .per_round = {2},
                                .algorithm = Algorithm::two_partial,
                                .across = Across::flat});
    if (!tells(communicator.report(ReportFormat::json),
               {"\"calls_finished\": 0", "\"completion_errors\": 0"}))
      return 1;
    if (communicator.report().find("finished:") != std::string::npos) return 2;
    for (unsigned call = 1; call <= 3; ++call) {
      if (exchange.self() == Rank{1}) {  // the others have waited for it
        if (!waited.comes_to(2 * call) || !runs(sums)) return 3;
        continue;
      }
      if (sums.start() != Status::ok) return 8;
      started.add();
      if (!started.comes_to(2 * call) || sums.wait(30ms) != Status::timed_out) return 9;
      waited.add();
      if (sums.wait(30s) != Status::ok) return 10;
    }
    // Each rank sends its 512 bytes to both others, in each of three calls.
    if (!tells(communicator.report(),
               {"finished: 3 calls, 3 rounds, 3072 bytes sent, 0 bytes read\n"}))
      return 4;
    const std::string json = communicator.report(ReportFormat::json);
    if (!tells(json, {"\"calls_finished\": 3", "\"rounds_finished\": 3", "\"bytes_sent\": 3072"}))
      return 5;
    if (exchange.self() == Rank{1}) return 0;
    if (!tells(json, {"\"waited_for\": [", "{\"rank\": 1, \"total_s\": ", "\"times_last\": "}))
      return 6;
    return tells(communicator.report(), {"  waited for rank 1: ", " times\n"}) ? 0 : 7;
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{0, 0, 0}));
}

/// Rank 1 unmaps a buffer that rank 0 writes to.  The software device then says REM_OP_ERR, others
/// REM_ACCESS_ERR.
TEST(Reports, of_a_completion_with_an_error_say_what_it_means) {
  const test::SharedCount failed;
  const auto results = run_local({.rank_count = 2}, [&](Exchange& exchange) {
    constexpr std::size_t bytes = 1u << 20;
    ContextOptions options = one_node(exchange, 1);
    options.register_buffers = true;
    Context context(options);
    Communicator communicator(context, exchange);
    void* const buffer =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    Operation operation = broadcast(communicator, {.buffer = buffer, .bytes = bytes});
    if (!runs(operation)) return 1;
    communicator.synchronize();
    if (exchange.self() == Rank{1} && ::munmap(buffer, bytes) != 0) return 2;
    communicator.synchronize();
    if (operation.start() != Status::ok) return 3;
    if (exchange.self() == Rank{1})  // it would find an error itself, and give up
      return failed.comes_to(1) && operation.wait(30s) < Status::ok ? 0 : 4;
    const Status status = operation.wait(30s);
    failed.add();
    if (status != Status::transport_failed) {
      std::fprintf(stderr, "%s: %s\n", name_of(status), communicator.failure().text);
      return 8;
    }
    if (!tells(communicator.failure().text,
               {"transport_failed: rank 1: ", "IBV_WC_REM_OP_ERR of a write", "(broadcast #1"}))
      return 5;
    if (!tells(communicator.report(),
               {"\n  completion of a write: rank 1: its device could not finish the request: "
                "IBV_WC_REM_OP_ERR (11), vendor error ",
                "\n    hint: a buffer was unmapped there", "completions with an error: "}))
      return 6;
    return tells(communicator.report(ReportFormat::json),
                 {"\"completion\": {\"of\": \"write\", \"status\": 11, "
                  "\"name\": \"IBV_WC_REM_OP_ERR\"",
                  "\"hint\": \"a buffer was"})
               ? 0
               : 7;
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{0, 0}));
}

TEST(Reports, on_two_signals_call_the_handlers_of_the_program) {
  static volatile sig_atomic_t calls_of_first = 0, calls_of_second = 0;
  ::signal(SIGUSR1, [](int) { calls_of_first = calls_of_first + 1; });
  ::signal(SIGUSR2, [](int) { calls_of_second = calls_of_second + 1; });
  for (const int signal : {SIGUSR1, SIGUSR2, SIGUSR1}) {
    const Context context({.report_signal = signal});
    ::raise(SIGUSR1);
    ::raise(SIGUSR2);
  }
  EXPECT_EQ(calls_of_first, 3);
  EXPECT_EQ(calls_of_second, 3);
}

TEST(Reports, of_a_failed_communicator_say_so_and_long_labels_are_cut) {
  const auto results = run_local({.rank_count = 2}, [&](Exchange& exchange) {
    Context context(one_node(exchange, 2));
    Communicator communicator(context, exchange);
    Operation meeting = barrier(communicator);
    meeting.set_label(std::string(62, 'y') + "\u00e4");  // is not cut in half
    if (!tells(meeting.describe(), {("\"" + std::string(62, 'y') + "\"").c_str()})) return 4;
    meeting.set_label(std::string(100, 'x'));
    if (!tells(meeting.describe(), {("\"" + std::string(63, 'x') + "\"").c_str()})) return 1;
    meeting.set_label("last");
    if (exchange.self() == Rank{1}) ::_exit(0);
    if (meeting.start() != Status::ok || meeting.wait(30s) != Status::peer_failed) return 2;
    return tells(communicator.report(), {"peer_failed: rank 1", "barrier #1 \"last\", call 1"}) &&
                   tells(communicator.report(ReportFormat::json),
                         {"\"status\": \"peer_failed\"", "\"failure\": "})
               ? 0
               : 3;
  });
  EXPECT_EQ(codes_of(results).front(), 0);
}

}  // namespace
}  // namespace tutti
