#include "shm/copy_costs.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cstring>
#include <limits>
#include <tutti/detail/bulk_copy.hpp>
#include <vector>

#include "shm/peer_memory.hpp"

namespace tutti::shm {
namespace {

using Clock = std::chrono::steady_clock;

/// Sizes of the payloads that take turns: none but the word, a page, a chunk.
constexpr std::array<std::size_t, 3> sizes = {0, costs_page_bytes, costs_chunk_bytes};
constexpr std::uint64_t rounds_max = 10;
/// Fewer rounds give no result: the first ones bring pages and code into the caches.
constexpr std::uint64_t rounds_min = 3;
constexpr std::uint64_t steps_max = 0xff00;  // counts rounds that count and rounds that do not
constexpr std::uint64_t over = 0xffff;       // not a step: the leader is done
constexpr unsigned looks_per_turn = 256;     // takes about as long as a chunk

double nanoseconds_since(Clock::time_point begin) noexcept {
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

template <class T>
void store(T& into, T value, std::memory_order order = std::memory_order_relaxed) noexcept {
  std::atomic_ref(into).store(value, order);
}
template <class T>
T load(const T& at, std::memory_order order = std::memory_order_relaxed) noexcept {
  return std::atomic_ref(const_cast<T&>(at)).load(order);  // nothing is written
}

void lower(double& least, double one) noexcept {
  least = std::min(least, one);
}

/// Whether the other rank's step becomes `expected` before `end`.
bool await(const CopyBoard& theirs, std::uint64_t id, std::uint64_t expected,
           Clock::time_point end) noexcept {
  for (;;) {
    for (unsigned looks = 0; looks < looks_per_turn; ++looks) {
      const std::uint64_t step = load(theirs.step, std::memory_order_acquire);
      if (step == id + expected) return true;
      if (step == id + over) return false;
    }
    if (Clock::now() >= end) return false;
    sched_yield();
  }
}

bool read_costs(CopyCosts& costs, std::int32_t process, std::uint64_t readable,
                const std::vector<std::byte>& own, std::vector<std::byte>& into,
                Clock::time_point end) {
  for (std::uint64_t round = 0; round < rounds_max; ++round) {
    if (round >= rounds_min && Clock::now() >= end) break;
    for (auto [bytes, least] : {std::pair{std::size_t{8}, &costs.read_call},
                                std::pair{costs_page_bytes, &costs.read_page},
                                std::pair{costs_chunk_bytes, &costs.read_chunk}}) {
      const Clock::time_point begin = Clock::now();
      if (read_peer_memory(process, readable, into.data(), bytes) != 0) return false;
      lower(*least, nanoseconds_since(begin));
    }
    const Clock::time_point begin = Clock::now();
    std::memcpy(into.data(), own.data(), costs_chunk_bytes);
    lower(costs.own_chunk, nanoseconds_since(begin));
  }
  return true;
}

}  // namespace

CopyOutcome measure_copies_as_leader(const CopyProbe& probe, std::byte* block, std::int32_t process,
                                     std::uint64_t readable) {
  assert((probe.id & over) == 0);
  assert(probe.mine != nullptr);
  if (block == nullptr) {
    store(probe.mine->step, probe.id + over, std::memory_order_release);
    return {};
  }
  const Clock::time_point end = Clock::now() + probe.patience;
  std::vector<std::byte> own(costs_chunk_bytes, std::byte{1}), other(costs_chunk_bytes);
  constexpr double none = std::numeric_limits<double>::infinity();
  double there_and_back = none;
  CopyCosts costs{none, none, none, none, none, none, none, none, none};
  store(probe.mine->block, reinterpret_cast<std::uint64_t>(block));
  std::array<std::uint64_t, sizes.size()> counted = {};
  detail::BulkCopy streaming{detail::Stores::streaming};  // the engine may use these stores, too
  CopyOutcome outcome;
  for (std::uint64_t step = 0; step < steps_max && counted.back() < rounds_max; ++step) {
    const std::size_t size = step % sizes.size(), bytes = sizes[size];
    const int cpu = sched_getcpu();
    const Clock::time_point begin = Clock::now();
    if (bytes == costs_chunk_bytes && step / sizes.size() % 2 == 1)
      streaming(block, own.data(), bytes);
    else if (bytes > 0)
      std::memcpy(block, own.data(), bytes);
    const double put = nanoseconds_since(begin);
    const Clock::time_point announced = Clock::now();
    store(probe.mine->step, probe.id + step + 1, std::memory_order_release);
    outcome.block_is_free = await(*probe.theirs, probe.id, step + 1, end);
    if (!outcome.block_is_free) break;
    const double answered = nanoseconds_since(announced);
    const auto get = static_cast<double>(load(probe.theirs->get_ns));
    const auto their_cpu = static_cast<int>(load(probe.theirs->cpu));
    if (cpu == their_cpu || sched_getcpu() == their_cpu) continue;
    ++counted[size];
    if (bytes == 0) {
      lower(there_and_back, answered);
    } else if (bytes == costs_page_bytes) {
      lower(costs.put_page, put);
      lower(costs.get_page, get);
    } else if (put + get < costs.put_chunk + costs.get_chunk) {  // either kind of stores may win
      costs.put_chunk = put;
      costs.get_chunk = get;
    }
  }
  store(probe.mine->step, probe.id + over, std::memory_order_release);
  if (*std::min_element(counted.begin(), counted.end()) < rounds_min) return outcome;
  costs.word = there_and_back / 2;
  // Ranks that are threads share their memory, and the memory at `readable` may be in use.
  if (process == ::getpid()) readable = reinterpret_cast<std::uint64_t>(own.data());
  if (read_costs(costs, process, readable, own, other, end)) outcome.costs = costs;
  return outcome;
}

void measure_copies_as_partner(const CopyProbe& probe,
                               const std::function<const std::byte*(std::uint64_t)>& block_at) {
  assert((probe.id & over) == 0);
  assert(probe.theirs != nullptr);
  const Clock::time_point end = Clock::now() + probe.patience;
  std::vector<std::byte> own(costs_chunk_bytes, std::byte{1});
  const std::byte* block = nullptr;
  for (std::uint64_t step = 0; step < steps_max; ++step) {
    if (!await(*probe.theirs, probe.id, step + 1, end)) return;
    if (block == nullptr) block = block_at(load(probe.theirs->block));
    const Clock::time_point begin = Clock::now();
    if (const std::size_t bytes = sizes[step % sizes.size()]; bytes > 0)
      std::memcpy(own.data(), block, bytes);
    store(probe.mine->get_ns, static_cast<std::uint64_t>(nanoseconds_since(begin)));
    store(probe.mine->cpu, static_cast<std::uint64_t>(sched_getcpu()));
    store(probe.mine->step, probe.id + step + 1, std::memory_order_release);
  }
}

}  // namespace tutti::shm
