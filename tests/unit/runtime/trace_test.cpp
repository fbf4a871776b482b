// Promise: a trace is JSON whose calls, rounds and waits are closed in the order in which they were
// opened, whatever was dropped; a file that cannot be written is refused with its name; and calls
// that are not timed are counted, while calls that wait for long are always timed.
#include "runtime/trace.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <tutti/status.hpp>
#include <vector>

#include "support/scratch_folder.hpp"

namespace tutti::runtime {
namespace {

using namespace std::chrono_literals;
using test::content_of;

/// Each reading takes a microsecond.
class StepClock final : public detail::Clock {
 public:
  Timeout now() noexcept override { return time_ += 1us; }
  bool is_simulated() const noexcept override { return true; }
  void pass(Timeout time) noexcept { time_ += time; }

 private:
  Timeout time_{0};
};

class Traces : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path(name); }
  /// Whether a parser of JSON that is not ours takes it.
  static bool is_json(const std::string& file) {
    return std::system(
               ("python3 -c 'import json, sys; json.load(open(sys.argv[1]))' " + file).c_str()) ==
           0;
  }
  std::string refusal(const std::string& pattern) {
    try {
      const Trace trace(pattern, Rank{2}, 4096, clock_);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "no error";
  }

  StepClock clock_;
  test::ScratchFolder folder_;
};

plan::Step in_round(std::uint32_t round) {
  plan::Step step;
  step.round = round;
  return step;
}

/// The events behind the names of the operations, one a line, without the last comma.
std::vector<std::string> events_of(const std::string& text) {
  std::vector<std::string> events;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("{\"ph\":\"M\"") || !line.starts_with("{\"ph\"")) continue;
    events.push_back(line.ends_with(",") ? line.substr(0, line.size() - 1) : line);
  }
  return events;
}

TracedOperation two_rounds(std::uint64_t bytes = 4096) {
  return {.collective = "allreduce",
          .algorithm = "recursive_multiplying",
          .label = "",
          .ordinal = 4,
          .communicator = 1,
          .rank_count = 4,
          .round_count = 2,
          .bytes = bytes};
}

TEST_F(Traces, have_calls_rounds_and_waits) {
  {
    Trace trace(path("trace.%r.json"), Rank{2}, 4096, clock_);
    OperationTrace operation(trace, two_rounds());
    operation.set_label("say \"residual\"");
    operation.begin(7);
    operation.advances(in_round(0));
    operation.wait(Rank{3});
    operation.advances(in_round(0));
    operation.advances(in_round(1));
    operation.end();
  }
  const std::string text = content_of(path("trace.2.json"));
  // The clock was read twice before.
  EXPECT_EQ(
      events_of(text),
      (std::vector<std::string>{
          R"({"ph":"B","ts":3.000,"pid":2,"tid":0,"cat":"call","name":"allreduce #4",)"
          R"("args":{"call":7}})",
          R"({"ph":"B","ts":3.000,"pid":2,"tid":0,"cat":"round","name":"round 0"})",
          R"({"ph":"B","ts":4.000,"pid":2,"tid":0,"cat":"wait","name":"wait for rank 3",)"
          R"("args":{"rank":3}})",
          R"({"ph":"E","ts":5.000,"pid":2,"tid":0})", R"({"ph":"E","ts":6.000,"pid":2,"tid":0})",
          R"({"ph":"B","ts":6.000,"pid":2,"tid":0,"cat":"round","name":"round 1"})",
          R"({"ph":"E","ts":7.000,"pid":2,"tid":0})", R"({"ph":"E","ts":7.000,"pid":2,"tid":0})"}));
  EXPECT_NE(text.find(R"("name":"allreduce #4 \"say \"residual\"\"")"), std::string::npos);
  EXPECT_NE(text.find("\"algorithm\":\"recursive_multiplying\""), std::string::npos);
  EXPECT_NE(text.find("\"events_dropped\":0"), std::string::npos);
  EXPECT_TRUE(is_json(path("trace.2.json")));
}

/// A reading of the clock would take as long as the work on the payload.
TEST_F(Traces, of_small_payloads_end_a_wait_with_what_comes_next) {
  {
    Trace trace(path("trace"), Rank{0}, 4096, clock_);
    OperationTrace operation(trace, two_rounds(8));
    operation.begin(1);
    EXPECT_FALSE(operation.begins_to_wait());  // at 3 us
    operation.wait(Rank{1});                   // at 4 us
    operation.advances(in_round(0));
    operation.wait(Rank{2});  // at 5 us
    operation.advances(in_round(0));
    operation.advances(in_round(1));  // at 6 us
    operation.wait(Rank{3});          // at 7 us
    operation.advances(in_round(1));
    operation.end();  // at 8 us
  }
  std::string order;
  for (const std::string& event : events_of(content_of(path("trace.0"))))
    order += event.substr(7, 1) + event.substr(15, 1) + " ";
  EXPECT_EQ(order, "B3 B3 B4 E5 B5 E6 E6 B6 B7 E8 E8 E8 ");
}

TEST_F(Traces, have_waits_from_the_second_look_on) {
  Trace trace(path("trace"), Rank{0}, 4096, clock_);
  OperationTrace operation(trace, two_rounds());
  operation.begin(1);
  EXPECT_FALSE(operation.begins_to_wait()) << "the program may compute before it looks again";
  EXPECT_TRUE(operation.begins_to_wait());
  operation.wait(Rank{1});
  EXPECT_FALSE(operation.begins_to_wait()) << "it waits already";
  operation.advances(in_round(0));
  EXPECT_FALSE(operation.begins_to_wait());
  EXPECT_TRUE(operation.begins_to_wait());
  operation.advances(in_round(0));
  EXPECT_FALSE(operation.begins_to_wait()) << "something has come";
}

TEST_F(Traces, keep_the_newest_events_and_count_those_that_were_dropped) {
  {
    Trace trace(path("trace"), Rank{0}, 4096, clock_);  // 256 stamps
    OperationTrace operation(trace, two_rounds());
    for (std::uint64_t call = 1; call <= 1000; ++call) {
      operation.begin(call);
      operation.advances(in_round(1));
      operation.end();
    }
  }
  const std::string text = content_of(path("trace.0"));
  EXPECT_NE(text.find("\"events_dropped\":2744"), std::string::npos) << text.substr(0, 300);
  // The first call that is left has lost its begin, so nothing of it is there.
  std::map<std::string, int> count;
  int depth = 0;
  for (const std::string& event : events_of(text)) {
    ++count[event.substr(0, 8)];
    depth += event.starts_with("{\"ph\":\"B\"") ? 1 : -1;
    EXPECT_GE(depth, 0);
  }
  EXPECT_EQ(depth, 0);
  EXPECT_EQ(count["{\"ph\":\"B"], 85 * 3);
  EXPECT_NE(text.find("{\"call\":1000}"), std::string::npos);
  EXPECT_EQ(text.find("{\"call\":915}"), std::string::npos);
  EXPECT_TRUE(is_json(path("trace.0")));
}

/// The number that follows `key` in an event.
std::uint64_t number_in(const std::string& text, const std::string& key, std::uint64_t otherwise) {
  const std::size_t at = text.find("\"" + key + "\":");
  return at == std::string::npos ? otherwise : std::stoull(text.substr(at + key.size() + 3));
}

/// The begins of calls in a trace.
std::vector<std::string> calls_of(const std::string& text) {
  std::vector<std::string> calls;
  for (const std::string& event : events_of(text))
    if (event.find("\"cat\":\"call\"") != std::string::npos) calls.push_back(event);
  return calls;
}

/// Returns the numbers of the calls that a trace of one operation has, and expects that it counts
/// the calls between them.
std::vector<std::uint64_t> timed_calls_of(const std::string& text) {
  std::vector<std::uint64_t> numbers;
  for (const std::string& event : calls_of(text)) {
    numbers.push_back(number_in(event, "call", 0));
    const std::uint64_t untimed = number_in(event, "untimed_calls", 0);
    if (numbers.size() > 1) {
      EXPECT_EQ(numbers.end()[-1] - numbers.end()[-2], untimed + 1) << event;
    }
  }
  return numbers;
}

/// Makes a call that finds its messages at its first look.
void make_short_call(OperationTrace& operation, std::uint64_t call) {
  operation.begin(call);
  operation.advances(in_round(0));
  operation.end();
}

/// By the clock of these tests a stamp costs a microsecond, which is most of what such a call
/// takes.
TEST_F(Traces, time_one_of_32_calls_in_the_quickest_succession_and_count_the_others) {
  constexpr std::uint64_t calls = 1000;
  {
    Trace trace(path("trace"), Rank{0}, 1 << 20, clock_);
    trace.sample(1000);
    OperationTrace operation(trace, two_rounds(8));
    for (std::uint64_t call = 1; call <= calls; ++call) make_short_call(operation, call);
  }
  const std::string text = content_of(path("trace.0"));
  const std::vector<std::uint64_t> timed = timed_calls_of(text);
  std::vector<std::uint64_t> expected = {1, 16};  // time counts from 0 for the first one
  for (std::uint64_t call = 32; call <= calls; call += 32) expected.push_back(call);
  EXPECT_EQ(timed, expected);
  EXPECT_EQ(number_in(text, "timed_calls", 0), timed.size());
  EXPECT_EQ(number_in(text, "untimed_calls", 0), calls - timed.size());
  EXPECT_TRUE(is_json(path("trace.0")));
}

TEST_F(Traces, time_all_calls_if_stamps_take_a_small_part_of_the_time) {
  {
    Trace trace(path("trace"), Rank{0}, 1 << 20, clock_);
    trace.sample(50);  // two stamps in two microseconds
    OperationTrace operation(trace, two_rounds(8));
    for (std::uint64_t call = 1; call <= 100; ++call) make_short_call(operation, call);
  }
  const std::string text = content_of(path("trace.0"));
  EXPECT_EQ(calls_of(text).size(), 100);
  EXPECT_EQ(number_in(text, "untimed_calls", 1), 0);
}

TEST_F(Traces, time_all_calls_of_an_operation_that_is_rare_among_quick_ones) {
  {
    Trace trace(path("trace"), Rank{0}, 1 << 20, clock_);
    trace.sample(1000);
    TracedOperation seldom = two_rounds(8);
    seldom.collective = "barrier";
    OperationTrace quick(trace, two_rounds(8)), rare(trace, std::move(seldom));
    std::uint64_t call = 0;
    for (std::uint64_t turn = 1; turn <= 50; ++turn) {
      for (int i = 0; i < 1000; ++i) make_short_call(quick, ++call);
      clock_.pass(50us);
      make_short_call(rare, turn);
    }
  }
  const std::string text = content_of(path("trace.0"));
  const std::size_t barrier = text.find("barrier");
  ASSERT_NE(barrier, std::string::npos);
  const std::string of_barrier = text.substr(barrier, text.find('\n', barrier) - barrier);
  EXPECT_EQ(number_in(of_barrier, "timed_calls", 0), 50) << of_barrier;
  EXPECT_GT(number_in(text, "untimed_calls", 0), 40'000);
}

TEST_F(Traces, have_every_call_that_waits_for_long) {
  {
    Trace trace(path("trace"), Rank{0}, 1 << 20, clock_);
    trace.sample(1000);
    OperationTrace operation(trace, two_rounds(8));
    for (std::uint64_t call = 1; call <= 200; ++call) {
      if (call != 77) {
        make_short_call(operation, call);
        continue;
      }
      operation.begin(call);
      operation.advances(in_round(0));
      EXPECT_FALSE(operation.begins_to_wait());
      EXPECT_FALSE(operation.begins_to_wait());
      EXPECT_TRUE(operation.is_untimed());
      operation.wait(Rank{3}, 1);
      clock_.pass(1s);
      operation.advances(in_round(1));
      operation.end();
    }
  }
  const std::string text = content_of(path("trace.0"));
  const std::vector<std::uint64_t> timed = timed_calls_of(text);
  EXPECT_EQ(std::count(timed.begin(), timed.end(), 77), 1);
  EXPECT_EQ(std::count(timed.begin(), timed.end(), 78), 1) << "after a long call all are timed";
  EXPECT_EQ(number_in(text, "untimed_calls", 0), 200 - timed.size());
  const std::size_t late = text.find("\"call\":77,\"untimed_calls\":12,\"begun_late\":true}");
  ASSERT_NE(late, std::string::npos) << text;
  EXPECT_LT(late, text.find("\"name\":\"round 1\"", late));
  EXPECT_LT(late, text.find("\"name\":\"wait for rank 3\"", late));
  EXPECT_TRUE(is_json(path("trace.0")));
}

TEST_F(Traces, that_have_dropped_events_count_the_calls_between_those_that_are_left) {
  constexpr std::uint64_t calls = 100'000;
  {
    Trace trace(path("trace"), Rank{0}, 4096, clock_);  // 256 stamps
    trace.sample(1000);
    OperationTrace operation(trace, two_rounds(8));
    for (std::uint64_t call = 1; call <= calls; ++call) make_short_call(operation, call);
  }
  const std::string text = content_of(path("trace.0"));
  const std::vector<std::uint64_t> timed = timed_calls_of(text);
  EXPECT_EQ(timed.size(), 128);
  EXPECT_GT(timed.back(), calls - 32);
  EXPECT_EQ(number_in(text, "timed_calls", 0) + number_in(text, "untimed_calls", 0), calls);
  EXPECT_GT(number_in(text, "events_dropped", 0), 0);
}

TEST_F(Traces, of_a_failure_have_calls_in_flight_that_were_not_to_be_timed) {
  Trace trace(path("trace"), Rank{0}, 1 << 20, clock_);
  trace.sample(1000);
  OperationTrace failed(trace, two_rounds(8)), open(trace, two_rounds(8));
  for (std::uint64_t call = 1; call <= 5; ++call) {
    make_short_call(failed, call);
    make_short_call(open, call);
  }
  failed.begin(6);
  failed.fail();
  open.begin(6);
  open.wait(Rank{1});
  trace.fail("peer_failed: rank 1: has died");
  const std::string text = content_of(path("trace.0"));
  EXPECT_NE(text.find("\"call\":6,\"untimed_calls\":4,\"begun_late\":true}"), std::string::npos);
  EXPECT_NE(text.find("\"tid\":0,\"args\":{\"failed\":true}}"), std::string::npos) << text;
  EXPECT_NE(text.find("\"tid\":1,\"args\":{\"unfinished\":true}}"), std::string::npos) << text;
  EXPECT_TRUE(is_json(path("trace.0")));
}

TEST_F(Traces, count_calls_that_were_given_up_and_begin_anew) {
  {
    Trace trace(path("trace"), Rank{0}, 1 << 20, clock_);
    trace.sample(1000);
    OperationTrace operation(trace, two_rounds(8));
    for (int i = 0; i < 50; ++i) {
      for (std::uint64_t call = 1; call <= 20; ++call) make_short_call(operation, call);
      operation.begin(21);
      operation.forget_calls(i % 2 == 0);
    }
  }
  const std::string text = content_of(path("trace.0"));
  std::uint64_t calls = 0;
  for (const std::string& event : calls_of(text)) calls += 1 + number_in(event, "untimed_calls", 0);
  EXPECT_GT(calls, 49 * 21);
  EXPECT_EQ(number_in(text, "timed_calls", 0) + number_in(text, "untimed_calls", 0), 50 * 21);
}

TEST_F(Traces, measure_what_a_stamp_costs) {
  Trace trace(path("trace"), Rank{0}, 4096, clock_);
  // A reading of the clock, and nothing else takes time.
  EXPECT_NEAR(static_cast<double>(trace.measure_stamp()), 1000, 20);
  EXPECT_EQ(trace.made(), 0);
}

TEST_F(Traces, of_a_failure_are_written_at_once_and_say_what_was_open) {
  Trace trace(path("trace"), Rank{0}, 4096, clock_);
  OperationTrace failed(trace, two_rounds()), open(trace, two_rounds());
  open.begin(1);
  open.wait(no_rank);
  failed.begin(3);
  failed.wait(Rank{1});
  failed.fail();
  trace.fail("peer_failed: rank 1: has died");
  const std::string text = content_of(path("trace.0"));
  EXPECT_NE(text.find("\"tid\":0,\"args\":{\"failed\":true}}"), std::string::npos) << text;
  EXPECT_NE(text.find("\"tid\":1,\"args\":{\"unfinished\":true}}"), std::string::npos) << text;
  EXPECT_NE(text.find("\"name\":\"peer_failed: rank 1: has died\""), std::string::npos) << text;
  EXPECT_TRUE(is_json(path("trace.0")));
}

TEST_F(Traces, of_several_failures_are_written_at_the_first_and_at_the_end) {
  {
    Trace trace(path("trace"), Rank{0}, 4096, clock_);
    trace.fail("peer_failed: the first");
    trace.fail("peer_failed: the second");
    const std::string text = content_of(path("trace.0"));
    EXPECT_NE(text.find("\"name\":\"peer_failed: the first\""), std::string::npos) << text;
    EXPECT_EQ(text.find("the second"), std::string::npos) << text;
  }
  const std::string text = content_of(path("trace.0"));
  EXPECT_NE(text.find("\"name\":\"peer_failed: the first\""), std::string::npos) << text;
  EXPECT_NE(text.find("\"name\":\"peer_failed: the second\""), std::string::npos) << text;
  EXPECT_TRUE(is_json(path("trace.0")));
}

/// A limit of the size of files stands for a process that is killed before it has written again.
TEST_F(Traces, stay_until_something_is_written_over_them) {
  Trace trace(path("trace"), Rank{0}, 4096, clock_);
  OperationTrace operation(trace, two_rounds());
  operation.begin(1);
  operation.end();
  trace.write();
  const std::string before = content_of(path("trace.0"));
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit nothing{0, limit.rlim_max};
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const int limited = ::setrlimit(RLIMIT_FSIZE, &nothing);
  trace.write();
  const int restored = ::setrlimit(RLIMIT_FSIZE, &limit);
  ::signal(SIGXFSZ, handler);
  ASSERT_EQ(limited, 0);
  ASSERT_EQ(restored, 0);
  EXPECT_EQ(content_of(path("trace.0")), before);
  EXPECT_NE(before.find("{\"call\":1}"), std::string::npos) << before;
}

TEST_F(Traces, are_cut_to_what_was_written_last) {
  Trace trace(path("trace"), Rank{0}, 4096, clock_);
  OperationTrace operation(trace, two_rounds());
  operation.set_label(std::string(1000, 'x'));
  trace.write();
  operation.set_label("");
  trace.write();
  EXPECT_TRUE(is_json(path("trace.0")));
}

TEST_F(Traces, are_empty_at_first_and_replace_what_was_there) {
  std::ofstream(path("trace.0")) << std::string(100'000, 'x');
  const Trace trace(path("trace"), Rank{0}, 4096, clock_);
  EXPECT_TRUE(events_of(content_of(path("trace.0"))).empty());
  EXPECT_TRUE(is_json(path("trace.0")));
}

TEST_F(Traces, of_contexts_of_one_process_and_rank_do_not_meet) {
  const Trace first(path("trace"), Rank{0}, 4096, clock_),
      other(path("trace"), Rank{1}, 4096, clock_);
  const Trace second(path("trace"), Rank{0}, 4096, clock_);
  for (const char* const name : {"trace.0", "trace.1", "trace.0.2"})
    EXPECT_EQ(::access(path(name).c_str(), R_OK), 0) << name;
}

/// A lock of another descriptor stands for another process.
TEST_F(Traces, of_several_processes_with_one_rank_do_not_meet) {
  std::vector<detail::Descriptor> others;
  for (const char* const name : {"trace.0", "trace.0.2"}) {
    std::ofstream(path(name)) << "of another process";
    others.emplace_back(::open(path(name).c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_EQ(::flock(others.back().get(), LOCK_EX | LOCK_NB), 0);
  }
  {
    const Trace trace(path("trace"), Rank{0}, 4096, clock_);
    const detail::Descriptor mine(::open(path("trace.0.3").c_str(), O_WRONLY | O_CLOEXEC));
    EXPECT_EQ(::flock(mine.get(), LOCK_EX | LOCK_NB), -1) << "it is locked as long as it is traced";
  }
  for (const char* const name : {"trace.0", "trace.0.2"})
    EXPECT_EQ(content_of(path(name)), "of another process") << name;
  EXPECT_TRUE(is_json(path("trace.0.3")));
}

TEST_F(Traces, that_have_ended_are_not_held_by_forked_children) {
  auto trace = std::make_unique<Trace>(path("trace"), Rank{0}, 4096, clock_);
  const pid_t child = ::fork();
  if (child == 0) {
    ::sleep(60);
    ::_exit(0);
  }
  ASSERT_GT(child, 0);
  trace.reset();
  const detail::Descriptor next(::open(path("trace.0").c_str(), O_WRONLY | O_CLOEXEC));
  EXPECT_EQ(::flock(next.get(), LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(::kill(child, SIGKILL), 0);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST_F(Traces, of_more_operations_than_it_has_numbers_share_the_last) {
  Trace trace(path("trace"), Rank{0}, 4096, clock_);
  for (int i = 0; i < 65534; ++i) (void)trace.add({.collective = "barrier", .algorithm = ""});
  EXPECT_EQ(trace.add({.collective = "barrier", .algorithm = ""}), 65534);
  EXPECT_EQ(trace.add({.collective = "barrier", .algorithm = ""}), 65534);
  trace.write();
  EXPECT_TRUE(is_json(path("trace.0")));
}

TEST_F(Traces, that_cannot_be_written_are_refused) {
  const std::string missing = path("no_folder/trace");
  EXPECT_EQ(refusal(missing), "TUTTI_TRACE=\"" + missing + "\": " + missing +
                                  ".2: No such file or directory; expected the path of a file that "
                                  "can be written, in a folder that exists");
  ASSERT_EQ(::mkdir(path("folder.2").c_str(), S_IRWXU), 0);
  EXPECT_NE(refusal(path("folder")).find("Is a directory"), std::string::npos);
  // Nobody reads the pipe, and nobody waits for a reader.
  ASSERT_EQ(::mkfifo(path("pipe.2").c_str(), S_IRWXU), 0);
  EXPECT_NE(refusal(path("pipe")).find("pipe.2: "), std::string::npos);
  EXPECT_EQ(trace_path("/dev/null", Rank{0}), "/dev/null.0");
}

TEST_F(Traces, have_the_rank_in_their_names) {
  EXPECT_EQ(trace_path("t", Rank{3}), "t.3");
  EXPECT_EQ(trace_path("%r/%r.json", Rank{12}), "12/12.json");
  EXPECT_EQ(trace_path("100%.json", Rank{0}), "100%.json.0");
}

}  // namespace
}  // namespace tutti::runtime
