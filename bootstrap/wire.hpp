// All structs that cross the TCP connections of bootstrap.  A frame is a header and as many bytes
// as it announces; all numbers are little-endian, as are all hosts that this builds for.
//
//   joining    client -> hub  hello, proof           hub -> client  challenge, proof,
//                                                                   welcome | refusal | gave_up
//   exchanging client -> hub  contribution, comparison, letters, query
//                                                    hub -> client  gathered, equal, delivered,
//                                                                   disagreement, missing
//   news       client -> hub  incident, goodbye      hub -> client  incident, left
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace tutti::bootstrap::wire {

static_assert(std::endian::native == std::endian::little);

enum class FrameType : std::uint32_t {
  hello = 1,         // Hello
  welcome = 2,       // nothing: all ranks have come; in a meeting of those that are still there
                     // Missing: their ranks before, in the order of their ranks from now on
  refusal = 3,       // Refusal
  gave_up = 4,       // Missing: rank 0 has stopped waiting for these
  contribution = 5,  // Step, then the rank's bytes
  gathered = 6,      // Step, then the bytes of every rank in rank order
  disagreement = 7,  // Disagreement
  query = 8,         // Step: who has not contributed to it?
  missing = 9,       // Missing: the answer
  incident = 10,     // News
  goodbye = 11,      // nothing: the connection's end is not a death
  left = 12,         // News: this rank has said goodbye
  comparison = 13,   // Step, then the rank's bytes: needed only if not all ranks have the same
  equal = 14,        // Step: all have; otherwise the answer is gathered
  letters = 15,      // Letters, then for each its rank in 32 bits, to which it goes, and a record
  delivered = 16,    // Letters likewise, with the ranks from which they come
  challenge = 17,    // Challenge: the answer to a hello
  proof = 18,        // Proof: the client's, and then the hub's
};

struct FrameHeader {
  std::uint32_t type = 0;
  std::uint32_t payload_bytes = 0;
};
static_assert(sizeof(FrameHeader) == 8);

inline constexpr std::uint64_t magic = 0x30626f6974747574;  // "tuttiob0"
// It is raised with every change of a struct in this file, and of what is done with it.  The length
// of Hello and its fields up to `rank_count` are frozen, so that two versions can detect that they
// differ.
inline constexpr std::uint32_t protocol_version = 5;

inline constexpr std::size_t secret_bytes_max = 256;

using Nonce = std::array<std::uint8_t, 32>;

/// Until version 2 the secret and its length followed rank_count.
struct Hello {
  std::uint64_t magic = 0;
  std::uint32_t version = 0;
  std::uint32_t rank = 0;
  std::uint32_t rank_count = 0;
  std::uint32_t reserved = 0;
  Nonce nonce{};
  std::array<std::uint8_t, 224> padding{};
};
static_assert(sizeof(Hello) == 280);

struct Challenge {
  std::array<std::uint8_t, 16> job{};  // random, the same for all ranks of this job
  Nonce nonce{};                       // of this connection
};
static_assert(sizeof(Challenge) == 48);

/// See handshake.hpp.
struct Proof {
  std::array<std::uint8_t, 32> digest{};
};
static_assert(sizeof(Proof) == 32);

enum class Reason : std::uint32_t {
  version,
  secret,
  rank_count,
  rank_range,
  rank_taken,
  left_out,  // of a meeting: the others go on without this rank
};

struct Refusal {
  Reason reason = Reason::version;
  std::uint32_t expected = 0;  // the hub's version or rank count, where that is the reason
};
static_assert(sizeof(Refusal) == 8);

/// Names one exchange: exchanges are counted from 1, and 0 is the joining.
struct Step {
  std::uint64_t sequence = 0;
  std::uint64_t total_bytes = 0;  // one rank's in the whole allgather, of which this is a chunk
};
static_assert(sizeof(Step) == 16);

/// Some of a rank's letters, or of those to it; they come in several frames if they are many.
struct Letters {
  std::uint64_t sequence = 0;
  std::uint64_t total_bytes = 0;  // letters_bit, and the bytes of a record
  std::uint32_t count = 0;
  std::uint32_t last = 0;  // 1: there are no more in this step
};
static_assert(sizeof(Letters) == 24);

/// Tells the total_bytes of letters from those of an allgather.
inline constexpr std::uint64_t letters_bit = std::uint64_t{1} << 63;

struct Disagreement {
  std::uint64_t sequence = 0;
  std::uint64_t one_bytes = 0;
  std::uint64_t other_bytes = 0;
  std::uint32_t one_rank = 0;
  std::uint32_t other_rank = 0;
};
static_assert(sizeof(Disagreement) == 32);

/// Followed by `count` ranks of 32 bits, which are missing, or have come.
struct Missing {
  std::uint64_t sequence = 0;
  std::uint32_t count = 0;
  std::uint32_t shortage = 0;  // why the hub lets nobody in at the moment (errno); 0: it does
};
static_assert(sizeof(Missing) == 16);

struct News {
  std::uint32_t kind = 0;  // Incident::Kind
  std::uint32_t rank = 0;
};
static_assert(sizeof(News) == 8);

/// The largest chunk of one rank.  A longer allgather is several exchanges, so that a hub's memory
/// is bounded: 256 KiB are enough to hide a round trip, and 16 MiB bound the sum over all ranks.
constexpr std::size_t chunk_bytes_max(std::uint32_t rank_count) noexcept {
  constexpr std::size_t together = std::size_t{16} << 20;
  return std::clamp<std::size_t>(together / rank_count, std::size_t{1} << 10,
                                 std::size_t{256} << 10);
}

/// How many bytes of letters a hub collects for a rank before it sends them on.
constexpr std::size_t letters_bytes_max(std::uint32_t rank_count) noexcept {
  return chunk_bytes_max(rank_count);
}

/// The longest payload that a client may send, and the longest that may be sent to it.
constexpr std::size_t to_hub_bytes_max(std::uint32_t rank_count) noexcept {
  return sizeof(Letters) + chunk_bytes_max(rank_count);
}
constexpr std::size_t to_client_bytes_max(std::uint32_t rank_count) noexcept {
  // As many as `gathered` or `delivered` takes; a `missing` list takes 4 bytes per rank and always
  // fits.
  return sizeof(Letters) + rank_count * chunk_bytes_max(rank_count);
}

}  // namespace tutti::bootstrap::wire
