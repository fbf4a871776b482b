// Promise: each rank prints for whom it has waited, if it is asked for that.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <tutti/tutti.hpp>

#include "support/device.hpp"
#include "support/jobs.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::codes_of;

bool runs(Operation& operation) {
  return operation.start() == Status::ok && operation.wait(30s) == Status::ok;
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
      "test \"$(sed -E 's/0[.][0-9]{6}/T/g; s/[0-9]+ times/N times/' " + file +
      ")\" = \"$(printf 'tutti: communicator 1, rank 0 of 2 waited for\\n"
      "  rank 1: T s in all, T s at once, the last one N times')\" || { cat " +
      file + "; false; }";
  EXPECT_EQ(std::system(command.c_str()), 0);
  ::unlink(file.c_str());
}

}  // namespace
}  // namespace tutti
