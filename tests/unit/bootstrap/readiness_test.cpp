// Promise: a thread hears of the descriptors that are ready and of no others, with their owners,
// and never of one that was closed, whoever has a copy of it.
#include "bootstrap/readiness.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <set>
#include <vector>

#include "tutti/detail/descriptor.hpp"

namespace tutti::bootstrap {
namespace {

using namespace std::chrono_literals;

/// Two ends of a connection.
struct Pair {
  Pair() {
    std::array<int, 2> both{-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both.data()), 0);
    here = detail::Descriptor(both[0]);
    there = detail::Descriptor(both[1]);
  }
  void speak() const { EXPECT_EQ(::write(there.get(), "", 1), 1); }

  detail::Descriptor here, there;
};

// An event may be packed, so that no reference to what is in it is valid.
void* owner_of(const epoll_event& event) {
  return event.data.ptr;
}
std::uint32_t kinds_of(const epoll_event& event) {
  return event.events;
}

TEST(Readiness, names_the_owners_of_those_that_are_ready) {
  Readiness readiness;
  std::array<Pair, 3> pairs;
  for (Pair& pair : pairs) ASSERT_TRUE(readiness.add(pair.here.get(), &pair));
  EXPECT_TRUE(readiness.wait(0ms).empty());
  pairs[1].speak();
  const auto events = readiness.wait(5s);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(owner_of(events[0]), &pairs[1]);
  EXPECT_EQ(kinds_of(events[0]), std::uint32_t{EPOLLIN});

  readiness.change(pairs[1].here.get(), &pairs[1], 0);
  EXPECT_TRUE(readiness.wait(0ms).empty());
  readiness.change(pairs[1].here.get(), &pairs[1], EPOLLIN | EPOLLOUT);
  ASSERT_EQ(readiness.wait(0ms).size(), 1u);
  EXPECT_EQ(kinds_of(readiness.wait(0ms)[0]), std::uint32_t{EPOLLIN | EPOLLOUT});
}

TEST(Readiness, comes_to_all_of_many_in_turns) {
  Readiness readiness;
  std::vector<Pair> pairs(200);
  for (Pair& pair : pairs) {
    ASSERT_TRUE(readiness.add(pair.here.get(), &pair));
    pair.speak();
  }
  std::set<void*> heard;
  for (int turn = 0; turn < 4; ++turn)
    for (const epoll_event& event : readiness.wait(0ms)) heard.insert(owner_of(event));
  EXPECT_EQ(heard.size(), pairs.size());
}

/// A child of fork has such a copy until it closes its own.
TEST(Readiness, forgets_one_of_which_there_is_a_copy) {
  Readiness readiness;
  Pair pair;
  ASSERT_TRUE(readiness.add(pair.here.get(), &pair));
  const detail::Descriptor copy(::dup(pair.here.get()));
  pair.speak();
  ASSERT_EQ(readiness.wait(0ms).size(), 1u);
  readiness.remove(pair.here.get());
  pair.here = detail::Descriptor();
  EXPECT_TRUE(readiness.wait(0ms).empty());
}

TEST(Readiness, says_what_it_cannot_watch) {
  Readiness readiness;
  EXPECT_FALSE(readiness.add(-1, &readiness));
  EXPECT_EQ(errno, EBADF);
}

}  // namespace
}  // namespace tutti::bootstrap
