#include "microbench/tutti_side.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "microbench/reference.hpp"

namespace tutti::bench {

void TuttiSubject::throw_failure(const Operation& operation, Status status) const {
  if (status == Status::timed_out)
    throw RunFailed(
        fmt::format("no end after {} s: {}",
                    std::chrono::duration_cast<std::chrono::seconds>(call_timeout).count(),
                    operation.describe()));
  const char* text = communicator_.failure().text;
  throw RunFailed(text[0] != '\0' ? text : tutti::name_of(status));
}

Operation make_barrier(Communicator& communicator, const Options& options) {
  return barrier(communicator, {.per_round = options.per_round, .across = options.across});
}

std::vector<std::size_t> block_sizes(Collective collective, const Options& options,
                                     std::size_t bytes, std::uint32_t rank_count) {
  std::vector<std::size_t> sizes(rank_count, bytes);
  if (!has_distribution(collective) || rank_count == 1) return sizes;
  const std::size_t element = element_bytes(options.dtype);
  if (options.distribution == Distribution::decreasing)
    for (std::uint32_t rank = 0; rank < rank_count; ++rank)
      sizes[rank] = 2 * (bytes / element) * (rank_count - 1 - rank) / (rank_count - 1) * element;
  if (options.distribution == Distribution::single) {
    std::fill(sizes.begin(), sizes.end(), std::size_t{0});
    sizes.front() = bytes * rank_count;
  }
  return sizes;
}

BufferBytes buffer_bytes(Collective collective, const Options& options, std::size_t bytes,
                         Rank self, std::uint32_t rank_count) {
  const std::vector<std::size_t> sizes = block_sizes(collective, options, bytes, rank_count);
  const std::size_t whole = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  const std::size_t own = sizes[index_of(self)];
  return {has_blocks_in_source(collective) ? whole : own,
          has_blocks_in_target(collective) ? whole : own};
}

std::vector<std::size_t> reduce_scatter_counts(std::size_t element_count,
                                               std::uint32_t rank_count) {
  std::vector<std::size_t> counts;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank)
    counts.push_back(element_count / rank_count + (rank < element_count % rank_count ? 1 : 0));
  return counts;
}

Operation make_operation(Collective collective, Communicator& communicator, const Options& options,
                         std::size_t bytes, Buffers& buffers) {
  const void* const source = buffers.source.data();
  void* const target = buffers.target.data();
  const Rank root = options.root;
  const std::size_t count = bytes / element_bytes(options.dtype);
  const BlockLayout blocks{.bytes =
                               block_sizes(collective, options, bytes, communicator.rank_count())};
  const std::size_t own = blocks.bytes[index_of(communicator.rank())];
  // The only schedule that these can be asked for by name.
  const Algorithm of_blocks =
      options.algorithm == Algorithm::shared_ring ? options.algorithm : Algorithm::automatic;
  const auto prefix = [&] {
    return ScanArguments{.source = source,
                         .target = target,
                         .element_count = count,
                         .reduction = reduction_for(options.op, options.dtype)};
  };
  switch (collective) {
    case Collective::allreduce:
      return allreduce(communicator, {.source = source,
                                      .target = target,
                                      .element_count = count,
                                      .reduction = reduction_for(options.op, options.dtype),
                                      .agreement = options.agreement,
                                      .per_round = options.per_round,
                                      .algorithm = options.algorithm,
                                      .across = options.across});
    case Collective::broadcast:
      return broadcast(
          communicator,
          {.buffer = buffers.source.data(), .bytes = bytes, .root = root, .tree = options.tree});
    case Collective::reduce:
      return reduce(communicator, {.source = source,
                                   .target = target,
                                   .element_count = count,
                                   .reduction = reduction_for(options.op, options.dtype),
                                   .root = root,
                                   .agreement = options.agreement,
                                   .tree = options.tree});
    case Collective::reduce_scatter:
      return reduce_scatter(
          communicator, {.source = source,
                         .target = target,
                         .element_counts = reduce_scatter_counts(count, communicator.rank_count()),
                         .reduction = reduction_for(options.op, options.dtype),
                         .agreement = options.agreement,
                         .algorithm = of_blocks});
    case Collective::allgather:
      return allgather(
          communicator,
          {.source = source, .target = target, .bytes = bytes, .algorithm = of_blocks});
    case Collective::allgatherv:
      return allgatherv(
          communicator,
          {.source = source, .target = target, .blocks = blocks, .algorithm = of_blocks});
    case Collective::alltoall:
      return alltoall(communicator, {.source = source, .target = target, .bytes = bytes});
    case Collective::alltoallv:
      return alltoallv(
          communicator,
          {.source = source, .source_blocks = blocks, .target = target, .target_blocks = blocks});
    case Collective::gather:
      return gather(communicator,
                    {.source = source, .target = target, .bytes = bytes, .root = root});
    case Collective::gatherv:
      return gatherv(
          communicator,
          {.source = source, .bytes = own, .target = target, .blocks = blocks, .root = root});
    case Collective::scatterv:
      return scatterv(
          communicator,
          {.source = source, .blocks = blocks, .target = target, .bytes = own, .root = root});
    case Collective::scatter:
      return scatter(communicator,
                     {.source = source, .target = target, .bytes = bytes, .root = root});
    case Collective::scan:
      return scan(communicator, prefix());
    case Collective::exscan:
      return exscan(communicator, prefix());
    case Collective::barrier:
    case Collective::floor:
    case Collective::oneway:
    case Collective::memcpy:
    case Collective::wimm:
      break;
  }
  throw Error(ErrorCode::invalid_argument, fmt::format("{} has no payload", name_of(collective)));
}

}  // namespace tutti::bench
