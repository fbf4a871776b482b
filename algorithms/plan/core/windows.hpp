// Windows: the flow control of many messages from one rank to another.
//
// Messages go in windows of 4, of which at most three are on their way: one is being sent, and two
// travel while the answer to an earlier one comes back.  Before message i of a further window is
// sent, its receiver has taken the first taken_before(i), and its answer has said so.
// So a few receives on a connection suffice for any number of messages.  (The length 4 is a first
// guess: longer windows need fewer answers and more receives.)
//
// The steps that follow from it are in peer_stream.hpp.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>

namespace tutti::plan {

inline constexpr std::uint32_t window = 4;
inline constexpr std::uint32_t windows_in_flight = 3;

/// Messages of one peer that can wait unseen: those of the last windows of one call and of the
/// first ones of the next.
inline constexpr std::uint32_t incoming_of_windows_one_way = 2 * windows_in_flight * window;
/// incoming_of_windows_one_way and answers, where the peer also answers messages of this rank.
inline constexpr std::uint32_t incoming_of_windows = 2 * windows_in_flight * (window + 1);

/// Answers to so many messages: one for each window but the last ones.
constexpr std::uint32_t answer_count(std::uint32_t messages) {
  return std::max((messages + window - 1) / window, windows_in_flight) - windows_in_flight;
}

/// Whether the sender waits for an answer before message i.
constexpr bool awaits_answer(std::uint32_t i) {
  return i % window == 0 && i >= windows_in_flight * window;
}
/// Messages that have to have been taken before message i is sent; 0 if it may go at once.
constexpr std::uint32_t taken_before(std::uint32_t i) {
  return awaits_answer(i) ? i - (windows_in_flight - 1) * window : 0;
}
/// The number of the answer that says so.
constexpr std::uint32_t answer_before(std::uint32_t i) {
  assert(awaits_answer(i));
  return i / window - windows_in_flight;
}

/// Whether the receiver answers after message i of so many.
constexpr bool is_answered(std::uint32_t i, std::uint32_t messages) {
  assert(i < messages);
  return (i + 1) % window == 0 && i + 1 + (windows_in_flight - 1) * window < messages;
}

}  // namespace tutti::plan
