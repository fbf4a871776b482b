#include "bootstrap/handshake.hpp"

#include <sys/random.h>
#include <sys/types.h>

#include <array>
#include <cerrno>

namespace tutti::bootstrap {

namespace {

/// Holds the bytes that are hashed.  The word is of one length, so that no two messages are the
/// same bytes.
struct Message {
  std::array<char, 16> word;
  wire::Hello hello;
  wire::Challenge challenge;
};
static_assert(sizeof(Message) == 16 + sizeof(wire::Hello) + sizeof(wire::Challenge));

constexpr std::array<char, 16> rank_word{'t', 'u', 't', 't', 'i', ' ', 'r', 'a', 'n', 'k'};
constexpr std::array<char, 16> hub_word{'t', 'u', 't', 't', 'i', ' ', 'h', 'u', 'b'};

}  // namespace

Digest prove(Prover prover, std::string_view secret, const wire::Hello& hello,
             const wire::Challenge& challenge) noexcept {
  const Message message{prover == Prover::rank ? rank_word : hub_word, hello, challenge};
  return hmac(std::as_bytes(std::span{secret}), std::as_bytes(std::span{&message, 1}));
}

bool fill_random(std::span<std::uint8_t> bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t filled = ::getrandom(bytes.data(), bytes.size(), 0);
    if (filled < 0 && errno == EINTR) continue;
    if (filled <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(filled));
  }
  return true;
}

}  // namespace tutti::bootstrap
