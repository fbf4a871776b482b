// Promise: whatever the order and the delays of messages, whichever connection breaks and whichever
// rank dies, every call that completes has the right result, and without such an accident every
// call completes, also if the ranks give calls up together at any moment and begin anew.  A failure
// prints its seed; TUTTI_SIMULATION_SEED=N replays that one alone.
#include <gtest/gtest.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <tutti/detail/names.hpp>
#include <tutti/status.hpp>

#include "simulated_run.hpp"
#include "support/node_shapes.hpp"
#include "support/operators.hpp"
#include "tune/choose.hpp"

namespace tutti {
namespace {

using simulation::Bytes;
using tune::Collective;

#if defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t storm_count = 20'000;
#else
constexpr std::uint64_t storm_count = 100'000;
#endif

enum class Accident { none, broken_connection, death };

/// A schedule that some request may be served by, with the plans of all ranks.
struct Schedule {
  std::string name;
  tune::CollectiveRequest request;
  test::Job job;
  std::vector<plan::Plan> plans;
};

struct Storm {
  const Schedule& schedule;
  std::uint64_t seed;
  std::uint64_t call_count;
  std::size_t element_count;
  std::size_t chunk_count;
  bool any_order;
  bool in_place;
  Accident accident;
  bool is_cancelled;  // the ranks give up their calls once, and make all of them after that
};

/// What the ranks of one storm went through.
struct Outcome {
  std::string wrong = {};  // a sentence; empty: every call that completed was right
  bool is_complete = false;
  std::uint64_t failed_calls = 0;  // that told of a failure
};

class Ranks {
 public:
  explicit Ranks(const Storm& storm)
      : storm_(storm),
        plans_(storm.schedule.plans),
        ranks_(plans_.size()),
        gone_(plans_.size()),
        sources_(plans_.size(), Bytes(8 * storm.element_count)),
        targets_(sources_),
        fabric_(ranks_, 2, storm.seed),
        random_(storm.seed) {
    const simulation::SimulatedCall call{.reduction = storm.schedule.job.reduction,
                                         .element_count = storm.element_count,
                                         .chunk_count = storm.chunk_count,
                                         .any_order = storm.any_order,
                                         .seed = storm.seed};
    for (std::uint32_t rank = 0; rank < count(); ++rank) {
      simulation::set_up(ranks_[rank], plans_[rank], call);
      auto& memory = ranks_[rank].execution.memory;
      memory.target = targets_[rank].data();
      memory.source = is_in_place() ? memory.target : sources_[rank].data();
    }
  }

  /// Runs until all have completed their calls, or until nobody gets on any more.
  Outcome run() {
    const std::uint64_t accident_at = random_() % (200 * storm_.call_count);
    const std::uint64_t cancelled_at =
        storm_.is_cancelled ? random_() % (100 * storm_.call_count) : UINT64_MAX;
    std::uint64_t idle_turns = 0;
    for (std::uint64_t turn = 0; idle_turns < simulation::idle_turns_max(count()); ++turn) {
      if (turn == accident_at) have_accident();
      if (turn == cancelled_at) {
        cancel();
        idle_turns = 0;
      }
      if (!fabric_.idle() && random_() % 2 == 0) {
        fabric_.deliver_one();
        idle_turns = 0;
        continue;
      }
      idle_turns = take_turn(static_cast<std::uint32_t>(random_() % count())) ? 0 : idle_turns + 1;
      if (!outcome_.wrong.empty()) return outcome_;
    }
    outcome_.is_complete = true;
    for (std::uint32_t rank = 0; rank < count(); ++rank)
      outcome_.is_complete &=
          ranks_[rank].execution.call() == storm_.call_count && !ranks_[rank].execution.in_flight;
    if (fabric_.doubled()) outcome_.wrong = "a notification came before the last one was taken";
    return outcome_;
  }

 private:
  std::uint32_t count() const { return static_cast<std::uint32_t>(ranks_.size()); }
  Collective collective() const { return storm_.schedule.request.collective; }
  // A broadcast has one buffer.
  bool is_in_place() const { return storm_.in_place || collective() == Collective::broadcast; }

  void have_accident() {
    const auto rank = static_cast<std::uint32_t>(random_() % count());
    const auto peer = static_cast<std::uint32_t>(random_() % count());
    if (storm_.accident == Accident::broken_connection) fabric_.break_connection(rank, peer);
    if (storm_.accident != Accident::death) return;
    fabric_.kill(rank);
    gone_[rank] = true;
  }

  /// Nothing is on its way when ranks that have given up their calls begin anew.
  void cancel() {
    if (std::find(gone_.begin(), gone_.end(), true) != gone_.end()) return;
    while (!fabric_.idle()) fabric_.deliver_one();
    for (simulation::SimulatedRank& rank : ranks_) {
      std::fill(rank.arrived.begin(), rank.arrived.end(), std::uint8_t{0});
      rank.execution.forget_calls();
    }
    calls_before_ = 100;  // no value of an earlier call is taken for one of a later call
  }

  /// False if the rank has no call to run, or has to wait.
  bool take_turn(std::uint32_t rank) {
    engine::Execution& execution = ranks_[rank].execution;
    if (gone_[rank]) return false;
    if (!execution.in_flight) {
      if (execution.call() == storm_.call_count) return false;
      fill(rank, execution.call() + 1);
      execution.begin();
    }
    const Status status = engine::advance(execution, fabric_, rank);
    if (status == Status::in_progress) return false;
    if (status == Status::ok) {
      check(rank);
      // The buffers are their user's again.
      for (Bytes* const buffer : {&sources_[rank], &targets_[rank]})
        std::fill(buffer->begin(), buffer->end(), std::byte{0xa5});
      return true;
    }
    if (storm_.accident == Accident::none) outcome_.wrong = "a call failed without an accident";
    ++outcome_.failed_calls;
    gone_[rank] = true;
    return true;
  }

  void fill(std::uint32_t rank, std::uint64_t call) {
    Bytes& own = is_in_place() ? targets_[rank] : sources_[rank];
    for (std::size_t i = 0; i < storm_.element_count; ++i) {
      const std::uint64_t value = test::input(rank, calls_before_ + call, i);
      std::memcpy(own.data() + 8 * i, &value, 8);
    }
  }

  /// From rank 0 on, how many contributions a rank's result has; 0: it has no result.
  std::uint32_t operands_of(std::uint32_t rank) const {
    if (collective() == Collective::scan) return rank + 1;
    if (collective() == Collective::exscan) return rank;
    const bool has_result =
        collective() != Collective::reduce || rank == index_of(storm_.schedule.request.root);
    return has_result ? count() : 0;
  }

  std::uint64_t expected(std::uint32_t rank, std::uint64_t call, std::size_t element) const {
    return collective() == Collective::broadcast
               ? test::input(index_of(storm_.schedule.request.root), calls_before_ + call, element)
               : storm_.schedule.job.expected(operands_of(rank), calls_before_ + call, element);
  }

  void check(std::uint32_t rank) {
    const std::uint64_t call = ranks_[rank].execution.call();
    if (collective() == Collective::barrier || collective() == Collective::allreduce)
      for (std::uint32_t other = 0; other < count(); ++other)
        if (ranks_[other].execution.call() < call)
          outcome_.wrong = "rank " + std::to_string(rank) + " left call " + std::to_string(call) +
                           " before rank " + std::to_string(other) + " had entered it";
    if (collective() == Collective::barrier || operands_of(rank) == 0) return;
    for (std::size_t i = 0; i < storm_.element_count; ++i) {
      std::uint64_t result = 0;
      std::memcpy(&result, targets_[rank].data() + 8 * i, 8);
      if (result != expected(rank, call, i))
        outcome_.wrong = "rank " + std::to_string(rank) + ", call " + std::to_string(call) +
                         ": element " + std::to_string(i) + " is wrong";
    }
  }

  const Storm& storm_;
  std::vector<plan::Plan> plans_;  // of this storm: arrivals may change their order
  std::vector<simulation::SimulatedRank> ranks_;
  std::vector<bool> gone_;  // died, or told of a failure
  std::vector<Bytes> sources_, targets_;
  simulation::SimulatedFabric fabric_;
  std::mt19937_64 random_;
  std::uint64_t calls_before_ = 0;  // those that were given up
  Outcome outcome_;
};

constexpr std::uint64_t take_out(std::uint64_t left, std::uint64_t right) {
  return right - left;
}

/// Operators that are made here, so that this test needs neither kernels nor what uses them.
std::vector<test::Job> jobs() {
  test::Job sum{"sum", elementwise<std::uint64_t, test::add>({.commutative = true, .exact = true}),
                test::add};
  sum.reduction.inverse = elementwise<std::uint64_t, take_out>({}).combine;
  return {sum,
          {"max",
           elementwise<std::uint64_t, test::greater>(
               {.commutative = true, .idempotent = true, .exact = true}),
           test::greater},
          test::ordered_job()};
}

std::vector<tune::Topology> topologies() {
  std::vector<tune::Topology> all;
  for (std::uint32_t count = 1; count <= 9; ++count) all.push_back({.rank_count = count});
  for (const std::vector<std::uint32_t>& sizes :
       {std::vector<std::uint32_t>{2, 2}, {3, 1}, {1, 3, 2}, {4, 4}, {3, 3, 3}, {2, 2, 2, 2}}) {
    tune::Topology topology{.node_of = test::in_blocks(sizes)};
    topology.rank_count = static_cast<std::uint32_t>(topology.node_of.size());
    all.push_back(std::move(topology));
  }
  return all;
}

/// Everything that a price decides about, for short payloads and long ones.
std::vector<Schedule> all_schedules() {
  const plan::Network network = tune::machine_preset("fdr").network();
  std::vector<Schedule> all;
  const auto add = [&](const tune::CollectiveRequest& request, const test::Job& job,
                       const tune::Topology& topology) {
    for (const tune::Choice& choice : tune::rivals(request, topology, network)) {
      if (choice.row().is_flow) continue;
      Schedule schedule{.name = std::string(name_of(request.collective)) + " by " + choice.name() +
                                ", " + job.name + ", " + std::to_string(topology.rank_count) +
                                " ranks on " + std::to_string(topology.node_count()) + " nodes",
                        .request = request,
                        .job = job,
                        .plans = {}};
      for (std::uint32_t rank = 0; rank < topology.rank_count; ++rank)
        schedule.plans.push_back(choice.plan(Rank{rank}));
      all.push_back(std::move(schedule));
    }
  };
  for (const tune::Topology& topology : topologies())
    for (const Collective collective :
         {Collective::barrier, Collective::allreduce, Collective::broadcast, Collective::reduce,
          Collective::scan, Collective::exscan})
      for (const test::Job& job : jobs())
        for (const std::size_t elements : {std::size_t{1}, std::size_t{1} << 17}) {
          const bool is_barrier = collective == Collective::barrier;
          const bool needs_one = is_barrier || collective == Collective::broadcast;
          if (needs_one && job.name != std::string("sum")) continue;
          if (is_barrier && elements > 1) continue;
          tune::CollectiveRequest request{.collective = collective,
                                          .element_count = is_barrier ? 0 : elements,
                                          .reduction = job.reduction};
          if (collective == Collective::broadcast || collective == Collective::reduce)
            request.root = Rank{topology.rank_count / 2};
          for (const auto& [reads_in_place, zero_copy] :
               {std::pair{false, false}, {true, false}, {false, true}}) {
            if (zero_copy && elements == 1) continue;
            request.reads_in_place = reads_in_place;
            request.zero_copy = zero_copy;
            add(request, job, topology);
          }
        }
  return all;
}

const std::vector<Schedule>& schedules() {
  static const std::vector<Schedule> all = all_schedules();
  return all;
}

Storm storm_of(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const Schedule& schedule = schedules()[random() % schedules().size()];
  const bool is_barrier = schedule.request.collective == Collective::barrier;
  const std::size_t elements = is_barrier ? 0 : random() % 24;
  const std::size_t chunks = random() % 3 == 0 ? 1 + random() % 4 : 1;
  const auto accident = random() % 2 == 0 ? Accident::none : Accident(1 + random() % 2);
  return {.schedule = schedule,
          .seed = seed,
          .call_count = 1 + random() % 4,
          .element_count = elements,
          .chunk_count = std::max<std::size_t>(std::min(chunks, elements), 1),
          .any_order = random() % 2 == 0 && tune::takes_any_order(schedule.request) &&
                       schedule.plans[0].payloads == 1,
          .in_place = random() % 2 == 0,
          .accident = accident,
          .is_cancelled = random() % 4 == 0};
}

std::string text_of(const Storm& storm) {
  constexpr const char* accidents[] = {"no accident", "a broken connection", "a death"};
  return "seed " + std::to_string(storm.seed) + ": " + storm.schedule.name + ", " +
         std::to_string(storm.call_count) + " calls of " + std::to_string(storm.element_count) +
         " elements in " + std::to_string(storm.chunk_count) + " chunks, " +
         (storm.any_order ? "any order, " : "") + (storm.in_place ? "in place, " : "") +
         (storm.is_cancelled ? "cancelled once, " : "") +
         accidents[static_cast<int>(storm.accident)];
}

struct Tally {
  std::uint64_t complete = 0;
  std::uint64_t cut_short = 0;  // by an accident
  std::uint64_t failed_calls = 0;
  std::uint64_t wrong = 0;
};

void weather(std::uint64_t seed, Tally& tally) {
  const Storm storm = storm_of(seed);
  const Outcome outcome = Ranks(storm).run();
  const bool is_stuck = !outcome.is_complete && storm.accident == Accident::none;
  (outcome.is_complete ? tally.complete : tally.cut_short) += 1;
  tally.failed_calls += outcome.failed_calls;
  if (outcome.wrong.empty() && !is_stuck) return;
  ++tally.wrong;
  ADD_FAILURE() << text_of(storm) << ": " << (is_stuck ? "a call never completes" : outcome.wrong)
                << ".  Replay it by TUTTI_SIMULATION_SEED=" << seed;
}

TEST(Storm, every_call_that_completes_is_right) {
  Tally tally;
  if (const char* const text = std::getenv("TUTTI_SIMULATION_SEED")) {
    std::uint64_t seed = 0;
    const auto [end, error] = std::from_chars(text, text + std::strlen(text), seed);
    ASSERT_TRUE(error == std::errc() && *end == '\0' && *text != '\0')
        << "TUTTI_SIMULATION_SEED is \"" << text << "\", expected an integer of at least 0";
    std::printf("%s\n", text_of(storm_of(seed)).c_str());
    return weather(seed, tally);
  }
  for (std::uint64_t seed = 1; seed <= storm_count && tally.wrong < 5; ++seed) weather(seed, tally);
  std::printf(
      "%zu schedules; %lu runs were complete, an accident cut %lu short, %lu calls failed\n",
      schedules().size(), tally.complete, tally.cut_short, tally.failed_calls);
  if (tally.wrong > 0) return;
  // Accidents come in half of the runs, some of them after the last call.
  EXPECT_GT(tally.complete, storm_count / 2);
  EXPECT_GT(tally.cut_short, storm_count / 10);
  EXPECT_GT(tally.failed_calls, storm_count / 20);
}

}  // namespace
}  // namespace tutti
