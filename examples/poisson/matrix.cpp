// See matrix.hpp.
#include "matrix.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>
#include <tuple>

namespace poisson {
namespace {

struct Entry {
  std::uint32_t row, column;
  double value;
};

bool before(const Entry& left, const Entry& right) {
  return std::tie(left.row, left.column) < std::tie(right.row, right.column);
}

/// Reads a Matrix Market file line by line, and says of an error where it is.
class MatrixMarket {
 public:
  explicit MatrixMarket(const std::string& path) : path_(path), file_(path) {
    if (!file_) throw UsageError("--matrix " + path + ": cannot be opened");
    read_banner();
    read_size();
    read_entries();
    std::sort(entries_.begin(), entries_.end(), before);
    check_symmetry();
  }

  std::size_t unknowns() const { return unknowns_; }
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw UsageError("--matrix " + path_ + ": " + why);
  }
  [[noreturn]] void refuse_line(const std::string& expected) const {
    refuse("line " + std::to_string(line_number_) + ": expected " + expected + ", got \"" +
           line_.substr(0, 80) + "\"");
  }

  bool next_line() {
    while (std::getline(file_, line_)) {
      ++line_number_;
      if (!line_.empty() && line_.back() == '\r') line_.pop_back();
      const bool empty = line_.find_first_not_of(" \t") == std::string::npos;
      if (line_number_ == 1 || (!empty && line_.front() != '%')) return true;
    }
    return false;
  }

  /// Takes a number from the begin of `text`.
  template <class T>
  bool take(std::string_view& text, T& number) const {
    text.remove_prefix(std::min(text.find_first_not_of(" \t+"), text.size()));
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return error == std::errc() && (text.empty() || text[0] == ' ' || text[0] == '\t');
  }
  static bool nothing_left(std::string_view text) {
    return text.find_first_not_of(" \t") == std::string_view::npos;
  }

  void read_banner() {
    std::string banner, object, format, field;
    if (!next_line()) refuse("is empty; expected a Matrix Market file");
    std::transform(line_.begin(), line_.end(), line_.begin(),
                   [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
    std::istringstream words(line_);
    words >> banner >> object >> format >> field >> symmetry_;
    if (banner != "%%matrixmarket" || object != "matrix" || format != "coordinate" ||
        (field != "real" && field != "integer") ||
        (symmetry_ != "symmetric" && symmetry_ != "general"))
      refuse_line("\"%%MatrixMarket matrix coordinate real|integer symmetric|general\"");
  }

  void read_size() {
    std::size_t columns = 0;
    if (!next_line()) refuse("ends before the line of rows, columns and entries");
    std::string_view rest = line_;
    if (!take(rest, unknowns_) || !take(rest, columns) || !take(rest, entry_count_) ||
        !nothing_left(rest))
      refuse_line("rows, columns and entries");
    if (unknowns_ != columns)
      refuse("has " + std::to_string(unknowns_) + " rows and " + std::to_string(columns) +
             " columns; expected a square matrix");
    if (unknowns_ == 0 || unknowns_ > unknowns_max)
      refuse("has " + std::to_string(unknowns_) + " rows; expected 1 to " +
             std::to_string(unknowns_max));
    if (entry_count_ < unknowns_)
      refuse("has " + std::to_string(unknowns_) + " rows, but only " +
             std::to_string(entry_count_) +
             " entries; expected a positive diagonal, as a positive definite matrix has");
  }

  void read_entries() {
    const bool symmetric = symmetry_ == "symmetric";
    for (std::size_t read = 0; read < entry_count_; ++read) {
      if (!next_line())
        refuse("ends after " + std::to_string(read) + " entries; expected " +
               std::to_string(entry_count_) + ", is the file cut off?");
      std::size_t row = 0, column = 0;
      double value = 0;
      std::string_view rest = line_;
      if (!take(rest, row) || !take(rest, column) || !take(rest, value) || !nothing_left(rest))
        refuse_line("row, column and value");
      if (row < 1 || row > unknowns_ || column < 1 || column > unknowns_)
        refuse_line("row and column from 1 to " + std::to_string(unknowns_));
      if (!std::isfinite(value)) refuse_line("a finite value");
      if (symmetric && column > row) refuse_line("entries of the lower triangle");
      add(row, column, value);
      if (symmetric && column != row) add(column, row, value);
    }
    if (next_line()) refuse_line("nothing more after " + std::to_string(entry_count_) + " entries");
  }

  void add(std::size_t row, std::size_t column, double value) {
    entries_.push_back(
        {static_cast<std::uint32_t>(row - 1), static_cast<std::uint32_t>(column - 1), value});
  }

  void check_symmetry() const {
    const auto place = [](const Entry& entry) {
      return "row " + std::to_string(entry.row + 1) + ", column " +
             std::to_string(entry.column + 1);
    };
    for (std::size_t i = 0; i + 1 < entries_.size(); ++i)
      if (!before(entries_[i], entries_[i + 1])) refuse("has " + place(entries_[i]) + " twice");
    for (const Entry& entry : entries_) {
      const Entry mirrored{entry.column, entry.row, entry.value};
      const auto found = std::lower_bound(entries_.begin(), entries_.end(), mirrored, before);
      if (found == entries_.end() || before(mirrored, *found) || found->value != entry.value)
        refuse("expected a symmetric matrix, but " + place(entry) + " differs from " +
               place(mirrored));
    }
  }

  std::string path_;
  std::ifstream file_;
  std::string line_, symmetry_;
  std::size_t line_number_ = 0, unknowns_ = 0, entry_count_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace

Matrix::Matrix(const Grid& grid)
    : unknowns_(grid.sizes[0] * grid.sizes[1] * grid.sizes[2]), grid_(grid) {
  description_ = std::to_string(grid.sizes[0]) + "x" + std::to_string(grid.sizes[1]);
  if (grid.stencil != 5) description_ += "x" + std::to_string(grid.sizes[2]);
  description_ += ", " + std::to_string(grid.stencil) + "-point";
}

Matrix::Matrix(const std::string& path) : description_(path) {
  const MatrixMarket file(path);
  unknowns_ = file.unknowns();
  for (const Entry& entry : file.entries()) {
    all_.begins.resize(entry.row + 1, all_.values.size());  // of the rows up to this one
    all_.columns.push_back(entry.column);
    all_.values.push_back(entry.value);
  }
  all_.begins.resize(unknowns_ + 1, all_.values.size());
}

Rows Matrix::rows(std::size_t first, std::size_t last) const {
  if (all_.count() == 0) return stencil_rows(first, last);
  Rows rows;
  for (std::size_t row = first; row < last; ++row)
    rows.begins.push_back(all_.begins[row + 1] - all_.begins[first]);
  const auto begin = static_cast<std::ptrdiff_t>(all_.begins[first]);
  const auto end = static_cast<std::ptrdiff_t>(all_.begins[last]);
  rows.columns.assign(all_.columns.begin() + begin, all_.columns.begin() + end);
  rows.values.assign(all_.values.begin() + begin, all_.values.begin() + end);
  return rows;
}

/// Points are numbered by x first, then y, then z, so the loops below give columns in order.
Rows Matrix::stencil_rows(std::size_t first, std::size_t last) const {
  const auto [width, height, depth] = grid_.sizes;
  Rows rows;
  for (std::size_t row = first; row < last; ++row) {
    const std::size_t x = row % width, y = row / width % height, z = row / width / height;
    for (const int dz : {-1, 0, 1})
      for (const int dy : {-1, 0, 1})
        for (const int dx : {-1, 0, 1}) {
          // Unsigned numbers wrap: what is left of 0 is beyond the width.
          const std::size_t i = x + static_cast<std::size_t>(dx);
          const std::size_t j = y + static_cast<std::size_t>(dy);
          const std::size_t k = z + static_cast<std::size_t>(dz);
          const int distance = std::abs(dx) + std::abs(dy) + std::abs(dz);
          if (i >= width || j >= height || k >= depth) continue;
          if (grid_.stencil != 27 && distance > 1) continue;
          rows.columns.push_back(static_cast<std::uint32_t>((k * height + j) * width + i));
          rows.values.push_back(distance == 0 ? grid_.stencil - 1 : -1);
        }
    rows.begins.push_back(rows.values.size());
  }
  return rows;
}

}  // namespace poisson
