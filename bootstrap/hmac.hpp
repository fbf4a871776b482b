// SHA-256 (FIPS 180-4) and the keyed hash over it, HMAC (RFC 2104).  They are our own, because the
// library needs nothing else of a cryptographic library, and nothing here has to be fast: a rank
// hashes a few hundred bytes when it joins.  No branch and no address depends on what is hashed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti::bootstrap {

using Digest = std::array<std::uint8_t, 32>;

class Sha256 {
 public:
  void add(std::span<const std::byte> bytes) noexcept;
  /// The digest of all that was added.  Nothing can be added afterwards.
  Digest digest() noexcept;

 private:
  void take_block() noexcept;

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::uint8_t, 64> block_{};
  std::uint64_t byte_count_ = 0;
};

Digest hmac(std::span<const std::byte> key, std::span<const std::byte> message) noexcept;

/// Takes equally long for all digests, so that the time of a refusal says nothing about them.
bool equal_in_constant_time(const Digest& one, const Digest& other) noexcept;

}  // namespace tutti::bootstrap
