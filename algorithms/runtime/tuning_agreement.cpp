#include "runtime/tuning_agreement.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <tutti/detail/check.hpp>
#include <tutti/detail/hash.hpp>
#include <tutti/detail/names.hpp>
#include <utility>
#include <vector>

#include "runtime/communicator.hpp"
#include "runtime/tuning_table.hpp"
#include "tune/tuning_file.hpp"
#include "verbs/port_card.hpp"

namespace tutti::runtime {
namespace {

/// What rank 0 sends in one step.  Where an exchange gathers instead of swapping, every rank gets
/// as much from each rank.
constexpr std::size_t step_bytes = 16u << 10;

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
  return table.path + '\0' + table.stale + '\0' + table.text;
}

TuningTable table_of(const std::string& letter) {
  const std::size_t path_end = letter.find('\0');
  const std::size_t stale_end = letter.find('\0', path_end + 1);
  detail::check(stale_end < letter.size(), "rank 0 sends a path, a remark and a file",
                letter.size());
  TuningTable table{.path = letter.substr(0, path_end),
                    .text = letter.substr(stale_end + 1),
                    .stale = letter.substr(path_end + 1, stale_end - path_end - 1)};
  table.tuning = tune::parse_tuning(table.text, table.path);
  return table;
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

/// `mine` of rank 0, on all ranks.  In each step the ranks below `reach` have the bytes, and each
/// of them sends them to the rank that is so many further on.
std::string from_rank_0(Communicator::Implementation& communicator, SetUpCall& call,
                        std::string mine, std::size_t bytes) {
  const std::uint64_t self = index_of(communicator.exchange.self());
  const std::uint64_t count = communicator.exchange.rank_count();
  const auto rank_of = [](std::uint64_t number) {
    return Rank{static_cast<std::uint32_t>(number)};
  };
  mine.resize(bytes);
  for (std::size_t begin = 0; begin < bytes; begin += step_bytes) {
    const std::span<char> own = std::span(mine).subspan(begin, std::min(step_bytes, bytes - begin));
    std::vector<std::byte> received(own.size());
    for (std::uint64_t reach = 1; reach < count; reach *= 2) {
      std::vector<Rank> partners;
      if (self < reach && self + reach < count) partners.push_back(rank_of(self + reach));
      if (self >= reach && self < 2 * reach) partners.push_back(rank_of(self - reach));
      const auto to_send = std::as_bytes(own);
      communicator.swap(call, partners, own.size(),
                        partners.empty() ? std::span<const std::byte>{} : to_send,
                        partners.empty() ? std::span<std::byte>{} : std::span(received));
      if (!partners.empty() && self >= reach)
        std::memcpy(own.data(), received.data(), received.size());
    }
  }
  return mine;
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
  if (tuning.machine == tune::Machine{}) made.table += "; " + words_of_preset(preset, slowest);
  if (!table->stale.empty()) made.table += "; " + table->stale;
  made.knowledge = tune::tuned(preset, std::move(tuning), bits);
  return made;
}

std::string why_none_of(TuningMode mode) {
  return mode == TuningMode::off ? " (TUTTI_TUNING=off)" : " was found";
}

}  // namespace

TuningCard tuning_card_of(const Context::Implementation& context) {
  const FoundTable& found = context.found_table;
  TuningCard card{.mode = static_cast<std::uint32_t>(context.settings.tuning),
                  .keeps_bits = context.settings.tuning_keeps_bits ? 1u : 0u,
                  .is_refused = found.refusal ? 1u : 0u};
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
  const TuningTable of_rank_0 =
      table_of(from_rank_0(communicator, call, own ? letter_of(*own) : "", cards[0].letter_bytes));
  return made(&of_rank_0, " of rank 0, as not all ranks have it", "");
}

TuningInForce tuning_of_one(const FoundTable& found, const ContextSettings& settings,
                            const verbs::PortCard& port) {
  return in_force(found.table ? &*found.table : nullptr, "", why_none_of(settings.tuning),
                  settings.tuning, settings.tuning_keeps_bits, port);
}

}  // namespace tutti::runtime
