// soak RANKS CALLS: consecutive barriers and allreduces with random delays; every result is checked
// and memory must not grow.  soak RANKS CALLS broadcast: rank 0 broadcasts as fast as it can while
// the last rank, a leaf of the tree, goes to sleep now and then; the root may then be two calls
// ahead of it and no more, and what it has sent takes no memory.  There are two or three ranks, so
// that the root sends to the sleeper itself.  Exit status 0 if all is well.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string_view>
#include <thread>
#include <tutti/tutti.hpp>

#include "support/jobs.hpp"
#include "support/operators.hpp"

namespace {

using namespace std::chrono_literals;

/// What a process takes of its memory.
struct Memory {
  std::size_t resident_pages = 0, heap_bytes = 0;

  static Memory now() {
    std::size_t total = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> total >> resident;
    return {resident, mallinfo2().uordblks};
  }
};

/// Whether `self` takes more than `before`.  A leak of one byte in ten calls would show; the
/// allocator's own caches settle within a page.
bool has_grown(std::uint32_t self, const Memory& before) {
  const Memory after = Memory::now();
  const std::size_t kilobytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) / 1024;
  std::printf("rank %u: resident %zu KiB before, %zu KiB after; heap %zu and %zu bytes\n", self,
              before.resident_pages * kilobytes, after.resident_pages * kilobytes,
              before.heap_bytes, after.heap_bytes);
  const bool grown = after.heap_bytes > before.heap_bytes + 4096 ||
                     after.resident_pages > before.resident_pages + 64;
  if (grown) std::fprintf(stderr, "rank %u: memory grew\n", self);
  std::fflush(stdout);
  return grown;
}

/// Whether it ended well; else says on stderr what happened.
bool run_once(tutti::Operation& operation, std::uint32_t self) {
  tutti::Status status = operation.start();
  if (status == tutti::Status::ok) status = operation.wait(30s);
  if (status == tutti::Status::ok) return true;
  std::fprintf(stderr, "rank %u: %s\n", self, operation.describe().c_str());
  return false;
}

int soak(tutti::Exchange& exchange, std::uint64_t calls) {
  tutti::Context context;
  tutti::Communicator communicator(context, exchange);
  const std::uint32_t self = index_of(exchange.self());
  const tutti::test::Job job = tutti::test::ordered_job();
  std::uint64_t source = 0, target = 0;
  tutti::Operation meet = barrier(communicator);
  tutti::Operation reduce = allreduce(
      communicator,
      {.source = &source, .target = &target, .element_count = 1, .reduction = job.reduction});
  std::mt19937 random(self);
  Memory settled;
  for (std::uint64_t call = 1; call <= calls; ++call) {
    if (random() % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
    source = tutti::test::input(self, call, 0);
    for (tutti::Operation* operation : {&meet, &reduce})
      if (!run_once(*operation, self)) return 1;
    const std::uint64_t expected = job.expected(exchange.rank_count(), call, 0);
    if (target != expected) {
      std::fprintf(stderr, "rank %u, call %llu: got %llx, expected %llx\n", self,
                   static_cast<unsigned long long>(call), static_cast<unsigned long long>(target),
                   static_cast<unsigned long long>(expected));
      return 1;
    }
    if (call == calls / 10) settled = Memory::now();
  }
  return has_grown(self, settled) ? 1 : 0;
}

/// `done` has how many calls the last rank has finished.
int broadcast_to_a_sleeper(tutti::Exchange& exchange, std::uint32_t calls,
                           const tutti::test::SharedCount& done) {
  constexpr std::uint32_t sleeps = 100;
  tutti::Context context;
  tutti::Communicator communicator(context, exchange);
  const std::uint32_t self = index_of(exchange.self());
  const bool sleeper = self + 1 == exchange.rank_count();
  std::uint64_t value = 0;
  tutti::Operation operation =
      broadcast(communicator, {.buffer = &value, .bytes = sizeof value, .root = tutti::Rank{0}});
  Memory settled;
  std::uint32_t ahead_max = 0;
  for (std::uint32_t call = 1; call <= calls; ++call) {
    if (sleeper && call % (calls / sleeps) == 0) std::this_thread::sleep_for(5ms);
    value = self == 0 ? tutti::test::input(0, call, 0) : 0;
    if (!run_once(operation, self)) return 1;
    if (value != tutti::test::input(0, call, 0)) {
      std::fprintf(stderr, "rank %u, call %u: got %llx\n", self, call,
                   static_cast<unsigned long long>(value));
      return 1;
    }
    if (sleeper) done.add();
    if (self == 0) ahead_max = std::max(ahead_max, call - std::min(call, done.number()));
    if (call == calls / 10) settled = Memory::now();
  }
  if (has_grown(self, settled)) return 1;
  if (self != 0) return 0;
  std::printf("rank 0 was up to %u calls ahead of those that the sleeper had counted\n", ahead_max);
  std::fflush(stdout);
  // Two, as docs/collectives.md says, and one more if the sleeper has finished a call that it has
  // not counted yet.  Fewer would mean that the root did not wait.
  if (ahead_max == 2 || ahead_max == 3) return 0;
  std::fprintf(stderr, "rank 0: up to %u calls ahead; expected 2 or 3\n", ahead_max);
  return 1;
}

}  // namespace

int main(int count, char** values) {
  const bool broadcasts = count == 4 && std::string_view(values[3]) == "broadcast";
  const auto ranks =
      count < 3 ? 0 : static_cast<std::uint32_t>(std::strtoul(values[1], nullptr, 10));
  const std::uint64_t calls = count < 3 ? 0 : std::strtoull(values[2], nullptr, 10);
  if ((count != 3 && !broadcasts) || ranks < 1 || (broadcasts && (ranks < 2 || ranks > 3)) ||
      calls < 100 || calls > UINT32_MAX) {
    std::fprintf(
        stderr,
        "usage: soak RANKS CALLS [broadcast], with 100 calls at least, and 2 or 3 ranks for "
        "broadcast\n");
    return 2;
  }
  const tutti::test::SharedCount done;
  int wrong = 0;
  for (const tutti::LocalResult& result :
       tutti::run_local({.rank_count = ranks}, [&](tutti::Exchange& exchange) {
         return broadcasts
                    ? broadcast_to_a_sleeper(exchange, static_cast<std::uint32_t>(calls), done)
                    : soak(exchange, calls);
       }))
    wrong += result.exit_status != 0 || result.signal != 0 ? 1 : 0;
  return wrong == 0 ? 0 : 1;
}
