#include "table.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "handles.hpp"
#include "interposer.hpp"
#include "loaded_mpi.hpp"
#include "report.hpp"
#include "tutti/status.hpp"

namespace tutti::interposer {
namespace {

using Passed = std::array<std::int64_t, reason_count>;
constexpr auto would_be_taken = static_cast<std::size_t>(Reason::reported);

/// What is counted of a function, as it travels.
struct Row {
  std::int64_t taken = 0;
  std::int64_t bytes_taken = 0;
  std::int64_t bytes_passed = 0;
  std::int64_t differences = 0;
  std::int64_t not_compared = 0;
  Reported reported = {};
  Passed passed = {};

  std::int64_t calls() const {
    std::int64_t all = taken;
    for (const std::int64_t count : passed) all += count;
    return all;
  }
};
using Rows = std::array<Row, collective_count>;
static_assert(sizeof(Row) == (10 + reason_count) * sizeof(std::int64_t));
constexpr int numbers_of_rows = sizeof(Rows) / sizeof(std::int64_t);

Rows rows_of(Interposer& interposed) {
  Rows rows;
  for (std::size_t i = 0; i < collective_count; ++i) {
    const CallCounts& counts = interposed.counts(static_cast<Collective>(i));
    rows[i].taken = static_cast<std::int64_t>(counts.taken);
    rows[i].bytes_taken = static_cast<std::int64_t>(counts.bytes_taken);
    rows[i].bytes_passed = static_cast<std::int64_t>(counts.bytes_passed);
    rows[i].differences = static_cast<std::int64_t>(counts.differences);
    rows[i].not_compared = static_cast<std::int64_t>(counts.not_compared);
    rows[i].reported = report().found(static_cast<Collective>(i));
    for (std::size_t reason = 0; reason < reason_count; ++reason)
      rows[i].passed[reason] = static_cast<std::int64_t>(counts.passed[reason]);
  }
  return rows;
}

std::string text_of(const Passed& passed) {
  std::string text;
  for (std::size_t i = 0; i < reason_count; ++i)
    if (passed[i] != 0 && i != would_be_taken)
      text += (text.empty() ? "" : "; ") + std::to_string(passed[i]) + " " +
              name_of(static_cast<Reason>(i));
  return text;
}

using Numbers = long long;  // as printf has them

std::string lines_of(const Rows& rows) {
  char line[200];
  std::snprintf(line, sizeof line, "tutti: %-24s %12s %12s %14s  %s\n", "function", "calls",
                "taken", "bytes taken", "left to MPI");
  std::string text = line;
  for (std::size_t i = 0; i < collective_count; ++i) {
    const Row& row = rows[i];
    if (row.calls() == 0) continue;
    std::snprintf(line, sizeof line, "tutti: %-24s %12lld %12lld %14lld  ",
                  name_of(static_cast<Collective>(i)), static_cast<Numbers>(row.calls()),
                  static_cast<Numbers>(row.taken), static_cast<Numbers>(row.bytes_taken));
    text += line + text_of(row.passed) + "\n";
  }
  return text;
}

std::string lines_of_verification(const Rows& rows) {
  std::int64_t differences = 0, not_compared = 0, persistent = 0;
  for (const Row& row : rows) {
    differences += row.differences;
    not_compared += row.not_compared;
    persistent += row.passed[static_cast<std::size_t>(Reason::not_compared)];
  }
  std::string text = "tutti: differences: " + std::to_string(differences) +
                     " results of calls are not what MPI comes to\n";
  if (not_compared != 0)
    text += "tutti: not compared: " + std::to_string(not_compared) +
            " results, of types that cannot be looked into\n";
  if (persistent != 0)
    text += "tutti: not compared: " + std::to_string(persistent) +
            " persistent requests, which tutti would take without TUTTI_MPI=verify\n";
  return text;
}

/// Seconds are means over the ranks.
std::string lines_of_report(const Rows& rows, int rank_count) {
  const double second = 1e9 * rank_count;
  char line[300];
  std::snprintf(line, sizeof line, "tutti: %-24s %12s %14s %10s %12s %10s %11s  %-22s  %s\n",
                "function", "calls", "bytes", "s in MPI", "tutti takes", "s in MPI", "s in tutti",
                "saves", "left to MPI");
  std::string text = line;
  double least = 0, most = 0, in_mpi = 0;
  for (std::size_t i = 0; i < collective_count; ++i) {
    const Row& row = rows[i];
    if (row.calls() == 0) continue;
    const Reported& sum = row.reported;
    const double saved_least = static_cast<double>(sum.fastest - sum.expected) / second;
    const double saved_most = static_cast<double>(sum.priced - sum.expected) / second;
    least += saved_least;
    most += saved_most;
    in_mpi += static_cast<double>(sum.in_mpi) / second;
    char saves[60];
    if (row.passed[would_be_taken] > 0 && sum.priced_calls == 0)
      std::snprintf(saves, sizeof saves, "no price");
    else
      std::snprintf(saves, sizeof saves, "%.3g to %.3g s", saved_least, saved_most);
    std::snprintf(
        line, sizeof line, "tutti: %-24s %12lld %14lld %10.6f %12lld %10.6f %11.6f  %-22s  ",
        name_of(static_cast<Collective>(i)), static_cast<Numbers>(row.calls()),
        static_cast<Numbers>(row.bytes_passed), static_cast<double>(sum.in_mpi) / second,
        static_cast<Numbers>(row.passed[would_be_taken]), static_cast<double>(sum.priced) / second,
        static_cast<double>(sum.expected) / second, saves);
    text += line + text_of(row.passed) + "\n";
  }
  std::snprintf(line, sizeof line,
                "tutti: expected saving: %.3g to %.3g of %.3g s in these functions (means over the "
                "ranks; the lower one leaves out what may have been waiting for late ranks)\n",
                least, most, in_mpi);
  return text + line + report().details();
}

void print(const Rows& rows, const Interposer& interposed, int rank_count) {
  const Mode mode = interposed.settings().mode;
  std::string text = "tutti: calls of " + std::to_string(rank_count) + " ranks of " + expected_mpi +
                     ", TUTTI_MPI=" + name_of(mode) + "\n";
  const bool is_empty =
      std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.calls() == 0; });
  if (is_empty)
    text += "tutti: 0 calls seen\n";
  else
    text += mode == Mode::report ? lines_of_report(rows, rank_count) : lines_of(rows);
  if (mode == Mode::verify) text += lines_of_verification(rows);
  std::fputs(text.c_str(), stderr);
}
/// A program may call MPI by ways that no preloaded library comes into: then somebody who asked for
/// the table should know.  Shells and launchers, into which it is loaded, too, have no MPI.
__attribute__((destructor)) void say_if_unseen() {
  if (interposer().has_begun() || rank_by_launcher() != 0) return;
  try {
    if (!settings_of_environment().table || !is_mpi_loaded()) return;
  } catch (const Error&) {
    return;
  }
  std::fputs(
      "tutti: 0 calls seen: this process has loaded MPI, and MPI_Init was not called, or not by "
      "its "
      "name; what a program looks up in MPI's library by itself, LD_PRELOAD cannot stand in for\n",
      stderr);
}

}  // namespace

void print_table(Interposer& interposed) {
  const MpiFunctions& mpi = own_mpi();
  if (interposed.settings().mode == Mode::report) report().price();
  const Rows mine = rows_of(interposed);
  Rows sums = {};
  int rank = 0, rank_count = 0;
  mpi.Comm_rank(handles().world, &rank);
  mpi.Comm_size(handles().world, &rank_count);
  mpi.Reduce(&mine, &sums, numbers_of_rows, handles().int64, handles().sum, 0, handles().world);
  if (rank == 0) print(sums, interposed, rank_count);
}

int rank_by_launcher() noexcept {
  for (const char* const name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"})
    if (const char* const value = std::getenv(name)) return std::atoi(value);
  return 0;
}

}  // namespace tutti::interposer
