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
/// Single copy.  Where ranks of a node read each other's buffers (Operation::algorithm() is
/// "single_copy"), buffers in segments of their ranks are read by memory accesses, without a system
/// call.
///
/// Shared target (Scope::node).  Where the targets of an allreduce are one memory on all ranks of
/// each node, and the sources are apart, it goes by leaders, or by lanes from 8 KiB on.  These
/// leave the result there instead of copying it for each rank (the last copy that is avoided in M.
/// A. Al Ahad et al. 2018, II.A); the name of the algorithm ends in "_shared_target".  After
/// start() the other ranks of the node may write the target.  This holds for operations of the
/// communicator that allocated the segment; other collectives need a target for each rank.  The
/// memory of the node is gone when the segment of its lowest rank is destroyed.
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
