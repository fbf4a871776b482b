// Dot products of vectors that are distributed over the ranks, several in one sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "call_times.hpp"
#include "communication.hpp"

namespace poisson {

enum class Arithmetic : std::uint8_t {
  plain,  // the last bits depend on the number of ranks
  exact,  // tutti::ExactSum: rounded once, the same bits for every number of ranks
};

/// `count` dot products, whose allreduce is made once.  In every call: set() for each, then start()
/// and wait(), with work between them if there is any, or run().
class DotProducts {
 public:
  /// Collective.
  DotProducts(Communication& communication, std::size_t count, Arithmetic arithmetic);
  DotProducts(const DotProducts&) = delete;
  DotProducts& operator=(const DotProducts&) = delete;

  /// Computes this rank's part of a product.
  void set(std::size_t which, std::span<const double> left, std::span<const double> right);

  void start() {
    times_.start([&] { sum_->start(); });
  }
  void progress() {
    times_.progress([&] { sum_->progress(); });
  }
  void wait() {
    times_.wait([&] { sum_->wait(); });
    round();
  }
  void run() {
    times_.run([&] { sum_->run(); });
    round();
  }

  double operator[](std::size_t which) const { return whole_[which]; }

  /// One product at once; the others are undefined then.
  double of(std::span<const double> left, std::span<const double> right) {
    set(0, left, right);
    run();
    return whole_[0];
  }

  /// What the calls of the collective take: waiting for other ranks, but not this rank's
  /// arithmetic.
  CallTimes& times() { return times_; }

 private:
  void round();

  Arithmetic arithmetic_;
  std::vector<double> part_, whole_;
  std::vector<tutti::ExactSum> exact_part_, exact_whole_;
  std::unique_ptr<Collective> sum_;
  CallTimes times_;
};

}  // namespace poisson
