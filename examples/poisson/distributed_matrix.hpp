// The rows of a matrix that belong to one rank, and the product with a vector, for which the values
// of other ranks' rows (the halo) are fetched.
//
// The ranks have consecutive rows, in rank order, and the same rows of each vector.  Entries of a
// row are added in the order of their columns, whoever has these: so the product has the same bits
// for every number of ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "aligned_vector.hpp"
#include "call_times.hpp"
#include "communication.hpp"
#include "matrix.hpp"

namespace poisson {

class DistributedMatrix {
 public:
  /// Collective.
  DistributedMatrix(Communication& communication, const Matrix& matrix);
  DistributedMatrix(const DistributedMatrix&) = delete;
  DistributedMatrix& operator=(const DistributedMatrix&) = delete;

  std::size_t first_row() const { return first_; }
  std::size_t row_count() const { return rows_.count(); }  // of this rank

  /// product = matrix * vector.  Collective.  The halo travels while the inner rows are computed.
  /// Calls `meanwhile` now and then: work that another collective has to do in order to advance.
  template <class Meanwhile>
  void multiply(std::span<const double> vector, std::span<double> product,
                const Meanwhile& meanwhile);
  void multiply(std::span<const double> vector, std::span<double> product) {
    multiply(vector, product, [] {});
  }

  CallTimes& halo_times() { return halo_times_; }
  /// How many values of each rank this one needs.
  std::span<const std::size_t> halo_counts() const { return received_counts_; }

 private:
  void find_halo(std::uint32_t rank_count, std::size_t unknowns);
  void send_halo(std::span<const double> vector);
  double inner_row(std::size_t row, std::span<const double> vector) const;
  double outer_row(std::size_t row, std::span<const double> vector) const;

  std::size_t first_ = 0;
  Rows rows_;  // columns: own rows from 0 on, then those of the halo
  AlignedVector<std::uint32_t> inner_, outer_;  // rows without and with columns of the halo
  std::vector<std::uint32_t> sent_rows_;        // what other ranks need, by rank
  std::vector<std::size_t> sent_counts_, received_counts_;
  std::vector<double> sent_, received_;
  std::unique_ptr<Collective> exchange_;
  CallTimes halo_times_;
};

template <class Meanwhile>
void DistributedMatrix::multiply(std::span<const double> vector, std::span<double> product,
                                 const Meanwhile& meanwhile) {
  constexpr std::size_t rows_between = 256;  // some microseconds
  halo_times_.start([&] { send_halo(vector); });
  for (std::size_t i = 0; i < inner_.size(); ++i) {
    product[inner_[i]] = inner_row(inner_[i], vector);
    if (i % rows_between == rows_between - 1) meanwhile();
  }
  halo_times_.wait([&] { exchange_->wait(); });
  for (const std::uint32_t row : outer_) product[row] = outer_row(row, vector);
}

}  // namespace poisson
