// An allreduce along the ring of nodes with shared notifications: whichever rank of a node finds a
// chunk first claims it, for its node.  Once a rank has contributed, in start(), the others of its
// node can do its part of the ring: a rank that is late or stopped then delays nobody.  The
// exception is a rank that is stopped in advance(), after it has claimed a chunk and before it has
// sent the chunk on: this chunk waits for it.
//
// Where words are republished, only the rank whose connection brings a chunk notices it.  Unless
// that rank polls after start(), the chunk and its node wait.  Polling for any operation of its
// context is enough.  When such a rank has finished a call, it has polled everything that arrived
// for it in that call, and is not needed any more.
//
// All that the ranks of a node share lies in one block of memory.  The ranks of the node before
// write into it over the network, each by its own connection.  Offsets are the same on all nodes up
// to the contributions, whose number is that of the node's ranks.
//
//   | arrived | claimed | partials x2 | results x2 | contributed | gone | contributions x2 |
//     a word for each chunk, on      where reduce-    where all-    a word and two
//     a line of its own              scatter comes    gather comes  payloads for each rank
//
// A chunk (plan/allreduce/shared_ring.hpp) arrives in `partials` or in `results`, and after it the
// word that says so.  The rank that claims the chunk combines it, in place, with the contributions
// of the node's ranks in the order of their local numbers, and sends it on from there.  So each
// block is combined once on each node, in an order that does not depend on timing, and it is
// completed on one node: all ranks get the same bits (`identical`).
//
// The words hold numbers of calls, which only grow: no word is ever reset.
//
//   contributed[rank]  That rank writes it with release, after its contribution to the call.  All
//                      ranks of the node read it with acquire, before they combine.  Without the
//                      pair, a rank could combine a contribution that is half copied, or that of
//                      the call before the last.
//   arrived[parity][chunk]  The device of the node before writes it on the connection of the chunk
//                      and after the chunk, where the device places both in that order.  Where it
//                      does not, the chunk is notified to the rank to which the connection leads,
//                      its owner; the owner polls the notification and then writes the word with
//                      release (tutti/detail/republished.hpp).  Chunks of the block that this node
//                      completes do not come over the network: the rank that completes such a chunk
//                      writes its word with release.  All ranks read the word with acquire, before
//                      they read the chunk, and compare it for equality.  A word that is written
//                      byte by byte holds the number of this call, that of two calls before, or a
//                      mixture of them; so it is equal only when the last byte that differs is
//                      there.
//   claimed[chunk]     A rank raises it to the call's number by compare-and-swap, and then has the
//                      chunk to itself.  Relaxed order is enough: the word says which rank does
//                      the work, and guards no data; the words above do.
//   gone[rank]         That rank writes 1 with release, when it will not touch the block again and
//                      nothing that it has sent from there is on its way.  The owner of the block
//                      reads it with acquire, before it uses the memory for something else.
//
// Two copies of everything, by parity of the call, suffice.  A rank can finish call c+1 only with
// the contributions of all ranks to c+1, and a rank contributes to c+1 only after it has finished
// call c.  So no rank is in call c+2 while another is in call c, and call c+2 writes only memory
// that call c does not use any more:
//  * notifications of call c+1 may come while a node is in call c: they have words and places of
//    their own;
//  * a rank that is stopped in call c, and has not read its result yet, keeps the others from
//    finishing call c+1, so its result is not overwritten; later it finds all chunks claimed, by
//    call c or by c+1;
//  * a chunk that is sent on in call c has reached the next node before the ranks of that node
//    contribute to c+1, so the network has read it before call c+2 writes there.  Nobody waits for
//    completions.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tutti/detail/check.hpp>
#include <tutti/detail/republished.hpp>
#include <tutti/status.hpp>

#include "engine/execution.hpp"
#include "plan/allreduce/shared_ring.hpp"

namespace tutti::engine {

/// Offsets in the block of a node.  A parity or member one past the last gives the end of its area.
struct SharedRingLayout {
  plan::NodeRing ring;
  std::uint32_t members = 1;  // ranks of the node
  std::size_t payload_bytes = 0;

  static constexpr std::size_t line_bytes = RegisterMemory::line_bytes;

  std::size_t arrived(std::uint32_t parity, std::uint32_t id) const noexcept {
    assert(parity < 2);
    assert(id < ids());
    return (std::size_t{parity} * ids() + id) * line_bytes;
  }
  std::size_t claimed(std::uint32_t id) const noexcept {
    assert(id < ids());
    return (2 * std::size_t{ids()} + id) * line_bytes;
  }
  std::size_t partials(std::uint32_t parity) const noexcept {
    assert(parity <= 2);
    return 3 * std::size_t{ids()} * line_bytes + parity * stride();
  }
  std::size_t results(std::uint32_t parity) const noexcept {
    assert(parity <= 2);
    return partials(2) + parity * stride();
  }
  std::size_t contributed(std::uint32_t member) const noexcept {
    assert(member <= members);
    return results(2) + member * line_bytes;
  }
  std::size_t gone(std::uint32_t member) const noexcept {
    assert(member <= members);
    return contributed(members) + member * line_bytes;
  }
  std::size_t contribution(std::uint32_t parity, std::uint32_t member) const noexcept {
    assert(member < members);
    return gone(members) + (std::size_t{parity} * members + member) * stride();
  }
  std::size_t bytes() const noexcept { return contribution(2, 0); }

  /// How many chunks there are; they are numbered from 0.
  std::uint32_t ids() const noexcept { return 2 * ring.parts(); }

 private:
  /// Bytes of one payload, rounded up to whole lines.
  std::size_t stride() const noexcept {
    return (payload_bytes + line_bytes - 1) / line_bytes * line_bytes;
  }
};

/// A chunk for the next node: its payload, then the word that says so, or a notification by which a
/// rank there knows which word to write.
struct Forwarding {
  std::size_t from = 0;   // offset in the block of this node
  std::size_t into = 0;   // offset in the block of the next node
  std::size_t bytes = 0;  // 0: the word alone
  std::size_t word = 0;   // offset in the block of the next node
  std::uint32_t id = 0;   // of the chunk
  std::uint64_t sequence = 0;
};

///  room:     ok if forward() would send now; in_progress if the caller has to poll and try again.
///  forward:  sends the chunk and then the word.  The fabric may read the chunk until two calls
///            later.
template <class F>
concept ForwardingFabric = requires(F& fabric, const Forwarding& chunk) {
  { fabric.room() }
  noexcept->std::same_as<Status>;
  { fabric.forward(chunk) }
  noexcept->std::same_as<Status>;
};

class SharedRing {
 public:
  /// `block`: the block of the node as mapped here, zeroed before any rank of the ring begins.
  SharedRing(const SharedRingLayout& layout, std::uint32_t member, std::byte* block)
      : layout_(layout), member_(member), block_(block), first_(first_sub_block()) {
    assert(member < layout.members);
  }

  const SharedRingLayout& layout() const noexcept { return layout_; }

  /// Leaves this rank's contribution where all ranks of the node find it; after Execution::begin().
  /// The rank claims nothing here, so if it stops before advance(), it leaves nothing undone.
  void contribute(const Execution& execution) noexcept {
    assert(execution.in_flight);
    std::byte* const into = block_ + layout_.contribution(execution.parity(), member_);
    if (layout_.payload_bytes > 0)
      std::memcpy(into, execution.memory.source, layout_.payload_bytes);
    word(layout_.contributed(member_)).store(execution.sequence, std::memory_order_release);
    members_ready_ = 0;
    tasks_claimed_ = 0;
    results_copied_ = 0;
  }

  /// Like engine::advance().
  template <ForwardingFabric F>
  Status advance(Execution& execution, F& fabric) noexcept {
    assert(execution.in_flight);
    assert(has_contributed(member_, execution.sequence));
    if (!all_have_contributed(execution.sequence)) return Status::in_progress;
    Status status = Status::ok;
    for (bool moved = true; moved;) {
      moved = false;
      status = take_a_task(execution, fabric, moved);
      if (status < Status::ok) return status;
      if (!moved) moved = copy_a_result(execution);
    }
    if (tasks_claimed_ < layout_.ring.task_count() || results_copied_ < layout_.ring.parts())
      return Status::in_progress;
    execution.in_flight = false;
    return Status::ok;
  }

  /// Grows while advance() gets on in a call.
  std::uint64_t position() const noexcept {
    return std::uint64_t{members_ready_} + tasks_claimed_ + results_copied_;
  }

  /// The words that a rank writes when chunks are notified to it.
  detail::RepublishedWords republished(const Execution& execution) const noexcept {
    return {.first = block_ + layout_.arrived(0, 0),
            .stride = SharedRingLayout::line_bytes,
            .count = layout_.ids(),
            .call = &execution.sequence};
  }

  // What an operation in flight waits for.
  std::uint32_t step() const noexcept { return tasks_claimed_ / layout_.ring.sub_blocks; }
  bool has_contributed(std::uint32_t member, std::uint64_t sequence) const noexcept {
    return word(layout_.contributed(member)).load(std::memory_order_acquire) >= sequence;
  }
  /// Whether a chunk comes over the network.
  bool comes(const plan::RingChunk& chunk) const noexcept {
    return chunk.stage == plan::RingChunk::Stage::allgather
               ? chunk.block != layout_.ring.own_block()
               : chunk.block != layout_.ring.node;
  }
  bool has_arrived(const plan::RingChunk& chunk, const Execution& execution) const noexcept {
    return word(layout_.arrived(execution.parity(), layout_.ring.id_of(chunk)))
               .load(std::memory_order_acquire) == execution.sequence;
  }
  bool is_claimed(const plan::RingChunk& chunk, std::uint64_t sequence) const noexcept {
    return word(layout_.claimed(layout_.ring.id_of(chunk))).load(std::memory_order_relaxed) >=
           sequence;
  }

  /// Says that this rank will not touch the block any more.
  void leave() noexcept { word(layout_.gone(member_)).store(1, std::memory_order_release); }
  bool all_others_have_left() const noexcept {
    for (std::uint32_t member = 0; member < layout_.members; ++member)
      if (member != member_ && word(layout_.gone(member)).load(std::memory_order_acquire) == 0)
        return false;
    return true;
  }

 private:
  /// Ranks begin with different chunks, so that they do not all try to claim the same one.
  std::uint32_t first_sub_block() const noexcept {
    return static_cast<std::uint32_t>(std::uint64_t{member_} * layout_.ring.sub_blocks /
                                      layout_.members);
  }

  std::atomic_ref<std::uint64_t> word(std::size_t offset) const noexcept {
    assert(offset + sizeof(std::uint64_t) <= layout_.bytes());
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(block_ + offset));
  }

  bool all_have_contributed(std::uint64_t sequence) noexcept {
    while (members_ready_ < layout_.members && has_contributed(members_ready_, sequence))
      ++members_ready_;
    return members_ready_ == layout_.members;
  }

  bool is_there(const plan::RingChunk& chunk, const Execution& execution) const noexcept {
    return !comes(chunk) || has_arrived(chunk, execution);
  }

  /// Looks at the tasks that are expected next, which are those of two steps of the ring: chunks of
  /// the second step may overtake chunks of the first, as they come by different connections.  A
  /// chunk of a later step is seen only when the tasks before it are claimed.
  template <ForwardingFabric F>
  Status take_a_task(const Execution& execution, F& fabric, bool& moved) noexcept {
    const std::uint32_t count = layout_.ring.task_count();
    while (tasks_claimed_ < count &&
           is_claimed(layout_.ring.task(tasks_claimed_, first_), execution.sequence))
      ++tasks_claimed_;
    const std::uint32_t end = std::min(tasks_claimed_ + 2 * layout_.ring.sub_blocks, count);
    for (std::uint32_t index = tasks_claimed_; index < end; ++index) {
      const plan::RingChunk chunk = layout_.ring.task(index, first_);
      if (is_claimed(chunk, execution.sequence) || !is_there(chunk, execution)) continue;
      // A rank that could not send the chunk leaves it to others.
      if (layout_.ring.has_next())
        if (const Status status = fabric.room(); status != Status::ok) return status;
      if (!claim(chunk, execution.sequence)) continue;
      moved = true;
      return chunk.stage == plan::RingChunk::Stage::reduce_scatter
                 ? join(chunk, execution, fabric)
                 : forward(chunk, layout_.results(execution.parity()), execution, fabric);
    }
    return Status::ok;
  }

  bool claim(const plan::RingChunk& chunk, std::uint64_t sequence) noexcept {
    std::atomic_ref<std::uint64_t> claimed = word(layout_.claimed(layout_.ring.id_of(chunk)));
    std::uint64_t earlier = claimed.load(std::memory_order_relaxed);
    while (earlier < sequence)
      if (claimed.compare_exchange_weak(earlier, sequence, std::memory_order_relaxed)) return true;
    return false;
  }

  /// Combines a claimed chunk with the contributions of this node, and sends it on.
  template <ForwardingFabric F>
  Status join(const plan::RingChunk& chunk, const Execution& execution, F& fabric) noexcept {
    const Part& part = execution.parts[layout_.ring.part_of(chunk)];
    assert(part.source.offset + part.source.bytes <= layout_.payload_bytes);
    assert(is_claimed(chunk, execution.sequence));
    const std::uint32_t parity = execution.parity();
    std::byte* const partial = block_ + layout_.partials(parity) + part.source.offset;
    const auto contribution = [&](std::uint32_t member) {
      return block_ + layout_.contribution(parity, member) + part.source.offset;
    };
    std::uint32_t member = 0;
    if (layout_.ring.begins_with(chunk) && part.source.bytes > 0)
      std::memcpy(partial, contribution(member++), part.source.bytes);
    if (part.element_count > 0)
      for (; member < layout_.members; ++member)
        execution.reduction.combine(contribution(member), partial, part.element_count,
                                    execution.reduction.context);
    plan::RingChunk next = chunk;
    const bool is_complete = layout_.ring.completes(chunk);
    if (is_complete) next.stage = plan::RingChunk::Stage::allgather;
    if (layout_.ring.has_next())
      if (const Status status = forward(next, layout_.partials(parity), execution, fabric);
          status != Status::ok)
        return status;
    if (is_complete)
      word(layout_.arrived(parity, layout_.ring.id_of(next)))
          .store(execution.sequence, std::memory_order_release);
    return Status::ok;
  }

  /// Sends a chunk on.  `area` is where the payload begins, of which the chunk is a part.
  template <ForwardingFabric F>
  Status forward(const plan::RingChunk& chunk, std::size_t area, const Execution& execution,
                 F& fabric) noexcept {
    assert(layout_.ring.has_next());
    const Part& part = execution.parts[layout_.ring.part_of(chunk)];
    assert(part.source.offset + part.source.bytes <= layout_.payload_bytes);
    const std::uint32_t parity = execution.parity();
    const std::size_t into = chunk.stage == plan::RingChunk::Stage::reduce_scatter
                                 ? layout_.partials(parity)
                                 : layout_.results(parity);
    const Status status =
        fabric.forward({.from = area + part.source.offset,
                        .into = into + part.source.offset,
                        .bytes = part.source.bytes,
                        .word = layout_.arrived(parity, layout_.ring.id_of(chunk)),
                        .id = layout_.ring.id_of(chunk),
                        .sequence = execution.sequence});
    detail::check(status != Status::in_progress, "a chunk is claimed when there is room for it",
                  execution.sequence);
    return status;
  }

  bool copy_a_result(const Execution& execution) noexcept {
    if (results_copied_ == layout_.ring.parts()) return false;
    const plan::RingChunk chunk = layout_.ring.result(results_copied_);
    if (!has_arrived(chunk, execution)) return false;
    const Part& part = execution.parts[layout_.ring.part_of(chunk)];
    assert(part.target.bytes <= part.source.bytes);
    const std::uint32_t parity = execution.parity();
    // A block that this node completes stays where it was combined.
    const std::size_t area = chunk.block == layout_.ring.own_block() ? layout_.partials(parity)
                                                                     : layout_.results(parity);
    if (part.target.bytes > 0)
      std::memcpy(execution.memory.target + part.target.offset, block_ + area + part.source.offset,
                  part.target.bytes);
    ++results_copied_;
    return true;
  }

  SharedRingLayout layout_;
  std::uint32_t member_;
  std::byte* block_;
  std::uint32_t first_;
  // How far this call has come, counted from the first member, task and result on.
  std::uint32_t members_ready_ = 0;  // whose contributions are there
  std::uint32_t tasks_claimed_ = 0;  // by any rank
  std::uint32_t results_copied_ = 0;
};

}  // namespace tutti::engine
