#include "table.hpp"

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "handles.hpp"
#include "interposer.hpp"
#include "loaded_mpi.hpp"
#include "tutti/status.hpp"

namespace tutti::interposer {
namespace {

using Passed = std::array<std::int64_t, reason_count>;

/// What is counted of a function, as it travels.
struct Row {
  std::int64_t taken = 0;
  std::int64_t bytes_taken = 0;
  Passed passed = {};

  std::int64_t calls() const {
    std::int64_t all = taken;
    for (const std::int64_t count : passed) all += count;
    return all;
  }
};
using Rows = std::array<Row, collective_count>;
constexpr int numbers_of_rows = sizeof(Rows) / sizeof(std::int64_t);

Rows rows_of(Interposer& interposed) {
  Rows rows;
  for (std::size_t i = 0; i < collective_count; ++i) {
    const CallCounts& counts = interposed.counts(static_cast<Collective>(i));
    rows[i].taken = static_cast<std::int64_t>(counts.taken);
    rows[i].bytes_taken = static_cast<std::int64_t>(counts.bytes_taken);
    for (std::size_t reason = 0; reason < reason_count; ++reason)
      rows[i].passed[reason] = static_cast<std::int64_t>(counts.passed[reason]);
  }
  return rows;
}

std::string text_of(const Passed& passed) {
  std::string text;
  for (std::size_t i = 0; i < reason_count; ++i)
    if (passed[i] != 0)
      text += (text.empty() ? "" : "; ") + std::to_string(passed[i]) + " " +
              name_of(static_cast<Reason>(i));
  return text;
}

void print(const Rows& rows, const Interposer& interposed, int rank_count) {
  std::string text = "tutti: calls of " + std::to_string(rank_count) + " ranks of " + expected_mpi +
                     ", TUTTI_MPI=" + name_of(interposed.settings().mode) + "\n";
  char line[160];
  std::snprintf(line, sizeof line, "tutti: %-26s %12s %12s %14s  %s\n", "function", "calls",
                "taken", "bytes taken", "left to MPI");
  text += line;
  std::int64_t all = 0;
  for (std::size_t i = 0; i < collective_count; ++i) {
    const Row& row = rows[i];
    if (row.calls() == 0) continue;
    all += row.calls();
    std::snprintf(line, sizeof line, "tutti: %-26s %12lld %12lld %14lld  ",
                  name_of(static_cast<Collective>(i)), static_cast<long long>(row.calls()),
                  static_cast<long long>(row.taken), static_cast<long long>(row.bytes_taken));
    text += line + text_of(row.passed) + "\n";
  }
  if (all == 0) text += "tutti: 0 calls seen\n";
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
