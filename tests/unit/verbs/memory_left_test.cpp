// Promise: what is left is what the nearest limit leaves, of the host or of a control group of
// either version.
#include "verbs/memory_left.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tutti::verbs {
namespace {

class Files : public testing::Test {
 protected:
  void SetUp() override {
    root_ =
        std::filesystem::path(testing::TempDir()) / ("memory_left." + std::to_string(::getpid()));
    std::filesystem::create_directories(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  MemoryLeft left() const {
    return memory_left(
        {.meminfo = root_ / "meminfo", .own_cgroup = root_ / "own", .cgroups = root_ / "groups"});
  }

 private:
  std::filesystem::path root_;
};

TEST_F(Files, of_a_host_that_says_nothing) {
  EXPECT_EQ(left().bytes, SIZE_MAX);
}

TEST_F(Files, of_a_group_of_the_first_version_without_limit) {
  write("own", "8:memory:/job\n");
  write("groups/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  write("groups/memory/job/memory.usage_in_bytes", "40000\n");
  EXPECT_EQ(left().bytes, SIZE_MAX);
}

TEST_F(Files, of_the_host) {
  write("meminfo", "MemTotal:       1000 kB\nMemFree: 5 kB\nMemAvailable:    300 kB\n");
  write("own", "0::/job\n");
  write("groups/job/memory.max", "max\n");
  write("groups/job/memory.current", "1000\n");
  EXPECT_EQ(left().bytes, 300u * 1024);
  EXPECT_EQ(left().limited_by, "this host");
}

TEST_F(Files, of_the_nearest_limit_above_the_own_group) {
  write("meminfo", "MemAvailable:    300 kB\n");
  write("own", "0::/job/step/task\n");
  write("groups/job/memory.max", "200000\n");
  write("groups/job/memory.current", "150000\n");
  write("groups/job/memory.stat",
        "anon 7\ninactive_file 20000\nactive_file 9000\nslab_reclaimable 1000\n");
  write("groups/job/step/task/memory.max", "100000\n");
  write("groups/job/step/task/memory.current", "10000\n");
  EXPECT_EQ(left().bytes, 80'000u);
  EXPECT_EQ(left().limited_by, "memory.max of control group /job");
  write("groups/job/step/task/memory.current", "120000\n");
  EXPECT_EQ(left().bytes, 0u);
}

TEST_F(Files, of_the_first_version) {
  write("meminfo", "MemAvailable:    300 kB\n");
  write("own", "9:name=systemd:/x\n8:memory:/job\n0::/y\n");
  write("groups/memory/job/memory.limit_in_bytes", "90000\n");
  write("groups/memory/job/memory.usage_in_bytes", "40000\n");
  write("groups/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 1000\n");
  EXPECT_EQ(left().bytes, 51'000u);
  EXPECT_EQ(left().limited_by, "memory.limit_in_bytes of control group /job");
}

TEST_F(Files, of_a_container_that_sees_its_own_group_only) {
  write("meminfo", "MemAvailable:    300 kB\n");
  write("own", "8:memory:/docker/x\n0::/init.scope\n");
  write("groups/memory/memory.limit_in_bytes", "90000\n");
  write("groups/memory/memory.usage_in_bytes", "40000\n");
  EXPECT_EQ(left().bytes, 50'000u);
  write("groups/memory.max", "70000\n");
  write("groups/memory.current", "40000\n");
  EXPECT_EQ(left().bytes, 30'000u);
  EXPECT_EQ(left().limited_by, "memory.max of control group /");
}

}  // namespace
}  // namespace tutti::verbs
