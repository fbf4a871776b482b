// A Matrix Market file is refused in one sentence, or gives a matrix that is symmetric and has its
// columns in order.
#include <algorithm>
#include <string>

#include "../../examples/poisson/matrix.hpp"
#include "fuzz.hpp"
#include "scratch_file.hpp"

namespace tutti::fuzz {

void judge(std::span<const std::uint8_t> input) {
  const ScratchFile file(text_of(input));
  try {
    const poisson::Matrix matrix(file.path());
    const poisson::Rows rows = matrix.rows(0, matrix.unknowns());
    promise(rows.count() == matrix.unknowns(), "each unknown has a row");
    promise(rows.begins.back() == rows.values.size() && rows.columns.size() == rows.values.size(),
            "rows end where the entries do");
    for (std::size_t row = 0; row < rows.count(); ++row)
      for (std::size_t at = rows.begins[row]; at < rows.begins[row + 1]; ++at) {
        const std::size_t column = rows.columns[at];
        promise(column < matrix.unknowns(), "a column is one of the matrix");
        promise(at == rows.begins[row] || rows.columns[at - 1] < column, "columns are in order");
        const auto begin = rows.columns.begin() + static_cast<std::ptrdiff_t>(rows.begins[column]);
        const auto end =
            rows.columns.begin() + static_cast<std::ptrdiff_t>(rows.begins[column + 1]);
        const auto mirrored = std::lower_bound(begin, end, static_cast<std::uint32_t>(row));
        promise(mirrored != end && *mirrored == row &&
                    rows.values[static_cast<std::size_t>(mirrored - rows.columns.begin())] ==
                        rows.values[at],
                "the matrix is symmetric");
      }
    // Parts are what ranks take.
    const std::size_t middle = matrix.unknowns() / 2;
    promise(matrix.rows(0, middle).values.size() +
                    matrix.rows(middle, matrix.unknowns()).values.size() ==
                rows.values.size(),
            "parts are the whole");
  } catch (const poisson::UsageError& error) {
    const std::string what = error.what();
    promise(what.starts_with("--matrix " + file.path() + ": "), "an error names the file", what);
    promise(what.size() < 500, "an error is short", what);
  }
}

std::vector<std::string> seeds() {
  return {
      "%%MatrixMarket matrix coordinate real symmetric\n% a comment\n3 3 5\n1 1 2\n2 1 -1\n"
      "2 2 2\n3 2 -1.0e0\n3 3 2.5\n",
      "%%MatrixMarket matrix coordinate integer general\n2 2 4\n1 1 4\n1 2 1\n2 1 1\n2 2 3\n",
      "%%matrixmarket MATRIX coordinate real general\r\n1 1 1\r\n\r\n1\t1 +1e-300\r\n"};
}

}  // namespace tutti::fuzz
