// Messages between two ranks of a node: payload before word, each message taken once, for any size.
// The ranks are threads, so that ThreadSanitizer sees both sides.
#include "shm/node_fabric.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace tutti::shm {
namespace {

struct alignas(64) Line {
  std::byte bytes[64];
};

/// Two slots, by parity, of `lines` lines each.
struct Slots {
  explicit Slots(std::size_t lines) : memory(2 * lines), slot_bytes(64 * lines) {}
  std::byte* at(std::uint32_t parity) {
    return reinterpret_cast<std::byte*>(memory.data()) + parity * slot_bytes;
  }
  std::vector<Line> memory;
  std::size_t slot_bytes;
};

/// One end of a ping-pong: puts into `there`, awaits `here`.
struct End {
  End(Slots& here, Slots& there, std::size_t bytes) : payload(bytes / 8), channel(1, 1) {
    for (std::uint32_t parity = 0; parity < 2; ++parity) {
      channel.prepare(parity, 0,
                      {.local = reinterpret_cast<const std::byte*>(payload.data()),
                       .remote = there.at(parity),
                       .word = word_of(there.at(parity), there.slot_bytes),
                       .bytes = bytes});
      channel.await(parity, 0, word_of(here.at(parity), here.slot_bytes));
    }
  }
  std::vector<std::uint64_t> payload;
  NodeChannel channel;
};

void exchange(std::size_t bytes, std::size_t lines) {
  constexpr std::uint64_t calls = 2000;
  Slots left(lines), right(lines);
  End one(left, right, bytes), other(right, left, bytes);
  const auto run = [&](End& end, Slots& here, std::uint64_t mine, std::uint64_t theirs) {
    std::uint64_t wrong = 0;
    for (std::uint64_t call = 1; call <= calls; ++call) {
      const auto parity = static_cast<std::uint32_t>(call & 1);
      for (std::uint64_t& word : end.payload) word = mine + call;
      end.channel.put(parity, 0);
      while (!end.channel.take(parity, 0)) std::this_thread::yield();
      for (std::size_t i = 0; i < end.payload.size(); ++i) {
        std::uint64_t word;
        std::memcpy(&word, here.at(parity) + 8 * i, sizeof word);
        wrong += word != theirs + call;
      }
    }
    EXPECT_EQ(wrong, 0u);
  };
  std::thread thread([&] { run(other, right, 1'000'000, 0); });
  run(one, left, 0, 1'000'000);
  thread.join();
}

TEST(NodeFabric, carries_payloads_of_one_line) {
  for (const std::size_t bytes : {0u, 8u, 56u}) exchange(bytes, 1);
}

TEST(NodeFabric, carries_payloads_of_many_lines) {
  exchange(64, 2);
  exchange(4096 + 56, 65);
}

TEST(NodeFabric, takes_each_message_once) {
  Slots left(1), right(1);
  End one(left, right, 8), other(right, left, 8);
  EXPECT_FALSE(other.channel.arrived(1, 0));
  one.channel.put(1, 0);
  EXPECT_TRUE(other.channel.arrived(1, 0));
  EXPECT_FALSE(other.channel.arrived(0, 0));
  EXPECT_TRUE(other.channel.take(1, 0));
  EXPECT_FALSE(other.channel.take(1, 0));
}

TEST(NodeFabric, forgets_messages_whether_or_not_they_were_taken) {
  Slots left(1), right(1);
  End one(left, right, 8), other(right, left, 8);
  for (const int sent : {1, 3}) {
    for (int i = 0; i < sent; ++i) {
      one.channel.put(0, 0);
      if (i > 0) {
        EXPECT_TRUE(other.channel.take(0, 0));
      }
    }
    one.channel.forget_messages();
    other.channel.forget_messages();
    EXPECT_FALSE(other.channel.arrived(0, 0));
    for (int i = 0; i < 2; ++i) {
      one.channel.put(0, 0);
      EXPECT_TRUE(other.channel.take(0, 0));
      EXPECT_FALSE(other.channel.arrived(0, 0));
    }
  }
}

TEST(NodeFabric, what_is_in_the_mapping_of_a_lender_is_read_there) {
  const std::uint64_t nonce = 7;
  const PeerProcess self{.id = ::getpid(),
                         .nonce_address = reinterpret_cast<std::uint64_t>(&nonce),
                         .nonce = 8};  // so that nothing is read of it
  constexpr std::uint64_t address = 0x10'0000;
  std::vector<std::byte> mapping(256);
  for (std::size_t i = 0; i < mapping.size(); ++i) mapping[i] = std::byte(i);
  const SequenceWord withdrawn = 0;
  const auto error_of = [&](std::uint64_t from, std::size_t bytes) {
    NodeChannel channel(0, 1);
    channel.read_from(
        0, {.process = self, .mapping = mapping, .address = address, .withdrawn = &withdrawn});
    std::vector<std::byte> into(bytes + 1);
    const int error = channel.read(0, from, into.data(), bytes);
    if (error == 0) {
      EXPECT_TRUE(std::equal(into.begin(), into.end() - 1,
                             mapping.begin() + static_cast<std::ptrdiff_t>(from - address)));
    }
    return error;
  };
  EXPECT_EQ(error_of(address, 256), 0);
  EXPECT_EQ(error_of(address + 100, 50), 0);
  EXPECT_EQ(error_of(address + 256, 0), 0);
  EXPECT_NE(error_of(address + 100, 157), 0);
  EXPECT_NE(error_of(address - 1, 10), 0);
  // What combines without a copy reads the same.
  NodeChannel channel(0, 1);
  channel.read_from(0, {.mapping = mapping, .address = address, .withdrawn = &withdrawn});
  EXPECT_EQ(channel.mapped(0, address + 100, 156), mapping.data() + 100);
  EXPECT_EQ(channel.mapped(0, address + 100, 157), nullptr);
  EXPECT_EQ(channel.mapped(0, address - 1, 10), nullptr);
}

TEST(NodeFabric, what_was_withdrawn_is_not_read_any_more) {
  const std::vector<std::byte> mapping(64);
  SequenceWord withdrawn = 0;
  NodeChannel channel(0, 1);
  channel.read_from(0, {.mapping = mapping, .address = 4096, .withdrawn = &withdrawn});
  std::array<std::byte, 64> into{};
  EXPECT_EQ(channel.read(0, 4096, into.data(), into.size()), 0);
  EXPECT_EQ(channel.was_lent(0), 0);
  withdraw(&withdrawn);
  EXPECT_EQ(channel.was_lent(0), ECANCELED);
  EXPECT_EQ(channel.mapped(0, 4096, 64), nullptr);
  EXPECT_EQ(channel.read(0, 4096, into.data(), into.size()), ECANCELED);
  EXPECT_EQ(channel.read_error(), ECANCELED);
}

TEST(NodeFabric, holds_only_what_was_prepared) {
  const NodeChannel channel(2, 3);
  EXPECT_FALSE(channel.holds_put(0, 1));
  EXPECT_FALSE(channel.holds_slot(1, 2));
}

}  // namespace
}  // namespace tutti::shm
