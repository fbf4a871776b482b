// Promise: whatever is done to a tuning file, it is refused with its name and a line, or read as
// its text says: an independent reading of the text and of what is written again agree.
//
// TUTTI_TEST_FILES (5,000) is how many mutated files are read, TUTTI_TEST_FIRST_SEED (1) the seed
// of the first one; TUTTI_TEST_SEED=that reads this one alone, and prints it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <tutti/status.hpp>
#include <vector>

#include "tune/tuning_file.hpp"
#include "tuning_texts.hpp"

namespace tutti::test {
namespace {

using Json = nlohmann::json;

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// What a text says, without what means nothing.  Of a key that is there twice the last one counts,
/// so that a reader that took the first one would differ.
Json meaning_of(const std::string& text) {
  Json file = Json::parse(text);
  for (const char* list : {"probes", "rules", "findings"})
    if (file.contains(list) && file[list].empty()) file.erase(list);
  if (file.contains("made_on")) {
    const auto is_known = [](const Json& value) { return value != "" && value != 0; };
    const Json& members = file["made_on"];
    if (std::none_of(members.begin(), members.end(), is_known)) file.erase("made_on");
  }
  if (file.contains("machine") && !file["machine"].contains("rank_gap_ps"))
    file["machine"]["rank_gap_ps"] = {{"value", 0}, {"low", 0}, {"high", 0}, {"origin", "preset"}};
  if (file.contains("placement")) {
    const Json& counts = file["placement"];
    if (std::all_of(counts.begin(), counts.end(), [](const Json& count) { return count == 0; }))
      file.erase("placement");
  }
  if (file.contains("rules"))
    for (Json& rule : file["rules"]) {
      for (const char* key : {"bytes", "ranks", "nodes", "ranks_per_node"}) {
        if (!rule.contains(key)) continue;
        Json& range = rule[key];
        const std::uint64_t most = std::string(key) == "bytes" ? UINT64_MAX : UINT32_MAX;
        if (range.contains("from") && range["from"] == 0) range.erase("from");
        if (range.contains("to") && range["to"] == most) range.erase("to");
        if (range.empty()) rule.erase(key);
      }
      for (const char* key : {"algorithm", "across", "tree"})
        if (rule.contains(key) && rule[key] == "automatic") rule.erase(key);
    }
  return file;
}

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : bits_(seed) {}

  std::string mutated(std::string text, const std::string& other) {
    for (auto i = 1 + below(3); i > 0 && !text.empty(); --i) text = once(std::move(text), other);
    return text;
  }

 private:
  std::size_t below(std::size_t limit) { return bits_() % limit; }

  std::string once(std::string text, const std::string& other) {
    static const std::vector<std::string> pieces = {"{",
                                                    "}",
                                                    "[",
                                                    "]",
                                                    ",",
                                                    ":",
                                                    "\"",
                                                    "\\",
                                                    "0",
                                                    "-",
                                                    "e",
                                                    ".",
                                                    "\n",
                                                    "null",
                                                    "true",
                                                    "//",
                                                    "\\u0000",
                                                    "\\ud800",
                                                    "\xef\xbb\xbf",
                                                    "\xff",
                                                    std::string(1, '\0'),
                                                    "[[[[[[[["};
    const std::size_t at = below(text.size());
    switch (below(11)) {
      case 0:  // a bit
        text[at] = static_cast<char>(static_cast<unsigned char>(text[at]) ^ (1u << below(8)));
        return text;
      case 1:  // cut off
        return text.substr(0, at);
      case 2:  // cut out
        return text.erase(at, 1 + below(1 + below(200)));
      case 3:
        return text.insert(at, pieces[below(pieces.size())]);
      case 4: {  // a piece of another file
        const std::size_t from = below(other.size());
        return text.insert(at, other.substr(from, 1 + below(100)));
      }
      case 5:  // a line that is away, twice or elsewhere
        return with_lines(text);
      case 6:
      case 7:
        return with_tokens(text, other, true);
      case 8:
        return with_tokens(text, other, false);
      default:
        return with_structure(text, other);
    }
  }

  std::string with_lines(const std::string& text) {
    std::vector<std::string> lines;
    for (std::size_t from = 0; from < text.size();) {
      const std::size_t end = std::min(text.find('\n', from), text.size() - 1) + 1;
      lines.push_back(text.substr(from, end - from));
      from = end;
    }
    const std::size_t one = below(lines.size()), two = below(lines.size());
    switch (below(3)) {
      case 0:
        lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(one));
        break;
      case 1:
        lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(one), lines[two]);
        break;
      default:
        std::swap(lines[one], lines[two]);
    }
    std::string joined;
    for (const std::string& line : lines) joined += line;
    return joined;
  }

  /// Numbers, or strings with their quotes: where they begin, and how long they are.
  static std::vector<std::pair<std::size_t, std::size_t>> tokens(const std::string& text,
                                                                 bool numbers) {
    std::vector<std::pair<std::size_t, std::size_t>> found;
    for (std::size_t at = 0; at < text.size(); ++at) {
      std::size_t end = at + 1;
      if (text[at] == '"') {
        while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
        end = std::min(end + 1, text.size());
        if (!numbers) found.emplace_back(at, end - at);
      } else if (text[at] >= '0' && text[at] <= '9') {
        while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
        if (numbers) found.emplace_back(at, end - at);
      }
      at = end - 1;
    }
    return found;
  }
  std::string with_tokens(std::string text, const std::string& other, bool numbers) {
    static const std::vector<std::string> edges = {"0",
                                                   "1",
                                                   "2",
                                                   "255",
                                                   "4294967295",
                                                   "4294967296",
                                                   "1099511627776",
                                                   "18446744073709551615",
                                                   "18446744073709551616",
                                                   "-1",
                                                   "-0",
                                                   "1.0",
                                                   "1e3",
                                                   "1e400",
                                                   "00",
                                                   "1000000000000001"};
    const auto here = tokens(text, numbers);
    if (here.empty()) return text;
    const auto [at, size] = here[below(here.size())];
    const auto [at_two, size_two] = here[below(here.size())];
    switch (below(numbers ? 4 : 2)) {
      case 0:  // of the same file
        return text.replace(at, size, text.substr(at_two, size_two));
      case 1: {  // of another one
        const auto there = tokens(other, numbers);
        if (there.empty()) return text;
        const auto [from, length] = there[below(there.size())];
        return text.replace(at, size, other.substr(from, length));
      }
      case 2:
        return text.replace(at, size, edges[below(edges.size())]);
      default:  // another digit
        text[at + below(size)] = static_cast<char>('0' + below(10));
        return text;
    }
  }

  /// All values below one, itself first.
  static void collect(Json& value, std::vector<Json*>& all) {
    all.push_back(&value);
    if (value.is_structured())
      for (Json& item : value) collect(item, all);
  }
  std::string with_structure(const std::string& text, const std::string& other) {
    Json file = Json::parse(text, nullptr, false), donor = Json::parse(other, nullptr, false);
    if (file.is_discarded() || donor.is_discarded()) return text;
    std::vector<Json*> values, others;
    collect(file, values);
    collect(donor, others);
    Json& one = *values[below(values.size())];
    Json& another = *values[below(values.size())];
    switch (below(6)) {
      case 0:
        one = Json(*others[below(others.size())]);
        break;
      case 1: {
        const Json copy = another;
        one = copy;
        break;
      }
      case 2: {  // both ways, unless one is inside the other
        if (one.is_structured() || another.is_structured()) break;
        std::swap(one, another);
        break;
      }
      case 3:  // one item less
        if (one.is_object() && !one.empty())
          one.erase(std::next(one.begin(), static_cast<std::ptrdiff_t>(below(one.size()))).key());
        else if (one.is_array() && !one.empty())
          one.erase(below(one.size()));
        break;
      case 4:  // one item more
        if (one.is_object())
          one[below(2) == 0 ? "bytes" : "note"] = 1;
        else if (one.is_array())
          one.push_back(one.empty() ? Json(1) : Json(one[below(one.size())]));
        break;
      default:
        if (one.is_number_integer())
          one = one.get<std::uint64_t>() * 2 + below(3);
        else if (one.is_boolean())
          one = !one.get<bool>();
        else if (one.is_string())
          one = one.get<std::string>() + std::string(below(220), 'x');
    }
    return file.dump(static_cast<int>(below(3)) - 1, ' ', false, Json::error_handler_t::replace);
  }

  std::mt19937_64 bits_;
};

std::string file_of(std::uint64_t seed) {
  RandomTuning tunings(seed);
  if (tunings.below(8) == 0) return tuning_example;
  return tune::text_of(tunings.tuning());
}

/// Whether it is accepted.
bool judge(const std::string& text) {
  tune::Tuning tuning;
  try {
    tuning = tune::parse_tuning(text, "a.json");
  } catch (const Error& error) {
    const std::string what = error.what();
    const std::size_t end = what.find(": ");
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_TRUE(what.starts_with("a.json:") && end > 7 &&
                what.find_first_not_of("0123456789", 7) == end)
        << what;
    const auto is_control = [](char character) {
      return static_cast<unsigned char>(character) < ' ';
    };
    EXPECT_TRUE(std::none_of(what.begin(), what.end(), is_control)) << what;
    EXPECT_LT(what.size(), 1000u) << what;
    return false;
  }
  const std::string again = tune::text_of(tuning);
  EXPECT_TRUE(tune::parse_tuning(again, "a.json") == tuning);
  EXPECT_EQ(meaning_of(text), meaning_of(again));
  return true;
}

TEST(TuningFuzz, a_mutated_file_is_refused_or_read_as_it_says) {
  const std::uint64_t only = setting("TUTTI_TEST_SEED", 0);
  const std::uint64_t first = only != 0 ? only : setting("TUTTI_TEST_FIRST_SEED", 1);
  const std::uint64_t count = only != 0 ? 1 : setting("TUTTI_TEST_FILES", 5'000);
  std::uint64_t accepted = 0, pair_before = 0;
  std::string text, other;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    // Several mutants of each pair of files, which take longer to make than to read.
    if (const std::uint64_t pair = seed / 16; text.empty() || pair != pair_before) {
      text = file_of(pair);
      other = file_of(pair + 1);
      pair_before = pair;
    }
    const std::string mutant = Mutator(seed).mutated(text, other);
    if (only != 0) std::cout << mutant << "\n";
    accepted += judge(mutant) ? 1 : 0;
    if (testing::Test::HasFailure()) {
      std::cout << "TUTTI_TEST_SEED=" << seed << "\n" << mutant << "\n";
      return;
    }
  }
  std::cout << count << " files, " << accepted << " accepted\n";
  if (only != 0) return;
  EXPECT_GT(accepted, count / 50) << "mutations that are too coarse find nothing";
}

}  // namespace
}  // namespace tutti::test
