#include "bootstrap/frame.hpp"

#include <algorithm>

#include "tutti/detail/check.hpp"

namespace tutti::bootstrap {

namespace {
// One read takes all small frames that are likely to be there.  A larger frame grows the buffer
// while its bytes come in, at most doubling it, so an announcement alone costs nothing.
constexpr std::size_t space_bytes_min = std::size_t{4} << 10;
}  // namespace

std::span<std::byte> FrameReader::space() {
  if (begin_ > 0) {
    std::copy(bytes_.begin() + static_cast<std::ptrdiff_t>(begin_),
              bytes_.begin() + static_cast<std::ptrdiff_t>(end_), bytes_.begin());
    end_ -= begin_;
    begin_ = 0;
  }
  if (bytes_.size() - end_ < space_bytes_min) {
    const std::size_t whole_frame = sizeof(wire::FrameHeader) + payload_bytes_max_;
    bytes_.resize(std::max(end_ + space_bytes_min, std::min(2 * end_, whole_frame)));
  }
  return std::span{bytes_}.subspan(end_);
}

void FrameReader::received(std::size_t bytes) noexcept {
  detail::check(bytes <= bytes_.size() - end_, "received bytes fit their space", bytes,
                bytes_.size() - end_);
  end_ += bytes;
}

std::optional<Frame> FrameReader::next() noexcept {
  if (malformed_) return std::nullopt;
  const std::span<const std::byte> pending{bytes_.data() + begin_, end_ - begin_};
  const auto header = front_of<wire::FrameHeader>(pending);
  if (!header) return std::nullopt;
  if (header->payload_bytes > payload_bytes_max_) {
    malformed_ = true;
    return std::nullopt;
  }
  const std::size_t frame_bytes = sizeof *header + header->payload_bytes;
  if (pending.size() < frame_bytes) return std::nullopt;
  begin_ += frame_bytes;
  return Frame{wire::FrameType{header->type},
               pending.subspan(sizeof *header, header->payload_bytes)};
}

void append_frame(std::vector<std::byte>& stream, wire::FrameType type,
                  std::span<const std::byte> front, std::span<const std::byte> rest) {
  const std::size_t payload_bytes = front.size() + rest.size();
  detail::check(payload_bytes <= UINT32_MAX, "a frame's length fits its field", payload_bytes);
  const wire::FrameHeader header{static_cast<std::uint32_t>(type),
                                 static_cast<std::uint32_t>(payload_bytes)};
  for (const auto part : {bytes_of(header), front, rest}) {
    stream.insert(stream.end(), part.begin(), part.end());
  }
}

std::vector<std::uint32_t> ranks_in(std::span<const std::byte> payload, std::uint32_t rank_count) {
  std::vector<std::uint32_t> ranks;
  const auto head = front_of<wire::Missing>(payload);
  if (!head) return ranks;
  payload = payload.subspan(sizeof *head);
  for (std::uint32_t position = 0; position < head->count; ++position) {
    const auto rank = front_of<std::uint32_t>(payload);
    if (!rank) break;
    if (*rank < rank_count) ranks.push_back(*rank);
    payload = payload.subspan(sizeof *rank);
  }
  return ranks;
}

}  // namespace tutti::bootstrap
