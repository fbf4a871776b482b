// However the network cuts a stream of bytes, the same frames come out of it, none is longer than
// allowed, and their payloads are read within their bounds.
#include <algorithm>
#include <vector>

#include "bootstrap/frame.hpp"
#include "fuzz.hpp"

namespace tutti::fuzz {
namespace {

using namespace bootstrap;

struct Taken {
  std::vector<std::pair<wire::FrameType, std::vector<std::byte>>> frames;
  bool malformed = false;

  bool operator==(const Taken&) const = default;
};

Taken take(std::span<const std::byte> stream, std::size_t limit, std::size_t piece) {
  Taken taken;
  FrameReader reader(limit);
  while (!stream.empty()) {
    const auto space = reader.space();
    promise(!space.empty(), "there is room for more");
    const std::size_t bytes = std::min({space.size(), stream.size(), piece});
    std::copy_n(stream.begin(), bytes, space.begin());
    reader.received(bytes);
    stream = stream.subspan(bytes);
    while (const auto frame = reader.next()) {
      promise(frame->payload.size() <= limit, "a frame is no longer than allowed");
      taken.frames.emplace_back(frame->type,
                                std::vector(frame->payload.begin(), frame->payload.end()));
    }
  }
  taken.malformed = reader.malformed();
  return taken;
}

}  // namespace

void judge(std::span<const std::uint8_t> input) {
  Bytes bytes(input);
  const std::size_t limit = std::size_t{bytes.byte()} * 8;
  const std::size_t piece = std::size_t{bytes.byte()} + 1;
  const auto stream = bytes.bytes(input.size());
  const Taken whole = take(stream, limit, stream.size() + 1);
  promise(whole == take(stream, limit, piece), "how a stream is cut does not matter");
  for (const auto& [type, payload] : whole.frames) {
    for (const std::uint32_t rank : ranks_in(payload, 5)) promise(rank < 5, "a rank is of the job");
    (void)front_of<wire::Hello>(payload);
    (void)front_of<wire::Letters>(payload);
  }
}

std::vector<std::string> seeds() {
  std::vector<std::byte> stream{std::byte{64}, std::byte{7}};
  append_frame(stream, wire::FrameType::hello, bytes_of(wire::Hello{.magic = wire::magic}));
  append_frame(stream, wire::FrameType::challenge, bytes_of(wire::Challenge{}));
  append_frame(stream, wire::FrameType::goodbye, {});
  const std::uint32_t ranks[] = {3, 1};
  append_frame(stream, wire::FrameType::missing, bytes_of(wire::Missing{1, 2, 0}),
               std::as_bytes(std::span{ranks}));
  append_frame(stream, wire::FrameType::contribution, bytes_of(wire::Step{1, 9}),
               std::as_bytes(std::span{"12345678"}));
  return {std::string(reinterpret_cast<const char*>(stream.data()), stream.size())};
}

}  // namespace tutti::fuzz
