// Promise: broadcasts and allgathers between nodes, of one rank or of several, allreduces of ranks
// that share nodes, and reduces of the ranks of a node, leave from users' registered buffers and
// land in them, if those of all ranks are (of a reduce the sources): they give what others give,
// for every shape of nodes, placement and root, in place and not, wherever the buffers lie in their
// segments; payloads take no room in the arena, but for parts of a reduce; where one rank's buffer
// is not registered, the call is an ordinary one; ranks that die, leave or time out do no harm.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <tutti/detail/cpu_set.hpp>
#include <tutti/tutti.hpp>
#include <vector>

#include "runtime/communicator.hpp"
#include "support/death_amid_calls.hpp"
#include "support/device.hpp"
#include "support/jobs.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::codes_of;
using test::launch;

/// Nodes of these sizes, and the last size for all further ones.
struct Nodes {
  std::uint32_t rank_count;
  std::vector<std::uint32_t> ranks_per_node;
  Placement placement = Placement::block;

  std::string text() const {
    std::string text = std::to_string(rank_count) + " ranks, nodes of";
    for (const std::uint32_t size : ranks_per_node) text += " " + std::to_string(size);
    return text + (placement == Placement::block ? "" : ", cyclic");
  }
};

std::vector<Nodes> every_shape() {
  return test::all_or_few<Nodes>(
      test::all_or_sanitized<Nodes>({{2, {1}},
                                     {3, {1}},
                                     {3, {2, 1}},
                                     {3, {1, 2}},
                                     {4, {2}},
                                     {4, {2}, Placement::cyclic},
                                     {4, {3, 1}},
                                     {5, {2, 3}},
                                     {5, {1, 2}},
                                     {6, {3}, Placement::cyclic}},
                                    {{2, {1}}, {5, {1, 2}}, {6, {3}, Placement::cyclic}}),
      {{2, {1}}, {4, {2}}});
}

ContextOptions options_for(const Exchange& exchange, const Nodes& nodes,
                           std::size_t arena_bytes = 8u << 20) {
  ContextOptions options = test::on_test_device(exchange);
  if (test::device_is_soft()) options.arena_bytes = arena_bytes;
  options.ranks_per_node = nodes.ranks_per_node;
  options.placement = nodes.placement;
  // Payloads are never read where their users have them, whatever that is measured to cost.
  options.single_copy_bytes = 1u << 30;
  return options;
}

void share_one_cpu() {
  cpu_set_t allowed, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  CPU_ZERO(&one);
  for (std::size_t cpu = 0; CPU_COUNT(&one) == 0 && cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
}

/// What ranks return whose allreduce in nodes is no zero-copy one.
constexpr int ordinary = 99;
/// ... which is right only where the CPUs were found to share no cache.
int code_of_other(const Operation& operation) {
  return operation.explanation().find("share no cache") != std::string::npos ? ordinary : 1;
}

/// Ranks of an allreduce, which go without copies in nodes only where CPUs share a cache, as is
/// measured when they meet.  Where they do not, which may change in a virtual machine from one run
/// to the next, the ranks run once more on one CPU, for which nothing is measured.
std::vector<int> codes_where_caches_are_shared(decltype(launch) start, std::uint32_t rank_count,
                                               const std::function<int(Exchange&)>& rank) {
  const auto codes = codes_of(start({.rank_count = rank_count}, rank));
  if (std::count(codes.begin(), codes.end(), ordinary) == 0) return codes;
  return codes_of(start({.rank_count = rank_count}, [&](Exchange& exchange) {
    share_one_cpu();
    return rank(exchange);
  }));
}

std::uint64_t contribution(std::uint32_t rank, std::uint64_t call, std::size_t i) {
  return (rank + 1) * 1'000'003 + call * 7919 + i;
}
void contribute(std::span<std::uint64_t> into, std::uint32_t rank, std::uint64_t call) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = contribution(rank, call, i);
}
bool is_of(std::span<const std::uint64_t> result, std::uint32_t rank, std::uint64_t call) {
  for (std::size_t i = 0; i < result.size(); ++i)
    if (result[i] != contribution(rank, call, i)) return false;
  return true;
}

bool is_zero_copy(const Operation& operation) {
  return operation.algorithm().ends_with("_zero_copy");
}

void pause(std::mt19937& random) {
  if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 400));
}

constexpr std::uint64_t calls = 6;
constexpr std::uint64_t untouched = 0x7e57;

/// Every rank has its buffer elsewhere in its segment.  What was sent is written over at once; the
/// root sends from another buffer now and then.
int call_broadcasts(Exchange& exchange, const Nodes& nodes, Rank root, std::size_t elements) {
  Context context(options_for(exchange, nodes));
  Communicator ranks(context, exchange);
  const std::uint32_t self = index_of(ranks.rank());
  const Segment segment = ranks.allocate((2 * elements + 64) * sizeof(std::uint64_t));
  const std::span<std::uint64_t> all = segment.as<std::uint64_t>();
  std::fill(all.begin(), all.end(), untouched);
  const std::span<std::uint64_t> buffer = all.subspan(1 + 3 * self, elements);
  const std::span<std::uint64_t> other = all.subspan(elements + 30, elements);
  Operation operation = broadcast(ranks, buffer, root);
  if (!is_zero_copy(operation)) return 1;
  std::mt19937 random(self);
  for (std::uint64_t call = 0; call < calls; ++call) {
    const bool is_root = ranks.rank() == root;
    const std::span<std::uint64_t> given = is_root && call % 3 == 2 ? other : buffer;
    if (is_root) contribute(given, self, call);
    pause(random);
    if (operation.start(given.data(), is_root ? given.data() : buffer.data()) != Status::ok)
      return 2;
    if (operation.wait(20s) != Status::ok) return 3;
    if (!is_of(given, index_of(root), call)) return 4;
    if (all[3 * self] != untouched || all[1 + 3 * self + elements] != untouched) return 5;
    std::fill(given.begin(), given.end(), call);
  }
  return 0;
}

TEST(ZeroCopy, broadcasts_give_what_others_give) {
  for (const Nodes& nodes : every_shape())
    for (const bool is_long : {false, true}) {
      const Rank root{is_long ? nodes.rank_count - 1 : 0};
      const std::size_t elements = is_long ? 200'003 : 131'072;
      const auto results = launch({.rank_count = nodes.rank_count}, [&](Exchange& exchange) {
        return call_broadcasts(exchange, nodes, root, elements);
      });
      EXPECT_EQ(codes_of(results), std::vector<int>(nodes.rank_count))
          << nodes.text() << ", root " << index_of(root) << ", " << elements << " elements";
    }
}

/// As above; sources are ordinary memory, another one in each call, or in place.
int call_allgathers(Exchange& exchange, const Nodes& nodes, bool in_place, std::size_t elements) {
  Context context(options_for(exchange, nodes));
  Communicator ranks(context, exchange);
  const std::uint32_t self = index_of(ranks.rank()), count = ranks.rank_count();
  const Segment segment = ranks.allocate((count * elements + 64) * sizeof(std::uint64_t));
  const std::span<std::uint64_t> all = segment.as<std::uint64_t>();
  std::fill(all.begin(), all.end(), untouched);
  const std::span<std::uint64_t> target = all.subspan(1 + 3 * self, count * elements);
  const std::span<std::uint64_t> own = target.subspan(self * elements, elements);
  std::vector<std::uint64_t> apart[2];
  for (std::vector<std::uint64_t>& one : apart) one.resize(elements);
  Operation operation = allgather(ranks, {.source = in_place ? own.data() : apart[0].data(),
                                          .target = target.data(),
                                          .bytes = own.size_bytes()});
  if (!is_zero_copy(operation)) return 1;
  std::mt19937 random(self);
  for (std::uint64_t call = 0; call < calls; ++call) {
    const std::span<std::uint64_t> given = in_place ? own : std::span(apart[call % 2]);
    contribute(given, self, call);
    pause(random);
    if (operation.start(given.data(), target.data()) != Status::ok) return 2;
    if (operation.wait(20s) != Status::ok) return 3;
    for (std::uint32_t rank = 0; rank < count; ++rank)
      if (!is_of(target.subspan(rank * elements, elements), rank, call)) return 4;
    if (all[3 * self] != untouched || all[1 + 3 * self + count * elements] != untouched) return 5;
    std::fill(target.begin(), target.end(), call);
  }
  return 0;
}

TEST(ZeroCopy, allgathers_give_what_others_give) {
  for (const Nodes& nodes : every_shape())
    for (const bool in_place : {false, true}) {
      const std::size_t elements = in_place ? 40'003 : 8192;
      const auto results = launch({.rank_count = nodes.rank_count}, [&](Exchange& exchange) {
        return call_allgathers(exchange, nodes, in_place, elements);
      });
      EXPECT_EQ(codes_of(results), std::vector<int>(nodes.rank_count))
          << nodes.text() << ", " << elements << " elements" << (in_place ? ", in place" : "");
    }
}

bool is_sum(std::span<const std::uint64_t> result, std::uint32_t rank_count, std::uint64_t call) {
  for (std::size_t i = 0; i < result.size(); ++i) {
    std::uint64_t expected = 0;
    for (std::uint32_t rank = 0; rank < rank_count; ++rank) expected += contribution(rank, call, i);
    if (result[i] != expected) return false;
  }
  return true;
}

/// Sums of these are rounded, so their bits show in which order ranks have added.
double share_of(std::uint32_t rank, std::uint64_t call, std::size_t i) {
  return 1.0 / static_cast<double>(3 + rank + call + i % 1001);
}

std::uint64_t added(std::uint64_t left, std::uint64_t right) {
  return left + right;
}

/// Sources lie in the target, beside it, or elsewhere in a segment.  What was given is written over
/// at once.
int call_allreduces(Exchange& exchange, const Nodes& nodes, std::size_t elements,
                    const Reduction& reduction) {
  Context context(options_for(exchange, nodes, 32u << 20));
  Communicator ranks(context, exchange);
  const std::uint32_t self = index_of(ranks.rank()), count = ranks.rank_count();
  const Segment segment = ranks.allocate((3 * elements + 128) * sizeof(std::uint64_t));
  const std::span<std::uint64_t> all = segment.as<std::uint64_t>();
  std::fill(all.begin(), all.end(), untouched);
  const std::span<std::uint64_t> target = all.subspan(1 + 3 * self, elements);
  const std::span<std::uint64_t> apart = all.subspan(elements + 64, elements);
  const std::span<std::uint64_t> third = all.subspan(2 * elements + 90, elements);
  Operation operation = allreduce(ranks, {.source = apart.data(),
                                          .target = target.data(),
                                          .element_count = elements,
                                          .reduction = reduction});
  if (operation.algorithm() != "lanes_zero_copy") return code_of_other(operation);
  std::mt19937 random(self);
  for (std::uint64_t call = 0; call < calls; ++call) {
    const std::span<std::uint64_t> given = call % 3 == 0 ? apart : call % 3 == 1 ? target : third;
    contribute(given, self, call);
    pause(random);
    if (operation.start(given.data(), target.data()) != Status::ok) return 2;
    if (operation.wait(20s) != Status::ok) return 3;
    if (!is_sum(target, count, call)) return 4;
    if (all[3 * self] != untouched || all[1 + 3 * self + elements] != untouched) return 5;
    std::fill(given.begin(), given.end(), call);
    std::fill(target.begin(), target.end(), call);
  }
  return 0;
}

TEST(ZeroCopy, allreduces_give_what_others_give) {
  const std::vector<Nodes> shapes =
      test::all_or_few<Nodes>(test::all_or_sanitized<Nodes>({{2, {2}},
                                                             {3, {3}},
                                                             {5, {5}},
                                                             {3, {2, 1}},
                                                             {3, {1, 2}},
                                                             {4, {2}},
                                                             {4, {2}, Placement::cyclic},
                                                             {5, {2, 3}},
                                                             {5, {1, 2}},
                                                             {6, {3}, Placement::cyclic}},
                                                            {{3, {3}}, {5, {1, 2}}}),
                              {{2, {2}}, {4, {2}}});
  for (const Nodes& nodes : shapes) {
    const std::size_t elements = nodes.rank_count % 2 == 0 ? 131'072 : 200'003;
    const auto codes =
        codes_where_caches_are_shared(launch, nodes.rank_count, [&](Exchange& exchange) {
          return call_allreduces(exchange, nodes, elements,
                                 built_in_reduction(BuiltIn::sum, ElementType::uint64));
        });
    EXPECT_EQ(codes, std::vector<int>(nodes.rank_count))
        << nodes.text() << ", " << elements << " elements";
  }
}

// Others are told nothing of caches, which do not decide about them.
TEST(ZeroCopy, allreduces_in_segments_say_that_caches_are_apart) {
  const auto codes = codes_of(launch({.rank_count = 2}, [](Exchange& exchange) {
    Context context(options_for(exchange, {2, {2}}));
    Communicator ranks(context, exchange);
    std::vector<std::optional<shm::CopyCosts>>& costs = ranks.implementation().neighbours.costs;
    costs.assign(1, shm::CopyCosts{.word = 250, .is_word_alone = true});
    constexpr std::size_t elements = 131'072;
    const Segment segment = ranks.allocate(2 * elements * sizeof(std::uint64_t));
    std::vector<std::uint64_t> outside(elements);
    const auto tells = [&](const std::uint64_t* source) {
      const Operation operation =
          allreduce(ranks, {.source = source,
                            .target = segment.as<std::uint64_t>().data() + elements,
                            .element_count = elements,
                            .reduction = built_in_reduction(BuiltIn::sum, ElementType::uint64)});
      if (is_zero_copy(operation)) throw Error(ErrorCode::system, "the costs are not looked at");
      return operation.explanation().find("share no cache") != std::string::npos;
    };
    if (!tells(segment.as<std::uint64_t>().data())) return 1;
    return tells(outside.data()) ? 2 : 0;
  }));
  EXPECT_EQ(codes, std::vector<int>(2));
}

// Such an operator has no function that combines into a third place.
TEST(ZeroCopy, allreduces_with_a_users_operator_give_what_others_give) {
  const auto codes = codes_where_caches_are_shared(launch, 3, [](Exchange& exchange) {
    return call_allreduces(exchange, {3, {3}}, 200'003,
                           elementwise<std::uint64_t, added>({.commutative = true}));
  });
  EXPECT_EQ(codes, std::vector<int>(3));
}

// Where the order of operands shows, all ranks get the same bits, those of the call before.
TEST(ZeroCopy, allreduces_agree_in_all_bits) {
  for (const Nodes& nodes : {Nodes{3, {3}}, Nodes{4, {2}}}) {
    const auto codes =
        codes_where_caches_are_shared(launch, nodes.rank_count, [&](Exchange& exchange) {
          Context context(options_for(exchange, nodes, 32u << 20));
          Communicator ranks(context, exchange);
          constexpr std::size_t elements = 150'001;
          const std::uint32_t self = index_of(ranks.rank());
          const Segment segment = ranks.allocate(2 * elements * sizeof(double));
          const Segment check = ranks.allocate(2 * elements * sizeof(double));
          const std::span<double> from = segment.as<double>().first(elements);
          const std::span<double> into = segment.as<double>().last(elements);
          Operation operation = allreduce<double>(ranks, std::span<const double>(from), into, sum);
          if (operation.algorithm() != "lanes_zero_copy") return code_of_other(operation);
          for (std::uint64_t call = 0; call < 3; ++call) {
            for (std::size_t i = 0; i < elements; ++i) from[i] = share_of(self, call, i);
            if (operation.start() != Status::ok || operation.wait(20s) != Status::ok) return 2;
            const std::span<double> first = check.as<double>().first(elements);
            const std::span<double> other = check.as<double>().last(elements);
            std::copy(into.begin(), into.end(), first.begin());
            if (self == 0) std::copy(into.begin(), into.end(), other.begin());
            Operation tell = broadcast<double>(ranks, other, Rank{0});
            if (tell.start() != Status::ok || tell.wait(20s) != Status::ok) return 3;
            if (!std::equal(first.begin(), first.end(), other.begin())) return 4;
            for (std::size_t i = 0; i < elements; ++i) {
              double expected = 0;
              for (std::uint32_t rank = 0; rank < ranks.rank_count(); ++rank)
                expected += share_of(rank, call, i);
              if (std::abs(first[i] - expected) > 1e-15 * ranks.rank_count()) return 5;
            }
          }
          return 0;
        });
    EXPECT_EQ(codes, std::vector<int>(nodes.rank_count)) << nodes.text();
  }
}

/// Sources take turns; the target is ordinary memory, or in place, and that of the root alone.
/// Reduces of more than two ranks are without copies where these share CPUs, and of two where each
/// has its own.
int call_reduces(Exchange& exchange, const Nodes& nodes, Rank root, std::size_t elements,
                 const Reduction& reduction) {
  if (nodes.rank_count > 2) share_one_cpu();
  Context context(options_for(exchange, nodes, 32u << 20));
  Communicator ranks(context, exchange);
  const std::uint32_t self = index_of(ranks.rank()), count = ranks.rank_count();
  const bool is_root = ranks.rank() == root;
  const Segment segment = ranks.allocate((2 * elements + 64) * sizeof(std::uint64_t));
  const std::span<std::uint64_t> all = segment.as<std::uint64_t>();
  std::fill(all.begin(), all.end(), untouched);
  std::vector<std::uint64_t> apart(elements + 2, untouched);
  Operation operation = reduce(ranks, {.source = all.data() + 1 + 3 * self,
                                       .target = is_root ? apart.data() + 1 : nullptr,
                                       .element_count = elements,
                                       .reduction = reduction,
                                       .root = root});
  if (operation.algorithm() != "lanes_zero_copy") return 1;
  std::mt19937 random(self);
  for (std::uint64_t call = 0; call < calls; ++call) {
    const std::span<std::uint64_t> given =
        all.subspan(call % 2 == 0 ? 1 + 3 * self : elements + 30, elements);
    const std::span<std::uint64_t> target =
        call % 3 == 2 ? given : std::span(apart).subspan(1, elements);
    contribute(given, self, call);
    pause(random);
    if (operation.start(given.data(), is_root ? target.data() : nullptr) != Status::ok) return 2;
    if (operation.wait(20s) != Status::ok) return 3;
    if (is_root && !is_sum(target, count, call)) return 4;
    if (!is_root && !is_of(given, self, call)) return 5;
    if (all[3 * self] != untouched || apart.front() != untouched || apart.back() != untouched)
      return 6;
    std::fill(given.begin(), given.end(), call);
    std::fill(target.begin(), target.end(), call);
  }
  return 0;
}

struct ReduceCase {
  Nodes nodes;
  std::uint32_t root;
  std::size_t elements;
};

TEST(ZeroCopy, reduces_give_what_others_give) {
  // In a node in one chunk and in several; over nodes with lanes for all ranks, and for some.
  const std::vector<ReduceCase> cases = test::all_or_sanitized<ReduceCase>(
      {{{2, {2}}, 0, 131'072},
       {{2, {2}}, 1, 400'003},
       {{4, {4}}, 1, 200'003},
       {{5, {5}}, 4, 65'536},
       {{4, {2}}, 1, 131'072},
       {{6, {2}, Placement::cyclic}, 2, 200'003},
       {{8, {2}}, 5, 65'536},
       {{5, {2, 3}}, 0, 131'072},
       {{5, {2, 3}}, 4, 200'003}},
      {{{2, {2}}, 1, 400'003}, {{4, {4}}, 1, 200'003}, {{5, {2, 3}}, 3, 65'536}});
  for (const ReduceCase& one : cases) {
    if (one.nodes.rank_count == 2 && detail::allowed_cpus().count() < 2) continue;
    const auto results = launch({.rank_count = one.nodes.rank_count}, [&](Exchange& exchange) {
      return call_reduces(exchange, one.nodes, Rank{one.root}, one.elements,
                          built_in_reduction(BuiltIn::sum, ElementType::uint64));
    });
    EXPECT_EQ(codes_of(results), std::vector<int>(one.nodes.rank_count))
        << one.nodes.text() << ", root " << one.root << ", " << one.elements << " elements";
  }
}

TEST(ZeroCopy, reduces_with_a_users_operator_give_what_others_give) {
  for (const std::uint32_t ranks_per_node : {4u, 2u}) {
    const auto results = launch({.rank_count = 4}, [&](Exchange& exchange) {
      return call_reduces(exchange, {4, {ranks_per_node}}, Rank{2}, 100'003,
                          elementwise<std::uint64_t, added>({.commutative = true}));
    });
    EXPECT_EQ(codes_of(results), std::vector<int>(4)) << ranks_per_node << " ranks a node";
  }
}

// ---- When it is taken ---------------------------------------------------------------------------

TEST(ZeroCopy, a_reduce_with_one_source_outside_is_an_ordinary_call) {
  constexpr std::uint32_t none = 4;
  for (const std::uint32_t without : {0u, 1u, none}) {
    const auto results = launch({.rank_count = 4}, [&](Exchange& exchange) {
      share_one_cpu();
      Context context(options_for(exchange, {4, {4}}, 32u << 20));
      Communicator ranks(context, exchange);
      constexpr std::size_t elements = 131'072;
      const std::uint32_t self = index_of(ranks.rank());
      const Segment segment = ranks.allocate(elements * sizeof(std::uint64_t));
      std::vector<std::uint64_t> outside(elements), target(elements);
      const std::span<std::uint64_t> source =
          self == without ? std::span(outside) : segment.as<std::uint64_t>();
      Operation operation =
          reduce(ranks, {.source = source.data(),
                         .target = target.data(),
                         .element_count = elements,
                         .reduction = built_in_reduction(BuiltIn::sum, ElementType::uint64)});
      if (is_zero_copy(operation) != (without == none)) return 1;
      contribute(source, self, 1);
      if (operation.start() != Status::ok || operation.wait(20s) != Status::ok) return 2;
      return self != 0 || is_sum(target, 4, 1) ? 0 : 3;
    });
    EXPECT_EQ(codes_of(results), std::vector<int>(4)) << without;
  }
}

constexpr std::size_t elements_of_most = 131'072;

/// Makes a broadcast, an allgather and an allreduce, with the buffers of rank `without` in no
/// segment, and calls them once.
int call_all(Exchange& exchange, const Nodes& nodes, bool registered, std::uint32_t without,
             bool is_expected) {
  ContextOptions options = options_for(exchange, nodes, 32u << 20);
  options.register_buffers = registered;
  Context context(options);
  Communicator ranks(context, exchange);
  const std::uint32_t self = index_of(ranks.rank()), count = ranks.rank_count();
  const std::size_t elements = elements_of_most;
  const Segment segment = ranks.allocate((count + 1) * elements * sizeof(std::uint64_t));
  std::vector<std::uint64_t> outside((count + 1) * elements);
  const std::span<std::uint64_t> all =
      without == self ? std::span(outside) : segment.as<std::uint64_t>();
  const std::span<std::uint64_t> buffer = all.first(elements), target = all.subspan(elements);
  std::vector<std::uint64_t> source(elements);
  Operation give = broadcast(ranks, buffer, Rank{1});
  Operation gather = allgather(ranks, {.source = source.data(),
                                       .target = target.data(),
                                       .bytes = elements * sizeof(std::uint64_t)});
  const bool shares_nodes = nodes.ranks_per_node != std::vector<std::uint32_t>{1};
  Operation add = allreduce<std::uint64_t>(ranks, std::span<const std::uint64_t>(buffer),
                                           target.first(elements), sum);
  if (is_zero_copy(give) != is_expected || is_zero_copy(gather) != is_expected) return 1;
  // Ranks that share nodes combine what is in segments alone.
  if (shares_nodes && is_zero_copy(add) != (is_expected && !registered)) return 6;
  contribute(source, self, 1);
  if (self == 1) contribute(buffer, self, 2);
  if (give.start() != Status::ok || give.wait(20s) != Status::ok) return 2;
  if (add.start() != Status::ok || add.wait(20s) != Status::ok) return 7;
  for (std::size_t i = 0; i < elements; ++i)
    if (target[i] != count * contribution(1, 2, i)) return 8;
  if (gather.start() != Status::ok || gather.wait(20s) != Status::ok) return 3;
  for (std::uint32_t rank = 0; rank < count; ++rank)
    if (!is_of(target.subspan(rank * elements, elements), rank, 1)) return 4;
  return is_of(buffer, 1, 2) ? 0 : 5;
}

TEST(ZeroCopy, one_rank_without_makes_it_an_ordinary_call) {
  for (const std::uint32_t without : {0u, 3u}) {
    const auto results = launch({.rank_count = 4}, [&](Exchange& exchange) {
      return call_all(exchange, {4, {2}}, false, without, false);
    });
    EXPECT_EQ(codes_of(results), std::vector<int>(4)) << without;
  }
}

TEST(ZeroCopy, registered_buffers_serve_between_nodes_of_one_rank) {
  const auto results = launch({.rank_count = 3}, [&](Exchange& exchange) {
    return call_all(exchange, {3, {1}}, true, 2, true);
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(3));
}

/// Where the ranks of a node may read each other's memory, which is not known here.
TEST(ZeroCopy, registered_buffers_give_the_same_where_ranks_share_nodes) {
  const auto results = launch({.rank_count = 4}, [&](Exchange& exchange) {
    const int code = call_all(exchange, {4, {2}}, true, 2, true);
    return code == 1 ? call_all(exchange, {4, {2}}, true, 2, false) : code;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(4));
}

// The segments leave so little of the arena that a plan with registers would be refused.
TEST(ZeroCopy, payloads_take_no_room_in_the_arena) {
  if (!test::device_is_soft()) GTEST_SKIP() << "arenas of other devices are larger";
  const auto results = launch({.rank_count = 4}, [](Exchange& exchange) {
    Context context(options_for(exchange, {4, {2}}, 2u << 20));
    Communicator ranks(context, exchange);
    constexpr std::size_t bytes = 448u << 10;
    const Segment segment = ranks.allocate(4 * bytes);
    std::vector<std::byte> source(bytes), outside(4 * bytes);
    Operation give = broadcast(ranks, {.buffer = segment.data(), .bytes = 4 * bytes});
    Operation gather =
        allgather(ranks, {.source = source.data(), .target = segment.data(), .bytes = bytes});
    if (!is_zero_copy(give) || !is_zero_copy(gather)) return 1;
    for (Operation* const one : {&give, &gather})
      if (one->start() != Status::ok || one->wait(20s) != Status::ok) return 2;
    try {
      (void)allgather(ranks, {.source = source.data(), .target = outside.data(), .bytes = bytes});
    } catch (const Error& error) {
      return error.code() == ErrorCode::limit_exceeded ? 0 : 3;
    }
    return 4;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(4));
}

// ---- Ranks that are late, leave or die ----------------------------------------------------------

TEST(ZeroCopy, a_call_that_has_timed_out_goes_on) {
  const test::SharedCount timed_out;
  const auto results = launch({.rank_count = 4}, [&](Exchange& exchange) {
    Context context(options_for(exchange, {4, {2}}));
    Communicator ranks(context, exchange);
    const Segment segment = ranks.allocate(elements_of_most * sizeof(std::uint64_t));
    const std::span<std::uint64_t> buffer = segment.as<std::uint64_t>();
    const std::uint32_t self = index_of(ranks.rank());
    if (self == 0) contribute(buffer, 0, 3);
    Operation operation = broadcast(ranks, buffer, Rank{0});
    if (self == 2 && !timed_out.comes_to(1)) return 6;
    if (operation.start() != Status::ok) return 1;
    if (self == 0 && operation.wait(20ms) != Status::timed_out) return 2;
    if (self == 0 && operation.describe().find("ranks 2") == std::string::npos) return 3;
    if (self == 0) timed_out.add();
    if (operation.wait(20s) != Status::ok) return 4;
    return is_of(buffer, 0, 3) ? 0 : 5;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(4));
}

#if !defined(__SANITIZE_THREAD__)  // ranks that end the program

enum class Kind { broadcast, allgather, allreduce, reduce, reduce_in_node };
constexpr auto every_kind = {Kind::broadcast, Kind::allgather, Kind::allreduce, Kind::reduce,
                             Kind::reduce_in_node};
bool is_reduce(Kind kind) {
  return kind == Kind::reduce || kind == Kind::reduce_in_node;
}
constexpr std::size_t bytes_of_kind = 300'000;

/// With buffers of four such blocks each in the segment, and a source of one.
Operation make(Kind kind, Communicator& ranks, const Segment& segment,
               const std::vector<std::byte>& source) {
  constexpr std::size_t bytes = bytes_of_kind;
  switch (kind) {
    case Kind::broadcast:
      return broadcast(ranks, {.buffer = segment.data(), .bytes = 4 * bytes, .root = Rank{3}});
    case Kind::allgather:
      return allgather(ranks, {.source = source.data(), .target = segment.data(), .bytes = bytes});
    case Kind::allreduce:
    case Kind::reduce:
    case Kind::reduce_in_node:
      break;
  }
  const std::span<std::uint64_t> all = segment.as<std::uint64_t>();
  if (is_reduce(kind))
    return reduce(ranks, {.source = all.data(),
                          .target = all.data() + bytes / 2,
                          .element_count = bytes / 2,
                          .reduction = built_in_reduction(BuiltIn::sum, ElementType::uint64)});
  return allreduce<std::uint64_t>(ranks, std::span<const std::uint64_t>(all.first(bytes / 2)),
                                  all.subspan(bytes / 2, bytes / 2), sum);
}

/// The ranks, 4 of them, are on two nodes, or on one.
ContextOptions options_for_kind(const Exchange& exchange, Kind kind) {
  if (is_reduce(kind)) share_one_cpu();
  return options_for(exchange, {4, {kind == Kind::reduce_in_node ? 4u : 2u}});
}

int outlive(Exchange& exchange, Kind kind) {
  Context context(options_for_kind(exchange, kind));
  Communicator ranks(context, exchange);
  const Segment segment = ranks.allocate(8 * bytes_of_kind);
  std::vector<std::byte> source(bytes_of_kind);
  Operation operation = make(kind, ranks, segment, source);
  if (!is_zero_copy(operation)) return code_of_other(operation);
  return test::call_until_rank_1_dies(ranks, operation);
}

TEST(ZeroCopy, others_hear_of_a_rank_that_dies) {
  for (std::uint32_t run = 0; run < test::times(3); ++run)
    for (const Kind kind : every_kind) {
      const auto codes = codes_where_caches_are_shared(
          run_local, 4, [&](Exchange& exchange) { return outlive(exchange, kind); });
      EXPECT_EQ(codes, (std::vector<int>{0, 1000 + SIGKILL, 0, 0})) << static_cast<int>(kind);
    }
}

// The others have all they need of a rank that has left after the last call.
TEST(ZeroCopy, one_may_leave_after_the_last_call) {
  for (std::uint32_t run = 0; run < test::times(3); ++run)
    for (const Kind kind : every_kind) {
      const auto codes = codes_where_caches_are_shared(run_local, 4, [&](Exchange& exchange) {
        Context context(options_for_kind(exchange, kind));
        Communicator ranks(context, exchange);
        const Segment segment = ranks.allocate(8 * bytes_of_kind);
        std::vector<std::byte> source(bytes_of_kind);
        Operation operation = make(kind, ranks, segment, source);
        if (!is_zero_copy(operation)) return code_of_other(operation);
        for (int call = 0; call < 3; ++call)
          if (operation.start() != Status::ok || operation.wait(20s) != Status::ok) return 1;
        return 0;
      });
      EXPECT_EQ(codes, std::vector<int>(4)) << static_cast<int>(kind);
    }
}

enum class Misuse { other_target, source_outside, early_end };

int misuse(Exchange& exchange, Misuse which) {
  Context context(options_for(exchange, {2, {1}}));
  Communicator ranks(context, exchange);
  constexpr std::size_t bytes = 300'000;
  std::vector<std::byte> outside(bytes);
  std::optional<Segment> segment(ranks.allocate(2 * bytes));
  std::byte* const buffer = segment->data();
  // Rank 0 is the root only where it may not send from elsewhere.
  const Rank root{which == Misuse::source_outside ? 0u : 1u};
  Operation operation = broadcast(ranks, {.buffer = buffer, .bytes = bytes, .root = root});
  if (!is_zero_copy(operation)) return 1;
  if (ranks.rank() == Rank{1}) return 0;
  if (which == Misuse::other_target)
    (void)operation.start(buffer, buffer + bytes);
  else if (which == Misuse::source_outside)
    (void)operation.start(outside.data(), buffer);
  else
    segment.reset();
  return 0;
}

TEST(ZeroCopy, misuse_ends_the_program) {
  for (const Misuse which : {Misuse::other_target, Misuse::source_outside, Misuse::early_end}) {
    const auto results =
        run_local({.rank_count = 2}, [&](Exchange& exchange) { return misuse(exchange, which); });
    EXPECT_EQ(codes_of(results), (std::vector<int>{1000 + SIGABRT, 0})) << static_cast<int>(which);
  }
}

// The ranks of its node map segments only, and could not read such a source.
TEST(ZeroCopy, a_source_outside_that_a_node_reads_ends_the_program) {
  for (const Kind kind : {Kind::allreduce, Kind::reduce, Kind::reduce_in_node}) {
    const auto codes = codes_where_caches_are_shared(run_local, 4, [&](Exchange& exchange) {
      Context context(options_for_kind(exchange, kind));
      Communicator ranks(context, exchange);
      const Segment segment = ranks.allocate(8 * bytes_of_kind);
      std::vector<std::byte> outside(4 * bytes_of_kind);
      Operation operation = make(kind, ranks, segment, outside);
      if (!is_zero_copy(operation)) return code_of_other(operation);
      if (ranks.rank() != Rank{0}) return 0;
      (void)operation.start(outside.data(), segment.as<std::byte>().data() + 4 * bytes_of_kind);
      return 2;
    });
    EXPECT_EQ(codes, (std::vector<int>{1000 + SIGABRT, 0, 0, 0})) << static_cast<int>(kind);
  }
}

#endif

}  // namespace
}  // namespace tutti
