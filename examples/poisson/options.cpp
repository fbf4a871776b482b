// See options.hpp.
#include "options.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace poisson {
namespace {

[[noreturn]] void refuse(const std::string& option, const std::string& value,
                         const std::string& expected) {
  throw UsageError(option + " " + value + ": expected " + expected);
}

std::size_t number(const std::string& option, const std::string& value, std::size_t most) {
  const bool digits = !value.empty() && value.find_first_not_of("0123456789") == std::string::npos;
  errno = 0;
  const unsigned long long read = digits ? std::strtoull(value.c_str(), nullptr, 10) : 0;
  if (read == 0 || read > most || errno != 0)
    refuse(option, value, "a whole number from 1 to " + std::to_string(most));
  return read;
}

Grid grid_of(const std::string& value, std::optional<int> stencil) {
  const std::string expected = "WIDTHxHEIGHT or WIDTHxHEIGHTxDEPTH, each at least 1, and at most " +
                               std::to_string(unknowns_max) + " points";
  Grid grid;
  std::size_t dimensions = 0, points = 1;
  for (std::size_t begin = 0; begin <= value.size(); ++dimensions) {
    const std::size_t end = std::min(value.find('x', begin), value.size());
    const std::string size = value.substr(begin, end - begin);
    if (dimensions == 3 || size.empty() || size.size() > 10 ||
        size.find_first_not_of("0123456789") != std::string::npos)
      refuse("--grid", value, expected);
    grid.sizes[dimensions] = std::strtoull(size.c_str(), nullptr, 10);
    if (grid.sizes[dimensions] == 0 || grid.sizes[dimensions] > unknowns_max / points)
      refuse("--grid", value, expected);
    points *= grid.sizes[dimensions];
    begin = end + 1;
  }
  if (dimensions < 2) refuse("--grid", value, expected);
  grid.stencil = stencil.value_or(dimensions == 2 ? 5 : 7);
  if ((grid.stencil == 5) != (dimensions == 2))
    refuse("--stencil", std::to_string(grid.stencil),
           dimensions == 2 ? "5 with a grid of two dimensions"
                           : "7 or 27 with a grid of three dimensions");
  return grid;
}

}  // namespace

std::string usage(Launcher launcher) {
  const bool mpi = launcher == Launcher::mpirun;
  return std::string("usage: ") + (mpi ? "mpirun -n RANKS poisson_mpi" : "poisson") +
         " [OPTION...]\n\n"
         "Solves A x = b by conjugate gradient and by pipelined conjugate gradient, where A is "
         "the\n"
         "Laplace operator on a grid, or a symmetric positive definite matrix from a file.\n\n"
         "  --grid WxH[xD]    points of the grid, in two or three dimensions; 32x32\n"
         "  --stencil POINTS  5 (two dimensions), 7 or 27 (three); 5 or 7\n"
         "  --matrix FILE     a Matrix Market file in place of a grid\n"
         "  --solver NAME     cg, pipelined or both; both\n"
         "  --exact           dot products that have the same bits for every number of ranks\n"
         "  --tolerance T     of the residual, relative to b; 1e-8\n"
         "  --iterations N    the most there may be; 1000\n"
         "  --repeat N        solves N times and prints medians; 1\n"
         "  --history PREFIX  each rank writes its residuals to PREFIX.RANK.csv\n" +
         (mpi ? "  --with NAME       tutti, mpi, preloaded (MPI's calls, by libtutti-mpi), both "
                "(tutti,\n"
                "                    mpi) or all, by turns; both\n"
              : "  --ranks N         how many processes solve; 2\n") +
         "  --help\n\n"
         "Ends with 1 if it has not converged, with 2 if it does not understand what is asked "
         "for.\n";
}

std::optional<Options> parse(int argc, char** argv, Launcher launcher) {
  const bool mpi = launcher == Launcher::mpirun;
  Options options;
  std::optional<std::string> grid;
  std::optional<int> stencil;
  std::string solver = "both", with = mpi ? "both" : "tutti";
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 >= argc) throw UsageError(name + ": expected a value after it");
      return argv[++i];
    };
    if (name == "--help") return std::nullopt;
    if (name == "--grid") {
      grid = value();
    } else if (name == "--stencil") {
      const std::string points = value();
      if (points != "5" && points != "7" && points != "27") refuse(name, points, "5, 7 or 27");
      stencil = std::atoi(points.c_str());
    } else if (name == "--matrix") {
      options.matrix = value();
    } else if (name == "--solver") {
      solver = value();
      if (solver != "cg" && solver != "pipelined" && solver != "both")
        refuse(name, solver, "cg, pipelined or both");
    } else if (name == "--exact") {
      options.arithmetic = Arithmetic::exact;
    } else if (name == "--tolerance") {
      const std::string text = value();
      char* end = nullptr;
      options.limits.tolerance = std::strtod(text.c_str(), &end);
      if (end == text.c_str() || *end != '\0' ||
          !(options.limits.tolerance > 0 && options.limits.tolerance < 1))
        refuse(name, text, "a number between 0 and 1");
    } else if (name == "--iterations") {
      options.limits.iterations = number(name, value(), 1'000'000);
    } else if (name == "--repeat") {
      options.repeat = static_cast<std::uint32_t>(number(name, value(), 100'000));
    } else if (name == "--history") {
      options.history = value();
    } else if (name == "--ranks" && !mpi) {
      options.ranks = static_cast<std::uint32_t>(number(name, value(), 1000));
    } else if (name == "--with" && mpi) {
      with = value();
      if (with != "tutti" && with != "mpi" && with != "preloaded" && with != "both" &&
          with != "all")
        refuse(name, with, "tutti, mpi, preloaded, both or all");
    } else {
      throw UsageError(name +
                       ": unknown; expected --grid, --stencil, --matrix, --solver, --exact, "
                       "--tolerance, --iterations, --repeat, --history, " +
                       (mpi ? "--with" : "--ranks") + " or --help");
    }
  }
  if (!options.matrix.empty() && (grid || stencil))
    throw UsageError("--matrix " + options.matrix +
                     ": expected no --grid and no --stencil with it");
  options.grid = grid_of(grid.value_or(stencil.value_or(5) == 5 ? "32x32" : "16x16x16"), stencil);
  for (const char* name : {"cg", "pipelined"})
    if (solver == name || solver == "both") options.solvers.emplace_back(name);
  for (const char* name : {"tutti", "mpi"})
    if (with == name || with == "both" || with == "all") options.communications.emplace_back(name);
  if (with == "preloaded" || with == "all") options.communications.emplace_back("preloaded");
  return options;
}

Matrix make_matrix(const Options& options) {
  return options.matrix.empty() ? Matrix(options.grid) : Matrix(options.matrix);
}

}  // namespace poisson
