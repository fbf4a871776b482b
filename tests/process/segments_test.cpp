// Promise: allreduces whose buffers are in segments on all ranks, or registered, give what others
// give, whatever the chunks; where one rank's are not, they do too; segments that do not fit are
// refused on all ranks.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>

#include "support/device.hpp"
#include "support/jobs.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::codes_of;

/// The thread sanitizer does not see how messages order what two processes do.
#if defined(__SANITIZE_THREAD__)
constexpr auto launch = run_local_threads;
#else
constexpr auto launch = run_local;
#endif

ContextOptions options_for_test(const Exchange& exchange, std::size_t chunk_bytes = 0) {
  ContextOptions options = test::on_test_device(exchange);
  options.arena_bytes = 16u << 20;
  options.ranks_per_node = {1};
  options.chunk_bytes = chunk_bytes;
  return options;
}

std::uint64_t contribution(std::uint32_t rank, std::uint64_t call, std::size_t i) {
  return (rank + 1) * 1'000'003 + call * 7919 + i;
}

void contribute(std::span<std::uint64_t> into, std::uint32_t rank, std::uint64_t call) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = contribution(rank, call, i);
}

bool is_sum(std::span<const std::uint64_t> result, std::uint32_t rank_count, std::uint64_t call) {
  for (std::size_t i = 0; i < result.size(); ++i) {
    std::uint64_t expected = 0;
    for (std::uint32_t rank = 0; rank < rank_count; ++rank) expected += contribution(rank, call, i);
    if (result[i] != expected) return false;
  }
  return true;
}

enum class Memory { segments, registered, mixed };

struct Shape {
  std::uint32_t rank_count;
  Algorithm algorithm;
  std::size_t element_count;
  std::size_t chunk_bytes;
  Memory memory = Memory::segments;
  std::uint32_t without = UINT32_MAX;  // a rank that has neither
};

bool is_zero_copy(const Operation& operation) {
  const std::string name = operation.algorithm();
  return name.find("_zero_copy") != std::string::npos;
}

/// Calls at random times, in place now and then; what was given is written over at once.
int call_often(Exchange& exchange, const Shape& shape) {
  ContextOptions options = options_for_test(exchange, shape.chunk_bytes);
  options.register_buffers = shape.memory != Memory::segments;
  Context context(options);
  Communicator ranks(context, exchange);
  const std::uint32_t self = index_of(ranks.rank());
  const std::size_t bytes = shape.element_count * sizeof(std::uint64_t);
  const Segment source = ranks.allocate(bytes), target = ranks.allocate(bytes);
  std::vector<std::uint64_t> others[2];
  std::span<std::uint64_t> from = source.as<std::uint64_t>(), into = target.as<std::uint64_t>();
  const bool takes_segments =
      shape.memory == Memory::segments || (shape.memory == Memory::mixed && self % 2 == 0);
  if (self == shape.without || !takes_segments) {
    for (std::vector<std::uint64_t>& other : others) other.resize(shape.element_count);
    from = others[0];
    into = others[1];
  }
  Operation operation =
      allreduce(ranks, {.source = from.data(),
                        .target = into.data(),
                        .element_count = shape.element_count,
                        .reduction = built_in_reduction(BuiltIn::sum, ElementType::uint64),
                        .algorithm = shape.algorithm});
  if (is_zero_copy(operation) != (shape.without == UINT32_MAX)) return 1;
  std::mt19937 random(self);
  for (std::uint64_t call = 0; call < 12; ++call) {
    const std::span<std::uint64_t> given = call % 3 == 2 ? into : from;
    contribute(given, self, call);
    if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
    if (operation.start(given.data(), into.data()) != Status::ok) return 2;
    if (operation.wait(20s) != Status::ok) return 3;
    if (!is_sum(into, shape.rank_count, call)) return 4;
    std::fill(from.begin(), from.end(), 0xa5a5);
    std::fill(into.begin(), into.end(), 0x5a5a);
  }
  return 0;
}

TEST(Segments, GiveWhatOtherBuffersGive) {
  for (const std::uint32_t rank_count : {2u, 3u, 5u})
    for (const Algorithm algorithm :
         {Algorithm::automatic, Algorithm::ring, Algorithm::chunked_fold})
      for (const std::size_t elements : {8192u, 8193u, 30'011u})
        for (const std::size_t chunk : {std::size_t{0}, std::size_t{4096}}) {
          const Shape shape{rank_count, algorithm, elements, chunk};
          const auto results = launch({.rank_count = rank_count}, [&](Exchange& exchange) {
            return call_often(exchange, shape);
          });
          EXPECT_EQ(codes_of(results), std::vector<int>(rank_count))
              << rank_count << " ranks, " << elements << " elements, chunks of " << chunk;
        }
}

TEST(Segments, OrRegisteredBuffers) {
  for (const Memory memory : {Memory::registered, Memory::mixed})
    for (const std::uint32_t rank_count : {2u, 3u})
      for (const Algorithm algorithm : {Algorithm::ring, Algorithm::chunked_fold})
        for (const std::size_t chunk : {std::size_t{0}, std::size_t{4096}}) {
          const auto results = launch({.rank_count = rank_count}, [&](Exchange& exchange) {
            return call_often(exchange, {rank_count, algorithm, 9001, chunk, memory});
          });
          EXPECT_EQ(codes_of(results), std::vector<int>(rank_count))
              << rank_count << " ranks, chunks of " << chunk;
        }
}

TEST(Segments, OneRankWithoutMakesItAnOrdinaryCall) {
  for (const std::uint32_t without : {0u, 2u}) {
    const auto results = launch({.rank_count = 3}, [&](Exchange& exchange) {
      return call_often(exchange, {3, Algorithm::automatic, 9000, 0, Memory::segments, without});
    });
    EXPECT_EQ(codes_of(results), std::vector<int>(3)) << without;
  }
}

TEST(Segments, OneThatDoesNotFitIsRefusedOnAllRanks) {
  const auto results = launch({.rank_count = 3}, [](Exchange& exchange) {
    Context context(options_for_test(exchange));
    Communicator ranks(context, exchange);
    const bool is_greedy = index_of(ranks.rank()) == 1;
    try {
      (void)ranks.allocate(is_greedy ? std::size_t{1} << 40 : 4096);
      return 1;
    } catch (const Error& error) {
      const std::string text = error.what();
      if (error.code() != ErrorCode::limit_exceeded) return 2;
      if (text.find("1099511627776 bytes") == std::string::npos ||
          text.find("TUTTI_ARENA_BYTES") == std::string::npos)
        return 3;
      if ((text.find("rank 1: ") == std::string::npos) != is_greedy) return 4;
    }
    // What the others had taken is free again.
    const Segment whole = ranks.allocate(15u << 20);
    return whole.size() == 15u << 20 && whole.data()[12345] == std::byte{0} ? 0 : 5;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(3));
}

#if !defined(__SANITIZE_THREAD__)  // ranks that end the program

enum class Misuse { other_target, source_outside, early_end };

int misuse(Exchange& exchange, Misuse which) {
  Context context(options_for_test(exchange));
  Communicator ranks(context, exchange);
  constexpr std::size_t elements = 8192;
  std::vector<double> outside(elements);
  std::optional<Segment> segment(ranks.allocate(3 * elements * sizeof(double)));
  const std::span<double> memory = segment->as<double>();
  const std::span<double> source = memory.first(elements), target = memory.last(elements);
  Operation operation = allreduce<double>(ranks, source, target, sum);
  if (index_of(ranks.rank()) == 1) return 0;
  if (which == Misuse::other_target)
    (void)operation.start(source.data(), source.data() + elements);
  else if (which == Misuse::source_outside)
    (void)operation.start(outside.data(), target.data());
  else
    segment.reset();
  return 0;
}

TEST(Segments, MisuseEndsTheProgram) {
  for (const Misuse which : {Misuse::other_target, Misuse::source_outside, Misuse::early_end}) {
    const auto results =
        run_local({.rank_count = 2}, [&](Exchange& exchange) { return misuse(exchange, which); });
    EXPECT_EQ(codes_of(results), (std::vector<int>{1000 + SIGABRT, 0})) << static_cast<int>(which);
  }
}

#endif

}  // namespace
}  // namespace tutti
