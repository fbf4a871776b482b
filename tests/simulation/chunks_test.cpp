// Promise: a payload that goes through a plan in chunks gives what it gives as a whole, for every
// schedule of the catalogue, whether or not the chunks are equally long.
#include <gtest/gtest.h>

#include <span>
#include <tuple>
#include <tutti/detail/names.hpp>
#include <tutti/status.hpp>

#include "plan/allreduce/lane_turns.hpp"
#include "plan/allreduce/zero_copy_allreduce.hpp"
#include "plan/rooted/single_copy.hpp"
#include "plan/rooted/zero_copy_reduce.hpp"
#include "simulated_run.hpp"
#include "support/node_shapes.hpp"
#include "support/operators.hpp"
#include "tune/choose.hpp"

namespace tutti {
namespace {

using simulation::Bytes;

Bytes inputs_of(std::uint32_t rank, std::size_t element_count) {
  std::vector<std::uint64_t> values;
  for (std::size_t i = 0; i < element_count; ++i) values.push_back(test::input(rank, 1, i));
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

struct Case {
  std::uint32_t rank_count;
  Algorithm algorithm;
  const test::Job& job;
  std::size_t element_count;
  std::size_t chunk_count;
  bool zero_copy = false;
  bool in_place = false;
};

/// False if the schedule does not serve them.
bool expect_right(const Case& one) {
  const tune::CollectiveRequest request{.element_count = one.element_count,
                                        .reduction = one.job.reduction,
                                        .algorithm = one.algorithm,
                                        .zero_copy = one.zero_copy};
  std::vector<plan::Plan> plans;
  std::vector<Bytes> sources;
  try {
    const tune::Choice choice =
        tune::choose(request, {.rank_count = one.rank_count}, tune::Knowledge());
    for (std::uint32_t rank = 0; rank < one.rank_count; ++rank) {
      plans.push_back(choice.plan(Rank{rank}));
      sources.push_back(inputs_of(rank, one.element_count));
    }
  } catch (const Error&) {
    return false;
  }
  std::vector<std::uint64_t> expected;
  for (std::size_t i = 0; i < one.element_count; ++i)
    expected.push_back(one.job.expected(one.rank_count, 1, i));
  const auto bytes = std::as_bytes(std::span(expected));
  const std::vector<Bytes> targets = simulation::simulate(plans,
                                                          {.reduction = one.job.reduction,
                                                           .element_count = one.element_count,
                                                           .chunk_count = one.chunk_count,
                                                           .in_place = one.in_place,
                                                           .seed = one.element_count},
                                                          sources);
  for (const Bytes& target : targets)
    EXPECT_EQ(target, Bytes(bytes.begin(), bytes.end()))
        << name_of(one.algorithm) << ", " << one.rank_count << " ranks, " << one.element_count
        << " elements in " << one.chunk_count << " chunks, " << one.job.name;
  return true;
}

/// The first element that is not what all ranks contributed together on each of them; `elements`:
/// all are.
std::size_t first_wrong(const test::Job& job, std::uint32_t rank_count, std::size_t elements,
                        const std::vector<Bytes>& targets) {
  for (std::size_t i = 0; i < elements; ++i)
    for (const Bytes& target : targets) {
      std::uint64_t result = 0;
      std::memcpy(&result, target.data() + 8 * i, 8);
      if (result != job.expected(rank_count, 1, i)) return i;
    }
  return elements;
}

TEST(Chunks, give_what_the_whole_payload_gives) {
  const test::Job jobs[] = {test::sum_job(), test::ordered_job()};
  int cases = 0;
  for (const tune::Row& schedule : tune::named_schedules())
    for (const test::Job& job : jobs)
      for (std::uint32_t ranks = 1; ranks <= 9; ++ranks)
        for (const std::size_t chunks :
             {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{5}})
          for (std::size_t elements = 5; elements <= 17; elements += 3)
            cases += expect_right({ranks, schedule.algorithm, job, elements, chunks}) ? 1 : 0;
  EXPECT_GT(cases, 2000);
}

TEST(Chunks, zero_copy_too) {
  const test::Job jobs[] = {test::sum_job(), test::ordered_job()};
  int cases = 0;
  for (const Algorithm algorithm : {Algorithm::chunked_fold, Algorithm::ring})
    for (const test::Job& job : jobs)
      for (std::uint32_t ranks = 1; ranks <= 9; ++ranks)
        for (const std::size_t chunks : {std::size_t{1}, std::size_t{2}, std::size_t{5}})
          for (std::size_t elements = 5; elements <= 41; elements += 3)
            for (const bool in_place : {false, true})
              cases += expect_right({ranks, algorithm, job, elements, chunks, true, in_place});
  EXPECT_GT(cases, 1000);
}

/// A reduce of two ranks by reference combines piece by piece, also in place.
TEST(Chunks, reduces_by_single_copy_are_right) {
  const test::Job job = test::sum_job();
  for (std::uint32_t root = 0; root < 2; ++root)
    for (const std::size_t elements : {0u, 1u, 2u, 3u, 4u, 17u, 30u})
      for (const bool in_place : {false, true})
        for (const std::size_t chunks : {std::size_t{1}, std::size_t{3}}) {
          std::vector<plan::Plan> plans;
          std::vector<Bytes> sources;
          for (std::uint32_t rank = 0; rank < 2; ++rank) {
            plans.push_back(plan::single_copy_reduce(Rank{rank}, Rank{root}));
            sources.push_back(inputs_of(rank, elements));
          }
          const std::vector<Bytes> targets =
              simulation::simulate(plans,
                                   {.reduction = job.reduction,
                                    .element_count = elements,
                                    .chunk_count = elements < chunks ? 1 : chunks,
                                    .in_place = in_place,
                                    .seed = elements + 1},
                                   sources);
          for (std::size_t i = 0; i < elements; ++i) {
            std::uint64_t result = 0;
            std::memcpy(&result, targets[root].data() + 8 * i, 8);
            EXPECT_EQ(result, job.expected(2, 1, i)) << elements << " elements, root " << root;
          }
        }
}

// What others than the root have combined is read in their partials, which a later chunk writes.
TEST(Chunks, of_reduces_by_reference_are_right) {
  const test::Job job = test::sum_job();
  for (const std::vector<std::uint32_t>& sizes :
       {std::vector<std::uint32_t>{2}, {3}, {5}, {2, 2}, {2, 3, 2}}) {
    const test::NodeOf node_of = test::in_blocks(sizes);
    const auto ranks = static_cast<std::uint32_t>(node_of.size());
    for (std::uint32_t root = 0; root < ranks; ++root)
      for (const std::uint16_t pieces : {std::uint16_t{1}, std::uint16_t{3}})
        for (const std::size_t chunks : {std::size_t{1}, std::size_t{2}, std::size_t{5}})
          for (const bool in_place : {false, true}) {
            const plan::ZeroCopyReduce shape{
                .root = Rank{root}, .rank_count = ranks, .node_of = node_of, .pieces = pieces};
            const std::size_t elements = plan::zero_copy_parts(shape) * 2 * chunks + 1;
            std::vector<plan::Plan> plans;
            std::vector<Bytes> sources;
            for (std::uint32_t rank = 0; rank < ranks; ++rank) {
              plans.push_back(plan::zero_copy_reduce(Rank{rank}, shape));
              sources.push_back(inputs_of(rank, elements));
            }
            const std::vector<Bytes> targets = simulation::simulate(plans,
                                                                    {.reduction = job.reduction,
                                                                     .element_count = elements,
                                                                     .chunk_count = chunks,
                                                                     .any_order = root % 2 == 0,
                                                                     .in_place = in_place,
                                                                     .seed = elements + pieces},
                                                                    sources);
            for (std::size_t i = 0; i < elements; ++i) {
              std::uint64_t result = 0;
              std::memcpy(&result, targets[root].data() + 8 * i, 8);
              ASSERT_EQ(result, job.expected(ranks, 1, i))
                  << ranks << " ranks, root " << root << ", " << pieces << " pieces, " << chunks
                  << " chunks, element " << i;
            }
          }
  }
}

// Contributions are read where they are, and combined with the source or with what has grown of it.
TEST(Chunks, of_lanes_by_reference_give_what_others_give) {
  const test::Job job = test::sum_job();
  for (const std::vector<std::uint32_t>& sizes :
       {std::vector<std::uint32_t>{2}, {4}, {2, 2}, {3, 1}, {1, 3, 2}, {3, 3, 3}})
    for (const std::uint16_t pieces : {std::uint16_t{1}, std::uint16_t{3}})
      for (const bool in_place : {false, true}) {
        const test::NodeOf node_of = test::in_blocks(sizes);
        const plan::ZeroCopyLanes shape{.rank_count = static_cast<std::uint32_t>(node_of.size()),
                                        .node_of = node_of,
                                        .pieces = pieces};
        const std::size_t elements = plan::zero_copy_parts(shape) * 2 + 1;
        std::vector<plan::Plan> plans;
        std::vector<Bytes> sources;
        for (std::uint32_t rank = 0; rank < shape.rank_count; ++rank) {
          plans.push_back(plan::zero_copy_allreduce(Rank{rank}, shape));
          sources.push_back(inputs_of(rank, elements));
        }
        const std::vector<Bytes> targets = simulation::simulate(plans,
                                                                {.reduction = job.reduction,
                                                                 .element_count = elements,
                                                                 .chunk_count = 1,
                                                                 .in_place = in_place,
                                                                 .seed = elements + 2},
                                                                sources);
        EXPECT_EQ(first_wrong(job, shape.rank_count, elements, targets), elements)
            << sizes.size() << " nodes, " << pieces << " pieces";
      }
}

// Messages across land in slots that have no room for more than they need.
TEST(Chunks, of_lanes_in_turns_give_what_others_give) {
  const test::Job job = test::sum_job();
  for (const auto& [sizes, per_round] :
       {std::pair<std::vector<std::uint32_t>, plan::PerRound>{{2, 2}, {1}},
        {{3, 3, 3, 3}, {1, 1}},
        {{2, 2, 2, 2}, {3}},
        {{2, 2, 2, 2, 2, 2}, {1, 2}},
        {{2, 2, 2, 2, 2, 2}, {2, 1}},
        {{2, 2, 2, 2, 2, 2, 2, 2}, {1, 1, 1}}})
    for (const auto& [turns, pieces, exchanges] : {std::tuple{1u, 1u, 0u},
                                                   {3u, 1u, 0u},
                                                   {3u, 2u, 0u},
                                                   {1u, 1u, 1u},
                                                   {3u, 2u, 1u},
                                                   {3u, 2u, 2u}})
      for (const std::size_t chunks : {std::size_t{1}, std::size_t{3}}) {
        if (exchanges >= per_round.size()) continue;
        const test::NodeOf node_of = test::in_blocks(sizes);
        const plan::LaneTurns shape{.rank_count = static_cast<std::uint32_t>(node_of.size()),
                                    .node_of = node_of,
                                    .per_round = per_round,
                                    .turns = turns,
                                    .pieces = pieces,
                                    .exchanges = exchanges};
        std::vector<plan::Plan> plans;
        for (std::uint32_t rank = 0; rank < shape.rank_count; ++rank)
          plans.push_back(plan::lane_turns_allreduce(Rank{rank}, shape));
        const std::size_t elements = std::size_t{plans[0].parts} * 2 * chunks + 5;
        std::vector<Bytes> sources;
        for (std::uint32_t rank = 0; rank < shape.rank_count; ++rank)
          sources.push_back(inputs_of(rank, elements));
        EXPECT_LT(plans[0].short_payloads, plans[0].payloads);
        const std::vector<Bytes> targets = simulation::simulate(plans,
                                                                {.reduction = job.reduction,
                                                                 .element_count = elements,
                                                                 .chunk_count = chunks,
                                                                 .any_order = turns == 3,
                                                                 .seed = elements + turns},
                                                                sources);
        EXPECT_EQ(first_wrong(job, shape.rank_count, elements, targets), elements)
            << sizes.size() << " nodes, " << turns << " turns of " << pieces << " pieces, "
            << exchanges << " exchanges, " << chunks << " chunks";
      }
}

// Ranks that exchange compute the same sums, each for itself.
TEST(Chunks, of_lanes_in_turns_that_exchange_have_the_same_bits_on_all_ranks) {
  for (const auto& [nodes, per_round, exchanges] :
       {std::tuple{8u, plan::PerRound{1, 1, 1}, 2u}, {6u, plan::PerRound{1, 2}, 1u}}) {
    const test::NodeOf node_of = test::in_blocks(std::vector<std::uint32_t>(nodes, 2));
    const plan::LaneTurns shape{.rank_count = 2 * nodes,
                                .node_of = node_of,
                                .per_round = per_round,
                                .turns = 3,
                                .exchanges = exchanges};
    std::vector<plan::Plan> plans;
    for (std::uint32_t rank = 0; rank < shape.rank_count; ++rank)
      plans.push_back(plan::lane_turns_allreduce(Rank{rank}, shape));
    const std::size_t elements = std::size_t{plans[0].parts} * 7;
    std::vector<Bytes> sources;
    for (std::uint32_t rank = 0; rank < shape.rank_count; ++rank) {
      std::vector<double> values(elements);
      for (std::size_t i = 0; i < elements; ++i)
        values[i] = 1.0 / static_cast<double>(1 + (rank * 7919 + i * 104'729) % 1'000'003);
      const auto bytes = std::as_bytes(std::span(values));
      sources.emplace_back(bytes.begin(), bytes.end());
    }
    const std::vector<Bytes> targets =
        simulation::simulate(plans,
                             {.reduction = built_in_reduction(BuiltIn::sum, ElementType::float64),
                              .element_count = elements},
                             sources);
    for (const Bytes& target : targets) EXPECT_EQ(target, targets[0]) << nodes << " nodes";
  }
}

TEST(Chunks, are_as_even_as_can_be_and_none_is_longer_than_its_like_of_the_first) {
  for (std::size_t elements = 0; elements < 40; ++elements)
    for (std::size_t chunks = 1; chunks < 6; ++chunks)
      for (std::size_t parts = 1; parts < 5; ++parts) {
        const std::vector<engine::Part> all = engine::parts_of(elements, 8, parts, chunks);
        ASSERT_EQ(all.size(), chunks * parts);
        std::size_t next = 0;
        for (std::size_t i = 0; i < all.size(); ++i) {
          EXPECT_EQ(all[i].source, all[i].target);
          EXPECT_EQ(all[i].source.offset, 8 * next);
          EXPECT_EQ(all[i].source.bytes, 8 * all[i].element_count);
          EXPECT_LE(all[i].source.bytes, all[i % parts].source.bytes);
          EXPECT_LE(all[i % parts].element_count - all[i].element_count, 1u);
          next += all[i].element_count;
        }
        EXPECT_EQ(next, elements);
      }
}

}  // namespace
}  // namespace tutti
