// Promise: how near a device is comes from the kernel, and where the kernel is silent nothing is
// made up.
#include "verbs/locality.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <string>

#include "support/scratch_folder.hpp"

namespace tutti::verbs {
namespace {

/// A made-up /sys.
class Sys {
 public:
  void write(const std::string& path, const std::string& text) const {
    folder_.write(path, text + '\n');
  }
  void link(const std::string& path, const std::string& target) const {
    std::filesystem::create_symlink(target, folder_.path(path));
  }
  const std::string& root() const { return folder_.path(); }

 private:
  test::ScratchFolder folder_;
};

detail::CpuSet cpus(const char* list) {
  return detail::parse_cpu_list(list);
}

/// 4 nodes of 4 CPUs in a row: each hop costs 10 more.
Surroundings row_of_nodes(const char* allowed) {
  return {.allowed = cpus(allowed),
          .nodes = {{0, cpus("0-3"), {10, 20, 30, 40}},
                    {1, cpus("4-7"), {20, 10, 20, 30}},
                    {2, cpus("8-11"), {30, 20, 10, 20}},
                    {3, cpus("12-15"), {40, 30, 20, 10}}}};
}

TEST(Locality, node_cpus_and_driver_of_a_device_are_read) {
  const Sys sys;
  sys.write("class/infiniband/mlx5_0/device/numa_node", "1");
  sys.write("class/infiniband/mlx5_0/device/local_cpulist", "8-15,24-31");
  sys.link("class/infiniband/mlx5_0/device/driver", "../../../bus/pci/drivers/mlx5_core");
  const Locality locality = locality_of("mlx5_0", sys.root());
  EXPECT_EQ(locality.numa_node, 1u);
  EXPECT_EQ(text_of(locality), "NUMA node 1, CPUs 8-15,24-31");
  EXPECT_EQ(kernel_driver_of("mlx5_0", sys.root()), "mlx5_core");
}

TEST(Locality, device_without_a_node_is_where_its_bus_is) {
  const Sys sys;
  sys.write("class/infiniband/mlx5_0/device/numa_node", "-1");
  sys.write("class/infiniband/mlx5_0/device/local_cpulist", "0-3");
  const Locality locality = locality_of("mlx5_0", sys.root());
  EXPECT_TRUE(locality.known());
  EXPECT_EQ(text_of(locality), "CPUs 0-3");
}

TEST(Locality, virtual_device_is_nowhere) {
  const Sys sys;
  sys.write("class/infiniband/rxe0/node_type", "1: CA");
  EXPECT_FALSE(locality_of("rxe0", sys.root()).known());
  EXPECT_EQ(text_of(locality_of("rxe0", sys.root())), "unknown");
  EXPECT_EQ(kernel_driver_of("rxe0", sys.root()), "");
}

TEST(Locality, nodes_of_the_host_are_read_in_ascending_order) {
  const Sys sys;
  sys.write("devices/system/node/node10/cpulist", "4-7");
  sys.write("devices/system/node/node10/distance", "21 10");
  sys.write("devices/system/node/node2/cpulist", "0-3");
  sys.write("devices/system/node/node2/distance", "10 21");
  sys.write("devices/system/node/online", "2,10");
  const Surroundings found = look_around(sys.root());
  EXPECT_EQ(found.allowed, detail::allowed_cpus());
  ASSERT_EQ(found.nodes.size(), 2u);
  EXPECT_EQ(found.nodes[0].number, 2u);
  EXPECT_EQ(found.nodes[1].number, 10u);
  EXPECT_EQ(text_of(found.nodes[1].cpus), "4-7");
  EXPECT_EQ(found.nodes[0].distances, (std::vector<unsigned>{10, 21}));
}

TEST(Locality, cpus_allowed_are_those_of_the_moment) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  const unsigned last = look_around().allowed.list().back();
  CPU_ZERO(&one);
  CPU_SET(last, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(look_around().allowed.list(), std::vector<unsigned>{last});
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

TEST(Locality, host_without_nodes_has_none) {
  const Sys sys;
  EXPECT_TRUE(look_around(sys.root()).nodes.empty());
}

TEST(Distance, is_the_mean_over_the_cpus_allowed) {
  const Locality on_node_2{.numa_node = 2, .near = cpus("8-11")};
  EXPECT_EQ(distance_to(on_node_2, row_of_nodes("9")), 10);
  EXPECT_EQ(distance_to(on_node_2, row_of_nodes("0")), 30);
  EXPECT_EQ(distance_to(on_node_2, row_of_nodes("0,9")), 20);
  EXPECT_EQ(distance_to(on_node_2, row_of_nodes("0-15")), 20);
}

TEST(Distance, without_a_table_it_is_near_or_far) {
  Surroundings host = row_of_nodes("0");
  for (NumaNode& node : host.nodes) node.distances.clear();
  EXPECT_EQ(distance_to({.numa_node = 0, .near = cpus("0-3")}, host), 10);
  EXPECT_EQ(distance_to({.numa_node = 3, .near = cpus("12-15")}, host), 20);
  EXPECT_EQ(distance_to({.numa_node = {}, .near = cpus("12-15")}, host), 20);
  EXPECT_EQ(distance_to({.numa_node = 9, .near = cpus("30")}, host), 20);
}

TEST(Distance, is_nothing_where_nobody_knows_the_cpus_allowed) {
  EXPECT_EQ(distance_to({.numa_node = 0, .near = cpus("0-3")}, {}), 0);
}

}  // namespace
}  // namespace tutti::verbs
