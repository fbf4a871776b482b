// See distributed_matrix.hpp.
#include "distributed_matrix.hpp"

#include <algorithm>

namespace poisson {
namespace {

std::size_t first_row_of(std::size_t rank, std::uint32_t rank_count, std::size_t unknowns) {
  return unknowns * rank / rank_count;
}

void sort_once(std::vector<std::uint32_t>& numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
}

}  // namespace

DistributedMatrix::DistributedMatrix(Communication& communication, const Matrix& matrix)
    : first_(first_row_of(communication.rank(), communication.rank_count(), matrix.unknowns())),
      rows_(matrix.rows(first_, first_row_of(communication.rank() + 1, communication.rank_count(),
                                             matrix.unknowns()))) {
  find_halo(communication.rank_count(), matrix.unknowns());
  sent_.resize(sent_rows_.size());
  exchange_ = communication.exchange({sent_, sent_counts_}, {received_, received_counts_});
}

/// The matrix is symmetric: another rank needs of this one the rows that have columns of its own.
/// So no rank has to be asked.
void DistributedMatrix::find_halo(std::uint32_t rank_count, std::size_t unknowns) {
  std::vector<std::uint32_t> halo;  // columns of other ranks, in order, hence by rank
  for (const std::uint32_t column : rows_.columns)
    if (column < first_ || column >= first_ + row_count()) halo.push_back(column);
  sort_once(halo);
  received_.resize(halo.size());

  std::vector<std::vector<std::uint32_t>> rows_for(rank_count);
  received_counts_.assign(rank_count, 0);
  std::size_t owner = 0;
  std::vector<std::uint32_t> owners;  // of each column of the halo
  for (const std::uint32_t column : halo) {
    while (column >= first_row_of(owner + 1, rank_count, unknowns)) ++owner;
    owners.push_back(static_cast<std::uint32_t>(owner));
    ++received_counts_[owner];
  }

  for (std::uint32_t row = 0; row < row_count(); ++row) {
    bool outer = false;
    for (std::size_t i = rows_.begins[row]; i < rows_.begins[row + 1]; ++i) {
      std::uint32_t& column = rows_.columns[i];
      if (column >= first_ && column < first_ + row_count()) {
        column -= static_cast<std::uint32_t>(first_);
        continue;
      }
      const auto place = std::lower_bound(halo.begin(), halo.end(), column) - halo.begin();
      rows_for[owners[static_cast<std::size_t>(place)]].push_back(row);
      column = static_cast<std::uint32_t>(row_count() + static_cast<std::size_t>(place));
      outer = true;
    }
    (outer ? outer_ : inner_).push_back(row);
  }
  for (std::vector<std::uint32_t>& rows : rows_for) {
    sort_once(rows);
    sent_counts_.push_back(rows.size());
    sent_rows_.insert(sent_rows_.end(), rows.begin(), rows.end());
  }
}

void DistributedMatrix::send_halo(std::span<const double> vector) {
  for (std::size_t i = 0; i < sent_.size(); ++i) sent_[i] = vector[sent_rows_[i]];
  exchange_->start();
}

double DistributedMatrix::inner_row(std::size_t row, std::span<const double> vector) const {
  double sum = 0;
  for (std::size_t i = rows_.begins[row]; i < rows_.begins[row + 1]; ++i)
    sum += rows_.values[i] * vector[rows_.columns[i]];
  return sum;
}

double DistributedMatrix::outer_row(std::size_t row, std::span<const double> vector) const {
  double sum = 0;
  for (std::size_t i = rows_.begins[row]; i < rows_.begins[row + 1]; ++i) {
    const std::size_t column = rows_.columns[i];
    sum +=
        rows_.values[i] * (column < row_count() ? vector[column] : received_[column - row_count()]);
  }
  return sum;
}

}  // namespace poisson
