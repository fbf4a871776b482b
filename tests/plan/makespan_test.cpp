// Promise: the recurrence gives what an event simulation gives, to the picosecond, for plans of all
// builders on arbitrary networks, with ranks that start at different times.
#include "plan/cost/makespan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "networks.hpp"
#include "one_of_all.hpp"
#include "plan/allreduce/dissemination.hpp"
#include "plan/allreduce/recursive_multiplying.hpp"
#include "plan/allreduce/two_partial.hpp"
#include "plan/core/steps.hpp"
#include "sizes.hpp"
#include "support/event_simulation.hpp"

namespace tutti::plan {
namespace {

using test::arbitrary_network;
using test::Random;

Plan commutative(Rank self, std::uint32_t rank_count, const PerRound& per_round) {
  return two_partial_allreduce(self, rank_count, per_round, Order::commutative);
}
Plan in_rank_order(Rank self, std::uint32_t rank_count, const PerRound& per_round) {
  return two_partial_allreduce(self, rank_count, per_round, Order::rank_order);
}

struct Schedule {
  const char* name;
  Plan (*build)(Rank, std::uint32_t, const PerRound&);
  bool takes_cores;  // a product of at most P, else of at least P
  bool is_circulant;
};
const std::vector<Schedule> schedules = {
    {"two-partial", commutative, false, true},
    {"two-partial in rank order", in_rank_order, false, false},
    {"dissemination barrier", dissemination_barrier, false, true},
    {"dissemination allreduce", dissemination_allreduce, false, true},
    {"recursive multiplying", recursive_multiplying_allreduce, true, false},
};

std::vector<Plan> plans_of(const Schedule& schedule, std::uint32_t ranks, const PerRound& vector) {
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    plans.push_back(schedule.build(Rank{rank}, ranks, vector));
  return plans;
}

/// Entries 1 .. 9; of a core now and then far too few, so that many are folded.
PerRound arbitrary_vector(Random& random, std::uint32_t ranks, bool is_core) {
  PerRound vector;
  for (std::uint32_t reached = 1; reached < ranks;) {
    const std::uint32_t entry = random.between(1, random.between(1, 9));
    if (is_core && (reached * (entry + 1) > ranks || random.below(10) == 0)) break;
    vector.push_back(entry);
    reached *= entry + 1;
  }
  return vector;
}

double quotient(const Rate& rate) {
  return static_cast<double>(rate.time) / static_cast<double>(rate.bytes);
}

tutti::test::Network network_for_simulation(const LogGP& network) {
  return {.latency = network.latency,
          .send_overhead = network.send_overhead,
          .receive_overhead = network.receive_overhead,
          .gap = network.gap,
          .rank_gap = network.rank_gap,
          .per_byte = quotient(network.per_byte),
          .work = network.work,
          .work_per_byte = quotient(network.work_per_byte)};
}

std::vector<Picoseconds> simulated(const std::vector<Plan>& plans,
                                   const tutti::test::Network& network, const Call& call) {
  return tutti::test::completion_times(plans, network,
                                       {.payload_bytes = call.payload_bytes,
                                        .element_bytes = call.element_bytes,
                                        .starts = {call.starts.begin(), call.starts.end()},
                                        .any_order = call.order == CombineOrder::as_seen});
}

struct Sample {
  const Schedule* schedule;
  PerRound vector;
  std::vector<Plan> plans;
  LogGP network;
  std::uint64_t payload_bytes;
  std::vector<Picoseconds> starts;

  Call call(bool with_starts) const {
    return {.payload_bytes = payload_bytes,
            .element_bytes = payload_bytes % 8 == 0 ? 8u : 1u,
            .starts = with_starts ? starts : std::span<const Picoseconds>{}};
  }
  std::string describe() const {
    return std::string(schedule->name) + ", " + std::to_string(plans.size()) + " ranks, " +
           testing::PrintToString(vector) + ", " + std::to_string(payload_bytes) + " bytes";
  }
};

Sample arbitrary_sample(Random& random) {
  Sample sample{.schedule = &schedules[random.below(static_cast<std::uint32_t>(schedules.size()))],
                .vector = {},
                .plans = {},
                .network = arbitrary_network(random),
                .payload_bytes = random.below(random.below(2) == 0 ? 100 : 100'000),
                .starts = {}};
  const std::uint32_t ranks = random.between(1, random.below(10) == 0 ? 130 : 30);
  sample.vector = arbitrary_vector(random, ranks, sample.schedule->takes_cores);
  sample.plans = plans_of(*sample.schedule, ranks, sample.vector);
  const std::uint32_t longest = random.below(2) == 0 ? 10 : 2'000'000;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) sample.starts.push_back(random.below(longest));
  return sample;
}

TEST(Makespan, of_one_message_each_way_is_the_formula) {
  Random random(1);
  for (int count = 0; count < 1000; ++count) {
    const LogGP n = arbitrary_network(random);
    const std::uint64_t bytes = random.below(10'000);
    const Picoseconds work = n.work + n.work_per_byte.of(bytes);
    // A rank takes a message when it has sent its own.
    const auto come = [&](std::uint64_t length) {
      return n.send_overhead + n.latency + n.per_byte.of(length);
    };
    const auto taken = [&](std::uint64_t length) {
      return std::max(come(length), n.rank_gap) + n.receive_overhead;
    };
    EXPECT_EQ(makespan(plans_of(schedules[0], 2, {1}), n, {.payload_bytes = bytes}),
              taken(bytes) + work);
    EXPECT_EQ(makespan(plans_of(schedules[2], 2, {1}), n, {.payload_bytes = bytes}), taken(0));
    // In and out.
    const Picoseconds out = come(bytes) + n.receive_overhead + work;
    EXPECT_EQ(
        makespan(plans_of(schedules[4], 2, {}), n, {.payload_bytes = bytes}),
        std::max(std::max(out + come(bytes), n.rank_gap) + n.receive_overhead, out + n.rank_gap));
  }
}

// A line of 64 bytes has room for 56, and without payload its number is written alone; what is
// found in memory is paid for one by one.
TEST(Makespan, of_lines_is_the_formula) {
  Random random(3);
  for (int count = 0; count < 1000; ++count) {
    const LogGP n = arbitrary_network(random);
    const auto told = [&](std::uint64_t bytes) {
      return std::max(n.send_overhead + n.latency + n.per_byte.of(bytes), n.rank_gap) +
             n.receive_overhead;
    };
    for (const std::uint64_t bytes : {0u, 8u, 56u, 57u, 64u, 1000u}) {
      const Call call{.payload_bytes = bytes, .lines = true};
      EXPECT_EQ(makespan(plans_of(schedules[0], 2, {1}), n, call), told(bytes == 0    ? 8
                                                                        : bytes <= 56 ? 64
                                                                                      : bytes) +
                                                                       n.work +
                                                                       n.work_per_byte.of(bytes));
      EXPECT_EQ(makespan(plans_of(schedules[2], 2, {1}), n, call), told(8));
    }
  }
  // Each rank awaits two messages, the second of which is there when the first is taken.
  const LogGP network{.latency = 100, .receive_overhead = 1'000, .gap = 10};
  EXPECT_EQ(makespan(plans_of(schedules[2], 3, {2}), network, {.lines = true}), 100 + 2 * 1'000);
  EXPECT_EQ(makespan(plans_of(schedules[2], 3, {2}), network, {}), 100 + 2 * 1'000);
}

TEST(CompletionTimes, are_those_of_an_event_simulation) {
  Random random(2);
  int skewed = 0, behind_ports = 0;
  for (int count = 0; count < test::samples(4000); ++count) {
    const Sample sample = arbitrary_sample(random);
    for (const bool with_starts : {false, true}) {
      const Call call = sample.call(with_starts);
      const std::vector<Picoseconds> times = completion_times(sample.plans, sample.network, call);
      ASSERT_EQ(times, simulated(sample.plans, network_for_simulation(sample.network), call))
          << sample.describe();
      ASSERT_EQ(makespan(sample.plans, sample.network, call),
                *std::max_element(times.begin(), times.end()));
      if (std::adjacent_find(times.begin(), times.end(), std::not_equal_to<>()) != times.end())
        ++(with_starts ? skewed : behind_ports);
    }
  }
  EXPECT_GT(skewed, test::samples(2000));  // the samples are not all trivial
  EXPECT_GT(behind_ports, test::samples(500));
}

/// Rank 0 sends three parts, of 2, 2 and 1 elements, to rank 1, which combines one, takes one out
/// and only copies the last.
std::vector<Plan> plans_with_parts() {
  std::vector<Plan> plans(2);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    plans[rank].self = Rank{rank};
    plans[rank].rank_count = 2;
    plans[rank].parts = 3;
    plans[rank].slot_count = 3;
    plans[rank].partial_count = 3;
    StepWriter steps{plans[rank]};
    steps.begin_round(3);
    for (std::uint16_t part = 0; part < 3; ++part) {
      steps.begin_part(part);
      if (rank == 0) {
        steps.put(Rank{1}, part, 1, partial_register(part));
        continue;
      }
      steps.await(Rank{0}, part, 1);
      if (part == 0) steps.combine(slot_register(part), target_register);
      if (part == 1) steps.take_out(slot_register(part), target_register);
      if (part == 2) steps.copy(slot_register(part), target_register);
    }
  }
  return plans;
}

TEST(CompletionTimes, count_the_bytes_of_parts) {
  const LogGP network = {.latency = 1000,
                         .send_overhead = 100,
                         .receive_overhead = 10,
                         .per_byte = {.time = 7},
                         .work = 5,
                         .work_per_byte = {.time = 2}};
  const Call call{.payload_bytes = 40, .element_bytes = 8};
  const std::vector<Plan> plans = plans_with_parts();
  // The second one leaves after the first, both of 16 bytes; the last one, of 8, comes before the
  // second has got through the receiver's port, and all else is done by then.
  EXPECT_EQ(completion_times(plans, network, call),
            (std::vector<Picoseconds>{0, 16 * 7 + 1100 + 16 * 7 + 16 * 7 + 10}));
  EXPECT_EQ(completion_times(plans, network, call),
            simulated(plans, network_for_simulation(network), call));
  const LogGP slow = {.latency = 1000, .work_per_byte = {.time = 1}};  // all arrive at 1000
  EXPECT_EQ(makespan(plans, slow, call), 1000 + 2 * 16);
}

TEST(Makespan, of_circulant_plans_is_that_of_one_rank) {
  Random random(3);
  int compared = 0;
  for (int count = 0; count < test::samples(4000); ++count) {
    const Sample sample = arbitrary_sample(random);
    const Call call = sample.call(false);
    for (const Plan& plan : sample.plans) {
      if (!sample.schedule->is_circulant) continue;
      ASSERT_EQ(test::circulant_makespan(plan, sample.network, call),
                makespan(sample.plans, sample.network, call))
          << sample.describe();
      ++compared;
      break;
    }
  }
  EXPECT_GT(compared, test::samples(2000));
}

TEST(Makespan, grows_with_every_parameter) {
  Random random(4);
  for (int count = 0; count < 400; ++count) {
    const Sample sample = arbitrary_sample(random);
    const Call call = sample.call(false);
    const Picoseconds before = makespan(sample.plans, sample.network, call);
    for (Picoseconds LogGP::*parameter :
         {&LogGP::latency, &LogGP::send_overhead, &LogGP::receive_overhead, &LogGP::gap,
          &LogGP::rank_gap, &LogGP::work}) {
      LogGP slower = sample.network;
      slower.*parameter += random.between(1, 100'000);
      ASSERT_GE(makespan(sample.plans, slower, call), before) << sample.describe();
    }
  }
}

/// Exactly as often as there are rounds, where no round is so short that ports are still taken by
/// the one before it, or that a rank still sends when messages come; a latency that hides behind a
/// port costs less.
TEST(Makespan, of_circulant_plans_has_the_latency_once_per_round) {
  Random random(5);
  int exact = 0;
  for (int count = 0; count < test::samples(3000); ++count) {
    const Sample sample = arbitrary_sample(random);
    if (!sample.schedule->is_circulant) continue;
    const Call call = sample.call(false);
    const std::uint64_t message_bytes = sample.plans[0].payloads * sample.payload_bytes;
    const LogGP& network = sample.network;
    LogGP slower = network;
    slower.latency += random.between(1, 1'000'000);
    const Picoseconds more =
        makespan(sample.plans, slower, call) - makespan(sample.plans, network, call);
    const Picoseconds most = static_cast<Picoseconds>(sample.plans[0].per_round.size()) *
                             (slower.latency - network.latency);
    ASSERT_LE(more, most) << sample.describe();
    const std::vector<std::uint32_t>& rounds = sample.plans[0].per_round;
    const Picoseconds sent =
        rounds.empty() ? 0 : *std::max_element(rounds.begin(), rounds.end()) * network.rank_gap;
    if (network.travel_time(message_bytes) + network.receive_overhead <
            network.port_time(message_bytes) ||
        network.travel_time(message_bytes) < sent)
      continue;
    ASSERT_EQ(more, most) << sample.describe();
    ++exact;
  }
  EXPECT_GT(exact, test::samples(1000));
}

/// P = 4, one round: messages of rank 0 come from 3, 2 and 1, in the order of slots.
TEST(CombineOrder, as_seen_takes_what_is_there) {
  const LogGP network = {.latency = 1000, .receive_overhead = 10, .work = 100};
  const std::vector<Plan> plans = plans_of(schedules[0], 4, {3});
  const std::vector<Picoseconds> starts = {0, 0, 0, 700};  // 3 is late
  Call call{.payload_bytes = 8, .starts = starts};
  // Planned: at 1000 it sees 2 and 1, at 1700 it sees 3, and combines three.
  EXPECT_EQ(completion_times(plans, network, call)[0], 1700 + 10 + 300);
  call.order = CombineOrder::as_seen;
  EXPECT_EQ(completion_times(plans, network, call)[0], 1700 + 10 + 100);
}

TEST(CombineOrder, as_seen_is_the_order_of_arrival) {
  Random random(6);
  for (int count = 0; count < 1000; ++count) {
    const std::uint32_t ranks = random.between(2, 20);
    const LogGP network = {.latency = 1000, .work = 10 + random.below(100)};
    std::vector<Picoseconds> starts;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) starts.push_back(random.below(2000));
    const std::vector<Picoseconds> ends =
        completion_times(plans_of(schedules[0], ranks, {ranks - 1}), network,
                         {.payload_bytes = 8, .starts = starts, .order = CombineOrder::as_seen});
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      std::vector<Picoseconds> others = starts;
      Picoseconds end = starts[rank];
      others.erase(others.begin() + rank);
      std::sort(others.begin(), others.end());
      for (const Picoseconds start : others) end = std::max(end, start + 1000) + network.work;
      ASSERT_EQ(ends[rank], end) << ranks;
    }
  }
}

TEST(CombineOrder, as_seen_changes_nothing_where_one_message_is_awaited_at_a_time) {
  Random random(7);
  for (int count = 0; count < 1000; ++count) {
    const std::uint32_t ranks = random.between(1, 40);
    Sample sample = arbitrary_sample(random);
    sample.plans = random.below(2) == 0 ? plans_of(schedules[0], ranks, uniform(ranks, 1))
                                        : plans_of(schedules[2], ranks, uniform(ranks, 3));
    sample.starts.assign(ranks, 0);
    for (Picoseconds& start : sample.starts) start = random.below(100'000);
    Call call = sample.call(true);
    const std::vector<Picoseconds> planned = completion_times(sample.plans, sample.network, call);
    call.order = CombineOrder::as_seen;
    ASSERT_EQ(completion_times(sample.plans, sample.network, call), planned);
  }
}

}  // namespace
}  // namespace tutti::plan
