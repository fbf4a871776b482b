// See dot_products.hpp.
#include "dot_products.hpp"

namespace poisson {
namespace {

/// Eight chains of additions, which compilers turn into vectors.
double plain_product(std::span<const double> left, std::span<const double> right) {
  double chains[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= left.size(); i += 8)
    for (std::size_t chain = 0; chain < 8; ++chain)
      chains[chain] += left[i + chain] * right[i + chain];
  double sum = 0;
  for (; i < left.size(); ++i) sum += left[i] * right[i];
  for (const double chain : chains) sum += chain;
  return sum;
}

}  // namespace

DotProducts::DotProducts(Communication& communication, std::size_t count, Arithmetic arithmetic)
    : arithmetic_(arithmetic),
      part_(count),
      whole_(count),
      exact_part_(count),
      exact_whole_(count),
      sum_(arithmetic == Arithmetic::exact
               ? communication.sum(std::span<const tutti::ExactSum>(exact_part_), exact_whole_)
               : communication.sum(std::span<const double>(part_), whole_)) {}

void DotProducts::set(std::size_t which, std::span<const double> left,
                      std::span<const double> right) {
  if (arithmetic_ == Arithmetic::plain) {
    part_[which] = plain_product(left, right);
    return;
  }
  exact_part_[which] = {};
  exact_part_[which].add_products(left, right);
}

void DotProducts::round() {
  if (arithmetic_ == Arithmetic::plain) return;
  for (std::size_t i = 0; i < whole_.size(); ++i) whole_[i] = exact_whole_[i].value();
}

}  // namespace poisson
