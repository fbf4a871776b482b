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

Operation make_allreduce(Communicator& communicator, const Options& options, Buffers& buffers) {
  return allreduce(communicator,
                   {.source = buffers.source.data(),
                    .target = buffers.target.data(),
                    .element_count = buffers.source_bytes().size() / element_bytes(options.dtype),
                    .reduction = reduction_for(options.op, options.dtype),
                    .agreement = options.agreement,
                    .per_round = options.per_round,
                    .algorithm = options.algorithm,
                    .across = options.across});
}

Operation make_broadcast(Communicator& communicator, const Options& options, Buffers& buffers) {
  return broadcast(communicator, {.buffer = buffers.source.data(),
                                  .bytes = buffers.source_bytes().size(),
                                  .root = options.root});
}

Operation make_reduce(Communicator& communicator, const Options& options, Buffers& buffers) {
  return reduce(communicator,
                {.source = buffers.source.data(),
                 .target = buffers.target.data(),
                 .element_count = buffers.source_bytes().size() / element_bytes(options.dtype),
                 .reduction = reduction_for(options.op, options.dtype),
                 .root = options.root,
                 .agreement = options.agreement});
}

}  // namespace tutti::bench
