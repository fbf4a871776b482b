// Symmetric sparse matrices, as rows: those of a Poisson problem on a grid, or of a file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "aligned_vector.hpp"

namespace poisson {

/// What the user asked for cannot be done.  The text names the value and what was expected.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Some consecutive rows of a square matrix.  The entries of a row are in order of their columns.
struct Rows {
  AlignedVector<std::size_t> begins{0};  // of each row in the next two; at the end, their size
  AlignedVector<std::uint32_t> columns;
  AlignedVector<double> values;

  std::size_t count() const { return begins.size() - 1; }
};

struct Grid {
  std::array<std::size_t, 3> sizes{32, 32, 1};  // x, y, z; in two dimensions, z is 1
  int stencil = 5;                              // points: 5, 7 or 27
};

constexpr std::size_t unknowns_max = 2'000'000'000;  // columns have 32 bits

/// A matrix of which each rank takes its rows.
class Matrix {
 public:
  /// The discrete Laplace operator with zeros around the grid: the diagonal has the number of
  /// neighbours, each neighbour has -1.
  explicit Matrix(const Grid& grid);
  /// A Matrix Market file: coordinate, real or integer, symmetric or general.  It is read as a
  /// whole. Throws UsageError where the file is not right or the matrix is not symmetric.
  explicit Matrix(const std::string& path);

  std::size_t unknowns() const { return unknowns_; }
  const std::string& description() const { return description_; }
  Rows rows(std::size_t first, std::size_t last) const;

 private:
  Rows stencil_rows(std::size_t first, std::size_t last) const;

  std::size_t unknowns_ = 0;
  std::string description_;
  Grid grid_;
  Rows all_;  // of a file
};

}  // namespace poisson
