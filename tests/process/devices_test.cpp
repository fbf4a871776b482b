// Promise: ranks may use ports of any names; ranks whose ports cannot reach each other all get the
// list of their ports when a communicator is made, and may try again.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <tutti/tutti.hpp>

#include "support/jobs.hpp"
#include "support/tampering.hpp"
#include "verbs/port_card.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;

class SeveralDevices : public testing::Environment {
 public:
  void SetUp() override {
    ASSERT_EQ(::setenv("TUTTI_SOFT_DEVICES", "soft0:1,soft1:3", 1), 0);
    ASSERT_EQ(::setenv("TUTTI_SOFT_LINK_DOWN", "soft1:2", 1), 0);
  }
};
[[maybe_unused]] const auto* const environment =
    testing::AddGlobalTestEnvironment(new SeveralDevices);

ContextOptions on(const char* device) {
  ContextOptions options;
  options.device = device;
  options.arena_bytes = 1u << 20;
  options.ranks_per_node = {1};  // everything goes through the device
  return options;
}

bool runs(Communicator& communicator) {
  Operation operation = barrier(communicator);
  for (int call = 0; call < 10; ++call)
    if (operation.start() != Status::ok || operation.wait(10s) != Status::ok) return false;
  return true;
}

constexpr int introductions = 1;  // the only allgather when a communicator is made

/// What rank `rank` says of its port, found by the name in its introduction.
verbs::PortCard card_in(std::span<const std::byte> all, std::uint32_t rank, std::size_t& offset) {
  static constexpr char name[] = "soft0:1";  // with the zero behind it
  const std::size_t each = all.size() / 4;
  const auto mine = all.subspan(rank * each, each);
  const auto bytes = std::as_bytes(std::span(name));
  offset = rank * each +
           static_cast<std::size_t>(
               std::search(mine.begin(), mine.end(), bytes.begin(), bytes.end()) - mine.begin());
  verbs::PortCard card{};
  if (offset + sizeof card <= all.size()) std::memcpy(&card, all.data() + offset, sizeof card);
  return card;
}

/// Stands for a real device on another rank: what it says of its port is changed on the way to all.
void pretend(std::span<std::byte> all, std::uint32_t rank,
             const std::function<void(verbs::PortCard&)>& change) {
  std::size_t offset = 0;
  verbs::PortCard card = card_in(all, rank, offset);
  change(card);
  if (offset + sizeof card <= all.size()) std::memcpy(all.data() + offset, &card, sizeof card);
}

TEST(Devices, ranks_may_use_ports_of_different_names) {
  const auto results = run_local({.rank_count = 3}, [](Exchange& exchange) {
    const char* const ports[] = {"soft0", "soft1:1", "soft1:3"};
    Context context(on(ports[index_of(exchange.self())]));
    Communicator communicator(context, exchange);
    return runs(communicator) ? 0 : 1;
  });
  EXPECT_EQ(test::codes_of(results), std::vector<int>(3, 0));
}

TEST(Devices, ports_of_different_kinds_are_explained_to_all_before_anything_is_connected) {
  const auto results = run_local({.rank_count = 4}, [](Exchange& exchange) {
    test::Tampering mixed(exchange, introductions, [](std::span<std::byte> all) {
      for (std::uint32_t rank = 0; rank < 3; ++rank)
        pretend(all, rank, [](verbs::PortCard& card) {
          std::strcpy(card.name, "mlx5_0:1");
          card.is_software = 0;
        });
    });
    Context context(on("soft0"));
    try {
      const Communicator communicator(context, mixed);
      return 1;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::mismatch) return 2;
      const char* const expected =
          "ranks 0-2: mlx5_0:1, InfiniBand; rank 3: soft0:1, software device; set TUTTI_DEVICE";
      if (std::strstr(error.what(), expected) == nullptr) return 3;
    }
    Communicator again(context, exchange);  // nothing is left of the first
    return runs(again) ? 0 : 4;
  });
  EXPECT_EQ(test::codes_of(results), std::vector<int>(4, 0));
}

TEST(Devices, path_mtus_may_differ) {
  const auto results = run_local({.rank_count = 4}, [](Exchange& exchange) {
    test::Tampering slower(exchange, introductions, [](std::span<std::byte> all) {
      pretend(all, 1, [](verbs::PortCard& card) { card.path_mtu = IBV_MTU_1024; });
    });
    Context context(on("soft0"));
    Communicator communicator(context, slower);
    return runs(communicator) ? 0 : 1;
  });
  EXPECT_EQ(test::codes_of(results), std::vector<int>(4, 0));
}

// No rank may price for its own port, or ranks would make different plans.
TEST(Devices, the_slowest_port_says_for_which_network_all_ranks_choose) {
  const auto results = run_local({.rank_count = 4}, [](Exchange& exchange) {
    test::Tampering slower(exchange, introductions, [](std::span<std::byte> all) {
      pretend(all, 1, [](verbs::PortCard& card) { card.gigabits_per_second = 400; });
      pretend(all, 2, [](verbs::PortCard& card) { card.gigabits_per_second = 200; });
    });
    ContextOptions options = on("soft0");
    options.tuning = TuningMode::off;
    Context context(options);
    Communicator communicator(context, slower);
    const Operation operation = barrier(communicator);
    const std::string text = operation.explanation();
    return text.find("prices are those of hdr, for a port of 200 Gb/s InfiniBand") !=
                   std::string::npos
               ? 0
               : 1;
  });
  EXPECT_EQ(test::codes_of(results), std::vector<int>(4, 0));
}

TEST(Devices, path_mtu_that_is_none_is_named) {
  const auto results = run_local({.rank_count = 4}, [](Exchange& exchange) {
    test::Tampering garbled(exchange, introductions, [](std::span<std::byte> all) {
      pretend(all, 2, [](verbs::PortCard& card) { card.path_mtu = 77; });
    });
    Context context(on("soft0"));
    try {
      const Communicator communicator(context, garbled);
    } catch (const Error& error) {
      return std::strstr(error.what(), "rank 2: soft0:1, path MTU code 77") != nullptr ? 0 : 1;
    }
    return 2;
  });
  EXPECT_EQ(test::codes_of(results), std::vector<int>(4, 0));
}

TEST(Devices, wrong_port_is_refused_with_what_is_wrong) {
  const auto refusal = [](const char* device) -> std::string {
    try {
      const Context context(on(device));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::no_device);
      return error.what();
    }
    return "";
  };
  const auto says = [](const std::string& text, const char* words) {
    return text.find(words) != std::string::npos;
  };
  EXPECT_TRUE(says(refusal("soft1:2"), "it cannot be used: port down"));
  EXPECT_TRUE(says(refusal("soft1:4"), "soft1 has no port 4"));
  EXPECT_TRUE(says(refusal("soft1:1 "), "\"1 \" is no port number"));
  EXPECT_TRUE(says(refusal("soft2"), "no device is called \"soft2\""));
}

TEST(Devices, choice_says_why_each_other_port_was_not_taken) {
  const std::string choice = Context(on("soft1")).device_choice();
  EXPECT_NE(choice.find("asked for soft1"), std::string::npos) << choice;
  EXPECT_NE(choice.find("soft0:1 (not asked for)"), std::string::npos) << choice;
  EXPECT_NE(choice.find("soft1:2 (port down)"), std::string::npos) << choice;
  EXPECT_NE(choice.find("soft1:3 (as good, but later in the list)"), std::string::npos) << choice;
}

}  // namespace
}  // namespace tutti
