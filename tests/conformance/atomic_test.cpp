// Promise: compare-and-swap and fetch-and-add change one aligned word as a whole, whoever else does
// the same and whatever memory the word lies in; the initiator gets its former value; and what
// lacks a right, an alignment or a resource fails and changes nothing.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "harness.hpp"

namespace tutti::conformance {
namespace {

constexpr unsigned atomic_access = all_access | IBV_ACCESS_REMOTE_ATOMIC;

bool transport_is(const char* name) {
  const char* const transport = std::getenv("TUTTI_SOFT_TRANSPORT");
  return device_is_soft() && std::strcmp(transport ? transport : "auto", name) == 0;
}

struct Operation {
  ibv_wr_opcode opcode;
  std::uint64_t operand;
  std::uint64_t swap = 0;
};
constexpr Operation add(std::uint64_t operand) {
  return {IBV_WR_ATOMIC_FETCH_AND_ADD, operand};
}
constexpr Operation exchange(std::uint64_t expected, std::uint64_t value) {
  return {IBV_WR_ATOMIC_CMP_AND_SWP, expected, value};
}

int post(const Endpoint& endpoint, const Operation& operation, std::vector<ibv_sge> pieces,
         const RemoteRegion& remote, unsigned flags = IBV_SEND_SIGNALED) {
  ibv_send_wr request{};
  request.wr_id = 5;
  request.sg_list = pieces.data();
  request.num_sge = static_cast<int>(pieces.size());
  request.opcode = operation.opcode;
  request.send_flags = flags;
  request.wr.atomic.remote_addr = remote.address;
  request.wr.atomic.rkey = remote.key;
  request.wr.atomic.compare_add = operation.operand;
  request.wr.atomic.swap = operation.swap;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(endpoint.pair, &request, &bad);
}

std::uint64_t word_in(const Buffer& buffer, std::size_t offset = 0) {
  std::uint64_t word = 0;
  std::memcpy(&word, buffer.data() + offset, sizeof(word));
  return word;
}

/// Two connected queue pairs, a word for the answer and one for all.
struct Scene {
  explicit Scene(const ConnectionOptions& options = {.access = atomic_access},
                 int target_access = atomic_access)
      : ends({}, options), to(ends.left.device, answer), at(ends.left.device, word, target_access) {
    const std::uint64_t value = 100;
    std::memcpy(word.data(), &value, sizeof(value));
  }

  ibv_wc run(const Operation& operation) const {
    EXPECT_EQ(post(ends.left, operation, {to.piece(0, 8)}, remote_of(at)), 0);
    return ends.left.wait();
  }
  /// The request fails with `status` and changes nothing.
  void expect_failure(ibv_wc_status status, const RemoteRegion& remote) const {
    ASSERT_EQ(post(ends.left, add(1), {to.piece(0, 8)}, remote, 0), 0);
    EXPECT_EQ(ends.left.wait().status, status);
    EXPECT_TRUE(ends.left.comes_to(IBV_QPS_ERR));
    EXPECT_EQ(word_in(word), 100u);
    EXPECT_EQ(word_in(answer), 0u);
  }

  Loopback ends;
  Buffer answer{64}, word{64};
  Region to, at;
};

TEST(Atomics, add_and_return_the_former_value) {
  const Scene scene;
  const ibv_wc completion = scene.run(add(23));
  EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  EXPECT_EQ(completion.opcode, IBV_WC_FETCH_ADD);
  EXPECT_EQ(completion.byte_len, 8u);
  EXPECT_EQ(completion.wr_id, 5u);
  EXPECT_EQ(word_in(scene.answer), 100u);
  EXPECT_EQ(word_in(scene.word), 123u);
  EXPECT_EQ(scene.run(add(~0ull)).status, IBV_WC_SUCCESS);  // minus one
  EXPECT_EQ(word_in(scene.word), 122u);
  EXPECT_EQ(word_in(scene.word, 8), 0u);
  EXPECT_TRUE(scene.ends.right.is_quiet());
}

TEST(Atomics, swap_where_the_value_is_the_expected_one) {
  const Scene scene;
  const ibv_wc completion = scene.run(exchange(100, 7));
  EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  EXPECT_EQ(completion.opcode, IBV_WC_COMP_SWAP);
  EXPECT_EQ(word_in(scene.answer), 100u);
  EXPECT_EQ(word_in(scene.word), 7u);
  EXPECT_EQ(scene.run(exchange(100, 8)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(word_in(scene.answer), 7u);
  EXPECT_EQ(word_in(scene.word), 7u);
}

TEST(Atomics, keep_their_place_behind_a_waiting_send) {
  const Scene scene;
  ASSERT_EQ(scene.ends.left.send(IBV_WR_SEND, {}, 0, 0, 0), 0);
  ASSERT_EQ(post(scene.ends.left, add(1), {scene.to.piece(0, 8)}, remote_of(scene.at)), 0);
  EXPECT_TRUE(scene.ends.left.is_quiet());
  EXPECT_EQ(word_in(scene.word), 100u);
  ASSERT_EQ(scene.ends.right.receive({}), 0);
  EXPECT_EQ(scene.ends.left.wait().opcode, IBV_WC_FETCH_ADD);
  EXPECT_EQ(word_in(scene.word), 101u);
}

TEST(Atomics, of_a_word_that_is_not_aligned_are_invalid) {
  const Scene scene;
  scene.expect_failure(IBV_WC_REM_INV_REQ_ERR, {scene.at.address() + 4, scene.at.handle->rkey});
  ASSERT_FALSE(testing::Test::HasFailure());
  EXPECT_TRUE(scene.ends.right.comes_to(IBV_QPS_ERR));
}

TEST(Atomics, need_the_right_of_the_region) {
  const Scene scene({.access = atomic_access}, all_access);
  scene.expect_failure(IBV_WC_REM_ACCESS_ERR, remote_of(scene.at));
  EXPECT_TRUE(scene.ends.right.comes_to(IBV_QPS_ERR));
}

TEST(Atomics, need_the_right_of_the_queue_pair) {
  const Scene scene({.access = all_access});
  scene.expect_failure(IBV_WC_REM_INV_REQ_ERR, remote_of(scene.at));
  EXPECT_TRUE(scene.ends.right.comes_to(IBV_QPS_ERR));
}

TEST(Atomics, stay_within_the_bounds) {
  const Scene scene;
  scene.expect_failure(IBV_WC_REM_ACCESS_ERR, {scene.at.address() + 64, scene.at.handle->rkey});
}

TEST(Atomics, need_the_right_to_write_the_answer) {
  const Scene scene;
  const Region constant(scene.ends.left.device, scene.answer, IBV_ACCESS_REMOTE_READ);
  ASSERT_EQ(post(scene.ends.left, add(1), {constant.piece(0, 8)}, remote_of(scene.at)), 0);
  EXPECT_EQ(scene.ends.left.wait().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(scene.ends.right.state(), IBV_QPS_RTS);
}

TEST(Atomics, need_a_place_of_eight_bytes_for_the_answer) {
  for (const std::size_t bytes : {0UL, 4UL, 16UL}) {
    const Scene scene;
    ASSERT_EQ(post(scene.ends.left, add(1), {scene.to.piece(0, bytes)}, remote_of(scene.at)), 0);
    EXPECT_EQ(scene.ends.left.wait().status, IBV_WC_LOC_LEN_ERR);
    EXPECT_EQ(word_in(scene.word), 100u);
  }
}

TEST(Atomics, are_never_inline) {
  const Scene scene;
  EXPECT_EQ(post(scene.ends.left, add(1), {scene.to.piece(0, 8)}, remote_of(scene.at),
                 IBV_SEND_INLINE | IBV_SEND_SIGNALED),
            EINVAL);
}

TEST(Atomics, need_a_region_that_is_written_locally) {
  const Device device;
  const Buffer buffer(64);
  EXPECT_EQ(driver().reg_mr(device.domain, buffer.data(), 64, IBV_ACCESS_REMOTE_ATOMIC), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST(Atomics, and_reads_fail_where_the_initiator_may_have_none_in_flight) {
  if (!device_is_soft()) GTEST_SKIP() << "some adapters take 0 for 1, others never send";
  const Scene scene({.access = atomic_access, .reads = 0});
  scene.expect_failure(IBV_WC_LOC_QP_OP_ERR, remote_of(scene.at));
  EXPECT_EQ(scene.ends.right.state(), IBV_QPS_RTS);
}

TEST(Atomics, and_reads_are_invalid_where_the_target_answers_none) {
  const ConnectionOptions none{.access = atomic_access, .reads_answered = 0};
  {
    const Scene scene(none);
    scene.expect_failure(IBV_WC_REM_INV_REQ_ERR, remote_of(scene.at));
    EXPECT_TRUE(scene.ends.right.comes_to(IBV_QPS_ERR));
  }
  const Scene scene(none);
  ASSERT_EQ(scene.ends.left.send(IBV_WR_RDMA_WRITE, {scene.to.piece(8, 8)}, scene.at.address() + 8,
                                 scene.at.handle->rkey),
            0);
  EXPECT_EQ(scene.ends.left.wait().status, IBV_WC_SUCCESS);  // it returns nothing
  ASSERT_EQ(scene.ends.left.send(IBV_WR_RDMA_READ, {scene.to.piece(0, 8)}, scene.at.address(),
                                 scene.at.handle->rkey),
            0);
  EXPECT_EQ(scene.ends.left.wait().status, IBV_WC_REM_INV_REQ_ERR);
}

TEST(Atomics, are_reported_as_what_they_are) {
  const Device device;
  ibv_device_attr limits{};
  ASSERT_EQ(driver().query_device(device.context, &limits), 0);
  EXPECT_NE(limits.atomic_cap, IBV_ATOMIC_NONE);
}

class Words : public testing::TestWithParam<Storage> {};
INSTANTIATE_TEST_SUITE_P(Processes, Words,
                         testing::Values(Storage::private_pages, Storage::shared_file));

/// Adds one `count` times; the former values must rise.
void count_up(const Endpoint& endpoint, const Region& answer, const Buffer& buffer,
              const RemoteRegion& word, std::uint64_t count) {
  std::uint64_t next = 0;
  for (std::uint64_t round = 0; round < count; ++round) {
    ASSERT_EQ(post(endpoint, add(1), {answer.piece(0, 8)}, word), 0);
    ASSERT_EQ(endpoint.wait().status, IBV_WC_SUCCESS);
    const std::uint64_t former = word_in(buffer);
    ASSERT_GE(former, next);
    next = former + 1;
  }
}

std::uint64_t rounds_max() {
  return device_is_soft() ? 5000 : 500;
}

void count_from_elsewhere(Line& line) {
  const Device device;
  const Buffer buffer(64);
  const Region answer(device, buffer);
  const Endpoint endpoint(device);
  connect_over(line, endpoint, {.access = atomic_access});
  const auto word = line.get<RemoteRegion>();
  line.meet();
  count_up(endpoint, answer, buffer, word, rounds_max());
  line.meet();
}

/// Two other processes, and the owner by a queue pair connected to itself.
TEST_P(Words, changed_by_several_processes_lose_nothing) {
  if (transport_is("shared") && GetParam() == Storage::private_pages) GTEST_SKIP();
  OtherProcess first(count_from_elsewhere), second(count_from_elsewhere);
  {
    const Device device;
    const Buffer buffer(4096, GetParam()), local(64);
    const Region region(device, buffer, atomic_access), answer(device, local);
    const Endpoint to_first(device), to_second(device), self(device);
    connect_over(first.line(), to_first, {.access = atomic_access});
    connect_over(second.line(), to_second, {.access = atomic_access});
    self.connect(self.address(), {.access = atomic_access});
    first.line().put(remote_of(region));
    second.line().put(remote_of(region));
    first.line().meet();
    second.line().meet();
    const std::uint64_t rounds = rounds_max();
    count_up(self, answer, local, remote_of(region), rounds);
    std::uint64_t own = 0;
    if (device_is_soft() && GetParam() == Storage::shared_file)  // atomic towards programs, too
      for (; own < rounds; ++own)
        std::atomic_ref(*reinterpret_cast<std::uint64_t*>(buffer.data())).fetch_add(1);
    first.line().meet();
    second.line().meet();
    EXPECT_EQ(word_in(buffer), 3 * rounds + own);
  }
  first.expect_success();
  second.expect_success();
}

TEST(Words, of_private_memory_are_refused_where_only_shared_files_are_allowed) {
  if (!transport_is("shared")) GTEST_SKIP();
  OtherProcess other([](Line& line) {
    const Device device;
    const Buffer buffer(64);
    const Region region(device, buffer, atomic_access);
    const Endpoint endpoint(device);
    connect_over(line, endpoint, {.access = atomic_access});
    line.put(remote_of(region));
    line.meet();
    EXPECT_EQ(word_in(buffer), 0u);
  });
  const Device device;
  const Buffer buffer(64);
  const Region region(device, buffer);
  const Endpoint endpoint(device);
  connect_over(other.line(), endpoint, {.access = atomic_access});
  ASSERT_EQ(post(endpoint, add(1), {region.piece(0, 8)}, other.line().get<RemoteRegion>()), 0);
  EXPECT_EQ(endpoint.wait().status, IBV_WC_REM_OP_ERR);
  other.line().meet();
  other.expect_success();
}

/// An initiator is killed in the middle of its requests, perhaps while it is its turn.
TEST_P(Words, of_a_survivor_are_changed_on_after_an_initiators_death) {
  if (transport_is("shared") && GetParam() == Storage::private_pages) GTEST_SKIP();
  std::mt19937 random(11);
  for (int round = 0; round < (device_is_soft() ? 30 : 5); ++round) {
    OtherProcess other([](Line& line) {
      const Device device;
      const Buffer buffer(64);
      const Region answer(device, buffer);
      const Endpoint endpoint(device);
      connect_over(line, endpoint, {.access = atomic_access});
      const auto word = line.get<RemoteRegion>();
      count_up(endpoint, answer, buffer, word, ~0ull);
    });
    const Device device;
    const Buffer buffer(4096, GetParam()), local(64);
    const Region region(device, buffer, atomic_access), answer(device, local);
    const Endpoint endpoint(device), self(device);
    connect_over(other.line(), endpoint, {.access = atomic_access});
    self.connect(self.address(), {.access = atomic_access});
    other.line().put(remote_of(region));
    while (std::atomic_ref(*reinterpret_cast<std::uint64_t*>(buffer.data())).load() == 0)
      std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
    other.kill();
    count_up(self, answer, local, remote_of(region), 100);
  }
}

}  // namespace
}  // namespace tutti::conformance
