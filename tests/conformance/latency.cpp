// Latency probe: half a round trip of an RDMA write with immediate between two forked processes on
// two cores.  Prints, asserts nothing but success.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "harness.hpp"

namespace tutti::conformance {
namespace {

constexpr int batch = 100;

void pin(unsigned cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  (void)::sched_setaffinity(0, sizeof(set), &set);
}

/// Nanoseconds per half round trip, one value per batch.
std::vector<double> play(Line& line, bool starts, Storage storage, std::size_t bytes, int batches) {
  const Device device;
  const Endpoint endpoint(device, {.sends = 128, .receives = 64, .completions = 256});
  const Buffer inbox(bytes, storage), outbox(bytes, storage);
  const Region to(device, inbox), from(device, outbox);
  connect_over(line, endpoint, {.timeout = 14, .retries = 6});
  const RemoteRegion peer = line.swap(remote_of(to));
  ibv_recv_wr receive{};
  ibv_recv_wr* bad_receive = nullptr;
  for (int index = 0; index < 32; ++index)
    EXPECT_EQ(ibv_post_recv(endpoint.pair, &receive, &bad_receive), 0);
  line.meet();

  ibv_sge piece = from.piece(0, bytes);
  ibv_send_wr request{};
  ibv_send_wr* bad = nullptr;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.wr.rdma.remote_addr = peer.address;
  request.wr.rdma.rkey = peer.key;
  ibv_wc completion{};
  const auto await_receive = [&] {
    for (;;) {
      const int count = ibv_poll_cq(endpoint.queue, 1, &completion);
      if (count == 0) continue;
      if (count < 0 || completion.status != IBV_WC_SUCCESS) std::abort();
      if (completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM) return;
    }
  };
  const auto put = [&](int index) {
    request.send_flags =
        (bytes <= 64 ? IBV_SEND_INLINE : 0) | (index % 64 == 63 ? IBV_SEND_SIGNALED : 0);
    if (ibv_post_send(endpoint.pair, &request, &bad) != 0) std::abort();
  };
  std::vector<double> samples;
  int sent = 0;
  for (int done = 0; done < batches; ++done) {
    const auto start = std::chrono::steady_clock::now();
    for (int index = 0; index < batch; ++index) {
      if (starts) put(sent++);
      await_receive();
      if (!starts) put(sent++);
      if (ibv_post_recv(endpoint.pair, &receive, &bad_receive) != 0) std::abort();
    }
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
    samples.push_back(time.count() / batch / 2);
  }
  line.meet();
  return samples;
}

void measure(const char* name, Storage storage, std::size_t bytes, int batches) {
  OtherProcess other([&](Line& line) {
    pin(1);
    (void)play(line, false, storage, bytes, batches);
  });
  pin(0);
  std::vector<double> samples = play(other.line(), true, storage, bytes, batches);
  other.expect_success();
  std::sort(samples.begin(), samples.end());
  std::printf("%-8s %8zu B  min %8.0f ns  median %8.0f ns  (%d x %d)\n", name, bytes,
              samples.front(), samples[samples.size() / 2], batches, batch);
}

TEST(Latency, write_with_immediate_half_round_trip) {
  const char* const transport = std::getenv("TUTTI_SOFT_TRANSPORT");
  const int speed = transport && std::strcmp(transport, "bounce") == 0 ? 1 : 10;
  const int slowness = device_is_soft() ? 1 : 100;  // there is nothing to judge
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{4096}, std::size_t{65536}}) {
    measure("shared", Storage::shared_file, bytes,
            std::max((bytes > 4096 ? 5 : 100) * speed / slowness, 1));
    measure("private", Storage::private_pages, bytes,
            std::max((bytes > 4096 ? 5 : 50) * speed / slowness, 1));
  }
}

}  // namespace
}  // namespace tutti::conformance
