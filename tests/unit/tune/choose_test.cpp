// Promise: a schedule asked for by name is taken or refused with the ones that serve; left alone,
// the rule takes one that keeps the promise.
#include "tune/choose.hpp"

#include <gtest/gtest.h>

#include <string>
#include <tutti/detail/names.hpp>
#include <vector>

#include "choosing.hpp"
#include "runtime/settings.hpp"

namespace tutti::tune {
namespace {

TEST(Selection, left_alone_takes_a_schedule) {
  using enum Agreement;
  // One expression on all ranks, also along the canonical tree, which takes fewer rounds where
  // ranks would have to be folded.
  Asked large = request(BuiltIn::sum, ElementType::float64, identical);
  for (const std::uint32_t prime : {97u, 997u})
    EXPECT_EQ(taken(large, prime), "canonical_dissemination") << prime;
  large.element_count = 64;
  for (const std::uint32_t product : {16u, 24u, 32u, 48u, 64u, 96u})
    EXPECT_EQ(taken(large, product), "recursive_multiplying") << product;
  large.element_count = 1 << 12;
  EXPECT_EQ(taken(large, 13), "chunked_fold");
  // Large payloads in parts, whatever the agreement, along skips among many ranks.
  for (const Agreement agreement : {identical, relaxed}) {
    large.agreement = agreement;
    large.element_count = 1 << 17;
    EXPECT_EQ(taken(large, 13), "chunked_fold");
    EXPECT_EQ(taken(large, 32), "chunked_fold");
    for (const std::uint32_t many : {33u, 48u, 64u, 200u, 1000u})
      EXPECT_EQ(taken(large, many), "circulant") << many << " ranks";
    large.partners_max = 10;
    EXPECT_NE(taken(large, 13), "chunked_fold");
    large.partners_max = UINT32_MAX;
    large.per_round_by_default = {3, 3};  // which it could not follow
    EXPECT_NE(taken(large, 13), "chunked_fold");
    large.per_round_by_default = {};
  }
  Asked ordered = request(BuiltIn::none, ElementType::float64, identical);
  ordered.element_count = 1 << 17;
  EXPECT_EQ(taken(ordered, 48), "canonical_halving");  // it does not commute
  ordered.partners_max = 9;
  EXPECT_EQ(taken(ordered, 48), "recursive_multiplying");
  EXPECT_EQ(taken(request(BuiltIn::sum, ElementType::float64, relaxed)),
            "two_partial_dissemination");
  EXPECT_EQ(taken(request(BuiltIn::sum, ElementType::int32, reproducible)),
            "two_partial_dissemination");
  EXPECT_EQ(taken(request(BuiltIn::max, ElementType::float64, reproducible)), "dissemination");
  Asked asked = request(BuiltIn::sum, ElementType::float64, reproducible);
  EXPECT_EQ(taken(asked, 5), "canonical_dissemination");
  EXPECT_EQ(taken(asked, 96), "canonical_dissemination");
  asked.element_count = 1 << 16;
  EXPECT_EQ(taken(asked), "chunked_fold");
  asked.element_count = std::size_t{1} << 58;                     // the costs do not run over
  EXPECT_EQ(taken(asked, 1'000'000), "canonical_dissemination");  // too many ranks for the others
  EXPECT_EQ(taken(asked, 8), "chunked_fold");
  EXPECT_EQ(taken(asked, 2), "chunked_fold");
  EXPECT_EQ(taken(asked, 32), "chunked_fold");
  for (const std::uint32_t many : {33u, 63u, 64u, 200u, 1000u})
    EXPECT_EQ(taken(asked, many), "canonical_halving") << many << " ranks";
  const std::vector<Node> one_node(48);
  asked.node_of = one_node;
  EXPECT_EQ(taken(asked, 48), "chunked_fold") << "nobody is connected";
  asked.node_of = {};
  asked.partners_max = 9;  // of 11, or of 10
  EXPECT_EQ(taken(asked), "canonical_dissemination");
  EXPECT_EQ(taken(asked, 64), "canonical_dissemination");
  asked.partners_max = UINT32_MAX;
  asked.per_round_by_default = {3, 2};  // binds only who can follow it
  EXPECT_EQ(taken(asked), "chunked_fold");
  asked.per_round = {3, 2};  // which chunked_fold could not follow
  EXPECT_EQ(taken(asked), "canonical_dissemination");
}

/// A short message takes a port as long as longer ones do, which prices know: parts of 65 bytes,
/// where a port sends 145 in its gap, still pay off.
TEST(Selection, parts_may_be_shorter_than_what_a_port_sends_in_its_gap) {
  const CollectiveRequest request{
      .collective = Collective::allreduce,
      .element_count = 512,
      .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64)};
  const Choice choice = choose(request, {.rank_count = 63}, untuned(machine_preset("roce25")));
  EXPECT_EQ(choice.name(), "circulant");
  CollectiveRequest other = request;
  other.only = "recursive_multiplying with 1,1,1,1,1 a round";
  const Choice whole = choose(other, {.rank_count = 63}, untuned(machine_preset("roce25")));
  EXPECT_LT(choice.expected(SIZE_MAX), whole.expected(SIZE_MAX));
}

TEST(Selection, every_schedule_of_the_catalogue_is_taken_by_name_where_it_serves) {
  for (const Row& schedule : named_schedules()) {
    Asked asked = request(schedule.needs_idempotent ? BuiltIn::min : BuiltIn::sum,
                          schedule.needs_inverse ? ElementType::int64 : ElementType::float64,
                          agreement_of(schedule));
    asked.algorithm = schedule.algorithm;
    EXPECT_EQ(taken(asked), name_of(schedule.algorithm));
    EXPECT_EQ(taken(asked, 1), name_of(schedule.algorithm)) << "one rank";
  }
}

TEST(Selection, a_contexts_vector_is_one_of_all_ranks) {
  const std::vector<Node> blocks = nodes_of(3, 4);
  Asked asked = request(BuiltIn::sum, ElementType::int64, Agreement::identical);
  asked.node_of = blocks;
  asked.per_round_by_default = {3, 2};
  EXPECT_EQ(taken(asked), "two_partial_dissemination");
  EXPECT_EQ(
      barrier_plan(Rank{0}, 12, {.per_round_by_default = {3, 2}, .node_of = blocks}).algorithm,
      "dissemination");
  asked.across = Across::leader;
  EXPECT_EQ(taken(asked), "leader/two_partial_dissemination");
}

TEST(Selection, refuses_what_a_schedule_cannot_keep) {
  Asked asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
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
                 [] { (void)barrier_plan(Rank{0}, 4, {.algorithm = Algorithm::two_partial}); },
                 {"barrier", "two_partial_dissemination", "use automatic or dissemination"});
}

TEST(Selection, takes_the_contexts_vector_where_the_schedule_can) {
  Asked asked = request(BuiltIn::sum, ElementType::float64, Agreement::relaxed);
  const auto rounds = [&] { return allreduce_plan(Rank{0}, 12, asked).per_round; };
  asked.per_round_by_default = {5, 1};
  EXPECT_EQ(rounds(), (plan::PerRound{5, 1}));
  asked.per_round = {2, 3};
  EXPECT_EQ(rounds(), (plan::PerRound{2, 3}));
  asked.per_round = {};
  asked.algorithm = Algorithm::decomposition;  // one n for all rounds
  EXPECT_EQ(taken(asked), "decomposition");
  asked.per_round_by_default = {1, 1, 1, 1};
  EXPECT_EQ(allreduce_plan(Rank{0}, 12, asked).n, 1u);
}

TEST(Selection, refuses_an_enumerator_that_is_none) {
  Asked asked = request(BuiltIn::sum, ElementType::float64, Agreement::relaxed);
  asked.algorithm = static_cast<Algorithm>(99);
  expect_refused(ErrorCode::invalid_argument, [&] { (void)taken(asked); },
                 {"algorithm 99 is none"});
}

TEST(Selection, no_elements_are_no_reason_to_gather_all) {
  Asked asked = request(BuiltIn::sum, ElementType::float64, Agreement::reproducible);
  asked.element_count = 0;
  EXPECT_EQ(taken(asked, 65535), "canonical_dissemination");
}

TEST(Selection, refuses_vectors_that_do_not_serve) {
  Asked asked = request(BuiltIn::sum, ElementType::int64, Agreement::identical);
  asked.per_round = {3, 2};
  expect_refused(ErrorCode::invalid_argument, [&] { (void)taken(asked, 13); },
                 {"per_round 3,2", "13 ranks", "use 3,3"});
  asked.per_round = {3, 0};
  expect_refused(ErrorCode::invalid_argument, [&] { (void)taken(asked); },
                 {"per_round 3,0", "1 or more"});
  asked.per_round = {1'000'000};
  try {
    (void)taken(asked, 4'000'000'000);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {  // the vector that it names is taken
    const std::string text = error.what();
    asked.per_round = runtime::parse_per_round(text.substr(text.rfind(' ') + 1), "the remedy");
    EXPECT_EQ(taken(asked, 4'000'000'000), "two_partial_dissemination");
  }
  asked.per_round = {100'000};
  expect_refused(ErrorCode::invalid_argument, [&] { (void)taken(asked, 100'000); },
                 {"100000", "32768 messages", "smaller entries"});
}

TEST(Selection, names_the_nearest_n_that_can_be_adapted) {
  Asked asked = request(BuiltIn::sum, ElementType::float64, Agreement::relaxed);
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
  asked.per_round = {40'000};
  expect_refused(ErrorCode::invalid_argument, [&] { (void)taken(asked, 100'000); },
                 {"per_round 40000", "more than 32768 messages"});
}

TEST(Selection, refuses_an_inverse_that_is_not_there_and_vectors_that_mean_nothing) {
  Asked asked = request(BuiltIn::sum, ElementType::float64, Agreement::relaxed);
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
}

TEST(Selection, arrival_order_only_where_nobody_can_tell) {
  using enum Agreement;
  EXPECT_TRUE(takes_any_order(request(BuiltIn::sum, ElementType::float64, relaxed)));
  EXPECT_TRUE(takes_any_order(request(BuiltIn::sum, ElementType::int32, reproducible)));
  EXPECT_TRUE(takes_any_order(request(BuiltIn::max, ElementType::float32, identical)));
  EXPECT_FALSE(takes_any_order(request(BuiltIn::sum, ElementType::float64, identical)));
  EXPECT_FALSE(takes_any_order(request(BuiltIn::none, ElementType::float64, relaxed)));
}

TEST(Selection, a_choice_is_explained) {
  CollectiveRequest asked{
      .collective = Collective::alltoall, .element_count = 8, .reduction = {.element_bytes = 1}};
  EXPECT_EQ(choose(asked, {.rank_count = 96}, fdr).explanation(),
            "chosen: bruck_alltoall with 11 a round, 4.515 us\n"
            "  next: direct, 10.312 us\n"
            "  not node_alltoall: ranks do not share nodes");
  asked.element_count = 4096;
  EXPECT_EQ(choose(asked, {.rank_count = 96}, fdr).explanation(),
            "chosen: direct, the only one considered\n"
            "  not node_alltoall: blocks are too long to be copied twice more\n"
            "  not bruck_alltoall: blocks are too long to be copied on their way");
  asked = {.element_count = 1,
           .reduction = built_in_reduction(BuiltIn::sum, ElementType::int64),
           .algorithm = Algorithm::ring};
  EXPECT_EQ(choose(asked, {.rank_count = 4}, fdr).explanation(),
            "chosen: ring, which is asked for");
  asked.algorithm = Algorithm::automatic;
  const std::string text =
      choose(asked, {.rank_count = 8, .node_of = nodes_of(4, 2)}, fdr).explanation();
  EXPECT_TRUE(text.starts_with("chosen: leader, ")) << text;
  EXPECT_NE(text.find("\n  across: chosen: two_partial_dissemination with "), std::string::npos)
      << text;
  EXPECT_NE(text.find("\n    not dissemination: "), std::string::npos) << text;
}

TEST(Selection, the_explanation_names_variants_and_says_asked_for_only_of_what_the_user_asks) {
  CollectiveRequest asked{.element_count = 8192,
                          .reduction = built_in_reduction(BuiltIn::sum, ElementType::int64)};
  const auto text_for = [&](std::uint32_t nodes, std::uint32_t ranks_per_node) {
    return choose(
               asked,
               {.rank_count = nodes * ranks_per_node, .node_of = nodes_of(nodes, ranks_per_node)},
               fdr)
        .explanation();
  };
  const std::string text = text_for(2, 4);
  EXPECT_TRUE(text.starts_with("chosen: 4 lanes")) << text;
  EXPECT_EQ(text.find("which is asked for"), std::string::npos) << text;
  EXPECT_EQ(text.find("prices are those of"), std::string::npos) << text;
  for (const char* const part :
       {"\n  next: leader", "\n  next: chunked_fold, ", " with 1 a round in 3 turns, "})
    EXPECT_NE(text.find(part), std::string::npos) << part << text;
  asked.element_count = 2048;
  EXPECT_NE(text_for(2, 4).find("\n  across: chosen: "), std::string::npos) << text_for(2, 4);
  asked.element_count = 1 << 20;
  EXPECT_NE(text_for(16, 4).find("; prices are those of 4194304 bytes"), std::string::npos);
  asked.element_count = 8192;
  asked.algorithm = Algorithm::recursive_multiplying;
  asked.across = Across::lanes;
  EXPECT_NE(text_for(2, 4).find("across: chosen: recursive_multiplying with 1 a round, which is"),
            std::string::npos)
      << text_for(2, 4);
}

TEST(Request, operators_that_never_round_take_any_order_at_every_agreement) {
  for (const Agreement agreement :
       {Agreement::identical, Agreement::reproducible, Agreement::relaxed}) {
    CollectiveRequest request{.collective = Collective::allreduce, .agreement = agreement};
    request.reduction = {.element_bytes = 40, .properties = {.commutative = true}};
    EXPECT_EQ(takes_any_order(request), agreement == Agreement::relaxed);
    request.reduction.properties.exact = true;
    EXPECT_TRUE(takes_any_order(request));
    EXPECT_FALSE(order_shows_in_bits(request.reduction));
    request.reduction.properties.commutative = false;
    EXPECT_FALSE(takes_any_order(request));
  }
}

}  // namespace
}  // namespace tutti::tune
