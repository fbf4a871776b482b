// The command line of both programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dot_products.hpp"
#include "matrix.hpp"
#include "solvers.hpp"

namespace poisson {

/// Who starts the ranks, which is what the two programs differ in.
enum class Launcher : std::uint8_t { none, mpirun };

struct Options {
  Grid grid;
  std::string matrix;                       // path; if empty, the grid is taken
  std::vector<std::string> solvers;         // cg, pipelined
  std::vector<std::string> communications;  // tutti, mpi, preloaded; in this order
  Arithmetic arithmetic = Arithmetic::plain;
  Limits limits;
  std::uint32_t repeat = 1;
  std::string history;      // prefix of the files' names; if empty, none is written
  std::uint32_t ranks = 2;  // Launcher::none
};

std::string usage(Launcher launcher);

/// Nothing if --help is asked for.  Throws UsageError.
std::optional<Options> parse(int argc, char** argv, Launcher launcher);

/// Throws UsageError.
Matrix make_matrix(const Options& options);

}  // namespace poisson
