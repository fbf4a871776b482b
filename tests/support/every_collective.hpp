// Every collective of the public interface over one communicator, each with its buffers, inputs
// that differ from call to call, and a check of its results.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <tutti/tutti.hpp>
#include <utility>
#include <vector>

namespace tutti::test {

/// Has operations of some collectives, or of all of them.  The seed decides which, in which order,
/// and about roots; it is the same on all ranks.
class EveryCollective {
 public:
  struct Wanted {
    unsigned seed = 1;
    std::size_t count = SIZE_MAX;  // how many of them, at random
    bool with_ssp = true;          // which a rank may not leave before all have met
    bool with_segments = true;     // zero copy, for which the arena needs a MiB
    bool with_shared_ring = true;  // for which it needs three
    std::size_t block = 300;       // elements of 8 bytes
  };

  EveryCollective(Communicator& communicator, const Wanted& wanted)
      : communicator_(communicator),
        self_(index_of(communicator.rank())),
        ranks_(communicator.rank_count()),
        block_(wanted.block) {
    std::mt19937 random(wanted.seed);
    std::vector<void (EveryCollective::*)(Rank root)> makers = {
        &EveryCollective::make_barrier,        &EveryCollective::make_small_allreduce,
        &EveryCollective::make_allreduce,      &EveryCollective::make_broadcast,
        &EveryCollective::make_part_broadcast, &EveryCollective::make_reduce,
        &EveryCollective::make_part_reduce,    &EveryCollective::make_scan,
        &EveryCollective::make_exscan,         &EveryCollective::make_allgather,
        &EveryCollective::make_allgatherv,     &EveryCollective::make_alltoall,
        &EveryCollective::make_alltoallv,      &EveryCollective::make_gather,
        &EveryCollective::make_gatherv,        &EveryCollective::make_scatter,
        &EveryCollective::make_scatterv,       &EveryCollective::make_reduce_scatter};
    if (wanted.with_ssp) makers.push_back(&EveryCollective::make_ssp);
    if (wanted.with_segments) makers.push_back(&EveryCollective::make_zero_copy_allreduce);
    if (wanted.with_shared_ring) makers.push_back(&EveryCollective::make_shared_ring);
    for (std::size_t i = makers.size(); i > 1; --i) std::swap(makers[i - 1], makers[random() % i]);
    makers.resize(std::min(makers.size(), wanted.count));
    for (const auto make : makers)
      (this->*make)(Rank{static_cast<std::uint32_t>(random() % ranks_)});
  }

  std::size_t size() const { return all_.size(); }
  Operation& operator[](std::size_t which) { return *all_[which]->operation; }
  const char* name(std::size_t which) const { return all_[which]->name; }
  /// Starts its next call, with new input and without an old result.
  Status start(std::size_t which) {
    One& one = *all_[which];
    ++one.call;
    one.prepare();
    return one.operation->start();
  }
  /// Whether the result of the last call is right.
  bool is_right(std::size_t which) const { return all_[which]->is_right(); }

 private:
  struct One {
    const char* name;
    std::uint64_t call = 0;
    std::vector<std::uint64_t> own_source, own_target;
    std::vector<Segment> segments;
    std::span<std::uint64_t> source, target;
    std::unique_ptr<Operation> operation;  // goes before the buffers
    std::function<void()> prepare;
    std::function<bool()> is_right;
  };

  static std::uint64_t value(std::uint64_t call, std::uint64_t rank, std::uint64_t i) {
    return call * 1'000'003 + rank * 101 + i;
  }
  /// The sum over `count` ranks from `first` on, modulo the number of ranks.
  std::uint64_t sum_of(std::uint64_t call, std::uint32_t first, std::uint32_t count,
                       std::uint64_t i) const {
    std::uint64_t sum_of_all = 0;
    for (std::uint32_t rank = 0; rank < count; ++rank)
      sum_of_all += value(call, (first + rank) % ranks_, i);
    return sum_of_all;
  }
  Reduction addition() const { return built_in_reduction(BuiltIn::sum, ElementType::uint64); }
  /// As many elements as rank `rank` has where blocks differ.
  std::size_t uneven(std::uint32_t rank) const { return rank % 3 * (block_ / 2) + rank + 1; }
  std::size_t uneven_before(std::uint32_t rank) const {
    std::size_t before = 0;
    for (std::uint32_t i = 0; i < rank; ++i) before += uneven(i);
    return before;
  }
  BlockLayout uneven_layout() const {
    BlockLayout layout;
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) layout.bytes.push_back(8 * uneven(rank));
    return layout;
  }

  One& add(const char* name, std::size_t source_count, std::size_t target_count) {
    One& one = *all_.emplace_back(std::make_unique<One>());
    one.name = name;
    one.own_source.resize(source_count);
    one.own_target.resize(target_count);
    one.source = one.own_source;
    one.target = one.own_target;
    one.prepare = [this, &one] {
      for (std::size_t i = 0; i < one.source.size(); ++i) one.source[i] = value(one.call, self_, i);
      std::fill(one.target.begin(), one.target.end(), 0);
    };
    one.is_right = [] { return true; };
    return one;
  }
  static void set(One& one, Operation&& operation) {
    one.operation = std::make_unique<Operation>(std::move(operation));
  }
  /// Every element of the target has to be `expected(i)`.
  template <class Expected>
  static void expect(One& one, Expected expected) {
    one.is_right = [&one, expected] {
      for (std::size_t i = 0; i < one.target.size(); ++i)
        if (one.target[i] != expected(i)) return false;
      return true;
    };
  }

  void make_barrier(Rank) {
    One& one = add("barrier", 0, 0);
    set(one, barrier(communicator_));
  }
  void add_allreduce(One& one, Algorithm algorithm) {
    set(one, allreduce(communicator_, {.source = one.source.data(),
                                       .target = one.target.data(),
                                       .element_count = one.target.size(),
                                       .reduction = addition(),
                                       .algorithm = algorithm}));
    expect(one, [this, &one](std::size_t i) { return sum_of(one.call, 0, ranks_, i); });
  }
  void make_small_allreduce(Rank) {
    add_allreduce(add("small allreduce", 1, 1), Algorithm::automatic);
  }
  void make_allreduce(Rank) {
    add_allreduce(add("allreduce", block_ * ranks_, block_ * ranks_), Algorithm::automatic);
  }
  void make_shared_ring(Rank) {
    add_allreduce(add("shared ring", block_ * ranks_, block_ * ranks_), Algorithm::shared_ring);
  }
  void make_zero_copy_allreduce(Rank) {
    One& one = add("zero-copy allreduce", 0, 0);
    constexpr std::size_t bytes = 128u << 10;
    for (int i = 0; i < 2; ++i) one.segments.push_back(communicator_.allocate(bytes));
    one.source = one.segments[0].as<std::uint64_t>();
    one.target = one.segments[1].as<std::uint64_t>();
    add_allreduce(one, Algorithm::automatic);
  }
  void make_ssp(Rank) {
    constexpr std::uint32_t slack = 2;
    One& one = add("allreduce_ssp", block_, block_);
    set(one, allreduce_ssp(communicator_, {.source = one.source.data(),
                                           .target = one.target.data(),
                                           .element_count = block_,
                                           .reduction = addition(),
                                           .slack = slack}));
    one.is_right = [this, &one] {
      const std::uint64_t oldest = one.call > slack ? one.call - slack : 1;
      for (std::size_t i = 0; i < one.target.size(); ++i)
        if (one.target[i] < sum_of(oldest, 0, ranks_, i) ||
            one.target[i] > sum_of(one.call, 0, ranks_, i))
          return false;
      return true;
    };
  }

  void add_broadcast(One& one, Rank root, double fraction, std::size_t arrives) {
    set(one, broadcast(communicator_, {.buffer = one.target.data(),
                                       .bytes = one.target.size_bytes(),
                                       .root = root,
                                       .data_fraction = fraction,
                                       .element_bytes = 8}));
    const bool is_root = communicator_.rank() == root;
    one.prepare = [&one, is_root, root] {
      for (std::size_t i = 0; i < one.target.size(); ++i)
        one.target[i] = is_root ? value(one.call, index_of(root), i) : 0;
    };
    expect(one, [&one, is_root, root, arrives](std::size_t i) {
      return is_root || i < arrives ? value(one.call, index_of(root), i) : 0;
    });
  }
  void make_broadcast(Rank root) {
    add_broadcast(add("broadcast", 0, block_ * ranks_), root, 1, block_ * ranks_);
  }
  void make_part_broadcast(Rank root) {
    add_broadcast(add("broadcast of a part", 0, block_), root, 0.5, (block_ + 1) / 2);
  }
  void add_reduce(One& one, Rank root, double fraction, std::size_t arrives,
                  std::uint32_t contributors) {
    set(one, reduce(communicator_, {.source = one.source.data(),
                                    .target = one.target.data(),
                                    .element_count = one.source.size(),
                                    .reduction = addition(),
                                    .root = root,
                                    .data_fraction = fraction,
                                    .rank_fraction = fraction}));
    expect(one, [this, &one, root, arrives, contributors](std::size_t i) {
      return i < arrives ? sum_of(one.call, index_of(root), contributors, i) : 0;
    });
  }
  /// The others need no target.
  std::size_t on_root(Rank root, std::size_t count) const {
    return self_ == index_of(root) ? count : 0;
  }
  void make_reduce(Rank root) {
    add_reduce(add("reduce", block_, on_root(root, block_)), root, 1, block_, ranks_);
  }
  void make_part_reduce(Rank root) {
    add_reduce(add("reduce of a part", block_, on_root(root, block_)), root, 0.5, (block_ + 1) / 2,
               (ranks_ + 1) / 2);
  }

  ScanArguments scan_arguments(One& one) const {
    return {.source = one.source.data(),
            .target = one.target.data(),
            .element_count = block_,
            .reduction = addition()};
  }
  void make_scan(Rank) {
    One& one = add("scan", block_, block_);
    set(one, scan(communicator_, scan_arguments(one)));
    expect(one, [this, &one](std::size_t i) { return sum_of(one.call, 0, self_ + 1, i); });
  }
  void make_exscan(Rank) {
    One& one = add("exscan", block_, block_);
    set(one, exscan(communicator_, scan_arguments(one)));
    expect(one, [this, &one](std::size_t i) { return sum_of(one.call, 0, self_, i); });
  }

  void make_allgather(Rank) {
    One& one = add("allgather", block_, block_ * ranks_);
    set(one,
        allgather(communicator_,
                  {.source = one.source.data(), .target = one.target.data(), .bytes = 8 * block_}));
    expect(one, [this, &one](std::size_t i) { return value(one.call, i / block_, i % block_); });
  }
  void make_allgatherv(Rank) {
    One& one = add("allgatherv", uneven(self_), uneven_before(ranks_));
    set(one, allgatherv(communicator_, {.source = one.source.data(),
                                        .target = one.target.data(),
                                        .blocks = uneven_layout()}));
    expect_uneven(one);
  }
  /// The target has the uneven blocks of all ranks.
  void expect_uneven(One& one) {
    one.is_right = [this, &one] {
      std::size_t at = 0;
      for (std::uint32_t rank = 0; rank < ranks_ && !one.target.empty(); ++rank)
        for (std::size_t i = 0; i < uneven(rank); ++i)
          if (one.target[at++] != value(one.call, rank, i)) return false;
      return true;
    };
  }
  void make_alltoall(Rank) {
    One& one = add("alltoall", block_ * ranks_, block_ * ranks_);
    set(one,
        alltoall(communicator_,
                 {.source = one.source.data(), .target = one.target.data(), .bytes = 8 * block_}));
    expect(one, [this, &one](std::size_t i) {
      return value(one.call, i / block_, self_ * block_ + i % block_);
    });
  }
  /// Every rank sends blocks that are as long as their receiver is high.
  void make_alltoallv(Rank) {
    const std::size_t mine = uneven(self_);
    One& one = add("alltoallv", uneven_before(ranks_), mine * ranks_);
    BlockLayout target_blocks;
    target_blocks.bytes.assign(ranks_, 8 * mine);
    set(one, alltoallv(communicator_, {.source = one.source.data(),
                                       .source_blocks = uneven_layout(),
                                       .target = one.target.data(),
                                       .target_blocks = target_blocks}));
    expect(one, [this, &one, mine](std::size_t i) {
      return value(one.call, i / mine, uneven_before(self_) + i % mine);
    });
  }

  void make_gather(Rank root) {
    One& one = add("gather", block_, on_root(root, block_ * ranks_));
    set(one, gather(communicator_, {.source = one.source.data(),
                                    .target = one.target.data(),
                                    .bytes = 8 * block_,
                                    .root = root}));
    expect(one, [this, &one](std::size_t i) { return value(one.call, i / block_, i % block_); });
  }
  void make_gatherv(Rank root) {
    One& one = add("gatherv", uneven(self_), on_root(root, uneven_before(ranks_)));
    set(one, gatherv(communicator_, {.source = one.source.data(),
                                     .bytes = one.source.size_bytes(),
                                     .target = one.target.data(),
                                     .blocks = uneven_layout(),
                                     .root = root}));
    expect_uneven(one);
  }
  void make_scatter(Rank root) {
    One& one = add("scatter", on_root(root, block_ * ranks_), block_);
    set(one, scatter(communicator_, {.source = one.source.data(),
                                     .target = one.target.data(),
                                     .bytes = 8 * block_,
                                     .root = root}));
    expect(one, [this, &one, root](std::size_t i) {
      return value(one.call, index_of(root), self_ * block_ + i);
    });
  }
  void make_scatterv(Rank root) {
    One& one = add("scatterv", on_root(root, uneven_before(ranks_)), uneven(self_));
    set(one, scatterv(communicator_, {.source = one.source.data(),
                                      .blocks = uneven_layout(),
                                      .target = one.target.data(),
                                      .bytes = one.target.size_bytes(),
                                      .root = root}));
    expect(one, [this, &one, root](std::size_t i) {
      return value(one.call, index_of(root), uneven_before(self_) + i);
    });
  }
  void make_reduce_scatter(Rank) {
    One& one = add("reduce_scatter", uneven_before(ranks_), uneven(self_));
    ReduceScatterArguments arguments{.source = one.source.data(),
                                     .target = one.target.data(),
                                     .element_counts = {},
                                     .reduction = addition()};
    for (std::uint32_t rank = 0; rank < ranks_; ++rank)
      arguments.element_counts.push_back(uneven(rank));
    set(one, reduce_scatter(communicator_, arguments));
    expect(one, [this, &one](std::size_t i) {
      return sum_of(one.call, 0, ranks_, uneven_before(self_) + i);
    });
  }

  Communicator& communicator_;
  std::uint32_t self_, ranks_;
  std::size_t block_;
  std::vector<std::unique_ptr<One>> all_;
};

}  // namespace tutti::test
