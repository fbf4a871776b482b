// Promise: for every request of the grid the choice is that of tests/data/choices.txt.  A difference
// is intended or a mistake: what is intended is looked at, line by line, and the file replaced by the
// one that the test leaves behind.
#include <gtest/gtest.h>

#include <fstream>

#include "api/block_selection.hpp"
#include "api/rooted_selection.hpp"
#include "api/selection.hpp"
#include "cases.hpp"
#include "plan/core/nodes.hpp"

namespace tutti::test {

plan::Plan plan_of(const Case& given, Rank self) {
  const std::uint32_t ranks = given.rank_count;
  const Rank root = given.root == no_rank ? Rank{ranks - 1} : given.root;
  const api::AllreduceRequest combines{
      .element_count = given.reduction.element_bytes > 0
                           ? given.bytes / given.reduction.element_bytes
                           : 0,
      .reduction = given.reduction,
      .agreement = given.agreement,
      .algorithm = given.algorithm,
      .across = given.across,
      .per_round = given.per_round,
      .per_round_by_default = given.per_round_by_default,
      .partners_max = given.partners_max,
      .node_of = given.node_of,
      .domain_of = given.domain_of,
      .shares_target = given.shares_target,
      .zero_copy = given.zero_copy,
      .single_copy = given.single_copy};
  const plan::Transport transport =
      given.single_copy ? plan::Transport::by_reference : plan::Transport::copied;
  switch (given.what) {
    case What::allreduce:
      return api::allreduce_plan(self, ranks, combines);
    case What::shared_ring:
      return api::shared_ring_partners(self, ranks, combines);
    case What::allreduce_ssp:
      return api::stale_plan(self, ranks, given.bytes, given.per_round_by_default, given.slack);
    case What::barrier:
      return api::barrier_plan(self, ranks,
                               {.algorithm = given.algorithm,
                                .across = given.across,
                                .per_round = given.per_round,
                                .per_round_by_default = given.per_round_by_default,
                                .node_of = given.node_of,
                                .domain_of = given.domain_of});
    case What::broadcast:
      return api::broadcast_plan(self, ranks,
                                 {.root = root,
                                  .bytes = given.bytes,
                                  .per_round_by_default = given.per_round_by_default,
                                  .node_of = given.node_of,
                                  .single_copy = given.single_copy,
                                  .tree = given.tree});
    case What::reduce:
      return api::reduce_plan(self, ranks,
                              {.root = root,
                               .combines = combines,
                               .participant_count = given.participant_count,
                               .single_copy = given.single_copy,
                               .tree = given.tree});
    case What::reduce_scatter:
      return api::reduce_scatter_plan(self, ranks,
                                      {.bytes = given.bytes,
                                       .reduction = given.reduction,
                                       .agreement = given.agreement,
                                       .node_of = given.node_of});
    case What::allgather: {
      api::AllgatherRequest request{
          .block_bytes = given.block_bytes.empty() ? std::vector(ranks, given.bytes)
                                                   : given.block_bytes,
          .per_round_by_default = given.per_round_by_default,
          .node_of = given.node_of,
          .transport = transport};
      api::cut_into_pieces(request);
      return api::allgather_plan(self, request);
    }
    case What::alltoall:
      return api::alltoall_plan(self, ranks,
                                {.block_bytes = given.bytes,
                                 .node_of = given.node_of,
                                 .transport = transport});
    case What::gather:
    case What::scatter: {
      const api::RootedBlocksRequest request{.root = root,
                                             .block_bytes = given.bytes,
                                             .node_of = given.node_of,
                                             .transport = transport};
      return given.what == What::gather ? api::gather_plan(self, ranks, request)
                                        : api::scatter_plan(self, ranks, request);
    }
    case What::scan:
    case What::exscan:
      break;
  }
  return api::scan_plan(self, ranks,
                        {.kind = given.what == What::scan ? plan::Prefix::inclusive
                                                          : plan::Prefix::exclusive,
                         .reduction = given.reduction,
                         .node_of = given.node_of});
}

std::size_t chunk_bytes_of(const plan::Plan& plan, const Case& given) {
  return api::chunk_bytes_for(plan,
                              plan::node_count_of(given.node_of, 0) < given.rank_count);
}

namespace {

TEST(Choices, are_those_of_the_list) {
  std::ifstream list(TUTTI_TEST_DATA "/choices.txt");
  std::ofstream actual("choices.actual.txt");
  std::size_t number = 0, different = 0;
  for_each_line([&](const std::string& line) {
    std::string expected;
    std::getline(list, expected);
    ++number;
    actual << line << "\n";
    if (line == expected || ++different > 20) return;
    ADD_FAILURE() << "line " << number << "\n  listed: " << expected << "\n  chosen: " << line;
  });
  std::string rest;
  EXPECT_FALSE(std::getline(list, rest)) << "listed, and not in the grid: " << rest;
  EXPECT_EQ(different, 0u) << "lines differ; see choices.actual.txt in the directory of the test";
  EXPECT_GT(number, 1000u);
}

}  // namespace
}  // namespace tutti::test
