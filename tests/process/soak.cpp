// soak RANKS CALLS: consecutive barriers and allreduces with random delays; every result is checked
// and memory must not grow.  Exit status 0 if all is well.
#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <thread>
#include <tutti/tutti.hpp>

#include "support/operators.hpp"

namespace {

using namespace std::chrono_literals;

std::size_t resident_pages() {
  std::size_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident;
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
  std::size_t pages = 0, bytes = 0;
  for (std::uint64_t call = 1; call <= calls; ++call) {
    if (random() % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
    source = tutti::test::input(self, call, 0);
    for (tutti::Operation* operation : {&meet, &reduce}) {
      tutti::Status status = operation->start();
      if (status == tutti::Status::ok) status = operation->wait(30s);
      if (status == tutti::Status::ok) continue;
      std::fprintf(stderr, "rank %u: %s\n", self, operation->describe().c_str());
      return 1;
    }
    const std::uint64_t expected = job.expected(exchange.rank_count(), call, 0);
    if (target != expected) {
      std::fprintf(stderr, "rank %u, call %llu: got %llx, expected %llx\n", self,
                   static_cast<unsigned long long>(call), static_cast<unsigned long long>(target),
                   static_cast<unsigned long long>(expected));
      return 1;
    }
    if (call == calls / 10) {
      pages = resident_pages();
      bytes = mallinfo2().uordblks;
    }
  }
  // A leak of one byte in ten calls would show; the allocator's own caches settle within a page.
  const std::size_t pages_at_end = resident_pages();
  const std::size_t bytes_at_end = mallinfo2().uordblks;
  if (bytes_at_end > bytes + 4096 || pages_at_end > pages + 64) {
    std::fprintf(stderr, "rank %u: memory grew from %zu to %zu pages, the heap from %zu to %zu\n",
                 self, pages, pages_at_end, bytes, bytes_at_end);
    return 1;
  }
  return 0;
}

}  // namespace

int main(int count, char** values) {
  if (count != 3) {
    std::fprintf(stderr, "usage: soak RANKS CALLS\n");
    return 2;
  }
  const auto ranks = static_cast<std::uint32_t>(std::strtoul(values[1], nullptr, 10));
  const std::uint64_t calls = std::strtoull(values[2], nullptr, 10);
  int wrong = 0;
  for (const tutti::LocalResult& result : tutti::run_local(
           {.rank_count = ranks}, [&](tutti::Exchange& exchange) { return soak(exchange, calls); }))
    wrong += result.exit_status != 0 || result.signal != 0 ? 1 : 0;
  return wrong == 0 ? 0 : 1;
}
