// Promise: every row of the registry builds plans that keep what it says, every schedule that can
// be asked for has one row, and the tables of algorithms/README.md and docs/choosing_and_tuning.md
// have the names of the rows, and no others.
#include "tune/registry.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <tutti/detail/names.hpp>
#include <utility>
#include <vector>

#include "asked.hpp"
#include "plan/core/verify.hpp"
#include "row_plans.hpp"

namespace tutti::tune {
namespace {

/// Words in backquotes.
std::vector<std::string> quoted_in(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t at = text.find('`'); at != std::string::npos; at = text.find('`', at)) {
    const std::size_t end = text.find('`', at + 1);
    if (end == std::string::npos) break;
    words.push_back(text.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return words;
}

/// Names in the first column of the table that begins so; "leader/..." is leader.
std::set<std::string> names_of_table(const char* page, const char* heading) {
  std::set<std::string> names;
  std::ifstream file(page);
  bool in_table = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(heading)) in_table = true;
    if (!line.starts_with("|")) in_table = false;
    if (!in_table) continue;
    for (const std::string& name : quoted_in(line.substr(0, line.find(" | "))))
      names.insert(name.substr(0, name.find('/')));
  }
  return names;
}

std::set<std::string> words_of(const std::string& text) {
  std::set<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    words.insert(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

TEST(Registry, the_table_of_schedules_has_its_names_and_no_others) {
  const std::set<std::string> listed = names_of_table(TUTTI_SCHEDULES_TABLE, "| name | rounds |");
  ASSERT_GT(listed.size(), 20u) << TUTTI_SCHEDULES_TABLE " cannot be read";
  std::set<std::string> known;
  for (const Row& row : registry()) {
    EXPECT_TRUE(listed.contains(row.name)) << row.name << " is not in " TUTTI_SCHEDULES_TABLE;
    known.insert(row.name);
    known.merge(words_of(row.also));
  }
  for (const std::string& name : listed)
    EXPECT_TRUE(known.contains(name)) << name << " is listed, and is in no row";
}

TEST(Registry, the_page_for_users_has_each_allreduce_that_can_be_asked_for_and_no_other_names) {
  const std::set<std::string> listed = names_of_table(TUTTI_SCHEDULES_PAGE, "| name | takes |");
  ASSERT_GT(listed.size(), 10u) << TUTTI_SCHEDULES_PAGE " cannot be read";
  std::set<std::string> known;
  for (const Row& row : registry()) {
    if (row.collective == Collective::allreduce && row.algorithm != Algorithm::automatic) {
      EXPECT_TRUE(listed.contains(row.name)) << row.name << " is not in " TUTTI_SCHEDULES_PAGE;
    }
    known.insert(row.name);
  }
  for (const std::string& name : listed)
    EXPECT_TRUE(known.contains(name)) << name << " is listed, and is in no row";
}

TEST(Registry, every_schedule_that_can_be_asked_for_has_one_row) {
  for (auto algorithm = Algorithm::dissemination; algorithm <= Algorithm::canonical_halving;
       algorithm = static_cast<Algorithm>(static_cast<int>(algorithm) + 1)) {
    std::vector<std::string> rows;
    for (const Row& row : registry())
      if (row.collective == Collective::allreduce && row.algorithm == algorithm)
        rows.push_back(row.name);
    EXPECT_EQ(rows, std::vector<std::string>{name_of(algorithm)});
    EXPECT_STREQ(row_of(algorithm).name, name_of(algorithm));
  }
  EXPECT_THROW(
      (void)row_of(static_cast<Algorithm>(static_cast<int>(Algorithm::canonical_halving) + 1)),
      Error);
}

struct Promised {
  plan::Promise promise;
  Rank root = no_rank;
};

/// What the plans of a row have to keep.
Promised promised_by(const Row& row, const CollectiveRequest& request) {
  using plan::Promise;
  switch (row.collective) {
    case Collective::barrier:
      return {Promise::barrier};
    case Collective::broadcast:
      return {Promise::broadcast, request.root};
    case Collective::reduce:
      return {is_canonical_tree(row) ? Promise::canonical_tree : Promise::each_once, request.root};
    case Collective::reduce_scatter:
      return {row.association == Association::canonical ? Promise::reduce_scatter
                                                        : Promise::reduce_scatter_any_order};
    case Collective::allgather:
    case Collective::alltoall:
      return {Promise::gather};
    case Collective::gather:
      return {Promise::gather, request.root};
    case Collective::scatter:
      return {Promise::scatter, request.root};
    case Collective::scan:
      return {Promise::scan};
    case Collective::exscan:
      return {Promise::exscan};
    case Collective::allreduce:
    case Collective::allreduce_ssp:
      break;
  }
  if (row.needs_idempotent) return {Promise::at_least_once};
  // Two ranks that read each other's contribution combine in either order, which is the same in
  // all bits for the operators that this is done for.
  if (row.hierarchy != Hierarchy::flat || row.association == Association::any ||
      row.name == std::string("single_copy"))
    return {Promise::each_once};
  return {row.association == Association::canonical ? Promise::canonical_tree
                                                    : Promise::same_result};
}

/// The name of a plan that runs node by node goes on with what runs across the nodes.
bool is_name_of(const Row& row, const std::string& algorithm) {
  const std::string name = algorithm.substr(0, algorithm.find('/'));
  return name == row.name || words_of(row.also).contains(name);
}

/// Calls `visit` with a query and a variant of each that there is a plan for.
template <class F>
void for_plans(const Row& row, F&& visit) {
  for (const std::uint32_t rank_count : {1u, 2u, 3u, 5u, 8u, 12u, 40u})
    for (const std::uint32_t ranks_per_node : {1u, 3u}) {
      Topology topology{.rank_count = rank_count};
      const bool has_domains = row.hierarchy == Hierarchy::domains;  // of two ranks each
      const bool has_groups = row.hierarchy == Hierarchy::groups;
      const std::uint32_t node_ranks = has_groups    ? 7 + ranks_per_node
                                       : has_domains ? 2 * ranks_per_node
                                                     : ranks_per_node;
      for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
        topology.node_of.push_back(Node{rank / node_ranks});
        if (has_domains) topology.domain_of.push_back(Node{rank / 2});
      }
      for (const CollectiveRequest& request : requests_for(row, rank_count)) {
        const Query query{request, topology, fdr};
        for (const Variant& variant : variants_of(row, query)) visit(query, variant);
      }
    }
}

TEST(Registry, every_row_builds_plans_that_keep_what_it_says) {
  for (const Row& row : registry()) {
    if (row.is_flow) continue;
    std::size_t count = 0;
    for_plans(row, [&](const Query& query, const Variant& variant) {
      std::vector<plan::Plan> plans;
      for (std::uint32_t rank = 0; rank < query.topology.rank_count; ++rank)
        plans.push_back(row.build(query, variant, Rank{rank}));
      const auto [promise, root] = promised_by(row, query.request);
      const std::string where = std::string(name_of(row.collective)) + " by " + row.name + ", " +
                                std::to_string(query.topology.rank_count) + " ranks on " +
                                std::to_string(query.topology.node_count()) + " nodes, " +
                                std::to_string(query.request.bytes()) + " bytes";
      EXPECT_EQ(plan::first_violation(plans, promise, root).value_or("none"), "none") << where;
      // Where nothing is to be done node by node, plans have the name of what runs over all.
      if (plans.size() > 1 &&
          (row.hierarchy == Hierarchy::flat || query.topology.has_shared_nodes())) {
        EXPECT_TRUE(is_name_of(row, plans[0].algorithm)) << where << ": " << plans[0].algorithm;
      }
      ++count;
    });
    EXPECT_GT(count, 0u) << name_of(row.collective) << " by " << row.name << " was not built";
  }
}

}  // namespace
}  // namespace tutti::tune
