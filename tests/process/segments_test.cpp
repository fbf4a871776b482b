// Promise: allreduces whose buffers are in segments on all ranks, or registered, give what others
// give, whatever the chunks; where one rank's are not, they do too; segments that do not fit are
// refused on all ranks.  The ranks of a node may have one target of an allreduce, broadcast or
// allgather(v): each finds the result there until it starts the next call.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>

#include "support/death_amid_calls.hpp"
#include "support/device.hpp"
#include "support/jobs.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::codes_of;
using test::launch;

ContextOptions options_for_test(const Exchange& exchange, std::size_t chunk_bytes = 0) {
  ContextOptions options = test::on_test_device(exchange);
  if (test::device_is_soft()) options.arena_bytes = 16u << 20;
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

bool is_as_expected(const Operation& operation, const Shape& shape) {
  const bool is_ring = shape.algorithm == Algorithm::ring ||
                       (shape.algorithm == Algorithm::automatic && shape.rank_count == 2);
  // Or, where each rank has a CPU of its own, by price.
  if (shape.without != UINT32_MAX)
    return operation.algorithm() == "chunked_fold" || operation.algorithm() == "shared_ring";
  return operation.algorithm() == (is_ring ? "ring_zero_copy" : "chunked_fold_zero_copy");
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
  const Segment third = ranks.allocate(bytes + 1000);
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
  if (!is_as_expected(operation, shape)) return 1;
  std::mt19937 random(self);
  for (std::uint64_t call = 0; call < 12; ++call) {
    std::span<std::uint64_t> given = call % 3 == 2 ? into : from;
    if (call % 4 == 3) given = third.as<std::uint64_t>().subspan(call, shape.element_count);
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

TEST(Segments, give_what_other_buffers_give) {
  for (const std::uint32_t rank_count : test::all_or_few<std::uint32_t>({2u, 3u, 5u}, {2u, 4u, 8u}))
    for (const Algorithm algorithm : test::all_or_few<Algorithm>(
             {Algorithm::automatic, Algorithm::ring, Algorithm::chunked_fold},
             {Algorithm::ring, Algorithm::chunked_fold}))
      for (const std::size_t elements : test::all_or_few<std::size_t>(
               test::all_or_sanitized<std::size_t>({8192, 30'011}, {9001}), {8192}))
        for (const std::size_t chunk : test::all_or_few<std::size_t>({0, 4096}, {4096})) {
          const Shape shape{rank_count, algorithm, elements, chunk};
          const auto results = launch({.rank_count = rank_count}, [&](Exchange& exchange) {
            return call_often(exchange, shape);
          });
          EXPECT_EQ(codes_of(results), std::vector<int>(rank_count))
              << rank_count << " ranks, " << elements << " elements, chunks of " << chunk;
        }
}

TEST(Segments, or_registered_buffers) {
  for (const Memory memory : {Memory::registered, Memory::mixed})
    for (const std::uint32_t rank_count : test::all_or_few<std::uint32_t>({2u, 3u}, {3u}))
      for (const Algorithm algorithm : {Algorithm::ring, Algorithm::chunked_fold})
        for (const std::size_t chunk : test::all_or_few<std::size_t>({0, 4096}, {4096})) {
          const auto results = launch({.rank_count = rank_count}, [&](Exchange& exchange) {
            return call_often(exchange, {rank_count, algorithm, 9001, chunk, memory});
          });
          EXPECT_EQ(codes_of(results), std::vector<int>(rank_count))
              << rank_count << " ranks, chunks of " << chunk;
        }
}

TEST(Segments, one_rank_without_makes_it_an_ordinary_call) {
  for (const std::uint32_t without : {0u, 2u}) {
    const auto results = launch({.rank_count = 3}, [&](Exchange& exchange) {
      return call_often(exchange, {3, Algorithm::automatic, 9000, 0, Memory::segments, without});
    });
    EXPECT_EQ(codes_of(results), std::vector<int>(3)) << without;
  }
}

TEST(Segments, one_that_does_not_fit_is_refused_on_all_ranks) {
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
    try {
      (void)ranks.allocate(SIZE_MAX);
      return 5;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::limit_exceeded) return 6;
    }
    // What the others had taken is free again, and zeroed.
    for (int i = 0; i < 2; ++i) {
      const Segment whole = ranks.allocate(15u << 20);
      const std::span<std::byte> bytes = whole.as<std::byte>();
      if (bytes.size() != 15u << 20) return 7;
      if (std::count(bytes.begin(), bytes.end(), std::byte{0}) != 15 << 20) return 8;
      std::fill(bytes.begin(), bytes.end(), std::byte{1});
    }
    return 0;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(3));
}

// ---- Of nodes -----------------------------------------------------------------------------------

/// The ranks of each node have one target, and all contributions apart; one is stopped now and
/// then.
int share_target(Exchange& exchange, const std::vector<std::uint32_t>& ranks_per_node,
                 Across across, std::size_t elements) {
  ContextOptions options = options_for_test(exchange, 4096);
  options.ranks_per_node = ranks_per_node;
  Context context(options);
  Communicator ranks(context, exchange);
  const std::uint32_t self = index_of(ranks.rank());
  const std::size_t bytes = elements * sizeof(std::uint64_t);
  const Segment node = ranks.allocate(bytes + 128, Scope::node);
  std::vector<std::uint64_t> source(elements), other(elements);
  const std::span<std::uint64_t> target = node.as<std::uint64_t>().subspan(8, elements);
  const Reduction add = built_in_reduction(BuiltIn::sum, ElementType::uint64);
  Operation operation = allreduce(ranks, {.source = source.data(),
                                          .target = target.data(),
                                          .element_count = elements,
                                          .reduction = add,
                                          .across = across});
  // Beside it, one of targets of each rank.
  Operation ordinary = allreduce(ranks, {.source = source.data(),
                                         .target = other.data(),
                                         .element_count = elements,
                                         .reduction = add,
                                         .across = across});
  std::mt19937 random(self);
  for (std::uint64_t call = 0; call < 10; ++call) {
    contribute(source, self, call);
    if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
    if (operation.start() != Status::ok || operation.wait(20s) != Status::ok) return 1;
    std::fill(source.begin(), source.end(), 0xa5a5);
    if (random() % 4 == 0) std::this_thread::sleep_for(2ms);
    if (!is_sum(target, ranks.rank_count(), call)) return 2;
  }
  if (ranks.rank_count() > 1 && index_of(ranks.node()) == 0 && node.as<std::uint64_t>()[0] != 0)
    return 3;  // in front of the target
  if (ordinary.start() != Status::ok || ordinary.wait(20s) != Status::ok) return 4;
  if (!operation.algorithm().ends_with("_shared_target")) return 5;
  return ordinary.algorithm().ends_with("_shared_target") ? 6 : 0;
}

const std::vector<std::size_t> shared_elements = test::all_or_few<std::size_t>(
    test::all_or_sanitized<std::size_t>({1, 1024, 5003}, {5003}), {5003});

TEST(Segments, of_a_node_hold_its_result_once) {
  struct Job {
    std::uint32_t rank_count;
    std::vector<std::uint32_t> ranks_per_node;
  };
  for (const Job& shape :
       test::all_or_few<Job>({{2, {2}}, {3, {3}}, {4, {2}}, {5, {3, 2}}, {3, {2, 1}}}, {{4, {2}}}))
    for (const Across across : {Across::automatic, Across::leader, Across::lanes})
      for (const std::size_t elements : shared_elements) {
        const auto results = launch({.rank_count = shape.rank_count}, [&](Exchange& exchange) {
          return share_target(exchange, shape.ranks_per_node, across, elements);
        });
        EXPECT_EQ(codes_of(results), std::vector<int>(shape.rank_count))
            << shape.rank_count << " ranks, " << elements << " elements";
      }
}

struct SharedShape {
  std::uint32_t rank_count;
  std::vector<std::uint32_t> ranks_per_node;
};
std::vector<SharedShape> shared_shapes() {
  return test::all_or_few<SharedShape>({{2, {2}}, {3, {3}}, {4, {2}}, {5, {3, 2}}, {3, {1, 2}}},
                                       {{4, {2}}, {3, {1, 2}}});
}
bool is_of(std::span<const std::uint64_t> result, std::uint32_t rank, std::uint64_t call) {
  for (std::size_t i = 0; i < result.size(); ++i)
    if (result[i] != contribution(rank, call, i)) return false;
  return true;
}

/// Two broadcasts by turns, so that the root may write the next payload when a call has ended.  A
/// rank that is alone on its node has its buffer anywhere.
int share_broadcast(Exchange& exchange, const std::vector<std::uint32_t>& ranks_per_node, Rank root,
                    std::size_t elements) {
  ContextOptions options = options_for_test(exchange, 4096);
  options.ranks_per_node = ranks_per_node;
  Context context(options);
  Communicator ranks(context, exchange);
  const std::uint32_t self = index_of(ranks.rank());
  const Segment node = ranks.allocate((2 * elements + 8) * sizeof(std::uint64_t), Scope::node);
  const bool is_alone = ranks_per_node[0] == 1 && self == 0;
  std::vector<std::uint64_t> own(2 * elements), other(elements);
  const std::span<std::uint64_t> memory =
      is_alone ? std::span(own) : node.as<std::uint64_t>().subspan(8, 2 * elements);
  const std::span<std::uint64_t> buffers[2] = {memory.first(elements), memory.last(elements)};
  Operation operations[2] = {broadcast<std::uint64_t>(ranks, buffers[0], root),
                             broadcast<std::uint64_t>(ranks, buffers[1], root)};
  Operation ordinary = broadcast<std::uint64_t>(ranks, std::span(other), root);
  std::mt19937 random(self);
  for (std::uint64_t call = 0; call < 12; ++call) {
    const std::span<std::uint64_t> buffer = buffers[call % 2];
    Operation& operation = operations[call % 2];
    if (ranks.rank() == root) contribute(buffer, self, call);
    if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
    const Status started =
        call % 3 == 0 ? operation.start(buffer.data(), buffer.data()) : operation.start();
    if (started != Status::ok || operation.wait(20s) != Status::ok) return 1;
    if (!is_of(buffer, index_of(root), call)) return 2;
    if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
    if (!is_of(buffer, index_of(root), call)) return 3;
  }
  if (index_of(ranks.node()) == 0 && node.as<std::uint64_t>()[0] != 0) return 4;  // in front of it
  if (ranks.rank() == root) contribute(other, self, 77);
  if (ordinary.start() != Status::ok || ordinary.wait(20s) != Status::ok) return 5;
  if (!is_of(other, index_of(root), 77)) return 6;
  if (!operations[0].algorithm().ends_with("_shared_target")) return 7;
  return ordinary.algorithm().ends_with("_shared_target") ? 8 : 0;
}

TEST(Segments, of_a_node_hold_what_is_broadcast_once) {
  for (const SharedShape& shape : shared_shapes())
    for (const std::uint32_t root : {0u, shape.rank_count - 1})
      for (const std::size_t elements : shared_elements) {
        const auto results = launch({.rank_count = shape.rank_count}, [&](Exchange& exchange) {
          return share_broadcast(exchange, shape.ranks_per_node, Rank{root}, elements);
        });
        EXPECT_EQ(codes_of(results), std::vector<int>(shape.rank_count))
            << shape.rank_count << " ranks, root " << root << ", " << elements << " elements";
      }
}

enum class Gathered { equal, different, in_place };

/// An allgather; with blocks of different lengths in descending order; or of blocks that each rank
/// has written into the target, with two by turns.
int share_allgather(Exchange& exchange, const std::vector<std::uint32_t>& ranks_per_node,
                    Gathered kind, std::size_t elements) {
  ContextOptions options = options_for_test(exchange, 4096);
  options.ranks_per_node = ranks_per_node;
  Context context(options);
  Communicator ranks(context, exchange);
  const std::uint32_t self = index_of(ranks.rank()), count = ranks.rank_count();
  const auto length_of = [&](std::uint32_t rank) {
    return kind == Gathered::different ? elements + 3 * rank : elements;
  };
  BlockLayout layout;
  std::size_t whole = 0;
  layout.offsets.resize(count);
  for (std::uint32_t rank = count; rank-- > 0; whole += length_of(rank))
    layout.offsets[rank] = whole * sizeof(std::uint64_t);
  for (std::uint32_t rank = 0; rank < count; ++rank)
    layout.bytes.push_back(length_of(rank) * sizeof(std::uint64_t));
  const Segment node = ranks.allocate((2 * whole + 8) * sizeof(std::uint64_t), Scope::node);
  const std::span<std::uint64_t> memory = node.as<std::uint64_t>().subspan(8, 2 * whole);
  const std::span<std::uint64_t> targets[2] = {memory.first(whole), memory.last(whole)};
  std::vector<std::uint64_t> source(length_of(self));
  const auto block_of = [&](std::span<std::uint64_t> target, std::uint32_t rank) {
    return kind == Gathered::different
               ? target.subspan(layout.offsets[rank] / sizeof(std::uint64_t), length_of(rank))
               : target.subspan(rank * elements, elements);
  };
  const auto source_of = [&](std::span<std::uint64_t> target) {
    return kind == Gathered::in_place ? block_of(target, self) : std::span(source);
  };
  const auto make = [&](std::span<std::uint64_t> target) {
    return kind == Gathered::different
               ? allgatherv(ranks,
                            {.source = source.data(), .target = target.data(), .blocks = layout})
               : allgather(ranks, {.source = source_of(target).data(),
                                   .target = target.data(),
                                   .bytes = elements * sizeof(std::uint64_t)});
  };
  Operation operations[2] = {make(targets[0]), make(targets[1])};
  const auto is_right = [&](std::span<std::uint64_t> target, std::uint64_t call) {
    for (std::uint32_t rank = 0; rank < count; ++rank)
      if (!is_of(block_of(target, rank), rank, call)) return false;
    return true;
  };
  std::mt19937 random(self);
  for (std::uint64_t call = 0; call < 12; ++call) {
    const std::size_t turn = kind == Gathered::in_place ? call % 2 : 0;
    contribute(source_of(targets[turn]), self, call);
    if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
    if (operations[turn].start() != Status::ok || operations[turn].wait(20s) != Status::ok)
      return 1;
    std::fill(source.begin(), source.end(), 0xa5a5);
    if (!is_right(targets[turn], call)) return 2;
    if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
    if (!is_right(targets[turn], call)) return 3;
  }
  if (index_of(ranks.node()) == 0 && node.as<std::uint64_t>()[0] != 0) return 4;  // in front of it
  return operations[0].algorithm().ends_with("_shared_target") ? 0 : 5;
}

TEST(Segments, of_a_node_hold_what_is_gathered_once) {
  for (const SharedShape& shape : shared_shapes())
    for (const Gathered kind : {Gathered::equal, Gathered::different, Gathered::in_place})
      for (const std::size_t elements : shared_elements) {
        const auto results = launch({.rank_count = shape.rank_count}, [&](Exchange& exchange) {
          return share_allgather(exchange, shape.ranks_per_node, kind, elements);
        });
        EXPECT_EQ(codes_of(results), std::vector<int>(shape.rank_count))
            << shape.rank_count << " ranks, " << elements << " elements, kind "
            << static_cast<int>(kind);
      }
}

/// What making an operation is refused with, by ranks that share a node; "": it is not, "?": ranks
/// differ.
std::string refusal_of(const std::function<void(Communicator&, const Segment&)>& make) {
  const std::unique_ptr<test::SharedText> text = std::make_unique<test::SharedText>();
  const auto results = launch({.rank_count = 3}, [&](Exchange& exchange) {
    ContextOptions options = options_for_test(exchange);
    options.ranks_per_node = {3};
    Context context(options);
    Communicator ranks(context, exchange);
    const Segment node = ranks.allocate(1024, Scope::node);
    try {
      make(ranks, node);
    } catch (const Error& error) {
      if (index_of(ranks.rank()) == 0) text->set(error.what());
      return error.code() == ErrorCode::invalid_argument ? 1 : 2;
    }
    return 0;
  });
  const int code = codes_of(results)[0];
  if (codes_of(results) != std::vector<int>(3, code) || code == 2) return "?";
  return code == 0 ? "" : text->get();
}

TEST(Segments, buffers_of_some_ranks_of_a_node_are_refused) {
  const std::string some = refusal_of([](Communicator& ranks, const Segment& node) {
    std::byte own[64];
    std::byte* const buffer = index_of(ranks.rank()) == 2 ? own : node.data();
    (void)broadcast(ranks, {.buffer = buffer, .bytes = 64});
  });
  EXPECT_NE(some.find("broadcast: the buffers of ranks 0 and 1 are one memory (a segment of their "
                      "node), those of ranks 0 and 2, of one node, too, are not"),
            std::string::npos)
      << some;
  const std::string overlapping = refusal_of([](Communicator& ranks, const Segment& node) {
    (void)broadcast(ranks, {.buffer = node.data() + 48 * index_of(ranks.rank()), .bytes = 64});
  });
  EXPECT_NE(overlapping.find("of ranks 0 and 1, of 64 bytes each, overlap: they begin 48 bytes "
                             "apart"),
            std::string::npos)
      << overlapping;
  EXPECT_EQ(refusal_of([](Communicator& ranks, const Segment& node) {
              (void)broadcast(ranks,
                              {.buffer = node.data() + 64 * index_of(ranks.rank()), .bytes = 64});
            }),
            "");
  const std::string gathered = refusal_of([](Communicator& ranks, const Segment& node) {
    std::byte own[24] = {};
    std::byte* const target = index_of(ranks.rank()) == 0 ? own : node.data();
    (void)allgather(ranks, {.source = node.data() + 512, .target = target, .bytes = 8});
  });
  EXPECT_NE(gathered.find("allgather: the targets of ranks 1 and 2 are one memory"),
            std::string::npos)
      << gathered;
  const std::string layouts = refusal_of([](Communicator& ranks, const Segment& node) {
    const std::size_t gap = index_of(ranks.rank()) == 1 ? 8 : 0;
    std::byte own[8] = {};
    (void)allgatherv(ranks, {.source = own,
                             .target = node.data(),
                             .blocks = {.bytes = {8, 8, 8}, .offsets = {0, 8 + gap, 32}}});
  });
  EXPECT_NE(layouts.find("allgatherv: ranks 0 and 1, of one node, have one target"),
            std::string::npos)
      << layouts;
}

/// `what` gives each rank's source, target and way across, of 16 elements.
bool is_refused(
    const std::function<AllreduceArguments(std::uint32_t, const Segment&, std::uint64_t*)>& what) {
  const auto results = launch({.rank_count = 3}, [&](Exchange& exchange) {
    ContextOptions options = options_for_test(exchange);
    options.ranks_per_node = {3};
    Context context(options);
    Communicator ranks(context, exchange);
    const Segment node = ranks.allocate(1024, Scope::node);
    std::uint64_t own[16] = {};
    AllreduceArguments arguments = what(index_of(ranks.rank()), node, own);
    arguments.element_count = 16;
    arguments.reduction = built_in_reduction(BuiltIn::sum, ElementType::uint64);
    try {
      (void)allreduce(ranks, arguments);
    } catch (const Error& error) {
      const std::string text = error.what();
      if (text.find("have one target, and") != std::string::npos) return 3;
      return text.find("of its own") != std::string::npos || text.find("or none") != text.npos ? 0
                                                                                               : 2;
    }
    return 1;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(3, codes_of(results)[0]));
  return codes_of(results)[0] == 0;
}

TEST(Segments, targets_of_some_ranks_or_of_both_buffers_are_refused) {
  EXPECT_TRUE(is_refused([](std::uint32_t rank, const Segment& node, std::uint64_t* own) {
    return AllreduceArguments{.source = own, .target = node.data() + (rank == 2 ? 512 : 0)};
  }));
  EXPECT_TRUE(is_refused([](std::uint32_t, const Segment& node, std::uint64_t*) {
    return AllreduceArguments{.source = node.data(), .target = node.data()};
  }));
  EXPECT_TRUE(is_refused([](std::uint32_t, const Segment& node, std::uint64_t* own) {
    return AllreduceArguments{.source = own, .target = node.data(), .across = Across::flat};
  }));
  EXPECT_FALSE(is_refused([](std::uint32_t rank, const Segment& node, std::uint64_t* own) {
    return AllreduceArguments{.source = own, .target = node.data() + 128 * rank};
  }));
}

TEST(Segments, of_a_node_are_what_all_its_ranks_see) {
  const auto results = launch({.rank_count = 5}, [](Exchange& exchange) {
    ContextOptions options = options_for_test(exchange);
    options.ranks_per_node = {3, 2};
    Context context(options);
    Communicator ranks(context, exchange);
    const std::uint32_t self = index_of(ranks.rank());
    const Segment node = ranks.allocate(8 * sizeof(std::uint64_t), Scope::node);
    node.as<std::uint64_t>()[self] = self + 1;
    ranks.synchronize();
    const std::uint32_t first = self < 3 ? 0 : 3, end = self < 3 ? 3 : 5;
    for (std::uint32_t rank = 0; rank < 5; ++rank) {
      const std::uint64_t expected = rank >= first && rank < end ? rank + 1 : 0;
      if (node.as<std::uint64_t>()[rank] != expected) return 1;
    }
    ranks.synchronize();
    try {
      (void)ranks.allocate(self == 4 ? 128 : 64, Scope::node);
      return 2;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::mismatch) return 3;
      if (std::string(error.what()).find("rank 4 asks for 128 bytes") == std::string::npos)
        return 4;
    }
    // One rank's private memory would become its neighbours' share of the node's.
    for (const std::uint32_t odd : {0u, 4u}) {
      try {
        (void)ranks.allocate(64, (self == odd) == (odd == 4) ? Scope::rank : Scope::node);
        return 5;
      } catch (const Error& error) {
        if (error.code() != ErrorCode::mismatch) return 6;
        const char* const expected =
            odd == 4 ? "allocate: rank 0 asks for Scope::node, rank 4 for Scope::rank; "
                     : "allocate: rank 0 asks for Scope::node, rank 1 for Scope::rank; ";
        if (std::string(error.what()).find(expected) == std::string::npos) return 7;
      }
    }
    const Segment after = ranks.allocate(64, Scope::node);
    ranks.synchronize();
    return 0;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(5));
}

TEST(Segments, ranks_that_share_nodes_do_not_write_into_targets) {
  const auto results = launch({.rank_count = 4}, [](Exchange& exchange) {
    ContextOptions options = options_for_test(exchange);
    options.ranks_per_node = {2};
    Context context(options);
    Communicator ranks(context, exchange);
    const Segment source = ranks.allocate(80'000), target = ranks.allocate(80'000);
    const std::span<std::uint64_t> from = source.as<std::uint64_t>();
    contribute(from, index_of(ranks.rank()), 1);
    Operation operation = allreduce<std::uint64_t>(ranks, from, target.as<std::uint64_t>(), sum);
    if (operation.algorithm().find("zero_copy") != std::string::npos) return 1;
    if (operation.start() != Status::ok || operation.wait(20s) != Status::ok) return 2;
    return is_sum(target.as<std::uint64_t>(), 4, 1) ? 0 : 3;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(4));
}

TEST(Segments, communicators_that_are_split_know_of_them) {
  const auto results = launch({.rank_count = 4}, [](Exchange& exchange) {
    Context context(options_for_test(exchange));
    Communicator whole(context, exchange);
    const Segment source = whole.allocate(80'000), target = whole.allocate(80'000);
    const std::uint32_t self = index_of(whole.rank());
    std::optional<Communicator> part = whole.split(self % 2);
    const std::span<std::uint64_t> from = source.as<std::uint64_t>();
    contribute(from, self / 2, 1);
    Operation operation = allreduce<std::uint64_t>(*part, from, target.as<std::uint64_t>(), sum);
    if (operation.algorithm() != "ring_zero_copy") return 1;
    if (operation.start() != Status::ok || operation.wait(20s) != Status::ok) return 2;
    return is_sum(target.as<std::uint64_t>(), 2, 1) ? 0 : 3;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(4));
}

// A call that has timed out goes on, also where it waits for what it has sent.
TEST(Segments, a_call_that_has_timed_out_goes_on) {
  const test::SharedCount timed_out;
  const auto results = launch({.rank_count = 2}, [&](Exchange& exchange) {
    Context context(options_for_test(exchange));
    Communicator ranks(context, exchange);
    const Segment source = ranks.allocate(800'000), target = ranks.allocate(800'000);
    const std::span<std::uint64_t> from = source.as<std::uint64_t>();
    contribute(from, index_of(ranks.rank()), 3);
    Operation operation = allreduce<std::uint64_t>(ranks, from, target.as<std::uint64_t>(), sum);
    if (index_of(ranks.rank()) == 1 && !timed_out.comes_to(1)) return 6;
    if (operation.start() != Status::ok) return 1;
    if (index_of(ranks.rank()) == 0 && operation.wait(20ms) != Status::timed_out) return 2;
    if (index_of(ranks.rank()) == 0 && operation.describe().find("ranks 1") == std::string::npos)
      return 3;
    timed_out.add();
    if (operation.wait(20s) != Status::ok) return 4;
    return is_sum(target.as<std::uint64_t>(), 2, 3) ? 0 : 5;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(2));
}

// A payload that is sent by reference inside a node, and lies in a segment, is read where it is
// mapped.
TEST(Segments, in_a_node_are_read_where_they_are) {
  const auto results = launch({.rank_count = 2}, [](Exchange& exchange) {
    ContextOptions options = options_for_test(exchange);
    options.ranks_per_node = {2};
    options.single_copy_bytes = 4096;
    Context context(options);
    Communicator ranks(context, exchange);
    const std::uint32_t self = index_of(ranks.rank());
    const Segment source = ranks.allocate(200'000), target = ranks.allocate(200'000);
    const std::span<std::uint64_t> from = source.as<std::uint64_t>();
    const std::span<std::uint64_t> into = target.as<std::uint64_t>();
    Operation tell = broadcast<std::uint64_t>(ranks, from, Rank{1});
    Operation add =
        reduce<std::uint64_t>(ranks, std::span<const std::uint64_t>(from), into, Rank{0}, sum);
    for (std::uint64_t call = 0; call < 5; ++call) {
      contribute(from, self, call);
      if (add.start() != Status::ok || add.wait(20s) != Status::ok) return 1;
      if (self == 0 && !is_sum(into, 2, call)) return 2;
      if (tell.start() != Status::ok || tell.wait(20s) != Status::ok) return 3;
      for (std::size_t i = 0; i < from.size(); ++i)
        if (from[i] != contribution(1, call, i)) return 4;
      ranks.synchronize();
    }
    return tell.algorithm() == add.algorithm() ? 0 : 5;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(2));
}

#if !defined(__SANITIZE_THREAD__)  // ranks that end the program

/// Rank 1 is killed while all ranks call again and again; the others learn of it, and can destroy
/// their segments.
int outlive(Exchange& exchange, Algorithm algorithm, bool registered) {
  ContextOptions options = options_for_test(exchange, 16384);
  options.register_buffers = registered;
  Context context(options);
  Communicator ranks(context, exchange);
  constexpr std::size_t elements = 50'000;
  const Segment source = ranks.allocate(8 * elements), target = ranks.allocate(8 * elements);
  std::vector<std::uint64_t> others[2];
  for (std::vector<std::uint64_t>& other : others) other.resize(elements);
  Operation operation =
      allreduce(ranks, {.source = registered ? others[0].data() : source.as<std::uint64_t>().data(),
                        .target = registered ? others[1].data() : target.as<std::uint64_t>().data(),
                        .element_count = elements,
                        .reduction = built_in_reduction(BuiltIn::sum, ElementType::uint64),
                        .algorithm = algorithm});
  if (operation.algorithm().find("zero_copy") == std::string::npos) return 1;
  return test::call_until_rank_1_dies(ranks, operation);
}

TEST(Segments, others_hear_of_a_rank_that_dies) {
  for (std::uint32_t run = 0; run < test::times(4); ++run)
    for (const Algorithm algorithm : {Algorithm::ring, Algorithm::chunked_fold})
      for (const bool registered : {false, true}) {
        const auto results = run_local({.rank_count = 3}, [&](Exchange& exchange) {
          return outlive(exchange, algorithm, registered);
        });
        EXPECT_EQ(codes_of(results), (std::vector<int>{0, 1000 + SIGKILL, 0}));
      }
}

// The others have all they need of a rank that has left after the last call.
TEST(Segments, one_may_leave_after_the_last_call) {
  for (std::uint32_t run = 0; run < test::times(5); ++run) {
    const auto results = run_local({.rank_count = 2}, [](Exchange& exchange) {
      Context context(options_for_test(exchange));
      Communicator ranks(context, exchange);
      const Segment source = ranks.allocate(80'000), target = ranks.allocate(80'000);
      Operation operation = allreduce<std::uint64_t>(ranks, source.as<std::uint64_t>(),
                                                     target.as<std::uint64_t>(), sum);
      for (int call = 0; call < 3; ++call)
        if (operation.start() != Status::ok || operation.wait(20s) != Status::ok) return 1;
      return 0;
    });
    EXPECT_EQ(codes_of(results), std::vector<int>(2));
  }
}

/// The root of a broadcast whose node has one buffer cannot send from another one.
TEST(Segments, another_source_of_a_shared_buffer_ends_the_program) {
  const auto results = run_local({.rank_count = 2}, [](Exchange& exchange) {
    ContextOptions options = options_for_test(exchange);
    options.ranks_per_node = {2};
    Context context(options);
    Communicator ranks(context, exchange);
    const Segment node = ranks.allocate(64, Scope::node);
    Operation operation = broadcast(ranks, {.buffer = node.data(), .bytes = 64});
    std::byte other[64] = {};
    if (index_of(ranks.rank()) == 0) (void)operation.start(other, node.data());
    return 0;
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{1000 + SIGABRT, 0}));
}

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

TEST(Segments, misuse_ends_the_program) {
  for (const Misuse which : {Misuse::other_target, Misuse::source_outside, Misuse::early_end}) {
    const auto results =
        run_local({.rank_count = 2}, [&](Exchange& exchange) { return misuse(exchange, which); });
    EXPECT_EQ(codes_of(results), (std::vector<int>{1000 + SIGABRT, 0})) << static_cast<int>(which);
  }
}

#endif

}  // namespace
}  // namespace tutti
