#include <fmt/format.h>

#include <algorithm>

#include "microbench/report.hpp"

namespace tutti::bench {
namespace {

/// A time with as many digits as are worth reading.
std::string microseconds(double ns) {
  const int digits = ns < 100'000 ? 3 : ns < 1'000'000 ? 1 : 0;
  return fmt::format("{:.{}f}", ns / 1000, digits);
}

std::string per_round_text(const std::vector<std::uint32_t>& per_round) {
  if (per_round.empty()) return "-";
  const bool alike = std::all_of(per_round.begin(), per_round.end(),
                                 [&](std::uint32_t n) { return n == per_round[0]; });
  if (alike && per_round.size() > 5) return fmt::format("{} x {}", per_round.size(), per_round[0]);
  return fmt::format("{}", fmt::join(per_round, ","));
}

/// Which columns a table has, beyond those of every table.
struct Columns {
  bool brief = false;
  bool mpi = false;
  bool bound = false;
  bool check = false;  // only where not every result was right
};

Columns columns_of(const Report& report) {
  Columns columns{.brief = report.brief};
  for (const Row& row : report.rows) {
    columns.mpi |= row.mpi.has_value();
    columns.bound |= row.bound.has_value();
    columns.check |= !row.correct.value_or(true);
  }
  return columns;
}

Cells title(const Columns& columns) {
  Cells cells = {"collective", "bytes", "n", "median"};
  if (!columns.brief) cells.insert(cells.end(), {"MAD", "min"});
  cells.emplace_back("p99");
  if (!columns.brief) cells.emplace_back("max");
  if (columns.mpi) cells.insert(cells.end(), {"MPI", "MPI p99", "/MPI"});
  if (columns.bound) cells.emplace_back("/bound");
  if (columns.check) cells.emplace_back("check");
  return cells;
}

Cells cells_of(const Row& row, const Columns& columns) {
  Cells cells = {row.way ? fmt::format("{} ({})", row.collective, *row.way) : row.collective,
                 size_text(row.bytes), per_round_text(row.per_round), microseconds(row.median_ns)};
  if (!columns.brief)
    cells.insert(cells.end(), {microseconds(row.deviation_ns), microseconds(row.min_ns)});
  cells.push_back(microseconds(row.p99_ns));
  if (!columns.brief) cells.push_back(microseconds(row.max_ns));
  if (columns.mpi && row.mpi)
    cells.insert(cells.end(), {microseconds(row.mpi->median_ns), microseconds(row.mpi->p99_ns),
                               fmt::format("{:.2f}", row.mpi->ratio)});
  else if (columns.mpi)
    cells.insert(cells.end(), {"-", "-", "-"});
  if (columns.bound) cells.push_back(row.bound ? fmt::format("{:.2f}", row.bound->ratio) : "-");
  if (columns.check) cells.emplace_back(!row.correct ? "-" : *row.correct ? "ok" : "WRONG");
  if (row.oversubscribed) cells.emplace_back("oversubscribed");
  return cells;
}

/// "floor for barrier, allreduce 8; 1.25 memcpy for allreduce 64K": the rows of each bound.
std::string bounds_text(const std::vector<Row>& rows) {
  std::vector<std::pair<std::string, std::vector<const Row*>>> groups;
  for (const Row& row : rows) {
    if (!row.bound) continue;
    const auto group = std::find_if(groups.begin(), groups.end(),
                                    [&](const auto& one) { return one.first == row.bound->name; });
    if (group == groups.end())
      groups.push_back({row.bound->name, {&row}});
    else
      group->second.push_back(&row);
  }
  std::string text;
  for (const auto& [name, members] : groups) {
    text += text.empty() ? name + " for" : "; " + name + " for";
    std::string before;
    for (const Row* row : members) {
      const bool goes_on = row->collective == before;
      text += goes_on ? "," : (before.empty() ? " " : ", ") + row->collective;
      if (row->dtype || row->bytes != 0) text += ' ' + size_text(row->bytes);
      before = row->collective;
    }
  }
  return text;
}

std::string legend(const Report& report, const Columns& columns) {
  if (!report.rows.empty() && report.rows.front().is_virtual)
    return "Microseconds of virtual time; n: messages of each round.\n";
  std::string text = "Microseconds, rank 0's clock; n: messages of each round";
  if (columns.mpi) text += "; /MPI: median over MPI's";
  if (columns.bound) text += "; /bound: median over what bounds it, " + bounds_text(report.rows);
  text += '.';
  if (columns.mpi || columns.bound) text += " Ratios are medians of those of each block.";
  return wrapped(text, 100, 0, 2) + '\n';
}

/// Aligns the first column to the left, the others to the right.
std::string aligned(const std::vector<Cells>& lines) {
  std::vector<std::size_t> widths;
  for (const Cells& line : lines) {
    widths.resize(std::max(widths.size(), line.size()));
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const Cells& line : lines) {
    std::string out = fmt::format("{:<{}}", line[0], widths[0]);
    for (std::size_t i = 1; i < line.size(); ++i)
      out += fmt::format("  {:>{}}", line[i], widths[i]);
    text += out + '\n';
  }
  return text;
}

}  // namespace

std::string size_text(std::size_t bytes) {
  if (bytes >= 1u << 20 && bytes % (1u << 20) == 0) return fmt::format("{}M", bytes >> 20);
  if (bytes >= 1u << 10 && bytes % (1u << 10) == 0) return fmt::format("{}K", bytes >> 10);
  return fmt::format("{}", bytes);
}

std::string wrapped(std::string text, std::size_t columns, std::size_t first, std::size_t indent) {
  std::size_t begin = 0;
  for (std::size_t used = first; text.size() - begin + used > columns; used = indent) {
    const std::size_t space = text.rfind(' ', begin + columns - used);
    if (space == std::string::npos || space <= begin) break;
    text.replace(space, 1, '\n' + std::string(indent, ' '));
    begin = space + 1 + indent;
  }
  return text;
}

std::string framed(const ReportFrame& frame, const std::vector<Cells>& lines,
                   const std::string& legend, bool oversubscribed, const std::string& remarks) {
  std::string text;
  std::size_t label_width = 0;
  for (const auto& [label, value] : frame.header) label_width = std::max(label_width, label.size());
  for (const auto& [label, value] : frame.header)
    text += fmt::format("{:<{}}  {}\n", label, label_width, value);
  text += '\n' + aligned(lines) + legend;
  if (oversubscribed)
    text += "The ranks share CPUs (oversubscribed): these times are not latencies.\n";
  text += remarks;
  for (const std::string& note : frame.notes) text += fmt::format("Note: {}\n", note);
  return text;
}

std::string as_table(const Report& report) {
  const Columns columns = columns_of(report);
  std::vector<Cells> lines = {title(columns)};
  for (const Row& row : report.rows) lines.push_back(cells_of(row, columns));
  std::string ratios;
  for (const Ratio& ratio : report.ratios)
    ratios += fmt::format("{:<24} {:.3f}  ({} alternating blocks)\n", ratio.what, ratio.median,
                          ratio.blocks);
  return framed(report, lines, legend(report, columns),
                !report.rows.empty() && report.rows.front().oversubscribed, ratios);
}

}  // namespace tutti::bench
