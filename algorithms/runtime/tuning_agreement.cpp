#include "runtime/tuning_agreement.hpp"

#include <algorithm>
#include <bit>
#include <climits>
#include <cstring>
#include <optional>
#include <string_view>
#include <tutti/detail/hash.hpp>
#include <tutti/detail/names.hpp>
#include <utility>
#include <vector>

#include "bootstrap/board.hpp"
#include "bootstrap/wire.hpp"
#include "runtime/communicator.hpp"
#include "runtime/tuning_table.hpp"
#include "tune/tuning_file.hpp"
#include "verbs/port_card.hpp"

namespace tutti::runtime {
namespace {

/// How long a remark in a letter may be.
constexpr std::size_t remark_bytes_max = 4096;
static_assert(letter_bytes_max >= PATH_MAX + 1 + remark_bytes_max + 1 + tune::json_bytes_max,
              "whatever file a rank can read, it can send");

/// Why a rank cannot take the file that it was told to take.
struct Refusal {
  std::uint64_t code = 0;
  char text[1016] = {};
};
static_assert(std::is_trivially_copyable_v<Refusal>);

std::uint64_t hash_of(std::string_view text) {
  detail::Hash hash;
  for (const char byte : text) hash.add(static_cast<unsigned char>(byte));
  return hash.value();
}

/// What rank 0 sends: the path, whether the table is stale, and the file, with zeros between them.
std::string letter_of(const TuningTable& table) {
  return table.path + '\0' + table.stale.substr(0, remark_bytes_max) + '\0' + table.text;
}

void require_one_setting(std::span<const TuningCard> cards) {
  const auto other = [&](auto&& of) {
    const auto found = std::find_if(cards.begin(), cards.end(), [&](const TuningCard& card) {
      return of(card) != of(cards.front());
    });
    return static_cast<std::size_t>(found - cards.begin());
  };
  const auto refuse = [&](std::size_t rank, const char* variable, const char* option,
                          const std::string& first, const std::string& its) {
    throw Error(ErrorCode::mismatch, std::string("ranks choose differently: ") + variable + " is " +
                                         first + " on rank 0, and " + its + " on rank " +
                                         std::to_string(rank) + ": set it (or " + option +
                                         " in code) alike everywhere");
  };
  const auto mode = [](const TuningCard& card) { return card.mode; };
  if (const std::size_t rank = other(mode); rank < cards.size())
    refuse(rank, "TUTTI_TUNING", "tuning", name_of(static_cast<TuningMode>(cards[0].mode)),
           name_of(static_cast<TuningMode>(cards[rank].mode)));
  const auto keeps = [](const TuningCard& card) { return card.keeps_bits; };
  if (const std::size_t rank = other(keeps); rank < cards.size())
    refuse(rank, "TUTTI_TUNING_BITS", "tuning_keeps_bits",
           cards[0].keeps_bits != 0 ? "keep" : "free",
           cards[rank].keeps_bits != 0 ? "keep" : "free");
}

/// If a rank cannot take its file, all ranks hear why, and throw it.
void require_no_refusal(Communicator::Implementation& communicator, SetUpCall& call,
                        std::span<const TuningCard> cards) {
  const auto first = std::find_if(cards.begin(), cards.end(),
                                  [](const TuningCard& card) { return card.is_refused != 0; });
  if (first == cards.end()) return;
  Refusal mine;
  if (const std::optional<Error>& error = communicator.context.found_table.refusal) {
    mine.code = static_cast<std::uint64_t>(error->code());
    std::strncpy(mine.text, error->what(), sizeof mine.text - 1);
  }
  std::vector<Refusal> all(cards.size());
  communicator.gather(call, std::as_bytes(std::span(&mine, 1)),
                      std::as_writable_bytes(std::span(all)));
  const auto rank = static_cast<std::size_t>(first - cards.begin());
  throw Error(static_cast<ErrorCode>(all[rank].code),
              "rank " + std::to_string(rank) + ": " + all[rank].text);
}

/// `mine` of rank 0, on all ranks.  Along a binomial tree, in steps that follow each other: in the
/// swap t, the ranks below 2^l send the step t - l to the rank that is 2^l further on, for each l.
std::string from_rank_0(Communicator::Implementation& communicator, SetUpCall& call,
                        std::string mine, std::uint64_t bytes) {
  const std::uint64_t self = index_of(communicator.exchange.self());
  const std::uint64_t count = communicator.exchange.rank_count();
  const std::size_t record_bytes = std::min<std::size_t>(bytes_of_step(count), bytes);
  const std::uint64_t steps = (bytes + record_bytes - 1) / record_bytes;
  const auto levels = static_cast<std::uint64_t>(std::bit_width(count - 1));
  mine.resize(steps * record_bytes);
  std::vector<std::byte> to_send, received;
  for (std::uint64_t t = 0; t + 1 < steps + levels; ++t) {
    std::vector<Rank> partners;
    std::optional<std::size_t> parent;  // among the partners
    std::span<char> own;                // where its record belongs
    to_send.clear();
    for (std::uint64_t level = 0; level < levels && level <= t; ++level) {
      const std::uint64_t step = t - level, reach = std::uint64_t{1} << level;
      if (step >= steps) continue;
      const bool sends = self < reach && self + reach < count;
      const bool receives = self >= reach && self < 2 * reach;
      if (!sends && !receives) continue;
      const std::span<char> record = std::span(mine).subspan(step * record_bytes, record_bytes);
      if (receives) {
        parent = partners.size();
        own = record;
      }
      partners.push_back(Rank{static_cast<std::uint32_t>(sends ? self + reach : self - reach)});
      const auto sent = std::as_bytes(record);  // to a parent, who does not look at it
      to_send.insert(to_send.end(), sent.begin(), sent.end());
    }
    received.resize(to_send.size());
    communicator.swap(call, partners, record_bytes, to_send, received);
    if (parent) std::memcpy(own.data(), &received[*parent * record_bytes], record_bytes);
  }
  mine.resize(bytes);
  return mine;
}

/// What rank 0 has sent, on all ranks, or the same Error on all ranks.
TuningTable open_letter(Communicator::Implementation& communicator, SetUpCall& call,
                        const std::string& letter, const TuningCard& of_rank_0) {
  TuningTable table;
  std::uint8_t is_whole = 1;
  try {
    table = table_of_letter(letter, of_rank_0);
  } catch (const Error&) {
    is_whole = 0;
  }
  std::vector<std::uint8_t> all(communicator.exchange.rank_count());
  communicator.gather(call, std::as_bytes(std::span(&is_whole, 1)),
                      std::as_writable_bytes(std::span(all)));
  if (const auto first = std::find(all.begin(), all.end(), 0); first != all.end())
    throw Error(ErrorCode::mismatch, "rank " + std::to_string(first - all.begin()) +
                                         " has not got the tuning file of rank 0 as it was sent; "
                                         "give all ranks one file, or set TUTTI_TUNING=off");
  return table;
}

std::string words_of_preset(const tune::Machine& preset, const verbs::PortCard& slowest) {
  if (slowest.is_software != 0 && slowest.gigabits_per_second == 0)
    return "prices are those of " + preset.name + ", for the software device, which has no rate";
  const std::string link = verbs::is_ethernet(slowest) ? "Ethernet" : "InfiniBand";
  return "prices are those of " + preset.name + ", for a port of " +
         (slowest.gigabits_per_second > 0 ? std::to_string(slowest.gigabits_per_second) + " Gb/s "
                                          : "unknown rate, ") +
         link;
}

/// `why_none`: where there is no table.
TuningInForce in_force(const TuningTable* table, const std::string& whose,
                       const std::string& why_none, TuningMode mode, bool keeps_bits,
                       const verbs::PortCard& slowest) {
  const tune::Machine& preset =
      tune::machine_of_link(verbs::is_ethernet(slowest), slowest.gigabits_per_second);
  const tune::TuningBits bits = keeps_bits ? tune::TuningBits::keep : tune::TuningBits::free;
  TuningInForce made{.knowledge = tune::untuned(preset), .mode = mode};
  if (table == nullptr) {
    made.knowledge.bits = bits;
    made.table = "none" + why_none + "; " + words_of_preset(preset, slowest);
    return made;
  }
  tune::Tuning tuning = table->tuning;
  made.table = table->path + whose + ": " + contents_of(tuning);
  if (mode == TuningMode::model) {
    tuning.rules.clear();
    tuning.findings.clear();
    made.table += ", of which the machine alone counts (TUTTI_TUNING=model)";
  }
  if (!tune::is_described(tuning.machine)) made.table += "; " + words_of_preset(preset, slowest);
  if (!table->stale.empty()) made.table += "; " + table->stale;
  made.knowledge = tune::tuned(preset, std::move(tuning), bits);
  return made;
}

std::string why_none_of(TuningMode mode) {
  return mode == TuningMode::off ? " (TUTTI_TUNING=off)" : " was found";
}

}  // namespace

std::size_t bytes_of_step(std::uint64_t rank_count) {
  const auto ranks = static_cast<std::uint32_t>(std::min<std::uint64_t>(rank_count, UINT32_MAX));
  return std::min(bootstrap::wire::chunk_bytes_max(ranks), bootstrap::Board::chunk_bytes_max) -
         sizeof(Rank);
}

void require_sendable(const TuningCard& of_rank_0) {
  if (of_rank_0.letter_bytes <= letter_bytes_max) return;
  throw Error(ErrorCode::mismatch,
              "rank 0 announces a tuning file of " + std::to_string(of_rank_0.letter_bytes) +
                  " bytes, of which there may be " + std::to_string(letter_bytes_max) +
                  ": give all ranks one file, or set TUTTI_TUNING=off");
}

TuningTable table_of_letter(const std::string& letter, const TuningCard& of_rank_0) {
  const std::size_t path_end = letter.find('\0');
  const std::size_t stale_end =
      path_end == std::string::npos ? path_end : letter.find('\0', path_end + 1);
  if (stale_end == std::string::npos)
    throw Error(ErrorCode::mismatch, "rank 0 has not sent a path, a remark and a file");
  TuningTable table{.path = letter.substr(0, path_end),
                    .text = letter.substr(stale_end + 1),
                    .stale = letter.substr(path_end + 1, stale_end - path_end - 1)};
  if (letter.size() != of_rank_0.letter_bytes || hash_of(table.text) != of_rank_0.table_hash)
    throw Error(ErrorCode::mismatch, table.path + " of rank 0 has changed on its way");
  table.tuning = tune::parse_tuning(table.text, table.path);
  return table;
}

TuningCard tuning_card_of(const Context::Implementation& context) {
  TuningCard card = tuning_card_of(context.found_table);
  card.mode = static_cast<std::uint32_t>(context.settings.tuning);
  card.keeps_bits = context.settings.tuning_keeps_bits ? 1u : 0u;
  return card;
}

TuningCard tuning_card_of(const FoundTable& found) {
  TuningCard card{.is_refused = found.refusal ? 1u : 0u};
  if (!found.table) return card;
  card.table_hash = hash_of(found.table->text);
  card.letter_bytes = letter_of(*found.table).size();
  return card;
}

std::shared_ptr<const TuningInForce> agree_on_tuning(Communicator::Implementation& communicator,
                                                     SetUpCall& call,
                                                     std::span<const TuningCard> cards,
                                                     std::span<const verbs::PortCard> ports) {
  require_one_setting(cards);
  require_no_refusal(communicator, call, cards);
  const ContextSettings& settings = communicator.context.settings;
  const std::optional<TuningTable>& own = communicator.context.found_table.table;
  const verbs::PortCard& slowest = verbs::slowest_of(ports);
  const auto has_table = [](const TuningCard& card) { return card.letter_bytes > 0; };
  const bool is_one = std::all_of(cards.begin(), cards.end(), [&](const TuningCard& card) {
    return has_table(card) == has_table(cards[0]) && card.table_hash == cards[0].table_hash;
  });
  const auto made = [&](const TuningTable* table, const std::string& whose,
                        const std::string& why_none) {
    return std::make_shared<const TuningInForce>(
        in_force(table, whose, why_none, settings.tuning, settings.tuning_keeps_bits, slowest));
  };
  if (is_one) return made(own ? &*own : nullptr, "", why_none_of(settings.tuning));
  if (!has_table(cards[0])) return made(nullptr, "", ": rank 0 has none, as others have");
  require_sendable(cards[0]);
  const TuningTable of_rank_0 = open_letter(
      communicator, call,
      from_rank_0(communicator, call, own ? letter_of(*own) : "", cards[0].letter_bytes), cards[0]);
  return made(&of_rank_0, " of rank 0, as not all ranks have it", "");
}

TuningInForce tuning_of_one(const FoundTable& found, const ContextSettings& settings,
                            const verbs::PortCard& port) {
  return in_force(found.table ? &*found.table : nullptr, "", why_none_of(settings.tuning),
                  settings.tuning, settings.tuning_keeps_bits, port);
}

}  // namespace tutti::runtime
