// What the solvers need of the other ranks, and nothing else: sums of a few numbers over all ranks,
// and blocks of a vector that go from rank to rank.  Each is made once and runs in every iteration.
// tutti_communication.cpp and mpi_communication.cpp implement it; the solvers know neither.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tutti/exact_sum.hpp>

namespace poisson {

/// A collective, made for its buffers.  Between start() and wait(), its source must not be written,
/// and its target neither read nor written.  All ranks start their collectives in the same order.
/// Failures of other ranks are exceptions.
class Collective {
 public:
  virtual ~Collective() = default;
  virtual void start() = 0;     // does not wait for other ranks
  virtual void progress() = 0;  // called now and then between start() and wait()
  virtual void wait() = 0;
  virtual void run() = 0;  // start() and wait(), where there is nothing to compute meanwhile
};

/// The blocks of a vector by rank, one after the other.
template <class T>
struct Blocks {
  std::span<T> values;
  std::span<const std::size_t> counts;
};

class Communication {
 public:
  virtual ~Communication() = default;
  virtual std::string name() const = 0;
  virtual std::uint32_t rank() const = 0;
  virtual std::uint32_t rank_count() const = 0;

  /// The next four are collective.  Sums are taken element by element.
  virtual std::unique_ptr<Collective> sum(std::span<const double> source,
                                          std::span<double> target) = 0;
  virtual std::unique_ptr<Collective> sum(std::span<const tutti::ExactSum> source,
                                          std::span<tutti::ExactSum> target) = 0;
  /// Block p of the source goes to rank p, block q of the target comes from rank q.
  virtual std::unique_ptr<Collective> exchange(Blocks<const double> source,
                                               Blocks<double> target) = 0;
  /// No rank returns before all have called it.
  virtual void synchronize() = 0;
};

}  // namespace poisson
