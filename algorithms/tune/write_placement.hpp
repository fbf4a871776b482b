// What a stress of a device has seen of how it places the writes of a peer in memory that is
// polled, and what follows from it: whether messages may be lines, and notifications words, on this
// device.
//
// Verbs promise neither.  A stress can only refute them: one violation forbids, and no number of
// good writes proves anything.  So many good ones are asked for that a device which errs once in
// 300,000 writes would have been caught with 95 % probability (3 / n, the "rule of three").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::tune {

struct Fingerprint;

struct WritePlacement {
  std::uint64_t lines = 0;        // of 64 bytes, whose last word was seen to come
  std::uint64_t torn_lines = 0;   // of these, or of words alone: not all of it was there
  std::uint64_t words = 0;        // seen to come, after other writes that nobody had looked at
  std::uint64_t early_words = 0;  // of these: something that was written earlier was not there
  friend bool operator==(const WritePlacement&, const WritePlacement&) = default;
};

/// The most that a file can count.
inline constexpr std::uint64_t placed_writes_max = 1'000'000'000'000'000;
/// A stress writes chunks of up to so many bytes before a word: of longer ones it says nothing.
inline constexpr std::uint64_t placed_chunk_bytes_max = 64u << 10;
/// So many have to be seen, all of them good.
inline constexpr std::uint64_t placed_writes_needed = 1'000'000;

/// Counts of two stresses of one device, up to placed_writes_max.
WritePlacement sum_of(const WritePlacement& one, const WritePlacement& other) noexcept;

enum class Evidence : std::uint8_t { none, too_little, holds, violated };
Evidence evidence_for_lines(const WritePlacement& seen) noexcept;
Evidence evidence_for_order(const WritePlacement& seen) noexcept;

/// What was seen, in words: "1200000 lines were seen to come, all of them whole".
std::string words_on_lines(const WritePlacement& seen);
std::string words_on_order(const WritePlacement& seen);

/// Why what was seen on a machine does not hold for another one, as a sentence; empty: it does.
/// Unlike for findings, what is not known counts, as a firmware version of zeros and a CPU without
/// a name: only the firmware tells devices of one driver apart, and what lies between device and
/// memory is the CPU's.
std::string why_placement_differs(const Fingerprint& of_file, const Fingerprint& of_machine);
/// Why what all ranks have seen together would not hold for the machine of rank 0; empty: it does.
std::string why_ranks_differ(const std::vector<Fingerprint>& of_rank);

}  // namespace tutti::tune
