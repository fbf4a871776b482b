// Promise: preparing a race takes no longer than a batch where calls are long, a candidate that is
// alone is noisy if the time was short, and memory that one rank lacks is an error of all ranks.
#include "microbench/tune_race.hpp"

#include <gtest/gtest.h>

#include <new>
#include <tutti/bootstrap.hpp>
#include <utility>

#include "microbench/together.hpp"
#include "microbench/tune_racers.hpp"

namespace tutti::bench {
namespace {

std::vector<std::size_t> calibrated(double call_ns, double batch_ns) {
  std::vector<std::size_t> measured;
  const std::size_t calls = calls_of_batch(batch_ns, [&](std::size_t wanted) {
    measured.push_back(wanted);
    return call_ns;
  });
  measured.push_back(calls);
  return measured;
}

TEST(TuneRace, sixteen_calls_are_measured_only_if_they_fit_into_a_batch) {
  EXPECT_EQ(calibrated(1e3, 1e5), (std::vector<std::size_t>{2, 16, 100}));
  EXPECT_EQ(calibrated(1e4, 1e5), (std::vector<std::size_t>{2, 10}));
  EXPECT_EQ(calibrated(1e9, 1e5), (std::vector<std::size_t>{2, 1}));
}

tune::RaceResult alone(std::uint32_t samples_in_time, bool is_exact) {
  std::uint32_t asked = 0;
  return run_alone([] { return plan::Picoseconds{1000}; },
                   [&] { return ++asked < samples_in_time; }, is_exact);
}

TEST(TuneRace, one_that_is_alone_is_noisy_if_the_time_was_short) {
  EXPECT_TRUE(alone(1, false).is_noisy);
  EXPECT_TRUE(alone(blocks_alone - 1, false).is_noisy);
  EXPECT_FALSE(alone(blocks_alone, false).is_noisy);
  EXPECT_EQ(alone(100, false).blocks, blocks_alone);
  EXPECT_FALSE(alone(100, true).is_noisy);  // in virtual time one sample says all
  EXPECT_EQ(alone(100, true).blocks, 1u);
}

/// A finding that the choice of a machine for an allreduce of 8 bytes took twice its price.
tune::Finding twice_its_price(std::uint32_t nodes, std::uint32_t ranks_per_node,
                              const tune::Machine& machine) {
  tune::Finding finding{.collective = tune::Collective::allreduce,
                        .bytes = 8,
                        .nodes = nodes,
                        .ranks_per_node = ranks_per_node,
                        .operators = tune::OperatorClass::rounding};
  const tune::Choice choice =
      tune::choose(request_of(finding), *topology_of(finding), tune::untuned(machine));
  const plan::Picoseconds price = choice.expected(1000);
  finding.winner = {choice.name(), 2 * price, price};
  finding.others = {{"is none anywhere", 3 * price, price}};
  return finding;
}

TEST(TuneRace, findings_of_all_shapes_keep_a_price) {
  const tune::Machine &fdr = tune::machine_preset("fdr"), &qdr = tune::machine_preset("qdr");
  for (const auto& [nodes, ranks_per_node] :
       {std::pair{4u, 1u}, std::pair{16u, 1u}, std::pair{4u, 8u}, std::pair{1u, 4u}}) {
    const tune::Finding before = twice_its_price(nodes, ranks_per_node, fdr);
    tune::Finding same = before;
    price_anew(same, request_of(same), *topology_of(same), tune::untuned(fdr), 1000);
    EXPECT_EQ(same, before);
    tune::Finding slower = before;
    price_anew(slower, request_of(slower), *topology_of(slower), tune::untuned(qdr), 1000);
    EXPECT_GT(slower.winner.predicted, nodes > 1 ? before.winner.predicted : 0) << nodes;
    // A choice that has no name here keeps its price: without one, it would correct nothing.
    EXPECT_EQ(slower.others, before.others);
  }
}

TEST(TuneRace, findings_of_more_ranks_than_are_priced_have_no_topology) {
  const auto ranks = [](std::uint32_t nodes, std::uint32_t ranks_per_node) {
    return topology_of({.nodes = nodes, .ranks_per_node = ranks_per_node});
  };
  EXPECT_EQ(ranks(64, 64).value().rank_count, 4096u);
  EXPECT_FALSE(ranks(4097, 1).has_value());
  EXPECT_FALSE(ranks(1 << 20, 1 << 16).has_value());
  EXPECT_FALSE(ranks(1 << 16, 1 << 16).has_value());  // 0 in 32 bits
}

TEST(TuneRace, the_call_of_a_finding_has_its_operators) {
  for (const auto operators : {tune::OperatorClass::idempotent, tune::OperatorClass::exact,
                               tune::OperatorClass::rounding, tune::OperatorClass::ordered})
    for (const std::uint64_t bytes : {0u, 8u, 12u, 7u}) {
      const tune::Finding finding{.collective = tune::Collective::allreduce,
                                  .bytes = bytes,
                                  .nodes = 2,
                                  .operators = operators};
      const tune::CollectiveRequest request = request_of(finding);
      EXPECT_EQ(tune::operator_class_of(request), operators);
      EXPECT_EQ(request.bytes(), bytes);
    }
}

TEST(Together, an_error_with_long_paths_keeps_its_remedy) {
  const std::vector<LocalResult> ranks = run_local({.rank_count = 2}, [](Exchange& exchange) {
    const std::string text = std::string(3000, 'x') + "; give another file";
    try {
      together(exchange, [&] {
        if (exchange.self() == Rank{1}) throw Error(ErrorCode::invalid_argument, text);
      });
    } catch (const Error& error) {
      return error.what() == "rank 1: " + text ? 0 : 1;
    }
    return 2;
  });
  for (const LocalResult& rank : ranks) {
    EXPECT_EQ(rank.signal, 0);
    EXPECT_EQ(rank.exit_status, 0);
  }
}

TEST(Together, memory_that_one_rank_lacks_is_an_error_of_all) {
  const std::vector<LocalResult> ranks = run_local({.rank_count = 2}, [](Exchange& exchange) {
    try {
      together(exchange, [&] {
        if (exchange.self() == Rank{1}) throw std::bad_alloc();
      });
    } catch (const Error& error) {
      const bool names_it =
          std::string(error.what()).find("rank 1: there is not enough memory") == 0;
      return names_it && error.code() == ErrorCode::limit_exceeded ? 0 : 1;
    }
    return 2;
  });
  for (const LocalResult& rank : ranks) {
    EXPECT_EQ(rank.signal, 0);
    EXPECT_EQ(rank.exit_status, 0);
  }
}

}  // namespace
}  // namespace tutti::bench
