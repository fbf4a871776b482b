// The collectives of tutti as subjects of measurement and of checks.
#pragma once

#include <cstddef>
#include <span>
#include <tutti/block_collectives.hpp>
#include <tutti/collectives.hpp>
#include <tutti/communicator.hpp>
#include <vector>

#include "microbench/options.hpp"
#include "microbench/subject.hpp"

namespace tutti::bench {

/// Bytes that a payload needs in source and target.
struct BufferBytes {
  std::size_t source = 0;
  std::size_t target = 0;
};

/// The two buffers of a collective, used by tutti and MPI alike.  At least one byte each, so that a
/// payload of nothing has an address too.
struct Buffers {
  explicit Buffers(BufferBytes bytes)
      : memory{std::vector<std::byte>(bytes.source + 1), std::vector<std::byte>(bytes.target + 1)},
        source(memory[0]),
        target(memory[1]) {}
  struct Scopes {
    Scope source = Scope::rank;
    Scope target = Scope::rank;
  };
  /// Allocates the buffers in segments.  Collective.
  Buffers(BufferBytes bytes, Communicator& communicator, Scopes scopes) {
    segments.push_back(communicator.allocate(bytes.source + 1, scopes.source));
    segments.push_back(communicator.allocate(bytes.target + 1, scopes.target));
    source = segments[0].as<std::byte>();
    target = segments[1].as<std::byte>();
  }
  std::span<std::byte> source_bytes() noexcept { return source.first(source.size() - 1); }
  std::span<std::byte> target_bytes() noexcept { return target.first(target.size() - 1); }

  std::vector<std::vector<std::byte>> memory = {};
  std::vector<Segment> segments = {};
  std::span<std::byte> source = {};
  std::span<std::byte> target = {};
};

/// Whether the source, or the target, has a block for each rank.
constexpr bool has_blocks_in_source(Collective collective) noexcept {
  return collective == Collective::alltoall || collective == Collective::alltoallv ||
         collective == Collective::scatter || collective == Collective::scatterv;
}
constexpr bool has_blocks_in_target(Collective collective) noexcept {
  return collective == Collective::allgather || collective == Collective::allgatherv ||
         collective == Collective::alltoall || collective == Collective::alltoallv ||
         collective == Collective::gather || collective == Collective::gatherv;
}

/// Bytes of each rank's block, for a payload of `bytes` as --bytes counts it.
std::vector<std::size_t> block_sizes(Collective collective, const Options& options,
                                     std::size_t bytes, std::uint32_t rank_count);

/// Bytes of the buffers of rank `self`, for a payload of `bytes` as --bytes counts it.
BufferBytes buffer_bytes(Collective collective, const Options& options, std::size_t bytes,
                         Rank self, std::uint32_t rank_count);

/// How many of `element_count` elements each rank has, as evenly as possible, the first ranks more.
std::vector<std::size_t> reduce_scatter_counts(std::size_t element_count, std::uint32_t rank_count);

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

  /// Makes one call, during which `part` runs `parts` times, each followed by a step of progress;
  /// `done` is called when nothing is left but to wait.
  template <class Part, class Done>
  void run_beside(std::size_t parts, Part&& part, Done&& done) {
    const Status started = operation_.start();
    for (; parts > 0; --parts) {
      part();
      (void)operation_.test();  // finish() meets a failure, too
    }
    done();
    finish(operation_, started);
  }

  /// Makes one call on other buffers of the same size.
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

/// Makes a barrier.  Collective.  Throws Error.
Operation make_barrier(Communicator& communicator, const Options& options);
/// Makes a collective that has a payload; for a broadcast, the source is the buffer.  Collective.
/// Throws Error.
Operation make_operation(Collective collective, Communicator& communicator, const Options& options,
                         std::size_t bytes, Buffers& buffers);

}  // namespace tutti::bench
