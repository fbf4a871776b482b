// Ranks of nodes that run Algorithm::shared_ring: their contexts, numbers, and what they see
// together.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>
#include <utility>
#include <vector>

#include "support/device.hpp"

namespace tutti::test {

using Shape = std::vector<std::uint32_t>;  // ranks of each node

inline Context context_of(const Exchange& exchange, const Shape& shape,
                          std::size_t arena_bytes = 4u << 20,
                          std::optional<SharedNotifications> shared_notifications = {},
                          std::size_t chunk_bytes = 0) {
  ContextOptions options = on_test_device(exchange);
  options.arena_bytes = arena_bytes;
  options.ranks_per_node = shape;
  options.shared_notifications = shared_notifications;
  if (chunk_bytes > 0) options.chunk_bytes = chunk_bytes;
  return Context(options);
}

inline std::uint32_t ranks_of(const Shape& shape) {
  std::uint32_t ranks = 0;
  for (const std::uint32_t node : shape) ranks += node;
  return ranks;
}

inline std::string text_of(const Shape& shape) {
  std::string text = "nodes of";
  for (const std::uint32_t node : shape) text += " " + std::to_string(node);
  return text;
}

template <class T>
AllreduceArguments arguments_of(const std::vector<T>& source, std::vector<T>& target,
                                BuiltIn which = BuiltIn::sum) {
  return {.source = source.data(),
          .target = target.data(),
          .element_count = source.size(),
          .reduction = built_in_reduction(which, element_type_of<T>()),
          .algorithm = Algorithm::shared_ring};
}

inline bool run_once(Operation& operation) {
  return operation.start() == Status::ok && operation.wait(std::chrono::seconds(30)) == Status::ok;
}

/// Small numbers, of which sums are exact.  They repeat themselves, and so do results.
constexpr std::size_t period = 50;
template <class T>
T value_of(std::uint32_t rank, std::uint64_t call, std::size_t i) {
  return static_cast<T>((rank * 7 + call * 3 + i) % period);
}

template <class T>
bool is_right(const std::vector<T>& target, std::uint32_t ranks, std::uint64_t call,
              BuiltIn which) {
  T expected[period];
  for (std::size_t i = 0; i < period; ++i) {
    expected[i] = value_of<T>(0, call, i);
    for (std::uint32_t rank = 1; rank < ranks; ++rank) {
      const T other = value_of<T>(rank, call, i);
      expected[i] = which == BuiltIn::sum   ? static_cast<T>(expected[i] + other)
                    : which == BuiltIn::max ? std::max(expected[i], other)
                                            : std::min(expected[i], other);
    }
  }
  const T* const got = target.data();
  const std::size_t count = target.size();
  for (std::size_t i = 0; i < count; ++i)
    if (got[i] != expected[i % period]) return false;
  return true;
}

/// A collective along the shared ring, on one rank: its buffers and what should be in them.  Those
/// of blocks have as many elements for each rank as `counts` says.
class RingJob {
 public:
  enum class Kind { allreduce, allgather, allgatherv, reduce_scatter };

  RingJob(Kind kind, const Communicator& communicator, std::vector<std::size_t> counts,
          bool in_place = false)
      : kind_(kind),
        self_(index_of(communicator.rank())),
        ranks_(communicator.rank_count()),
        counts_(std::move(counts)),
        in_place_(in_place) {
    counts_.resize(ranks_, counts_.back());
    for (const std::size_t count : counts_) {
      begins_.push_back(all_);
      all_ += count;
    }
    source_.resize(gathers() ? counts_[self_] : all_);
    target_.resize(kind == Kind::reduce_scatter ? counts_[self_] : all_);
    // The blocks of an allgatherv lie in another order, and apart.
    if (kind == Kind::allgatherv) {
      std::size_t place = 0;
      for (std::size_t rank = ranks_; rank-- > 0; place += counts_[rank] + 1) begins_[rank] = place;
      target_.resize(place);
    }
  }

  Operation make(Communicator& communicator, Algorithm algorithm = Algorithm::shared_ring) {
    const Reduction sum = built_in_reduction(BuiltIn::sum, ElementType::float64);
    if (kind_ == Kind::allreduce)
      return tutti::allreduce(communicator, {.source = read(),
                                             .target = target_.data(),
                                             .element_count = all_,
                                             .reduction = sum,
                                             .algorithm = algorithm});
    if (kind_ == Kind::allgather)
      return tutti::allgather(communicator, {.source = read(),
                                             .target = target_.data(),
                                             .bytes = counts_[0] * sizeof(double),
                                             .algorithm = algorithm});
    if (kind_ == Kind::reduce_scatter)
      return tutti::reduce_scatter(communicator, {.source = read(),
                                                  .target = written(),
                                                  .element_counts = counts_,
                                                  .reduction = sum,
                                                  .algorithm = algorithm});
    BlockLayout blocks;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      blocks.bytes.push_back(counts_[rank] * sizeof(double));
      blocks.offsets.push_back(begins_[rank] * sizeof(double));
    }
    return tutti::allgatherv(
        communicator,
        {.source = read(), .target = target_.data(), .blocks = blocks, .algorithm = algorithm});
  }

  void fill(std::uint64_t call) {
    std::fill(target_.begin(), target_.end(), -1.0);
    double* const into = read();
    for (std::size_t i = 0; i < source_.size(); ++i) into[i] = value_of<double>(self_, call, i);
  }

  bool is_right(std::uint64_t call) const {
    if (kind_ == Kind::allreduce) return test::is_right(target_, ranks_, call, BuiltIn::sum);
    if (gathers()) {
      for (std::uint32_t rank = 0; rank < ranks_; ++rank)
        for (std::size_t i = 0; i < counts_[rank]; ++i)
          if (target_[begins_[rank] + i] != value_of<double>(rank, call, i)) return false;
      return true;
    }
    const double* const got = in_place_ ? source_.data() + begins_[self_] : target_.data();
    for (std::size_t i = 0; i < counts_[self_]; ++i) {
      double expected = 0;
      for (std::uint32_t rank = 0; rank < ranks_; ++rank)
        expected += value_of<double>(rank, call, begins_[self_] + i);
      if (got[i] != expected) return false;
    }
    return true;
  }

 private:
  bool gathers() const { return kind_ == Kind::allgather || kind_ == Kind::allgatherv; }
  /// In place, the block of this rank, or the whole payload of an allreduce, is in the other
  /// buffer.
  double* read() {
    if (!in_place_ || kind_ == Kind::reduce_scatter) return source_.data();
    return target_.data() + (gathers() ? begins_[self_] : 0);
  }
  double* written() { return in_place_ ? source_.data() + begins_[self_] : target_.data(); }

  Kind kind_;
  std::uint32_t self_, ranks_;
  std::vector<std::size_t> counts_, begins_ = {};  // by rank, in elements
  std::size_t all_ = 0;
  bool in_place_;
  std::vector<double> source_ = {}, target_ = {};
};

/// What forked ranks see together.
struct Board {
  static constexpr std::size_t repetitions_max = 40;
  std::atomic<std::uint32_t> arrived{0};
  std::atomic<std::int32_t> process[16];
  std::atomic<std::uint32_t> done{0};
  std::atomic<std::uint32_t> still_stopped{0};
  std::atomic<std::int64_t> with_stop_ns[repetitions_max], without_ns[repetitions_max];

  void barrier(std::uint32_t ranks, std::uint32_t& passed) {
    ++passed;
    ++arrived;
    while (arrived.load() < passed * ranks)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
};

inline bool is_stopped(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');
  return name_end != std::string::npos && text.size() > name_end + 2 && text[name_end + 2] == 'T';
}

inline bool tells(const std::string& text, std::initializer_list<const char*> words) {
  const bool all = std::all_of(words.begin(), words.end(), [&](const char* word) {
    return text.find(word) != std::string::npos;
  });
  if (!all) std::fprintf(stderr, "does not tell: %s\n", text.c_str());
  return all;
}

}  // namespace tutti::test
