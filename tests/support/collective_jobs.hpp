// Runs collectives of every kind on buffers of integers, and checks their results: for tests in
// which calls are given up and made again.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string>
#include <tutti/detail/names.hpp>
#include <tutti/tutti.hpp>
#include <utility>
#include <vector>

namespace tutti::test {

enum class Kind : std::uint8_t {
  barrier,
  allreduce,
  allreduce_ssp,
  broadcast,
  reduce,
  scan,
  exscan,
  allgather,
  alltoall,
  gather,
  scatter,
  reduce_scatter,
};

inline const char* name_of(Kind kind) {
  constexpr const char* names[] = {"barrier",  "allreduce", "allreduce_ssp", "broadcast",
                                   "reduce",   "scan",      "exscan",        "allgather",
                                   "alltoall", "gather",    "scatter",       "reduce_scatter"};
  return names[static_cast<std::size_t>(kind)];
}

struct CollectiveJob {
  Kind kind = Kind::barrier;
  std::size_t count = 1;  // elements of the payload, or of a block
  Algorithm algorithm = Algorithm::automatic;
  Across across = Across::automatic;
  Rank root{0};
  std::uint32_t slack = 0;
  double data_fraction = 1;
  bool in_segments = false;
  bool may_move = false;  // calls may be on other buffers

  std::string text() const {
    return std::string(name_of(kind)) + " of " + std::to_string(count) + ", " +
           tutti::name_of(algorithm) + (in_segments ? ", in segments" : "") +
           (slack > 0 ? ", slack " + std::to_string(slack) : "");
  }
};

/// A job on one rank.
class RunningCollective {
 public:
  /// Collective; throws Error on all ranks if the job cannot be done there.
  RunningCollective(Communicator& communicator, const CollectiveJob& job)
      : job_(job),
        self_(index_of(communicator.rank())),
        ranks_(communicator.rank_count()),
        source_(communicator, source_count(), job.in_segments),
        target_(communicator, target_count(), job.in_segments) {
    if (job.may_move) {
      other_source_.emplace(communicator, source_count(), false);
      other_target_.emplace(communicator, target_count(), false);
    }
    operation_.emplace(make(communicator));
  }
  RunningCollective(RunningCollective&&) noexcept = default;

  Operation& operation() { return *operation_; }
  std::string text() const { return job_.text() + " (" + operation_->algorithm() + ")"; }
  void destroy_operation() { operation_.reset(); }

  /// Fills the source for that call, and starts it.
  Status start(std::uint64_t call) {
    const bool moves = job_.may_move && call % 2 != 0;
    now_source_ = moves ? &*other_source_ : &source_;
    now_target_ = moves ? &*other_target_ : &target_;
    const bool is_read = job_.kind != Kind::broadcast;
    if (is_read)
      for (std::size_t i = 0; i < source_count(); ++i)
        now_source_->data()[i] = value(self_, call, i);
    for (std::size_t i = 0; i < target_count(); ++i)
      now_target_->data()[i] =
          !is_read && Rank{self_} == job_.root ? value(self_, call, i) : untouched;
    if (!job_.may_move) return operation_->start();
    std::uint64_t* const target = now_target_->data();
    return operation_->start(is_read ? now_source_->data() : target, target);
  }

  /// Marks what a call that is given up may have written, so that is_untouched() tells what is
  /// written later.
  void mark() {
    for (Numbers* const numbers : {&target_, other_target_ ? &*other_target_ : nullptr})
      if (numbers != nullptr) std::fill_n(numbers->data(), target_count(), untouched);
  }
  bool is_untouched() const {
    for (const Numbers* const numbers : {&target_, other_target_ ? &*other_target_ : nullptr})
      if (numbers != nullptr && !std::all_of(numbers->data(), numbers->data() + target_count(),
                                             [](std::uint64_t one) { return one == untouched; }))
        return false;
    return true;
  }

  /// Whether the target has the result of `call`; that of a stale-synchronous allreduce may contain
  /// contributions of all calls from `oldest` on.
  bool is_right(std::uint64_t call, std::uint64_t oldest) const {
    const std::uint64_t* const got = now_target_->data();
    if (job_.kind == Kind::barrier || has_no_result()) return true;
    const std::size_t count = covered(target_count());
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t most = expected(call, i);
      const std::uint64_t least = job_.kind == Kind::allreduce_ssp ? expected(oldest, i) : most;
      if (got[i] >= least && got[i] <= most) continue;
      std::fprintf(stderr, "rank %u, %s, call %llu, element %zu: %llu, expected %llu\n", self_,
                   text().c_str(), static_cast<unsigned long long>(call), i,
                   static_cast<unsigned long long>(got[i]), static_cast<unsigned long long>(most));
      return false;
    }
    return true;
  }
  std::uint32_t slack() const { return job_.slack; }

 private:
  static constexpr std::uint64_t untouched = 0xa5a5a5a5a5a5a5a5;

  /// Memory of the heap or of a segment.
  class Numbers {
   public:
    Numbers(Communicator& communicator, std::size_t count, bool in_segment)
        : heap_(in_segment ? 0 : count + 1) {
      if (in_segment) segment_.emplace(communicator.allocate((count + 1) * sizeof(std::uint64_t)));
    }
    std::uint64_t* data() {
      return segment_ ? reinterpret_cast<std::uint64_t*>(segment_->data()) : heap_.data();
    }
    const std::uint64_t* data() const { return const_cast<Numbers*>(this)->data(); }

   private:
    std::vector<std::uint64_t> heap_;
    std::optional<Segment> segment_;
  };

  bool is(std::initializer_list<Kind> kinds) const {
    return std::find(kinds.begin(), kinds.end(), job_.kind) != kinds.end();
  }
  bool has_no_result() const {
    return is({Kind::reduce, Kind::gather}) && Rank{self_} != job_.root;
  }
  std::size_t source_count() const {
    if (is({Kind::barrier, Kind::broadcast})) return 0;
    const bool has_blocks = is({Kind::alltoall, Kind::scatter, Kind::reduce_scatter});
    return has_blocks ? job_.count * ranks_ : job_.count;
  }
  std::size_t target_count() const {
    if (job_.kind == Kind::barrier) return 0;
    const bool has_blocks = is({Kind::allgather, Kind::alltoall, Kind::gather});
    return has_blocks ? job_.count * ranks_ : job_.count;
  }
  /// An element of a rank's input; from one call to the next it grows by 1 on every rank.
  static std::uint64_t value(std::uint32_t rank, std::uint64_t call, std::size_t i) {
    return (rank + 1) * 1000 + i % 97 + call;
  }
  std::size_t covered(std::size_t count) const {
    const bool is_partial = job_.data_fraction < 1;
    if (!is_partial) return count;
    const std::size_t covered = operation_->coverage().element_count;
    return job_.kind == Kind::broadcast ? covered : std::min(covered, count);
  }
  std::uint64_t sum(std::uint32_t ranks, std::uint64_t call, std::size_t i) const {
    std::uint64_t all = 0;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) all += value(rank, call, i);
    return all;
  }
  std::uint64_t expected(std::uint64_t call, std::size_t i) const {
    const std::size_t n = job_.count;
    switch (job_.kind) {
      case Kind::barrier:
        return 0;
      case Kind::allreduce:
      case Kind::allreduce_ssp:
      case Kind::reduce:
        return sum(ranks_, call, i);
      case Kind::broadcast:
        return value(index_of(job_.root), call, i);
      case Kind::scan:
        return sum(self_ + 1, call, i);
      case Kind::exscan:
        return self_ == 0 ? untouched : sum(self_, call, i);
      case Kind::allgather:
      case Kind::gather:
        return value(static_cast<std::uint32_t>(i / n), call, i % n);
      case Kind::alltoall:
        return value(static_cast<std::uint32_t>(i / n), call, self_ * n + i % n);
      case Kind::scatter:
        return value(index_of(job_.root), call, self_ * n + i);
      case Kind::reduce_scatter:
        return sum(ranks_, call, self_ * n + i);
    }
    return 0;
  }

  Operation make(Communicator& communicator) {
    const Reduction reduction = built_in_reduction(BuiltIn::sum, ElementType::uint64);
    const std::size_t n = job_.count, bytes = n * sizeof(std::uint64_t);
    std::uint64_t *const from = source_.data(), *const into = target_.data();
    switch (job_.kind) {
      case Kind::barrier:
        return barrier(communicator, {.algorithm = job_.algorithm, .across = job_.across});
      case Kind::allreduce:
        return allreduce(communicator, {.source = from,
                                        .target = into,
                                        .element_count = n,
                                        .reduction = reduction,
                                        .algorithm = job_.algorithm,
                                        .across = job_.across});
      case Kind::allreduce_ssp:
        return allreduce_ssp(communicator, {.source = from,
                                            .target = into,
                                            .element_count = n,
                                            .reduction = reduction,
                                            .slack = job_.slack});
      case Kind::broadcast:
        return broadcast(communicator, {.buffer = into,
                                        .bytes = bytes,
                                        .root = job_.root,
                                        .data_fraction = job_.data_fraction,
                                        .element_bytes = sizeof(std::uint64_t)});
      case Kind::reduce:
        return reduce(communicator, {.source = from,
                                     .target = into,
                                     .element_count = n,
                                     .reduction = reduction,
                                     .root = job_.root,
                                     .data_fraction = job_.data_fraction});
      case Kind::scan:
        return scan(communicator, {from, into, n, reduction});
      case Kind::exscan:
        return exscan(communicator, {from, into, n, reduction});
      case Kind::allgather:
        return allgather(communicator, {from, into, bytes, job_.algorithm});
      case Kind::alltoall:
        return alltoall(communicator, {from, into, bytes});
      case Kind::gather:
        return gather(communicator,
                      {.source = from, .target = into, .bytes = bytes, .root = job_.root});
      case Kind::scatter:
        return scatter(communicator,
                       {.source = from, .target = into, .bytes = bytes, .root = job_.root});
      case Kind::reduce_scatter:
        return reduce_scatter(communicator, {.source = from,
                                             .target = into,
                                             .element_counts = std::vector<std::size_t>(ranks_, n),
                                             .reduction = reduction,
                                             .algorithm = job_.algorithm});
    }
    throw Error(ErrorCode::invalid_argument, "no such kind");
  }

  CollectiveJob job_;
  std::uint32_t self_, ranks_;
  Numbers source_, target_;
  std::optional<Numbers> other_source_ = {}, other_target_ = {};
  Numbers *now_source_ = nullptr, *now_target_ = nullptr;
  std::optional<Operation> operation_ = {};
};

}  // namespace tutti::test
