// Promise: on a device that keeps lines whole, whoever sees the last word of an aligned line of 64
// bytes that a peer writes with one inline request sees all of it, however fast the lines follow
// each other; and what the device cannot write like that it does not write.
//
// On a real device, which promises nothing, this says whether it does so all the same (tutti-tune
// looks at more, and writes down what it finds):
//   TUTTI_TEST_ANY_DEVICE=1 conformance_lines --device NAME
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "harness.hpp"

namespace tutti::conformance {
namespace {

constexpr std::size_t line_bytes = 64, words = line_bytes / 8;
constexpr std::size_t line_count = 4;  // side by side, in turn
constexpr std::uint64_t lines_to_write = 1'500'000;
constexpr auto time_to_write = 3s;  // a slow device writes fewer
/// How many lines the reader must at least have met: then reader and writer ran at the same time.
constexpr std::uint64_t lines_to_meet = 10'000;
constexpr int turns_max = 8;  // on a host with other work

/// Why nothing can be said here; NULL: the device is held to its promise.
const char* why_not(const Device& device) {
  const char* const reason = driver().keep_lines_whole(device.context);
  return reason != nullptr && std::getenv("TUTTI_TEST_ANY_DEVICE") == nullptr ? reason : nullptr;
}

struct alignas(line_bytes) CacheLine {
  std::uint64_t word[words];
};

/// Line after line behind the number `before`, all eight words of number i being i, until there are
/// enough; the last number.
std::uint64_t write_lines(const Endpoint& source, const RemoteRegion& target,
                          std::uint64_t before) {
  const auto end = std::chrono::steady_clock::now() + time_to_write;
  constexpr std::uint64_t in_flight = 16, signal_every = 8;
  std::uint64_t number = before;
  while (number < before + lines_to_write) {
    ++number;
    CacheLine line;
    std::fill(std::begin(line.word), std::end(line.word), number);
    const bool signal = number % signal_every == 0;
    const ibv_sge piece{
        .addr = reinterpret_cast<std::uint64_t>(&line), .length = line_bytes, .lkey = 0};
    EXPECT_EQ(
        source.send(IBV_WR_RDMA_WRITE, {piece}, target.address + number % line_count * line_bytes,
                    target.key, IBV_SEND_INLINE | (signal ? unsigned{IBV_SEND_SIGNALED} : 0u)),
        0);
    if (!signal || number < before + in_flight) continue;
    if (source.wait().status != IBV_WC_SUCCESS) return 0;
    if (number % 1024 == 0 && std::chrono::steady_clock::now() > end) break;
  }
  return source.wait().status == IBV_WC_SUCCESS ? number : 0;
}

struct Seen {
  std::uint64_t changes = 0;  // lines whose last word was seen
  std::uint64_t torn = 0;     // whose last word was seen before the rest
  std::uint64_t back = 0;     // whose last word went back, so that it was not whole
};

/// Reads lines until all have the numbers that come last.
class Reader {
 public:
  explicit Reader(std::byte* lines) : lines_(reinterpret_cast<CacheLine*>(lines)) {}

  void look() {
    for (std::size_t i = 0; i < line_count; ++i) {
      CacheLine& line = lines_[i];
      // The last word, then the rest, which may be a later line's by then, but no earlier one's.
      const std::uint64_t number =
          std::atomic_ref(line.word[words - 1]).load(std::memory_order_acquire);
      if (number == last_[i]) continue;
      seen_.back += number < last_[i];
      for (std::size_t word = 0; word + 1 < words; ++word)
        if (std::atomic_ref(line.word[word]).load(std::memory_order_relaxed) < number) {
          ++seen_.torn;
          break;
        }
      last_[i] = number;
      ++seen_.changes;
    }
  }
  const Seen& seen() const { return seen_; }
  std::uint64_t newest() const { return *std::max_element(std::begin(last_), std::end(last_)); }

 private:
  CacheLine* lines_;
  std::uint64_t last_[line_count] = {};
  Seen seen_;
};

TEST(Lines, who_sees_the_last_word_sees_the_whole_line) {
  {
    const Device device;
    if (const char* const reason = why_not(device)) GTEST_SKIP() << "the device: " << reason;
  }
  OtherProcess writer([](Line& line_to_reader) {
    const Device device;
    (void)driver().keep_lines_whole(device.context);
    const Endpoint source(device, {.inline_bytes = line_bytes});
    connect_over(line_to_reader, source);
    const auto target = line_to_reader.get<RemoteRegion>();
    for (std::uint64_t number = 0; line_to_reader.get<bool>();) {
      number = write_lines(source, target, number);
      line_to_reader.put(number);
    }
  });
  const Device device;
  const Endpoint sink(device);
  connect_over(writer.line(), sink);
  const Buffer buffer(4096, Storage::shared_file);
  std::memset(buffer.data(), 0, buffer.size());
  const Region region(device, buffer);
  writer.line().put(remote_of(region));
  Reader reader(buffer.data());
  std::uint64_t last = 0;
  for (int turn = 0; turn < turns_max && reader.seen().changes < lines_to_meet; ++turn) {
    writer.line().put(true);
    std::atomic<std::uint64_t> written{0};
    std::thread ear([&] { written = writer.line().get<std::uint64_t>(); });
    const auto end = std::chrono::steady_clock::now() + 2 * time_to_write;
    while ((written == 0 || reader.newest() < written) && std::chrono::steady_clock::now() < end)
      for (int i = 0; i < 1000; ++i) reader.look();
    ear.join();
    ASSERT_GT(written, last) << "a write has failed";
    last = written;
    EXPECT_EQ(reader.newest(), last) << "all have come";
  }
  writer.line().put(false);
  writer.expect_success();
  std::printf("%llu lines written, %llu seen\n", static_cast<unsigned long long>(last),
              static_cast<unsigned long long>(reader.seen().changes));
  EXPECT_EQ(reader.seen().torn, 0u) << "of " << reader.seen().changes;
  EXPECT_EQ(reader.seen().back, 0u) << "of " << reader.seen().changes;
  if (reader.seen().changes < lines_to_meet)
    GTEST_SKIP() << "writer and reader have hardly run at the same time: needs two CPUs";
}

/// A write into private memory of another process, which goes by the kernel.
ibv_wc_status write_into_private_memory(bool keep_whole, std::uint32_t bytes) {
  ibv_wc_status status = IBV_WC_GENERAL_ERR;
  OtherProcess writer([=](Line& line_to_target) {
    const Device device;
    if (keep_whole) (void)driver().keep_lines_whole(device.context);
    const Endpoint source(device, {.inline_bytes = line_bytes});
    connect_over(line_to_target, source);
    const auto target = line_to_target.get<RemoteRegion>();
    CacheLine line = {};
    line.word[0] = 7;
    const ibv_sge piece{.addr = reinterpret_cast<std::uint64_t>(&line), .length = bytes, .lkey = 0};
    EXPECT_EQ(source.send(IBV_WR_RDMA_WRITE, {piece}, target.address, target.key,
                          IBV_SEND_INLINE | IBV_SEND_SIGNALED),
              0);
    line_to_target.put(source.wait().status);
  });
  const Device device;
  const Endpoint sink(device);
  connect_over(writer.line(), sink);
  const Buffer buffer(4096);
  std::memset(buffer.data(), 0, buffer.size());
  const Region region(device, buffer);
  writer.line().put(remote_of(region));
  status = writer.line().get<ibv_wc_status>();
  writer.expect_success();
  EXPECT_EQ(buffer.data()[0] == std::byte{7}, status == IBV_WC_SUCCESS);
  return status;
}

TEST(Lines, what_cannot_be_stored_whole_is_not_written) {
  if (!device_is_soft()) GTEST_SKIP() << "a promise of the software device";
  {
    const Device device;
    if (const char* const reason = driver().keep_lines_whole(device.context))
      GTEST_SKIP() << "the device: " << reason;
  }
  const char* const transport = std::getenv("TUTTI_SOFT_TRANSPORT");
  EXPECT_EQ(write_into_private_memory(true, 64), IBV_WC_REM_OP_ERR);
  EXPECT_EQ(write_into_private_memory(true, 8), IBV_WC_REM_OP_ERR);
  if (transport != nullptr) return;  // which reaches no private memory
  EXPECT_EQ(write_into_private_memory(true, 16), IBV_WC_SUCCESS);
  EXPECT_EQ(write_into_private_memory(false, 64), IBV_WC_SUCCESS);
}

TEST(Lines, ways_that_copy_byte_by_byte_keep_none) {
  if (!device_is_soft()) GTEST_SKIP() << "a promise of the software device";
  const char* const transport = std::getenv("TUTTI_SOFT_TRANSPORT");
  const bool copies =
      transport != nullptr && (!std::strcmp(transport, "cma") || !std::strcmp(transport, "bounce"));
  const Device device;
  const char* const reason = driver().keep_lines_whole(device.context);
  EXPECT_EQ(reason != nullptr, copies);
  EXPECT_TRUE(reason == nullptr || std::strstr(reason, transport) != nullptr) << reason;
}

}  // namespace
}  // namespace tutti::conformance
