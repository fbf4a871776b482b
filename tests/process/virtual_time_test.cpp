// Promise: in virtual time a collective over the real device takes what the events of its plan take
// on that network, to the picosecond, however the CPUs are shared.
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <tutti/tutti.hpp>

#include "plan/allreduce/dissemination.hpp"
#include "plan/allreduce/ring.hpp"
#include "plan/allreduce/two_partial.hpp"
#include "plan/core/per_round.hpp"
#include "plan/cost/makespan.hpp"
#include "runtime/make_operation.hpp"
#include "runtime/operation.hpp"
#include "support/event_simulation.hpp"
#include "support/fabric_file.hpp"
#include "support/shared.hpp"
#include "verbs/soft/soft_clock.hpp"
#include "verbs/soft/virtual_time.hpp"

namespace tutti {
namespace {

namespace soft = verbs::soft;
using plan::PerRound;
using namespace std::chrono_literals;

const test::Network fdr{.latency = 700'000,
                        .send_overhead = 150'000,
                        .receive_overhead = 50'000,
                        .gap = 100'000,
                        .per_byte = 1000 / 6.8};

using test::FabricFile;

struct Call {
  std::uint32_t rank_count = 2;
  PerRound per_round = {1};
  std::size_t elements = 1;  // of 8 bytes; 0: a barrier
  const char* fabric = "fdr";
  int calls = 3;
  std::function<void()> before_rank = [] {};
  Reduction reduction = built_in_reduction(BuiltIn::sum, ElementType::uint64);
  // Instead of what the library would choose:
  std::function<plan::Plan(Rank)> plan_of = {};
  bool any_order = false;
  std::vector<plan::Picoseconds> starts = {};  // of the ranks
  Notify notify = Notify::immediate;
};

std::int64_t largest(Exchange& exchange, std::int64_t own) {
  std::vector<std::int64_t> all(exchange.rank_count());
  exchange.allgather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)),
                     60s);
  return *std::max_element(all.begin(), all.end());
}

Operation make(const Call& call, Communicator& communicator, std::vector<std::uint64_t>& source,
               std::vector<std::uint64_t>& target) {
  if (call.plan_of) {
    Reduction reduction = call.reduction;
    // Elements of no known type are combined in the order of the plan, where bits have to agree.
    if (!call.any_order) reduction.element_type = ElementType::other;
    return runtime::make_operation(
        communicator,
        {.collective = "allreduce",
         .asked = {.element_count = call.elements,
                   .reduction = reduction,
                   .agreement = call.any_order ? Agreement::relaxed : Agreement::reproducible},
         .source = source.data(),
         .target = target.data(),
         .plan_of = [&](const tune::CollectiveRequest&) {
           return call.plan_of(communicator.rank());
         }});
  }
  if (call.elements == 0) return barrier(communicator, {.per_round = call.per_round});
  return allreduce(communicator, {.source = source.data(),
                                  .target = target.data(),
                                  .element_count = call.elements,
                                  .reduction = call.reduction,
                                  .per_round = call.per_round});
}

int run_rank(const Call& call, Exchange& exchange, std::int64_t* makespans) {
  call.before_rank();
  Context context({.device = "soft0", .notify = call.notify});
  Communicator communicator(context, exchange);
  std::vector<std::uint64_t> source(call.elements, 1), target(call.elements);
  Operation operation = make(call, communicator, source, target);
  const auto complete = [&] {
    return operation.start() == Status::ok && operation.wait(30s) == Status::ok;
  };
  for (int count = 0; count < 2; ++count)
    if (!complete()) return 2;
  for (int count = 0; count < call.calls; ++count) {
    communicator.synchronize();
    soft::enter_virtual_time();
    soft::VirtualTime& time = *soft::VirtualTime::joined();
    if (!call.starts.empty()) time.sleep(call.starts[index_of(exchange.self())], false);
    const bool done = complete();
    const std::int64_t taken = time.now();
    soft::leave_virtual_time();
    if (!done || (call.elements > 0 && target.back() != call.rank_count)) return 3;
    const std::int64_t makespan = largest(exchange, taken);
    if (exchange.self() == Rank{0}) makespans[count] = makespan;
  }
  return 0;
}

/// The makespan of each call, in picoseconds.
std::vector<std::int64_t> makespans(const Call& call) {
  const auto count = static_cast<std::size_t>(call.calls);
  const test::Shared<std::int64_t> results(count);
  ::setenv("TUTTI_SOFT_FABRIC", call.fabric, 1);
  soft::VirtualTime time(call.rank_count);
  const auto ended = run_local({.rank_count = call.rank_count}, [&](Exchange& exchange) {
    time.join(index_of(exchange.self()));
    return run_rank(call, exchange, results.all().data());
  });
  ::unsetenv("TUTTI_SOFT_FABRIC");
  for (const LocalResult& rank : ended) EXPECT_EQ(rank.exit_status, 0);
  return {results.all().begin(), results.all().end()};
}

std::vector<plan::Plan> plans_of(const Call& call) {
  std::vector<plan::Plan> plans;
  for (std::uint32_t rank = 0; rank < call.rank_count; ++rank)
    plans.push_back(call.elements == 0
                        ? plan::dissemination_barrier(Rank{rank}, call.rank_count, call.per_round)
                        : plan::two_partial_allreduce(Rank{rank}, call.rank_count, call.per_round,
                                                      plan::Order::commutative));
  return plans;
}

std::int64_t expected(const Call& call, const test::Network& network) {
  return test::makespan(plans_of(call), call.elements * 8, network);
}

void expect_equal(const Call& call, const test::Network& network) {
  const std::int64_t simulated = expected(call, network);
  for (const std::int64_t makespan : makespans(call))
    EXPECT_EQ(makespan, simulated) << call.rank_count << " ranks, " << call.elements
                                   << " elements, first round of " << call.per_round[0];
}

TEST(VirtualTime, one_message_takes_what_the_formula_says) {
  for (const std::size_t elements : {1u, 8u, 512u, 8192u}) {
    const Call call{.elements = elements};
    const auto bytes = static_cast<double>(elements * 8);
    const std::int64_t formula =
        fdr.send_overhead + fdr.latency + std::llround(bytes * fdr.per_byte) + fdr.receive_overhead;
    EXPECT_EQ(makespans(call), std::vector<std::int64_t>(3, formula)) << elements;
  }
}

TEST(VirtualTime, a_barrier_of_96_ranks_is_its_plan) {
  for (const PerRound& per_round :
       {PerRound{1, 1, 1, 1, 1, 1, 1}, {3, 3, 2, 1}, {5, 5, 2}, {7, 7, 1}}) {
    const Call call{.rank_count = 96, .per_round = per_round, .elements = 0, .calls = 1};
    expect_equal(call, fdr);
    std::int64_t formula = 0;  // o + (n-1) g + L + o_r in each round
    for (const plan::Round& round : plan::two_partial_rounds(96, per_round))
      formula +=
          fdr.send_overhead + (round.messages - 1) * fdr.gap + fdr.latency + fdr.receive_overhead;
    EXPECT_EQ(expected(call, fdr), formula);
  }
}

TEST(VirtualTime, allreduces_of_many_shapes_are_their_plans) {
  for (const std::uint32_t ranks : {3u, 5u, 8u, 13u, 24u})
    for (const PerRound& per_round : {PerRound{1, 1, 1, 1, 1}, {3, 2, 1}, {4, 4}, {7, 3}})
      for (const std::size_t elements : {1u, 700u}) {
        if (!plan::covers(ranks, per_round)) continue;
        expect_equal({.rank_count = ranks, .per_round = per_round, .elements = elements}, fdr);
      }
}

/// The engine, the events of the plan and the cost model give the same time.
void expect_lines(Call call) {
  call.notify = Notify::flag;
  const std::vector<plan::Plan> plans = plans_of(call);
  const std::vector<std::int64_t> ends = test::completion_times(
      plans, fdr,
      {.payload_bytes = call.elements * 8, .element_bytes = 8, .any_order = true, .lines = true});
  const std::int64_t simulated = *std::max_element(ends.begin(), ends.end());
  const plan::LogGP network{.latency = 700'000,
                            .send_overhead = 150'000,
                            .receive_overhead = 50'000,
                            .gap = 100'000,
                            .per_byte = {.time = 10'000, .bytes = 68}};
  const std::string text =
      std::to_string(call.rank_count) + " ranks, " + std::to_string(call.elements) + " elements";
  EXPECT_EQ(plan::makespan(plans, network,
                           {.payload_bytes = call.elements * 8,
                            .element_bytes = 8,
                            .order = plan::CombineOrder::as_seen,
                            .lines = true}),
            simulated)
      << text;
  for (const std::int64_t makespan : makespans(call)) EXPECT_EQ(makespan, simulated) << text;
}

TEST(VirtualTime, lines_that_are_polled_in_memory_take_what_their_plans_take) {
  for (const std::size_t elements : {0u, 1u, 7u}) {
    const std::int64_t formula = fdr.send_overhead + fdr.latency +
                                 std::llround((elements == 0 ? 8 : 64) * fdr.per_byte) +
                                 fdr.receive_overhead;
    EXPECT_EQ(makespans({.elements = elements, .notify = Notify::flag}),
              std::vector<std::int64_t>(3, formula))
        << elements;
  }
  for (const std::uint32_t ranks : {3u, 8u, 13u})
    for (const PerRound& per_round : {PerRound{1, 1, 1, 1}, {4, 4}})
      for (const std::size_t elements : {0u, 1u, 7u, 8u})  // of which the last does not fit
        expect_lines({.rank_count = ranks, .per_round = per_round, .elements = elements});
}

TEST(VirtualTime, combining_is_charged) {
  const FabricFile file(R"({"preset":"fdr","work_us":0.01,"work_gigabytes_per_second":8})");
  test::Network network = fdr;
  network.work = 10'000;
  network.work_per_byte = 125;
  for (const std::uint32_t ranks : {2u, 7u, 16u})
    expect_equal(
        {.rank_count = ranks, .per_round = {3, 3, 1}, .elements = 255, .fabric = file.name()},
        network);
}

TEST(VirtualTime, a_large_ring_takes_what_its_bytes_take) {
  constexpr std::size_t bytes = 8u << 20;
  constexpr double bytes_per_picosecond = 6.8e-3;  // of fdr
  for (const std::uint32_t ranks : {4u, 8u}) {
    Call call{.rank_count = ranks, .elements = bytes / 8, .calls = 2};
    call.plan_of = [ranks](Rank self) { return plan::ring_allreduce(self, ranks, 2, {}); };
    const double least = 2.0 * (ranks - 1) / ranks * bytes / bytes_per_picosecond;
    for (const std::int64_t makespan : makespans(call)) {
      EXPECT_GT(static_cast<double>(makespan) / least, 1.0) << ranks << " ranks";
      EXPECT_LT(static_cast<double>(makespan) / least, 1.05) << ranks << " ranks";
    }
  }
}

TEST(VirtualTime, latency_enters_once_per_round) {
  const FabricFile file(R"({"preset":"fdr","latency_us":0.8})");
  Call call{.rank_count = 16, .per_round = {1, 1, 1, 1}, .elements = 0};
  const std::int64_t before = makespans(call).front();
  call.fabric = file.name();
  EXPECT_EQ(makespans(call).front() - before, 4 * 100'000);
}

/// In each round the awaits come right after the puts.
plan::Plan awaiting_all_first(plan::Plan plan) {
  for (auto begin = plan.steps.begin(); begin != plan.steps.end();) {
    const auto end = std::find_if(begin, plan.steps.end(), [&](const plan::Step& step) {
      return step.round != begin->round;
    });
    const auto is_await = [](const plan::Step& step) { return step.action == plan::Action::await; };
    std::stable_partition(std::find_if(begin, end, is_await), end, is_await);
    begin = end;
  }
  return plan;
}

struct CombiningTimes {
  std::int64_t planned, all_awaited_first, as_seen;
};

/// By the engine, and equal to the cost model's recurrence.
CombiningTimes combining_times(Call call, const plan::LogGP& network) {
  CombiningTimes times{};
  const auto in_order = [&call](Rank rank) {
    return plan::two_partial_allreduce(rank, call.rank_count, call.per_round,
                                       plan::Order::commutative);
  };
  const auto measure = [&](const std::function<plan::Plan(Rank)>& plan_of, bool any_order) {
    call.plan_of = plan_of;
    call.any_order = any_order;
    std::vector<plan::Plan> plans;
    for (std::uint32_t rank = 0; rank < call.rank_count; ++rank)
      plans.push_back(plan_of(Rank{rank}));
    const std::int64_t measured = makespans(call).front();
    EXPECT_EQ(measured, plan::makespan(plans, network,
                                       {.payload_bytes = call.elements * 8,
                                        .element_bytes = 8,
                                        .starts = call.starts,
                                        .order = any_order ? plan::CombineOrder::as_seen
                                                           : plan::CombineOrder::as_planned}))
        << call.rank_count << " ranks, " << call.elements << " elements, any order " << any_order;
    return measured;
  };
  times.planned = measure(in_order, false);
  times.all_awaited_first =
      measure([&](Rank rank) { return awaiting_all_first(in_order(rank)); }, false);
  times.as_seen = measure(in_order, true);
  return times;
}

// What it gains to combine while messages still arrive, on a network like FDR where combining takes
// 10 ns and the payload's bytes at 8 GB/s: with equal starts, and with starts within 0.5 us.
TEST(VirtualTime, combining_while_messages_arrive_pays) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "two minutes; a measurement of the schedules, not of memory";
#endif
  const FabricFile file(R"({"preset":"fdr","work_us":0.01,"work_gigabytes_per_second":8})");
  const plan::LogGP network{.latency = 700'000,
                            .send_overhead = 150'000,
                            .receive_overhead = 50'000,
                            .gap = 100'000,
                            .per_byte = {.time = 10'000, .bytes = 68},
                            .work = 10'000,
                            .work_per_byte = {.time = 125}};
  std::printf("ranks  bytes  starts us  planned us  awaiting all first  as they are seen\n");
  for (const auto& [ranks, vector] : {std::pair<std::uint32_t, PerRound>{8, {7}}, {16, {3, 3}}})
    for (const std::size_t elements : {1u, 256u})
      for (const std::int64_t spread : {0, 500'000}) {
        Call call{.rank_count = ranks,
                  .per_round = vector,
                  .elements = elements,
                  .fabric = file.name(),
                  .calls = 1};
        std::minstd_rand random(ranks);
        for (std::uint32_t rank = 0; rank < ranks && spread > 0; ++rank)
          call.starts.push_back(static_cast<std::int64_t>(random() % 1000) * spread / 1000);
        const CombiningTimes times = combining_times(call, network);
        const auto ratio = [&](std::int64_t time) {
          return static_cast<double>(time) / static_cast<double>(times.planned);
        };
        std::printf("%5u  %5zu  %9.1f  %10.3f  %18.3f  %16.3f\n", ranks, elements * 8,
                    static_cast<double>(spread) / 1e6, static_cast<double>(times.planned) / 1e6,
                    ratio(times.all_awaited_first), ratio(times.as_seen));
        if (spread == 0) {
          EXPECT_GT(times.all_awaited_first, times.planned);
          EXPECT_EQ(times.as_seen, times.planned);
        }
      }
}

/// Takes random real time, as a busy machine would.
void add_slowly(const void* incoming, void* partial, std::size_t count, void*) noexcept {
  static std::minstd_rand random(static_cast<unsigned>(::getpid()));
  ::usleep(static_cast<useconds_t>(random() % 2000));
  for (std::size_t index = 0; index < count; ++index)
    static_cast<std::uint64_t*>(partial)[index] +=
        static_cast<const std::uint64_t*>(incoming)[index];
}

TEST(VirtualTime, does_not_depend_on_the_machine) {
  const FabricFile file(
      R"({"preset":"fdr","work_us":0.02,
          "faults":{"seed":7,"delay_probability":0.3,"delay_us":2,"slow":[{"place":3,"factor":2.5}]}})");
  Call call{.rank_count = 12, .per_round = {2, 3}, .elements = 16, .fabric = file.name()};
  const std::vector<std::int64_t> free = makespans(call);
  call.before_rank = [] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    ::sched_setaffinity(0, sizeof(one), &one);
  };
  EXPECT_EQ(makespans(call), free) << "each rank on one CPU";
  call.before_rank = [] {};
  call.reduction = {.combine = add_slowly,
                    .element_bytes = 8,
                    .properties = {.commutative = true},
                    .element_type = ElementType::uint64};  // exact: the same schedule
  EXPECT_EQ(makespans(call), free) << "with random sleeps";
  std::vector<std::int64_t> distinct = free;
  std::sort(distinct.begin(), distinct.end());
  EXPECT_GT(std::unique(distinct.begin(), distinct.end()) - distinct.begin(), 1)
      << "the faults differ from call to call";
}

/// Half a minute: run by its own name.
TEST(DeathInVirtualTime, is_a_failure_that_names_the_dead) {
  ::setenv("TUTTI_SOFT_FABRIC", "fdr", 1);
  soft::VirtualTime time(3);
  const auto ended = run_local({.rank_count = 3}, [&](Exchange& exchange) {
    time.join(index_of(exchange.self()));
    Context context({.device = "soft0"});
    Communicator communicator(context, exchange);
    Operation operation = barrier(communicator);
    for (int count = 0; count < 2; ++count)
      if (operation.start() != Status::ok || operation.wait(30s) != Status::ok) return 2;
    communicator.synchronize();
    soft::enter_virtual_time();
    if (exchange.self() == Rank{2}) std::raise(SIGKILL);
    Status status = operation.start();
    if (status == Status::ok) status = operation.wait(3600s);
    soft::leave_virtual_time();
    return status == Status::peer_failed && communicator.failure().peer == Rank{2} ? 0 : 3;
  });
  ::unsetenv("TUTTI_SOFT_FABRIC");
  EXPECT_EQ(ended[0].exit_status, 0);
  EXPECT_EQ(ended[1].exit_status, 0);
  EXPECT_EQ(ended[2].signal, SIGKILL);
}

// Rank 2 broadcasts, has ended that call when its message to rank 1 is lost, and then waits for
// rank 0, with which it has a connection that works.  Nobody but rank 2 can know of the loss.
TEST(VirtualTime, a_lost_message_of_a_call_that_has_ended_is_a_failure_of_all) {
  // Long after the first calls, which are made in real time.
  const FabricFile fabric(
      R"({"preset": "fdr", "faults": {"link_down": [{"place": 1, "from_us": 20000000}]}})");
  ::setenv("TUTTI_SOFT_FABRIC", fabric.name(), 1);
  soft::VirtualTime time(3);
  const auto ended = run_local({.rank_count = 3}, [&](Exchange& exchange) {
    const std::uint32_t self = index_of(exchange.self());
    time.join(self);
    Context context({.device = "soft0"});
    Communicator communicator(context, exchange);
    std::uint64_t value = 1, sum_of_two = 0;
    Operation tell =
        broadcast(communicator, {.buffer = &value, .bytes = sizeof value, .root = Rank{2}});
    Operation collect =
        reduce(communicator, {.source = &value,
                              .target = &sum_of_two,
                              .element_count = 1,
                              .reduction = built_in_reduction(BuiltIn::sum, ElementType::uint64),
                              .root = Rank{2},
                              .rank_fraction = 0.6});  // ranks 2 and 0
    for (Operation* operation : {&tell, &collect, &tell, &collect})
      if (operation->start() != Status::ok || operation->wait(15s) != Status::ok) return 2;
    communicator.synchronize();
    soft::enter_virtual_time();
    const auto second = soft::Picoseconds{1'000'000'000'000};
    time.sleep(21 * second, false);
    Status status = tell.start();
    if (status == Status::ok) status = tell.wait(10s);
    if (self == 2 && status == Status::ok) status = collect.start();
    if (self == 2 && status == Status::ok) status = collect.wait(10s);
    while (self == 0 && status == Status::ok && time.now() < 31 * second) {
      time.sleep(time.now() + second / 1000, false);
      status = communicator.progress();
    }
    soft::leave_virtual_time();
    const Rank named = communicator.failure().peer;
    if (status == Status::timed_out) std::printf("%s", communicator.report().c_str());
    return status < Status::ok && (named == Rank{1} || named == Rank{2}) ? 0 : 3;
  });
  ::unsetenv("TUTTI_SOFT_FABRIC");
  for (const LocalResult& rank : ended) EXPECT_EQ(rank.exit_status, 0);
}

TEST(VirtualTime, timeouts_are_in_virtual_time) {
  ::setenv("TUTTI_SOFT_FABRIC", "fdr", 1);
  soft::VirtualTime time(2);
  const auto ended = run_local({.rank_count = 2}, [&](Exchange& exchange) {
    time.join(index_of(exchange.self()));
    Context context({.device = "soft0"});
    Communicator communicator(context, exchange);
    Operation operation = barrier(communicator);
    for (int count = 0; count < 2; ++count)
      if (operation.start() != Status::ok || operation.wait(30s) != Status::ok) return 2;
    communicator.synchronize();
    soft::enter_virtual_time();
    // Rank 1 comes 100 s late.
    if (exchange.self() == Rank{1}) time.sleep(time.now() + 100'000'000'000'000, false);
    const auto begin = time.now();
    Status status = operation.start();
    if (exchange.self() == Rank{0}) {
      status = operation.wait(10s);
      const auto waited = time.now() - begin;
      if (status != Status::timed_out || waited < 10'000'000'000'000 || waited > 11'000'000'000'000)
        return 3;
    }
    status = operation.wait(200s);
    soft::leave_virtual_time();
    return status == Status::ok ? 0 : 4;
  });
  ::unsetenv("TUTTI_SOFT_FABRIC");
  for (const LocalResult& rank : ended) EXPECT_EQ(rank.exit_status, 0);
}

/// The block that one rank sends to another; other ones in each call.
void fill_block(std::span<std::uint32_t> block, std::uint32_t from, std::uint32_t to,
                std::uint32_t call) {
  for (std::uint32_t index = 0; index < block.size(); ++index)
    block[index] = (from * 1009 + to) * 4 + call + (index << 24);
}

/// An alltoall of that many ranks, each of which is connected with all others: the results are
/// right, and a call takes as long as its blocks take to leave a port one after the other.
void expect_alltoall_among(std::uint32_t rank_count) {
  constexpr std::uint32_t elements = 256, calls = 3;  // blocks of 1 KiB, which go directly
  const std::size_t whole = std::size_t{rank_count} * elements;
  const test::Shared<std::int64_t> taken;
  ::setenv("TUTTI_SOFT_FABRIC", "fdr", 1);
  soft::VirtualTime time(rank_count);
  const auto ended = run_local({.rank_count = rank_count}, [&](Exchange& exchange) {
    const std::uint32_t self = index_of(exchange.self());
    time.join(self);
    Context context({.device = "soft0", .arena_bytes = 2u << 20});
    Communicator communicator(context, exchange);
    std::vector<std::uint32_t> source(whole), target(whole), block(elements);
    Operation operation = alltoall(
        communicator,
        {.source = source.data(), .target = target.data(), .bytes = elements * sizeof block[0]});
    for (std::uint32_t call = 0; call < calls; ++call) {
      for (std::uint32_t rank = 0; rank < rank_count; ++rank)
        fill_block(std::span(source).subspan(rank * elements, elements), self, rank, call);
      const bool is_timed = call + 1 == calls;  // connections must have been used before
      communicator.synchronize();
      if (is_timed) soft::enter_virtual_time();
      const bool done = operation.start() == Status::ok && operation.wait(200s) == Status::ok;
      const std::int64_t own = soft::VirtualTime::joined()->now();
      if (is_timed) soft::leave_virtual_time();
      if (!done) return 2;
      for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
        fill_block(block, rank, self, call);
        if (!std::equal(block.begin(), block.end(), target.begin() + rank * elements)) return 3;
      }
      if (is_timed && self == 0) *taken = own;
    }
    return 0;
  });
  ::unsetenv("TUTTI_SOFT_FABRIC");
  for (const LocalResult& rank : ended) ASSERT_EQ(rank.exit_status, 0);
  const double in_port = elements * 4 * fdr.per_byte;
  const double formula = static_cast<double>(fdr.send_overhead + fdr.latency) +
                         (rank_count - 1) * in_port + static_cast<double>(fdr.receive_overhead);
  EXPECT_NEAR(static_cast<double>(*taken), formula, 1000) << "picoseconds";
}

TEST(VirtualTime, an_alltoall_of_more_partners_than_one_completion_queue_holds_is_right) {
  expect_alltoall_among(105);
}

/// A quarter of a minute to a few minutes: run by its own name.
TEST(ManyPartners, an_alltoall_of_256_ranks_is_right) {
  expect_alltoall_among(256);
}

}  // namespace
}  // namespace tutti
