#include "microbench/tutti_side.hpp"

#include <fmt/format.h>

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

BufferBytes buffer_bytes(Collective collective, std::size_t bytes, std::uint32_t rank_count) {
  return {has_blocks_in_source(collective) ? bytes * rank_count : bytes,
          has_blocks_in_target(collective) ? bytes * rank_count : bytes};
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
  const BlockLayout equal{.bytes = std::vector<std::size_t>(communicator.rank_count(), bytes)};
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
                         .reduction = reduction_for(options.op, options.dtype)});
    case Collective::allgather:
      return allgather(communicator, {.source = source, .target = target, .bytes = bytes});
    case Collective::allgatherv:
      return allgatherv(communicator, {.source = source, .target = target, .blocks = equal});
    case Collective::alltoall:
      return alltoall(communicator, {.source = source, .target = target, .bytes = bytes});
    case Collective::alltoallv:
      return alltoallv(
          communicator,
          {.source = source, .source_blocks = equal, .target = target, .target_blocks = equal});
    case Collective::gather:
      return gather(communicator,
                    {.source = source, .target = target, .bytes = bytes, .root = root});
    case Collective::gatherv:
      return gatherv(
          communicator,
          {.source = source, .bytes = bytes, .target = target, .blocks = equal, .root = root});
    case Collective::scatterv:
      return scatterv(
          communicator,
          {.source = source, .blocks = equal, .target = target, .bytes = bytes, .root = root});
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
