// Promise: what a rank finds in its memory after polling a completion was put there before, in the
// sense of the memory model.  The ranks are threads that share the one mapping of the segment, so
// that the thread sanitizer sees both sides; it sees nothing between processes.
//
// This program is built a second time over planted.cpp, and must then be caught.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "harness.hpp"

namespace tutti::conformance {
namespace {

constexpr std::uint64_t messages = 64;
constexpr std::size_t message_bytes = 64;

void send_all(const Endpoint& endpoint, const Region& from, const Region& to) {
  for (std::uint64_t number = 0; number < messages; ++number) {
    const auto place = static_cast<std::size_t>(number) * message_bytes;
    const ibv_wr_opcode opcode = number % 2 == 0 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE_WITH_IMM;
    ASSERT_EQ(endpoint.send(opcode, {from.piece(place, message_bytes)}, to.address() + place,
                            to.handle->rkey),
              0);
    ASSERT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
  }
}

void receive_all(const Endpoint& endpoint, const Buffer& buffer) {
  for (std::uint64_t number = 0; number < messages; ++number) {
    const ibv_wc completion = endpoint.wait();
    ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
    ASSERT_EQ(completion.wr_id, number);
    ASSERT_EQ(buffer.data()[number * message_bytes], std::byte{7});
  }
}

TEST(Ranks, that_are_threads_see_what_was_written_before_the_completion) {
  const Device device;
  const Buffer source(messages * message_bytes), target(messages * message_bytes);
  std::fill_n(source.data(), source.size(), std::byte{7});
  const Region from(device, source), to(device, target);
  const EndpointOptions options{.receives = messages, .completions = 2 * messages};
  const Endpoint left(device, options), right(device, options);
  left.connect(right.address());
  right.connect(left.address());
  for (std::uint64_t number = 0; number < messages; ++number)
    ASSERT_EQ(right.receive({to.piece(number * message_bytes, message_bytes)}, number), 0);
  std::thread receiver([&] { receive_all(right, target); });
  std::thread sender([&] { send_all(left, from, to); });
  receiver.join();
  sender.join();
}

}  // namespace
}  // namespace tutti::conformance
