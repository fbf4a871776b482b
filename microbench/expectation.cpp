#include "microbench/expectation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tutti/status.hpp>

#include "microbench/report.hpp"
#include "microbench/words.hpp"
#include "runtime/settings.hpp"

namespace tutti::bench {
namespace {

constexpr std::string_view every_word = "every";

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  constexpr std::string_view blanks = " \t\r";
  for (std::size_t begin = line.find_first_not_of(blanks); begin < line.size();) {
    const std::size_t end = std::min(line.find_first_of(blanks, begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    begin = line.find_first_not_of(blanks, end);
  }
  return words;
}

/// Whether a collective is measured in several sizes: memcpy is, a barrier and 8-byte probes are
/// not.
bool has_sizes(Collective collective) {
  return collective == Collective::memcpy ||
         (!is_probe(collective) && collective != Collective::barrier);
}

/// Reads one line after the other; a section holds until the next one.
class Parser {
 public:
  explicit Parser(const std::string& file) : file_(file) {}

  void add(std::string_view line) {
    ++line_;
    const std::vector<std::string_view> words = words_of(line.substr(0, line.find('#')));
    if (words.empty()) return;
    if (words.front().starts_with('['))
      add_section(fmt::format("{}", fmt::join(words, " ")));
    else
      add_bound(words);
  }
  std::vector<Expectation> take() { return std::move(found_); }

 private:
  [[noreturn]] void refuse_line(std::string_view value, std::string_view expected) const {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}:{}: \"{}\": expected {}", file_, line_, value, expected));
  }

  std::uint32_t count(std::string_view word, std::string_view key) const {
    const std::uint32_t number = detail::number_in<std::uint32_t>(word).value_or(0);
    if (number == 0) refuse_line(word, fmt::format("a number of {} from 1 on", key));
    return number;
  }

  double factor(std::string_view word, std::string_view what) const {
    const double number = detail::number_in<double>(word).value_or(0);
    if (!(number > 0) || !std::isfinite(number))
      refuse_line(word, fmt::format("{}, a number above 0 such as 1.15", what));
    return number;
  }

  std::size_t bytes(std::string_view word) const {
    return runtime::parse_bytes(word, fmt::format("{}:{}", file_, line_));
  }

  void add_section(const std::string& text) {
    if (text.back() != ']') refuse_line(text, "a \"]\" at its end");
    section_ = {};
    section_.condition = text.substr(1, text.size() - 2);
    std::string_view rest = section_.condition;
    while (!rest.empty()) {
      const std::string_view part = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(part.size() + 1, rest.size()));
      const std::vector<std::string_view> words = words_of(part);
      const std::string_view key = words.empty() ? part : words[0];
      if (words.size() != 2 || (key != "ranks" && key != "nodes" && key != "notify"))
        refuse_line(part, "ranks N, nodes N, notify immediate or notify flag");
      if (key == "ranks") section_.ranks = count(words[1], key);
      if (key == "nodes") section_.nodes = count(words[1], key);
      if (key == "notify")
        section_.notify =
            parse_name(every_notification, fmt::format("{}:{}: notify", file_, line_), words[1]);
    }
  }

  void add_bound(std::span<const std::string_view> words) {
    Expectation bound = section_;
    bound.line = line_;
    std::size_t next = 0;
    const auto take = [&](std::string_view expected) {
      if (next == words.size())
        refuse_line(fmt::format("{}", fmt::join(words, " ")),
                    fmt::format("{} at its end", expected));
      return words[next++];
    };
    const std::string_view name = take("a collective");
    const bool sized = read_name(name, bound);
    if (sized) read_sizes(take("bytes"), bound);
    const std::string_view relation = take("<=");
    if (relation != "<=")
      refuse_line(relation, sized ? std::string("<=")
                                  : fmt::format("<=, as {} has no choice of bytes", name));
    bound.target = factor(take("a factor"), "a factor");
    read_yardstick(take("mpi or a probe"), bound);
    bound.text = fmt::format("{}", fmt::join(words.first(next), " "));
    bound.tripwire = bound.target * tripwire_default;
    if (next < words.size()) {
      if (words[next] != "tripwire")
        refuse_line(words[next], "tripwire and its factor, or nothing");
      ++next;
      const std::string_view word = take("the factor of the tripwire");
      bound.tripwire = factor(word, "the factor of the tripwire");
      if (bound.tripwire < bound.target)
        refuse_line(word, fmt::format("a tripwire of at least the target, {}", bound.target));
    }
    if (next < words.size()) refuse_line(words[next], "the end of the line");
    found_.push_back(std::move(bound));
  }

  /// Reads the name of a collective into `bound`; returns whether a number of bytes has to follow.
  bool read_name(std::string_view word, Expectation& bound) const {
    if (word == every_word) return true;
    bound.collective = collective_of(word);
    if (!bound.collective)
      refuse_line(word, "every, or a collective or probe of tutti-bench such as allreduce or wimm");
    return has_sizes(*bound.collective);
  }

  void read_sizes(std::string_view word, Expectation& bound) const {
    const std::size_t dots = word.find("..");
    bound.bytes_first = bytes(word.substr(0, dots));
    bound.bytes_last =
        dots == std::string_view::npos ? bound.bytes_first : bytes(word.substr(dots + 2));
    if (bound.bytes_last < bound.bytes_first) refuse_line(word, "the smaller size first");
  }

  void read_yardstick(std::string_view word, Expectation& bound) const {
    if (word == "mpi") return;
    const std::optional<Collective> found = collective_of(word);
    if (!found || !is_probe(*found)) refuse_line(word, "mpi, floor, oneway, wimm or memcpy");
    bound.beside = found;
  }

  const std::string& file_;
  std::size_t line_ = 0;
  Expectation section_;  // a field that is empty in it holds for every run
  std::vector<Expectation> found_;
};

bool is_about(const Expectation& bound, const Measured& row) {
  if (bound.collective ? row.collective != *bound.collective
                       : is_probe(row.collective) || !has_sizes(row.collective))
    return false;
  if (!has_sizes(row.collective)) return true;
  return row.bytes >= bound.bytes_first && row.bytes <= bound.bytes_last;
}

/// Index of the row of a probe; if the probe has several sizes, of the row with `bytes`.
std::optional<std::size_t> row_of(Collective probe, std::size_t bytes,
                                  std::span<const Measured> rows) {
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i].collective == probe && (!has_sizes(probe) || rows[i].bytes == bytes)) return i;
  return {};
}

std::string lines_text(std::size_t count) {
  return fmt::format("{} line{}", count, count == 1 ? "" : "s");
}

std::string row_text(const Measured& row) {
  return has_sizes(row.collective)
             ? fmt::format("{} {}", name_of(row.collective), size_text(row.bytes))
             : name_of(row.collective);
}

}  // namespace

std::vector<Expectation> parse_expectations(std::string_view text, const std::string& file) {
  Parser parser(file);
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    parser.add(line);
  }
  std::vector<Expectation> found = parser.take();
  if (found.empty())
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("{}: expected bounds such as \"barrier <= 1.15 floor\"; there is none", file));
  return found;
}

Match match(std::span<const Expectation> expectations, std::span<const Measured> rows,
            std::uint32_t ranks, std::uint32_t nodes) {
  Match found;
  for (std::size_t index = 0; index < expectations.size(); ++index) {
    const Expectation& bound = expectations[index];
    if (bound.ranks.value_or(ranks) != ranks || bound.nodes.value_or(nodes) != nodes) {
      ++found.elsewhere;
      continue;
    }
    bool measured = false, other_notify = false;
    std::string missing;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      if (!is_about(bound, rows[row])) continue;
      if (bound.notify && rows[row].notify && *bound.notify != *rows[row].notify) {
        other_notify = true;
        continue;
      }
      Pairing pairing{.expectation = index, .row = row, .beside = {}};
      if (bound.beside) pairing.beside = row_of(*bound.beside, rows[row].bytes, rows);
      if (bound.beside ? pairing.beside.has_value() : rows[row].beside_mpi) {
        found.pairings.push_back(pairing);
        measured = true;
      } else if (missing.empty()) {
        missing = bound.beside ? fmt::format("{} is not measured beside it", name_of(*bound.beside))
                               : "it is not measured --against mpi";
      }
    }
    if (measured) continue;
    if (other_notify)
      ++found.elsewhere;
    else
      found.gaps.push_back(
          {.expectation = index, .reason = missing.empty() ? "there is no such row" : missing});
  }
  return found;
}

bool is_met(const Expectation& expectation, double ratio, bool tripwire) noexcept {
  return ratio > 0 && ratio <= (tripwire ? expectation.tripwire : expectation.target);
}

std::size_t missed(std::span<const Expectation> expectations, const Match& found,
                   std::span<const double> ratios, bool tripwire) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < ratios.size(); ++i)
    count += !is_met(expectations[found.pairings[i].expectation], ratios[i], tripwire);
  return count;
}

std::string as_text(std::span<const Expectation> expectations, const Match& found,
                    std::span<const Measured> rows, std::span<const double> ratios, bool tripwire) {
  std::string text;
  for (std::size_t i = 0; i < ratios.size(); ++i) {
    const Expectation& bound = expectations[found.pairings[i].expectation];
    text += fmt::format("{:<8} {:<20} {:>7.3f} <= {:<5.4g} {:<7} line {}\n",
                        is_met(bound, ratios[i], tripwire) ? "met" : "NOT met",
                        row_text(rows[found.pairings[i].row]), ratios[i],
                        tripwire ? bound.tripwire : bound.target,
                        bound.beside ? name_of(*bound.beside) : "mpi", bound.line);
  }
  for (const Gap& gap : found.gaps)
    text += fmt::format("not measured: line {}, {}: {}\n", expectations[gap.expectation].line,
                        expectations[gap.expectation].text, gap.reason);
  text += fmt::format("{} of {} met", ratios.size() - missed(expectations, found, ratios, tripwire),
                      ratios.size());
  if (!found.gaps.empty()) text += fmt::format(", {} not measured", lines_text(found.gaps.size()));
  if (found.elsewhere != 0)
    text += fmt::format(", {} about other numbers of ranks or nodes, or another notify",
                        lines_text(found.elsewhere));
  return text + '\n';
}

}  // namespace tutti::bench
