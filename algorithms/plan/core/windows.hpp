// Many messages from one rank to another go in windows of 4, of which three are on their way at
// once: that which is sent, one which takes as long as the answer to the third is on its way.
// Before the next one is sent, the first of them has been taken, and its receiver has said so.  So
// few receives will do for any number of messages (a first guess: longer windows need fewer
// answers).
#pragma once

#include <algorithm>
#include <cstdint>

namespace tutti::plan {

inline constexpr std::uint32_t window = 4;
inline constexpr std::uint32_t windows_in_flight = 3;

/// Messages of one peer that nobody has looked at, of two calls, with their answers.
inline constexpr std::uint32_t incoming_of_windows = 2 * windows_in_flight * (window + 1);

/// To so many messages: for all windows but the last ones.
constexpr std::uint32_t answer_count(std::uint32_t messages) {
  return std::max((messages + window - 1) / window, windows_in_flight) - windows_in_flight;
}

/// Whether before the i-th message is sent all up to `taken_before(i)` have to have been taken,
/// which the answer `answer_before(i)` says.
constexpr bool awaits_answer(std::uint32_t i) {
  return i % window == 0 && i >= windows_in_flight * window;
}
constexpr std::uint32_t taken_before(std::uint32_t i) {
  return i - (windows_in_flight - 1) * window;
}
constexpr std::uint32_t answer_before(std::uint32_t i) {
  return i / window - windows_in_flight;
}

/// Whether the receiver answers after the i-th of so many.
constexpr bool is_answered(std::uint32_t i, std::uint32_t messages) {
  return (i + 1) % window == 0 && i + 1 + (windows_in_flight - 1) * window < messages;
}

}  // namespace tutti::plan
