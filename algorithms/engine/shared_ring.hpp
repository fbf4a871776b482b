// An allreduce, a reduce_scatter or an allgather along the ring of nodes with shared notifications:
// whichever rank of a node finds a chunk first claims it, for its node.  Once a rank has
// contributed, the others of its node can do its part of the ring: a rank that is late or stopped
// then delays nobody.  The exception is a rank that is stopped in advance(), after it has claimed a
// chunk and before it has sent the chunk on: this chunk waits for it.
//
// The payload goes around in laps (plan::RingLaps), which are numbered from 1 on in all calls
// together.  A few laps are in flight at once, and the node needs memory for these only.  A rank
// contributes as many laps in start() as the memory for its contributions holds, and each further
// lap once it has consumed an earlier one: once that lap's results have been copied out for it.
//
// Where that memory holds a whole payload, a rank that is stopped after start() holds up nobody in
// a payload of any length: it has contributed to every lap, and when the others need the memory of
// a lap that it has not consumed, they copy its results into the area of its contributions, each
// part to where its contribution was, which has been combined by then.  When the rank goes on, it
// takes them from there.  Where it holds less, the others wait for a stopped rank once the laps
// that it has contributed to are done.
//
// Where words are republished, only the rank whose connection brings a chunk notices it.  Unless
// that rank polls after start(), the chunk and its node wait.  Polling for any operation of its
// context is enough.  When such a rank has finished a call, it has polled everything that arrived
// for it in that call, and is not needed any more.
//
// What the ranks of a node share lies in one block in the arena of the node's first rank, and in an
// area in the arena of each rank (that of the first rank follows the block).  The ranks of the node
// before write into the block over the network, each by its own connection.  For these, offsets are
// the same on all nodes up to the results.  F laps are in flight, and a rank contributes up to A
// laps that it has not consumed (A >= F; each rank has an A of its own, by the room in its arena).
//
//   block | arrived x F | partials x F | completed x 2 F | results x F | claimed x F |
//           words of      where reduce-  the block that    where all-    words of
//           the chunks    scatter comes  is complete here  gather comes  the chunks
//         | contributed, consumed | taken | gone, drained |
//           two words for each rank one     two
//   area  | contributions x A |
//
// A chunk (plan/allreduce/shared_ring.hpp) of lap e arrives in copy e mod F of the partials or of
// the results, or in copy e mod 2 F of the completed block if this node completes it, and after it
// the word that says so.  The rank that claims the chunk combines it, in place, with the
// contributions of the node's ranks in the order of their local numbers, and sends it on from
// there.  So each block is combined once on each node, in an order that does not depend on timing,
// and it is completed on one node: all ranks get the same bits (`identical`).
//
// The words hold numbers of laps, which only grow: no word is ever reset.
//
//   contributed[rank]  That rank writes it with release, after its contribution to some parts.  It
//                      counts parts, in all laps together, in the order in which the node sends or
//                      joins them (NodeRing::task): a chunk can be joined before the rest of its
//                      lap is there.  All ranks of the node read it with acquire, before they
//                      combine.  Without the pair, a rank could combine a contribution that is half
//                      copied.
//   consumed[rank]     Whoever has copied the lap's last result for that rank writes it with
//                      release.  All ranks of the node read it with acquire, before they join a
//                      chunk of F laps later.  Without the pair, a complete chunk could overwrite
//                      what is still being read.  It is the acknowledgement by which the window
//                      moves on.  Where others may copy for that rank, it is written before
//                      `taken`, so that the laps' numbers are written in their order.
//   taken[rank]        Twice the number of results, in all laps together, that were copied for that
//                      rank, and 1 while somebody copies the next one.  That rank or another one of
//                      the node raises it by 1 by compare-and-swap, with acquire, and then has the
//                      next result to itself; after the copy it writes the next even number with
//                      release.  That rank reads it with acquire, before it takes what others have
//                      left in its area.  Without the pairs, it could take a result that is half
//                      copied, and the last of a lap could say that it is consumed while an earlier
//                      result is still read.  It is used where A holds a payload of more than F
//                      laps, and only there.
//   arrived[e mod F][chunk]  The device of the node before writes it on the connection of the chunk
//                      and after the chunk, where the device places both in that order.  Where it
//                      does not, the chunk is notified to the rank to which the connection leads,
//                      its owner; the owner polls the notification and then writes the word with
//                      release (tutti/detail/republished.hpp).  Chunks of the block that this node
//                      completes do not come over the network: the rank that completes such a chunk
//                      writes its word with release.  All ranks read the word with acquire, before
//                      they read the chunk, and compare it for equality.  A word that is written
//                      byte by byte holds the number of this lap, that of F laps before, or a
//                      mixture of them; so it is equal only when the last byte that differs is
//                      there.
//   claimed[e mod F][chunk]  A rank raises it to twice the lap's number by compare-and-swap, and
//                      then has the chunk to itself.  Relaxed order is enough: the word says which
//                      rank does the work, and guards no data; the words above do.  In a
//                      reduce_scatter, that rank adds 1 with release once it has read the
//                      contributions.  All ranks of the node read it with acquire, before they
//                      contribute anything else there.  Without the pair, a rank that has had its
//                      block could overwrite what is still being combined for another node.
//   gone[rank]         That rank writes 1 with release, when it will not touch the block again and
//                      nothing that it has sent from there is on its way.  The owner of the block
//                      reads it with acquire, before it uses the memory for something else.  Areas
//                      need no such word: once a rank has consumed its last lap, nobody reads its
//                      contributions.
//   drained[rank]      Where words are republished, that rank writes 1 with release, once all ranks
//                      of the node before have left and it has then polled all that they had sent:
//                      it will receive no further chunk.  All ranks of its node read this word with
//                      acquire, before they look which chunks are missing.  Without the pair, a
//                      rank could overlook a word that was republished before this one was written,
//                      and report as missing a chunk that has arrived.
//
// One rule is the whole flow control: a node joins its contributions to lap e only when all of its
// ranks have contributed to e and have consumed lap e - F.  No message says so to another node,
// because the ring does: a chunk that is complete holds the contribution of every node.  So lap e
// writes only what lap e - F does not use any more:
//  * results: a complete chunk of lap e exists once every node has joined e, so all ranks have
//    consumed e - F.  Every rank has copied its results, and each chunk had reached the next node
//    before that, so the network does not read it any more.  Nobody waits for completions.
//  * partials of a node: they are written by the node before, which has consumed e - F.  So every
//    block of e - F was complete, and this node had joined each, and what it sent on had arrived.
//    The partials with which a node begins are written by itself, and the same holds.
//  * the completed block: its ranks may still copy that of e - F.  But the node before has consumed
//    e - F, so all nodes have joined it, and this one had consumed e - 2 F before.
//  * contributions: a rank overwrites that of lap e - A once it has consumed this lap itself; so
//    its node has joined every block of it.  If A is a whole payload, that was in an earlier call,
//    all results of which this rank has taken.
//  * results in the place of contributions: a complete chunk holds what this node has joined, so
//    nobody reads the contributions to it any more.
//  * words of arrival: as the chunks to which they belong.  A rank that is late in lap e - F, and
//    has not consumed it, keeps all nodes from completing lap e; and it finds all chunks of
//    reduce-scatter claimed, by lap e - F or by lap e.
//
// One half of the ring says less: a rank that has its results of lap e knows that all nodes have
// joined lap e, but not that all ranks have consumed lap e - F.  Hence there are 2 F copies of
// everything, and what is modulo F above is modulo 2 F here.  The rule is the same: a node joins
// its contributions to lap e only when all of its ranks have consumed e - F.  They had results of
// e - F, to which every node had contributed by this rule.  So all ranks had consumed e - 2 F, and
// nothing of that lap is on its way, or is still to be read.
//  * reduce_scatter has no results but the completed blocks.  A rank has consumed a lap when it has
//    copied its part of that block, and all contributions of its node were read (claimed, above).
//  * allgather has no partials, and the block that is completed here is one of the results.  The
//    ranks of the node have each a part of it, which is copied and not combined.
// The blocks of the nodes may differ in length.  A lap has a share of each, so that all nodes have
// the same laps.
//
// No wait can be circular: the oldest lap that some rank has not consumed needs only contributions
// that are there or that their ranks can give at once, as they have consumed lap e - A, and memory
// of laps that all have consumed; and every rank looks at its oldest lap first.
//
// The laps are kept apart: a node begins with lap e once all chunks of e - 2 that come to it were
// claimed, although there may be memory for more laps.  Otherwise all laps would be combined before
// the first one is complete, and ranks would have nothing to copy before, and too much after that.
// A rank that has looked in vain for a while begins with the next lap all the same.
//
// Where chunks are polled for, advance() returns after each copy of some KiB: what arrives
// meanwhile goes on to the next node before there is more to copy (has_work()).
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
#include <utility>
#include <vector>

#include "engine/execution.hpp"
#include "plan/allreduce/shared_ring.hpp"

namespace tutti::engine {

/// What a rank has in the block of its node, and where that lies in a user's buffer; in bytes.
struct BlockOfRank {
  std::size_t begin = 0;  // in the block of the node
  std::size_t bytes = 0;
  std::size_t offset = 0;    // in the buffer
  std::uint32_t member = 0;  // of the node
};

/// One half of the ring: the blocks of the nodes.  Of an allreduce there are none.
struct RingBlocks {
  std::vector<std::size_t> elements = {};  // by number of the block
  // By number of the block: what this rank contributes to it, and what it gets of it, in order.
  std::vector<std::vector<BlockOfRank>> sources = {}, targets = {};
  std::vector<std::size_t> begins = {};  // in a lap, in bytes, and its end; by cut_blocks()
};

/// Offsets in the block of a node and in the area of each of its ranks.  A copy or member one past
/// the last gives the end of its part.
struct SharedRingLayout {
  plan::NodeRing ring;
  plan::RingLaps laps = {};
  std::uint32_t members = 1;  // ranks of the node
  // By member: to how many laps that it has not consumed it may contribute; at least those in
  // flight.
  std::vector<std::uint32_t> ahead = {1};
  std::size_t element_count = 0, element_bytes = 1;
  RingBlocks blocks = {};

  static constexpr std::size_t line_bytes = RegisterMemory::line_bytes;

  /// To be called once the laps and the elements of the blocks are known, before anything below.
  void cut_blocks() {
    assert(blocks.elements.size() == ring.nodes);
    blocks.begins.assign(1, 0);
    for (const std::size_t elements : blocks.elements)
      blocks.begins.push_back(blocks.begins.back() +
                              share(elements, laps.count, 0) * element_bytes);
  }
  bool has_blocks() const noexcept {
    assert((ring.phases != plan::RingPhases::both) == !blocks.begins.empty());
    return !blocks.begins.empty();
  }

  /// How many chunks a lap has; they are numbered from 0.
  std::uint32_t ids() const noexcept { return ring.ids(); }
  /// Copies of everything in the block, of which each lap uses one.
  std::uint32_t copies() const noexcept { return ring.copies_each() * laps.in_flight; }
  std::uint32_t copy_of(std::uint64_t lap) const noexcept {
    return static_cast<std::uint32_t>(lap % copies());
  }

  // In the block.
  std::size_t arrived(std::uint32_t copy, std::uint32_t id) const noexcept {
    assert(copy < copies());
    assert(id < ids());
    return (std::size_t{copy} * ids() + id) * line_bytes;
  }
  std::size_t partials(std::uint32_t copy) const noexcept {
    assert(copy <= copies());
    const std::size_t each = ring.phases == plan::RingPhases::allgather ? 0 : lap_bytes();
    return std::size_t{copies()} * ids() * line_bytes + copy * each;
  }
  std::size_t completed(std::uint32_t copy) const noexcept {
    assert(copy <= 2 * laps.in_flight);
    const std::size_t each = ring.phases == plan::RingPhases::allgather ? 0 : block_bytes_of_lap();
    return partials(copies()) + copy * each;
  }
  std::size_t results(std::uint32_t copy) const noexcept {
    assert(copy <= copies());
    const std::size_t each = ring.phases == plan::RingPhases::reduce_scatter ? 0 : lap_bytes();
    return completed(2 * laps.in_flight) + copy * each;
  }
  /// Where a chunk of reduce-scatter lies on a node that completes it, or does not, and where one
  /// of allgather lies.
  std::size_t place_of(const plan::RingChunk& chunk, std::uint64_t lap,
                       bool is_completed) const noexcept {
    const std::uint32_t in_call = this->in_call(lap);
    const std::size_t offset = part_of(chunk, in_call).source.offset;
    if (is_completed && ring.phases != plan::RingPhases::allgather) {
      const plan::RingChunk first{chunk.stage, chunk.block, 0};
      const std::size_t in_block = offset - part_of(first, in_call).source.offset;
      assert(in_block <= block_bytes_of_lap());
      return completed(static_cast<std::uint32_t>(lap % (2 * std::uint64_t{laps.in_flight}))) +
             in_block;
    }
    const bool is_partial = chunk.stage == plan::RingChunk::Stage::reduce_scatter &&
                            ring.phases != plan::RingPhases::allgather;
    return (is_partial ? partials(copy_of(lap)) : results(copy_of(lap))) + offset;
  }
  std::size_t claimed(std::uint32_t copy, std::uint32_t id) const noexcept {
    assert(copy < copies());
    assert(id < ids());
    return results(copies()) + (std::size_t{copy} * ids() + id) * line_bytes;
  }
  std::size_t contributed(std::uint32_t member) const noexcept {
    assert(member <= members);
    return results(copies()) + (std::size_t{copies()} * ids() + member) * line_bytes;
  }
  /// On the line of the former: whoever reads one reads both.
  std::size_t consumed(std::uint32_t member) const noexcept {
    assert(member < members);
    return contributed(member) + sizeof(std::uint64_t);
  }
  std::size_t taken(std::uint32_t member) const noexcept {
    assert(member <= members);
    return contributed(members) + member * line_bytes;
  }
  std::size_t gone(std::uint32_t member) const noexcept {
    assert(member <= members);
    return taken(members) + member * line_bytes;
  }
  /// This word shares a cache line with gone(member).
  std::size_t drained(std::uint32_t member) const noexcept {
    assert(member < members);
    return gone(member) + sizeof(std::uint64_t);
  }
  std::size_t block_bytes() const noexcept { return gone(members); }

  // In the area of a rank.
  std::size_t contribution(std::uint32_t member, std::uint64_t lap) const noexcept {
    assert(member < members);
    return lap % ahead[member] * lap_bytes();
  }

  /// What a rank that contributes to so many laps ahead needs of its arena.
  std::size_t bytes_of(std::uint32_t member, std::uint32_t laps_ahead) const noexcept {
    return (member == 0 ? block_bytes() : 0) + laps_ahead * lap_bytes();
  }
  /// Whether the others can go on without that rank once it has contributed to a whole payload,
  /// although it consumes nothing: its results have a place.
  bool keeps_results_of(std::uint32_t member) const noexcept {
    assert(member < members);
    return members > 1 && laps.count > laps.in_flight && ahead[member] >= laps.count;
  }

  /// Bytes of the longest lap, rounded up to whole lines.
  std::size_t lap_bytes() const noexcept {
    return whole_lines(has_blocks() ? blocks.begins.back()
                                    : share(element_count, laps.count, 0) * element_bytes);
  }
  /// Bytes of its longest block, rounded up to whole lines.
  std::size_t block_bytes_of_lap() const noexcept {
    if (has_blocks()) return whole_lines(longest_block_of_lap() * element_bytes);
    const std::size_t elements = share(element_count, laps.count, 0);
    return whole_lines(share(elements, ring.parts(), 0) * ring.sub_blocks * element_bytes);
  }
  /// Bytes of its longest chunk.
  std::size_t chunk_bytes_max() const noexcept {
    const std::size_t elements = has_blocks()
                                     ? share(longest_block_of_lap(), ring.sub_blocks, 0)
                                     : share(share(element_count, laps.count, 0), ring.parts(), 0);
    return elements * element_bytes;
  }
  /// The number of a lap in its call, from 0 on.
  std::uint32_t in_call(std::uint64_t lap) const noexcept {
    assert(lap > 0);
    return static_cast<std::uint32_t>((lap - 1) % laps.count);
  }
  /// Lap `lap` of a call, counted from 0, in the users' buffers.
  Part lap_in_call(std::uint32_t lap) const noexcept {
    return piece(element_count, laps.count, lap);
  }
  /// A part of it, counted from the beginning of the lap.
  Part part_of(const plan::RingChunk& chunk, std::uint32_t lap) const noexcept {
    if (!has_blocks())
      return piece(share(element_count, laps.count, lap), ring.parts(), ring.part_of(chunk));
    Part part = sub_block_of(chunk, lap);
    part.source.offset += blocks.begins[chunk.block];
    part.target.offset += blocks.begins[chunk.block];
    return part;
  }

  /// `look(in_buffer, in_part, bytes, member)` for what a part consists of in a user's buffers:
  /// where it lies there, where in the part, and whose it is.
  template <class Look>
  void for_each_source(const plan::RingChunk& chunk, std::uint32_t lap, Look&& look) const {
    for_each(blocks.sources, chunk, lap, std::forward<Look>(look));
  }
  template <class Look>
  void for_each_target(const plan::RingChunk& chunk, std::uint32_t lap, Look&& look) const {
    for_each(blocks.targets, chunk, lap, std::forward<Look>(look));
  }

 private:
  static constexpr std::size_t whole_lines(std::size_t bytes) noexcept {
    return (bytes + line_bytes - 1) / line_bytes * line_bytes;
  }
  std::size_t longest_block_of_lap() const noexcept {
    return share(*std::max_element(blocks.elements.begin(), blocks.elements.end()), laps.count, 0);
  }
  /// Counted from the beginning of its block in the lap.
  Part sub_block_of(const plan::RingChunk& chunk, std::uint32_t lap) const noexcept {
    return piece(share(blocks.elements[chunk.block], laps.count, lap), ring.sub_blocks,
                 chunk.sub_block);
  }
  template <class Look>
  void for_each(const std::vector<std::vector<BlockOfRank>>& of_blocks,
                const plan::RingChunk& chunk, std::uint32_t lap, Look&& look) const {
    if (!has_blocks()) {
      const Range part = part_of(chunk, lap).source;
      look(lap_in_call(lap).source.offset + part.offset, std::size_t{0}, part.bytes, 0u);
      return;
    }
    const Range part = sub_block_of(chunk, lap).source;
    const std::size_t begin =
        piece(blocks.elements[chunk.block], laps.count, lap).source.offset + part.offset;
    for (const BlockOfRank& one : of_blocks[chunk.block]) {
      const std::size_t from = std::max(begin, one.begin);
      const std::size_t to = std::min(begin + part.bytes, one.begin + one.bytes);
      if (from < to) look(one.offset + from - one.begin, from - begin, to - from, one.member);
    }
  }
  /// As parts_of() cuts; no table, which for long payloads would be long, too.
  Part piece(std::size_t elements, std::size_t count, std::size_t i) const noexcept {
    const std::size_t before = elements / count * i + std::min(i, elements % count);
    const Range range{before * element_bytes, share(elements, count, i) * element_bytes};
    return {range, range, share(elements, count, i)};
  }
};

/// A chunk for the next node: its payload, then the word that says so, or a notification by which a
/// rank there knows which word to write.
struct Forwarding {
  std::size_t from = 0;      // offset in the block of this node
  std::size_t into = 0;      // offset in the block of the next node
  std::size_t bytes = 0;     // 0: the word alone
  std::size_t word = 0;      // offset in the block of the next node
  std::uint32_t number = 0;  // of the word among all of them
  std::uint32_t parity = 0;  // of the uses of that word
  std::uint64_t lap = 0;     // what the word will hold
};

///  room:     ok if forward() would send now; in_progress if the caller has to poll and try again.
///  forward:  sends the chunk and then the word.  The fabric may read the chunk until the next node
///            has it.
///  publish:  stores a word that the ranks of the node share, with release; `bytes` is what was
///            stored there for them and is announced by it.
///  saw:      a word that another rank of the node has stored was seen.
///  copied:   so many bytes were copied out of memory that the ranks of the node share.
///  is_polled_for_chunks:  whether chunks are seen only after a poll.
///  operator_has_failed:  whether the reduction has, so that what it left is not sent on.
template <class F>
concept ForwardingFabric = requires(F& fabric, const Forwarding& chunk, std::uint64_t* word,
                                    std::size_t bytes) {
  { fabric.room() }
  noexcept->std::same_as<Status>;
  { fabric.forward(chunk) }
  noexcept->std::same_as<Status>;
  { fabric.publish(word, std::uint64_t{}, bytes) }
  noexcept;
  { fabric.saw() }
  noexcept;
  { fabric.copied(bytes) }
  noexcept;
  { fabric.is_polled_for_chunks() }
  noexcept->std::same_as<bool>;
  { fabric.operator_has_failed() }
  noexcept->std::same_as<bool>;
};

/// What a fabric does where shared memory takes no more time than it takes.
struct WordsOfNode {
  static void publish(std::uint64_t* word, std::uint64_t value, std::size_t /*bytes*/) noexcept {
    std::atomic_ref(*word).store(value, std::memory_order_release);
  }
  static void saw() noexcept {}
  static void copied(std::size_t /*bytes*/) noexcept {}
  static bool is_polled_for_chunks() noexcept { return false; }
  static bool operator_has_failed() noexcept { return false; }
};

class SharedRing {
 public:
  /// `block` of the node, and the area of each of its ranks, as mapped here, zeroed before any rank
  /// of the ring begins.
  SharedRing(const SharedRingLayout& layout, std::uint32_t member, std::byte* block,
             std::vector<std::byte*> areas)
      : layout_(layout),
        member_(member),
        block_(block),
        areas_(std::move(areas)),
        first_(first_sub_block()),
        seen_(layout.members),
        progress_(layout.copies()) {
    assert(member < layout.members);
    assert(areas_.size() == layout.members);
    assert(layout.laps.in_flight > 0);
    assert(layout.ahead.size() == layout.members);
    for ([[maybe_unused]] const std::uint32_t ahead : layout.ahead)
      assert(ahead >= layout.laps.in_flight);
  }

  const SharedRingLayout& layout() const noexcept { return layout_; }

  /// After Execution::begin(), and before anything else of a call.
  void begin([[maybe_unused]] const Execution& execution) noexcept {
    assert(execution.in_flight);
    assert(consumed_ == (execution.sequence - 1) * layout_.laps.count);
    last_ = consumed_ + layout_.laps.count;
    assert(contributed_ == consumed_ * layout_.ring.join_count());
  }

  /// Leaves some more of this rank's contributions where all ranks of the node find them; false: it
  /// has left as many as there is room for.  The rank claims nothing here, so if it stops before
  /// advance(), it leaves nothing undone.
  template <ForwardingFabric F>
  bool contribute(const Execution& execution, F& fabric) noexcept {
    return contribute_ahead(layout_.ahead[member_], execution, fabric);
  }
  bool may_contribute() const noexcept {
    return contributed_ <
           std::min(consumed_ + layout_.ahead[member_], last_) * layout_.ring.join_count();
  }
  /// Parts of all calls that this rank has contributed to.
  std::uint64_t contributed() const noexcept { return contributed_; }

  /// Like engine::advance().
  template <ForwardingFabric F>
  Status advance(Execution& execution, F& fabric) noexcept {
    assert(execution.in_flight);
    assert(consumed_ < last_);
    has_work_ = false;
    const std::size_t begin = moved_bytes_;
    while (!fabric.is_polled_for_chunks() || moved_bytes_ - begin < bytes_at_a_time) {
      bool moved = false;
      const std::uint64_t end = std::min(consumed_ + layout_.laps.in_flight, last_);
      for (std::uint64_t lap = consumed_ + 1; lap <= end && !moved && is_open(lap, fabric); ++lap) {
        const Status status = take_a_task(lap, execution, fabric, moved);
        if (status < Status::ok) return status;
        if (status != Status::ok) break;  // there is no room, for any chunk
      }
      // What can be joined at once goes before results, of which there are few laps, and these
      // before what cannot be joined yet.
      moved = moved || contribute_ahead(laps_at_a_time, execution, fabric) ||
              copy_a_result(execution, fabric) || contribute(execution, fabric);
      if (is_over(consumed_ + 1)) {
        consume(fabric);
        if (consumed_ == last_) {
          execution.in_flight = false;
          return Status::ok;
        }
        moved = true;
      }
      if (moved) {
        fruitless_ = 0;
      } else {
        has_work_ = ++fruitless_ >= patience && help(fabric);
        return Status::in_progress;
      }
    }
    has_work_ = true;
    return Status::in_progress;
  }

  /// Whether the last advance() has left work that need not wait for anybody.
  bool has_work() const noexcept { return has_work_; }

  /// Grows while advance() gets on in a call.
  std::uint64_t position() const noexcept { return position_; }

  /// The words that a rank writes when chunks are notified to it.
  detail::RepublishedWords republished() const noexcept {
    return {.first = block_ + layout_.arrived(0, 0),
            .stride = SharedRingLayout::line_bytes,
            .count = layout_.ids(),
            .copies = layout_.copies(),
            .consumed = reinterpret_cast<std::uint64_t*>(block_ + layout_.consumed(member_))};
  }

  // What an operation in flight waits for.

  /// The oldest lap that this rank has not consumed, in all calls and, from 1 on, in this one.
  std::uint64_t lap() const noexcept { return consumed_ + 1; }
  std::uint32_t lap_of_call() const noexcept { return in_call(lap()) + 1; }
  std::uint32_t step() const noexcept {
    return progress_[layout_.copy_of(lap())].tasks_claimed / layout_.ring.sub_blocks;
  }
  /// Whether the node need not wait for that rank to join its contributions to a lap.
  bool is_open_to(std::uint32_t member, std::uint64_t lap) const noexcept {
    return word(layout_.contributed(member)).load(std::memory_order_acquire) >=
               lap * layout_.ring.join_count() &&
           word(layout_.consumed(member)).load(std::memory_order_acquire) +
                   layout_.laps.in_flight >=
               lap;
  }
  bool has_arrived(const plan::RingChunk& chunk, std::uint64_t lap) const noexcept {
    return word(layout_.arrived(layout_.copy_of(lap), layout_.ring.id_of(chunk)))
               .load(std::memory_order_acquire) == lap;
  }
  bool is_claimed(const plan::RingChunk& chunk, std::uint64_t lap) const noexcept {
    return word(layout_.claimed(layout_.copy_of(lap), layout_.ring.id_of(chunk)))
               .load(std::memory_order_relaxed) >= 2 * lap;
  }

  /// With Execution::forget_calls(): as if no rank of the ring had begun.  `owns_block`: this rank
  /// clears the words that its node shares, which no other rank touches meanwhile.
  void forget_calls(bool owns_block) noexcept {
    contributed_ = consumed_ = open_ = last_ = 0;
    members_open_ = fruitless_ = 0;
    has_work_ = false;
    std::fill(seen_.begin(), seen_.end(), Seen{});
    std::fill(progress_.begin(), progress_.end(), Progress{});
    if (!owns_block) return;
    // Relaxed: ranks go on only when an exchange has told them that this is done.
    const auto clear = [&](std::size_t offset) {
      word(offset).store(0, std::memory_order_relaxed);
    };
    for (std::uint32_t copy = 0; copy < layout_.copies(); ++copy)
      for (std::uint32_t id = 0; id < layout_.ids(); ++id) {
        clear(layout_.arrived(copy, id));
        clear(layout_.claimed(copy, id));
      }
    for (std::uint32_t member = 0; member < layout_.members; ++member) {
      clear(layout_.contributed(member));
      clear(layout_.consumed(member));
      clear(layout_.taken(member));
    }
  }

  /// Says that this rank will not touch the block any more.
  void leave() noexcept { word(layout_.gone(member_)).store(1, std::memory_order_release); }
  bool all_others_have_left() const noexcept {
    for (std::uint32_t member = 0; member < layout_.members; ++member)
      if (member != member_ && word(layout_.gone(member)).load(std::memory_order_acquire) == 0)
        return false;
    return true;
  }

  /// Tells the ranks of this node that this rank will receive no further chunk from the node
  /// before.
  template <ForwardingFabric F>
  void tell_drained(F& fabric) noexcept {
    fabric.publish(address_of(layout_.drained(member_)), 1, 0);
  }
  bool is_drained(std::uint32_t member) const noexcept {
    return word(layout_.drained(member)).load(std::memory_order_acquire) != 0;
  }

 private:
  /// How far this rank has come in a lap, counted from the first task and result on.
  struct Progress {
    std::uint32_t tasks_claimed = 0;  // by any rank
    std::uint32_t joins_done = 0;     // likewise; of a reduce_scatter
    std::uint32_t results_copied = 0;
  };
  /// What this rank has seen of the words of another one.
  struct Seen {
    std::uint64_t contributed = 0, consumed = 0;
  };

  static constexpr std::uint64_t laps_at_a_time = 2;
  /// Copying so much takes about as long as a message is on its way.
  static constexpr std::size_t bytes_at_a_time = 8u << 10;
  /// Looks in vain before a rank copies for another one, or begins with a further lap: others need
  /// not be stopped, but only a little later.
  static constexpr std::uint32_t patience = 16;

  /// Ranks begin with different chunks, so that they do not all try to claim the same one.
  std::uint32_t first_sub_block() const noexcept {
    return static_cast<std::uint32_t>(std::uint64_t{member_} * layout_.ring.sub_blocks /
                                      layout_.members);
  }

  std::uint64_t* address_of(std::size_t offset) const noexcept {
    assert(offset + sizeof(std::uint64_t) <= layout_.block_bytes());
    return reinterpret_cast<std::uint64_t*>(block_ + offset);
  }
  std::atomic_ref<std::uint64_t> word(std::size_t offset) const noexcept {
    return std::atomic_ref(*address_of(offset));
  }

  std::uint32_t in_call(std::uint64_t lap) const noexcept { return layout_.in_call(lap); }

  std::byte* contribution_of(std::uint32_t member, std::uint64_t lap) const noexcept {
    return areas_[member] + layout_.contribution(member, lap);
  }

  /// Contributes to so many laps, if there is room for them, that this rank has not consumed; no
  /// more than is to be copied at a time.
  template <ForwardingFabric F>
  bool contribute_ahead(std::uint64_t laps, const Execution& execution, F& fabric) noexcept {
    const std::uint64_t ahead = std::min<std::uint64_t>(laps, layout_.ahead[member_]);
    const std::uint64_t parts = layout_.ring.join_count();
    const std::uint64_t end = std::min(consumed_ + ahead, last_) * parts;
    if (contributed_ >= end) return false;
    const std::uint64_t of_lap = contributed_ / parts + 1;
    std::byte* const there = contribution_of(member_, of_lap);
    std::size_t bytes = 0;
    do {
      const plan::RingChunk chunk =
          layout_.ring.task(static_cast<std::uint32_t>(contributed_ % parts), 0);
      const std::size_t offset = layout_.part_of(chunk, in_call(of_lap)).source.offset;
      layout_.for_each_source(
          chunk, in_call(of_lap),
          [&](std::size_t in_buffer, std::size_t in_part, std::size_t length, std::uint32_t) {
            if (length > 0)
              detail::plain_copy(there + offset + in_part, execution.memory.source + in_buffer,
                                 length);
            bytes += length;
          });
      ++contributed_;
    } while (contributed_ % parts != 0 && bytes < bytes_at_a_time);
    moved_bytes_ += bytes;
    ++position_;
    fabric.publish(address_of(layout_.contributed(member_)), contributed_, bytes);
    return true;
  }

  /// Looks at the words of a rank again.
  template <ForwardingFabric F>
  void look_at(std::uint32_t member, F& fabric) noexcept {
    const Seen now{word(layout_.contributed(member)).load(std::memory_order_acquire),
                   word(layout_.consumed(member)).load(std::memory_order_acquire)};
    Seen& seen = seen_[member];
    if (now.contributed == seen.contributed && now.consumed == seen.consumed) return;
    seen = now;
    ++position_;
    if (member != member_) fabric.saw();
  }

  /// Whether this node may do anything about a lap: its memory is free.
  template <ForwardingFabric F>
  bool is_open(std::uint64_t lap, F& fabric) noexcept {
    if (lap <= open_) return true;
    assert(lap == open_ + 1);
    for (; members_open_ < layout_.members; ++members_open_) {
      const auto has_consumed = [&] {
        return seen_[members_open_].consumed + layout_.laps.in_flight >= lap;
      };
      if (!has_consumed()) look_at(members_open_, fabric);
      if (!has_consumed()) return false;
    }
    members_open_ = 0;
    open_ = lap;
    return true;
  }

  /// Whether all ranks of the node have contributed to task number `index`, of reduce-scatter.
  template <ForwardingFabric F>
  bool has_contributions(std::uint64_t lap, std::uint32_t index, const plan::RingChunk& chunk,
                         F& fabric) noexcept {
    const std::uint32_t sub_blocks = layout_.ring.sub_blocks;
    const std::uint64_t needed = (lap - 1) * layout_.ring.join_count() +
                                 index / sub_blocks * sub_blocks + chunk.sub_block + 1;
    for (std::uint32_t member = 0; member < layout_.members; ++member) {
      if (seen_[member].contributed < needed) look_at(member, fabric);
      if (seen_[member].contributed < needed) return false;
    }
    return true;
  }

  bool is_over(std::uint64_t lap) noexcept {
    Progress& progress = progress_[layout_.copy_of(lap)];
    if (progress.tasks_claimed != layout_.ring.task_count() ||
        progress.results_copied != layout_.ring.result_count())
      return false;
    if (layout_.ring.phases != plan::RingPhases::reduce_scatter) return true;
    for (; progress.joins_done < layout_.ring.join_count(); ++progress.joins_done) {
      const plan::RingChunk chunk = layout_.ring.task(progress.joins_done, first_);
      if (word(claimed_word_of(chunk, lap)).load(std::memory_order_acquire) < 2 * lap + 1)
        return false;
    }
    return true;
  }

  template <ForwardingFabric F>
  void consume(F& fabric) noexcept {
    ++consumed_;
    progress_[layout_.copy_of(consumed_)] = {};
    // Else whoever copied the last result has said so.
    if (!layout_.keeps_results_of(member_))
      fabric.publish(address_of(layout_.consumed(member_)), consumed_, 0);
  }

  /// Looks at the tasks that are expected next, which are those of two steps of the ring: chunks of
  /// the second step may overtake chunks of the first, as they come by different connections.  A
  /// chunk of a later step is seen only when the tasks before it are claimed.
  template <ForwardingFabric F>
  Status take_a_task(std::uint64_t lap, const Execution& execution, F& fabric,
                     bool& moved) noexcept {
    const std::uint32_t count = layout_.ring.task_count();
    std::uint32_t& claimed = progress_[layout_.copy_of(lap)].tasks_claimed;
    for (; claimed < count && is_claimed(layout_.ring.task(claimed, first_), lap); ++claimed)
      ++position_;
    const std::uint32_t end = std::min(claimed + 2 * layout_.ring.sub_blocks, count);
    for (std::uint32_t index = claimed; index < end; ++index) {
      const plan::RingChunk chunk = layout_.ring.task(index, first_);
      if (is_claimed(chunk, lap)) continue;
      if (layout_.ring.comes(chunk) ? !has_arrived(chunk, lap) : !may_begin(lap)) continue;
      const bool is_joined = chunk.stage == plan::RingChunk::Stage::reduce_scatter;
      if (is_joined && !has_contributions(lap, index, chunk, fabric)) continue;
      // A rank that could not send the chunk leaves it to others.
      if (layout_.ring.goes_on(next_of(chunk)))
        if (const Status status = fabric.room(); status != Status::ok) return status;
      if (!claim(chunk, lap)) continue;
      moved = true;
      fabric.saw();
      return is_joined ? join(chunk, lap, execution, fabric)
                       : forward(chunk, layout_.place_of(chunk, lap, false), lap, fabric);
    }
    return Status::ok;
  }

  /// Whether all chunks of two laps before were claimed, or there is nothing else to do.
  bool may_begin(std::uint64_t lap) const noexcept {
    return lap <= consumed_ + laps_at_a_time || fruitless_ >= patience ||
           progress_[layout_.copy_of(lap - laps_at_a_time)].tasks_claimed ==
               layout_.ring.task_count();
  }

  std::size_t claimed_word_of(const plan::RingChunk& chunk, std::uint64_t lap) const noexcept {
    return layout_.claimed(layout_.copy_of(lap), layout_.ring.id_of(chunk));
  }
  bool claim(const plan::RingChunk& chunk, std::uint64_t lap) noexcept {
    std::atomic_ref<std::uint64_t> claimed = word(claimed_word_of(chunk, lap));
    std::uint64_t earlier = claimed.load(std::memory_order_relaxed);
    while (earlier < 2 * lap)
      if (claimed.compare_exchange_weak(earlier, 2 * lap, std::memory_order_relaxed)) return true;
    return false;
  }

  /// The chunk as it travels on once this node has added its contributions: a completed one becomes
  /// a chunk of the allgather.
  plan::RingChunk next_of(plan::RingChunk chunk) const noexcept {
    if (layout_.ring.completes(chunk)) chunk.stage = plan::RingChunk::Stage::allgather;
    return chunk;
  }

  /// Combines a claimed chunk with the contributions of this node, and sends it on.
  template <ForwardingFabric F>
  Status join(const plan::RingChunk& chunk, std::uint64_t lap, const Execution& execution,
              F& fabric) noexcept {
    const Part part = layout_.part_of(chunk, in_call(lap));
    assert(part.source.offset + part.source.bytes <= layout_.lap_bytes());
    assert(is_claimed(chunk, lap));
    const bool is_complete = layout_.ring.completes(chunk);
    const std::size_t place = layout_.place_of(chunk, lap, is_complete);
    const auto contribution = [&](std::uint32_t member) {
      return contribution_of(member, lap) + part.source.offset;
    };
    moved_bytes_ += part.source.bytes;
    if (layout_.ring.phases == plan::RingPhases::allgather) {
      layout_.for_each_target(
          chunk, in_call(lap),
          [&](std::size_t, std::size_t in_part, std::size_t bytes, std::uint32_t member) {
            detail::plain_copy(block_ + place + in_part, contribution(member) + in_part, bytes);
          });
    } else {
      std::uint32_t member = 0;
      if (layout_.ring.begins_with(chunk) && part.source.bytes > 0)
        detail::plain_copy(block_ + place, contribution(member++), part.source.bytes);
      if (part.element_count > 0)
        for (; member < layout_.members; ++member)
          execution.reduction.combine(contribution(member), block_ + place, part.element_count,
                                      execution.reduction.context);
      if (fabric.operator_has_failed()) return Status::aborted;  // nobody gets what was spoilt
    }
    // Published before the chunk is sent on: if this rank were stopped between the two, its node
    // would wait for this word although the chunk is on its way.
    if (layout_.ring.phases == plan::RingPhases::reduce_scatter)
      fabric.publish(address_of(claimed_word_of(chunk, lap)), 2 * lap + 1, 0);
    const plan::RingChunk next = next_of(chunk);
    if (layout_.ring.goes_on(next))
      if (const Status status = forward(next, place, lap, fabric); status != Status::ok)
        return status;
    if (is_complete)
      fabric.publish(address_of(layout_.arrived(layout_.copy_of(lap), layout_.ring.id_of(next))),
                     lap, 0);
    return Status::ok;
  }

  /// Sends on a chunk that lies at `place`.
  template <ForwardingFabric F>
  Status forward(const plan::RingChunk& chunk, std::size_t place, std::uint64_t lap,
                 F& fabric) noexcept {
    assert(layout_.ring.has_next());
    const Part part = layout_.part_of(chunk, in_call(lap));
    assert(part.source.offset + part.source.bytes <= layout_.lap_bytes());
    const std::uint32_t copy = layout_.copy_of(lap), id = layout_.ring.id_of(chunk);
    const Status status =
        fabric.forward({.from = place,
                        .into = layout_.place_of(chunk, lap, layout_.ring.next_completes(chunk)),
                        .bytes = part.source.bytes,
                        .word = layout_.arrived(copy, id),
                        .number = copy * layout_.ids() + id,
                        .parity = static_cast<std::uint32_t>(lap / layout_.copies() & 1),
                        .lap = lap});
    detail::check(status != Status::in_progress, "a chunk is claimed when there is room for it",
                  lap);
    return status;
  }

  /// Result number `index` of a lap: its part, from the beginning of the lap, and where it lies.
  struct Result {
    plan::RingChunk chunk;
    Part part;
    const std::byte* place;
  };
  Result result_of(std::uint64_t lap, std::uint32_t index) const noexcept {
    const plan::RingChunk chunk = layout_.ring.result(index);
    const bool is_own = chunk.block == layout_.ring.own_block();
    return {chunk, layout_.part_of(chunk, in_call(lap)),
            block_ + layout_.place_of(chunk, lap, is_own)};
  }

  template <ForwardingFabric F>
  bool copy_a_result(const Execution& execution, F& fabric) noexcept {
    Progress& progress = progress_[layout_.copy_of(lap())];
    std::uint32_t& copied = progress.results_copied;
    if (copied == layout_.ring.result_count()) return false;
    // The last result says that the lap is consumed, and so that all that comes to this node in it
    // has come (tutti/detail/republished.hpp).  In a reduce_scatter, results alone do not say that.
    if (copied + 1 == layout_.ring.result_count() &&
        layout_.ring.phases == plan::RingPhases::reduce_scatter &&
        progress.tasks_claimed != layout_.ring.task_count())
      return false;
    const Result result = result_of(lap(), copied);
    const auto copy_from = [&](const std::byte* place) {
      std::size_t bytes = 0;
      layout_.for_each_target(
          result.chunk, in_call(lap()),
          [&](std::size_t in_buffer, std::size_t in_part, std::size_t length, std::uint32_t) {
            if (length > 0)
              detail::plain_copy(execution.memory.target + in_buffer, place + in_part, length);
            bytes += length;
          });
      count_copied(bytes, fabric);
    };
    if (!layout_.keeps_results_of(member_)) {
      if (!has_arrived(result.chunk, lap())) return false;
      copy_from(result.place);
    } else {
      const std::uint64_t number = (lap() - 1) * layout_.ring.result_count() + copied;
      if (word(layout_.taken(member_)).load(std::memory_order_acquire) >= 2 * (number + 1)) {
        copy_from(contribution_of(member_, lap()) + result.part.source.offset);
      } else {
        if (!has_arrived(result.chunk, lap()) || !take(member_, number)) return false;
        copy_from(result.place);
        publish_if_last(member_, number, fabric);
        word(layout_.taken(member_)).store(2 * (number + 1), std::memory_order_release);
      }
    }
    ++copied;
    return true;
  }

  template <ForwardingFabric F>
  void count_copied(std::size_t bytes, F& fabric) noexcept {
    moved_bytes_ += bytes;
    ++position_;
    fabric.saw();
    fabric.copied(bytes);
  }

  /// Whether this rank is the one to copy the result of that number, of all calls, for a rank.
  bool take(std::uint32_t member, std::uint64_t number) noexcept {
    std::uint64_t before = 2 * number;
    return word(layout_.taken(member))
        .compare_exchange_strong(before, before + 1, std::memory_order_acquire,
                                 std::memory_order_relaxed);
  }
  /// If it was the last result of its lap, that rank has consumed the lap.  To be called before the
  /// next result can be taken: whoever took the results of the next lap could otherwise write the
  /// word before, and this one would set it back, for good where the node then waits for it.
  template <ForwardingFabric F>
  void publish_if_last(std::uint32_t member, std::uint64_t number, F& fabric) noexcept {
    const std::uint64_t count = layout_.ring.result_count();
    if ((number + 1) % count == 0)
      fabric.publish(address_of(layout_.consumed(member)), (number + 1) / count, 0);
  }

  /// Copies a result, into the area of a rank that has not consumed a lap and so keeps this node
  /// from a later one.
  template <ForwardingFabric F>
  bool help(F& fabric) noexcept {
    const std::uint64_t blocked = open_ + 1, in_flight = layout_.laps.in_flight;
    if (blocked <= in_flight || blocked > std::min(last_, consumed_ + in_flight)) return false;
    const std::uint32_t member = members_open_;
    assert(member < layout_.members);
    if (member == member_ || !layout_.keeps_results_of(member)) return false;
    const std::uint64_t parts = layout_.ring.result_count();
    const std::uint64_t number = word(layout_.taken(member)).load(std::memory_order_acquire) / 2;
    const std::uint64_t lap = number / parts + 1;
    if (lap > blocked - in_flight) return false;  // it has consumed enough, as will be seen
    // This rank has consumed the lap, so that rank has contributed to it, and every part of that
    // has been joined.
    if (!take(member, number)) return false;
    const Result result = result_of(lap, static_cast<std::uint32_t>(number % parts));
    assert(has_arrived(result.chunk, lap));
    if (result.part.source.bytes > 0)
      detail::plain_copy(contribution_of(member, lap) + result.part.source.offset, result.place,
                         result.part.source.bytes);
    count_copied(result.part.source.bytes, fabric);
    publish_if_last(member, number, fabric);
    fabric.publish(address_of(layout_.taken(member)), 2 * (number + 1), 0);
    return true;
  }

  SharedRingLayout layout_;
  std::uint32_t member_;
  std::byte* block_;
  std::vector<std::byte*> areas_;  // by member
  std::uint32_t first_;
  std::vector<Seen> seen_;         // by member
  std::uint64_t contributed_ = 0;  // by this rank, in parts of all calls
  // In laps of all calls.
  std::uint64_t consumed_ = 0;      // by this rank
  std::uint64_t open_ = 0;          // that the node may join, as far as is known here
  std::uint64_t last_ = 0;          // of the call in flight
  std::uint32_t members_open_ = 0;  // for the lap after `open_`
  std::uint32_t fruitless_ = 0;     // looks in a row
  bool has_work_ = false;
  std::size_t moved_bytes_ = 0;  // copied and combined, in all calls
  std::uint64_t position_ = 0;
  std::vector<Progress> progress_;  // of each lap in flight, by its copy
};

}  // namespace tutti::engine
