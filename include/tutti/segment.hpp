// Segment: user memory that peers may write and the network may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "tutti/export.hpp"
#include "tutti/reduction.hpp"

namespace tutti {

/// Whose memory a segment is.
enum class Scope : std::uint8_t {
  rank,
  node,  // one memory for all ranks of a node, in the arena of the lowest: each sees what the
         // others write
};

/// Zeroed memory from the context's arena, made by Communicator::allocate(); it begins on a cache
/// line.  It is more than ordinary memory in these three cases only:
///
/// Zero copy.  A payload of an allreduce is sent from the source and lands in the target
/// (chunked_fold copies the result of its own part) if on all ranks the buffers lie in segments or
/// may be registered (ContextOptions::register_buffers), each rank is a node of its own, and the
/// payload has at least 64 KiB and goes in parts or by the ring.  Operation::algorithm() then ends
/// in "_zero_copy".  Peers learn of a segment when an operation is made on the communicator that
/// allocated it, or on one that was split from it later.
///
/// So does a broadcast of 256 KiB and more, and an allgather of blocks of 64 KiB and more, over
/// several nodes of one rank or more (of an allgather, up to 9 nodes; a broadcast from 1 MiB on
/// where ranks of a node share CPUs).  The payload is written from the buffer of one rank into that
/// of another, and the ranks of a node read it there.  All buffers of a broadcast, or all targets
/// of an allgather, have to be in segments; where they are registered otherwise and ranks share
/// nodes, the ranks of a node have to be permitted to read each other's memory.  The source of an
/// allgather may lie anywhere.  The root of such a broadcast waits until the ranks to which it
/// sends have entered the call, and until those of its node have read everything.
///
/// Ranks that share nodes also do an allreduce of 1 MiB and more without copies, if source and
/// target lie in segments on all ranks (registered buffers do not suffice) and the operator
/// commutes: on a single node, or on up to 9 of which none has more than twice the ranks of another
/// (Operation::algorithm() is "lanes_zero_copy"), unless two CPUs of a node were measured to share
/// no cache.  Reproducible results whose bits show the order
/// of operands are computed with copies.
///
/// Reduces go without copies, too, if the sources of all ranks lie in segments and the operator
/// commutes.  In a single node these are payloads of 1 MiB and more of two ranks with a CPU each,
/// and of 512 KiB and more of 4 to 8 ranks that share CPUs; all ranks then wait until the root has
/// its result.  On 2 to 4 nodes of 2 to 4 ranks each, these are payloads of at least 512 KiB, and
/// at most 1 MiB times the number of ranks of the smallest node, where ranks share CPUs and the
/// first two ranks of each node share a cache; each rank then waits until others have read or
/// received what it contributes.
///
/// The upper limits are 1 GiB for a broadcast; for an allgather 1024 ranks, and blocks of 64 MiB
/// with up to 256 ranks, 32 MiB with 512, 16 MiB with 1024 (8 MiB floor(2048 / P) with P ranks).
/// Larger ones go in chunks through the arena.  So do all broadcasts and allgathers of a context
/// that is given messages per round (ContextOptions::per_round, TUTTI_PER_ROUND).
///
/// Single copy.  Where ranks of a node read each other's buffers (Operation::algorithm() is
/// "single_copy"), buffers in segments of their ranks are read by memory accesses, without a system
/// call.
///
/// Shared target (Scope::node).  The targets of an allreduce, allgather or allgatherv, or the
/// buffers of a broadcast, may be one memory on all ranks of each node.  The result is then written
/// there once, and others of the node are told of it, instead of copying it for each rank: the last
/// copy that is avoided in M. A. Al Ahad, C. Simmendinger, R. Iakymchuk, E. Laure, S. Markidis,
/// "Efficient algorithms for collective operations with notified communication in shared windows",
/// PAW-ATM 2018, "Data movement based on shared windows and shared notifications".  The name of the
/// algorithm ends in "_shared_target".
///
///  * On all ranks: either all ranks of every node of several ranks have one target, or each rank
///    has its own (Error{invalid_argument} names two ranks that differ; so it does if targets
///    overlap in another way, or if the blocks of an allgatherv lie differently in one target).  A
///    rank that is alone on its node may have its target anywhere.  The segment is one of the
///    communicator of the operation.  start(source, target) takes no other target (checked).
///  * Lifetime of a result: a rank may read it from the end of its call until its own next start()
///    of the same operation.  Nobody of the node writes there before all its ranks have started the
///    next call.  What a user writes there is not guarded by this: see the next two.
///  * Broadcast: the root has written the payload into the memory of its node before start(), and
///    its call ends when all ranks of that node have started theirs.  It may write the next payload
///    when the others of its node no longer read this one.  With two operations on two buffers, by
///    turns, this is when its call of the other one has ended.
///  * Allgather(v): sources are apart from targets, or in place: the rank has written its block
///    into the memory of the node before start(), when the others no longer read the last result;
///    with two operations by turns, as above.
///  * Allreduce: sources are apart (Error{invalid_argument}); it goes by leaders, or by lanes from
///    8 KiB on (Error{unsupported}, with the reason, if the ranks of a node cannot be combined
///    first).
///
/// Other collectives need a target for each rank.  The memory of the node is gone when the segment
/// of its lowest rank is destroyed.
///
/// Thread rule of its context.  Must outlive the operations that use it, and the context must
/// outlive it (both checked).  After a failure of a communicator whose operations used it, peers
/// may still write there: no other result is safe in it.
class TUTTI_EXPORT Segment {
 public:
  Segment(Segment&&) noexcept;
  Segment& operator=(Segment&&) noexcept;
  ~Segment();

  std::byte* data() const noexcept;
  std::size_t size() const noexcept;  // bytes

  /// The memory as elements: as many whole ones as it has room for.
  template <Element T>
  std::span<T> as() const noexcept {
    return {reinterpret_cast<T*>(data()), size() / sizeof(T)};
  }

  struct Implementation;
  explicit Segment(std::unique_ptr<Implementation>) noexcept;

 private:
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace tutti
