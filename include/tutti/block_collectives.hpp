// Collectives of blocks, one for each rank: raw factories, and thin typed templates over them.
// Every factory is collective over the communicator, may block, and throws Error.
//
// Sizes.  Blocks of 0 bytes are allowed.  In the forms with v, blocks may be of any sizes; the
// ranks compare them when the operation is made (Error{mismatch}), not in its calls.  Large blocks
// are sent in chunks.
//
// In place.  In allgather, gather at the root, scatter at the root, and reduce_scatter, this rank's
// block of the source may be its block of the target.  In alltoall, all blocks of the source may be
// those of the target, on all ranks or on none, also in later calls with other buffers.  Nothing
// else may overlap: Error{invalid_argument}.
//
// Ways.  Each block is sent once and directly, with these exceptions:
//  * A block of an allgather(v) enters each node once.  Among more than 9 nodes of one size blocks
//    are passed on (TUTTI_PER_ROUND says how), so that a rank has O(log P) connections.
//  * Small blocks of gather(v), scatter(v) and alltoall travel in one message with the blocks of
//    the other ranks of their node, where that costs less, and never above 1 KiB: among 3 nodes of
//    3 ranks up to some 256 bytes by the prices of FDR; in an alltoall also with the blocks for the
//    other ranks of the target's node.
//  * Where the root of a gather(v) or scatter(v) would be connected with more than 31 ranks of
//    other nodes, blocks are passed on along a binomial tree over the nodes: the root is then
//    connected with log2 of their number.
//  * Where some blocks of an allgatherv are far longer than others, all blocks travel piece by
//    piece along rings of the nodes (if these have one size, and TUTTI_PER_ROUND is not set).  This
//    takes hardly longer than the same bytes in equal blocks.
//  * With Algorithm::shared_ring, the blocks of an allgather(v) or reduce_scatter go from node to
//    node along the ring of that name, as in an allreduce (collectives.hpp): any rank of a node
//    does the work of its node, and one that is stopped after start() holds up no other, with the
//    exceptions and on the devices named there.  The first
//    rank of one of N nodes holds the laps in flight 2 times in its arena (reduce_scatter: 2 + 2/N
//    times), and each rank its contributions as there.  A reduce_scatter takes it unasked by the
//    rules of allreduce.
//  * Where all ranks share a node, and nothing is combined (reduce_scatter does), blocks are not
//    sent but read by their receivers, if the longest block has at least twice
//    ContextOptions::single_copy_bytes and the kernel permits it.
//  * Where the targets of an allgather(v) are one memory on all ranks of each node (Scope::node;
//    segment.hpp, "Shared target"), each block is written there once and copied for no rank.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tutti/collectives.hpp"
#include "tutti/communicator.hpp"
#include "tutti/export.hpp"
#include "tutti/operation.hpp"
#include "tutti/reduction.hpp"

namespace tutti {

/// Where the blocks of all ranks lie in a buffer.
struct BlockLayout {
  std::vector<std::size_t> bytes = {};    // of each rank's block, by rank
  std::vector<std::size_t> offsets = {};  // in bytes from the begin of the buffer; if empty, each
                                          // block begins where the one before ends
};

struct AllgatherArguments {
  const void* source = nullptr;  // `bytes`
  void* target = nullptr;        // `bytes` times the number of ranks; undefined until ok
  std::size_t bytes = 0;         // of one block; the same on every rank
  Algorithm algorithm = Algorithm::automatic;  // or shared_ring; the same on every rank
};

/// Block q of every target = the source of rank q.
TUTTI_EXPORT Operation allgather(Communicator& communicator, const AllgatherArguments& arguments);

struct AllgathervArguments {
  const void* source = nullptr;  // as many bytes as this rank's block has
  void* target = nullptr;
  BlockLayout blocks = {};  // of the target; sizes are the same on every rank, offsets need not be
  Algorithm algorithm = Algorithm::automatic;  // or shared_ring; the same on every rank
};

/// Block q of every target = the source of rank q.
TUTTI_EXPORT Operation allgatherv(Communicator& communicator, const AllgathervArguments& arguments);

struct AlltoallArguments {
  const void* source = nullptr;  // `bytes` times the number of ranks
  void* target = nullptr;        // `bytes` times the number of ranks; undefined until ok
  std::size_t bytes = 0;         // of one block; the same on every rank
};

/// Block q of the target of rank p = block p of the source of rank q.
TUTTI_EXPORT Operation alltoall(Communicator& communicator, const AlltoallArguments& arguments);

struct AlltoallvArguments {
  const void* source = nullptr;
  BlockLayout source_blocks = {};  // block p is for rank p
  void* target = nullptr;
  BlockLayout target_blocks = {};  // block q comes from rank q, and is as long as rank q says
};

/// Block q of the target of rank p = block p of the source of rank q.
TUTTI_EXPORT Operation alltoallv(Communicator& communicator, const AlltoallvArguments& arguments);

struct GatherArguments {
  const void* source = nullptr;  // `bytes`
  void* target = nullptr;        // of the root: `bytes` times the number of ranks
  std::size_t bytes = 0;         // of one block; the same on every rank
  Rank root{0};                  // the same on every rank
};

/// Block q of the root's target = the source of rank q.  Where blocks are sent, the operation is
/// one-way: the others can be two calls ahead of the root, four where the blocks of a node go
/// together, 2 floor(log2 N) + 2 where they pass along a tree over N nodes.
TUTTI_EXPORT Operation gather(Communicator& communicator, const GatherArguments& arguments);

struct GathervArguments {
  const void* source = nullptr;
  std::size_t bytes = 0;    // of this rank's block
  void* target = nullptr;   // of the root
  BlockLayout blocks = {};  // of the root's target; the others need none
  Rank root{0};             // the same on every rank
};

/// Block q of the root's target = the source of rank q.
TUTTI_EXPORT Operation gatherv(Communicator& communicator, const GathervArguments& arguments);

struct ScatterArguments {
  const void* source = nullptr;  // of the root: `bytes` times the number of ranks
  void* target = nullptr;        // `bytes`; undefined until ok
  std::size_t bytes = 0;         // of one block; the same on every rank
  Rank root{0};                  // the same on every rank
};

/// The target of rank p = block p of the root's source.  Where blocks are sent, the operation is
/// one-way: the root can be two calls ahead of the others, four where the blocks of a node go
/// together, 2 floor(log2 N) + 2 where they pass along a tree over N nodes.
TUTTI_EXPORT Operation scatter(Communicator& communicator, const ScatterArguments& arguments);

struct ScattervArguments {
  const void* source = nullptr;  // of the root
  BlockLayout blocks = {};       // of the root's source; the others need none
  void* target = nullptr;
  std::size_t bytes = 0;  // of this rank's block
  Rank root{0};           // the same on every rank
};

/// The target of rank p = block p of the root's source.
TUTTI_EXPORT Operation scatterv(Communicator& communicator, const ScattervArguments& arguments);

struct ReduceScatterArguments {
  const void* source = nullptr;                  // the blocks of all ranks, one after the other
  void* target = nullptr;                        // this rank's block
  std::vector<std::size_t> element_counts = {};  // of each rank's block; the same on every rank
  Reduction reduction = {};                      // the same on every rank
  Agreement agreement = Agreement::identical;    // the same on every rank; each block has one
                                                 // result, so `reproducible` alone promises more
  Algorithm algorithm = Algorithm::automatic;    // or shared_ring; the same on every rank
};

/// The target of rank p = block p of the source of rank 0 o block p of the source of rank 1 o ... .
///
/// An operator that does not commute is applied in rank order.  Agreement::reproducible: along the
/// canonical tree, with the bits of a reproducible allreduce().  Else, where the operator commutes,
/// the ranks of a node may combine their blocks before these are sent, and with more than 32 nodes
/// of one size not all nodes are connected with each other.  The order then depends on the nodes,
/// not on which message arrives first.
TUTTI_EXPORT Operation reduce_scatter(Communicator& communicator,
                                      const ReduceScatterArguments& arguments);

// ---- Typed forms --------------------------------------------------------------------------------
// Sizes are those of the spans, which have to fit: Error{invalid_argument}, on every rank.  Counts
// and offsets are in elements.

namespace detail {

/// Refuses the call unless `there` elements are `count` blocks of `each` elements.
TUTTI_EXPORT void check_blocks(Communicator& communicator, const char* collective,
                               std::size_t there, std::size_t each, std::size_t count);

/// A layout in bytes; refuses the call unless all blocks lie within `there` elements.
TUTTI_EXPORT BlockLayout block_layout(Communicator& communicator, const char* collective,
                                      std::size_t element_bytes, std::size_t there,
                                      std::span<const std::size_t> counts,
                                      std::span<const std::size_t> offsets = {});

}  // namespace detail

template <Element T>
Operation allgather(Communicator& communicator, std::span<const T> source, std::span<T> target) {
  detail::check_blocks(communicator, "allgather", target.size(), source.size(),
                       communicator.rank_count());
  return allgather(
      communicator,
      {.source = source.data(), .target = target.data(), .bytes = source.size_bytes()});
}

template <Element T>
Operation allgatherv(Communicator& communicator, std::span<const T> source, std::span<T> target,
                     std::span<const std::size_t> counts,
                     std::span<const std::size_t> offsets = {}) {
  if (index_of(communicator.rank()) < counts.size())
    detail::check_blocks(communicator, "allgatherv", source.size(),
                         counts[index_of(communicator.rank())], 1);
  return allgatherv(communicator,
                    {.source = source.data(),
                     .target = target.data(),
                     .blocks = detail::block_layout(communicator, "allgatherv", sizeof(T),
                                                    target.size(), counts, offsets)});
}

template <Element T>
Operation alltoall(Communicator& communicator, std::span<const T> source, std::span<T> target) {
  const std::size_t each = source.size() / communicator.rank_count();
  detail::check_blocks(communicator, "alltoall", source.size(), each, communicator.rank_count());
  detail::check_blocks(communicator, "alltoall", target.size(), each, communicator.rank_count());
  return alltoall(communicator,
                  {.source = source.data(), .target = target.data(), .bytes = each * sizeof(T)});
}

template <Element T>
Operation alltoallv(Communicator& communicator, std::span<const T> source,
                    std::span<const std::size_t> source_counts, std::span<T> target,
                    std::span<const std::size_t> target_counts) {
  return alltoallv(communicator,
                   {.source = source.data(),
                    .source_blocks = detail::block_layout(communicator, "alltoallv", sizeof(T),
                                                          source.size(), source_counts),
                    .target = target.data(),
                    .target_blocks = detail::block_layout(communicator, "alltoallv", sizeof(T),
                                                          target.size(), target_counts)});
}

/// On ranks other than the root the target may be empty.
template <Element T>
Operation gather(Communicator& communicator, std::span<const T> source, std::span<T> target,
                 Rank root) {
  if (communicator.rank() == root)
    detail::check_blocks(communicator, "gather", target.size(), source.size(),
                         communicator.rank_count());
  return gather(communicator, {.source = source.data(),
                               .target = target.data(),
                               .bytes = source.size_bytes(),
                               .root = root});
}

/// On ranks other than the root the source may be empty.
template <Element T>
Operation scatter(Communicator& communicator, std::span<const T> source, std::span<T> target,
                  Rank root) {
  if (communicator.rank() == root)
    detail::check_blocks(communicator, "scatter", source.size(), target.size(),
                         communicator.rank_count());
  return scatter(communicator, {.source = source.data(),
                                .target = target.data(),
                                .bytes = target.size_bytes(),
                                .root = root});
}

/// All blocks have the size of the target.
template <Element T, BuiltIn which>
requires(defined_for(which, element_type_of<T>())) Operation
    reduce_scatter(Communicator& communicator, std::span<const T> source, std::span<T> target,
                   BuiltInOperator<which>, Agreement agreement = Agreement::identical) {
  detail::check_blocks(communicator, "reduce_scatter", source.size(), target.size(),
                       communicator.rank_count());
  return reduce_scatter(communicator, {.source = source.data(),
                                       .target = target.data(),
                                       .element_counts = std::vector<std::size_t>(
                                           communicator.rank_count(), target.size()),
                                       .reduction = built_in_reduction(which, element_type_of<T>()),
                                       .agreement = agreement});
}

}  // namespace tutti
