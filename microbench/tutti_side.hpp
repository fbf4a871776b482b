// The collectives of tutti as subjects of measurement and of checks.
#pragma once

#include <cstddef>
#include <span>
#include <tutti/collectives.hpp>
#include <tutti/communicator.hpp>
#include <vector>

#include "microbench/options.hpp"
#include "microbench/subject.hpp"

namespace tutti::bench {

/// The two buffers of an allreduce, used by tutti and MPI alike.  At least one byte each, so that a
/// payload of nothing has an address too.
struct Buffers {
  explicit Buffers(std::size_t bytes) : source(bytes + 1), target(bytes + 1), bytes_(bytes) {}
  std::span<std::byte> source_bytes() noexcept { return {source.data(), bytes_}; }
  std::span<std::byte> target_bytes() noexcept { return {target.data(), bytes_}; }
  std::vector<std::byte> source;
  std::vector<std::byte> target;

 private:
  std::size_t bytes_;
};

class TuttiSubject final : public Subject {
 public:
  /// `meeting` is a barrier of the same communicator, for synchronise(); both are borrowed.
  TuttiSubject(Communicator& communicator, Operation&& operation, Operation& meeting,
               std::optional<Rank> root = {})
      : communicator_(communicator),
        operation_(std::move(operation)),
        meeting_(meeting),
        root_(root) {}

  void run(std::size_t calls) override {
    for (; calls > 0; --calls) finish(operation_, operation_.start());
  }
  void synchronise() override { finish(meeting_, meeting_.start()); }
  std::optional<Rank> root() const noexcept override { return root_; }

  /// One call on other buffers of the same size.
  void run_on(const std::byte* source, std::byte* target) {
    finish(operation_, operation_.start(source, target));
  }

  const Operation& operation() const noexcept { return operation_; }

 private:
  void finish(Operation& operation, Status started) {
    const Status status = started == Status::ok ? operation.wait(call_timeout) : started;
    if (status != Status::ok) [[unlikely]]
      throw_failure(operation, status);
  }
  [[noreturn]] void throw_failure(const Operation& operation, Status status) const;

  Communicator& communicator_;
  Operation operation_;
  Operation& meeting_;
  std::optional<Rank> root_;
};

/// Collective.  Throw Error.
Operation make_barrier(Communicator& communicator, const Options& options);
Operation make_allreduce(Communicator& communicator, const Options& options, Buffers& buffers);
/// The source is the buffer.
Operation make_broadcast(Communicator& communicator, const Options& options, Buffers& buffers);
Operation make_reduce(Communicator& communicator, const Options& options, Buffers& buffers);

}  // namespace tutti::bench
