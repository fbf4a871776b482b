// Cutting a stream that anybody may have written into frames.
#include "bootstrap/frame.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace tutti::bootstrap {
namespace {

void feed(FrameReader& reader, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto space = reader.space();
    const std::size_t part = std::min(space.size(), bytes.size());
    std::copy_n(bytes.begin(), part, space.begin());
    reader.received(part);
    bytes = bytes.subspan(part);
  }
}

// Protects: frames come out as they went in, however the network cuts the stream.
TEST(FrameReader, puts_frames_together_from_single_bytes) {
  std::vector<std::byte> stream;
  append_frame(stream, wire::FrameType::query, bytes_of(wire::Step{7, 9}));
  append_frame(stream, wire::FrameType::goodbye, {});
  FrameReader reader(64);
  std::vector<wire::FrameType> types;
  for (const std::byte& byte : stream) {
    feed(reader, std::span{&byte, 1});
    while (const auto frame = reader.next()) {
      types.push_back(frame->type);
      if (frame->type == wire::FrameType::query) {
        const auto step = front_of<wire::Step>(frame->payload);
        ASSERT_TRUE(step);
        EXPECT_EQ(step->sequence, 7u);
        EXPECT_EQ(step->total_bytes, 9u);
      }
    }
  }
  EXPECT_EQ(types, (std::vector{wire::FrameType::query, wire::FrameType::goodbye}));
  EXPECT_FALSE(reader.malformed());
}

// Protects: several frames of one read are all given out, large ones too.
TEST(FrameReader, takes_frames_larger_than_one_read) {
  const std::vector<std::byte> large(100'000, std::byte{0x5a});
  std::vector<std::byte> stream;
  for (int repeat = 0; repeat < 3; ++repeat) {
    append_frame(stream, wire::FrameType::contribution, bytes_of(wire::Step{1, 2}), large);
  }
  FrameReader reader(sizeof(wire::Step) + large.size());
  int frames = 0;
  std::span<const std::byte> rest{stream};
  while (!rest.empty()) {
    const std::size_t part = std::min<std::size_t>(rest.size(), 7001);
    feed(reader, rest.first(part));
    rest = rest.subspan(part);
    while (const auto frame = reader.next()) {
      ++frames;
      const auto payload = frame->payload.subspan(sizeof(wire::Step));
      EXPECT_TRUE(std::equal(payload.begin(), payload.end(), large.begin(), large.end()));
    }
  }
  EXPECT_EQ(frames, 3);
}

// Protects: a length beyond the limit ends the stream at once, before anything is stored for it.
TEST(FrameReader, refuses_oversized_lengths) {
  for (const std::uint32_t bytes : {65u, 0x7fffffffu, 0xffffffffu}) {
    FrameReader reader(64);
    feed(reader, bytes_of(wire::FrameHeader{1, bytes}));
    EXPECT_FALSE(reader.next());
    EXPECT_TRUE(reader.malformed());
    EXPECT_LT(reader.space().size(), std::size_t{64} << 10);
  }
}

// Protects: the limit itself is allowed.
TEST(FrameReader, accepts_the_limit) {
  FrameReader reader(4);
  std::vector<std::byte> stream;
  append_frame(stream, wire::FrameType::hello, bytes_of(std::uint32_t{5}));
  feed(reader, stream);
  EXPECT_TRUE(reader.next());
  EXPECT_FALSE(reader.malformed());
}

// Protects: text, such as an HTTP request, is no frame.
TEST(FrameReader, takes_text_for_malformed) {
  const std::string request = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";
  FrameReader reader(sizeof(wire::Hello));
  feed(reader, std::as_bytes(std::span{request}));
  EXPECT_FALSE(reader.next());
  EXPECT_TRUE(reader.malformed());
}

// Protects: payloads that are too short or announce more ranks than they hold are read safely.
TEST(Payload, short_payloads_give_nothing) {
  const std::vector<std::byte> bytes(sizeof(wire::Step) - 1);
  EXPECT_FALSE(front_of<wire::Step>(bytes));
  EXPECT_TRUE(ranks_in(bytes, 8).empty());

  std::vector<std::byte> payload;
  const auto append = [&](std::span<const std::byte> part) {
    payload.insert(payload.end(), part.begin(), part.end());
  };
  append(bytes_of(wire::Missing{1, 1000, 0}));
  append(bytes_of(std::uint32_t{3}));
  append(bytes_of(std::uint32_t{8}));  // no such rank
  EXPECT_EQ(ranks_in(payload, 8), std::vector<std::uint32_t>{3});
}

}  // namespace
}  // namespace tutti::bootstrap
