// Promise: ranks that are connected by address are as good as those that are connected out of band:
// results are right, all ranks learn of mistakes and deaths, and a set-up that fails can be
// repeated.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <tutti/tutti.hpp>

#include "devices.hpp"
#include "support/jobs.hpp"
#include "support/tampering.hpp"
#include "verbs/wire.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::codes_of;

ContextOptions options_of(const Exchange& exchange, std::size_t device_count,
                          ConnectBy connect = ConnectBy::cm) {
  ContextOptions options;
  options.device = test::device_of(index_of(exchange.self()), device_count);
  options.arena_bytes = 1u << 20;
  options.connect = connect;
  options.ranks_per_node = {1};  // everything goes through the device
  return options;
}

int say(const Exchange& exchange, int code, const char* text) {
  std::fprintf(stderr, "rank %u: %d: %s\n", index_of(exchange.self()), code, text);
  return code;
}

/// Barriers and checked sums; 0 if all is well.
int work(Communicator& communicator, const std::vector<std::uint32_t>& per_round) {
  const std::uint64_t self = index_of(communicator.rank()), count = communicator.rank_count();
  std::uint64_t source[2] = {}, target[2] = {};
  Operation wait = barrier(communicator, {.per_round = per_round});
  Operation sum =
      allreduce(communicator, {.source = source,
                               .target = target,
                               .element_count = 2,
                               .reduction = built_in_reduction(BuiltIn::sum, ElementType::uint64),
                               .per_round = per_round});
  for (std::uint64_t call = 0; call < 10; ++call) {
    source[0] = self + call;
    source[1] = self * self;
    for (Operation* operation : {&wait, &sum})
      if (operation->start() != Status::ok || operation->wait(30s) != Status::ok) return 1;
    if (target[0] != count * (count - 1) / 2 + count * call) return 2;
    if (target[1] != (count - 1) * count * (2 * count - 1) / 6) return 3;
  }
  return 0;
}

TEST(CmRanks, barriers_and_sums_over_one_and_several_devices) {
  for (const std::uint32_t rank_count : {2u, 4u, 8u})
    for (const std::size_t device_count : {std::size_t{1}, test::devices().size()}) {
      const auto results = run_local({.rank_count = rank_count}, [&](Exchange& exchange) {
        Context context(options_of(exchange, device_count));
        Communicator communicator(context, exchange);
        // First few partners, then everybody: 7 messages in one round.
        if (const int code =
                work(communicator, rank_count == 8 ? std::vector{1u, 1u, 1u} : std::vector{3u}))
          return code;
        return work(communicator, {7});
      });
      EXPECT_EQ(codes_of(results), std::vector<int>(rank_count))
          << rank_count << " ranks, " << device_count << " devices";
    }
}

TEST(CmRanks, ways_of_connecting_that_differ_are_named_on_every_rank) {
  const auto results = run_local({.rank_count = 3}, [](Exchange& exchange) {
    Context context(
        options_of(exchange, 1, exchange.self() == Rank{1} ? ConnectBy::exchange : ConnectBy::cm));
    try {
      const Communicator communicator(context, exchange);
    } catch (const Error& error) {
      const bool good = error.code() == ErrorCode::mismatch &&
                        std::strstr(error.what(), "TUTTI_CONNECT") != nullptr;
      return good ? 0 : say(exchange, 1, error.what());
    }
    return 2;
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(3));
}

TEST(CmRanks, a_death_while_the_others_connect_ends_their_wait) {
  const auto results = run_local({.rank_count = 4}, [](Exchange& local) {
    test::Tampering exchange(local, 4, [&](std::span<std::byte>) {
      if (local.self() == Rank{2}) raise(SIGKILL);
    });
    Context context(options_of(exchange, test::devices().size()));
    Communicator communicator(context, exchange);
    const auto begin = std::chrono::steady_clock::now();
    try {
      (void)barrier(communicator);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::peer_failed || std::strstr(error.what(), "rank 2") == nullptr)
        return say(exchange, 1, error.what());
      // Far less than the set-up timeout of 30 s.
      return std::chrono::steady_clock::now() - begin < 20s ? 0 : 2;
    }
    return 3;
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{0, 0, 1000 + SIGKILL, 0}));
}

/// Makes every endpoint in `bytes` one of another queue pair: the packet sequence is 12 bytes
/// before the GID.
void spoil_endpoints(std::span<std::byte> bytes, const std::uint8_t* gid) {
  constexpr std::size_t before =
      offsetof(verbs::Endpoint, gid) - offsetof(verbs::Endpoint, packet_sequence);
  for (std::size_t i = before; i + 16 <= bytes.size(); ++i)
    if (std::memcmp(&bytes[i], gid, 16) == 0) bytes[i - before] ^= std::byte{1};
}

TEST(CmRanks, a_set_up_that_fails_on_one_rank_is_heard_by_all_and_can_be_repeated) {
  const auto results = run_local({.rank_count = 4}, [](Exchange& local) {
    std::vector<std::uint8_t> gid;
    test::Tampering exchange(local, 4, [&](std::span<std::byte> all) {
      if (local.self() == Rank{1}) spoil_endpoints(all, gid.data());
    });
    ContextOptions options = options_of(exchange, 1);
    options.setup_timeout = 10s;
    Context context(options);
    const std::string choice = context.device_choice();  // ... GID[1] ::ffff:10.77.0.1 RoCE v2
    const std::size_t begin = choice.find("] ") + 2;
    in6_addr address{};
    if (inet_pton(AF_INET6, choice.substr(begin, choice.find(' ', begin) - begin).c_str(),
                  &address) != 1)
      return say(exchange, 1, choice.c_str());
    gid.assign(address.s6_addr, address.s6_addr + 16);
    Communicator communicator(context, exchange);
    try {
      (void)barrier(communicator);
      return 2;
    } catch (const Error& error) {
      if (std::strstr(error.what(), "cannot connect to") == nullptr)
        return say(exchange, 3, error.what());
    }
    if (communicator.failure().status != Status::ok)
      return say(exchange, 4, communicator.failure().text);
    return work(communicator, {3});
  });
  EXPECT_EQ(codes_of(results), std::vector<int>(4));
}

class Kill : public testing::TestWithParam<ConnectBy> {};

TEST_P(Kill, every_survivor_names_the_dead_rank) {
  constexpr std::uint32_t victim = 2;
  const auto results = run_local({.rank_count = 4}, [](Exchange& exchange) {
    Context context(options_of(exchange, test::devices().size(), GetParam()));
    Communicator communicator(context, exchange);
    Operation operation = barrier(communicator, {.per_round = {1, 1}});
    Status status = Status::ok;
    for (int call = 0; status == Status::ok; ++call) {
      if (exchange.self() == Rank{victim} && call == 50) kill(getpid(), SIGKILL);
      status = operation.start();
      if (status == Status::ok) status = operation.wait(20s);
    }
    const Failure& failure = communicator.failure();
    if (status != Status::peer_failed || failure.peer != Rank{victim})
      return say(exchange, 1, failure.text);
    return 0;
  });
  EXPECT_EQ(codes_of(results), (std::vector<int>{0, 0, 1000 + SIGKILL, 0}));
}

INSTANTIATE_TEST_SUITE_P(ConnectedBy, Kill, testing::Values(ConnectBy::exchange, ConnectBy::cm),
                         [](const auto& parameter) {
                           return parameter.param == ConnectBy::cm ? "cm" : "exchange";
                         });

}  // namespace
}  // namespace tutti
