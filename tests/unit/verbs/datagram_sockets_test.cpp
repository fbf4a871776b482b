// Promise: a process whose segment is full grants no ring, whatever its senders go on to say; their
// datagrams come by the connection as before.
#include "verbs/soft/datagram_sockets.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <span>

namespace tutti::verbs::soft {
namespace {

TEST(DatagramSockets, of_a_process_without_memory_grant_no_ring) {
  constexpr std::uint64_t nonce = 5;
  Segment segment;
  ASSERT_EQ(segment.create(1, nonce), 0);
  segment.abandon();  // without its file, no more of the segment gets memory
  ASSERT_EQ(segment.allocate(sizeof(DatagramRing)), 0u);

  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  const detail::Descriptor sender(ends[0]);
  DatagramSockets sockets;
  sockets.adopt(detail::Descriptor(ends[1]));

  // The first byte of a datagram tells it from the others.
  const std::array<std::byte, 100> datagram{std::byte{7}};
  ASSERT_EQ(send_message(sender.get(), {.kind = MessageKind::ring_wanted}), 0);
  ASSERT_EQ(send_message(sender.get(), {.kind = MessageKind::ring_begins}), 0);
  ASSERT_EQ(::send(sender.get(), datagram.data(), datagram.size(), 0),
            static_cast<ssize_t>(datagram.size()));
  int arrived = 0;
  const auto deliver = [&](std::span<const std::byte> bytes) {
    ASSERT_EQ(bytes.size(), datagram.size());
    EXPECT_EQ(bytes.front(), datagram.front());
    ++arrived;
  };
  const Connections connections;
  EXPECT_EQ(sockets.receive(connections, segment, deliver), DatagramSockets::Again::when_called);
  EXPECT_EQ(arrived, 1);

  Message answer;
  detail::Descriptor attached;
  ASSERT_EQ(receive_message(sender.get(), answer, attached), Reception::message);
  EXPECT_EQ(answer.kind, MessageKind::ring);
  EXPECT_EQ(answer.bytes, 0u);
  // A ring at offset 0 would be the segment's header.
  EXPECT_FALSE(sockets.has_rings());
  sockets.want_calls();
  EXPECT_FALSE(sockets.has_news());
  EXPECT_EQ(segment.view().header().magic, segment_magic);
  EXPECT_EQ(segment.view().header().nonce, nonce);
}

}  // namespace
}  // namespace tutti::verbs::soft
