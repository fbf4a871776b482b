// Promise: each rank of a job writes a trace that Perfetto can read, also when its communicator has
// failed; and a rank that cannot write one is told, as are all others.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>

#include "support/device.hpp"
#include "support/jobs.hpp"
#include "support/scratch_folder.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::codes_of;

/// Reads a trace: every event ends what was opened last on its track; prints how many calls, rounds
/// and waits there are, and whether a call has failed.
constexpr const char* reader = R"(
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
tracks, kinds, failed, last = {}, {"call": 0, "round": 0, "wait": 0}, 0, 0.0
for event in events:
    stack = tracks.setdefault((event["pid"], event["tid"]), [])
    if event["ph"] == "B":
        order = ["call", "round", "wait"]
        assert len(stack) < 3 and (order[len(stack)] == event["cat"] or event["cat"] == "wait"), event
        stack.append(event)
        kinds[event["cat"]] += 1
    if event["ph"] == "E":
        begun = stack.pop()
        assert begun["ts"] <= event["ts"], (begun, event)
        failed += event.get("args", {}).get("failed", False)
assert not any(tracks.values())
sys.exit(0 if "calls=%d rounds=%d failed=%d" % (kinds["call"], kinds["round"], failed) ==
         sys.argv[2] and kinds["wait"] >= int(sys.argv[3]) else str(kinds) + " failed " + str(failed))
)";

class Traces : public testing::Test {
 protected:
  Traces() {
    ::setenv("TUTTI_TRACE", path("rank%r.json").c_str(), 1);
    ::setenv("TUTTI_TRACE_SHORT_CALLS", "all", 1);
  }
  ~Traces() override {
    for (const char* const name : {"TUTTI_TRACE", "TUTTI_TRACE_BYTES", "TUTTI_TRACE_SHORT_CALLS"})
      ::unsetenv(name);
  }
  std::string path(const std::string& name) const { return folder_.path(name); }
  /// Whether the trace of that rank is JSON, well formed, and has so much.
  bool has(std::uint32_t rank, const std::string& counts, int waits_min,
           const std::string& suffix = "") const {
    const std::string command = "python3 -c '" + std::string(reader) + "' " +
                                path("rank" + std::to_string(rank) + ".json" + suffix) + " '" +
                                counts + "' " + std::to_string(waits_min);
    return std::system(command.c_str()) == 0;
  }

 private:
  test::ScratchFolder folder_;
};

bool runs(Operation& operation) {
  return operation.start() == Status::ok && operation.wait(30s) == Status::ok;
}

/// Ranks 0 and 1 are a node, rank 2 is another: messages go both ways.  The allreduce of 256 KiB
/// goes in chunks, some of which may be staged; that of the ring has no rounds.
TEST_F(Traces, have_all_calls_of_all_kinds) {
  const auto results = run_local({.rank_count = 3}, [](Exchange& exchange) {
    ContextOptions options = test::on_test_device(exchange);
    options.ranks_per_node = {2, 1};
    Context context(options);
    Communicator communicator(context, exchange);
    std::vector<double> mine(32768, 1), whole(32768), ring(32768);
    const Reduction sums = built_in_reduction(BuiltIn::sum, ElementType::float64);
    Operation meeting =
        barrier(communicator,
                {.per_round = {2}, .algorithm = Algorithm::dissemination, .across = Across::flat});
    Operation small = allreduce<double>(communicator, std::span<const double>(mine).first(1),
                                        std::span(whole).first(1), sum);
    Operation large = allreduce<double>(communicator, mine, whole, sum);
    Operation along = allreduce(communicator, {.source = mine.data(),
                                               .target = ring.data(),
                                               .element_count = mine.size(),
                                               .reduction = sums,
                                               .algorithm = Algorithm::shared_ring});
    Operation stale = allreduce_ssp(communicator, {.source = mine.data(),
                                                   .target = whole.data(),
                                                   .element_count = 8,
                                                   .reduction = sums,
                                                   .slack = 2});
    meeting.set_label("meeting of all");
    for (int call = 0; call < 10; ++call) {
      if (call % 3 == 0 && exchange.self() == Rank{1}) std::this_thread::sleep_for(5ms);
      for (Operation* const operation : {&meeting, &small, &large, &along, &stale})
        if (!runs(*operation)) return 1;
      if (ring[32767] != 3) return 2;
    }
    communicator.synchronize();
    return 0;
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{0, 0, 0}));
  for (const std::uint32_t rank : {0u, 1u, 2u}) {
    const std::string command = "python3 -c '" + std::string(R"(
import collections, json, sys
trace = json.load(open(sys.argv[1]))
count = collections.Counter(e["name"] for e in trace["traceEvents"] if e.get("cat") == "call")
assert sorted(count.values()) == [10] * 5, count
assert not any(e["args"]["untimed_calls"] for e in trace["traceEvents"] if e.get("name") == "thread_name")
names = [e["args"]["name"] for e in trace["traceEvents"] if e.get("name") == "thread_name"]
assert "barrier #1 \"meeting of all\"" in names, names
assert trace["otherData"]["events_dropped"] == 0, trace["otherData"]
assert any(e.get("cat") == "wait" for e in trace["traceEvents"])
)") + "' " + path("rank" + std::to_string(rank) + ".json");
    EXPECT_EQ(std::system(command.c_str()), 0);
  }
}

/// Both ranks call as quickly as they can, and rank 1 is late three times.  The trace of rank 0 has
/// these three calls, whether or not they were to be timed, and the traces count all calls that
/// they do not have.
TEST_F(Traces, count_calls_that_they_do_not_time_and_have_those_that_wait) {
  ::unsetenv("TUTTI_TRACE_SHORT_CALLS");
  const test::SharedCount waited;
  const auto results = run_local({.rank_count = 2}, [&](Exchange& exchange) {
    Context context(test::on_test_device(exchange));
    Communicator communicator(context, exchange);
    const double mine = 1;
    double whole = 0;
    Operation sums = allreduce<double>(communicator, {&mine, 1}, {&whole, 1}, sum);
    for (std::uint32_t call = 1; call <= 10'000; ++call) {
      if (call % 3001 == 0) {
        if (exchange.self() == Rank{1} && !waited.comes_to(call / 3001)) return 1;
        if (exchange.self() == Rank{0}) {
          if (sums.start() != Status::ok || sums.wait(1ms) != Status::timed_out) return 2;
          waited.add();
          if (sums.wait(30s) != Status::ok) return 3;
          continue;
        }
      }
      if (!runs(sums)) return 4;
    }
    return whole == 2 ? 0 : 5;
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{0, 0}));
  for (const std::uint32_t rank : {0u, 1u}) {
    const std::string command = "python3 -c '" + std::string(R"(
import json, sys
trace = json.load(open(sys.argv[1]))
events = trace["traceEvents"]
[operation] = [e["args"] for e in events if e.get("name") == "thread_name"]
assert trace["otherData"]["events_dropped"] == 0, trace["otherData"]
begins = [e for e in events if e.get("cat") == "call"]
assert len(begins) == operation["timed_calls"], operation
assert operation["timed_calls"] + operation["untimed_calls"] == 10000, operation
before = 0
for e in begins:
    assert e["args"]["call"] == before + e["args"].get("untimed_calls", 0) + 1, (before, e)
    before = e["args"]["call"]
if sys.argv[2] == "0":
    call, waited = 0, set()
    for e in events:
        if e.get("cat") == "call":
            call = e["args"]["call"]
        if e.get("cat") == "wait":
            waited.add(call)
    assert {3001, 6002, 9003} <= waited, sorted(waited)
)") + "' " + path("rank" + std::to_string(rank) + ".json") +
                                " " + std::to_string(rank);
    EXPECT_EQ(std::system(command.c_str()), 0);
  }
}

TEST_F(Traces, have_rounds_and_waits) {
  const test::SharedCount waited;
  const auto results = run_local({.rank_count = 2}, [&](Exchange& exchange) {
    Context context(test::on_test_device(exchange));
    Communicator communicator(context, exchange);
    Operation meeting = barrier(communicator);
    for (unsigned call = 1; call <= 5; ++call) {
      if (exchange.self() == Rank{1}) {
        if (!waited.comes_to(call) || !runs(meeting)) return 1;
        continue;
      }
      if (meeting.start() != Status::ok || meeting.wait(1ms) != Status::timed_out) return 2;
      waited.add();
      if (meeting.wait(30s) != Status::ok) return 3;
    }
    return 0;
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{0, 0}));
  EXPECT_TRUE(has(0, "calls=5 rounds=5 failed=0", 5));
  EXPECT_TRUE(has(1, "calls=5 rounds=5 failed=0", 0));
}

/// The ranks of a file's name are those in the first communicators, here of two pairs.
TEST_F(Traces, of_processes_with_one_rank_do_not_overwrite_each_other) {
  const test::SharedCount met;
  const std::uint16_t ports[] = {test::free_port(), test::free_port()};
  const auto results = run_local({.rank_count = 4}, [&](Exchange& all) {
    const std::uint32_t self = index_of(all.self()), pair = self / 2;
    const auto exchange = test::meet_over_tcp(self % 2, 2, ports[pair]);
    Context context(test::on_test_device(*exchange));
    Communicator communicator(context, *exchange);
    met.add();
    if (!met.comes_to(4)) return 1;
    Operation meeting = barrier(communicator);
    for (int call = 0; call < 5; ++call)
      if (!runs(meeting)) return 2;
    return 0;
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{0, 0, 0, 0}));
  for (const std::uint32_t rank : {0u, 1u})
    for (const char* const suffix : {"", ".2"})
      EXPECT_TRUE(has(rank, "calls=5 rounds=5 failed=0", 0, suffix)) << rank << suffix;
}

TEST_F(Traces, are_there_after_a_failure_without_an_orderly_end) {
  const test::SharedCount finished;
  const auto results = run_local({.rank_count = 2}, [&](Exchange& exchange) {
    Context context(test::on_test_device(exchange));
    Communicator communicator(context, exchange);
    Operation meeting = barrier(communicator);
    if (!runs(meeting)) return 1;
    finished.add();
    if (exchange.self() == Rank{1}) ::_exit(finished.comes_to(2) ? 0 : 3);
    if (meeting.start() != Status::ok || meeting.wait(30s) != Status::peer_failed) return 2;
    ::_exit(0);
  });
  EXPECT_EQ(codes_of(results).front(), 0);
  EXPECT_TRUE(has(0, "calls=2 rounds=2 failed=1", 1));
  EXPECT_TRUE(has(1, "calls=0 rounds=0 failed=0", 0)) << "empty, and yet JSON";
}

TEST_F(Traces, of_operations_that_come_and_go_are_bounded) {
  ::setenv("TUTTI_TRACE_BYTES", "4K", 1);
  const auto results = run_local({.rank_count = 2}, [](Exchange& exchange) {
    Context context(test::on_test_device(exchange));
    Communicator communicator(context, exchange);
    for (int round = 0; round < 20; ++round) {
      Operation meeting = barrier(communicator);
      for (int call = 0; call < 10; ++call)
        if (!runs(meeting)) return 1;
    }
    return 0;
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{0, 0}));
  for (const char* const name : {"rank0.json", "rank1.json"}) {
    const std::string command = "python3 -c '" + std::string(R"(
import json, sys
trace = json.load(open(sys.argv[1]))
assert trace["otherData"]["events_dropped"] > 0
calls = [e for e in trace["traceEvents"] if e.get("cat") == "call"]
assert 0 < len(calls) <= 128, len(calls)
assert calls[-1]["args"]["call"] == 10 and calls[-1]["name"] == "barrier #20", calls[-1]
)") + "' " + path(name);
    EXPECT_EQ(std::system(command.c_str()), 0);
  }
}

TEST_F(Traces, that_one_rank_cannot_write_fail_the_communicator_on_all) {
  ASSERT_EQ(::mkdir(path("rank1.json").c_str(), S_IRWXU), 0);
  const auto results = run_local({.rank_count = 3}, [](Exchange& exchange) {
    Context context(test::on_test_device(exchange));
    try {
      const Communicator communicator(context, exchange);
    } catch (const Error& error) {
      const std::string text = error.what();
      const char* const expected = exchange.self() == Rank{1}
                                       ? "rank1.json: Is a directory; expected the path of a file"
                                       : "rank 1 cannot write the file of its TUTTI_TRACE";
      if (error.code() == ErrorCode::invalid_argument && text.find(expected) != std::string::npos)
        return 0;
      std::fprintf(stderr, "%s\n", text.c_str());
    }
    return 1;
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{0, 0, 0}));
}

/// Rank 1 comes late: the table of rank 0 says so, and nothing else.
TEST(Stragglers, are_printed_when_a_communicator_is_destroyed) {
  ::setenv("TUTTI_STRAGGLERS", "1", 1);
  const std::string file = "/tmp/tutti_stragglers." + std::to_string(::getpid());
  const test::SharedCount waited;
  const auto results = run_local({.rank_count = 2}, [&](Exchange& exchange) {
    const int log = ::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (log < 0 || (exchange.self() == Rank{0} && ::dup2(log, 2) < 0)) return 1;
    Context context(test::on_test_device(exchange));
    Communicator communicator(context, exchange);
    Operation meeting = barrier(communicator);
    if (exchange.self() == Rank{1}) return waited.comes_to(1) && runs(meeting) ? 0 : 2;
    if (meeting.start() != Status::ok || meeting.wait(50ms) != Status::timed_out) return 3;
    waited.add();
    return meeting.wait(30s) == Status::ok ? 0 : 4;
  });
  ::unsetenv("TUTTI_STRAGGLERS");
  EXPECT_EQ(codes_of(results), (std::vector<int>{0, 0}));
  const std::string command =
      "test \"$(sed -E 's/[0-9]+[.][0-9]{6}/T/g; s/[0-9]+ times/N times/' " + file +
      ")\" = \"$(printf 'tutti: communicator 1, rank 0 of 2 waited for\\n"
      "  rank 1: T s in all, T s at once, the last one N times')\" || { cat " +
      file + "; false; }";
  EXPECT_EQ(std::system(command.c_str()), 0);
  ::unlink(file.c_str());
}

}  // namespace
}  // namespace tutti
