// Sums up the rows of several runs beside MPI: in how many rows tutti was faster, the best and the
// worst, and a picture of all.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::bench {

struct Compared {
  std::string collective;
  std::size_t bytes = 0;
  std::uint32_t ranks = 1;
  std::uint32_t nodes = 1;
  bool oversubscribed = false;
  bool checked = false;  // and right
  std::string mpi;
  double ratio = 0;  // tutti's time over MPI's
};

/// The rows of `text`, which is what --record or --format json has written to `file`, that stand
/// beside MPI.  Throws Error{invalid_argument} in one line if a line is none of these, or no row
/// stands beside MPI.
std::vector<Compared> parse_results(std::string_view text, const std::string& file);

std::string summary_of(std::span<const Compared> rows);

/// `tutti-bench summary FILE`; `arguments` begins with "summary".  Returns what to print.
std::string run_summary(std::span<const char* const> arguments);

}  // namespace tutti::bench
