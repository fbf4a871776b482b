// Promise: a user's operator that says that it has failed ends its collective with an error on
// every rank, which names one rank, the operation and the reason, alike on all; no rank takes a
// spoilt result for a right one, and none hangs.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

#include "support/device.hpp"
#include "support/jobs.hpp"
#include "support/sceneries.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::codes_of;
using test::Meeting;

constexpr std::uint64_t refused = UINT64_MAX;

/// A sum that fails where an operand is `refused`.
void add_checked(const void* incoming, void* partial, std::size_t count, void* context) noexcept {
  const auto* from = static_cast<const std::uint64_t*>(incoming);
  auto* into = static_cast<std::uint64_t*>(partial);
  for (std::size_t i = 0; i < count; ++i) {
    if (from[i] == refused || into[i] == refused) return fail(context, "an operand was refused");
    into[i] += from[i];
  }
}

Reduction checked_sum() {
  static int context = 0;
  return {.combine = add_checked,
          .context = &context,
          .element_bytes = sizeof(std::uint64_t),
          .properties = {.commutative = true, .exact = true},
          .element_type = ElementType::uint64};
}

/// What a rank was told, for the test to compare.
struct Told {
  std::uint32_t rank = 0;
  std::int32_t status = 0;
  std::uint32_t peer = 0;
  std::array<char, 256> text = {};
};

struct Shape {
  std::uint32_t ranks, ranks_per_node;
  std::size_t elements;
  Agreement agreement = Agreement::identical;
  Algorithm algorithm = Algorithm::automatic;
  Meeting meeting = Meeting::local;
};

std::string words(const Shape& shape) {
  return std::to_string(shape.ranks) + " ranks, " + std::to_string(shape.ranks_per_node) +
         " a node, " + std::to_string(shape.elements) + " elements, algorithm " +
         std::to_string(static_cast<int>(shape.algorithm));
}

using Body = std::function<Told(Communicator&)>;

/// Runs `body` on each rank; what all were told, in the order in which they say so.
std::vector<Told> told_by_all(const Shape& shape, const Body& body) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const std::uint16_t port = test::port_for(shape.meeting);
  const auto results = run_local({.rank_count = shape.ranks}, [&](Exchange& local) {
    const test::Met met(shape.meeting, local, port);
    ContextOptions options = test::on_test_device(local);
    options.arena_bytes = 16u << 20;
    options.ranks_per_node = {shape.ranks_per_node};
    Context context(options);
    Communicator communicator(context, *met);
    const Told told = body(communicator);
    return ::write(ends[1], &told, sizeof told) == sizeof told ? 0 : 9;
  });
  ::close(ends[1]);
  EXPECT_EQ(codes_of(results), std::vector<int>(shape.ranks)) << words(shape);
  std::vector<Told> all;
  Told told;
  while (::read(ends[0], &told, sizeof told) == sizeof told) all.push_back(told);
  ::close(ends[0]);
  EXPECT_EQ(all.size(), shape.ranks);
  return all;
}

Told told_by(Communicator& communicator, Status status) {
  const Failure& failure = communicator.failure();
  Told told{.rank = index_of(communicator.rank()),
            .status = static_cast<std::int32_t>(status),
            .peer = index_of(failure.peer)};
  std::memcpy(told.text.data(), failure.text, sizeof failure.text);
  return told;
}

/// Everybody is told the same, and then where it was itself.
void expect_one_message(const std::vector<Told>& all, const Shape& shape, const char* operation) {
  const auto message = [](const Told& told) {
    const std::string text = told.text.data();
    return text.substr(0, text.rfind(" ("));
  };
  for (const Told& told : all) {
    EXPECT_EQ(told.status, static_cast<std::int32_t>(Status::aborted))
        << "rank " << told.rank << ", " << words(shape);
    EXPECT_EQ(told.peer, all.front().peer) << words(shape);
    EXPECT_EQ(message(told), message(all.front())) << words(shape);
    for (const std::string& part :
         {"rank " + std::to_string(told.peer), std::string("its operator failed in ") + operation,
          std::string("an operand was refused")})
      EXPECT_NE(message(told).find(part), std::string::npos) << message(told);
  }
}

/// A call with a right result, and one in which rank `guilty` brings what is refused.
Told two_allreduces(Communicator& communicator, const Shape& shape, std::uint32_t guilty) {
  std::vector<std::uint64_t> source(shape.elements, 1), target(shape.elements);
  Operation operation = allreduce(communicator, {.source = source.data(),
                                                 .target = target.data(),
                                                 .element_count = shape.elements,
                                                 .reduction = checked_sum(),
                                                 .agreement = shape.agreement,
                                                 .algorithm = shape.algorithm});
  Status status = operation.start();
  if (status == Status::ok) status = operation.wait(20s);
  if (status != Status::ok || target.back() != shape.ranks) return {.status = -100};
  communicator.synchronize();  // a failure also ends earlier calls of ranks that are late
  if (index_of(communicator.rank()) == guilty) source[shape.elements / 2] = refused;
  status = operation.start();
  if (status == Status::ok) status = operation.wait(20s);
  if (operation.in_flight()) return {.status = -101};
  return told_by(communicator, status);
}

TEST(OperatorFailures, every_rank_is_told_the_same) {
  for (const std::uint32_t ranks : {2u, 3u, 4u})
    for (const std::uint32_t ranks_per_node : {1u, 2u, 4u})
      for (const std::size_t elements : {std::size_t{1}, std::size_t{40'000}}) {
        const Shape shape{.ranks = ranks, .ranks_per_node = ranks_per_node, .elements = elements};
        expect_one_message(told_by_all(shape,
                                       [&](Communicator& communicator) {
                                         return two_allreduces(communicator, shape, ranks - 1);
                                       }),
                           shape, "allreduce #1, call 2");
      }
}

TEST(OperatorFailures, likewise_without_a_side_channel_and_over_tcp) {
  for (const Meeting meeting : {Meeting::mute, Meeting::tcp}) {
    const Shape shape{.ranks = 4, .ranks_per_node = 2, .elements = 3, .meeting = meeting};
    expect_one_message(told_by_all(shape,
                                   [&](Communicator& communicator) {
                                     return two_allreduces(communicator, shape, 1);
                                   }),
                       shape, "allreduce #1, call 2");
  }
}

// Each has another way of combining, or combines in another place.
TEST(OperatorFailures, of_every_schedule_are_told) {
  for (const Algorithm algorithm :
       {Algorithm::two_partial, Algorithm::recursive_multiplying, Algorithm::nway,
        Algorithm::canonical_dissemination, Algorithm::chunked_fold, Algorithm::ring,
        Algorithm::shared_ring, Algorithm::circulant, Algorithm::canonical_halving}) {
    const Shape shape{.ranks = 4,
                      .ranks_per_node = algorithm == Algorithm::shared_ring ? 2u : 1u,
                      .elements = 4096,
                      .agreement = Agreement::relaxed,
                      .algorithm = algorithm};
    expect_one_message(told_by_all(shape,
                                   [&](Communicator& communicator) {
                                     return two_allreduces(communicator, shape, 2);
                                   }),
                       shape, "allreduce #1, call 2");
  }
}

// In one-way collectives some ranks need no result of the operator.  They are told when they wait
// for the next call that needs one, and have not been given anything wrong.
TEST(OperatorFailures, of_a_reduce_reach_ranks_that_only_send) {
  const Shape shape{.ranks = 4, .ranks_per_node = 2, .elements = 10};
  const auto all = told_by_all(shape, [&](Communicator& communicator) {
    std::vector<std::uint64_t> source(shape.elements, 1), target(shape.elements);
    Operation operation = reduce(communicator, {.source = source.data(),
                                                .target = target.data(),
                                                .element_count = shape.elements,
                                                .reduction = checked_sum(),
                                                .root = Rank{1}});
    if (communicator.rank() == Rank{3}) source[0] = refused;
    Status status = Status::ok;
    for (int call = 0; status == Status::ok && call < 1000; ++call) {
      status = operation.start();
      if (status == Status::ok) status = operation.wait(20s);
      if (status == Status::ok && communicator.rank() == Rank{1}) return Told{.status = -100};
    }
    return told_by(communicator, status);
  });
  expect_one_message(all, shape, "reduce #1, call ");
}

TEST(OperatorFailures, of_scans_and_blocks_are_told) {
  const Shape shape{.ranks = 3, .ranks_per_node = 1, .elements = 6};
  for (const int which : {0, 1}) {
    const auto all = told_by_all(shape, [&](Communicator& communicator) {
      std::vector<std::uint64_t> source(6, 1), target(6);
      Operation operation = which == 0 ? scan(communicator, {.source = source.data(),
                                                             .target = target.data(),
                                                             .element_count = 6,
                                                             .reduction = checked_sum()})
                                       : reduce_scatter(communicator, {.source = source.data(),
                                                                       .target = target.data(),
                                                                       .element_counts = {2, 2, 2},
                                                                       .reduction = checked_sum()});
      if (communicator.rank() == Rank{0}) std::fill(source.begin(), source.end(), refused);
      Status status = Status::ok;
      for (int call = 0; status == Status::ok && call < 1000; ++call) {
        status = operation.start();
        if (status == Status::ok) status = operation.wait(20s);
        if (status == Status::ok && (which == 1 || communicator.rank() != Rank{0}))
          return Told{.status = -100};
      }
      return told_by(communicator, status);
    });
    expect_one_message(all, shape, which == 0 ? "scan #1, call " : "reduce_scatter");
  }
}

TEST(OperatorFailures, of_a_stale_synchronous_allreduce_are_told) {
  const Shape shape{.ranks = 4, .ranks_per_node = 2, .elements = 1};
  expect_one_message(told_by_all(shape,
                                 [&](Communicator& communicator) {
                                   std::uint64_t source = 1, target = 0;
                                   Operation operation =
                                       allreduce_ssp(communicator, {.source = &source,
                                                                    .target = &target,
                                                                    .element_count = 1,
                                                                    .reduction = checked_sum(),
                                                                    .slack = 1});
                                   Status status = Status::ok;
                                   for (int call = 0; status == Status::ok && call < 1000; ++call) {
                                     if (call == 5 && communicator.rank() == Rank{2})
                                       source = refused;
                                     status = operation.start();
                                     if (status == Status::ok) status = operation.wait(20s);
                                     if (call > 20 && status == Status::ok)
                                       return Told{.status = -100};
                                   }
                                   return told_by(communicator, status);
                                 }),
                     shape, "allreduce_ssp #1, call ");
}

// A rank that never waits, but only tests, hears of it, too.
TEST(OperatorFailures, are_heard_by_ranks_that_only_test) {
  const Shape shape{.ranks = 3, .ranks_per_node = 3, .elements = 1};
  expect_one_message(
      told_by_all(shape,
                  [&](Communicator& communicator) {
                    std::uint64_t source = 1, target = 0;
                    if (communicator.rank() == Rank{0}) source = refused;
                    Operation operation = allreduce(communicator, {.source = &source,
                                                                   .target = &target,
                                                                   .element_count = 1,
                                                                   .reduction = checked_sum()});
                    Status status = operation.start();
                    const auto end = std::chrono::steady_clock::now() + 20s;
                    while (status >= Status::ok && std::chrono::steady_clock::now() < end &&
                           operation.in_flight())
                      status = operation.test();
                    return told_by(communicator, status);
                  }),
      shape, "allreduce #1, call 1");
}

// Also with operators without a context, whose function cannot pass one on.
std::uint64_t add_or_refuse(std::uint64_t left, std::uint64_t right) {
  if (left == refused || right == refused) fail(nullptr, "an operand was refused");
  return left + right;
}

TEST(OperatorFailures, of_elementwise_operators_are_told) {
  const Shape shape{.ranks = 2, .ranks_per_node = 2, .elements = 4};
  expect_one_message(
      told_by_all(shape,
                  [&](Communicator& communicator) {
                    std::vector<std::uint64_t> source(4, 1), target(4);
                    if (communicator.rank() == Rank{1}) source[3] = refused;
                    Operation operation = allreduce<std::uint64_t>(
                        communicator, std::span<const std::uint64_t>(source), std::span(target),
                        elementwise<std::uint64_t, add_or_refuse>({.commutative = true}));
                    Status status = operation.start();
                    if (status == Status::ok) status = operation.wait(20s);
                    return told_by(communicator, status);
                  }),
      shape, "allreduce #1, call 1");
}

// The text is the user's: it may be long, and hold anything.
void fail_at_length(const void*, void*, std::size_t, void* context) noexcept {
  fail(context, std::string(1000, '%').c_str());
  fail(context, "a second time");
}

TEST(OperatorFailures, keep_the_beginning_of_a_long_text_and_the_first_of_two) {
  const Shape shape{.ranks = 2, .ranks_per_node = 2, .elements = 1};
  Reduction reduction = checked_sum();
  reduction.combine = fail_at_length;
  for (const Told& told : told_by_all(shape, [&](Communicator& communicator) {
         std::uint64_t source = 1, target = 0;
         Operation operation = allreduce(
             communicator,
             {.source = &source, .target = &target, .element_count = 1, .reduction = reduction});
         Status status = operation.start();
         if (status == Status::ok) status = operation.wait(20s);
         return told_by(communicator, status);
       })) {
    EXPECT_EQ(told.status, static_cast<std::int32_t>(Status::aborted));
    EXPECT_NE(std::string(told.text.data()).find(": " + std::string(95, '%') + " (allreduce"),
              std::string::npos)
        << told.text.data();
  }
}

TEST(OperatorFailuresDeathTest, may_be_told_by_operators_alone) {
  EXPECT_DEATH(fail(nullptr, "here"), "fail\\(\\) is called by a user's operator");
}

}  // namespace
}  // namespace tutti
