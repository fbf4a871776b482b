// What the processes of a host see of each other: the layout of the one segment that a process
// shares with its peers.  Whoever initiates a request reads and writes the target's segment
// directly, so every word here is either constant while it is visible, or atomic with the story of
// both sides beside it.  Lines are separated by who writes them:
//
//   SegmentHeader 0 owner, once
//                 1 initiators of atomics      private memory only
//                 2 owner and initiators       emulated networks only
//   RegionEntry     owner                       read by initiators for every remote access
//   QueuePairEntry  0 owner (peer: only to ERR)  read by the connected initiator for every request
//                   1 connected initiator        read by the owner only to reset, flush, deregister
//                   2 owner                      read by the initiator when its ring looks full
//                   3 initiator in RNR wait      read by the owner for every posted receive
//   ReceiveSlot[]   owner                        read by initiators
//   Completion[]    connected initiator          read by the owner's poll
//   ArmingEntry     owner and initiators         of a completion queue with a channel
//   BounceArea      0 connected initiator        only where the owner's memory is out of its reach
//                   1 owner's helper thread
//   DatagramRing    0 owner                      read by the sender when the ring looks full
//                   1 sender and owner           rarely changed by the owner
//                   DatagramSlot[] sender        read by the owner
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tutti::verbs::soft {

inline constexpr std::size_t line_bytes = 64;
inline constexpr std::uint64_t segment_magic = 0x7475747469736f66;  // "tuttisof"
inline constexpr std::uint32_t layout_version = 5;
inline constexpr std::size_t segment_bytes = std::size_t{1} << 30;  // sparse; committed on demand

inline constexpr std::uint32_t regions_max = 4096;
inline constexpr std::uint32_t queue_pairs_max = 8192;
inline constexpr std::uint32_t scatter_max = 16;  // scatter-gather entries of one work request

// A queue pair number names the process and the queue pair in it: unique on the host.
inline constexpr unsigned queue_pair_index_bits = 13;
inline constexpr std::uint32_t process_ids_max = 1 << (24 - queue_pair_index_bits);
static_assert(queue_pairs_max == 1 << queue_pair_index_bits);
static_assert(std::has_single_bit(line_bytes));
static_assert(std::has_single_bit(segment_bytes));
inline constexpr std::uint32_t queue_pair_number_max = 0xffffff;

inline constexpr std::uint32_t process_id_of(std::uint32_t queue_pair_number) {
  assert(queue_pair_number <= queue_pair_number_max);
  return queue_pair_number >> queue_pair_index_bits;
}
inline constexpr std::uint32_t index_of(std::uint32_t queue_pair_number) {
  assert(queue_pair_number <= queue_pair_number_max);
  return queue_pair_number & (queue_pairs_max - 1);
}
inline constexpr std::uint32_t queue_pair_number_of(std::uint32_t process_id, std::uint32_t index) {
  assert(process_id < process_ids_max);
  assert(index < queue_pairs_max);
  return process_id << queue_pair_index_bits | index;
}
static_assert(queue_pair_number_of(process_ids_max - 1, queue_pairs_max - 1) ==
              queue_pair_number_max);

// A key is an index and a generation, so that a key of a deregistered region stays refused until
// its slot has been used 2^20 times.
inline constexpr unsigned region_generation_bits = 20;
static_assert(regions_max == 1 << (32 - region_generation_bits));

struct alignas(line_bytes) SegmentHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t id;     // of the process, in its queue pair numbers
  std::uint64_t nonce;  // 40 random bits: tells this process from a later one with the same id
  // Entries of the queue pair table that are backed by memory.  The owner raises it (release) after
  // allocating; a peer that touched an entry beyond it could be killed for lack of memory.
  std::atomic<std::uint32_t> queue_pairs_committed;

  // Identity of the initiator whose turn it is to change a word of this process's private memory,
  // 0: nobody's.  Taken by compare-exchange (acquire), given back by another (release); the owner
  // takes it from a dead one.  Initiators of all processes, the owner's own among them, take turns
  // here, as reading and writing such a word are two system calls.
  alignas(line_bytes) std::atomic<std::uint64_t> atomic_turn;

  // In an emulated network: which place of it this process is, constant; and until when its port is
  // taken in either direction, in picoseconds since `epoch_ns` of the monotonic clock, or in
  // virtual time.  Relaxed: whoever sends something takes the time.
  alignas(line_bytes) std::uint32_t place;
  std::int64_t epoch_ns;
  std::atomic<std::int64_t> transmit_port;
  std::atomic<std::int64_t> receive_port;
};
static_assert(std::is_standard_layout_v<SegmentHeader>);
static_assert(sizeof(SegmentHeader) == 3 * line_bytes);
static_assert(offsetof(SegmentHeader, magic) == 0);
static_assert(offsetof(SegmentHeader, atomic_turn) == line_bytes);
static_assert(offsetof(SegmentHeader, place) == 2 * line_bytes);

/// One memory region.  A reader takes the key, the fields and the key again (all acquire); the
/// owner clears the key before and stores it after the fields (all release), so that two equal keys
/// enclose fields of that key.  `access` alone may change under a key (seq_cst), and the others may
/// under one that comes again: whoever is engaged has met the former ones, as the owner waits for
/// it in between.
struct alignas(line_bytes) RegionEntry {
  std::atomic<std::uint32_t> key;  // 0: not in use
  std::atomic<std::uint32_t> domain;
  std::atomic<std::uint32_t> access;   // ibv_access_flags
  std::atomic<std::uint32_t> backing;  // the file it lies in, by the owner's number; 0: none
  std::atomic<std::uint64_t> address;
  std::atomic<std::uint64_t> bytes;
  std::atomic<std::uint64_t> backing_offset;  // of `address` in that file
};
static_assert(std::is_standard_layout_v<RegionEntry>);
static_assert(sizeof(RegionEntry) == line_bytes);
static_assert(offsetof(RegionEntry, key) == 0);

/// Status word of a queue pair: state, number of the connected queue pair, incarnation.  One word,
/// so that "ready, and connected to me" is one load, and so that a late initiator cannot move the
/// next incarnation to the error state.
struct Status {
  std::uint64_t word;

  static Status of(ibv_qp_state state, std::uint32_t destination, std::uint32_t incarnation) {
    assert(destination <= queue_pair_number_max);
    assert(state <= IBV_QPS_UNKNOWN);
    return {static_cast<std::uint64_t>(incarnation) << 32 |
            static_cast<std::uint64_t>(destination & 0xffffff) << 8 | state};
  }
  ibv_qp_state state() const { return static_cast<ibv_qp_state>(word & 0xff); }
  std::uint32_t destination() const { return static_cast<std::uint32_t>(word >> 8) & 0xffffff; }
  std::uint32_t incarnation() const { return static_cast<std::uint32_t>(word >> 32); }
  Status with(ibv_qp_state state) const { return {(word & ~std::uint64_t{0xff}) | state}; }
  bool receives_from(std::uint32_t initiator) const {
    const ibv_qp_state now = state();
    return (now == IBV_QPS_RTR || now == IBV_QPS_RTS || now == IBV_QPS_SQD) &&
           destination() == initiator;
  }
};
static_assert(sizeof(Status) == sizeof(std::uint64_t));
static_assert(IBV_QPS_UNKNOWN <= 0xff);

struct alignas(line_bytes) QueuePairEntry {
  // Status::word.  The owner stores it (release) after the plain fields below, the connected
  // initiator loads it (acquire) before it uses them.  Either may change it to the error state.
  std::atomic<std::uint64_t> status;
  std::atomic<std::uint32_t> access;     // ibv_access_flags; may change while connected
  std::atomic<std::uint32_t> rnr_timer;  // IB encoding; may change while connected
  // Constant from creation to destruction, while which no initiator is engaged.
  std::uint32_t domain;
  std::uint32_t receive_slots;  // power of two; 0: a shared receive queue
  std::uint32_t receive_stride_bytes;
  std::uint32_t ring_slots;      // power of two
  std::uint64_t receive_offset;  // ReceiveSlot[], or SharedReceiveEntry
  std::uint64_t ring_offset;     // Completion[]
  // Its port, see place_of(); 0: its link is down.  Constant while the status says that it
  // receives: the initiator looks at it (relaxed) once for each status word.
  std::atomic<std::uint32_t> place;
  std::uint64_t arming_offset;  // ArmingEntry of the queue that receives complete to; 0: none

  // Identity of the initiator that is working on this queue pair, 0: none.  It takes the word by a
  // compare-exchange (seq_cst) before it checks status and keys; the owner changes status or key
  // first and looks here (seq_cst) then.  Hence either the initiator sees the change, or the owner
  // sees the initiator and waits before memory is reused.
  alignas(line_bytes) std::atomic<std::uint64_t> engaged;
  // Engagements that have ended, and looks that an initiator has taken between the steps of a long
  // copy.  It counts (release) before it clears `engaged`, and (seq_cst) before it looks at status
  // and keys again; see RunningEngagement.
  std::atomic<std::uint64_t> engagements;
  // Completions written so far, without the event, which is always the last of an incarnation.
  // Only the engaged initiator writes; the owner reads it to count.
  std::atomic<std::uint64_t> produced;

  // Completions polled so far (release); the initiator must not overwrite what lies beyond.
  alignas(line_bytes) std::atomic<std::uint64_t> consumed;

  // 1: an initiator waits for a receive or for the state RTR and wants a message.  Losing one is
  // harmless, as the waiting side also looks by itself: relaxed.
  alignas(line_bytes) std::atomic<std::uint32_t> wanted;
  // What the engaged initiator leaves for asynchronous events: news_... bits, added by fetch_or
  // (release) before it changes the state and taken by the owner.  Rare.
  std::atomic<std::uint32_t> news;
  // Where the owner's BounceArea for this queue pair is, or one of bounce_....  The engaged
  // initiator puts bounce_wanted in the place of 0 and calls the owner, whose helper thread makes
  // the area and stores its offset (release, as it has been cleared; acquire).  Rare.
  std::atomic<std::uint64_t> bounce;
};
inline constexpr std::uint64_t bounce_wanted = 1;
inline constexpr std::uint64_t bounce_refused = 2;    // the owner has no memory for it
inline constexpr std::uint32_t news_established = 1;  // a message came in RTR
inline constexpr std::uint32_t news_fatal = 2;        // the others: with the state ERR
inline constexpr std::uint32_t news_request_error = 4;
inline constexpr std::uint32_t news_access_error = 8;
static_assert(sizeof(QueuePairEntry) == 4 * line_bytes);
static_assert(std::is_standard_layout_v<QueuePairEntry>);
static_assert(offsetof(QueuePairEntry, status) == 0);
static_assert(offsetof(QueuePairEntry, engaged) == line_bytes);
static_assert(offsetof(QueuePairEntry, consumed) == 2 * line_bytes);
static_assert(offsetof(QueuePairEntry, wanted) == 3 * line_bytes);

/// The engagement that the owner must wait for when it has changed a status or a key: the one that
/// was running then, up to where it ends or looks at them again.  Later ones see the change; but as
/// an initiator may begin one request right after the other, the owner might never find `engaged`
/// empty, and so looks for the count as well.
///
/// The change, the loads here, and the initiator's count and look are all seq_cst: an owner that
/// has loaded the count from before a look has made its change before that look.
class RunningEngagement {
 public:
  explicit RunningEngagement(const QueuePairEntry& entry)
      : entry_(&entry),
        // In this order: the initiator seen in `engaged` has counted all engagements before its
        // own.
        engaged_(entry.engaged.load(std::memory_order_seq_cst)),
        ended_(entry.engagements.load(std::memory_order_seq_cst)) {}

  /// Whose it is, see Process::token(); 0: nobody's.
  std::uint64_t initiator() const { return engaged_; }

  /// Acquire: what the initiator did is done.  It may still be engaged, but has looked again.
  bool is_over() const {
    return engaged_ == 0 || entry_->engaged.load(std::memory_order_acquire) == 0 ||
           entry_->engagements.load(std::memory_order_acquire) != ended_;
  }
  /// Nobody at all is engaged there.
  bool has_left() const { return entry_->engaged.load(std::memory_order_acquire) == 0; }

 private:
  const QueuePairEntry* entry_;
  std::uint64_t engaged_;
  std::uint64_t ended_;
};

/// A posted receive, followed by its scatter list.  `sequence` is position + 1: stored last
/// (release) by the owner, loaded first (acquire) by the initiator.
///
/// The other fields are relaxed: an initiator may read a slot of a shared queue that another has
/// taken and the owner fills again; what it has read then counts for nothing, because
/// SharedReceiveEntry::taken has moved on.
struct ReceiveSlot {
  struct Piece {
    std::atomic<std::uint64_t> address;
    std::atomic<std::uint32_t> bytes;
    std::atomic<std::uint32_t> key;
  };

  std::atomic<std::uint64_t> sequence;
  std::atomic<std::uint64_t> wr_id;
  std::atomic<std::uint32_t> scatter_count;
  std::uint32_t reserved;
  std::uint64_t reserved_more;

  Piece* scatter() { return reinterpret_cast<Piece*>(this + 1); }
};
static_assert(sizeof(ReceiveSlot) == 32);
static_assert(sizeof(ReceiveSlot::Piece) == 16);
static_assert(std::is_standard_layout_v<ReceiveSlot>);
static_assert(offsetof(ReceiveSlot, sequence) == 0);
static_assert(alignof(ReceiveSlot::Piece) <= alignof(ReceiveSlot));

struct alignas(line_bytes) SharedReceiveEntry {
  std::uint64_t slots_offset;
  std::uint32_t slots;  // power of two
  std::uint32_t stride_bytes;
  std::uint32_t domain;
  // The owner waits for fewer receives than this; 0: it does not.  The owner stores it and looks at
  // `taken` then, an initiator counts `taken` up and looks here then (all seq_cst), so that one of
  // them finds the number below it.  An initiator says so by adding limit_was_reached.
  std::atomic<std::uint32_t> limit;

  // Receives taken so far.  An initiator reads the slot at this position and then moves the count
  // by compare-exchange (release): if that succeeds the receive is its own, and what it read was
  // whole, as the owner loads the count (acquire) before it reuses a slot.  Nobody holds anything:
  // an initiator that is stopped or killed is in nobody's way.
  alignas(line_bytes) std::atomic<std::uint64_t> taken;

  alignas(line_bytes) std::atomic<std::uint32_t> wanted;  // as in QueuePairEntry
  // Receives posted so far, for the limit only.  Stored before the slot's sequence, so that it is
  // never behind a receive that can be taken.
  std::atomic<std::uint64_t> posted;
};
inline constexpr std::uint32_t limit_was_reached = std::uint32_t{1} << 31;
static_assert(std::is_standard_layout_v<SharedReceiveEntry>);
static_assert(sizeof(SharedReceiveEntry) == 3 * line_bytes);
static_assert(offsetof(SharedReceiveEntry, taken) == line_bytes);
static_assert(offsetof(SharedReceiveEntry, wanted) == 2 * line_bytes);

/// What an initiator tells the target's owner.  `sequence` is position + 1, stored last (release):
/// who sees it (acquire) sees the entry and the data written before.
struct alignas(line_bytes) Completion {
  std::atomic<std::uint64_t> sequence;
  std::uint64_t wr_id;
  std::uint32_t status;  // ibv_wc_status
  std::uint32_t opcode;  // ibv_wc_opcode
  std::uint32_t bytes;
  std::uint32_t immediate;
  std::uint32_t flags;  // ibv_wc_flags
  std::uint32_t source;
  std::uint32_t is_event;   // 1: nothing to poll; the initiator moved the queue pair to ERR
  std::uint32_t is_urgent;  // solicited, or an error
};
static_assert(sizeof(Completion) == line_bytes);
static_assert(std::is_trivially_destructible_v<Completion>);
static_assert(offsetof(Completion, sequence) == 0);

/// Whether the owner of a completion queue wants an event for the next completion.
///
/// Who stores a completion exchanges the word afterwards, if only for what it was; who arms it
/// exchanges it and polls afterwards.  All exchange it (acquire and release), so one comes after
/// the other: either the completion's side finds the word armed, or the owner's poll finds the
/// completion.  A load on either side could miss both.
enum class Arming : std::uint32_t {
  idle,
  solicited,  // wanted for urgent completions
  any,
  claimed,  // an initiator has found it armed and calls the owner, or was killed before it could
};
struct alignas(line_bytes) ArmingEntry {
  std::atomic<Arming> state;
};
static_assert(sizeof(ArmingEntry) == line_bytes);
static_assert(std::atomic<Arming>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

/// Through which data go between an initiator and private memory of the owner that the system keeps
/// the initiator from: it asks for one copy at a time, the owner's helper thread makes it.
///
/// Nobody holds anything here.  The initiator writes while the two counts are equal, the owner
/// while they are not; whoever is killed between leaves counts that the other can judge, and a
/// reset of the queue pair, which no initiator outlasts, begins again at 0.
struct alignas(line_bytes) BounceArea {
  struct Piece {
    std::uint64_t address;
    std::uint32_t bytes;
    std::uint32_t key;
  };
  static constexpr std::size_t data_bytes = std::size_t{128} * 1024;

  // Copies asked for so far in this incarnation.  The engaged initiator counts (release) when all
  // that says which, and the data, are there; the owner looks here (acquire) when it is called.
  std::atomic<std::uint64_t> requested;
  std::uint32_t opcode;  // ibv_wr_opcode
  std::uint32_t pieces_count;
  std::uint64_t operand;  // of an atomic, as in Request
  std::uint64_t swap;
  Piece pieces[scatter_max];  // of the owner's memory

  // Copies answered so far: stored (release) after `error` and the data, loaded by the engaged
  // initiator (acquire), which writes here again only then.
  alignas(line_bytes) std::atomic<std::uint64_t> answered;
  std::uint32_t error;  // 0, or an errno value; EACCES: a key does not fit (any more)

  alignas(line_bytes) std::byte data[data_bytes];
};
static_assert(sizeof(BounceArea::Piece) == 16);
static_assert(std::is_standard_layout_v<BounceArea>);
static_assert(offsetof(BounceArea, answered) % line_bytes == 0);
static_assert(offsetof(BounceArea, data) % line_bytes == 0);
static_assert(sizeof(BounceArea) == offsetof(BounceArea, data) + BounceArea::data_bytes);

/// One datagram on its way.  `sequence` is position + 1, stored last (release) by the sender: the
/// owner that sees it (acquire) sees the datagram.  A sender that is killed before leaves nothing.
struct alignas(line_bytes) DatagramSlot {
  // 66 lines: more than the longest datagram and its header, and no multiple of a page, which would
  // have the slots' first lines compete for one set of the cache.
  static constexpr std::size_t data_bytes = 66 * line_bytes - 16;

  std::atomic<std::uint64_t> sequence;
  std::uint32_t bytes;
  std::uint32_t reserved;
  std::byte data[data_bytes];
};

/// Whether who has sent a datagram has to call the owner, whose helper thread then looks.
///
/// The sender stores a datagram and exchanges the word then, if only for what it was; the owner
/// makes it `wanted` by an exchange and looks for datagrams then.  All exchange it (acquire and
/// release), so one comes after the other: either the sender finds the call wanted, or the owner
/// finds the datagram.  It is `idle` only while a call is on its way, or while the helper thread is
/// going to look within a millisecond: a sender that is killed before it calls is followed by the
/// end of its connection, and one that is stopped there delays its own datagram, if nobody polls.
enum class Bell : std::uint32_t { idle, wanted };

/// Datagrams from one process to another.  Both ends are single: the sender's threads hold the
/// mutex of their process, the owner's that of theirs.  No lock lies in shared memory, so whoever
/// is stopped or killed blocks nobody.
struct alignas(line_bytes) DatagramRing {
  static constexpr std::uint64_t slots_count = 64;

  // Datagrams taken so far; release: their slots may be filled again (acquire).
  std::atomic<std::uint64_t> taken;
  alignas(line_bytes) std::atomic<Bell> bell;
  DatagramSlot slots[slots_count];
};
static_assert(sizeof(DatagramSlot) == 66 * line_bytes);
static_assert(offsetof(DatagramSlot, data) + DatagramSlot::data_bytes == sizeof(DatagramSlot));
static_assert(std::has_single_bit(DatagramRing::slots_count));
static_assert(std::atomic<Bell>::is_always_lock_free);
static_assert(offsetof(DatagramRing, bell) == line_bytes);
static_assert(offsetof(DatagramRing, slots) == 2 * line_bytes);

inline constexpr std::size_t regions_offset = 4096;
inline constexpr std::size_t queue_pairs_offset =
    regions_offset + regions_max * sizeof(RegionEntry);
inline constexpr std::size_t heap_offset =
    queue_pairs_offset + queue_pairs_max * sizeof(QueuePairEntry);
static_assert(sizeof(SegmentHeader) <= regions_offset);
static_assert(regions_offset % alignof(RegionEntry) == 0);
static_assert(queue_pairs_offset % alignof(QueuePairEntry) == 0);
static_assert(heap_offset % 4096 == 0);
static_assert(heap_offset < segment_bytes);

/// The named parts of a segment mapped at `base`.
struct SegmentView {
  std::byte* base = nullptr;

  template <class T>
  T* at(std::size_t offset) const {
    assert(base != nullptr);
    return reinterpret_cast<T*>(base + offset);
  }
  SegmentHeader& header() const { return *at<SegmentHeader>(0); }
  RegionEntry* regions() const { return at<RegionEntry>(regions_offset); }
  QueuePairEntry& queue_pair(std::uint32_t index) const {
    assert(index < queue_pairs_max);
    return at<QueuePairEntry>(queue_pairs_offset)[index];
  }
};

}  // namespace tutti::verbs::soft
