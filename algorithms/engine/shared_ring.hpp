// An allreduce along the ring of nodes with shared notifications: whichever rank of a node finds a
// chunk first takes it, for its node.  A rank that has contributed, in start(), is not needed any
// more for the node's part of the ring: late, or stopped, it holds up nobody else.  Only who is
// stopped in advance(), between taking a chunk and sending it on, keeps that one.
//
// Where words are republished, a rank that connections lead to is needed as long as chunks come:
// while it does not poll, after start(), what comes by them waits, and the ranks of its node do.
// Polling for anything of its context is enough.  Once it has ended a call itself, it has polled
// all that came for it, and is needed no more.
//
// All that the ranks of a node share lies in one block of memory, which the ranks of the node
// before write by the network, each by its own connection.  Offsets are alike on all nodes up to
// the contributions, of which a node has as many as ranks.
//
//   | arrived | claimed | partials x2 | results x2 | contributed | gone | contributions x2 |
//     a word for each chunk, on      where reduce-    where all-    a word and two
//     a line of its own              scatter comes    gather comes  payloads for each rank
//
// A chunk (plan/allreduce/shared_ring.hpp) arrives in `partials` or in `results`, then the word
// that says so. Who takes it joins the contributions of the ranks of the node to it, where it lies,
// in the order of their local numbers, and sends it on from there.  So every block is combined once
// on each node, in an order that depends on nobody's haste, and complete once, on one node: all
// ranks get the same bits (`identical`).
//
// The words hold numbers of calls, which only grow: nothing is ever reset.
//
//   contributed[rank]  written by that rank with release, after its contribution of the call.  Read
//                      by all ranks of the node with acquire, before they combine.  Without the
//                      pair a rank would combine what is half copied, of the call before the last.
//   arrived[parity][chunk]  written by the device of the node before, after the chunk, on the same
//                      connection, where the device places both in that order.  Where it does not,
//                      the chunk is notified to the rank that the connection leads to, its owner,
//                      who writes the word, with release, when it has polled that
//                      (tutti/detail/republished.hpp).  For the chunks of the block that is
//                      completed here, which do not come by the network: by who has completed it,
//                      with release.  Read by all ranks with acquire, before they read the chunk.
//                      It is compared for equality, so that a word which is written byte by byte is
//                      not taken for another one before its last byte that differs is there: it
//                      holds the number of this call, or that of two calls before, or a mixture of
//                      them.
//   claimed[chunk]     raised to the call's number by compare-and-swap; who raises it has the chunk
//                      to itself.  Relaxed: it says who does what, and guards no data; those are
//                      guarded by the words above.
//   gone[rank]         1, with release, when the rank will not touch the block again, and nothing
//                      it has sent from there is on its way; read by the block's owner with
//                      acquire, before it uses the memory for something else.
//
// Two of everything, by parity of the call, suffice: finishing call c+1 takes the contributions of
// all ranks to c+1, and nobody contributes to c+1 before it has finished call c.  So nobody is in
// call c+2 while somebody is in call c, and what call c+2 writes, call c is done with:
//  * notifications of call c+1 come while a node is in call c: they have other words and places;
//  * a rank that is stopped in call c, and has not read its result yet, keeps the others from
//    finishing call c+1, so its result is not overwritten; it will find all chunks claimed, of call
//    c or of c+1;
//  * what is sent on in call c has come to the next node before that node's ranks contribute to
//    c+1, so the network has read it before call c+2 writes there.  No wait for completions.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
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

/// Where things are in the block of a node.
struct SharedRingLayout {
  plan::NodeRing ring;
  std::uint32_t members = 1;  // ranks of the node
  std::size_t payload_bytes = 0;

  static constexpr std::size_t line_bytes = RegisterMemory::line_bytes;

  std::size_t arrived(std::uint32_t parity, std::uint32_t id) const noexcept {
    return (std::size_t{parity} * ids() + id) * line_bytes;
  }
  std::size_t claimed(std::uint32_t id) const noexcept {
    return (2 * std::size_t{ids()} + id) * line_bytes;
  }
  std::size_t partials(std::uint32_t parity) const noexcept {
    return 3 * std::size_t{ids()} * line_bytes + parity * stride();
  }
  std::size_t results(std::uint32_t parity) const noexcept {
    return partials(2) + parity * stride();
  }
  std::size_t contributed(std::uint32_t member) const noexcept {
    return results(2) + member * line_bytes;
  }
  std::size_t gone(std::uint32_t member) const noexcept {
    return contributed(members) + member * line_bytes;
  }
  std::size_t contribution(std::uint32_t parity, std::uint32_t member) const noexcept {
    return gone(members) + (std::size_t{parity} * members + member) * stride();
  }
  std::size_t bytes() const noexcept { return contribution(2, 0); }

  /// Of chunks: numbers below.
  std::uint32_t ids() const noexcept { return 2 * ring.parts(); }

 private:
  /// Of a payload: whole lines.
  std::size_t stride() const noexcept {
    return (payload_bytes + line_bytes - 1) / line_bytes * line_bytes;
  }
};

/// A chunk for the next node: from an offset of this node's block to one of that node's, then the
/// word, or a notification by which a rank there knows whose word to write.
struct Forwarding {
  std::size_t from = 0;
  std::size_t into = 0;
  std::size_t bytes = 0;  // 0: the word alone
  std::size_t word = 0;   // where, in that node's block
  std::uint32_t id = 0;   // of the chunk
  std::uint64_t sequence = 0;
};

///  room:     ok if forward() would send now; in_progress: not now, poll and try again.
///  forward:  sends chunk and word, in that order.  The chunk is the fabric's until two calls
///  later.
template <class F>
concept ForwardingFabric = requires(F& fabric, const Forwarding& chunk) {
  { fabric.room() }
  noexcept->std::same_as<Status>;
  { fabric.forward(chunk) }
  noexcept->std::same_as<Status>;
};

class SharedRing {
 public:
  /// `block`: that of the node as mapped here, zeroed before any rank of the ring begins.
  SharedRing(const SharedRingLayout& layout, std::uint32_t member, std::byte* block)
      : layout_(layout), member_(member), block_(block), first_(first_sub_block()) {}

  const SharedRingLayout& layout() const noexcept { return layout_; }

  /// After Execution::begin(): what this rank owes the others.  No duty is taken on here, so
  /// whoever stops between this and advance() leaves nothing undone.
  void contribute(const Execution& execution) noexcept {
    std::byte* const into = block_ + layout_.contribution(execution.parity(), member_);
    if (layout_.payload_bytes > 0)
      std::memcpy(into, execution.memory.source, layout_.payload_bytes);
    word(layout_.contributed(member_)).store(execution.sequence, std::memory_order_release);
    members_heard_ = 0;
    tasks_claimed_ = 0;
    results_copied_ = 0;
  }

  /// Like engine::advance().
  template <ForwardingFabric F>
  Status advance(Execution& execution, F& fabric) noexcept {
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
    return std::uint64_t{members_heard_} + tasks_claimed_ + results_copied_;
  }

  /// For a rank to whom chunks are notified: the words of the node that it then writes.
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
  /// Whether it will come by the network.
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

  /// This rank will not touch the block any more.
  void leave() noexcept { word(layout_.gone(member_)).store(1, std::memory_order_release); }
  /// Whether all other ranks of the node have left.
  bool all_others_have_left() const noexcept {
    for (std::uint32_t member = 0; member < layout_.members; ++member)
      if (member != member_ && word(layout_.gone(member)).load(std::memory_order_acquire) == 0)
        return false;
    return true;
  }

 private:
  /// Ranks begin with different chunks, so that they do not all go for the same one.
  std::uint32_t first_sub_block() const noexcept {
    return static_cast<std::uint32_t>(std::uint64_t{member_} * layout_.ring.sub_blocks /
                                      layout_.members);
  }

  std::atomic_ref<std::uint64_t> word(std::size_t offset) const noexcept {
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(block_ + offset));
  }

  bool all_have_contributed(std::uint64_t sequence) noexcept {
    while (members_heard_ < layout_.members && has_contributed(members_heard_, sequence))
      ++members_heard_;
    return members_heard_ == layout_.members;
  }

  bool is_there(const plan::RingChunk& chunk, const Execution& execution) const noexcept {
    return !comes(chunk) || has_arrived(chunk, execution);
  }

  /// Looks at the tasks that are expected next, those of two steps of the ring: a chunk of the one
  /// may overtake one of the other, as they come by different connections.  Chunks of later steps
  /// are seen when those before are taken, which they do not wait for.
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
      // Who could not send it leaves it to others.
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

  /// Adds what the ranks of this node contribute, and sends it on.
  template <ForwardingFabric F>
  Status join(const plan::RingChunk& chunk, const Execution& execution, F& fabric) noexcept {
    const Part& part = execution.parts[layout_.ring.part_of(chunk)];
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

  /// `area`: of this node, where the chunk lies.
  template <ForwardingFabric F>
  Status forward(const plan::RingChunk& chunk, std::size_t area, const Execution& execution,
                 F& fabric) noexcept {
    const Part& part = execution.parts[layout_.ring.part_of(chunk)];
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
    const std::uint32_t parity = execution.parity();
    // What is completed here stays where it was combined.
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
  // Of this call:
  std::uint32_t members_heard_ = 0;   // whose contributions are there
  std::uint32_t tasks_claimed_ = 0;   // by anybody, from the first one on
  std::uint32_t results_copied_ = 0;  // from the first one on
};

}  // namespace tutti::engine
