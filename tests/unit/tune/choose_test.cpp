// Promise: a schedule asked for by name is taken or refused with the ones that serve; left alone,
// the rule takes one that keeps the promise.
#include "tune/choose.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <tuple>
#include <tutti/detail/names.hpp>
#include <tutti/status.hpp>
#include <utility>
#include <vector>

#include "asked.hpp"
#include "plan/blocks/blocks.hpp"
#include "runtime/settings.hpp"
#include "tune/chunks.hpp"
#include "tune/hierarchy.hpp"
#include "tune/plan_time.hpp"

namespace tutti::tune {
namespace {

double noise(double left, double right) {
  return left + 0.5 * right;
}

Asked request(BuiltIn op, ElementType type, Agreement agreement) {
  Asked asked;
  asked.element_count = 1;
  asked.reduction =
      op == BuiltIn::none ? elementwise<double, noise>({}) : built_in_reduction(op, type);
  asked.agreement = agreement;
  return asked;
}

std::string taken(const Asked& asked, std::uint32_t rank_count = 12) {
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

/// However large the payload, with room for a few more operations.
TEST(Selection, what_is_passed_on_fits_the_default_arena) {
  const auto memory = [](const plan::Plan& plan) {
    const std::size_t registers = plan.slot_count - plan.line_slot_count + plan.partial_count;
    return 2 * registers * (chunk_bytes_for(plan, false) + 64);
  };
  Asked asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
  asked.element_count = 64u << 20;
  for (const std::uint32_t ranks : {33u, 64u, 341u, 600u, 1024u, 4096u}) {
    const plan::Plan plan = allreduce_plan(Rank{0}, ranks, asked);
    EXPECT_EQ(plan.algorithm, "circulant") << ranks << " ranks";
    EXPECT_LE(memory(plan), 14u << 20) << ranks << " ranks";
    asked.agreement = Agreement::reproducible;
    const std::uint32_t fewer = std::min(ranks, 4095u);
    const plan::Plan along_tree = allreduce_plan(Rank{0}, fewer, asked);
    EXPECT_EQ(along_tree.algorithm, "canonical_halving") << ranks << " ranks";
    EXPECT_LE(memory(along_tree), 14u << 20) << ranks << " ranks";
    asked.agreement = Agreement::identical;
    const plan::Plan scatter =
        blocks_plan(Rank{0}, ranks, {.collective = Collective::scatter, .bytes = 64u << 20});
    EXPECT_EQ(scatter.algorithm, "tree_scatter") << ranks << " ranks";
    EXPECT_LE(memory(scatter), 14u << 20) << ranks << " ranks";
  }
  EXPECT_NE(taken(asked, 5000), "circulant");
  asked.agreement = Agreement::reproducible;
  EXPECT_EQ(taken(asked, 4096), "canonical_dissemination") << "halves would not fit";
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

/// `count` nodes of `size` ranks that follow each other, or are dealt out in turn.
std::vector<Node> nodes_of(std::uint32_t count, std::uint32_t size, bool is_cyclic = false) {
  std::vector<Node> node_of;
  for (std::uint32_t rank = 0; rank < count * size; ++rank)
    node_of.push_back(Node{is_cyclic ? rank % count : rank / size});
  return node_of;
}

TEST(Selection, combines_inside_nodes_first_where_that_keeps_the_promise) {
  const std::vector<Node> blocks = nodes_of(3, 4), dealt = nodes_of(3, 4, true);
  Asked asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
  asked.node_of = blocks;
  EXPECT_EQ(taken(asked), "leader/recursive_multiplying");
  asked.node_of = dealt;
  EXPECT_EQ(taken(asked), "leader/recursive_multiplying");
  asked.element_count = 1 << 11;
  EXPECT_EQ(taken(asked), "lanes/chunked_fold");
  asked.agreement = Agreement::relaxed;
  EXPECT_EQ(taken(asked), "lanes/chunked_fold");
  asked.element_count = 1 << 16;
  EXPECT_EQ(taken(asked), "lanes/turns") << "the part of a lane is worth cutting again";
  asked.across = Across::flat;
  EXPECT_EQ(taken(asked), "chunked_fold");
  asked.across = Across::leader;
  asked.per_round = {2};  // three nodes
  EXPECT_EQ(taken(asked), "leader/two_partial_dissemination");
  asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
  asked.node_of = blocks;
  asked.per_round = {3, 2};  // covers all ranks
  EXPECT_EQ(taken(asked), "canonical_dissemination");
  asked.per_round = {};
  asked.agreement = Agreement::reproducible;
  EXPECT_EQ(taken(asked).find('/'), std::string::npos);
  Asked ordered = request(BuiltIn::none, ElementType::other, Agreement::relaxed);
  ordered.node_of = blocks;
  EXPECT_EQ(taken(ordered), "leader/two_partial_dissemination");
  ordered.node_of = dealt;
  EXPECT_EQ(taken(ordered), "two_partial_dissemination");
}

TEST(Selection, lanes_are_worth_their_messages) {
  const std::vector<Node> blocks = nodes_of(2, 16);
  Asked asked = request(BuiltIn::sum, ElementType::int64, Agreement::identical);
  asked.node_of = blocks;
  const auto lanes = [&](std::size_t element_count) {
    asked.element_count = element_count;
    const plan::Plan plan = allreduce_plan(Rank{0}, 32, asked);
    return plan.algorithm == "lanes/two_partial_dissemination" ? plan.parts : 1;
  };
  EXPECT_EQ(lanes(1), 1);
  EXPECT_LT(lanes(64), lanes(2048)) << "few lanes have fewer messages";
  EXPECT_EQ(lanes(2048), 16);
  // Where ranks share CPUs, by a rule: with 512 bytes a lane none, with 1 KiB all.
  const Topology shared{.rank_count = 32, .node_of = blocks, .shares_cpus = true};
  const auto name = [&] { return plan_for(asked, shared, Rank{0}, fdr).algorithm; };
  asked.element_count = 512;
  EXPECT_EQ(name(), "leader/two_partial_dissemination");
  asked.element_count = 1024;
  EXPECT_EQ(name(), "two_partial_dissemination");
  asked.element_count = 2048;
  EXPECT_EQ(name(), "lanes/two_partial_dissemination");
  // A node of one rank leaves one lane.
  std::vector<Node> uneven = blocks;
  uneven.push_back(Node{2});
  asked.node_of = uneven;
  EXPECT_EQ(taken(asked, 33), "leader/chunked_fold");
  asked.element_count = 1;
  EXPECT_EQ(taken(asked, 33).find("lanes"), std::string::npos);
  // No lane without an element.
  asked.node_of = blocks;
  asked.element_count = 3;
  asked.across = Across::lanes;
  EXPECT_EQ(allreduce_plan(Rank{0}, 32, asked).parts, 3);
}

TEST(Selection, ranks_of_a_node_that_share_cpus_wait_for_few_turns) {
  CollectiveRequest asked{
      .collective = Collective::allreduce,
      .reduction = {.element_bytes = 1, .properties = {.commutative = true, .exact = true}}};
  const auto chosen = [&](std::uint32_t ranks, bool shares_cpus, std::size_t bytes) {
    asked.element_count = bytes;
    const Topology topology{
        .rank_count = ranks, .node_of = nodes_of(1, ranks), .shares_cpus = shares_cpus};
    return plan_for(asked, topology, Rank{0}, fdr);
  };
  EXPECT_EQ(chosen(8, true, 8).per_round, plan::PerRound{7});
  EXPECT_EQ(chosen(8, true, 4096).per_round, plan::PerRound{7});
  EXPECT_GT(chosen(8, false, 4096).per_round.size(), 1u);
  EXPECT_TRUE(chosen(8, false, 8192).algorithm.starts_with("lanes/"));
  EXPECT_FALSE(chosen(8, true, 16383).algorithm.starts_with("lanes/"));
  EXPECT_TRUE(chosen(8, true, 16384).algorithm.starts_with("lanes/"));

  asked.collective = Collective::reduce;
  asked.root = Rank{0};
  EXPECT_EQ(chosen(8, true, 8).algorithm, "flat_tree");
  EXPECT_EQ(chosen(8, true, 16384).algorithm, "flat_tree");
  EXPECT_EQ(chosen(8, true, 16385).algorithm, "binomial_tree");
  EXPECT_EQ(chosen(3, true, 8).algorithm, "binomial_tree");
  EXPECT_EQ(chosen(17, true, 8).algorithm, "binomial_tree");
  EXPECT_NE(chosen(8, false, 8).algorithm, "flat_tree");
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

TEST(Selection, refuses_nodes_of_more_ranks_than_are_slots) {
  const std::vector<Node> large = nodes_of(2, 20'000);
  Asked asked = request(BuiltIn::sum, ElementType::int64, Agreement::identical);
  asked.node_of = large;
  EXPECT_EQ(taken(asked, 40'000), "two_partial_dissemination");
  EXPECT_EQ(barrier_plan(Rank{0}, 40'000, {.node_of = large}).algorithm, "dissemination");
  asked.across = Across::leader;
  expect_refused(ErrorCode::unsupported, [&] { (void)taken(asked, 40'000); },
                 {"across leader", "16384", "use flat"});
  expect_refused(
      ErrorCode::unsupported,
      [&] { (void)barrier_plan(Rank{0}, 40'000, {.across = Across::leader, .node_of = large}); },
      {"barrier", "across leader", "16384"});
  asked.across = Across{9};
  expect_refused(ErrorCode::invalid_argument, [&] { (void)taken(asked, 40'000); }, {"across 9"});
  expect_refused(ErrorCode::invalid_argument,
                 [] { (void)barrier_plan(Rank{0}, 4, {.across = Across{9}}); }, {"across 9"});
}

TEST(Selection, a_single_node_has_lanes_for_large_payloads_and_no_leader) {
  const std::vector<Node> eight = nodes_of(1, 8);
  Asked asked = request(BuiltIn::sum, ElementType::int64, Agreement::identical);
  asked.node_of = eight;
  EXPECT_EQ(taken(asked, 8), "two_partial_dissemination");
  asked.element_count = 1 << 14;
  EXPECT_EQ(taken(asked, 8), "lanes/two_partial_dissemination");
  EXPECT_EQ(barrier_plan(Rank{0}, 8, {.node_of = eight}).algorithm, "dissemination");
  EXPECT_EQ(barrier_plan(Rank{0}, 8, {.across = Across::leader, .node_of = eight}).algorithm,
            "leader/dissemination");
  const std::vector<Node> two = nodes_of(2, 4);
  EXPECT_EQ(barrier_plan(Rank{0}, 8, {.node_of = two}).algorithm, "leader/dissemination");
  EXPECT_EQ(barrier_plan(Rank{0}, 8, {.across = Across::flat, .node_of = two}).algorithm,
            "dissemination");
  EXPECT_EQ(barrier_plan(Rank{0}, 8, {.per_round = {7}, .node_of = two}).algorithm,
            "dissemination");
}

TEST(Selection, domains_meet_first_in_barriers_and_small_allreduces) {
  const std::vector<Node> node = nodes_of(1, 8), two = nodes_of(2, 4), domains = nodes_of(4, 2);
  const auto barrier = [](const BarrierAsked& asked) {
    return barrier_plan(Rank{0}, 8, asked).algorithm;
  };
  EXPECT_EQ(barrier({.node_of = node, .domain_of = domains}), "domains/dissemination");
  EXPECT_EQ(barrier({.node_of = two, .domain_of = domains}), "domains/leader/dissemination");
  EXPECT_EQ(barrier({.node_of = two, .domain_of = two}), "leader/dissemination") << "undivided";
  EXPECT_EQ(barrier({.node_of = node, .domain_of = node}), "dissemination");
  EXPECT_EQ(barrier({.across = Across::flat, .node_of = node, .domain_of = domains}),
            "dissemination");
  EXPECT_EQ(barrier({.across = Across::leader, .node_of = two, .domain_of = domains}),
            "leader/dissemination");
  EXPECT_EQ(barrier({.per_round = {7}, .node_of = node, .domain_of = domains}), "dissemination");
  Asked asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
  asked.node_of = node;
  asked.domain_of = domains;
  EXPECT_EQ(taken(asked, 8), "domains/recursive_multiplying");
  asked.reads_in_place = true;
  asked.domain_of = two;
  EXPECT_EQ(taken(asked, 8), "domains/recursive_multiplying") << "two domains are not two ranks";
  asked.reads_in_place = false;
  asked.domain_of = domains;
  asked.node_of = two;
  EXPECT_EQ(taken(asked, 8), "domains/leader/recursive_multiplying");
  asked.element_count = 1 << 16;
  EXPECT_EQ(taken(asked, 8), "lanes/turns") << "large";
  asked.element_count = 1;
  asked.agreement = Agreement::reproducible;
  EXPECT_EQ(taken(asked, 8).find('/'), std::string::npos) << "bits depend on no shape";
  // In rank order only where the ranks of a domain follow each other.
  const std::vector<Node> dealt = nodes_of(4, 2, true);
  asked = request(BuiltIn::none, ElementType::other, Agreement::identical);
  asked.node_of = node;
  asked.domain_of = dealt;
  EXPECT_EQ(taken(asked, 8).find("domains"), std::string::npos);
  asked.domain_of = domains;
  EXPECT_EQ(taken(asked, 8), "domains/recursive_multiplying");
}

TEST(Selection, trees_over_nodes_are_fibonacci_unless_messages_per_round_are_given) {
  const auto broadcast = [](BroadcastAsked asked) {
    asked.bytes = asked.bytes == 0 ? 1024 : asked.bytes;
    return broadcast_plan(Rank{0}, 24, asked).algorithm;
  };
  const std::vector<Node> two = nodes_of(12, 2), one = nodes_of(1, 24);
  EXPECT_EQ(broadcast({}), "fibonacci_tree");
  EXPECT_EQ(broadcast({.node_of = two}), "fibonacci_tree");
  EXPECT_EQ(broadcast({.bytes = 256}), "fibonacci_tree");
  EXPECT_EQ(broadcast({.bytes = 8, .tree = Tree::fibonacci}), "fibonacci_tree");
  EXPECT_EQ(broadcast({.per_round_by_default = {4, 4}}), "knomial_tree");
  EXPECT_EQ(broadcast({.tree = Tree::knomial}), "knomial_tree");
  EXPECT_EQ(broadcast({.node_of = one}), "binomial_tree") << "more than a flat one is for";
  EXPECT_EQ(broadcast({.node_of = one, .tree = Tree::fibonacci}), "fibonacci_tree");
  EXPECT_EQ(broadcast({.node_of = two, .tree = Tree::binomial}), "binomial_tree");
  EXPECT_EQ(broadcast({.node_of = one, .reads_in_place = true}), "single_copy");
  EXPECT_EQ(broadcast({.node_of = one, .reads_in_place = true, .tree = Tree::fibonacci}),
            "fibonacci_tree");
  // Larger payloads keep a port busy for longer: fewer messages fit into the time of one.
  const auto children_of_root = [](std::size_t bytes) {
    return broadcast_plan(Rank{0}, 64, {.bytes = bytes, .tree = Tree::fibonacci}).per_round[0];
  };
  EXPECT_GT(children_of_root(8), children_of_root(2048));
  EXPECT_GT(children_of_root(2048), children_of_root(65'536));
  EXPECT_EQ(children_of_root(SIZE_MAX), 6u) << "binomial";
  Asked asked = request(BuiltIn::sum, ElementType::float64, Agreement::reproducible);
  asked.collective = Collective::reduce;
  asked.root = Rank{0};
  const auto reduce = [&] { return allreduce_plan(Rank{0}, 24, asked).algorithm; };
  EXPECT_EQ(reduce(), "binomial_tree") << "the canonical one";
  asked.tree = Tree::knomial;
  expect_refused(ErrorCode::unsupported, [&] { (void)reduce(); },
                 {"tree knomial", "reproducible", "use automatic or binomial"});
  asked.agreement = Agreement::identical;
  EXPECT_EQ(reduce(), "knomial_tree");
  asked.tree = Tree::automatic;
  EXPECT_EQ(reduce(), "fibonacci_tree");
  asked.tree = Tree{77};
  expect_refused(ErrorCode::invalid_argument, [&] { (void)reduce(); }, {"tree 77", "tutti::Tree"});
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

TEST(Selection, chunks_hold_at_most_what_is_asked_for_and_an_element_of_each_part) {
  EXPECT_EQ(chunk_count(0, 8, 1, 64), 1u);
  EXPECT_EQ(chunk_count(0, 0, 1, 64), 1u);  // a barrier
  EXPECT_EQ(chunk_count(8, 8, 1, 64), 1u);
  EXPECT_EQ(chunk_count(9, 8, 1, 64), 2u);
  EXPECT_EQ(chunk_count(16, 8, 2, 64), 1u);
  EXPECT_EQ(chunk_count(17, 8, 2, 64), 2u);
  EXPECT_EQ(chunk_count(3, 1000, 1, 64), 3u);
  EXPECT_EQ(chunk_count(3, 1000, 2, 64), 1u);
  EXPECT_EQ(chunk_count(2, 1000, 3, 64), 1u);
}

TEST(Selection, blocks_in_a_single_node_go_in_longer_chunks_if_their_partials_stay_small) {
  using plan::Transport;
  for (std::uint32_t ranks = 2; ranks <= 64; ++ranks)
    for (const Rank self : {Rank{0}, Rank{ranks - 1}})
      for (const plan::Plan& plan :
           {plan::direct_allgather(self, ranks, Transport::copied),
            plan::direct_alltoall(self, ranks, Transport::copied),
            plan::direct_gather(self, ranks, Rank{0}, Transport::copied),
            plan::direct_scatter(self, ranks, Rank{0}, Transport::copied)}) {
        const std::size_t chunk = chunk_bytes_in_one_node(plan),
                          usual = chunk_bytes_for(plan, true);
        if (ranks == 2) {
          EXPECT_EQ(chunk, 256u << 10);
        }
        EXPECT_GE(chunk, usual);
        if (chunk > usual) {
          EXPECT_LE(2 * chunk * plan.partial_count, 1u << 20);
        }
        EXPECT_EQ(chunk_bytes_in_one_node(plan, 4096), 4096u) << "as asked";
      }
  const plan::Plan read = plan::direct_allgather(Rank{0}, 2, Transport::by_reference);
  EXPECT_EQ(chunk_bytes_in_one_node(read), chunk_bytes_for(read, true));
  const Asked asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
  const plan::Plan sum = allreduce_plan(Rank{0}, 2, asked);
  EXPECT_EQ(chunk_bytes_in_one_node(sum), 64u << 10);
}

TEST(Selection, chunks_stay_in_the_cache_unless_the_users_buffers_hold_them) {
  Asked asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
  asked.element_count = 1u << 20;
  const auto chunk_bytes = [&](std::uint32_t rank_count, bool shares_nodes) {
    return chunk_bytes_for(allreduce_plan(Rank{0}, rank_count, asked), shares_nodes);
  };
  EXPECT_EQ(chunk_bytes(2, false), 128u << 10);
  EXPECT_EQ(chunk_bytes(2, true), 64u << 10);
  EXPECT_LT(chunk_bytes(32, false), 64u << 10);  // 62 slots
  asked.algorithm = Algorithm::recursive_multiplying;
  EXPECT_EQ(chunk_bytes(2, false), 128u << 10);
  asked.algorithm = Algorithm::chunked_fold;
  asked.zero_copy = true;
  EXPECT_EQ(chunk_bytes(2, false), 1u << 20);
  const plan::Plan chain =
      broadcast_plan(Rank{0}, 8, {.bytes = 8u << 20, .per_round_by_default = {}, .node_of = {}});
  ASSERT_TRUE(chain.is_pipeline);
  EXPECT_EQ(chunk_bytes_for(chain, false), 8u << 10);
  EXPECT_EQ(chunk_bytes_for(chain, false, 1000), 1000u);
  EXPECT_EQ(chunk_bytes_for(chain, false, 64u << 10), 64u << 10);
  EXPECT_LT(chunk_bytes_for(chain, false, 1u << 30), 4u << 20);  // the arena's share
}

TEST(Selection, registered_buffers_are_written_by_peers_where_that_is_worth_it) {
  const auto may_be = [](Collective collective, const std::vector<Node>& nodes, std::size_t bytes,
                         const plan::PerRound& per_round = {}) {
    return may_be_zero_copy(
        {.collective = collective,
         .element_count = bytes,
         .reduction = {.element_bytes = 1},
         .per_round_by_default = per_round},
        {.rank_count = static_cast<std::uint32_t>(nodes.size()), .node_of = nodes});
  };
  for (const auto& [collective, least] : {std::pair{Collective::broadcast, 256u << 10},
                                          std::pair{Collective::allgather, 64u << 10}}) {
    for (const std::uint32_t ranks_per_node : {1u, 2u}) {
      EXPECT_TRUE(may_be(collective, nodes_of(2, ranks_per_node), least));
      EXPECT_FALSE(may_be(collective, nodes_of(2, ranks_per_node), least - 1));
      EXPECT_FALSE(may_be(collective, nodes_of(2, ranks_per_node), std::size_t{1} << 40));
      EXPECT_FALSE(may_be(collective, nodes_of(2, ranks_per_node), least, {2, 2}));
    }
    EXPECT_FALSE(may_be(collective, nodes_of(1, 4), 1u << 20)) << "one node";
  }
  EXPECT_TRUE(may_be(Collective::allgather, nodes_of(9, 2), 1u << 20));
  EXPECT_FALSE(may_be(Collective::allgather, nodes_of(10, 2), 1u << 20));
  EXPECT_TRUE(may_be(Collective::broadcast, nodes_of(10, 2), 1u << 20));
  EXPECT_FALSE(may_be(Collective::reduce, nodes_of(2, 2), 1u << 20));
  for (const std::size_t bytes : {(1u << 20) - 1, 1u << 20}) {
    const CollectiveRequest asked{.collective = Collective::broadcast,
                                  .element_count = bytes,
                                  .reduction = {.element_bytes = 1}};
    const Topology by_turns{.rank_count = 4, .node_of = nodes_of(2, 2), .shares_cpus = true};
    EXPECT_EQ(may_be_zero_copy(asked, by_turns), bytes == 1u << 20);
  }
}

TEST(Selection, ranks_that_share_nodes_combine_in_segments_where_that_is_worth_it) {
  CollectiveRequest asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
  const auto may_be = [&](std::vector<Node> nodes, std::size_t bytes = 1u << 20,
                          std::uint32_t partners_max = UINT32_MAX) {
    asked.element_count = bytes / 8;
    asked.partners_max = partners_max;
    return may_be_zero_copy(
        asked, {.rank_count = static_cast<std::uint32_t>(nodes.size()), .node_of = nodes});
  };
  EXPECT_TRUE(may_be(nodes_of(1, 2)));
  EXPECT_FALSE(may_be(nodes_of(1, 2), (1u << 20) - 8)) << "small";
  EXPECT_TRUE(may_be(nodes_of(1, 32)));
  EXPECT_TRUE(may_be(nodes_of(1, 2), 1u << 30));
  EXPECT_FALSE(may_be(nodes_of(1, 2), std::size_t{1} << 40)) << "parts longer than a message";
  EXPECT_TRUE(may_be(nodes_of(2, 2)));
  EXPECT_FALSE(may_be(nodes_of(2, 2), 9u << 20)) << "no room for what goes across";
  EXPECT_TRUE(may_be(nodes_of(2, 8), 9u << 20));
  EXPECT_FALSE(may_be(nodes_of(2, 8))) << "too few pieces";
  EXPECT_TRUE(may_be(nodes_of(9, 2), 4u << 20));
  EXPECT_FALSE(may_be(nodes_of(9, 2), 4u << 20, 7)) << "connections";
  EXPECT_FALSE(may_be(nodes_of(10, 2), 4u << 20)) << "many nodes";
  EXPECT_TRUE(may_be({Node{0}, Node{0}, Node{1}}));
  EXPECT_FALSE(may_be({Node{0}, Node{0}, Node{0}, Node{1}})) << "one lane for three ranks";
  asked.across = Across::lanes;
  EXPECT_FALSE(may_be(nodes_of(1, 2)));
  asked.across = Across::automatic;
  asked.algorithm = Algorithm::ring;
  EXPECT_FALSE(may_be(nodes_of(1, 2)));
  asked.algorithm = Algorithm::automatic;
  asked.agreement = Agreement::reproducible;
  EXPECT_FALSE(may_be(nodes_of(1, 2)));
  asked.reduction = request(BuiltIn::sum, ElementType::int64, Agreement::reproducible).reduction;
  EXPECT_TRUE(may_be(nodes_of(1, 2)));
  EXPECT_FALSE(may_be_zero_copy(
      asked, {.rank_count = 2, .node_of = nodes_of(1, 2), .caches_are_apart = true}));
  asked.reduction.properties.commutative = false;
  EXPECT_FALSE(may_be(nodes_of(1, 2)));
}

// Only where nothing else stands in the way.
TEST(Selection, caches_apart_are_told_of_where_they_decide) {
  const auto why = [](std::size_t bytes, bool caches_are_apart) {
    CollectiveRequest asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
    asked.element_count = bytes / 8;
    const Topology topology{
        .rank_count = 2, .node_of = nodes_of(1, 2), .caches_are_apart = caches_are_apart};
    EXPECT_EQ(choose(asked, topology, fdr).explanation().find("cache"), std::string::npos)
        << "nobody has said that buffers lie in segments";
    return why_copied_from_segments({asked, topology, fdr});
  };
  EXPECT_NE(why(1u << 20, true).find("CPUs of a node share no cache"), std::string::npos);
  EXPECT_EQ(why(1u << 20, false), "");
  EXPECT_EQ(why((1u << 20) - 8, true), "");
}

TEST(Selection, ranks_that_share_nodes_have_one_chunk_in_segments_and_nothing_else_to_choose) {
  for (const auto& [node_count, ranks_per_node] :
       {std::pair{1u, 2u}, {1u, 5u}, {2u, 2u}, {3u, 4u}}) {
    const std::vector<Node> nodes = nodes_of(node_count, ranks_per_node);
    CollectiveRequest asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
    asked.element_count = (4u << 20) / 8;
    const Topology topology{.rank_count = static_cast<std::uint32_t>(nodes.size()),
                            .node_of = nodes};
    EXPECT_NE(choose(asked, topology, fdr).row().name, std::string("lanes_zero_copy"));
    asked.zero_copy = true;
    const Choice choice = choose(asked, topology, fdr);
    EXPECT_EQ(choice.name(), "lanes_zero_copy");
    const plan::Plan plan = choice.first_plan();
    for (const std::size_t chunk_bytes : {std::size_t{0}, std::size_t{4096}})
      EXPECT_EQ(
          chunk_count(asked.element_count, 8, plan.parts, chunk_bytes_for(plan, true, chunk_bytes)),
          1u);
    // Both of the network and of the memory, the price counts what the recurrence counts.
    const plan::Picoseconds time =
        plan_time({asked, topology, fdr}, [&](Rank self) { return choice.plan(self); });
    EXPECT_LT(time, choice.cost() * 5 / 4) << node_count;
    EXPECT_GT(time, choice.cost() / 2) << node_count;
  }
}

TEST(Selection, a_reduce_in_segments_is_cut_where_it_was_measured_to_be_faster) {
  CollectiveRequest asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
  asked.collective = Collective::reduce;
  asked.root = Rank{0};
  asked.element_count = (1u << 20) / 8;
  const auto taken = [&](std::uint32_t node_count, std::uint32_t ranks, bool shares_cpus = false) {
    const Topology topology{.rank_count = node_count * ranks,
                            .node_of = nodes_of(node_count, ranks),
                            .shares_cpus = shares_cpus};
    EXPECT_NE(choose(asked, topology, fdr).name(), "lanes_zero_copy");
    CollectiveRequest in_segments = asked;
    in_segments.zero_copy = true;
    const bool is_taken = choose(in_segments, topology, fdr).name() == "lanes_zero_copy";
    EXPECT_EQ(is_taken, may_be_zero_copy(asked, topology));
    return is_taken;
  };
  EXPECT_TRUE(taken(1, 2));
  EXPECT_FALSE(taken(1, 2, true));
  EXPECT_FALSE(taken(1, 4));
  EXPECT_FALSE(taken(1, 3, true));
  EXPECT_FALSE(taken(1, 9, true));
  EXPECT_FALSE(taken(2, 4, true));
  EXPECT_FALSE(taken(2, 1));
  --asked.element_count;
  EXPECT_FALSE(taken(1, 2));
  asked.element_count = (512u << 10) / 8;
  EXPECT_TRUE(taken(1, 4, true));
  EXPECT_TRUE(taken(1, 8, true));
  --asked.element_count;
  EXPECT_FALSE(taken(1, 4, true));
  asked.element_count = (8u << 20) / 8;
  EXPECT_TRUE(taken(1, 2));
  const plan::Plan plan = plan::zero_copy_reduce(Rank{0}, {.rank_count = 2, .turns = 8});
  EXPECT_EQ(chunk_count(asked.element_count, 8, plan.parts, chunk_bytes_for(plan, true)), 8u);
  EXPECT_EQ(chunk_bytes_for(plan, true, 4096), 4096u);
  EXPECT_EQ(chunk_bytes_for(plan, true, 1u << 20), chunk_bytes_of_reduce);
  const CollectiveRequest of_doubles = asked;
  for (const std::size_t element_bytes : {chunk_bytes_of_reduce, chunk_bytes_of_reduce + 1}) {
    asked.reduction.element_bytes = static_cast<std::uint32_t>(element_bytes);
    asked.element_count = (8u << 20) / chunk_bytes_of_reduce;
    EXPECT_EQ(taken(1, 2), element_bytes == chunk_bytes_of_reduce);
    EXPECT_EQ(taken(1, 8, true), element_bytes == chunk_bytes_of_reduce);
  }
  asked = of_doubles;
  for (const auto change :
       {+[](CollectiveRequest& one) { one.tree = Tree::knomial; },
        +[](CollectiveRequest& one) { one.participant_count = 1; },
        +[](CollectiveRequest& one) { one.per_round_by_default = {2}; },
        +[](CollectiveRequest& one) { one.agreement = Agreement::reproducible; },
        +[](CollectiveRequest& one) { one.reduction.properties.commutative = false; }}) {
    const CollectiveRequest before = asked;
    change(asked);
    EXPECT_FALSE(may_be_zero_copy(asked, {.rank_count = 2, .node_of = nodes_of(1, 2)}));
    asked = before;
  }
}

/// A piece is one message of whole elements.
TEST(Selection, zero_copy_is_not_taken_where_a_piece_would_be_longer_than_a_message) {
  const auto may_be = [](Collective collective, std::size_t count, std::size_t element_bytes) {
    return may_be_zero_copy(
        {.collective = collective,
         .element_count = count,
         .reduction = {.element_bytes = static_cast<std::uint32_t>(element_bytes)}},
        {.rank_count = 4, .node_of = nodes_of(2, 2)});
  };
  EXPECT_TRUE(may_be(Collective::broadcast, 5'592'400, 24));
  EXPECT_FALSE(may_be(Collective::broadcast, 5'592'405, 24));
  EXPECT_FALSE(may_be(Collective::broadcast, 44'739'242, 3));
  EXPECT_FALSE(may_be(Collective::broadcast, 42, 3u << 20));
  EXPECT_FALSE(may_be(Collective::broadcast, 1, 9u << 20));
  EXPECT_TRUE(may_be(Collective::allgather, 16, 3u << 20));
  EXPECT_FALSE(may_be(Collective::allgather, 20, 3u << 20));
}

TEST(Selection, registers_of_lanes_in_turns_keep_to_their_budget) {
  for (const auto& [node_count, ranks_per_node, bytes] :
       {std::tuple{128u, 16u, 4u << 20}, std::tuple{64u, 32u, 8u << 20},
        std::tuple{32u, 128u, 8u << 20}, std::tuple{16u, 8u, 1u << 20}}) {
    const std::vector<Node> nodes = nodes_of(node_count, ranks_per_node);
    Asked asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
    asked.element_count = bytes / sizeof(double);
    asked.node_of = nodes;
    const plan::Plan plan =
        allreduce_plan(Rank{0}, static_cast<std::uint32_t>(nodes.size()), asked);
    const std::size_t chunk = chunk_bytes_for(plan, true);
    const std::size_t payloads = payloads_of_registers(plan, plan.partials_max);
    const std::size_t registers = std::size_t{plan.slot_count} + plan.partials_max;
    if (plan.algorithm == "lanes/turns") {
      EXPECT_LE(2 * (payloads * chunk + registers * 2 * 64), plan_registers_bytes) << nodes.size();
    }
    if (nodes.size() == 128) {
      EXPECT_EQ(plan.algorithm, "lanes/turns");
    }
  }
}

TEST(Selection, zero_copy_plans_have_no_registers_and_one_chunk) {
  for (const Collective collective : {Collective::broadcast, Collective::allgather})
    for (const std::uint32_t node_count : {2u, 4u, 9u})
      for (const std::uint32_t ranks_per_node : {1u, 3u, 20u})
        for (const std::size_t bytes : {64u << 10, 1u << 20, 64u << 20}) {
          const std::vector<Node> nodes = nodes_of(node_count, ranks_per_node);
          const CollectiveRequest asked{.collective = collective,
                                        .element_count = bytes,
                                        .reduction = {.element_bytes = 1},
                                        .root = Rank{0},
                                        .zero_copy = true};
          const plan::Plan plan = plan_for(
              asked, {.rank_count = static_cast<std::uint32_t>(nodes.size()), .node_of = nodes},
              Rank{0}, fdr);
          EXPECT_TRUE(plan.algorithm.ends_with("_zero_copy")) << plan.algorithm;
          EXPECT_TRUE(has_no_registers(plan));
          const std::size_t part = chunk_bytes_for(plan, ranks_per_node > 1);
          EXPECT_EQ(chunk_bytes_for(plan, ranks_per_node > 1, 4096), part) << "asked for chunks";
          const bool is_broadcast = collective == Collective::broadcast;
          const std::size_t pieces = is_broadcast ? plan.parts : plan.parts / nodes.size();
          EXPECT_EQ(chunk_count(bytes, 1, pieces, part), 1u);
          EXPECT_LE(plan.incoming_max, 12u);
        }
}

TEST(Selection, a_root_is_not_connected_with_many_ranks_of_other_nodes) {
  const auto taken = [](std::uint32_t count, std::uint32_t size, std::size_t bytes,
                        plan::Transport transport = plan::Transport::copied) {
    const std::vector<Node> nodes = nodes_of(count, size);
    BlocksAsked asked{.collective = Collective::gather,
                      .bytes = bytes,
                      .node_of = nodes,
                      .transport = transport,
                      .root = Rank{1}};
    const std::string gather = blocks_plan(Rank{0}, count * size, asked).algorithm;
    asked.collective = Collective::scatter;
    const std::string scatter = blocks_plan(Rank{0}, count * size, asked).algorithm;
    EXPECT_EQ(gather.substr(0, gather.find("gather")), scatter.substr(0, scatter.find("scatter")));
    return gather;
  };
  EXPECT_EQ(taken(32, 1, 8), "direct");
  EXPECT_EQ(taken(33, 1, 8), "tree_gather");
  EXPECT_EQ(taken(33, 1, 1u << 20), "tree_gather");
  EXPECT_EQ(taken(1, 100, 5000), "direct");  // of its node it is connected with none
  EXPECT_EQ(taken(1, 100, 5000, plan::Transport::by_reference), "single_copy");
  EXPECT_EQ(taken(2, 31, 5000), "direct");
  EXPECT_EQ(taken(2, 32, 5000), "tree_gather");
  EXPECT_EQ(taken(2, 32, 8), "node_gather");
  EXPECT_EQ(taken(32, 8, 8), "node_gather");
  EXPECT_EQ(taken(33, 8, 8), "tree_gather");
  const BlocksAsked nodes_of_one{.collective = Collective::gather, .bytes = 8, .root = Rank{39}};
  EXPECT_EQ(blocks_plan(Rank{0}, 40, nodes_of_one).algorithm, "tree_gather");
  EXPECT_EQ(
      blocks_plan(Rank{0}, 32, {.collective = Collective::scatter, .root = Rank{3}}).algorithm,
      "direct");
}

TEST(Selection, the_shared_ring_is_a_flow_and_refuses_what_it_cannot_do) {
  Asked asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
  const std::vector<Node> nodes = {Node{0}, Node{0}, Node{1}, Node{1}, Node{1}};
  asked.node_of = nodes;
  asked.algorithm = Algorithm::shared_ring;
  EXPECT_TRUE(choose(asked, {.rank_count = 5, .node_of = nodes}, fdr).row().is_flow);
  const auto partners = [&](std::uint32_t rank_count = 5) {
    return allreduce_plan(Rank{0}, rank_count, asked);
  };
  EXPECT_EQ(partners().algorithm, "shared_ring");
  EXPECT_EQ(partners().parts, 6);  // two blocks, of a sub-block for each rank of the larger node
  asked.across = Across::leader;
  expect_refused(ErrorCode::unsupported, [&] { (void)partners(); },
                 {"across leader", "shared_ring", "leave across out"});
  asked.across = Across::flat;
  EXPECT_EQ(partners().algorithm, "shared_ring");
  asked.per_round = {2};
  expect_refused(ErrorCode::invalid_argument, [&] { (void)partners(); },
                 {"per_round 2", "shared_ring", "leave per_round out"});
  asked.per_round = {};
  asked.agreement = Agreement::reproducible;
  expect_refused(ErrorCode::unsupported, [&] { (void)partners(); },
                 {"shared_ring promises no more than identical", "use automatic, canonical"});
  asked.reduction = built_in_reduction(BuiltIn::sum, ElementType::int64);
  EXPECT_EQ(partners().algorithm, "shared_ring");  // integers agree anyway
  asked.reduction = request(BuiltIn::none, ElementType::float64, Agreement::identical).reduction;
  expect_refused(ErrorCode::unsupported, [&] { (void)partners(); },
                 {"shared_ring does not keep rank order", "does not commute"});
  asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
  asked.algorithm = Algorithm::shared_ring;
  EXPECT_EQ(partners(16384).parts, 16384);
  expect_refused(ErrorCode::unsupported, [&] { (void)partners(16385); },
                 {"at most 32768", "16385 nodes", "use ring"});
  asked.element_count = 1u << 20;  // 4 sub-blocks are wanted
  EXPECT_EQ(partners(98).parts, 98 * 4);
  EXPECT_EQ(partners(8192).parts, 8192 * 2);
}

/// An allgather or reduce_scatter of 1 MiB in all, of 8 ranks.
CollectiveRequest half_of_a_ring(Collective collective) {
  CollectiveRequest asked{.collective = collective, .algorithm = Algorithm::shared_ring};
  if (collective == Collective::reduce_scatter) {
    asked.reduction = built_in_reduction(BuiltIn::sum, ElementType::float64);
    asked.element_count = (1u << 20) / 8;
  } else {
    asked.reduction.element_bytes = 1;
    asked.element_count = (1u << 20) / 8;
  }
  return asked;
}
constexpr Collective halves[] = {Collective::allgather, Collective::reduce_scatter};

TEST(Selection, either_half_of_the_shared_ring_can_be_asked_for) {
  const std::vector<Node> nodes = {Node{0}, Node{0}, Node{1}, Node{1}, Node{1}, Node{2}};
  for (const Collective collective : halves) {
    CollectiveRequest asked = half_of_a_ring(collective);
    const Choice choice = choose(asked, {.rank_count = 8}, fdr);
    EXPECT_TRUE(choice.row().is_flow);
    EXPECT_EQ(choice.plan(Rank{1}).algorithm, "shared_ring");
    EXPECT_EQ(choice.plan(Rank{1}).parts, 8 * 4);
    EXPECT_EQ(choice.plan(Rank{1}).per_round.size(), 7u);
    EXPECT_NE(choice.explanation().find("chosen: shared_ring, which is asked for"),
              std::string::npos)
        << choice.explanation();
    // No less than the bytes through a port take, and little more.
    const plan::Picoseconds port = fdr.between.per_byte.of((1u << 20) / 8 * 7);
    EXPECT_GT(choice.cost(), port);
    EXPECT_LT(choice.cost(), port * 12 / 10);
    EXPECT_EQ(choose(asked, {.rank_count = 6, .node_of = nodes}, fdr).plan(Rank{1}).parts, 3 * 4);
    asked.algorithm = Algorithm::ring;
    expect_refused(ErrorCode::unsupported, [&] { (void)choose(asked, {.rank_count = 8}, fdr); },
                   {"algorithm ring is not offered", "automatic or shared_ring"});
    asked.algorithm = static_cast<Algorithm>(99);
    expect_refused(ErrorCode::invalid_argument,
                   [&] { (void)choose(asked, {.rank_count = 8}, fdr); }, {"algorithm 99 is none"});
    asked.algorithm = Algorithm::shared_ring;
    asked.element_count = 0;
    EXPECT_GE(choose(asked, {.rank_count = 8}, fdr).cost(), 0);
    asked.element_count = std::size_t{1} << 58;
    EXPECT_GT(choose(asked, {.rank_count = 8}, fdr).cost(), 0);
    EXPECT_EQ(choose(asked, {.rank_count = 1}, fdr).plan(Rank{0}).steps.size(), 0u);
  }
  CollectiveRequest asked = half_of_a_ring(Collective::allgather);
  asked.shares_target = true;
  expect_refused(ErrorCode::unsupported,
                 [&] { (void)choose(asked, {.rank_count = 6, .node_of = nodes}, fdr); },
                 {"allgather: algorithm shared_ring copies", "have one target"});
  asked = half_of_a_ring(Collective::reduce_scatter);
  asked.agreement = Agreement::reproducible;
  expect_refused(ErrorCode::unsupported, [&] { (void)choose(asked, {.rank_count = 8}, fdr); },
                 {"reduce_scatter: algorithm shared_ring promises no more than identical"});
  asked = half_of_a_ring(Collective::reduce_scatter);
  asked.element_count = 8;
  expect_refused(ErrorCode::unsupported, [&] { (void)choose(asked, {.rank_count = 16384}, fdr); },
                 {"at most 32768", "16384 nodes"});
}

/// Where one rank has everything, it goes through each port once, and a window waits for the last.
TEST(Selection, a_shared_ring_of_differing_blocks_has_the_price_of_all_bytes) {
  CollectiveRequest asked = half_of_a_ring(Collective::allgather);
  asked.element_count = 1u << 20;
  asked.block_bytes.assign(8, 0);
  asked.block_bytes[3] = 1u << 20;
  const plan::Picoseconds port = fdr.between.per_byte.of(1u << 20);
  const plan::Picoseconds price = choose(asked, {.rank_count = 8}, fdr).cost();
  EXPECT_GT(price, port);
  EXPECT_LT(price, port * 18 / 10);
}

TEST(SharedRingUnasked, is_not_taken_for_blocks_of_which_none_are_combined) {
  CollectiveRequest asked = half_of_a_ring(Collective::allgather);
  asked.algorithm = Algorithm::automatic;
  asked.ring_room = RingRoom::there;
  const std::string text = choose(asked, {.rank_count = 8}, fdr).explanation();
  EXPECT_NE(text.find("not shared_ring: it sends as many bytes as"), std::string::npos) << text;
  asked.ring_room = RingRoom::not_told;
  EXPECT_FALSE(depends_on_ring_room(asked, {.rank_count = 8}, Knowledge()));
}

TEST(SharedRingUnasked, is_half_of_it_taken_where_it_costs_least_and_all_have_room) {
  for (const Collective collective : {Collective::reduce_scatter}) {
    CollectiveRequest asked = half_of_a_ring(collective);
    asked.algorithm = Algorithm::automatic;
    const Topology eight{.rank_count = 8};
    const auto why = [&](const char* words) {
      const std::string text = choose(asked, eight, fdr).explanation();
      EXPECT_NE(text.find(words), std::string::npos) << text << "\n does not say: " << words;
    };
    why("not shared_ring: it takes ");
    why("no rank has told whether it has them");
    asked.ring_room = RingRoom::there;
    const Choice choice = choose(asked, eight, fdr);
    const plan::Picoseconds other = [&] {
      CollectiveRequest without = asked;
      without.ring_room = RingRoom::not_told;
      return choose(without, eight, fdr).cost();
    }();
    EXPECT_EQ(choice.row().is_flow, choice.cost() < other);
    asked.ring_room = RingRoom::not_told;
    EXPECT_EQ(depends_on_ring_room(asked, eight, Knowledge()), choice.row().is_flow);
    asked.element_count = 100;
    why("not shared_ring: the payload is small");
    EXPECT_FALSE(depends_on_ring_room(asked, eight, Knowledge()));
  }
}

/// An allreduce of 1 MiB, of as many nodes of one rank each.
Asked of_a_ring() {
  Asked asked = request(BuiltIn::sum, ElementType::float64, Agreement::identical);
  asked.element_count = (1u << 20) / 8;
  asked.ring_room = RingRoom::there;
  return asked;
}

TEST(SharedRingUnasked, is_taken_where_it_costs_least_and_all_have_room) {
  for (const std::uint32_t ranks : {3u, 8u, 16u, 32u}) {
    const Choice choice = choose(of_a_ring(), {.rank_count = ranks}, fdr);
    EXPECT_STREQ(choice.row().name, "shared_ring") << ranks;
    Asked told_nothing = of_a_ring();
    told_nothing.ring_room = RingRoom::not_told;
    const Choice otherwise = choose(told_nothing, {.rank_count = ranks}, fdr);
    EXPECT_FALSE(otherwise.row().is_flow) << ranks;
    EXPECT_LT(choice.cost(), otherwise.cost()) << ranks;
    EXPECT_TRUE(depends_on_ring_room(told_nothing, {.rank_count = ranks}, Knowledge())) << ranks;
  }
}

/// What the explanation says why it is not taken; empty: it is.
std::string why_no_ring(const Asked& asked, const Topology& topology) {
  const Choice choice = choose(asked, topology, fdr);
  if (choice.row().is_flow) return "";
  const std::string text = choice.explanation(), begin = "\n  not shared_ring: ";
  const std::size_t at = text.find(begin);
  if (at == std::string::npos) return "it costs more";
  return text.substr(at + begin.size(), text.find('\n', at + 1) - at - begin.size());
}

TEST(SharedRingUnasked, says_why_it_is_not_taken) {
  const Topology eight{.rank_count = 8};
  const auto expect = [](const std::string& said, const char* words) {
    EXPECT_NE(said.find(words), std::string::npos) << said << "\n does not say: " << words;
  };
  EXPECT_EQ(why_no_ring(of_a_ring(), eight), "");
  Asked other = of_a_ring();
  other.ring_room = RingRoom::missing;
  expect(why_no_ring(other, eight),
         "bytes of the arena of the first rank of a node, and some rank");
  other.ring_room = RingRoom::not_told;
  expect(why_no_ring(other, eight), "no rank has told");
  other = of_a_ring();
  other.agreement = Agreement::reproducible;
  expect(why_no_ring(other, eight), "promises no more than identical");
  other = of_a_ring();
  other.reduction = request(BuiltIn::none, ElementType::float64, Agreement::identical).reduction;
  expect(why_no_ring(other, eight), "does not keep rank order");
  other = of_a_ring();
  other.element_count = 1000;
  expect(why_no_ring(other, eight), "the payload is small");
  other = of_a_ring();
  other.zero_copy = true;
  expect(why_no_ring(other, eight), "the buffers are registered");
  other = of_a_ring();
  other.per_round = {1, 1, 1};
  expect(why_no_ring(other, eight), "messages per round are asked for");
  expect(why_no_ring(of_a_ring(), {.rank_count = 2}), "no more than two nodes");
  expect(why_no_ring(of_a_ring(), {.rank_count = 8, .shares_cpus = true}), "ranks share CPUs");
  other = of_a_ring();
  other.across = Across::flat;
  expect(why_no_ring(other, eight), "it is asked how nodes enter");
}

TEST(SharedRingUnasked, nobody_has_to_tell_of_room_where_nothing_depends_on_it) {
  Asked asked = of_a_ring();
  asked.ring_room = RingRoom::not_told;
  EXPECT_TRUE(depends_on_ring_room(asked, {.rank_count = 8}, Knowledge()));
  EXPECT_FALSE(depends_on_ring_room(asked, {.rank_count = 8, .shares_cpus = true}, Knowledge()));
  EXPECT_FALSE(depends_on_ring_room(asked, {.rank_count = 1}, Knowledge()));
  EXPECT_FALSE(
      depends_on_ring_room(of_a_ring(), {.rank_count = 8}, Knowledge()));  // they have told
  asked.algorithm = Algorithm::shared_ring;
  EXPECT_FALSE(depends_on_ring_room(asked, {.rank_count = 8}, Knowledge()));
  asked.algorithm = Algorithm::automatic;
  asked.per_round = {1};  // does not cover 8 ranks, which the choice itself refuses
  EXPECT_FALSE(depends_on_ring_room(asked, {.rank_count = 8}, Knowledge()));
  asked.per_round = {};
  asked.element_count = 8;
  EXPECT_FALSE(depends_on_ring_room(asked, {.rank_count = 8}, Knowledge()));
}

/// Node after node.
std::vector<Node> nodes_of(const std::vector<std::uint32_t>& sizes) {
  std::vector<Node> nodes;
  for (std::uint32_t node = 0; node < sizes.size(); ++node)
    nodes.insert(nodes.end(), sizes[node], Node{node});
  return nodes;
}
std::vector<Node> even_nodes(std::uint32_t count, std::uint32_t ranks) {
  return nodes_of(std::vector<std::uint32_t>(count, ranks));
}

TEST(Selection, broadcasts_and_reduces_of_many_ranks_go_in_lanes_unless_ranks_share_cpus) {
  for (const Collective collective : {Collective::broadcast, Collective::reduce}) {
    CollectiveRequest asked{.collective = collective,
                            .reduction = built_in_reduction(BuiltIn::sum, ElementType::float64),
                            .root = Rank{0}};
    Topology topology{.rank_count = 32, .node_of = even_nodes(8, 4)};
    const auto name = [&] { return plan_for(asked, topology, Rank{0}, fdr).algorithm; };
    const auto is_in_lanes = [&](std::size_t elements) {
      asked.element_count = elements;
      return name().starts_with("lanes/");
    };
    EXPECT_FALSE(is_in_lanes(1));
    EXPECT_TRUE(is_in_lanes(4096));
    EXPECT_EQ(name(), "lanes/pipelined_chain");
    EXPECT_TRUE(is_in_lanes(1u << 20));
    EXPECT_EQ(name(), "lanes/pipelined_chain");
    asked.tree = Tree::fibonacci;
    EXPECT_EQ(name(), "fibonacci_tree");
    asked.tree = Tree::automatic;
    topology.shares_cpus = true;
    EXPECT_EQ(name(), "pipelined_chain");
  }
}

TEST(Selection, small_blocks_of_an_alltoall_go_together_where_that_saves_messages) {
  const auto taken = [](const std::vector<Node>& nodes, std::size_t bytes,
                        plan::Transport transport = plan::Transport::copied, Rank self = Rank{0}) {
    return blocks_plan(self, static_cast<std::uint32_t>(nodes.size()),
                       {.bytes = bytes, .node_of = nodes, .transport = transport})
        .algorithm;
  };
  for (const std::size_t bytes : {0u, 1u, 8u, 256u})
    EXPECT_EQ(taken(even_nodes(16, 4), bytes), "node_alltoall") << bytes;
  EXPECT_EQ(taken(even_nodes(16, 4), 1025), "direct");
  EXPECT_EQ(taken(even_nodes(16, 4), 8, plan::Transport::by_reference), "single_copy");
  // There are enough messages to save, for what is copied more.
  EXPECT_EQ(taken(even_nodes(4, 2), 8), "node_alltoall");
  const Topology shared{.rank_count = 8, .node_of = even_nodes(4, 2), .shares_cpus = true};
  EXPECT_EQ(plan_for({.collective = Collective::alltoall,
                      .element_count = 8,
                      .reduction = {.element_bytes = 1}},
                     shared, Rank{0}, fdr)
                .algorithm,
            "direct")
      << "where ranks share CPUs, each stage waits longer";
  EXPECT_EQ(taken(even_nodes(3, 3), 8), "node_alltoall");
  EXPECT_EQ(taken(even_nodes(3, 3), 512), "direct");
  EXPECT_EQ(taken(even_nodes(1, 16), 8), "direct");
  EXPECT_EQ(taken(even_nodes(8, 1), 8), "direct");
  // Registers of 2^18 bytes, in two copies of slots and as many partials.
  EXPECT_EQ(taken(even_nodes(8, 8), 273), "node_alltoall");
  EXPECT_EQ(taken(even_nodes(8, 8), 274), "direct");
  EXPECT_EQ(taken(even_nodes(2, 300), 1), "direct");
  // All ranks choose alike.
  const std::vector<Node> uneven = nodes_of({5, 1, 4, 2});
  for (std::uint32_t rank = 0; rank < uneven.size(); ++rank)
    EXPECT_EQ(taken(uneven, 8, plan::Transport::copied, Rank{rank}), "node_alltoall") << rank;
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
      choose(asked, {.rank_count = 8, .node_of = even_nodes(4, 2)}, fdr).explanation();
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
               {.rank_count = nodes * ranks_per_node, .node_of = even_nodes(nodes, ranks_per_node)},
               fdr)
        .explanation();
  };
  const std::string text = text_for(2, 4);
  EXPECT_TRUE(text.starts_with("chosen: 4 lanes")) << text;
  EXPECT_EQ(text.find("which is asked for"), std::string::npos) << text;
  EXPECT_EQ(text.find("prices are those of"), std::string::npos) << text;
  for (const char* const part :
       {"\n  next: leader", "\n  next: chunked_fold, ", " with 1 a round in 4 turns, "})
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

TEST(Selection, what_is_chosen_across_nodes_connects_no_rank_with_too_many) {
  for (const std::uint32_t nodes : {3u, 5u, 7u, 9u, 12u, 17u, 24u, 31u})
    for (const std::uint32_t partners_max : {3u, 5u, 6u, 8u})
      for (const std::size_t elements : {512u, 8192u, 131072u}) {
        CollectiveRequest asked{.element_count = elements,
                                .reduction = built_in_reduction(BuiltIn::sum, ElementType::int64),
                                .partners_max = partners_max};
        const Topology topology{.rank_count = 2 * nodes, .node_of = even_nodes(nodes, 2)};
        const Choice choice = choose(asked, topology, fdr);
        if (choice.variant().across == nullptr || choice.variant().across->plan(Rank{0}).parts == 1)
          continue;  // schedules of whole payloads connect as many as their rounds have messages
        for (std::uint32_t rank = 0; rank < topology.rank_count; ++rank) {
          std::set<Rank> partners;
          for (const plan::Step& step : choice.plan(Rank{rank}).steps)
            if (step.peer != no_rank &&
                topology.node_of[index_of(step.peer)] != topology.node_of[rank])
              partners.insert(step.peer);
          EXPECT_LE(partners.size(), partners_max)
              << choice.explanation() << "\nrank " << rank << " of " << topology.rank_count;
        }
      }
}

TEST(Selection, small_blocks_of_an_alltoall_go_through_other_ranks_where_none_share_a_node) {
  const auto taken = [](std::uint32_t ranks, std::size_t bytes,
                        plan::Transport transport = plan::Transport::copied) {
    return blocks_plan(Rank{0}, ranks, {.bytes = bytes, .transport = transport}).algorithm;
  };
  for (const std::uint32_t ranks : {1u, 2u, 3u, 4u, 8u, 15u}) EXPECT_EQ(taken(ranks, 8), "direct");
  for (const std::uint32_t ranks : {16u, 20u, 64u, 96u, 256u}) {
    EXPECT_EQ(taken(ranks, 8), "bruck_alltoall") << ranks;
    EXPECT_EQ(taken(ranks, 1025), "direct") << ranks;
    EXPECT_EQ(taken(ranks, 8, plan::Transport::by_reference), "single_copy") << ranks;
  }
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
