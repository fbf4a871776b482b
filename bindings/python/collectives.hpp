// Collectives: from Python's arguments to those of C++, and to an operation that keeps them.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "arrays.hpp"
#include "errors.hpp"
#include "objects.hpp"

namespace tutti::python {

/// A collective keeps these of its arguments.
struct Kept {
  std::optional<Buffer> source, target;
  bool is_in_place = false, is_written = true;
  py::object operator_;
};

/// Makes an operation of the arguments that `read` returns.  What `read` refuses is refused on
/// every rank, so that none waits for this one.
template <class Arguments, class Read>
Operations make(const Communicators& self, const char* collective, Read read,
                Operation (*factory)(Communicator&, const Arguments&)) {
  const Use use(self->context);
  Kept kept;
  Arguments arguments;
  std::optional<std::string> wrong;
  try {
    arguments = read(kept);
  } catch (const std::exception& error) {
    wrong = error.what();
  }
  auto object = std::shared_ptr<OperationObject>(new OperationObject, retire<OperationObject>);
  object->context = self->context;
  object->communicator = self;
  object->value.emplace(set_up(*self->exchange, [&] {
    if (wrong) detail::refuse(*self->value, collective, wrong->c_str());
    return factory(*self->value, arguments);
  }));
  object->source = object->made_source = std::move(kept.source);
  object->target = object->made_target = std::move(kept.target);
  object->is_in_place = kept.is_in_place;
  object->is_written = kept.is_written;
  object->operator_ = std::move(kept.operator_);
  const std::string algorithm = object->value->algorithm();
  object->keeps_buffers = algorithm.find("_zero_copy") != std::string::npos ||
                          algorithm.find("_shared_target") != std::string::npos;
  return object;
}

inline void* data_of(const std::optional<Buffer>& buffer) {
  return buffer ? buffer->data : nullptr;
}

/// The buffers of a reduction; without `has_target` this rank needs none.
inline std::size_t read_buffers(Kept& kept, const py::object& source, const py::object& target,
                                bool has_target = true) {
  kept.source = buffer_of("source", source, false);
  if (has_target || !target.is_none()) {
    kept.target = buffer_of("target", target, true);
    require_one_type(*kept.source, *kept.target);
    require_count("target", *kept.target, kept.source->count, "as many as source");
  }
  return kept.source->count;
}

inline Reduction read_reduction(Kept& kept, const py::object& given) {
  kept.operator_ = given;
  return reduction_of(given, "source", *kept.source);
}

inline Rank rank_of(std::int64_t root, const CommunicatorObject& communicator) {
  const std::uint32_t rank_count = communicator.value->rank_count();
  if (root < 0 || root >= rank_count)
    throw Refused("root " + std::to_string(root) + ": expected 0 .. " +
                  std::to_string(rank_count - 1));
  return Rank{static_cast<std::uint32_t>(root)};
}

inline Operations make_barrier(const Communicators& self, const py::object& per_round,
                               const std::string& algorithm, const std::string& across) {
  return make<BarrierArguments>(
      self, "barrier",
      [&](Kept&) -> BarrierArguments {
        return {.per_round = counts_of<std::uint32_t>("per_round", per_round),
                .algorithm = named<Algorithm::canonical_halving>("algorithm", algorithm),
                .across = named<Across::lanes>("across", across)};
      },
      barrier);
}

inline Operations make_allreduce(const Communicators& self, const py::object& source,
                                 const py::object& target, const py::object& op,
                                 const std::string& agreement, const py::object& per_round,
                                 const std::string& algorithm, const std::string& across) {
  return make<AllreduceArguments>(
      self, "allreduce",
      [&](Kept& kept) -> AllreduceArguments {
        const std::size_t count = read_buffers(kept, source, target);
        return {.source = kept.source->data,
                .target = kept.target->data,
                .element_count = count,
                .reduction = read_reduction(kept, op),
                .agreement = named<Agreement::relaxed>("agreement", agreement),
                .per_round = counts_of<std::uint32_t>("per_round", per_round),
                .algorithm = named<Algorithm::canonical_halving>("algorithm", algorithm),
                .across = named<Across::lanes>("across", across)};
      },
      allreduce);
}

inline Operations make_allreduce_ssp(const Communicators& self, const py::object& source,
                                     const py::object& target, const py::object& op,
                                     std::int64_t slack) {
  return make<AllreduceSspArguments>(
      self, "allreduce_ssp",
      [&](Kept& kept) -> AllreduceSspArguments {
        if (slack < 0 || slack > UINT32_MAX)
          throw Refused("slack " + std::to_string(slack) + ": expected calls, from 0 on");
        const std::size_t count = read_buffers(kept, source, target);
        return {.source = kept.source->data,
                .target = kept.target->data,
                .element_count = count,
                .reduction = read_reduction(kept, op),
                .slack = static_cast<std::uint32_t>(slack)};
      },
      allreduce_ssp);
}

inline Operations make_broadcast(const Communicators& self, const py::object& buffer,
                                 std::int64_t root, double data_fraction, const std::string& tree) {
  return make<BroadcastArguments>(
      self, "broadcast",
      [&](Kept& kept) -> BroadcastArguments {
        const Rank from = rank_of(root, *self);
        kept.is_in_place = true;
        kept.is_written = self->value->rank() != from;
        kept.target = buffer_of("buffer", buffer, kept.is_written);
        return {.buffer = kept.target->data,
                .bytes = kept.target->bytes(),
                .root = from,
                .data_fraction = data_fraction,
                .element_bytes = std::max<std::size_t>(kept.target->element_bytes, 1),
                .tree = named<Tree::fibonacci>("tree", tree)};
      },
      broadcast);
}

inline Operations make_reduce(const Communicators& self, const py::object& source,
                              const py::object& target, const py::object& op, std::int64_t root,
                              const std::string& agreement, double data_fraction,
                              double rank_fraction, const std::string& tree) {
  return make<ReduceArguments>(
      self, "reduce",
      [&](Kept& kept) -> ReduceArguments {
        const Rank to = rank_of(root, *self);
        const std::size_t count = read_buffers(kept, source, target, self->value->rank() == to);
        return {.source = kept.source->data,
                .target = data_of(kept.target),
                .element_count = count,
                .reduction = read_reduction(kept, op),
                .root = to,
                .agreement = named<Agreement::relaxed>("agreement", agreement),
                .data_fraction = data_fraction,
                .rank_fraction = rank_fraction,
                .tree = named<Tree::fibonacci>("tree", tree)};
      },
      reduce);
}

inline Operations make_scan(const Communicators& self, const py::object& source,
                            const py::object& target, const py::object& op, bool is_exclusive) {
  using Factory = Operation (*)(Communicator&, const ScanArguments&);
  return make<ScanArguments>(
      self, is_exclusive ? "exscan" : "scan",
      [&](Kept& kept) -> ScanArguments {
        const bool needs_target = !is_exclusive || self->value->rank() != Rank{0};
        const std::size_t count = read_buffers(kept, source, target, needs_target);
        return {.source = kept.source->data,
                .target = data_of(kept.target),
                .element_count = count,
                .reduction = read_reduction(kept, op)};
      },
      is_exclusive ? static_cast<Factory>(exscan) : static_cast<Factory>(scan));
}

inline Operations make_allgather(const Communicators& self, const py::object& source,
                                 const py::object& target, const std::string& algorithm) {
  return make<AllgatherArguments>(
      self, "allgather",
      [&](Kept& kept) -> AllgatherArguments {
        kept.source = buffer_of("source", source, false);
        kept.target = buffer_of("target", target, true);
        require_one_type(*kept.source, *kept.target);
        require_count("target", *kept.target, kept.source->count * self->value->rank_count(),
                      "those of source for each rank");
        return {.source = kept.source->data,
                .target = kept.target->data,
                .bytes = kept.source->bytes(),
                .algorithm = named<Algorithm::canonical_halving>("algorithm", algorithm)};
      },
      allgather);
}

inline Operations make_allgatherv(const Communicators& self, const py::object& source,
                                  const py::object& target, const py::object& counts,
                                  const py::object& offsets, const std::string& algorithm) {
  return make<AllgathervArguments>(
      self, "allgatherv",
      [&](Kept& kept) -> AllgathervArguments {
        kept.source = buffer_of("source", source, false);
        kept.target = buffer_of("target", target, true);
        require_one_type(*kept.source, *kept.target);
        BlockLayout blocks =
            layout_of("target", *kept.target, "counts", counts, offsets, self->value->rank_count());
        const std::size_t own = blocks.bytes[index_of(self->value->rank())];
        require_count("source", *kept.source,
                      own / std::max<std::size_t>(kept.source->element_bytes, 1),
                      "this rank's entry of counts");
        return {.source = kept.source->data,
                .target = kept.target->data,
                .blocks = std::move(blocks),
                .algorithm = named<Algorithm::canonical_halving>("algorithm", algorithm)};
      },
      allgatherv);
}

inline Operations make_alltoall(const Communicators& self, const py::object& source,
                                const py::object& target) {
  return make<AlltoallArguments>(
      self, "alltoall",
      [&](Kept& kept) -> AlltoallArguments {
        read_buffers(kept, source, target);
        const std::size_t ranks = self->value->rank_count();
        if (kept.source->count % ranks != 0)
          throw Refused("source has " + std::to_string(kept.source->count) +
                        " elements: expected as many for each of the " + std::to_string(ranks) +
                        " ranks");
        return {.source = kept.source->data,
                .target = kept.target->data,
                .bytes = kept.source->bytes() / ranks};
      },
      alltoall);
}

inline Operations make_alltoallv(const Communicators& self, const py::object& source,
                                 const py::object& source_counts, const py::object& target,
                                 const py::object& target_counts, const py::object& source_offsets,
                                 const py::object& target_offsets) {
  return make<AlltoallvArguments>(
      self, "alltoallv",
      [&](Kept& kept) -> AlltoallvArguments {
        kept.source = buffer_of("source", source, false);
        kept.target = buffer_of("target", target, true);
        require_one_type(*kept.source, *kept.target);
        const std::size_t ranks = self->value->rank_count();
        return {.source = kept.source->data,
                .source_blocks = layout_of("source", *kept.source, "source_counts", source_counts,
                                           source_offsets, ranks),
                .target = kept.target->data,
                .target_blocks = layout_of("target", *kept.target, "target_counts", target_counts,
                                           target_offsets, ranks)};
      },
      alltoallv);
}

inline Operations make_gather(const Communicators& self, const py::object& source,
                              const py::object& target, std::int64_t root) {
  return make<GatherArguments>(
      self, "gather",
      [&](Kept& kept) -> GatherArguments {
        const Rank to = rank_of(root, *self);
        kept.source = buffer_of("source", source, false);
        if (self->value->rank() == to) {
          kept.target = buffer_of("target", target, true);
          require_one_type(*kept.source, *kept.target);
          require_count("target", *kept.target, kept.source->count * self->value->rank_count(),
                        "those of source for each rank");
        }
        return {.source = kept.source->data,
                .target = data_of(kept.target),
                .bytes = kept.source->bytes(),
                .root = to};
      },
      gather);
}

inline Operations make_scatter(const Communicators& self, const py::object& source,
                               const py::object& target, std::int64_t root) {
  return make<ScatterArguments>(
      self, "scatter",
      [&](Kept& kept) -> ScatterArguments {
        const Rank from = rank_of(root, *self);
        kept.target = buffer_of("target", target, true);
        if (self->value->rank() == from) {
          kept.source = buffer_of("source", source, false);
          require_one_type(*kept.source, *kept.target);
          require_count("source", *kept.source, kept.target->count * self->value->rank_count(),
                        "those of target for each rank");
        }
        return {.source = data_of(kept.source),
                .target = kept.target->data,
                .bytes = kept.target->bytes(),
                .root = from};
      },
      scatter);
}

inline Operations make_gatherv(const Communicators& self, const py::object& source,
                               const py::object& target, const py::object& counts,
                               const py::object& offsets, std::int64_t root) {
  return make<GathervArguments>(
      self, "gatherv",
      [&](Kept& kept) -> GathervArguments {
        const Rank to = rank_of(root, *self);
        kept.source = buffer_of("source", source, false);
        BlockLayout blocks;
        if (self->value->rank() == to) {
          kept.target = buffer_of("target", target, true);
          require_one_type(*kept.source, *kept.target);
          blocks = layout_of("target", *kept.target, "counts", counts, offsets,
                             self->value->rank_count());
        }
        return {.source = kept.source->data,
                .bytes = kept.source->bytes(),
                .target = data_of(kept.target),
                .blocks = std::move(blocks),
                .root = to};
      },
      gatherv);
}

inline Operations make_scatterv(const Communicators& self, const py::object& source,
                                const py::object& target, const py::object& counts,
                                const py::object& offsets, std::int64_t root) {
  return make<ScattervArguments>(
      self, "scatterv",
      [&](Kept& kept) -> ScattervArguments {
        const Rank from = rank_of(root, *self);
        kept.target = buffer_of("target", target, true);
        BlockLayout blocks;
        if (self->value->rank() == from) {
          kept.source = buffer_of("source", source, false);
          require_one_type(*kept.source, *kept.target);
          blocks = layout_of("source", *kept.source, "counts", counts, offsets,
                             self->value->rank_count());
        }
        return {.source = data_of(kept.source),
                .blocks = std::move(blocks),
                .target = kept.target->data,
                .bytes = kept.target->bytes(),
                .root = from};
      },
      scatterv);
}

inline Operations make_reduce_scatter(const Communicators& self, const py::object& source,
                                      const py::object& target, const py::object& op,
                                      const py::object& counts, const std::string& agreement,
                                      const std::string& algorithm) {
  return make<ReduceScatterArguments>(
      self, "reduce_scatter",
      [&](Kept& kept) -> ReduceScatterArguments {
        kept.source = buffer_of("source", source, false);
        kept.target = buffer_of("target", target, true);
        require_one_type(*kept.source, *kept.target);
        const std::size_t ranks = self->value->rank_count();
        auto each = counts_of<std::size_t>("counts", counts);
        if (counts.is_none()) each.assign(ranks, kept.target->count);
        if (each.size() != ranks)
          throw Refused("counts has " + std::to_string(each.size()) +
                        " entries: expected one for each of the " + std::to_string(ranks) +
                        " ranks, or None");
        std::size_t all = 0;
        for (const std::size_t one : each) all += std::min(one, SIZE_MAX / 2 - all);
        require_count("source", *kept.source, all, "the sum of counts");
        require_count("target", *kept.target, each[index_of(self->value->rank())],
                      "this rank's entry of counts");
        return {.source = kept.source->data,
                .target = kept.target->data,
                .element_counts = std::move(each),
                .reduction = read_reduction(kept, op),
                .agreement = named<Agreement::relaxed>("agreement", agreement),
                .algorithm = named<Algorithm::canonical_halving>("algorithm", algorithm)};
      },
      reduce_scatter);
}

}  // namespace tutti::python
