// Promise: a schedule asked for by name is taken or refused with the ones that serve; left alone,
// the rule takes one that keeps the promise.
#include "api/selection.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tutti/status.hpp>
#include <vector>

#include "api/names.hpp"

namespace tutti::api {
namespace {

double noise(double left, double right) {
  return left + 0.5 * right;
}

AllreduceRequest request(BuiltIn op, ElementType type, Agreement agreement) {
  return {.element_count = 1,
          .reduction =
              op == BuiltIn::none ? elementwise<double, noise>({}) : built_in_reduction(op, type),
          .agreement = agreement};
}

std::string taken(const AllreduceRequest& asked, std::uint32_t rank_count = 12) {
  return allreduce_plan(Rank{0}, rank_count, asked).algorithm;
}

void expect_refused(ErrorCode code, const std::function<void()>& ask,
                    const std::vector<std::string>& words) {
  try {
    ask();
    ADD_FAILURE() << "accepted: " << words[0];
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    for (const std::string& word : words)
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
          << error.what() << "\n does not say: " << word;
  }
}

TEST(Selection, LeftAloneTakesASchedule) {
  using enum Agreement;
  EXPECT_EQ(taken(request(BuiltIn::sum, ElementType::float64, identical)), "recursive_multiplying");
  EXPECT_EQ(taken(request(BuiltIn::sum, ElementType::float64, relaxed)),
            "two_partial_dissemination");
  EXPECT_EQ(taken(request(BuiltIn::sum, ElementType::int32, reproducible)),
            "two_partial_dissemination");
  EXPECT_EQ(taken(request(BuiltIn::max, ElementType::float64, reproducible)), "dissemination");
  AllreduceRequest asked = request(BuiltIn::sum, ElementType::float64, reproducible);
  EXPECT_EQ(taken(asked, 5), "gather_fold");
  EXPECT_EQ(taken(asked, 96), "canonical_dissemination");
  asked.element_count = 1 << 16;
  EXPECT_EQ(taken(asked), "chunked_fold");
  asked.element_count = std::size_t{1} << 58;                     // the costs do not run over
  EXPECT_EQ(taken(asked, 1'000'000), "canonical_dissemination");  // too many ranks for the others
  EXPECT_EQ(taken(asked, 16'000), "chunked_fold");
  asked.per_round = {3, 2};  // which chunked_fold could not follow
  EXPECT_EQ(taken(asked), "canonical_dissemination");
}

TEST(Selection, EveryScheduleOfTheCatalogueIsTakenByNameWhereItServes) {
  for (const Schedule& schedule : allreduce_schedules()) {
    AllreduceRequest asked = request(
        schedule.needs_idempotent ? BuiltIn::min : BuiltIn::sum,
        schedule.needs_inverse ? ElementType::int64 : ElementType::float64, schedule.agreement);
    asked.algorithm = schedule.algorithm;
    EXPECT_EQ(taken(asked), name_of(schedule.algorithm));
    EXPECT_EQ(taken(asked, 1), name_of(schedule.algorithm)) << "one rank";
  }
}

TEST(Selection, RefusesWhatAScheduleCannotKeep) {
  AllreduceRequest asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
  asked.algorithm = Algorithm::two_partial;
  expect_refused(ErrorCode::unsupported, [&] { (void)taken(asked); },
                 {"two_partial_dissemination", "no more than relaxed", "sum of double",
                  "identical is asked for", "use automatic, recursive_multiplying"});
  asked.algorithm = Algorithm::dissemination;
  expect_refused(ErrorCode::unsupported, [&] { (void)taken(asked); }, {"sum is not idempotent"});
  asked = request(BuiltIn::none, ElementType::float64, Agreement::relaxed);
  asked.algorithm = Algorithm::dissemination;
  expect_refused(ErrorCode::unsupported, [&] { (void)taken(asked); }, {"not idempotent"});
  expect_refused(ErrorCode::unsupported,
                 [] { (void)barrier_plan(Rank{0}, 4, Algorithm::two_partial, {}); },
                 {"barrier", "two_partial_dissemination", "use automatic or dissemination"});
}

TEST(Selection, RefusesVectorsThatDoNotServe) {
  AllreduceRequest asked = request(BuiltIn::sum, ElementType::int64, Agreement::identical);
  asked.per_round = {3, 2};
  expect_refused(ErrorCode::invalid_argument, [&] { (void)taken(asked, 13); },
                 {"per_round 3,2", "13 ranks", "use 3,3"});
  asked.per_round = {3, 0};
  expect_refused(ErrorCode::invalid_argument, [&] { (void)taken(asked); },
                 {"per_round 3,0", "1 or more"});
  asked.per_round = {100'000};
  expect_refused(ErrorCode::invalid_argument, [&] { (void)taken(asked, 100'000); },
                 {"100000", "32768 messages", "smaller entries"});
}

TEST(Selection, NamesTheNearestNThatCanBeAdapted) {
  AllreduceRequest asked = request(BuiltIn::sum, ElementType::float64, Agreement::relaxed);
  asked.algorithm = Algorithm::nway;
  std::uint32_t refused = 0;
  for (std::uint32_t rank_count = 2; rank_count <= 100; ++rank_count) {
    asked.per_round = {1};
    try {
      (void)taken(asked, rank_count);
    } catch (const Error& error) {
      ++refused;
      const std::string text = error.what();
      asked.per_round = {static_cast<std::uint32_t>(std::stoul(text.substr(text.rfind(' '))))};
      EXPECT_EQ(taken(asked, rank_count), "nway") << text;
    }
  }
  EXPECT_GT(refused, 20u);
  asked.per_round = {3, 2};
  expect_refused(ErrorCode::invalid_argument, [&] { (void)taken(asked); },
                 {"per_round 3,2", "nway has one n for all rounds", "use 3"});
}

TEST(Selection, RefusesAnInverseThatIsNotThereAndVectorsThatMeanNothing) {
  AllreduceRequest asked = request(BuiltIn::sum, ElementType::float64, Agreement::relaxed);
  asked.algorithm = Algorithm::nway_inverse;
  expect_refused(ErrorCode::unsupported, [&] { (void)taken(asked); },
                 {"nway_inverse", "sum of double has no inverse", "automatic", "nway,"});
  asked.algorithm = Algorithm::chunked_fold;
  asked.per_round = {3};
  expect_refused(ErrorCode::invalid_argument, [&] { (void)taken(asked); },
                 {"per_round 3", "chunked_fold", "canonical_dissemination"});
  asked.per_round = {};
  expect_refused(ErrorCode::unsupported, [&] { (void)taken(asked, 100'000); },
                 {"chunked_fold", "P is 100000", "use canonical_dissemination"});
  asked.algorithm = Algorithm::gather_fold;
  expect_refused(ErrorCode::unsupported, [&] { (void)taken(asked, 100'000); },
                 {"gather_fold", "65535", "use canonical_dissemination"});
}

TEST(Selection, ArrivalOrderOnlyWhereNobodyCanTell) {
  using enum Agreement;
  EXPECT_TRUE(takes_any_order(request(BuiltIn::sum, ElementType::float64, relaxed)));
  EXPECT_TRUE(takes_any_order(request(BuiltIn::sum, ElementType::int32, reproducible)));
  EXPECT_TRUE(takes_any_order(request(BuiltIn::max, ElementType::float32, identical)));
  EXPECT_FALSE(takes_any_order(request(BuiltIn::sum, ElementType::float64, identical)));
  EXPECT_FALSE(takes_any_order(request(BuiltIn::none, ElementType::float64, relaxed)));
}

}  // namespace
}  // namespace tutti::api
