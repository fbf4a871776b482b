// Proofs depend on everything that both sides have said, and on who proves.
#include "bootstrap/handshake.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "bootstrap/frame.hpp"

namespace tutti::bootstrap {
namespace {

/// `value` with another bit at each of its bytes.
template <class T>
std::vector<T> altered(const T& value) {
  std::vector<T> all;
  for (std::size_t at = 0; at < sizeof value; ++at) {
    T other = value;
    unsigned char byte = 0;
    std::memcpy(&byte, reinterpret_cast<const char*>(&other) + at, 1);
    byte = static_cast<unsigned char>(byte ^ 1u << at % 8);
    std::memcpy(reinterpret_cast<char*>(&other) + at, &byte, 1);
    all.push_back(other);
  }
  return all;
}

TEST(Handshake, a_proof_depends_on_every_byte) {
  const wire::Hello hello{.magic = wire::magic, .version = 3, .rank = 1, .rank_count = 4};
  const wire::Challenge challenge{.job = {1}, .nonce = {2}};
  std::set<Digest> proofs{prove(Prover::rank, "secret", hello, challenge),
                          prove(Prover::hub, "secret", hello, challenge),
                          prove(Prover::rank, "Secret", hello, challenge),
                          prove(Prover::rank, std::string(256, 's'), hello, challenge)};
  for (const wire::Hello& other : altered(hello))
    proofs.insert(prove(Prover::rank, "secret", other, challenge));
  for (const wire::Challenge& other : altered(challenge))
    proofs.insert(prove(Prover::rank, "secret", hello, other));
  EXPECT_EQ(proofs.size(), 4 + sizeof hello + sizeof challenge);
}

TEST(Handshake, random_bytes_do_not_repeat) {
  wire::Nonce one{}, other{};
  EXPECT_TRUE(fill_random(one) && fill_random(other));
  EXPECT_NE(one, other);
  EXPECT_NE(one, wire::Nonce{});
}

}  // namespace
}  // namespace tutti::bootstrap
