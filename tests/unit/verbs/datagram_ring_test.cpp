// Promise: the receiver of a ring of datagrams finds what was sent, whole and in order, when it has
// received what went another way before; a full ring takes nothing; and whoever wants to be called
// for a datagram either is called, or finds it.
#include "verbs/soft/datagram_ring.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>

namespace tutti::verbs::soft {
namespace {

struct Rings {
  Rings() {
    watches.reserve();
    reader = std::make_unique<DatagramReader>(*ring, watches.take());
  }
  bool send(std::uint32_t number, std::size_t bytes = 100) {
    std::array<std::byte, DatagramSlot::data_bytes> datagram;
    datagram.fill(std::byte(number));
    std::memcpy(datagram.data(), &number, sizeof(number));
    return writer.write(std::span(datagram).first(bytes));
  }
  std::uint32_t take() {
    std::uint32_t number = 0;
    std::memcpy(&number, reader->front().data(), sizeof(number));
    EXPECT_EQ(reader->front().back(), std::byte(number));
    reader->release_front();
    return number;
  }

  std::unique_ptr<DatagramRing> ring = std::make_unique<DatagramRing>();
  Watches watches;
  DatagramWriter writer{*ring};
  std::unique_ptr<DatagramReader> reader;
};

TEST(DatagramRing, shows_nothing_before_it_has_begun) {
  Rings rings;
  ASSERT_TRUE(rings.send(7));
  EXPECT_FALSE(rings.reader->is_ready());
  EXPECT_FALSE(rings.watches.any_ready());
  rings.reader->begin();
  EXPECT_TRUE(rings.reader->is_ready());
  EXPECT_TRUE(rings.watches.any_ready());
  EXPECT_EQ(rings.take(), 7u);
  EXPECT_FALSE(rings.reader->is_ready());
  EXPECT_FALSE(rings.watches.any_ready());
}

TEST(DatagramRing, takes_nothing_when_it_is_full_and_goes_on_then) {
  Rings rings;
  rings.reader->begin();
  std::uint32_t sent = 0, taken = 0;
  for (int round = 0; round < 3; ++round) {
    while (rings.send(sent, DatagramSlot::data_bytes)) ++sent;
    EXPECT_EQ(sent - taken, DatagramRing::slots_count);
    for (int count = 0; count < 10; ++count) EXPECT_EQ(rings.take(), taken++);
  }
}

TEST(DatagramRing, calls_once_for_each_time_that_it_is_wanted) {
  Rings rings;
  rings.reader->begin();
  ASSERT_TRUE(rings.send(1));
  EXPECT_FALSE(rings.writer.finds_bell());
  EXPECT_TRUE(rings.reader->want_call()) << "one is there";
  ASSERT_TRUE(rings.send(2));
  EXPECT_TRUE(rings.writer.finds_bell());
  ASSERT_TRUE(rings.send(3));
  EXPECT_FALSE(rings.writer.finds_bell());
}

TEST(DatagramRing, does_not_believe_a_length_beyond_its_slot) {
  Rings rings;
  rings.reader->begin();
  ASSERT_TRUE(rings.send(1));
  rings.ring->slots[0].bytes = DatagramSlot::data_bytes + 1;
  EXPECT_TRUE(rings.reader->front().empty());
}

/// The receiver sleeps until it is called whenever it finds nothing: nothing wakes it but calls.
TEST(DatagramRing, leaves_nobody_asleep_who_has_a_datagram) {
  constexpr std::uint32_t count = 20'000;
  Rings rings;
  rings.reader->begin();
  std::atomic<std::uint32_t> calls{0};
  std::thread sender([&] {
    for (std::uint32_t number = 0; number < count; ++number) {
      while (!rings.send(number)) std::this_thread::yield();
      if (!rings.writer.finds_bell()) continue;
      calls.fetch_add(1);
      calls.notify_one();
    }
  });
  for (std::uint32_t number = 0; number < count;) {
    const std::uint32_t seen = calls.load();
    if (!rings.reader->is_ready() && !rings.reader->want_call()) calls.wait(seen);
    while (rings.reader->is_ready()) EXPECT_EQ(rings.take(), number++);
  }
  sender.join();
}

}  // namespace
}  // namespace tutti::verbs::soft
