// Promise: in real time, too, ranks of a node that have joined share its ports of an emulated
// network.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <tutti/bootstrap.hpp>
#include <tutti/tutti.hpp>
#include <vector>

#include "support/fabric_file.hpp"
#include "support/shared.hpp"
#include "verbs/soft/shared_ports.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;

constexpr std::uint32_t rank_count = 4;
constexpr std::size_t block_bytes = 200'000;
constexpr std::int64_t never = INT64_MAX;

/// Each block takes a port for 20 ms.
constexpr const char* network = R"({"latency_us": 1, "gigabytes_per_second": 0.01})";

/// The least time of five alltoalls of two nodes of two ranks, from before the first rank begins
/// until the last one has ended, in nanoseconds; `never` if one is wrong.
std::int64_t least_time(verbs::soft::SharedPorts* ports) {
  const test::FabricFile fabric(network);
  const test::Shared<std::int64_t> least(1);
  least[0] = never;
  const auto run = [&](Exchange& exchange) {
    if (ports != nullptr) ports->join(index_of(exchange.self()));
    Context context({.device = "soft0", .ranks_per_node = std::vector<std::uint32_t>{2}});
    Communicator communicator(context, exchange);
    const auto self = static_cast<std::uint8_t>(index_of(exchange.self()));
    std::vector<std::uint8_t> source(rank_count * block_bytes, self), target(source.size());
    Operation operation = alltoall(
        communicator, {.source = source.data(), .target = target.data(), .bytes = block_bytes});
    for (int call = 0; call < 5; ++call) {
      communicator.synchronize();
      const SteadyClock::time_point begin = SteadyClock::now();
      communicator.synchronize();  // no rank starts earlier than any rank has looked at its clock
      if (operation.start() != Status::ok || operation.wait(30s) != Status::ok) return 2;
      communicator.synchronize();
      const auto taken = std::chrono::nanoseconds(SteadyClock::now() - begin).count();
      if (self == 0) least[0] = std::min<std::int64_t>(least[0], taken);
      for (std::size_t i = 0; i < target.size(); ++i)
        if (target[i] != i / block_bytes) return 3;
    }
    return 0;
  };
  for (const LocalResult& result : run_local({.rank_count = rank_count}, run))
    if (result.exit_status != 0) return never;
  return least[0];
}

// Two ranks of each node send two blocks each to the other node.
TEST(SharedPorts, take_the_messages_of_all_ranks_of_a_node_in_real_time) {
  const std::vector<std::uint32_t> node_of{0, 0, 1, 1};
  verbs::soft::SharedPorts ports(rank_count, node_of);
  const std::int64_t together = least_time(&ports);
  ASSERT_NE(together, never);
  EXPECT_GE(together, 80'000'000);
  for (const std::uint32_t rank : {0u, 2u}) {  // of both nodes
    EXPECT_GT(ports.ports_of(rank)->transmit.load(), 0);
    EXPECT_GT(ports.ports_of(rank)->receive.load(), 0);
  }
  const std::int64_t apart = least_time(nullptr);
  ASSERT_NE(apart, never);
  EXPECT_LT(apart, 80'000'000);  // 40 ms, and what the machine adds
  std::printf("[ shared ports: %.2f ms, a port for each process: %.2f ms ]\n",
              static_cast<double>(together) / 1e6, static_cast<double>(apart) / 1e6);
}

TEST(SharedPorts, are_of_nodes_and_of_no_process_outside_of_the_job) {
  const std::vector<std::uint32_t> node_of{0, 1, 0};
  verbs::soft::SharedPorts ports(3, node_of), own(3);
  EXPECT_EQ(ports.ports_of(0), ports.ports_of(2));
  EXPECT_NE(ports.ports_of(0), ports.ports_of(1));
  EXPECT_EQ(ports.ports_of(3), nullptr);
  EXPECT_NE(own.ports_of(0), own.ports_of(2));
  ports.ports_of(2)->receive = 7;
  EXPECT_EQ(ports.ports_of(0)->receive.load(), 7);
  EXPECT_EQ(ports.ports_of(1)->receive.load(), 0);
  ports.free_all();
  EXPECT_EQ(ports.ports_of(0)->receive.load(), 0);
}

}  // namespace
}  // namespace tutti
