// Promise: the port that is used, and why, is never a guess; a wrong TUTTI_DEVICE is explained.
#include "verbs/port_choice.hpp"

#include <gtest/gtest.h>

#include "verbs/queue_pair.hpp"

namespace tutti::verbs {
namespace {

/// An active InfiniBand port near the CPUs of NUMA node `node`, 4 each; nowhere if negative.
PortDescription port(const char* device, std::uint8_t number, int node = -1) {
  PortDescription description{.driver = &libibverbs_driver(),
                              .device = device,
                              .port = number,
                              .active = true,
                              .state = "active"};
  description.gids.chosen = GidCandidate{};
  if (node < 0) return description;
  description.locality.numa_node = static_cast<unsigned>(node);
  for (int cpu = 4 * node; cpu < 4 * node + 4; ++cpu)
    description.locality.near.add(static_cast<unsigned>(cpu));
  return description;
}

PortDescription roce(PortDescription description) {
  description.link = LinkLayer::ethernet;
  return description;
}

PortDescription down(PortDescription description) {
  description.active = false;
  description.state = "down";
  description.attributes.state = IBV_PORT_DOWN;
  return description;
}

PortDescription iwarp(PortDescription description) {
  description.unfit = "iWARP: has no write-with-immediate";
  return description;
}

PortDescription without_gid(PortDescription description) {
  description.gids.chosen.reset();
  return description;
}

PortDescription soft(const char* device, std::uint8_t number) {
  PortDescription description = port(device, number);
  description.driver = &soft_driver();
  return description;
}

/// A host of 4 NUMA nodes of 4 CPUs, on which this process may use `cpus`.
Surroundings bound_to(const char* cpus) {
  Surroundings host{.allowed = detail::parse_cpu_list(cpus)};
  for (unsigned node = 0; node < 4; ++node) {
    NumaNode found{.number = node};
    for (unsigned cpu = 4 * node; cpu < 4 * node + 4; ++cpu) found.cpus.add(cpu);
    for (unsigned other = 0; other < 4; ++other)
      found.distances.push_back(10 + 10 * (other > node ? other - node : node - other));
    host.nodes.push_back(found);
  }
  return host;
}

using Ports = std::vector<PortDescription>;

PortChoice choose(const Ports& ports, const char* cpus, const char* request = "") {
  return choose_port(ports, bound_to(cpus), request);
}

bool says(const std::string& text, const char* words) {
  return text.find(words) != std::string::npos;
}

TEST(PortChoice, nearest_to_the_cpus_allowed_is_taken) {
  const Ports ports = {port("mlx5_0", 1, 0), port("mlx5_1", 1, 1), port("mlx5_3", 1, 3)};
  EXPECT_EQ(choose(ports, "0-3").chosen, 0u);
  EXPECT_EQ(choose(ports, "5").chosen, 1u);
  EXPECT_EQ(choose(ports, "12-15").chosen, 2u);
  const PortChoice choice = choose(ports, "4-7");
  EXPECT_EQ(choice.verdicts[0], "farther: NUMA node 0");
  EXPECT_EQ(choice.verdicts[1], "taken: nearest to CPUs 4-7: NUMA node 1, CPUs 4-7");
  EXPECT_EQ(choice.verdicts[2], "farther: NUMA node 3");
  EXPECT_EQ(choice.reason,
            "nearest to CPUs 4-7: NUMA node 1, CPUs 4-7; not taken: mlx5_0:1 (farther: NUMA node "
            "0), mlx5_3:1 (farther: NUMA node 3)");
}

TEST(PortChoice, where_none_is_on_the_spot_the_distance_of_nodes_decides) {
  const Ports ports = {port("mlx5_0", 1, 0), port("mlx5_3", 1, 3)};
  EXPECT_EQ(choose(ports, "8-11").chosen, 1u);
  EXPECT_EQ(choose(ports, "4-7").chosen, 0u);
}

TEST(PortChoice, more_of_the_cpus_allowed_decide) {
  const Ports ports = {port("mlx5_0", 1, 0), port("mlx5_1", 1, 1)};
  EXPECT_EQ(choose(ports, "3-7").chosen, 1u);
  EXPECT_EQ(choose(ports, "0-4").chosen, 0u);
}

TEST(PortChoice, first_of_equally_near_ports_is_taken) {
  const Ports ports = {port("mlx5_0", 1, 1), port("mlx5_0", 2, 1), port("mlx5_1", 1, 0)};
  const PortChoice bound = choose(ports, "4-7");
  EXPECT_EQ(bound.chosen, 0u);
  EXPECT_EQ(bound.verdicts[1], "as good, but later in the list");
  const PortChoice unbound = choose(ports, "0-7");
  EXPECT_EQ(unbound.chosen, 0u);
  EXPECT_TRUE(says(unbound.reason, "first of the usable ports")) << unbound.reason;
  EXPECT_EQ(choose(ports, "").chosen, 0u) << "the CPUs allowed are not known";
}

TEST(PortChoice, device_that_is_nowhere_comes_after_those_that_are_somewhere) {
  const Ports ports = {port("rxe0", 1), port("mlx5_0", 1, 3)};
  const PortChoice choice = choose(ports, "0-3");
  EXPECT_EQ(choice.chosen, 1u);
  EXPECT_EQ(choice.verdicts[0], "nobody knows how near it is");
  EXPECT_EQ(choose({port("rxe0", 1), port("rxe1", 1)}, "0-3").chosen, 0u);
}

TEST(PortChoice, near_ports_that_cannot_be_used_are_passed_over_with_the_reason) {
  const Ports ports = {down(port("mlx5_0", 1, 0)), without_gid(roce(port("mlx5_0", 2, 0))),
                       iwarp(port("cxgb4_0", 1, 0)), port("mlx5_1", 1, 3)};
  const PortChoice choice = choose(ports, "0-3");
  EXPECT_EQ(choice.chosen, 3u);
  EXPECT_EQ(choice.verdicts[0], "port down");
  EXPECT_EQ(choice.verdicts[1], "no usable GID");
  EXPECT_EQ(choice.verdicts[2], "iWARP: has no write-with-immediate");
  EXPECT_TRUE(says(choice.reason,
                   "the only usable port of a real device; not taken: mlx5_0:1 (port"
                   " down), mlx5_0:2 (no usable GID), cxgb4_0:1 (iWARP: "))
      << choice.reason;
}

TEST(PortChoice, infiniband_is_taken_over_a_nearer_roce_port_so_that_all_ranks_of_a_host_do) {
  const Ports ports = {roce(port("mlx5_0", 1, 0)), port("mlx5_1", 1, 3)};
  EXPECT_EQ(choose(ports, "0-3").chosen, 1u);
  EXPECT_EQ(choose(ports, "12-15").chosen, 1u);
  EXPECT_EQ(choose(ports, "0-3").verdicts[0], "RoCE, and InfiniBand is there");
  EXPECT_EQ(choose({roce(port("mlx5_0", 1, 0)), roce(port("mlx5_1", 1, 3))}, "12").chosen, 1u);
}

TEST(PortChoice, software_device_is_taken_only_if_no_real_port_can_be_used) {
  const Ports ports = {soft("soft0", 1), soft("soft1", 1), port("rxe0", 1)};
  const PortChoice choice = choose(ports, "0-3");
  EXPECT_EQ(choice.chosen, 2u);
  EXPECT_EQ(choice.verdicts[0], "software device, used where no real port is active");
  const PortChoice fallback = choose({down(port("mlx5_0", 1, 0)), ports[0], ports[1]}, "0-3");
  EXPECT_EQ(fallback.chosen, 1u);
  EXPECT_TRUE(says(fallback.reason, "software device, as no real port is active"))
      << fallback.reason;
  EXPECT_TRUE(says(fallback.reason, "mlx5_0:1 (port down)")) << fallback.reason;
}

TEST(PortRequest, name_and_name_with_port_are_respected) {
  const Ports ports = {port("mlx5_0", 1, 0), down(port("mlx5_1", 1, 1)), port("mlx5_1", 2, 1),
                       soft("soft0", 1)};
  EXPECT_EQ(choose(ports, "0-3", "mlx5_1").chosen, 2u);
  EXPECT_EQ(choose(ports, "4-7", "mlx5_0:1").chosen, 0u);
  const PortChoice choice = choose(ports, "0-3", "soft0");
  EXPECT_EQ(choice.chosen, 3u);
  EXPECT_EQ(choice.verdicts[0], "not asked for");
  EXPECT_EQ(choice.verdicts[1], "port down");
  EXPECT_TRUE(says(choice.reason, "asked for soft0; not taken: mlx5_0:1 (not asked for)"))
      << choice.reason;
}

TEST(PortRequest, among_the_ports_of_a_device_the_rule_decides) {
  const Ports ports = {port("mlx5_0", 1, 0), roce(port("mlx5_1", 1, 1)), port("mlx5_1", 2, 1)};
  const PortChoice choice = choose(ports, "0-3", "mlx5_1");
  EXPECT_EQ(choice.chosen, 2u);
  EXPECT_TRUE(says(choice.reason, "asked for mlx5_1; InfiniBand; not taken: ")) << choice.reason;
}

TEST(PortRequest, name_with_a_colon_is_a_name) {
  EXPECT_EQ(choose({port("odd:1", 1), port("odd", 1)}, "0", "odd:1").chosen, 0u);
}

struct Refused {
  const char* request;
  const char* says;
};

class RefusedRequest : public testing::TestWithParam<Refused> {};

const Ports assorted = {down(port("mlx5_0", 1, 0)),
                        port("mlx5_0", 2, 0),
                        iwarp(port("cxgb4_0", 1, 0)),
                        without_gid(roce(port("mlx5_1", 1, 1))),
                        down(port("mlx5_2", 1, 1)),
                        down(port("mlx5_2", 2, 1)),
                        [] {
                          PortDescription closed = port("mlx5_3", 0, 1);
                          closed.active = false;
                          closed.state = "cannot be opened: Permission denied";
                          return closed;
                        }(),
                        soft("soft0", 1)};

TEST_P(RefusedRequest, is_named_with_what_is_wrong_and_what_was_expected) {
  const auto& [request, words] = GetParam();
  const PortChoice choice = choose(assorted, "0-3", request);
  EXPECT_FALSE(choice.chosen);
  EXPECT_TRUE(says(choice.reason, ("device \"" + std::string(request) + "\"").c_str()));
  EXPECT_TRUE(says(choice.reason, words)) << choice.reason;
  EXPECT_TRUE(says(choice.reason, "expected ")) << choice.reason;
  EXPECT_EQ(choice.verdicts.size(), assorted.size());
}

INSTANTIATE_TEST_SUITE_P(
    Requests, RefusedRequest,
    testing::Values(
        Refused{"mlx5_7",
                "no device is called \"mlx5_7\"; expected name or name:port; there are "
                "mlx5_0:1 (port down), mlx5_0:2 (usable)"},
        Refused{"mlx5_7:1", "no device is called \"mlx5_7\""},
        Refused{":1", "no device is called \"\""}, Refused{"mlx5_0 ", "no device is called"},
        Refused{"mlx5_0:3", "mlx5_0 has no port 3; expected mlx5_0:1 or mlx5_0:2 or mlx5_0"},
        Refused{"mlx5_0:0", "mlx5_0 has no port 0"},
        Refused{"mlx5_0:258", "mlx5_0 has no port 258"},
        Refused{"mlx5_0:", "\"\" is no port number; expected mlx5_0:1"},
        Refused{"mlx5_0:2x", "\"2x\" is no port number"},
        Refused{"mlx5_0:+2", "\"+2\" is no port number"},
        Refused{"mlx5_0:99999999999", "\"99999999999\" is no port number"},
        Refused{"mlx5_0:1", "it cannot be used: port down; expected a usable port"},
        Refused{"mlx5_1", "it cannot be used: no usable GID"},
        Refused{"mlx5_2", "none of its ports can; expected a usable port; there are mlx5_0:1"},
        Refused{"mlx5_3:1", "it cannot be used: device cannot be opened: Permission denied"},
        Refused{"cxgb4_0", "iWARP: has no write-with-immediate"},
        Refused{"cxgb4_0:1", "iWARP: has no write-with-immediate"}));

TEST(PortRequest, without_one_nobody_is_blamed_for_another) {
  const PortChoice choice = choose({down(port("mlx5_0", 1, 0)), down(soft("soft0", 1))}, "0-3");
  EXPECT_FALSE(choice.chosen);
  EXPECT_FALSE(says(choice.reason, "TUTTI_DEVICE")) << choice.reason;
  EXPECT_TRUE(says(choice.reason, "mlx5_0:1 (port down), soft0:1 (port down)")) << choice.reason;
  EXPECT_FALSE(choose({}, "0-3").chosen);
}

TEST(PortRequest, port_without_a_subnet_manager_says_so) {
  PortDescription waiting = down(port("mlx5_0", 1, 0));
  waiting.state = "init";
  waiting.attributes.state = IBV_PORT_INIT;
  EXPECT_EQ(obstacle_of(waiting), "port init: no subnet manager has set it up");
}

/// soft-RoCE sends again what has not been lost, the more often the shorter the timeout is.
TEST(PortChoice, only_the_kernels_virtual_devices_wait_long_for_acknowledgements) {
  PortDescription card = port("mlx5_0", 1), rxe = roce(port("rxe0", 1));
  card.kernel_driver = "mlx5_core";
  const PathDefaults path;
  EXPECT_EQ(timeout_on(card, path), path.timeout);
  EXPECT_EQ(timeout_on(soft("soft0", 1), path), path.timeout);
  EXPECT_EQ(timeout_on(rxe, path), path.timeout_of_virtual_devices);
  EXPECT_GT(path.timeout_of_virtual_devices, path.timeout);
  EXPECT_EQ(timeout_on(rxe, {.timeout = 24}), 24) << "never shorter than asked for";
}

}  // namespace
}  // namespace tutti::verbs
