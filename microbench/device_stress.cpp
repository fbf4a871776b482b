#include "microbench/device_stress.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
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
/// As long as the chunks of the shared ring, and many times the largest MTU, which is 4096.
constexpr std::size_t chunk_bytes_max = tune::placed_chunk_bytes_max;
constexpr std::size_t chunk_bytes_of_packets = 4096;
/// Four lines more, no power of two: slots are not all in the same sets of a cache.
constexpr std::size_t slot_bytes = chunk_bytes_max + 4 * sizeof(Line);
constexpr std::size_t word_offset = slot_bytes - word_bytes;
constexpr std::size_t line_offset = slot_bytes - sizeof(Line);
constexpr std::size_t short_lengths = 13;  // powers of two up to chunk_bytes_of_packets
constexpr std::size_t long_lengths = 4;    // and from there to chunk_bytes_max
static_assert(chunk_bytes_max < word_offset && chunk_bytes_of_packets >> (short_lengths - 1) == 1 &&
              chunk_bytes_of_packets << long_lengths == chunk_bytes_max);
// Words that the other end writes beside messages, each in a line of its own.
constexpr std::size_t taken_offset = 0;   // how many messages it has taken
constexpr std::size_t ended_offset = 64;  // how many it has sent, + 1, once it sends no more
constexpr std::size_t slots_offset = 128;
static_assert(slots_offset % sizeof(Line) == 0 && slot_bytes % sizeof(Line) == 0);

constexpr std::uint64_t taken_before_said = 8;  // a quarter of the slots
constexpr std::uint64_t words_ahead = 4;        // that are polled, the next one among them
constexpr std::uint64_t burst_max = 8;
/// How long an end waits for the other one: less than ranks that are not of a pair wait for both.
constexpr Timeout patience = std::chrono::seconds(20);
constexpr unsigned looks_before_poll = 64;
constexpr unsigned looks = 1024;  // at one word; as long as it takes to send a few messages

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

  Message() = default;
  Message(std::uint64_t sender, std::uint64_t number) noexcept
      : word(mixed(sender << 56 | number)), pattern(mixed(word)) {
    const std::uint64_t dice = mixed(pattern);
    const std::uint64_t eighth = dice % 8;
    // Chunks are long: more of them would leave no time to look.
    kind = eighth < 4 ? Kind::line : eighth < 7 ? Kind::word : Kind::chunk;
    switch (kind) {
      case Kind::line:
        from = line_offset;
        to = word_offset;
        break;
      case Kind::word:
        break;
      case Kind::chunk: {
        // Three of four chunks are longer than a packet; lengths of each kind are spread evenly.
        const std::size_t power = (dice >> 8) % 256;
        const bool is_long = (dice >> 6) % 4 != 0;
        const std::size_t most = is_long ? chunk_bytes_of_packets << power % long_lengths
                                         : std::size_t{1} << power % short_lengths;
        const std::size_t bytes = (is_long ? most : 0) + 1 + (dice >> 16) % most;
        const bool is_anywhere = (dice >> 32) % 2 == 0;
        from = is_anywhere ? (dice >> 40) % (word_offset - bytes + 1) : word_offset - bytes;
        to = from + bytes;
        break;
      }
    }
  }

  /// The word of eight bytes that begins there in the slot.  It costs little: chunks are long.
  std::uint64_t content(std::size_t offset) const noexcept {
    return pattern + offset * 0x9e3779b97f4a7c15u;
  }
  /// The bits in which `found` differs from that word, as far as it belongs to what is sent.
  std::uint64_t wrong(std::size_t offset, std::uint64_t found) const noexcept {
    std::uint64_t bits = found ^ content(offset);
    // The first bytes of memory are the low ones of a word (verbs/wire.hpp).
    if (offset < from) bits = bits >> 8 * (from - offset) << 8 * (from - offset);
    if (const std::size_t past = offset + word_bytes; past > to)
      bits = bits << 8 * (past - to) >> 8 * (past - to);
    return bits;
  }
  std::size_t first_word() const noexcept { return from / word_bytes * word_bytes; }
  std::size_t last_word() const noexcept { return (to - 1) / word_bytes * word_bytes; }
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

  /// Throws RunFailed if nothing comes any more, unless something wrong was seen by then.
  tune::WritePlacement run() {
    try {
      exchange_messages();
    } catch (const RunFailed&) {
      // A device that tears numbers may end in this; what it has done counts.
      if (seen_.torn_lines + seen_.early_words == 0) throw;
    }
    return seen_;
  }

 private:
  void exchange_messages() {
    constexpr unsigned turns_before_clock = 16;
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
  }

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
    if (now - progress_at_ > patience) fail();
    if (is_over_ || now < end_) return;
    is_over_ = true;
    put_word(ended_offset, sent_ + 1);
  }

  [[noreturn]] static void fail() {
    throw RunFailed("stress of the device: nothing from the other rank for 20 s");
  }
  template <class Ready>
  void spin_until(Ready ready) {
    constexpr unsigned polls_before_clock = 1u << 14;
    const Timeout begin = detail::MonotonicClock::read();
    for (unsigned polls = 1; !ready(); ++polls) {
      station_.poll(0);
      if (polls % polls_before_clock != 0) continue;
      if (detail::MonotonicClock::read() - begin > patience) fail();
      sched_yield();
    }
  }

  std::uint64_t random() noexcept { return random_ = mixed(random_); }

  void put_word(std::size_t offset, std::uint64_t word) {
    store(station_.source() + offset, word);
    station_.put(cable_, {.bytes = word_bytes, .immediate = false, .offset = offset});
  }

  void send() {
    // On a device that tears words this may be no number that was written: it counts once it was
    // read twice.
    const std::uint64_t taken = load(station_.target() + taken_offset, std::memory_order_acquire);
    if (taken == taken_read_ && taken > taken_by_other_ && taken <= sent_) taken_by_other_ = taken;
    taken_read_ = taken;
    for (std::uint64_t count = 1 + random() % burst_max;
         count > 0 && sent_ < taken_by_other_ + slots; --count)
      if (send(++sent_) > chunk_bytes_of_packets) break;
  }

  /// Returns how many bytes there are beside the word.
  std::size_t send(std::uint64_t number) {
    const Message message(self_, number);
    const std::size_t slot = slot_of(number);
    // Whole words: what is written around the chunk is not sent.
    for (std::size_t at = message.first_word(); at < message.to; at += word_bytes)
      store(station_.source() + slot + at, message.content(at));
    if (message.kind == Message::Kind::line) {
      store(station_.source() + slot + word_offset, message.word);
      station_.put(cable_,
                   {.bytes = sizeof(Line), .immediate = false, .offset = slot + line_offset});
      return 0;
    }
    if (message.kind == Message::Kind::chunk)
      station_.put(
          cable_,
          {.bytes = message.to - message.from, .immediate = false, .offset = slot + message.from});
    put_word(slot + word_offset, message.word);
    return message.to - message.from;
  }

  /// Whether the last and the first bytes of a message but its word are there: where a device is
  /// late by less than all of it takes to read, they are what comes last.
  bool has_ends(const Message& message, std::uint64_t number) const noexcept {
    if (message.from == message.to) return true;
    const std::byte* const slot = station_.target() + slot_of(number);
    const std::size_t first = message.first_word(), last = message.last_word();
    const std::uint64_t at_end = load(slot + last, std::memory_order_relaxed);
    const std::uint64_t at_begin = load(slot + first, std::memory_order_relaxed);
    return (message.wrong(last, at_end) | message.wrong(first, at_begin)) == 0;
  }
  /// Whether all of a message but its word is there; from its end on, which was written last.
  bool has_content(const Message& message, std::uint64_t number) const noexcept {
    if (message.from == message.to) return true;
    const std::byte* const slot = station_.target() + slot_of(number);
    const std::size_t first = message.first_word();
    for (std::size_t at = message.last_word();; at -= word_bytes) {
      if (message.wrong(at, load(slot + at, std::memory_order_relaxed)) != 0) return false;
      if (at == first) return true;
    }
  }
  std::uint64_t word_at(std::uint64_t number) const noexcept {
    return load(station_.target() + slot_of(number) + word_offset, std::memory_order_acquire);
  }
  bool is_there(const Message& message, std::uint64_t number) const noexcept {
    return word_at(number) == message.word && has_content(message, number);
  }
  void await(const Message& message, std::uint64_t number) {
    spin_until([&] { return is_there(message, number); });
  }

  /// Polls one word for a while.  Whether it has come.
  bool look() {
    const std::uint64_t number = taken_ + 1 + random() % words_ahead;
    // Now, as there is no time once the word has come.
    for (std::uint64_t one = taken_ + 1; one <= number; ++one)
      ahead_[one - taken_ - 1] = incoming(one);
    const Message& message = ahead_[number - taken_ - 1];
    const std::uint64_t old = number > slots ? incoming(number - slots).word : 0;
    bool was_old = false;  // at the look before
    for (unsigned i = 1; i <= looks; ++i) {
      const std::uint64_t word = word_at(number);
      if (word == old) {
        was_old = i % looks_before_poll != 0;
        // In an emulated network, what this end has sent travels by its polls.
        if (!was_old) station_.poll(0);
        continue;
      }
      const bool is_torn = word != message.word;  // the word itself
      if (is_torn) {
        ++seen_.lines;
        ++seen_.torn_lines;
        spin_until([&] { return word_at(number) == message.word; });
      }
      // What has been there for long shows nothing.
      take_up_to(number, message, was_old, is_torn);
      return true;
    }
    return false;
  }

  /// Looks at all that has to be there, now that the word of that message is; it counts as seen if
  /// the word was seen to come, or if something is wrong.  A word that was torn is counted already.
  void take_up_to(std::uint64_t number, const Message& message, bool was_seen_to_come,
                  bool was_torn) {
    // First, before more can come: what was written last, of this message and of earlier ones.
    bool has_all = has_ends(message, number);
    std::array<bool, words_ahead> has_earlier{};
    const std::uint64_t first = taken_ + 1;
    for (std::uint64_t earlier = number; earlier-- > first;) {
      const Message& one = ahead_[earlier - first];
      has_earlier[earlier - first] = word_at(earlier) == one.word && has_ends(one, earlier);
    }
    has_all = has_all && has_content(message, number);
    if (message.kind == Message::Kind::line && !was_torn) {
      if (was_seen_to_come || !has_all) ++seen_.lines;
      if (!has_all) ++seen_.torn_lines;
    }
    const bool is_chunk = message.kind == Message::Kind::chunk;
    if (is_chunk || number > taken_ + 1) {
      bool is_early = is_chunk && !has_all;
      for (std::uint64_t earlier = first; earlier < number; ++earlier) {
        const Message& one = ahead_[earlier - first];
        if (has_earlier[earlier - first] && has_content(one, earlier)) continue;
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
  std::uint64_t sent_ = 0, taken_by_other_ = 0, taken_read_ = 0;
  std::uint64_t taken_ = 0, said_ = 0, taken_at_clock_ = 0;
  std::array<Message, words_ahead> ahead_;  // those after taken_
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

std::string why_not_of_rank_0(Exchange& exchange, const tune::Fingerprint& mine) {
  struct Card {
    std::array<char, 128> device{}, firmware{}, cpu{}, link{};
    std::uint64_t gigabits_per_second = 0;
  } card;
  const auto put = [](std::array<char, 128>& to, const std::string& text) {
    std::copy_n(text.data(), std::min(text.size(), to.size() - 1), to.data());
  };
  put(card.device, mine.device);
  put(card.firmware, mine.firmware);
  put(card.cpu, mine.cpu);
  put(card.link, mine.link);
  card.gigabits_per_second = mine.gigabits_per_second;
  std::vector<tune::Fingerprint> all;
  for (const Card& one : gather(exchange, card))
    all.push_back({.device = one.device.data(),
                   .firmware = one.firmware.data(),
                   .link = one.link.data(),
                   .gigabits_per_second = static_cast<std::uint32_t>(one.gigabits_per_second),
                   .cpu = one.cpu.data()});
  return why_ranks_differ(all);
}

tune::WritePlacement stress_device(Exchange& exchange, std::span<const Node> nodes,
                                   const DeviceStressOptions& options) {
  assert(nodes.size() == exchange.rank_count());
  const std::vector<Cable> cables = pairs_of(nodes);
  if (cables.empty()) return {};
  Station station(exchange, options.device, stress_memory_bytes(), cables);
  // As messages by flag do.  A real device cannot be asked; the software device keeps lines whole
  // from now on, or says that it cannot, and then there is nothing to find out.
  const verbs::Port& port = station.port();
  const bool refuses = port.driver().keep_lines_whole(port.device.get()) != nullptr;
  bool can_send_lines = !(refuses && port.description.is_software());
  for (std::uint32_t cable = 0; cable < cables.size(); ++cable)
    if (station.has(cable))
      can_send_lines = can_send_lines && station.pair_of(cable).inline_bytes() >= sizeof(Line);
  const std::vector<char> can_send = gather(exchange, static_cast<char>(can_send_lines));
  if (std::find(can_send.begin(), can_send.end(), 0) != can_send.end()) return {};
  struct {
    tune::WritePlacement seen;
    std::uint64_t has_failed = 0;
  } mine;
  std::string failure = "stress of the device: it has failed on another rank";
  try {
    for (std::uint32_t cable = 0; cable < cables.size(); ++cable)
      if (station.has(cable))
        mine.seen =
            stress_cable(station, cable, cables[cable].one == exchange.self(), options.time);
  } catch (const RunFailed& error) {
    failure = error.what();
    mine.has_failed = 1;
  }
  tune::WritePlacement sum;
  bool has_failed = false;
  for (const auto& one : gather(exchange, mine)) {
    sum = sum_of(sum, one.seen);
    has_failed = has_failed || one.has_failed != 0;
  }
  // A rank may wait in vain for a device that errs.  Then the errors that were seen are the result.
  if (has_failed && sum.torn_lines + sum.early_words == 0) throw RunFailed(failure);
  return sum;  // all ranks have ended, so that queue pairs may go
}

}  // namespace tutti::bench
