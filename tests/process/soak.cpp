// soak RANKS CALLS: consecutive barriers and allreduces with random delays; every result is checked
// and memory must not grow.  soak RANKS CALLS broadcast: rank 0 broadcasts as fast as it can while
// the last rank, a leaf of the tree, goes to sleep now and then; the root may then be two calls
// ahead of it and no more, and what it has sent takes no memory.  There are two or three ranks, so
// that the root sends to the sleeper itself.
//
// soak RANKS SECONDS every: every collective, on three communicators of one context: one over the
// exchange of the ranks, a part that is split from it, and one over a second exchange.  Operations
// are destroyed and made again sixty times.  After each tenth of the time, memory, arena, queue
// pairs, descriptors, mappings and threads of each process are compared with what they were after
// the first tenth.
//
// Exit status 0 if all is well.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

#include "runtime/context.hpp"
#include "support/every_collective.hpp"
#include "support/held_resources.hpp"
#include "support/jobs.hpp"
#include "support/operators.hpp"
#include "support/process_memory.hpp"

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

/// The resources of which a process must not take more and more.
struct Footprint {
  tutti::test::ProcessMemory memory = {};
  tutti::test::HeldResources held = {};
  std::size_t arena_pages_bytes = 0, arena_gap_bytes = 0;
  std::uint32_t queue_pairs = 0;

  static Footprint of(tutti::Context& context) {
    tutti::verbs::VerbsFabric& fabric = context.implementation().fabric;
    return {.memory = tutti::test::ProcessMemory::now(),
            .held = tutti::test::HeldResources::now(),
            .arena_pages_bytes = fabric.arena().bytes_with_pages(),
            .arena_gap_bytes = fabric.arena().largest_gap(),
            .queue_pairs = fabric.connections().count()};
  }

  std::string words() const {
    return "heap " + std::to_string(memory.heap) + ", pages " + std::to_string(memory.anonymous) +
           ", shared " + std::to_string(memory.shared) + ", arena " +
           std::to_string(arena_pages_bytes) + " (largest gap " + std::to_string(arena_gap_bytes) +
           ") bytes; " + std::to_string(queue_pairs) + " queue pairs, " +
           std::to_string(held.descriptors) + " descriptors, " +
           std::to_string(held.shared_mappings) + " mappings, " + std::to_string(held.threads) +
           " threads";
  }

  /// Why this is more than `before`; empty: it is not.
  std::string beyond(const Footprint& before) const {
    // A word for each operation so far, of which there are some 4,000, with room for a vector that
    // doubles; and what the allocator keeps.
    constexpr std::size_t heap_allowed = 128u << 10;
    [[maybe_unused]] constexpr std::size_t pages_allowed = 1u << 20;
    // Room for a block or two of operations that were destroyed before their receivers had read
    // everything.  A block lost each time that all are made again would add up to more.
    constexpr std::size_t gap_allowed = 16u << 10;
    if (memory.heap > before.memory.heap + heap_allowed) return "the heap has grown";
#if !defined(__SANITIZE_ADDRESS__)  // which keeps what is freed
    if (memory.anonymous > before.memory.anonymous + pages_allowed) return "pages have grown";
#endif
    if (memory.shared > before.memory.shared) return "shared memory has grown";
    if (arena_pages_bytes > before.arena_pages_bytes) return "the arena has grown";
    if (arena_gap_bytes + gap_allowed < before.arena_gap_bytes)
      return "the arena's largest gap has shrunk";
    if (queue_pairs > before.queue_pairs) return "there are more queue pairs";
    return held.beyond(before.held);
  }
};

/// Rank 0 says by its clock in which part of the time the ranks are.
class Clockwork {
 public:
  Clockwork(tutti::Communicator& communicator, std::chrono::nanoseconds part)
      : is_rank_0_(communicator.rank() == tutti::Rank{0}),
        part_(part),
        tell_(broadcast(communicator,
                        {.buffer = &now_, .bytes = sizeof now_, .root = tutti::Rank{0}})) {}

  /// Empty if that fails.
  std::optional<std::uint64_t> parts_passed(std::uint32_t self) {
    now_ = is_rank_0_ ? static_cast<std::uint64_t>((Clock::now() - begin_) / part_) : 0;
    if (!run_once(tell_, self)) return std::nullopt;
    return now_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  bool is_rank_0_;
  std::chrono::nanoseconds part_;
  Clock::time_point begin_ = Clock::now();
  std::uint64_t now_ = 0;
  tutti::Operation tell_;
};

/// Runs collectives of several communicators side by side.  False: one has failed or is wrong.
bool run_some(const std::vector<std::unique_ptr<tutti::test::EveryCollective>>& sets,
              std::mt19937& random, std::uint32_t self) {
  std::vector<std::size_t> which;
  for (const auto& set : sets) which.push_back(random() % set->size());
  for (std::size_t i = 0; i < sets.size(); ++i)
    if (sets[i]->start(which[i]) != tutti::Status::ok) return false;
  for (std::size_t i = 0; i < sets.size(); ++i) {
    tutti::Operation& operation = (*sets[i])[which[i]];
    if (operation.wait(30s) != tutti::Status::ok) {
      std::fprintf(stderr, "rank %u: %s\n", self, operation.describe().c_str());
      return false;
    }
    if (!sets[i]->is_right(which[i])) {
      std::fprintf(stderr, "rank %u: %s: wrong result\n", self, sets[i]->name(which[i]));
      return false;
    }
  }
  return true;
}

/// The ranks meet at `port`, too.
int every_collective(tutti::Exchange& exchange, std::uint64_t seconds, std::uint16_t port) {
  constexpr std::uint64_t tenths = 10, remakes_per_tenth = 6;
  const std::uint32_t self = index_of(exchange.self());
  const auto second_exchange = tutti::test::meet_over_tcp(self, exchange.rank_count(), port);
  tutti::ContextOptions options;
  options.arena_bytes = 32u << 20;
  tutti::Context context(options);
  tutti::Communicator whole(context, exchange), other(context, *second_exchange);
  std::optional<tutti::Communicator> part = whole.split(self % 2);
  const std::chrono::nanoseconds time = std::chrono::seconds(seconds);
  Clockwork clockwork(whole, time / (tenths * remakes_per_tenth));
  std::vector<std::unique_ptr<tutti::test::EveryCollective>> sets;
  std::mt19937 random(11), delays(self);
  std::optional<Footprint> settled;
  std::uint64_t calls = 0, made = UINT64_MAX;
  for (std::uint64_t passed = 0; passed < tenths * remakes_per_tenth;) {
    if (passed != made) {
      while (!sets.empty()) sets.pop_back();
      for (tutti::Communicator* communicator : {&whole, &*part, &other})
        sets.push_back(std::make_unique<tutti::test::EveryCollective>(
            *communicator, tutti::test::EveryCollective::Wanted{}));
      // Each look is at the same state: operations have been made again, and not used yet.
      if (passed / remakes_per_tenth != made / remakes_per_tenth && passed >= remakes_per_tenth) {
        whole.synchronize();
        const Footprint now = Footprint::of(context);
        if (!settled) settled = now;
        const std::string grown = now.beyond(*settled);
        std::printf("rank %u, %llu calls: %s%s%s\n", self, static_cast<unsigned long long>(calls),
                    now.words().c_str(), grown.empty() ? "" : ": ", grown.c_str());
        std::fflush(stdout);
        if (!grown.empty()) return 1;
      }
      made = passed;
    }
    for (int call = 0; call < 50; ++call) {
      if (delays() % 64 == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(delays() % 200));
      if (!run_some(sets, random, self)) return 1;
      calls += sets.size();
    }
    const std::optional<std::uint64_t> now = clockwork.parts_passed(self);
    if (!now) return 1;
    passed = *now;
  }
  whole.synchronize();
  return settled ? 0 : 1;
}

}  // namespace

int main(int count, char** values) {
  const bool broadcasts = count == 4 && std::string_view(values[3]) == "broadcast";
  const bool has_every = count == 4 && std::string_view(values[3]) == "every";
  const auto ranks =
      count < 3 ? 0 : static_cast<std::uint32_t>(std::strtoul(values[1], nullptr, 10));
  const std::uint64_t calls = count < 3 ? 0 : std::strtoull(values[2], nullptr, 10);
  if ((count != 3 && !broadcasts && !has_every) || ranks < 1 ||
      (broadcasts && (ranks < 2 || ranks > 3)) || calls < (has_every ? 1 : 100) ||
      calls > UINT32_MAX) {
    std::fprintf(
        stderr,
        "usage: soak RANKS CALLS [broadcast], with 100 calls at least, and 2 or 3 ranks for "
        "broadcast; or soak RANKS SECONDS every\n");
    return 2;
  }
  const tutti::test::SharedCount done;
  const std::uint16_t port = has_every ? tutti::test::free_port() : std::uint16_t{0};
  int wrong = 0;
  for (const tutti::LocalResult& result :
       tutti::run_local({.rank_count = ranks}, [&](tutti::Exchange& exchange) {
         if (has_every) return every_collective(exchange, calls, port);
         return broadcasts
                    ? broadcast_to_a_sleeper(exchange, static_cast<std::uint32_t>(calls), done)
                    : soak(exchange, calls);
       }))
    wrong += result.exit_status != 0 || result.signal != 0 ? 1 : 0;
  return wrong == 0 ? 0 : 1;
}
