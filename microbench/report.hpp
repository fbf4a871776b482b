// Results as values, and the three ways to print them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::bench {

struct AgainstMpi {
  std::string name;
  double median_ns = 0;
  double p99_ns = 0;
  double ratio = 0;  // tutti's time over MPI's: the median of the ratios of the blocks
};

/// What a row is measured against, and how it compares.
struct Bound {
  std::string name;  // "floor", "1.25 memcpy"
  double ns = 0;
  double ratio = 0;  // as in AgainstMpi
};

/// One measured size of one collective.  Absent means: does not apply, or is not known.
struct Row {
  std::string collective;
  std::size_t bytes = 0;  // contribution of each rank
  std::optional<std::string> dtype;
  std::optional<std::string> op;
  std::uint32_t ranks = 1;
  std::uint32_t nodes = 1;
  std::optional<std::string> device;
  std::optional<std::string> algorithm;
  std::vector<std::uint32_t> per_round;  // messages, as executed
  std::optional<std::string> notify;
  std::optional<std::string> agreement;
  std::uint64_t seed = 1;
  std::size_t iterations = 0;  // timed calls in batches
  double min_ns = 0;
  double median_ns = 0;
  double p99_ns = 0;
  double max_ns = 0;
  std::optional<bool> correct;  // absent: not checked
  std::optional<Bound> bound;
  std::optional<AgainstMpi> mpi;
  bool is_virtual = false;
  std::optional<std::string> fabric;
  bool oversubscribed = false;
  std::string bootstrap;
  std::optional<std::string> transport;

  // For people only: not in the contract of the machine-readable forms.
  std::optional<std::string> way;  // which of several
  double deviation_ns = 0;         // median absolute deviation of the batches
  double slowest_median_ns = 0;    // largest median of all ranks, each by its own clock
};

/// A figure of every block beside the rows: how much of a collective computing hides.
struct Ratio {
  std::string what;
  double median = 0;
  std::size_t blocks = 0;
};

/// What stands around the rows of a report.
struct ReportFrame {
  std::vector<std::pair<std::string, std::string>> header;  // label, text
  std::vector<std::string> notes;
  bool brief = false;
};

struct Report : ReportFrame {
  std::vector<Row> rows;
  std::vector<Ratio> ratios;
};

/// "8", "64K", "1M"; in bytes if it is no whole number of such units.
std::string size_text(std::size_t bytes);

/// Breaks a text at spaces where it would pass the last of `columns`.  It begins at column `first`,
/// and further lines at column `indent`.
std::string wrapped(std::string text, std::size_t columns, std::size_t first, std::size_t indent);

/// The cells of a line of a table.
using Cells = std::vector<std::string>;
/// A table, whose first column is aligned to the left and the others to the right, with the frame
/// around it; `remarks` stand behind the legend.
std::string framed(const ReportFrame& frame, const std::vector<Cells>& lines,
                   const std::string& legend, bool oversubscribed, const std::string& remarks);

std::string as_table(const Report& report);

/// One object per line, with the keys of the contract in their order.
std::string as_json(std::span<const Row> rows);

/// One row per line, with the keys of the JSON flattened; the first line names the columns.
std::string as_csv(std::span<const Row> rows);

}  // namespace tutti::bench
