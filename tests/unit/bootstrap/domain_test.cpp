// Which ranks of a node are near to each other: what /sys says, and what a shape imposes.
#include "bootstrap/domain.hpp"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "support/scratch_folder.hpp"

namespace tutti::bootstrap {
namespace {

/// A made-up /sys.
class Sys {
 public:
  void write(const std::string& path, const std::string& text) const {
    folder_.write("devices/system/" + path, text + '\n');
  }
  /// Caches of the CPUs: level, type, those who share it.
  struct Cache {
    int level;
    const char* type;
    const char* sharers;
  };
  void caches(const char* cpus, std::initializer_list<Cache> all) const {
    for (const unsigned cpu : detail::parse_cpu_list(cpus).list()) {
      int index = 0;
      for (const Cache& cache : all) {
        const std::string path =
            "cpu/cpu" + std::to_string(cpu) + "/cache/index" + std::to_string(index++) + "/";
        const bool is_own = std::string(cache.sharers) == "own";
        write(path + "level", std::to_string(cache.level));
        write(path + "type", cache.type);
        write(path + "shared_cpu_list", is_own ? std::to_string(cpu) : cache.sharers);
      }
      write("cpu/cpu" + std::to_string(cpu) + "/cache/uevent", "");
    }
  }
  const std::string& root() const { return folder_.path(); }

 private:
  test::ScratchFolder folder_;
};

CpuDomain domain(const char* allowed, const Sys& sys) {
  return domain_of(detail::parse_cpu_list(allowed), sys.root());
}

/// Two caches of four CPUs, one NUMA node.
void write_two_caches(const Sys& sys) {
  for (const char* cpus : {"0-3", "4-7"})
    sys.caches(cpus, {{1, "Data", "own"},
                      {1, "Instruction", "own"},
                      {2, "Unified", "own"},
                      {3, "Unified", cpus}});
  sys.write("node/node0/cpulist", "0-7");
}

// Protects: ranks that share a last-level cache have one domain, named alike by all of them.
TEST(Domain, is_that_of_the_last_cache) {
  const Sys sys;
  write_two_caches(sys);
  EXPECT_EQ(domain("0", sys).name(), 0u);
  EXPECT_EQ(domain("2-3", sys).name(), 0u);
  EXPECT_EQ(domain("5", sys).name(), 4u);
  EXPECT_EQ(domain("4-7", sys).name(), 4u);
  EXPECT_EQ(text_of(domain("5", sys).cpus), "4-7");
  EXPECT_EQ(domain("5", sys).reason, "last-level cache");
}

// Protects: whoever may move between domains is in none.
TEST(Domain, of_a_rank_that_may_run_in_several_there_is_none) {
  const Sys sys;
  write_two_caches(sys);
  for (const char* allowed : {"0-7", "3-4", "0,4"}) {
    EXPECT_EQ(domain(allowed, sys).name(), no_domain) << allowed;
    EXPECT_EQ(domain(allowed, sys).reason, "the allowed CPUs belong to several domains");
  }
}

// Protects: a NUMA node that is smaller than the cache bounds the domain.
TEST(Domain, ends_where_the_numa_node_ends) {
  const Sys sys;
  sys.caches("0-7", {{1, "Data", "own"}, {3, "Unified", "0-7"}});
  sys.write("node/node0/cpulist", "0-1,4-5");
  sys.write("node/node1/cpulist", "2-3,6-7");
  EXPECT_EQ(text_of(domain("4", sys).cpus), "0-1,4-5");
  EXPECT_EQ(domain("7", sys).name(), 2u);
  EXPECT_EQ(domain("7", sys).reason, "NUMA node");
  EXPECT_EQ(domain("1-2", sys).name(), no_domain);
}

// Protects: threads of a core share caches that are no domain.
TEST(Domain, a_cache_of_one_core_is_none) {
  const Sys sys;
  for (const char* core : {"0,4", "1,5", "2,6", "3,7"})
    sys.caches(core, {{1, "Data", core}, {1, "Instruction", core}, {2, "Unified", core}});
  sys.write("node/node0/cpulist", "0-1,4-5");
  sys.write("node/node1/cpulist", "2-3,6-7");
  EXPECT_EQ(text_of(domain("5", sys).cpus), "0-1,4-5");
  EXPECT_EQ(text_of(domain("2,6", sys).cpus), "2-3,6-7");
}

// Protects: levels decide which cache is last, not the order of folders.
TEST(Domain, the_highest_level_is_last) {
  const Sys sys;
  sys.caches("0-7", {{3, "Unified", "0-7"}, {1, "Data", "own"}, {2, "Unified", "own"}});
  EXPECT_EQ(text_of(domain("3", sys).cpus), "0-7");
}

// Protects: nothing is made up where the kernel is silent, and CPUs without a node have a cache.
TEST(Domain, of_nothing_known_there_is_none) {
  const Sys nothing;
  EXPECT_EQ(domain("0", nothing).name(), no_domain);
  EXPECT_EQ(domain("", nothing).name(), no_domain);
  EXPECT_EQ(domain_of(detail::parse_cpu_list("0"), "/nowhere").name(), no_domain);
  const Sys garbled;
  garbled.write("cpu/cpu0/cache/index0/level", "three");
  garbled.write("cpu/cpu0/cache/index0/shared_cpu_list", "0-3");
  garbled.write("cpu/cpu0/cache/index3/level", "3");
  garbled.write("cpu/cpu0/cache/index3/shared_cpu_list", "4-7");  // others' only
  EXPECT_EQ(domain("0", garbled).name(), no_domain);
  const Sys caches;
  caches.caches("0-3", {{1, "Data", "own"}, {3, "Unified", "0-3"}});
  EXPECT_EQ(domain("1-3", caches).name(), 0u);
}

// Protects: this machine's own /sys is read without a fault, and gives a set around this thread.
TEST(Domain, of_this_thread_is_around_it) {
  const CpuDomain mine = domain_of(detail::allowed_cpus());
  if (mine.name() == no_domain) GTEST_SKIP() << mine.reason;
  for (const unsigned cpu : detail::allowed_cpus().list()) EXPECT_TRUE(mine.cpus.contains(cpu));
}

NodeMap nodes_of(std::vector<std::uint32_t> ranks_per_node, Placement placement,
                 std::uint32_t rank_count) {
  return imposed_node_map({.rank_count = rank_count,
                           .ranks_per_node = std::move(ranks_per_node),
                           .placement = placement});
}

std::vector<std::uint32_t> numbers(const std::vector<Node>& map) {
  std::vector<std::uint32_t> all;
  for (const Node domain : map) all.push_back(index_of(domain));
  return all;
}
using Numbers = std::vector<std::uint32_t>;

// Protects: domains are numbered by lowest rank, equal names of two nodes are two domains.
TEST(DomainMap, numbers_domains_by_lowest_rank) {
  const NodeMap nodes = nodes_of({4}, Placement::block, 8);
  const Numbers names{8, 0, 8, 0, 0, 0, 8, 8};
  EXPECT_EQ(numbers(domain_map(nodes, names, 0)), (Numbers{0, 1, 0, 1, 2, 2, 3, 3}));
}

// Protects: a tree is built only where it can gain: several domains, with several ranks in one,
// known of all ranks, of more ranks than it takes; node by node.
TEST(DomainMap, where_there_is_nothing_to_gain_the_node_is_one) {
  const NodeMap one = nodes_of({4}, Placement::block, 4);
  EXPECT_EQ(numbers(domain_map(one, Numbers{0, 0, 4, 4}, 3)), (Numbers{0, 0, 1, 1}));
  EXPECT_EQ(numbers(domain_map(one, Numbers{0, 0, 4, 4}, 4)), (Numbers{0, 0, 0, 0})) << "too few";
  EXPECT_EQ(numbers(domain_map(one, Numbers{0, 0, 4, no_domain}, 0)), (Numbers{0, 0, 0, 0}));
  EXPECT_EQ(numbers(domain_map(one, Numbers{0, 2, 4, 6}, 0)), (Numbers{0, 0, 0, 0}));
  EXPECT_EQ(numbers(domain_map(one, Numbers{4, 4, 4, 4}, 0)), (Numbers{0, 0, 0, 0}));
  const NodeMap two = nodes_of({4, 2}, Placement::cyclic, 6);  // 0 1 0 1 0 0
  EXPECT_EQ(numbers(domain_map(two, Numbers{0, 0, 4, 4, 0, 4}, 2)), (Numbers{0, 1, 2, 1, 0, 2}));
}

// Protects: an imposed shape divides each node anew, in rank order.
TEST(DomainMap, is_imposed_within_each_node) {
  EXPECT_EQ(numbers(imposed_domain_map(nodes_of({5}, Placement::block, 10), Numbers{2})),
            (Numbers{0, 0, 1, 1, 2, 3, 3, 4, 4, 5}));
  EXPECT_EQ(numbers(imposed_domain_map(nodes_of({5}, Placement::cyclic, 10), Numbers{3, 1})),
            (Numbers{0, 1, 0, 1, 0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(numbers(imposed_domain_map(nodes_of({4}, Placement::block, 4), Numbers{1})),
            (Numbers{0, 0, 0, 0}))
      << "each rank alone is as flat as no domains";
}

}  // namespace
}  // namespace tutti::bootstrap
