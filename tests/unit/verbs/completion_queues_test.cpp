// Promise: a connection gets a completion queue with entries for all that it can complete, as long
// as the device has some; what it has not is refused with the numbers, and nothing changes.
#include "verbs/completion_queues.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <tutti/status.hpp>
#include <vector>

namespace tutti::verbs {
namespace {

constexpr std::uint32_t entries_each = 320;

/// The software device, with limits and failures as a test likes them.
struct Device {
  Device() {
    table = soft_driver();
    table.create_cq = [](ibv_context* context, int entries, void* user, ibv_comp_channel* channel,
                         int vector) -> ibv_cq* {
      asked.push_back(entries);
      errno = ENOMEM;
      return refuses ? nullptr
                     : soft_driver().create_cq(context, std::min(entries, 65535), user, channel,
                                               vector);
    };
    asked.clear();
    refuses = false;
    port.description.driver = &table;
  }

  static inline std::vector<int> asked;
  static inline bool refuses;
  Driver table;
  Port port = open_port("soft0");
};

std::string refusal_of(CompletionQueues& queues) {
  try {
    (void)queues.add_connection();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::limit_exceeded);
    return error.what();
  }
  return "";
}

void expect_words(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    EXPECT_NE(text.find(word), std::string::npos) << "no \"" << word << "\" in: " << text;
}

TEST(CompletionQueues, there_is_one_until_its_entries_are_promised) {
  Device device;
  CompletionQueues queues(device.port, entries_each);
  for (std::uint32_t i = 0; i < 102; ++i) EXPECT_EQ(queues.add_connection(), 0u);
  EXPECT_EQ(queues.only_one(), queues[0]);
  EXPECT_EQ(queues.add_connection(), 1u);
  EXPECT_EQ(queues.only_one(), nullptr) << "whoever polls this alone misses completions";
  EXPECT_EQ(queues.all().size(), 2u);
  EXPECT_NE(queues[0], queues[1]);
}

TEST(CompletionQueues, no_queue_is_promised_more_than_it_holds) {
  Device device;
  CompletionQueues queues(device.port, entries_each);
  std::vector<std::uint32_t> connections;
  for (std::uint32_t i = 0; i < 1023; ++i) {
    const std::uint32_t index = queues.add_connection();
    connections.resize(std::max<std::size_t>(connections.size(), index + 1));
    ++connections[index];
  }
  ASSERT_EQ(connections.size(), device.asked.size());
  for (std::size_t index = 0; index < connections.size(); ++index)
    EXPECT_LE(connections[index] * entries_each, static_cast<unsigned>(device.asked[index]));
  EXPECT_EQ(device.asked, (std::vector<int>{32767, 65535, 65535, 65535, 65535, 65535}));
}

TEST(CompletionQueues, entries_that_were_given_back_are_promised_again) {
  Device device;
  CompletionQueues queues(device.port, entries_each);
  for (std::uint32_t i = 0; i < 103; ++i) (void)queues.add_connection();
  queues.remove_connection(0);
  EXPECT_EQ(queues.add_connection(), 0u);
  EXPECT_EQ(queues.add_connection(), 1u);
  EXPECT_EQ(queues.all().size(), 2u);
}

TEST(CompletionQueues, sizes_double_up_to_what_the_device_has) {
  Device device;
  device.port.limits.max_cqe = 100'000;
  CompletionQueues queues(device.port, entries_each);
  for (std::uint32_t i = 0; i < 102 + 204 + 312 + 1; ++i) (void)queues.add_connection();
  EXPECT_EQ(device.asked, (std::vector<int>{32767, 65535, 100'000, 100'000}));
}

TEST(CompletionQueues, limits_of_the_device_are_known_before_and_kept) {
  Device device;
  device.port.limits.max_cqe = 2 * entries_each + 1;
  device.port.limits.max_cq = 3;
  CompletionQueues queues(device.port, entries_each);
  EXPECT_EQ(queues.connections_max(), 6u);
  for (std::uint32_t i = 0; i < 6; ++i) EXPECT_EQ(refusal_of(queues), "") << i;
  expect_words(refusal_of(queues), {"320", "3 completion queues of 641 entries", "fewer messages"});
  EXPECT_EQ(queues.all().size(), 3u);
  queues.remove_connection(2);
  EXPECT_EQ(refusal_of(queues), "");
}

TEST(CompletionQueues, a_device_of_few_queue_pairs_limits_connections) {
  Device device;
  device.port.limits.max_qp = 5;
  EXPECT_EQ(CompletionQueues(device.port, entries_each).connections_max(), 5u);
  device.port.limits.max_qp = 150;
  EXPECT_EQ(CompletionQueues(device.port, entries_each).connections_max(), 150u);
}

TEST(CompletionQueues, queues_that_hold_no_connection_are_none) {
  Device device;
  device.port.limits.max_cqe = entries_each - 1;
  CompletionQueues queues(device.port, entries_each);
  EXPECT_EQ(queues.connections_max(), 0u);
  expect_words(refusal_of(queues), {"320", "of 319 entries"});
  EXPECT_EQ(queues.all().size(), 1u);
}

TEST(CompletionQueues, a_queue_that_cannot_be_made_changes_nothing) {
  Device device;
  CompletionQueues queues(device.port, entries_each);
  for (std::uint32_t i = 0; i < 102; ++i) (void)queues.add_connection();
  device.refuses = true;
  expect_words(refusal_of(queues), {"create_cq of 65535 entries on soft0:1", "has 1", "ulimit -l"});
  EXPECT_EQ(queues.only_one(), queues[0]);
  device.refuses = false;
  EXPECT_EQ(queues.add_connection(), 1u);
}

}  // namespace
}  // namespace tutti::verbs
