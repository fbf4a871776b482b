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
  node,  // of all ranks of a node, that of its lowest rank: each of them sees what the others write
};

/// Zeroed memory out of the context's arena, made by Communicator::allocate(); begins on a cache
/// line.  Only in these cases is it more than ordinary memory:
///
/// Where the buffers of an allreduce lie in segments on all ranks, or may be registered
/// (ContextOptions::register_buffers), each rank is a node of its own, and the payload, of 64 KiB
/// at least, goes in parts or by the ring, it is sent from the source and lands in the target
/// (chunked_fold copies the result of its own part); Operation::algorithm() then ends in
/// "_zero_copy".  Peers learn of segments when an operation is made on the communicator that
/// allocated one, or on one split from it later.
///
/// Where ranks of a node read each other's buffers (Operation::algorithm() "single_copy"), those in
/// segments of their own are read by memory accesses, without a system call.
///
/// Scope::node: where the targets of an allreduce are one memory on all ranks of each node, and the
/// sources are apart, it goes by leaders, or by lanes from 8 KiB on, which leave the result there
/// instead of copying it for each rank (the last copy that is avoided in M. A. Al Ahad et al. 2018,
/// II.A); its name ends in "_shared_target".  Whoever starts the next call lets the others of its
/// node write there.  For operations of the communicator that allocated it; other collectives need
/// a target for each rank.  With its lowest rank's segment the node's memory goes.
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

  /// As many whole elements as there is room for.
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
