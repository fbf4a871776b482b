#include "verbs/connection.hpp"

#include <algorithm>
#include <array>

namespace tutti::verbs {

std::string why_not_worded(const WordedLimits& limits, const std::string& port) {
  if (!limits.places_writes_in_order)
    return "polls words that the device writes, and " + port +
           " does not promise that who sees one sees all before it (the software device does" +
           (limits.found.empty() ? std::string() : "; " + limits.found) +
           "): expected TUTTI_SHARED_NOTIFICATIONS=republished there, or automatic";
  if (limits.inline_bytes < sizeof(WordedWrite::word) || limits.sends_max < 2)
    return "writes a chunk and then a word, inline, which takes 2 sends and 8 inline bytes; a "
           "queue pair of " +
           port + " has " + std::to_string(limits.sends_max) + " and " +
           std::to_string(limits.inline_bytes);
  return {};
}

bool places_writes_in_order(const Port& port) noexcept {
  const FoundFact::Says found = port.placement.order.says;
  if (port.driver().places_writes_in_order) return found != FoundFact::Says::violated;
  return found == FoundFact::Says::holds;
}

std::string why_not_lines(const std::string& tears, const std::string& port) {
  return "a rank polls the last word of a line of 64 bytes that its peer writes, and " + port +
         " does not promise that the line is whole when that word is seen: " + tears +
         "; or use immediate";
}

std::string why_not_lines(const Port& port) {
  const FoundFact& found = port.placement.lines;
  if (found.says == FoundFact::Says::violated) return why_not_lines(found.source, port.name());
  const char* const tears = port.driver().keep_lines_whole(port.device.get());
  if (tears == nullptr) return {};
  // The software device knows which of its ways it takes, which no stress does.
  if (port.description.is_software()) return why_not_lines(tears, port.name());
  if (found.says == FoundFact::Says::holds) return {};
  return why_not_lines(found.source.empty() ? tears : found.source, port.name());
}

int Connection::post_receives(std::uint32_t count) noexcept {
  assert(count <= pair->receives_max());
  constexpr std::size_t chain_max = 64;
  std::array<ibv_recv_wr, chain_max> chain{};
  while (count > 0) {
    const std::size_t length = std::min<std::size_t>(count, chain_max);
    for (std::size_t i = 0; i < length; ++i)
      chain[i] = {.wr_id = CompletionTag{index, 0}.encoded(),
                  .next = i + 1 < length ? &chain[i + 1] : nullptr,
                  .sg_list = nullptr,
                  .num_sge = 0};
    ibv_recv_wr* refused = nullptr;
    if (const int error = ibv_post_recv(pair->get(), chain.data(), &refused); error != 0)
      return error;
    count -= static_cast<std::uint32_t>(length);
  }
  return 0;
}

void Connection::reserve_receive() {
  // A message of each parity can be on its way, and a farewell, while up to a batch of used
  // receives but one is not yet posted again.
  const std::uint32_t receives_max = pair->receives_max();
  const std::uint32_t available = receives_max - receive_batch(receives_max);
  if (receives_left() < 2)
    throw Error(ErrorCode::limit_exceeded,
                "too many live operations: a queue pair holds " + std::to_string(receives_max) +
                    " receives, of which " + std::to_string(available) + " can be promised and " +
                    std::to_string(receives_reserved) + " are; destroy some operations");
  receives_reserved += 2;
}

std::uint32_t Connection::receives_left() const noexcept {
  const std::uint32_t available = pair->receives_max() - receive_batch(pair->receives_max());
  return available - std::min(receives_reserved, available);
}

void Connection::require_lines() const {
  if (pair->inline_bytes() < sizeof(Line))
    throw Error(ErrorCode::unsupported,
                "TUTTI_NOTIFY=flag (or notify in code): a message is one inline write of " +
                    std::to_string(sizeof(Line)) + " bytes, and a queue pair of " +
                    pair->port().name() + " has " + std::to_string(pair->inline_bytes()) +
                    "; use immediate");
}

std::string Connection::why_not_worded() const {
  const Port& port = pair->port();
  return verbs::why_not_worded({.places_writes_in_order = places_writes_in_order(port),
                                .found = port.placement.order.source,
                                .inline_bytes = pair->inline_bytes(),
                                .sends_max = pair->sends_max()},
                               port.name());
}

}  // namespace tutti::verbs
