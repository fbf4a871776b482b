#include "microbench/device_stress.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>
#include <vector>

#include "microbench/together.hpp"
#include "verbs/wire.hpp"

namespace tutti::bench {
namespace {

using verbs::Line;

constexpr std::uint64_t slots = 32;
constexpr std::size_t word_bytes = sizeof(std::uint64_t);
constexpr std::size_t chunk_bytes_max = 4096;
/// 68 lines, no power of two: slots are not all in the same sets of a cache.
constexpr std::size_t slot_bytes = 68 * sizeof(Line);
constexpr std::size_t word_offset = slot_bytes - word_bytes;
constexpr std::size_t line_offset = slot_bytes - sizeof(Line);
constexpr std::size_t chunk_lengths = 13;  // powers of two up to chunk_bytes_max
static_assert(chunk_bytes_max < word_offset && chunk_bytes_max >> (chunk_lengths - 1) == 1);
// Words that the other end writes beside messages, each in a line of its own.
constexpr std::size_t taken_offset = 0;   // how many messages it has taken
constexpr std::size_t ended_offset = 64;  // how many it has sent, + 1, once it sends no more
constexpr std::size_t slots_offset = 128;
static_assert(slots_offset % sizeof(Line) == 0 && slot_bytes % sizeof(Line) == 0);

constexpr std::uint64_t taken_before_said = 8;  // a quarter of the slots
constexpr std::uint64_t words_ahead = 4;        // that are polled, the next one among them
constexpr std::uint64_t burst_max = 8;
constexpr unsigned looks = 256;  // at one word; as long as it takes to send a few messages

/// The finalizer of splitmix64: another number has other bits everywhere.
constexpr std::uint64_t mixed(std::uint64_t number) noexcept {
  number += 0x9e3779b97f4a7c15u;
  number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9u;
  number = (number ^ number >> 27) * 0x94d049bb133111ebu;
  return number ^ number >> 31;
}

/// What a message is, from its number: both ends know it.
struct Message {
  enum class Kind : std::uint8_t { line, word, chunk };
  Kind kind = Kind::line;
  std::size_t from = 0, to = 0;  // bytes of the slot, without the word
  std::uint64_t word = 0;
  std::uint64_t pattern = 0;

  Message(std::uint64_t sender, std::uint64_t number) noexcept
      : word(mixed(sender << 56 | number)), pattern(mixed(word)) {
    const std::uint64_t dice = mixed(pattern);
    const std::uint64_t eighth = dice % 8;
    kind = eighth < 4 ? Kind::line : eighth < 5 ? Kind::word : Kind::chunk;
    switch (kind) {
      case Kind::line:
        from = line_offset;
        to = word_offset;
        break;
      case Kind::word:
        break;
      case Kind::chunk: {
        // As many short ones as long ones.
        const std::size_t most = std::size_t{1} << (dice >> 8) % chunk_lengths;
        const std::size_t bytes = 1 + (dice >> 16) % most;
        const bool is_anywhere = (dice >> 32) % 2 == 0;
        from = is_anywhere ? (dice >> 40) % (word_offset - bytes + 1) : word_offset - bytes;
        to = from + bytes;
        break;
      }
    }
  }

  /// The word of eight bytes that begins there in the slot.
  std::uint64_t content(std::size_t offset) const noexcept { return mixed(pattern + offset); }
};

std::uint64_t load(const std::byte* at, std::memory_order order) noexcept {
  // A device, or another process, writes it: all that is known here of order is tested here.
  auto* const word = reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(at));
  return std::atomic_ref(*word).load(order);
}
void store(std::byte* at, std::uint64_t word) noexcept {
  std::memcpy(at, &word, sizeof word);
}

/// One end of a cable.
class End {
 public:
  End(Station& station, std::uint32_t cable, bool is_one, Timeout time)
      : station_(station),
        cable_(cable),
        self_(is_one ? 1u : 2u),
        other_(is_one ? 2u : 1u),
        end_(detail::MonotonicClock::read() + time) {}

  tune::WritePlacement run() {
    constexpr unsigned turns_before_clock = 64;
    progress_at_ = detail::MonotonicClock::read();
    for (unsigned turn = 1; !has_ended(); ++turn) {
      if (!is_over_) send();
      // All that is there, so that the next ones are seen to come.
      for (std::uint64_t i = 0; i < slots && look(); ++i) {
      }
      station_.poll(0);
      if (turn % turns_before_clock == 0) look_at_clock();
    }
    station_.flush(cable_);
    return seen_;
  }

 private:
  static std::size_t slot_of(std::uint64_t number) noexcept {
    return slots_offset + number % slots * slot_bytes;
  }
  Message incoming(std::uint64_t number) const noexcept { return {other_, number}; }

  bool has_ended() const noexcept {
    return is_over_ &&
           load(station_.target() + ended_offset, std::memory_order_acquire) == taken_ + 1;
  }

  void look_at_clock() {
    const Timeout now = detail::MonotonicClock::read();
    if (taken_ != taken_at_clock_) {
      taken_at_clock_ = taken_;
      progress_at_ = now;
    } else {
      sched_yield();  // the other end may need this CPU
    }
    if (now - progress_at_ > call_timeout)
      throw RunFailed("stress of the device: nothing from the other rank for 60 s");
    if (is_over_ || now < end_) return;
    is_over_ = true;
    put_word(ended_offset, sent_ + 1);
  }

  std::uint64_t random() noexcept { return random_ = mixed(random_); }

  void put_word(std::size_t offset, std::uint64_t word) {
    store(station_.source() + offset, word);
    station_.put(cable_, {.bytes = word_bytes, .immediate = false, .offset = offset});
  }

  void send() {
    // On a device that tears words this is no number that was written: out of bounds, or as good.
    const std::uint64_t taken = load(station_.target() + taken_offset, std::memory_order_acquire);
    if (taken > taken_by_other_ && taken <= sent_) taken_by_other_ = taken;
    for (std::uint64_t count = 1 + random() % burst_max;
         count > 0 && sent_ < taken_by_other_ + slots; --count)
      send(++sent_);
  }

  void send(std::uint64_t number) {
    const Message message(self_, number);
    const std::size_t slot = slot_of(number);
    // Whole words: what is written around the chunk is not sent.
    for (std::size_t at = message.from / word_bytes * word_bytes; at < message.to; at += word_bytes)
      store(station_.source() + slot + at, message.content(at));
    if (message.kind == Message::Kind::line) {
      store(station_.source() + slot + word_offset, message.word);
      station_.put(cable_,
                   {.bytes = sizeof(Line), .immediate = false, .offset = slot + line_offset});
      return;
    }
    if (message.kind == Message::Kind::chunk)
      station_.put(
          cable_,
          {.bytes = message.to - message.from, .immediate = false, .offset = slot + message.from});
    put_word(slot + word_offset, message.word);
  }

  /// Whether all of a message but its word is there.
  bool has_content(const Message& message, std::uint64_t number) const noexcept {
    const std::byte* const slot = station_.target() + slot_of(number);
    for (std::size_t at = message.from / word_bytes * word_bytes; at < message.to;
         at += word_bytes) {
      std::uint64_t wrong = load(slot + at, std::memory_order_relaxed) ^ message.content(at);
      // The first bytes of memory are the low ones of a word (verbs/wire.hpp).
      if (at < message.from) wrong = wrong >> 8 * (message.from - at) << 8 * (message.from - at);
      if (const std::size_t past = at + word_bytes; past > message.to)
        wrong = wrong << 8 * (past - message.to) >> 8 * (past - message.to);
      if (wrong != 0) return false;
    }
    return true;
  }
  std::uint64_t word_at(std::uint64_t number) const noexcept {
    return load(station_.target() + slot_of(number) + word_offset, std::memory_order_acquire);
  }
  bool is_there(const Message& message, std::uint64_t number) const noexcept {
    return word_at(number) == message.word && has_content(message, number);
  }
  void await(const Message& message, std::uint64_t number) {
    spin_until("a write whose successor has come", [&] {
      station_.poll(0);
      return is_there(message, number);
    });
  }

  /// Polls one word for a while.  Whether it has come.
  bool look() {
    const std::uint64_t number = taken_ + 1 + random() % words_ahead;
    const Message message = incoming(number);
    const std::uint64_t old = number > slots ? incoming(number - slots).word : 0;
    for (unsigned i = 0; i < looks; ++i) {
      const std::uint64_t word = word_at(number);
      if (word == old) continue;
      if (word != message.word) {  // the word itself is torn
        ++seen_.lines;
        ++seen_.torn_lines;
        spin_until("the rest of a word", [&] {
          station_.poll(0);
          return word_at(number) == message.word;
        });
      }
      // What has been there for long shows nothing.
      take_up_to(number, message, i > 0);
      return true;
    }
    return false;
  }

  /// Looks at all that has to be there, now that the word of that message is; it counts as seen if
  /// the word was seen to come, or if something is wrong.
  void take_up_to(std::uint64_t number, const Message& message, bool was_seen_to_come) {
    const bool has_all = has_content(message, number);  // first, before more can come
    if (message.kind == Message::Kind::line) {
      if (was_seen_to_come || !has_all) ++seen_.lines;
      if (!has_all) ++seen_.torn_lines;
    }
    const bool is_chunk = message.kind == Message::Kind::chunk;
    if (is_chunk || number > taken_ + 1) {
      bool is_early = is_chunk && !has_all;
      for (std::uint64_t earlier = taken_ + 1; earlier < number; ++earlier)
        if (const Message one = incoming(earlier); !is_there(one, earlier)) {
          is_early = true;
          await(one, earlier);
        }
      if (was_seen_to_come || is_early) ++seen_.words;
      if (is_early) ++seen_.early_words;
    }
    if (!has_all) await(message, number);
    taken_ = number;
    if (taken_ - said_ < taken_before_said) return;
    said_ = taken_;
    put_word(taken_offset, taken_);
  }

  Station& station_;
  const std::uint32_t cable_;
  const std::uint64_t self_, other_;  // whose messages they are
  const Timeout end_;
  Timeout progress_at_{0};
  std::uint64_t random_ = 1;
  std::uint64_t sent_ = 0, taken_by_other_ = 0;
  std::uint64_t taken_ = 0, said_ = 0, taken_at_clock_ = 0;
  bool is_over_ = false;
  tune::WritePlacement seen_;
};

/// Each rank of rank 0's node, with one of another node.
std::vector<Cable> pairs_of(std::span<const Node> nodes) {
  std::vector<Rank> here, elsewhere;
  for (std::uint32_t rank = 0; rank < nodes.size(); ++rank)
    (nodes[rank] == nodes[0] ? here : elsewhere).push_back(Rank{rank});
  std::vector<Cable> cables;
  for (std::size_t i = 0; i < std::min(here.size(), elsewhere.size()); ++i)
    cables.push_back({.one = here[i], .other = elsewhere[i], .queue = 0, .receives_max = 16});
  return cables;
}

}  // namespace

std::size_t stress_memory_bytes() noexcept {
  return slots_offset + slots * slot_bytes;
}

tune::WritePlacement stress_cable(Station& station, std::uint32_t cable, bool is_one,
                                  Timeout time) {
  assert(station.has(cable));
  assert(station.pair_of(cable).inline_bytes() >= sizeof(Line));
  return End(station, cable, is_one, time).run();
}

tune::WritePlacement stress_device(Exchange& exchange, std::span<const Node> nodes,
                                   const DeviceStressOptions& options) {
  assert(nodes.size() == exchange.rank_count());
  const std::vector<Cable> cables = pairs_of(nodes);
  if (cables.empty()) return {};
  Station station(exchange, options.device, stress_memory_bytes(), cables);
  bool can_send_lines = true;
  for (std::uint32_t cable = 0; cable < cables.size(); ++cable)
    if (station.has(cable))
      can_send_lines = can_send_lines && station.pair_of(cable).inline_bytes() >= sizeof(Line);
  const std::vector<char> can_send = gather(exchange, static_cast<char>(can_send_lines));
  if (std::find(can_send.begin(), can_send.end(), 0) != can_send.end()) return {};
  tune::WritePlacement mine;
  for (std::uint32_t cable = 0; cable < cables.size(); ++cable)
    if (station.has(cable))
      mine = stress_cable(station, cable, cables[cable].one == exchange.self(), options.time);
  tune::WritePlacement sum;
  for (const tune::WritePlacement& one : gather(exchange, mine)) sum = sum_of(sum, one);
  return sum;  // all ranks have ended, so that queue pairs may go
}

}  // namespace tutti::bench
