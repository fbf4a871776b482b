#include <fmt/format.h>

#include <algorithm>

#include "microbench/report.hpp"

namespace tutti::bench {
namespace {

using Cells = std::vector<std::string>;

std::string microseconds(double ns) {
  return fmt::format("{:.3f}", ns / 1000);
}

std::string size_text(std::size_t bytes) {
  if (bytes >= 1u << 20 && bytes % (1u << 20) == 0) return fmt::format("{}M", bytes >> 20);
  if (bytes >= 1u << 10 && bytes % (1u << 10) == 0) return fmt::format("{}K", bytes >> 10);
  return fmt::format("{}", bytes);
}

std::string per_round_text(const std::vector<std::uint32_t>& per_round) {
  if (per_round.empty()) return "-";
  const bool alike = std::all_of(per_round.begin(), per_round.end(),
                                 [&](std::uint32_t n) { return n == per_round[0]; });
  if (alike && per_round.size() > 5) return fmt::format("{} x {}", per_round.size(), per_round[0]);
  return fmt::format("{}", fmt::join(per_round, ","));
}

std::string check_text(const std::optional<bool>& correct) {
  if (!correct) return "-";
  return *correct ? "ok" : "WRONG";
}

Cells title(bool with_mpi) {
  Cells cells = {"collective", "bytes", "n", "median", "MAD", "min", "p99", "max", "slowest"};
  if (with_mpi) cells.insert(cells.end(), {"MPI", "MPI p99", "/MPI"});
  cells.insert(cells.end(), {"/bound", "check"});
  return cells;
}

Cells cells_of(const Row& row, bool with_mpi) {
  Cells cells = {row.collective,
                 size_text(row.bytes),
                 per_round_text(row.per_round),
                 microseconds(row.median_ns),
                 microseconds(row.deviation_ns),
                 microseconds(row.min_ns),
                 microseconds(row.p99_ns),
                 microseconds(row.max_ns),
                 microseconds(row.slowest_median_ns)};
  if (with_mpi && row.mpi)
    cells.insert(cells.end(), {microseconds(row.mpi->median_ns), microseconds(row.mpi->p99_ns),
                               fmt::format("{:.2f}", row.median_ns / row.mpi->median_ns)});
  else if (with_mpi)
    cells.insert(cells.end(), {"-", "-", "-"});
  cells.push_back(row.bound_ns ? fmt::format("{:.2f}", row.median_ns / *row.bound_ns) : "-");
  cells.push_back(check_text(row.correct));
  if (row.oversubscribed) cells.emplace_back("oversubscribed, not a latency");
  return cells;
}

/// The first column to the left, the others to the right.
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

std::string as_table(const Report& report) {
  std::string text;
  std::size_t label_width = 0;
  for (const auto& [label, value] : report.header)
    label_width = std::max(label_width, label.size());
  for (const auto& [label, value] : report.header)
    text += fmt::format("{:<{}}  {}\n", label, label_width, value);
  const bool with_mpi = std::any_of(report.rows.begin(), report.rows.end(),
                                    [](const Row& row) { return row.mpi.has_value(); });
  std::vector<Cells> lines = {title(with_mpi)};
  for (const Row& row : report.rows) lines.push_back(cells_of(row, with_mpi));
  text += '\n' + aligned(lines);
  const bool is_virtual = !report.rows.empty() && report.rows.front().is_virtual;
  text += is_virtual ? "Microseconds of virtual time; n: messages of each round.\n"
                     : "Microseconds, rank 0's clock; slowest: largest median of all ranks; n: "
                       "messages of each round.\n";
  if (!report.ratios.empty()) text += "\nRatios, the median of those of each block:\n";
  for (const Ratio& ratio : report.ratios)
    text += fmt::format("  {:<24} {:.3f}  ({} alternating blocks)\n", ratio.what, ratio.median,
                        ratio.blocks);
  for (const std::string& note : report.notes) text += fmt::format("Note: {}\n", note);
  return text;
}

}  // namespace tutti::bench
