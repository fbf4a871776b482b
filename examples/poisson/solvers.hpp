// Conjugate gradient (M. R. Hestenes and E. Stiefel, 1952), and its pipelined form (P. Ghysels and
// W. Vanroose, "Hiding global synchronization latency in the preconditioned Conjugate Gradient
// algorithm", Parallel Computing 40 (7), 2014, algorithm 3), both without a preconditioner and from
// x = 0.
//
//                      reductions per iteration    each waits for
//   conjugate gradient  2                          the product before it, and the step after it
//                                                  waits for its result
//   pipelined           1, of two numbers          is in flight during the product with the matrix
//
// The pipelined form pays for that with three more vectors, which recurrences update in place of
// products: its residual is less exact near the end.
//
// All ranks have to leave the loop in the same iteration, or one would wait for the others forever.
// They decide by numbers that all have alike, to the last bit: tutti promises so, MPI recommends
// it.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "distributed_matrix.hpp"
#include "dot_products.hpp"

namespace poisson {

struct Limits {
  double tolerance = 1e-8;  // of the residual's norm, relative to that of the right-hand side
  std::size_t iterations = 1000;
};

struct Iteration {
  double residual = 0;  // relative norm, by the recurrence
  double seconds = 0;   // since the begin
};

struct Solution {
  std::vector<Iteration> history;  // begins with the residual of x = 0
  std::string failure;             // why there is none, else empty
  double seconds = 0;

  std::size_t iterations() const { return history.size() - 1; }
};

/// Makes its reductions and vectors once, and may then solve any number of times.
class Solver {
 public:
  virtual ~Solver() = default;
  Solver(const Solver&) = delete;
  Solver& operator=(const Solver&) = delete;

  virtual const char* name() const = 0;
  /// Collective.  `right` is the right-hand side; `x` need not be set.
  Solution solve(std::span<const double> right, std::span<double> x, const Limits& limits);
  /// The reductions of the last solve; its halo is the matrix's.
  const CallTimes& reduction_times() { return dots_.times(); }

 protected:
  Solver(DistributedMatrix& matrix, Communication& communication, std::size_t products,
         Arithmetic arithmetic)
      : matrix_(matrix), dots_(communication, products, arithmetic) {}

  virtual void iterate(std::span<const double> right, std::span<double> x) = 0;
  /// Keeps the residual, and says whether the loop ends here.
  bool finished(double squared_residual);
  /// (p, A p) is positive if the matrix is positive definite.  Returns whether it is not, and keeps
  /// the reason.
  bool breaks_down(double pq);

  DistributedMatrix& matrix_;
  DotProducts dots_;

 private:
  Limits limits_;
  Solution solution_;
  double first_squared_residual_ = 0;
  std::chrono::steady_clock::time_point begin_;
};

/// Collective.
std::unique_ptr<Solver> conjugate_gradient(DistributedMatrix& matrix, Communication& communication,
                                           Arithmetic arithmetic);
std::unique_ptr<Solver> pipelined_conjugate_gradient(DistributedMatrix& matrix,
                                                     Communication& communication,
                                                     Arithmetic arithmetic);

}  // namespace poisson
