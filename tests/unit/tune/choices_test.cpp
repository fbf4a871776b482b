// Promise: for every request of the grid the choice is that of tests/data/choices.txt.  A
// difference is intended or a mistake: what is intended is looked at, line by line, and the file
// replaced by the one that the test leaves behind.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>

#include "cases.hpp"
#include "plan/core/nodes.hpp"
#include "tune/choose.hpp"
#include "tune/chunks.hpp"

namespace tutti::test {

plan::Plan plan_of(const Case& given, Rank self) {
  tune::CollectiveRequest request{
      .collective = given.collective,
      .reduction = given.reduction,
      .agreement = given.agreement,
      .root = given.root == no_rank ? Rank{given.rank_count - 1} : given.root,
      .block_bytes = given.block_bytes,
      .participant_count = given.participant_count,
      .slack = given.slack,
      .algorithm = given.algorithm,
      .across = given.across,
      .tree = given.tree,
      .per_round = given.per_round,
      .per_round_by_default = given.per_round_by_default,
      .partners_max = given.partners_max,
      .shares_target = given.shares_target,
      .zero_copy = given.zero_copy,
      .reads_in_place = given.single_copy};
  if (request.reduction.element_bytes == 0) request.reduction.element_bytes = 1;
  if (given.collective != tune::Collective::barrier)
    request.element_count = given.bytes / request.reduction.element_bytes;
  return tune::plan_for(
      request,
      {.rank_count = given.rank_count, .node_of = given.node_of, .domain_of = given.domain_of},
      self, tune::Knowledge());  // by the preset fdr
}

std::size_t chunk_bytes_of(const plan::Plan& plan, const Case& given) {
  return tune::chunk_bytes_for(plan, plan::node_count_of(given.node_of, 0) < given.rank_count);
}

namespace {

/// What comes before the choices in a line.
std::string heading_of(const std::string& line) {
  return line.substr(0, line.find(": "));
}

TEST(Choices, are_those_of_the_list) {
  std::map<std::string, std::string> listed;  // by heading
  std::ifstream list(TUTTI_TEST_DATA "/choices.txt");
  for (std::string line; std::getline(list, line);) listed.emplace(heading_of(line), line);
  ASSERT_GT(listed.size(), 1000u) << "tests/data/choices.txt cannot be read";
  std::ofstream actual("choices.actual.txt");
  std::size_t different = 0;
  for_each_line([&](const std::string& line) {
    actual << line << "\n";
    const auto expected = listed.extract(heading_of(line));
    if (expected && expected.mapped() == line) return;
    if (++different <= 20)
      ADD_FAILURE() << "  listed: " << (expected ? expected.mapped() : "nothing")
                    << "\n  chosen: " << line;
  });
  EXPECT_EQ(different, 0u) << "lines differ; see choices.actual.txt in the directory of the test";
  EXPECT_TRUE(listed.empty()) << listed.size() << " lines are listed, and not in the grid: "
                              << listed.begin()->second;
}

}  // namespace
}  // namespace tutti::test
