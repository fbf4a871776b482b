// SHA-256 and HMAC against vectors of the standards.
#include "bootstrap/hmac.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace tutti::bootstrap {
namespace {

std::string hex(const Digest& digest) {
  std::string text;
  for (const std::uint8_t byte : digest)
    for (const int digit : {byte >> 4, byte & 15}) text += "0123456789abcdef"[digit];
  return text;
}

std::string sha256(const std::string& text) {
  Sha256 hash;
  hash.add(std::as_bytes(std::span{text}));
  return hex(hash.digest());
}

std::string hmac_of(const std::string& key, const std::string& message) {
  return hex(hmac(std::as_bytes(std::span{key}), std::as_bytes(std::span{message})));
}

/// The bytes from `first` to `last`.
std::string bytes_from(unsigned char first, unsigned char last) {
  std::string bytes;
  for (int byte = first; byte <= last; ++byte) bytes += static_cast<char>(byte);
  return bytes;
}

// Protects: the examples that NIST gives beside FIPS 180-4: one block, two blocks, nothing, a
// million letters.
TEST(Sha256, has_the_digests_of_the_standard) {
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
                   "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu"),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// Protects: how a text is cut does not matter, at each length around a block's padding.
TEST(Sha256, takes_a_text_in_pieces) {
  for (std::size_t bytes = 50; bytes < 140; ++bytes) {
    const std::string text = std::string(bytes, 'x') + std::to_string(bytes);
    Sha256 hash;
    const auto all = std::as_bytes(std::span{text});
    for (std::size_t begin = 0; begin < all.size(); begin += 7)
      hash.add(all.subspan(begin, std::min<std::size_t>(7, all.size() - begin)));
    EXPECT_EQ(hex(hash.digest()), sha256(text)) << bytes;
  }
}

// Protects: RFC 4231, test cases 1 to 4, 6 and 7 (5 is about truncated digests).
TEST(Hmac, has_the_digests_of_the_standard) {
  EXPECT_EQ(hmac_of(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hmac_of("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hmac_of(std::string(20, '\xaa'), std::string(50, '\xdd')),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(hmac_of(bytes_from(1, 25), std::string(50, '\xcd')),
            "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  const std::string long_key(131, '\xaa');
  EXPECT_EQ(hmac_of(long_key, "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(hmac_of(long_key,
                    "This is a test using a larger than block-size key and a larger than "
                    "block-size data. The key needs to be hashed before being used by the HMAC "
                    "algorithm."),
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST(Hmac, digests_that_differ_in_one_bit_are_not_equal) {
  const Digest digest = hmac({}, {});
  EXPECT_TRUE(equal_in_constant_time(digest, digest));
  for (std::size_t bit = 0; bit < 8 * digest.size(); ++bit) {
    Digest other = digest;
    other[bit / 8] = static_cast<std::uint8_t>(other[bit / 8] ^ 1u << bit % 8);
    EXPECT_FALSE(equal_in_constant_time(digest, other)) << bit;
  }
}

}  // namespace
}  // namespace tutti::bootstrap
