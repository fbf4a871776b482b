// Promise: in virtual time, a collective of nodes with several ranks takes what the events of its
// plan take on that machine, to the picosecond: ports that ranks share, stores into shared memory,
// what is read where it is, and what is combined.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tutti/bootstrap.hpp>
#include <tutti/tutti.hpp>
#include <utility>
#include <vector>

#include "../plan/networks.hpp"
#include "plan/cost/in_chunks.hpp"
#include "plan/cost/makespan.hpp"
#include "runtime/neighbourhood.hpp"
#include "runtime/settings.hpp"
#include "support/fabric_file.hpp"
#include "support/shared.hpp"
#include "tune/choose.hpp"
#include "tune/chunks.hpp"
#include "verbs/soft/soft_clock.hpp"
#include "verbs/soft/virtual_time.hpp"

namespace tutti {
namespace {

namespace soft = verbs::soft;
using namespace std::chrono_literals;

const plan::Network machine = {.between = {.latency = 700'000,
                                           .send_overhead = 150'000,
                                           .receive_overhead = 50'000,
                                           .gap = 100'000,
                                           .per_byte = {.time = 10'000, .bytes = 68},
                                           .work = 10'000,
                                           .work_per_byte = {.time = 125}},
                               .inside = {.latency = 90'000,
                                          .send_overhead = 21'000,
                                          .per_byte = {.time = 80},
                                          .receive_overhead = 13'000,
                                          .read_overhead = 300'000,
                                          .read_per_byte = {.time = 50}}};

/// `machine` for the device, on a preset of its network; `work`: what combining takes.
std::string description(const std::string& preset, const std::string& work) {
  return "{\"preset\":\"" + preset + "\"," + work +
         R"("inside":{"latency_us":0.09,"send_overhead_us":0.021,"receive_overhead_us":0.013,
            "gigabytes_per_second":12.5,"read_overhead_us":0.3,"read_gigabytes_per_second":20}})";
}
const std::string work = R"("work_us":0.01,"work_gigabytes_per_second":8,)";

const plan::Network machine_of_hdr = {.between = {.latency = 600'000,
                                                  .send_overhead = 100'000,
                                                  .receive_overhead = 50'000,
                                                  .gap = 25'000,
                                                  .per_byte = {.time = 10'000, .bytes = 242},
                                                  .work = 10'000,
                                                  .work_per_byte = {.time = 125}},
                                      .inside = machine.inside};

struct MachineFile : test::FabricFile {
  explicit MachineFile(const std::string& text = description("fdr", work)) : FabricFile(text) {}
};

struct Case {
  tune::Collective collective;
  std::uint32_t rank_count;
  std::vector<std::uint32_t> ranks_per_node;
  std::size_t elements = 0;  // of 8 bytes: of a payload, or of each block
  Across across = Across::automatic;
  Placement placement = Placement::block;
  std::size_t single_copy_bytes = SIZE_MAX;
  Algorithm algorithm = Algorithm::automatic;
  std::optional<std::size_t> chunk_bytes = {};
  std::optional<std::size_t> arena_bytes = {};
  Notify notify = Notify::immediate;
  const char* taken = nullptr;  // the schedule that the library has to choose
  std::optional<WaitPolicy> wait = {};
  bool in_segments = false;    // source and target
  const char* preset = "fdr";  // by which the library prices, as the network reports its rate
  std::optional<std::vector<std::uint32_t>> ranks_per_domain = {};

  std::string text() const {
    std::string shape;
    for (const std::uint32_t ranks : ranks_per_node) shape += " " + std::to_string(ranks);
    return std::string(tune::name_of(collective)) + " of " + std::to_string(rank_count) +
           " ranks, nodes of" + shape + ", " + std::to_string(elements) + " elements, across " +
           std::to_string(static_cast<int>(across)) + ", single copy from " +
           std::to_string(single_copy_bytes) + (notify == Notify::flag ? ", lines" : "") +
           (placement == Placement::cyclic ? ", cyclic" : "") +
           (chunk_bytes ? ", chunks of " + std::to_string(*chunk_bytes) : "");
  }
};

const Reduction sum = built_in_reduction(BuiltIn::sum, ElementType::uint64);

tune::CollectiveRequest request_of(const Case& one) {
  const bool has_root =
      one.collective == tune::Collective::broadcast || one.collective == tune::Collective::reduce ||
      one.collective == tune::Collective::gather || one.collective == tune::Collective::scatter;
  tune::CollectiveRequest request{.collective = one.collective,
                                  .element_count = one.elements,
                                  .reduction = sum,
                                  .across = one.across,
                                  .zero_copy = one.in_segments};
  if (has_root) request.root = Rank{0};
  request.reads_in_place = one.elements * 8 >= one.single_copy_bytes && one.elements > 0;
  return request;
}

Operation operation_of(const Case& one, Communicator& communicator, std::span<std::uint64_t> source,
                       std::span<std::uint64_t> target) {
  using enum tune::Collective;
  const std::size_t bytes = one.elements * 8;
  switch (one.collective) {
    case barrier:
      return tutti::barrier(communicator, {.across = one.across});
    case allreduce:
      return tutti::allreduce(communicator, {.source = source.data(),
                                             .target = target.data(),
                                             .element_count = one.elements,
                                             .reduction = sum,
                                             .algorithm = one.algorithm,
                                             .across = one.across});
    case broadcast:
      return tutti::broadcast(
          communicator,
          {.buffer = target.data(), .bytes = bytes, .root = Rank{0}, .element_bytes = 8});
    case reduce:
      return tutti::reduce(communicator, {.source = source.data(),
                                          .target = target.data(),
                                          .element_count = one.elements,
                                          .reduction = sum,
                                          .root = Rank{0}});
    case allgather:
      return tutti::allgather(communicator, {.source = source.data(),
                                             .target = target.data(),
                                             .bytes = bytes,
                                             .algorithm = one.algorithm});
    case reduce_scatter:
      return tutti::reduce_scatter(
          communicator, {.source = source.data(),
                         .target = target.data(),
                         .element_counts = std::vector<std::size_t>(one.rank_count,
                                                                    one.elements / one.rank_count),
                         .reduction = sum,
                         .algorithm = one.algorithm});
    case alltoall:
      return tutti::alltoall(communicator,
                             {.source = source.data(), .target = target.data(), .bytes = bytes});
    case gather:
      return tutti::gather(communicator,
                           {.source = source.data(), .target = target.data(), .bytes = bytes});
    case scatter:
      return tutti::scatter(communicator,
                            {.source = source.data(), .target = target.data(), .bytes = bytes});
    case scan:
    case exscan: {
      const ScanArguments arguments{.source = source.data(),
                                    .target = target.data(),
                                    .element_count = one.elements,
                                    .reduction = sum};
      return one.collective == scan ? tutti::scan(communicator, arguments)
                                    : tutti::exscan(communicator, arguments);
    }
    case allreduce_ssp:  // one call has no time of its own: ranks await results of earlier calls
      break;
  }
  throw Error(ErrorCode::invalid_argument, "no case of this test");
}

ContextOptions options_of(const Case& one) {
  return {.device = "soft0",
          .arena_bytes = one.arena_bytes,
          .chunk_bytes = one.chunk_bytes,
          .single_copy_bytes = one.single_copy_bytes,
          .notify = one.notify,
          .wait = one.wait,
          .ranks_per_node = one.ranks_per_node,
          .placement = one.placement,
          .ranks_per_domain = one.ranks_per_domain};
}

std::vector<Node> nodes_of(const Case& one) {
  return runtime::imposed_nodes(one.rank_count, runtime::context_settings(options_of(one))).node;
}

std::vector<Node> domains_of(const Case& one) {
  if (!one.ranks_per_domain) return {};
  const auto settings = runtime::context_settings(options_of(one));
  return runtime::domains_of(runtime::imposed_nodes(one.rank_count, settings), {}, settings);
}

/// A scan or exscan of ones tells each rank its place.
bool is_prefix_right(const Case& one, std::uint32_t self, std::span<const std::uint64_t> target) {
  const bool is_scan = one.collective == tune::Collective::scan;
  if (!is_scan && (one.collective != tune::Collective::exscan || self == 0)) return true;
  return std::all_of(target.begin(), target.begin() + static_cast<std::ptrdiff_t>(one.elements),
                     [&](std::uint64_t value) { return value == self + (is_scan ? 1u : 0u); });
}

bool is_of_blocks(const Case& one) {
  return one.collective == tune::Collective::allgather ||
         one.collective == tune::Collective::alltoall ||
         one.collective == tune::Collective::gather || one.collective == tune::Collective::scatter;
}

int run_rank(const Case& one, Exchange& exchange, std::int64_t* ends) {
  Context context(options_of(one));
  Communicator communicator(context, exchange);
  std::optional<Segment> segment;
  std::vector<std::uint64_t> outside;
  const std::size_t length = one.elements * (is_of_blocks(one) ? one.rank_count : 1);
  if (one.in_segments)
    segment = communicator.allocate(2 * length * sizeof(std::uint64_t));
  else
    outside.resize(2 * length);
  const std::span<std::uint64_t> all = segment ? segment->as<std::uint64_t>() : std::span(outside);
  const std::span<std::uint64_t> source = all.first(length), target = all.last(length);
  std::fill(source.begin(), source.end(), 1);
  const Rank self = exchange.self();
  const bool is_broadcast = one.collective == tune::Collective::broadcast;
  if (is_broadcast && self == Rank{0}) std::fill(target.begin(), target.end(), one.rank_count);
  Operation operation = operation_of(one, communicator, source, target);
  if (one.taken != nullptr && operation.algorithm() != one.taken) {
    std::fprintf(stderr, "%s was taken\n", operation.algorithm().c_str());
    return 5;
  }
  const auto complete = [&] {
    return operation.start() == Status::ok && operation.wait(120s) == Status::ok;
  };
  for (int count = 0; count < 2; ++count)
    if (!complete()) return 2;
  for (int count = 0; count < 2; ++count) {
    communicator.synchronize();
    // Credits of the calls before are seen, as by the events, which know none of those.
    for (int step = 0; step < 100; ++step) (void)communicator.progress();
    communicator.synchronize();
    soft::enter_virtual_time();
    const bool done = complete();
    ends[index_of(self)] = soft::VirtualTime::joined()->now();
    soft::leave_virtual_time();
    if (!done) return 3;
  }
  communicator.synchronize();  // what ranks say when they leave is no part of the call
  if (!is_prefix_right(one, index_of(self), target)) return 6;
  const bool is_sum = one.collective == tune::Collective::allreduce ||
                      (one.collective == tune::Collective::reduce && self == Rank{0});
  if ((is_sum || is_broadcast) &&
      std::any_of(target.begin(), target.begin() + static_cast<std::ptrdiff_t>(one.elements),
                  [&](std::uint64_t value) { return value != one.rank_count; }))
    return 4;
  return 0;
}

/// When each rank has finished, by the engine.
std::vector<std::int64_t> measured(const Case& one) {
  const test::Shared<std::int64_t> ends(one.rank_count);
  std::vector<std::uint32_t> node_of;
  for (const Node node : nodes_of(one)) node_of.push_back(index_of(node));
  soft::VirtualTime time(one.rank_count, node_of);
  const auto ended = run_local({.rank_count = one.rank_count}, [&](Exchange& exchange) {
    time.join(index_of(exchange.self()));
    return run_rank(one, exchange, ends.all().data());
  });
  for (const LocalResult& rank : ended) EXPECT_EQ(rank.exit_status, 0) << one.text();
  return {ends.all().begin(), ends.all().end()};
}

tune::Topology topology_of(const Case& one) {
  return {.rank_count = one.rank_count, .node_of = nodes_of(one), .domain_of = domains_of(one)};
}

tune::Choice choice_of(const Case& one) {
  return tune::choose(request_of(one), topology_of(one),
                      tune::untuned(tune::machine_preset(one.preset)));
}

/// A payload has so many elements, and each of its chunks is divided into so many parts.
struct Divided {
  std::size_t elements, parts;
};
Divided divided(const Case& one, const plan::Plan& plan) {
  if (one.collective == tune::Collective::reduce_scatter) return {one.elements / one.rank_count, 1};
  return {one.elements, is_of_blocks(one) ? std::size_t{1} : plan.parts};
}

/// How many chunks a payload has, of those whose chunks the events of a plan tell.
std::size_t chunks_of(const Case& one, const plan::Plan& plan) {
  using enum tune::Collective;
  const bool is_asked = one.chunk_bytes.has_value();
  const bool has_blocks = is_of_blocks(one) || one.collective == reduce_scatter;
  const bool tells =
      one.collective == broadcast || one.collective == reduce || one.collective == scan ||
      one.collective == exscan || (has_blocks && is_asked) ||
      (one.collective == allreduce && !one.in_segments && one.single_copy_bytes == SIZE_MAX);
  if (!tells) return 1;
  const auto [elements, parts] = divided(one, plan);
  return tune::chunk_count(elements, 8, parts,
                           tune::chunk_bytes_for(plan, topology_of(one).has_shared_nodes(),
                                                 one.chunk_bytes.value_or(0)));
}

/// When each rank has finished, by the events of its plan.
std::vector<std::int64_t> expected(const Case& one, const plan::Network& network = machine) {
  const tune::Choice choice = choice_of(one);
  std::vector<plan::Plan> plans;
  for (std::uint32_t rank = 0; rank < one.rank_count; ++rank)
    plans.push_back(choice.plan(Rank{rank}));
  const auto chunks = static_cast<std::uint32_t>(chunks_of(one, plans[0]));
  for (plan::Plan& plan : plans) plan = plan::in_chunks(plan, chunks);
  const std::uint64_t bytes = one.elements * 8 * (is_of_blocks(one) ? one.rank_count : 1);
  const bool any_order = (one.collective == tune::Collective::allreduce ||
                          one.collective == tune::Collective::reduce) &&
                         tune::takes_any_order(request_of(one)) && plans[0].payloads == 1;
  return plan::completion_times(
      plans, network, nodes_of(one),
      {.payload_bytes = bytes,
       .element_bytes = 8,
       .starts = {},
       .order = any_order ? plan::CombineOrder::as_seen : plan::CombineOrder::as_planned,
       .lines = one.notify == Notify::flag});
}

void expect_equal(const std::vector<Case>& cases) {
  const MachineFile file;
  for (const Case& one : cases) EXPECT_EQ(measured(one), expected(one, machine)) << one.text();
}

using enum tune::Collective;

TEST(NodeTime, of_barriers_and_allreduces) {
  std::vector<Case> cases;
  for (const Across across : {Across::leader, Across::lanes})
    for (const std::size_t elements : {1u, 700u}) {
      cases.push_back({allreduce, 8, {4}, elements, across});
      cases.push_back({allreduce, 12, {3}, elements, across});
      cases.push_back({allreduce, 10, {3, 1, 2, 4}, elements, across});
      cases.push_back({allreduce, 9, {3}, elements, across, Placement::cyclic});
    }
  cases.push_back({allreduce, 6, {6}, 1});
  cases.push_back({allreduce, 6, {6}, 700});
  cases.push_back({barrier, 12, {4}});
  cases.push_back({barrier, 8, {8}});
  expect_equal(cases);
}

/// Some of these ranks send messages faster than their port, and some slower.
TEST(NodeTime, of_ranks_that_spend_time_on_sending) {
  std::vector<Case> cases;
  for (const auto collective :
       {barrier, allreduce, broadcast, reduce, allgather, alltoall, scatter})
    cases.push_back({collective, 12, {4}, collective == barrier ? 0u : 40u});
  cases.push_back({allreduce, 9, {1}, 700});
  cases.push_back({allreduce, 10, {3, 1, 2, 4}, 700, Across::leader});
  cases.push_back({allreduce, 8, {2}, 30'000, Across::lanes});
  cases.push_back({allreduce, 12, {3}, 4});
  cases.back().notify = Notify::flag;
  for (const auto& [text, gap] : {std::pair{"0.03", 30'000}, {"0.25", 250'000}}) {
    plan::Network slower = machine;
    slower.between.rank_gap = gap;
    const MachineFile file(
        description("fdr", R"("rank_gap_us":)" + std::string(text) + "," + work));
    for (const Case& one : cases) EXPECT_EQ(measured(one), expected(one, slower)) << one.text();
  }
}

TEST(NodeTime, of_lines_that_are_polled_in_memory) {
  std::vector<Case> cases;
  for (const std::size_t elements : {1u, 8u, 40u}) {  // in lanes, a part of 8 fits a line
    cases.push_back({allreduce, 8, {4}, elements, Across::leader});
    cases.push_back({allreduce, 12, {3}, elements, Across::lanes});
    cases.push_back({allreduce, 10, {3, 1, 2, 4}, elements, Across::leader});
    for (const auto collective : {broadcast, reduce, allgather, alltoall})
      if (collective != reduce || elements == 1) cases.push_back({collective, 10, {2}, elements});
  }
  cases.push_back({barrier, 12, {4}});
  cases.push_back({barrier, 5, {1}});
  for (Case& one : cases) one.notify = Notify::flag;
  expect_equal(cases);
}

TEST(NodeTime, of_what_is_larger_than_a_line) {
  std::vector<Case> cases;
  for (const auto collective : {broadcast, reduce, allgather, alltoall})
    for (const std::size_t elements : {1u, 200u})
      for (const std::uint32_t per_node : {2u, 5u})
        if (collective != reduce || elements == 1)
          cases.push_back({collective, 10, {per_node}, elements});
  expect_equal(cases);
}

/// By each schedule of blocks with a root: direct, blocks of a node together, along a tree.
TEST(NodeTime, of_blocks_with_a_root) {
  std::vector<Case> cases;
  for (const auto collective : {gather, scatter}) {
    for (const std::size_t elements : {1u, 200u}) {
      cases.push_back({collective, 10, {2}, elements});
      cases.push_back({collective, 10, {3, 1, 2, 4}, elements});
    }
    cases.push_back({collective, 9, {3}, 40, Across::automatic, Placement::cyclic});
    cases.push_back({collective, 40, {4}, 200});
    cases.back().arena_bytes = 4u << 20;
  }
  std::set<std::string> schedules;
  for (const Case& one : cases) schedules.insert(choice_of(one).plan(Rank{0}).algorithm);
  EXPECT_EQ(schedules, (std::set<std::string>{"direct", "node_gather", "node_scatter",
                                              "tree_gather", "tree_scatter"}));
  expect_equal(cases);
}

TEST(NodeTime, of_prefixes_and_scattered_sums) {
  std::vector<Case> cases;
  for (const auto collective : {scan, exscan, reduce_scatter})
    for (const std::size_t per_rank : {1u, 70u}) {
      const auto elements_of = [&](std::size_t ranks) {
        return collective == reduce_scatter ? per_rank * ranks : per_rank;
      };
      cases.push_back({collective, 12, {4}, elements_of(12)});
      cases.push_back({collective, 10, {3, 1, 2, 4}, elements_of(10)});
      cases.push_back({collective, 9, {3}, elements_of(9), Across::automatic, Placement::cyclic});
    }
  expect_equal(cases);
}

/// Domains are imposed, of two ranks each.
TEST(NodeTime, of_domains_inside_nodes) {
  std::vector<Case> cases = {{barrier, 16, {8}},
                             {allreduce, 16, {8}, 1},
                             {allreduce, 16, {8}, 700},
                             {allreduce, 14, {6, 8}, 1},
                             {allreduce, 8, {8}, 40}};
  for (Case& one : cases) {
    one.ranks_per_domain = {2};
    EXPECT_EQ(choice_of(one).plan(Rank{0}).algorithm.rfind("domains", 0), 0u) << one.text();
  }
  expect_equal(cases);
}

TEST(NodeTime, of_groups_inside_nodes) {
  std::vector<Case> cases = {
      {barrier, 64, {32}}, {allreduce, 64, {32}, 1}, {allreduce, 64, {32}, 40}};
  for (Case& one : cases) {
    one.arena_bytes = 1u << 20;
    EXPECT_EQ(choice_of(one).plan(Rank{0}).algorithm.rfind("groups", 0), 0u)
        << one.text() << ": " << choice_of(one).plan(Rank{0}).algorithm;
  }
  expect_equal(cases);
}

TEST(NodeTime, of_payloads_that_stay_with_their_senders) {
  std::vector<Case> cases;
  for (const auto collective : {broadcast, allreduce, allgather, alltoall})
    for (const std::size_t elements : {700u, 8'000u})
      cases.push_back({collective, 6, {3}, elements});
  expect_equal(cases);
}

TEST(NodeTime, of_lanes_that_cut_their_part_again) {
  // Nodes of unequal size have no lanes in turns.  Unasked, these calls would take the shared ring.
  const std::vector<Case> cases = {{allreduce, 12, {4, 2}, 16'000, Across::lanes},
                                   {allreduce, 28, {4, 3}, 16'000, Across::lanes}};
  for (const Case& one : cases) {
    const std::string taken = choice_of(one).plan(Rank{0}).algorithm;
    EXPECT_EQ(taken.rfind("lanes/", 0), 0u) << one.text() << ": " << taken;
    EXPECT_NE(taken, "lanes/turns") << one.text();
  }
  expect_equal(cases);
}

/// Parts of one length, and of two.
TEST(NodeTime, of_lanes_in_turns) {
  const std::vector<Case> cases = {
      {allreduce, 8, {4}, 65'536}, {allreduce, 16, {4}, 8'192}, {allreduce, 12, {3}, 10'001}};
  for (const Case& one : cases)
    EXPECT_EQ(choice_of(one).plan(Rank{0}).algorithm, "lanes/turns") << one.text();
  expect_equal(cases);
}

TEST(NodeTime, of_lanes_in_turns_in_pieces) {
  const std::vector<Case> cases = {{allreduce, 32, {4}, 65'536}};
  for (const Case& one : cases) EXPECT_GT(choice_of(one).variant().turn_pieces, 1u) << one.text();
  expect_equal(cases);
}

TEST(NodeTime, of_lanes_in_turns_that_exchange) {
  const std::vector<Case> cases = {{allreduce, 16, {2}, 8'192}, {allreduce, 24, {2}, 30'001}};
  for (const Case& one : cases)
    EXPECT_GT(choice_of(one).variant().turn_exchanges, 0u) << one.text();
  expect_equal(cases);
}

/// The chunks follow each other: of each, all parts have one length here.
TEST(NodeTime, of_lanes_in_turns_in_several_chunks) {
  const std::vector<Case> cases = {{allreduce, 16, {4}, 267'264}, {allreduce, 16, {8}, 534'528}};
  for (const Case& one : cases) {
    const plan::Plan plan = choice_of(one).plan(Rank{0});
    EXPECT_EQ(plan.algorithm, "lanes/turns") << one.text();
    EXPECT_GT(chunks_of(one, plan), 1u) << one.text();
  }
  expect_equal(cases);
}

/// In lanes, and in chunks that follow each other: when the last rank ends.
TEST(NodeTime, of_long_broadcasts_and_reduces) {
  std::vector<Case> cases;
  for (const auto collective : {broadcast, reduce})
    for (const std::size_t elements : {16'000u, 196'608u}) {
      cases.push_back({collective, 12, {4}, elements});
      cases.push_back({collective, 10, {2}, elements});
    }
  for (const std::size_t elements : {200u, 700u, 8'000u})
    for (const std::uint32_t ranks : {6u, 10u})
      cases.push_back({reduce, ranks, {ranks / 2}, elements});
  const auto last_of = [](const std::vector<std::int64_t>& ends) {
    return *std::max_element(ends.begin(), ends.end());
  };
  const MachineFile file;
  for (const Case& one : cases)
    EXPECT_EQ(last_of(measured(one)), last_of(expected(one, machine))) << one.text();
}

TEST(NodeTime, of_payloads_that_are_read_where_they_are) {
  std::vector<Case> cases;
  for (const auto collective : {broadcast, reduce, allreduce, allgather, alltoall})
    for (const std::uint32_t ranks : {2u, 5u})
      cases.push_back({collective, ranks, {ranks}, 8'000, Across::automatic, Placement::block, 1});
  expect_equal(cases);
}

/// In one chunk and in several; the ranks of an allreduce on two nodes as well.
TEST(NodeTime, of_payloads_that_stay_in_segments) {
  std::vector<Case> cases;
  cases.push_back({reduce, 2, {2}, 131'072});
  cases.push_back({reduce, 2, {2}, 300'001});
  cases.push_back({allreduce, 2, {2}, 131'072});
  cases.push_back({allreduce, 4, {2}, 262'144});
  for (Case& one : cases) {
    one.in_segments = true;
    one.arena_bytes = 32u << 20;
    one.taken = "lanes_zero_copy";
  }
  expect_equal(cases);
}

/// The network's bytes through a node's port, or what a rank copies: its contribution, and results.
double bound_us_of_the_ring(const char* preset, std::uint32_t nodes, std::uint32_t per_node,
                            std::size_t bytes) {
  const plan::LogGP& between =
      std::string(preset) == "hdr" ? machine_of_hdr.between : machine.between;
  const double port = 2.0 * (nodes - 1) / nodes * static_cast<double>(between.per_byte.of(bytes));
  const double memory = per_node == 1 ? 0
                                      : static_cast<double>(machine.inside.per_byte.of(bytes) +
                                                            machine.inside.read_per_byte.of(bytes));
  return std::max(port, memory) / 1e6;
}

/// On the preset, where combining takes no time.  Ranks that share a node of HDR take longer to
/// copy 1 MiB than its port takes, and have 9 to 13 % more than the bound (docs/performance.md).
TEST(NodeTime, of_the_shared_ring_is_near_its_bound) {
  struct Ring {
    const char* preset;
    std::uint32_t nodes, per_node;
    std::size_t bytes;
  };
  for (const Ring& one : {Ring{"fdr", 4, 1, 1u << 20},
                          {"fdr", 4, 4, 1u << 20},
                          {"fdr", 4, 4, 8u << 20},
                          {"fdr", 8, 2, 1u << 20},
                          {"fdr", 16, 2, 1u << 20},
                          {"fdr", 32, 1, 1u << 20},
                          {"hdr", 4, 1, 1u << 20},
                          {"hdr", 8, 1, 1u << 20},
                          {"hdr", 16, 1, 1u << 20},
                          {"hdr", 32, 1, 1u << 20},
                          {"hdr", 4, 4, 8u << 20}}) {
    const MachineFile file(description(one.preset, ""));
    const auto ends = measured({.collective = allreduce,
                                .rank_count = one.nodes * one.per_node,
                                .ranks_per_node = {one.per_node},
                                .elements = one.bytes / 8,
                                .algorithm = Algorithm::shared_ring});
    const double us = static_cast<double>(*std::max_element(ends.begin(), ends.end())) / 1e6;
    const double bound = bound_us_of_the_ring(one.preset, one.nodes, one.per_node, one.bytes);
    const std::string text = std::string(one.preset) + ", " + std::to_string(one.nodes) +
                             " nodes of " + std::to_string(one.per_node);
    EXPECT_GE(us, bound) << text;
    EXPECT_LE(us, 1.05 * bound) << text << ", " << one.bytes;
  }
}

struct RingShape {
  std::uint32_t nodes, per_node;
  std::size_t bytes;
  std::string text() const {
    return std::to_string(nodes) + " nodes of " + std::to_string(per_node) + ", " +
           std::to_string(bytes) + " bytes";
  }
};
Case allreduce_of(const RingShape& shape) {
  return {.collective = allreduce,
          .rank_count = shape.nodes * shape.per_node,
          .ranks_per_node = {shape.per_node},
          .elements = shape.bytes / 8};
}

/// What the registry takes a shared ring to cost is what it costs.
TEST(NodeTime, of_the_shared_ring_is_its_price_where_combining_takes_longest) {
  const MachineFile file(description("hdr", work));
  for (const std::uint32_t nodes : {2u, 4u, 8u, 16u}) {
    Case one = allreduce_of({nodes, 1, 1u << 20});
    one.algorithm = Algorithm::shared_ring;
    const auto ends = measured(one);
    tune::CollectiveRequest request = request_of(one);
    request.algorithm = Algorithm::shared_ring;
    const auto price =
        static_cast<double>(tune::choose(request, topology_of(one), machine_of_hdr).cost());
    const auto time = static_cast<double>(*std::max_element(ends.begin(), ends.end()));
    EXPECT_NEAR(price / time, 1, 0.06)
        << nodes << " nodes: " << price / 1e6 << " and " << time / 1e6 << " us";
  }
}
TEST(NodeTime, of_the_shared_ring_is_its_price) {
  const MachineFile file;
  for (const RingShape& shape : {RingShape{4, 1, 1u << 20},
                                 {8, 1, 256u << 10},
                                 {16, 1, 256u << 10},
                                 {32, 1, 256u << 10},
                                 {4, 4, 256u << 10},
                                 {8, 2, 512u << 10},
                                 {16, 2, 256u << 10}}) {
    Case one = allreduce_of(shape);
    one.algorithm = Algorithm::shared_ring;
    const auto ends = measured(one);
    tune::CollectiveRequest request = request_of(one);
    request.algorithm = Algorithm::shared_ring;
    const auto price = static_cast<double>(tune::choose(request, topology_of(one), machine).cost());
    const auto time = static_cast<double>(*std::max_element(ends.begin(), ends.end()));
    EXPECT_NEAR(price / time, 1, shape.per_node == 1 ? 0.02 : 0.08)
        << shape.text() << ": " << price / 1e6 << " and " << time / 1e6 << " us";
  }
}

/// Nor does either half of it cost anything else.
TEST(NodeTime, of_either_half_of_the_shared_ring_is_its_price) {
  const MachineFile file;
  for (const tune::Collective collective :
       {tune::Collective::allgather, tune::Collective::reduce_scatter})
    for (const RingShape& shape : {RingShape{4, 1, 1u << 20},
                                   {16, 1, 1u << 20},
                                   {8, 1, 256u << 10},
                                   {4, 1, 4u << 20},
                                   {8, 1, 64u << 10}}) {
      Case one = allreduce_of(shape);
      one.collective = collective;
      one.algorithm = Algorithm::shared_ring;
      if (collective == tune::Collective::allgather) one.elements /= one.rank_count;
      const auto ends = measured(one);
      tune::CollectiveRequest request = request_of(one);
      request.algorithm = Algorithm::shared_ring;
      const auto price =
          static_cast<double>(tune::choose(request, topology_of(one), machine).cost());
      const auto time = static_cast<double>(*std::max_element(ends.begin(), ends.end()));
      EXPECT_NEAR(price / time, 1, 0.03) << tune::name_of(collective) << ", " << shape.text()
                                         << ": " << price / 1e6 << " and " << time / 1e6 << " us";
    }
}

/// And where it is taken because of its price, it is faster than what is taken where some rank has
/// no room for it.
TEST(NodeTime, of_the_shared_ring_is_the_least_where_it_is_taken) {
  const MachineFile file;
  const auto time_of = [](const Case& one) {
    const auto ends = measured(one);
    return *std::max_element(ends.begin(), ends.end());
  };
  const auto expect_less = [&](Case taken, const char* other) {
    Case otherwise = taken;  // ranks that may sleep do not take the ring
    otherwise.wait = WaitPolicy::block;
    otherwise.taken = other;
    taken.taken = "shared_ring";
    EXPECT_LT(time_of(taken), time_of(otherwise)) << taken.text();
  };
  for (const RingShape& shape : {RingShape{4, 1, 1u << 20}, {8, 1, 256u << 10}})
    expect_less(allreduce_of(shape), "chunked_fold");
  // Lanes of nodes of unequal size have no turns, so the ring is faster.
  for (const std::vector<std::uint32_t>& sizes :
       {std::vector<std::uint32_t>{8, 4, 8, 2}, {16, 8}, {3, 1, 2, 4}})
    for (const std::size_t bytes : {64u << 10, 256u << 10})
      expect_less({.collective = allreduce,
                   .rank_count = std::accumulate(sizes.begin(), sizes.end(), 0u),
                   .ranks_per_node = sizes,
                   .elements = bytes / 8},
                  nullptr);
  Case narrow = allreduce_of({4, 1, 1u << 20});  // the ring needs 3.7 MB
  narrow.arena_bytes = 4u << 20;
  narrow.taken = "chunked_fold";
  (void)time_of(narrow);
}

/// Two ranks of one node, a payload of one element: what is stored, seen, claimed and copied, one
/// after the other.
TEST(NodeTime, of_the_shared_ring_inside_a_node) {
  const MachineFile file;
  const plan::NodeMemory& inside = machine.inside;
  const auto ends = measured({.collective = allreduce,
                              .rank_count = 2,
                              .ranks_per_node = {2},
                              .elements = 1,
                              .algorithm = Algorithm::shared_ring});
  // A contribution to two chunks, one of which is empty, is seen; a rank claims the other chunk,
  // combines twice less the first copy, and says so.
  const auto at_least = inside.store_time(8) + inside.latency + inside.receive_overhead +
                        machine.between.work_time(8);
  for (const std::int64_t end : ends) {
    EXPECT_GE(end, at_least);
    EXPECT_LE(end, 3 * at_least);
  }
}

/// Draws a cell of the grid of docs/performance.md ("Nodes of many ranks"), of 64 ranks at most.
/// Returns nothing if its blocks have no element, or if its payload goes through the plan in
/// several chunks, which follow each other closer than the events of one plan can tell.
std::optional<Case> arbitrary_cell(plan::test::Random& random, const char* preset) {
  constexpr tune::Collective collectives[] = {barrier, allreduce, broadcast,
                                              reduce,  allgather, alltoall};
  const std::uint32_t nodes = 4U << random.below(4);
  const std::uint32_t per_node = std::array{1U, 4U, 8U, 32U}[random.below(4)];
  const std::size_t bytes = std::size_t{8} << 3 * random.below(7);
  Case cell{.collective = collectives[random.below(6)],
            .rank_count = nodes * per_node,
            .ranks_per_node = {per_node},
            .chunk_bytes = std::size_t{16} << 20,
            .preset = preset};
  if (cell.rank_count > 64) return {};
  if (cell.collective != barrier)
    cell.elements = bytes / 8 / (is_of_blocks(cell) ? cell.rank_count : 1);
  if (cell.collective != barrier && cell.elements == 0) return {};
  cell.arena_bytes = bytes > 1 << 20 ? 64U << 20 : bytes > 4096 ? 16U << 20 : 1U << 20;
  const tune::Choice choice = choice_of(cell);
  const plan::Plan plan = choice.plan(Rank{0});
  const std::size_t chunk = tune::chunk_bytes_for(plan, per_node > 1, *cell.chunk_bytes);
  if (choice.row().is_flow ||
      tune::chunk_count(cell.elements, 8, is_of_blocks(cell) ? 1 : plan.parts, chunk) > 1)
    return {};
  return cell;
}

TEST(LongNodeTime, of_a_sample_of_the_cells_whose_choices_are_priced) {
  plan::test::Random random(60);
  for (const auto& [preset, network] : {std::pair{"fdr", machine}, {"hdr", machine_of_hdr}}) {
    const MachineFile file(description(preset, work));
    for (int checked = 0; checked < 30;) {
      const std::optional<Case> cell = arbitrary_cell(random, preset);
      if (!cell) continue;
      EXPECT_EQ(measured(*cell), expected(*cell, network)) << cell->text();
      ++checked;
    }
  }
}

/// Draws a call of 4 to 96 ranks, mostly on nodes of unequal size, in one chunk or several.
/// Returns nothing if plans do not tell its time: a flow of chunks, chunks whose parts differ in
/// length, and several chunks of lines.
std::optional<Case> arbitrary_call(plan::test::Random& random, tune::Collective collective) {
  Case call{.collective = collective, .rank_count = 0, .ranks_per_node = {}};
  const bool is_large = random.below(8) == 0;
  const std::uint32_t ranks_max = is_large ? 96 : 24;
  const std::uint32_t most = random.between(2, is_large ? 24 : 6);
  const std::uint32_t nodes = random.between(2, ranks_max / most);
  const bool has_equal_nodes = random.below(4) == 0;
  for (std::uint32_t node = 0; node < nodes; ++node) {
    call.ranks_per_node.push_back(has_equal_nodes ? most : random.between(1, most));
    call.rank_count += call.ranks_per_node.back();
  }
  if (random.below(3) == 0) call.placement = Placement::cyclic;
  if (random.below(4) == 0) call.notify = Notify::flag;
  call.arena_bytes = 8u << 20;
  if (call.collective == barrier) return call;
  call.chunk_bytes = std::size_t{512} << random.below(2);
  const std::size_t unit = call.collective == reduce_scatter ? call.rank_count : 1;
  // The lengths are such that the parts of all chunks can be equally long.
  call.elements = unit * std::size_t{random.between(1, 4)} << random.between(0, 10);
  const tune::Choice choice = choice_of(call);
  const plan::Plan plan = choice.plan(Rank{0});
  const std::size_t chunks = chunks_of(call, plan);
  const std::size_t parts = is_of_blocks(call) ? 1 : plan.parts;
  if (choice.row().is_flow ||
      (chunks > 1 && (call.elements % (parts * chunks) != 0 || call.notify == Notify::flag)))
    return {};
  return call;
}

TEST(LongNodeTime, of_arbitrary_shapes) {
  plan::test::Random random(96);
  const MachineFile file;
  constexpr tune::Collective collectives[] = {barrier,        allreduce, broadcast, reduce,
                                              allgather,      alltoall,  gather,    scatter,
                                              reduce_scatter, scan,      exscan};
  std::uint32_t most_ranks = 0;
  int unequal = 0, of_several_chunks = 0;
  for (int checked = 0; checked < 30;) {
    const std::optional<Case> call = arbitrary_call(
        random, collectives[static_cast<std::size_t>(checked) % std::size(collectives)]);
    if (!call) continue;
    ++checked;
    const std::vector<std::int64_t> ends = measured(*call), times = expected(*call, machine);
    const std::size_t chunks = chunks_of(*call, choice_of(*call).plan(Rank{0}));
    const bool has_root = request_of(*call).root != no_rank;
    if (chunks > 1 && has_root)  // then only the time of the last rank holds
      EXPECT_EQ(*std::max_element(ends.begin(), ends.end()),
                *std::max_element(times.begin(), times.end()))
          << call->text();
    else
      EXPECT_EQ(ends, times) << call->text() << ", " << chunks << " chunks";
    most_ranks = std::max(most_ranks, call->rank_count);
    of_several_chunks += chunks > 1;
    unequal += !topology_of(*call).has_equal_nodes();
  }
  EXPECT_GT(most_ranks, 64u);
  EXPECT_GT(of_several_chunks, 5);
  EXPECT_GT(unequal, 10);
}

TEST(NodeTime, of_many_ranks) {
  Case one{allreduce, 96, {8}, 1};
  one.arena_bytes = 1U << 20;
  Case other{allreduce, 96, {16}, 255};
  other.arena_bytes = 2U << 20;
  expect_equal({one, other});
}

}  // namespace
}  // namespace tutti
