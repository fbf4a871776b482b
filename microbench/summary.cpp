#include "microbench/summary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <tutti/status.hpp>

#include "microbench/command_line.hpp"
#include "microbench/report.hpp"

namespace tutti::bench {
namespace {

// The picture: a line for each collective, a mark for each size, on an axis from 0 to `axis_end`.
constexpr std::size_t label_width = 18;
constexpr std::size_t axis_width = 61;
constexpr double axis_end = 1.5;

std::size_t place_of(double ratio) {
  const double share = std::min(ratio, axis_end) / axis_end;
  return static_cast<std::size_t>(share * static_cast<double>(axis_width - 1) + 0.5);
}

std::string shape_text(const Compared& row) {
  if (row.nodes == 1) return fmt::format("{} ranks of one node", row.ranks);
  if (row.nodes == row.ranks) return fmt::format("{} ranks, each a node of its own", row.ranks);
  return fmt::format("{} ranks of {} nodes", row.ranks, row.nodes);
}

/// "8 B", "64 KiB".
std::string bytes_text(std::size_t bytes) {
  std::string text = size_text(bytes);
  if (text.back() != 'K' && text.back() != 'M') return text + " B";
  return text.insert(text.size() - 1, " ") + "iB";
}

std::string row_text(const Compared& row) {
  std::string text = row.collective;
  if (row.collective != "barrier") text += " of " + bytes_text(row.bytes);
  return text + ", " + shape_text(row);
}

bool is_alike(const Compared& one, const Compared& other) {
  return one.ranks == other.ranks && one.nodes == other.nodes &&
         one.oversubscribed == other.oversubscribed;
}

std::string axis() {
  std::string line(axis_width + 4, ' ');
  for (const double tick : {0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5}) {
    const std::string label = fmt::format("{}", tick);
    const std::size_t place = place_of(tick);
    line.replace(tick == 0 ? place : place - label.size() / 2, label.size(), label);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return fmt::format("{:{}}{}\n", "", label_width, line);
}

/// The line of one collective with one number of ranks and nodes, to which all `rows` belong.
std::string picture_line(std::span<const Compared* const> rows) {
  std::string line(axis_width, ' ');
  line[place_of(1)] = '|';
  std::vector<std::size_t> marks(axis_width);
  double least = rows[0]->ratio, most = rows[0]->ratio;
  for (const Compared* row : rows) {
    const std::size_t place = place_of(row->ratio);
    ++marks[place];
    // Several marks in one place become their number.
    line[place] = row->ratio > axis_end ? '>'
                  : marks[place] == 1
                      ? 'o'
                      : static_cast<char>('0' + std::min<std::size_t>(marks[place], 9));
    least = std::min(least, row->ratio);
    most = std::max(most, row->ratio);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  const std::string range = rows.size() == 1 ? fmt::format("{:.2f}", least)
                                             : fmt::format("{:.2f} to {:.2f}", least, most);
  return fmt::format("  {:<{}}{:<{}}  {}\n", rows[0]->collective, label_width - 2, line, axis_width,
                     range);
}

std::string picture(std::span<const Compared> rows) {
  std::string text = axis();
  for (std::size_t first = 0; first < rows.size(); ++first) {
    const auto before = rows.first(first);
    if (std::any_of(before.begin(), before.end(),
                    [&](const Compared& row) { return is_alike(row, rows[first]); }))
      continue;
    text += shape_text(rows[first]);
    if (rows[first].oversubscribed) text += ", which share CPUs: not latencies";
    text += '\n';
    std::vector<std::string> drawn;
    for (const Compared& row : rows) {
      if (!is_alike(row, rows[first]) ||
          std::find(drawn.begin(), drawn.end(), row.collective) != drawn.end())
        continue;
      drawn.push_back(row.collective);
      std::vector<const Compared*> line;
      for (const Compared& other : rows)
        if (is_alike(other, row) && other.collective == row.collective) line.push_back(&other);
      text += picture_line(line);
    }
  }
  return text;
}

/// How many rows were faster, the best and the worst; `which` names the rows.
std::string count(const std::vector<const Compared*>& rows, const std::string& which) {
  if (rows.empty()) return {};
  const auto by_ratio = [](const Compared* one, const Compared* other) {
    return one->ratio < other->ratio;
  };
  const auto faster =
      std::count_if(rows.begin(), rows.end(), [](const Compared* row) { return row->ratio < 1; });
  const Compared& best = **std::min_element(rows.begin(), rows.end(), by_ratio);
  const Compared& worst = **std::max_element(rows.begin(), rows.end(), by_ratio);
  return fmt::format(
      "tutti was faster than {} in {} of {} rows{}.\n"
      "  best   {:.2f} of its time   {}\n"
      "  worst  {:.2f} of its time   {}\n",
      best.mpi, faster, rows.size(), which, best.ratio, row_text(best), worst.ratio,
      row_text(worst));
}

}  // namespace

std::vector<Compared> parse_results(std::string_view text, const std::string& file) {
  std::vector<Compared> rows;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    ++number;
    try {
      const auto json = nlohmann::json::parse(line);
      if (json.at("against").is_null()) continue;
      const auto& mpi = json.at("against").at("mpi");
      rows.push_back({.collective = json.at("collective").get<std::string>(),
                      .bytes = json.at("bytes").get<std::size_t>(),
                      .ranks = json.at("ranks").get<std::uint32_t>(),
                      .nodes = json.at("nodes").get<std::uint32_t>(),
                      .oversubscribed = json.at("oversubscribed").get<bool>(),
                      .checked = json.at("correct").is_boolean() && json.at("correct").get<bool>(),
                      .mpi = mpi.at("name").get<std::string>(),
                      .ratio = mpi.at("ratio").get<double>()});
      if (rows.back().mpi != rows.front().mpi)
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("{}:{}: a row beside {} after rows beside {}: expected one MPI; "
                                "record each in a file of its own",
                                file, number, rows.back().mpi, rows.front().mpi));
    } catch (const nlohmann::json::exception&) {
      constexpr std::size_t shown = 60;
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{}:{}: \"{}\": expected a row that tutti-bench --record or --format "
                              "json has written",
                              file, number, line.substr(0, shown)));
    }
  }
  if (rows.empty())
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: no row stands beside MPI; expected rows of tutti-bench --against "
                            "mpi",
                            file));
  return rows;
}

std::string summary_of(std::span<const Compared> rows) {
  std::vector<const Compared*> latencies, shared;
  for (const Compared& row : rows) (row.oversubscribed ? shared : latencies).push_back(&row);
  const auto checked = static_cast<std::size_t>(
      std::count_if(rows.begin(), rows.end(), [](const Compared& row) { return row.checked; }));
  std::string text = fmt::format(
      "Time of tutti over that of {}, a mark for each size (2: two of them); left of | tutti is\n"
      "faster.  Medians of the ratios of alternating blocks.\n\n",
      rows.front().mpi);
  text += picture(rows) + '\n';
  text += count(latencies, "");
  text += count(shared, " of more ranks than CPUs");
  text += checked == rows.size()
              ? "Every result was compared with a reference and is right.\n"
              : fmt::format("The results of {} of {} rows were checked and are right.\n", checked,
                            rows.size());
  return text;
}

std::string run_summary(std::span<const char* const> arguments) {
  std::string name;
  CommandLine line("tutti-bench summary",
                   "Prints in how many rows of earlier runs beside MPI tutti was faster, the best "
                   "and the worst, and a picture.");
  line.add("FILE", name, "file of tutti-bench --record FILE, with any number of runs");
  if (const std::optional<std::string> help = line.parse(arguments)) return *help;
  std::ifstream file(name);
  std::string text;
  try {
    text.assign(std::istreambuf_iterator<char>(file), {});
  } catch (const std::ios_base::failure&) {  // a folder
    file.setstate(std::ios::badbit);
  }
  if (!file || file.bad())
    throw Error(ErrorCode::invalid_argument,
                fmt::format("FILE=\"{}\": {}; expected what tutti-bench --record has written", name,
                            std::strerror(errno)));
  return summary_of(parse_results(text, name));
}

}  // namespace tutti::bench
