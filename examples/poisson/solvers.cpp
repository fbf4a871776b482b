// See solvers.hpp.
#include "solvers.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "aligned_vector.hpp"

namespace poisson {
namespace {

using Vector = AlignedVector<double>;

/// y += factor x
void add(std::span<double> y, double factor, std::span<const double> x) {
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += factor * x[i];
}

/// y = x + factor y
void scale_and_add(std::span<double> y, double factor, std::span<const double> x) {
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = x[i] + factor * y[i];
}

class ConjugateGradient final : public Solver {
 public:
  ConjugateGradient(DistributedMatrix& matrix, Communication& communication, Arithmetic arithmetic)
      : Solver(matrix, communication, 1, arithmetic), q_(matrix.row_count()) {}

  const char* name() const override { return "cg"; }

 private:
  void iterate(std::span<const double> right, std::span<double> x) override {
    r_.assign(right.begin(), right.end());
    p_ = r_;
    double rr = dots_.of(r_, r_);
    while (!finished(rr)) {
      matrix_.multiply(p_, q_);
      const double pq = dots_.of(p_, q_);  // nothing can be computed meanwhile
      if (breaks_down(pq)) return;
      const double alpha = rr / pq;
      add(r_, -alpha, q_);
      dots_.set(0, r_, r_);
      dots_.run();
      add(x, alpha, p_);
      const double beta = dots_[0] / rr;
      rr = dots_[0];
      scale_and_add(p_, beta, r_);
    }
  }

  Vector r_, p_, q_;
};

class PipelinedConjugateGradient final : public Solver {
 public:
  PipelinedConjugateGradient(DistributedMatrix& matrix, Communication& communication,
                             Arithmetic arithmetic)
      : Solver(matrix, communication, 2, arithmetic),
        w_(matrix.row_count()),
        q_(matrix.row_count()) {}

  const char* name() const override { return "pipelined"; }

 private:
  /// By the names of the paper: w = A r, s = A p, z = A s.
  void iterate(std::span<const double> right, std::span<double> x) override {
    r_.assign(right.begin(), right.end());
    for (Vector* vector : {&p_, &s_, &z_}) vector->assign(right.size(), 0.0);
    matrix_.multiply(r_, w_);
    double last_gamma = 0, last_alpha = 0;
    for (bool first = true;; first = false) {
      dots_.set(0, r_, r_);
      dots_.set(1, w_, r_);
      dots_.start();
      matrix_.multiply(w_, q_, [&] { dots_.progress(); });  // q = A w, while the sums travel
      dots_.wait();
      const double gamma = dots_[0], delta = dots_[1];
      if (finished(gamma)) return;
      const double beta = first ? 0 : gamma / last_gamma;
      const double pq = first ? delta : delta - beta * gamma / last_alpha;  // (p, A p)
      if (breaks_down(pq)) return;
      const double alpha = gamma / pq;
      scale_and_add(z_, beta, q_);
      scale_and_add(s_, beta, w_);
      scale_and_add(p_, beta, r_);
      add(x, alpha, p_);
      add(r_, -alpha, s_);
      add(w_, -alpha, z_);
      last_gamma = gamma;
      last_alpha = alpha;
    }
  }

  Vector r_, w_, q_, p_, s_, z_;
};

}  // namespace

Solution Solver::solve(std::span<const double> right, std::span<double> x, const Limits& limits) {
  limits_ = limits;
  solution_ = {};
  solution_.history.reserve(limits.iterations + 1);
  const std::size_t calls = 2 * limits.iterations + 2;  // two of an iteration, and before the first
  dots_.times().reset(calls);
  matrix_.halo_times().reset(calls);
  std::fill(x.begin(), x.end(), 0.0);
  begin_ = std::chrono::steady_clock::now();
  iterate(right, x);
  solution_.seconds = solution_.history.back().seconds;
  return std::move(solution_);
}

bool Solver::finished(double squared_residual) {
  if (solution_.history.empty()) first_squared_residual_ = squared_residual;
  const double residual =
      squared_residual == 0 ? 0 : std::sqrt(squared_residual / first_squared_residual_);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin_;
  solution_.history.push_back({.residual = residual, .seconds = elapsed.count()});
  if (residual <= limits_.tolerance) return true;
  if (!std::isfinite(residual)) {
    solution_.failure = "the residual is not finite";
  } else if (solution_.iterations() == limits_.iterations) {
    solution_.failure = "has not converged";
  }
  return !solution_.failure.empty();
}

bool Solver::breaks_down(double pq) {
  if (pq > 0) return false;
  char number[32];
  std::snprintf(number, sizeof(number), "%g", pq);
  solution_.failure = std::string("(p, A p) is ") + number +
                      "; expected a positive number: the matrix is not positive definite, or the "
                      "tolerance is beyond reach";
  return true;
}

std::unique_ptr<Solver> conjugate_gradient(DistributedMatrix& matrix, Communication& communication,
                                           Arithmetic arithmetic) {
  return std::make_unique<ConjugateGradient>(matrix, communication, arithmetic);
}

std::unique_ptr<Solver> pipelined_conjugate_gradient(DistributedMatrix& matrix,
                                                     Communication& communication,
                                                     Arithmetic arithmetic) {
  return std::make_unique<PipelinedConjugateGradient>(matrix, communication, arithmetic);
}

}  // namespace poisson
