#include "bootstrap/hmac.hpp"

#include <algorithm>
#include <bit>

namespace tutti::bootstrap {

namespace {

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<std::uint32_t, 64> round_constants{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

constexpr std::size_t block_bytes = 64;

/// The whole key is used, but a key that is longer than a block stands for its digest.
std::array<std::byte, block_bytes> block_of(std::span<const std::byte> key) noexcept {
  std::array<std::byte, block_bytes> block{};
  if (key.size() <= block_bytes) {
    std::copy(key.begin(), key.end(), block.begin());
    return block;
  }
  Sha256 hash;
  hash.add(key);
  const Digest digest = hash.digest();
  std::transform(digest.begin(), digest.end(), block.begin(),
                 [](std::uint8_t byte) { return std::byte{byte}; });
  return block;
}

}  // namespace

void Sha256::add(std::span<const std::byte> bytes) noexcept {
  for (const std::byte byte : bytes) {
    block_[byte_count_++ % block_bytes] = std::to_integer<std::uint8_t>(byte);
    if (byte_count_ % block_bytes == 0) take_block();
  }
}

Digest Sha256::digest() noexcept {
  // A bit 1, zeros, and the number of bits in the last eight bytes of a block.
  const std::uint64_t bit_count = 8 * byte_count_;
  constexpr std::byte one{0x80}, zero{0};
  add({&one, 1});
  while (byte_count_ % block_bytes != block_bytes - 8) add({&zero, 1});
  for (int shift = 56; shift >= 0; shift -= 8) {
    const std::byte part{static_cast<std::uint8_t>(bit_count >> shift)};
    add({&part, 1});
  }
  Digest digest{};
  for (std::size_t i = 0; i < digest.size(); ++i)
    digest[i] = static_cast<std::uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
  return digest;
}

void Sha256::take_block() noexcept {
  std::array<std::uint32_t, 64> words{};
  for (std::size_t i = 0; i < block_.size(); ++i) words[i / 4] = words[i / 4] << 8 | block_[i];
  for (std::size_t i = 16; i < words.size(); ++i) {
    const std::uint32_t early = words[i - 15], late = words[i - 2];
    words[i] = words[i - 16] + (std::rotr(early, 7) ^ std::rotr(early, 18) ^ early >> 3) +
               words[i - 7] + (std::rotr(late, 17) ^ std::rotr(late, 19) ^ late >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::uint32_t one = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                              ((e & f) ^ (~e & g)) + round_constants[i] + words[i];
    const std::uint32_t other =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + one;
    d = c;
    c = b;
    b = a;
    a = one + other;
  }
  const std::array sums{a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < state_.size(); ++i) state_[i] += sums[i];
}

Digest hmac(std::span<const std::byte> key, std::span<const std::byte> message) noexcept {
  auto padded = block_of(key);
  for (std::byte& byte : padded) byte ^= std::byte{0x36};
  Sha256 inner;
  inner.add(padded);
  inner.add(message);
  const Digest digest = inner.digest();
  for (std::byte& byte : padded) byte ^= std::byte{0x36 ^ 0x5c};
  Sha256 outer;
  outer.add(padded);
  outer.add(std::as_bytes(std::span{digest}));
  return outer.digest();
}

bool equal_in_constant_time(const Digest& one, const Digest& other) noexcept {
  std::uint8_t difference = 0;
  for (std::size_t i = 0; i < one.size(); ++i)
    difference = static_cast<std::uint8_t>(difference | (one[i] ^ other[i]));
  return difference == 0;
}

}  // namespace tutti::bootstrap
