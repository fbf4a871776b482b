// What the processes of a host see of each other: the layout of the one segment that a process
// shares with its peers.  The initiator of a request reads and writes the target's segment
// directly, so every word here is either constant while it is visible, or atomic with the story of
// both sides beside it.  Cache lines are separated by who writes them:
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
//   ArmingEntry     owner and initiators         one for each completion queue with a channel
//   CrowdEntry      owner and initiators         one for each completion queue with many receivers
//   BounceArea    0 connected initiator          only where it cannot reach the owner's memory
//                 1 owner's helper thread
//   DatagramRing  0 owner                        read by the sender when the ring looks full
//                 1 sender and owner             rarely changed by the owner
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
inline constexpr std::uint32_t layout_version = 6;
inline constexpr std::size_t segment_bytes = std::size_t{1} << 30;  // sparse: committed on demand

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
  std::uint32_t id;     // part of the queue pair numbers of this process
  std::uint64_t nonce;  // 40 random bits that tell this process from a later one with the same id
  // The number of entries of the queue pair table that are backed by memory.  The owner raises it
  // (release) after it has allocated them; touching an entry beyond it could kill a peer for lack
  // of memory.
  std::atomic<std::uint32_t> queue_pairs_committed;

  // The initiator whose turn it is to change a word of this process's private memory, or 0.  An
  // initiator takes the turn by compare-exchange (acquire) and gives it back by another (release);
  // the owner takes it away from a dead one.  Initiators take turns because reading and writing
  // such a word are two system calls; this holds for all processes, the owner included.
  alignas(line_bytes) std::atomic<std::uint64_t> atomic_turn;

  // These belong to an emulated network.  `place` is the position of this process in it, a
  // constant.  The ports say until when they are taken in either direction, in picoseconds since
  // `epoch_ns` of the monotonic clock; they are unused where ranks share ports (shared_ports.hpp).
  // Relaxed: a sender takes a port's time and nothing else.
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

/// One memory region.  A reader takes the key, the fields and the key again (all acquire).  The
/// owner clears the key before it stores the fields, and stores the key after them (all release),
/// so two equal keys enclose fields of that key.  Only `access` may change under a key (seq_cst).
/// The other fields may change when the same key is used again; the owner then waits in between for
/// every engaged initiator, because it may have read the former fields.
struct alignas(line_bytes) RegionEntry {
  std::atomic<std::uint32_t> key;  // 0: the entry is not in use
  std::atomic<std::uint32_t> domain;
  std::atomic<std::uint32_t> access;   // ibv_access_flags
  std::atomic<std::uint32_t> backing;  // the owner's number of the file behind it; 0: none
  std::atomic<std::uint64_t> address;
  std::atomic<std::uint64_t> bytes;
  std::atomic<std::uint64_t> backing_offset;  // where `address` lies in that file
};
static_assert(std::is_standard_layout_v<RegionEntry>);
static_assert(sizeof(RegionEntry) == line_bytes);
static_assert(offsetof(RegionEntry, key) == 0);

/// Status word of a queue pair: state, number of the connected queue pair, incarnation.  They share
/// one word so that "ready, and connected to me" is one load, and so that a late initiator cannot
/// move the next incarnation to the error state.
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
  // This is Status::word.  The owner stores it (release) after the plain fields below, the
  // connected initiator loads it (acquire) before it uses them.  Either may change it to the error
  // state.
  std::atomic<std::uint64_t> status;
  std::atomic<std::uint32_t> access;     // ibv_access_flags; may change while connected
  std::atomic<std::uint32_t> rnr_timer;  // IB encoding; may change while connected
  // The fields below are constant from creation to destruction, while no initiator is engaged.
  std::uint32_t domain;
  std::uint32_t receive_slots;  // a power of two; 0: the receive queue is shared
  std::uint32_t receive_stride_bytes;
  std::uint32_t ring_slots;      // a power of two
  std::uint64_t receive_offset;  // ReceiveSlot[], or the SharedReceiveEntry
  std::uint64_t ring_offset;     // Completion[]
  // The port, see place_of(); 0: its link is down.  It is constant while the status says that the
  // queue pair receives: the initiator reads it (relaxed) once for each status word.
  std::atomic<std::uint32_t> place;
  std::uint64_t arming_offset;  // the ArmingEntry of the receive completion queue; 0: none

  // The initiator that is working on this queue pair, or 0.  It takes the word by compare-exchange
  // (seq_cst) before it checks status and keys; the owner changes status or key first and then
  // looks here (seq_cst).  So either the initiator sees the change, or the owner sees the initiator
  // and waits before memory is reused.
  alignas(line_bytes) std::atomic<std::uint64_t> engaged;
  // Counts engagements that have ended, and the looks that an initiator takes between the steps of
  // a long copy.  The initiator counts (release) before it clears `engaged`, and (seq_cst) before
  // it looks at status and keys again; see RunningEngagement.
  std::atomic<std::uint64_t> engagements;
  // The number of completions written so far.  The event, always the last entry of an incarnation,
  // is not counted.  Only the engaged initiator writes this; the owner reads it to count.
  std::atomic<std::uint64_t> produced;

  // The number of completions polled so far (release); the initiator must not overwrite later ones.
  alignas(line_bytes) std::atomic<std::uint64_t> consumed;
  // Constant like those of the first line; read once for each status word, so they lie here.
  std::uint64_t crowd_offset;  // the CrowdEntry of the receive completion queue to mark; 0: none
  std::uint32_t crowd_group;   // what to mark there

  // 1: an initiator waits for a receive or for the state RTR and wants a message.  Losing the
  // request is harmless, because the waiting side also looks by itself: relaxed.
  alignas(line_bytes) std::atomic<std::uint32_t> wanted;
  // Causes of asynchronous events, left by the engaged initiator: news_... bits that it adds by
  // fetch_or (release) before it changes the state, and that the owner takes.  Rarely used.
  std::atomic<std::uint32_t> news;
  // The offset of the owner's BounceArea for this queue pair, or one of bounce_....  The engaged
  // initiator replaces 0 by bounce_wanted and calls the owner, whose helper thread makes the area,
  // clears it and then stores its offset (release; the initiator acquires).  Rarely used.
  std::atomic<std::uint64_t> bounce;
};
inline constexpr std::uint64_t bounce_wanted = 1;
inline constexpr std::uint64_t bounce_refused = 2;    // the owner has no memory for it
inline constexpr std::uint32_t news_established = 1;  // a message came in the state RTR
inline constexpr std::uint32_t news_fatal = 2;        // this and the next two: with the state ERR
inline constexpr std::uint32_t news_request_error = 4;
inline constexpr std::uint32_t news_access_error = 8;
static_assert(sizeof(QueuePairEntry) == 4 * line_bytes);
static_assert(std::is_standard_layout_v<QueuePairEntry>);
static_assert(offsetof(QueuePairEntry, status) == 0);
static_assert(offsetof(QueuePairEntry, engaged) == line_bytes);
static_assert(offsetof(QueuePairEntry, consumed) == 2 * line_bytes);
static_assert(offsetof(QueuePairEntry, wanted) == 3 * line_bytes);

/// The engagement that the owner must wait for after it has changed a status or a key: the one that
/// was running at that time, until it ends or looks at them again.  Later engagements see the
/// change.  An initiator may begin one request right after the other, so that the owner might never
/// find `engaged` empty; therefore this class compares the count as well.
///
/// The owner's change, the loads here, and the initiator's count and look are all seq_cst: an owner
/// that has loaded the count from before a look made its change before that look.
class RunningEngagement {
 public:
  explicit RunningEngagement(const QueuePairEntry& entry)
      : entry_(&entry),
        // The order matters: an initiator seen in `engaged` has counted all engagements before its
        // own.
        engaged_(entry.engaged.load(std::memory_order_seq_cst)),
        ended_(entry.engagements.load(std::memory_order_seq_cst)) {}

  /// The token of the initiator, see Process::token(); 0: there was none.
  std::uint64_t initiator() const { return engaged_; }

  /// Acquire: what the initiator did is done.  It may still be engaged, but then has looked again.
  bool is_over() const {
    return engaged_ == 0 || entry_->engaged.load(std::memory_order_acquire) == 0 ||
           entry_->engagements.load(std::memory_order_acquire) != ended_;
  }
  /// Whether no initiator at all is engaged there.
  bool has_left() const { return entry_->engaged.load(std::memory_order_acquire) == 0; }

 private:
  const QueuePairEntry* entry_;
  std::uint64_t engaged_;
  std::uint64_t ended_;
};

/// A posted receive, followed by its scatter list.  `sequence` is position + 1: stored last
/// (release) by the owner, loaded first (acquire) by the initiator.
///
/// The other fields are relaxed: an initiator may read a slot of a shared queue that another
/// initiator has taken and the owner fills again.  It then discards what it has read, because
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
  std::uint32_t slots;  // a power of two
  std::uint32_t stride_bytes;
  std::uint32_t domain;
  // The owner wants an event when there are fewer receives than this; 0: it wants none.  The owner
  // stores the limit and then reads `taken`; an initiator increments `taken` and then reads the
  // limit (all seq_cst), so one of them finds the number below it.  The initiator reports that by
  // adding limit_was_reached.
  std::atomic<std::uint32_t> limit;

  // The number of receives taken so far.  An initiator reads the slot at this position and then
  // moves the count by compare-exchange (release).  If that succeeds the receive is its own, and
  // what it read was whole, because the owner loads the count (acquire) before it reuses a slot.
  // No lock is held: an initiator that is stopped or killed is in nobody's way.
  alignas(line_bytes) std::atomic<std::uint64_t> taken;

  alignas(line_bytes) std::atomic<std::uint32_t> wanted;  // as in QueuePairEntry
  // The number of receives posted so far; only the limit uses it.  It is stored before the slot's
  // sequence, so it is never behind a receive that can be taken.
  std::atomic<std::uint64_t> posted;
};
inline constexpr std::uint32_t limit_was_reached = std::uint32_t{1} << 31;
static_assert(std::is_standard_layout_v<SharedReceiveEntry>);
static_assert(sizeof(SharedReceiveEntry) == 3 * line_bytes);
static_assert(offsetof(SharedReceiveEntry, taken) == line_bytes);
static_assert(offsetof(SharedReceiveEntry, wanted) == 2 * line_bytes);

/// What an initiator reports to the target's owner.  `sequence` is position + 1 and is stored last
/// (release): whoever sees it (acquire) sees the entry and the data written before.
struct alignas(line_bytes) Completion {
  std::atomic<std::uint64_t> sequence;
  std::uint64_t wr_id;
  std::uint32_t status;  // ibv_wc_status
  std::uint32_t opcode;  // ibv_wc_opcode
  std::uint32_t bytes;
  std::uint32_t immediate;
  std::uint32_t flags;  // ibv_wc_flags
  std::uint32_t source;
  std::uint32_t is_event;  // 1: there is nothing to poll; the initiator moved the queue pair to ERR
  std::uint32_t is_urgent;  // solicited, or an error
};
static_assert(sizeof(Completion) == line_bytes);
static_assert(std::is_trivially_destructible_v<Completion>);
static_assert(offsetof(Completion, sequence) == 0);

/// Whether the owner of a completion queue wants an event for the next completion.
///
/// A thread that stores a completion exchanges the word afterwards, even if the value stays the
/// same; the owner arms it by an exchange and polls afterwards.  All exchanges are acquire and
/// release, so one comes after the other: either the completion's side finds the word armed, or the
/// owner's poll finds the completion.  A plain load on either side could miss both.
enum class Arming : std::uint32_t {
  idle,
  solicited,  // the owner wants an event for urgent completions
  any,
  claimed,  // an initiator found it armed and calls the owner, or was killed before it could
};
struct alignas(line_bytes) ArmingEntry {
  std::atomic<Arming> state;
};
static_assert(sizeof(ArmingEntry) == line_bytes);
static_assert(std::atomic<Arming>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

/// Which receivers of a completion queue may have a new completion, where there are so many that a
/// poll cannot look at each; see Crowd.  All in one line, so that a poll in vain costs one load.
///
/// An initiator stores the completion, sets the bit of the receiver's group, and sets `any`.  A
/// poll that finds `any` set takes it, takes the bits, and then looks at the rings of those groups.
/// Both words change by exchanges only, so each taker acquires what every setter since the last
/// taker has released.  If the initiator sets `any` before it is taken, the poll sees the bit, and
/// then the completion.  If it sets it later, the next poll finds it.  Were a bit set by a plain
/// store, two initiators of a word would overwrite each other's; were `any`, only the last one's
/// bit would be sure to be seen; were it not stored when it is set already, it might be taken in
/// between.
///
/// If an initiator is killed before it has marked its completion, the owner's helper thread marks
/// all of its receivers when the connection ends.  If it is stopped there, its own completion is
/// late, and nobody else's: no initiator relies on a mark of another.
struct alignas(line_bytes) CrowdEntry {
  static constexpr std::uint32_t words_count = 7;
  static constexpr std::uint32_t groups_count = words_count * 64;

  std::atomic<std::uint64_t> any;  // 1: there may be bits
  std::atomic<std::uint64_t> groups[words_count];
};
static_assert(sizeof(CrowdEntry) == line_bytes);
static_assert(std::is_standard_layout_v<CrowdEntry>);

/// Carries data between an initiator and private memory of the owner that the system does not let
/// the initiator access.  The initiator asks for one copy at a time; the owner's helper thread
/// makes it.
///
/// There is no lock.  The initiator writes while the two counts are equal, the owner while they
/// differ.  If one is killed in between, the counts tell the other how far it came; a reset of the
/// queue pair, during which no initiator is engaged, sets them to 0.
struct alignas(line_bytes) BounceArea {
  struct Piece {
    std::uint64_t address;
    std::uint32_t bytes;
    std::uint32_t key;
  };
  static constexpr std::size_t data_bytes = std::size_t{128} * 1024;

  // The number of copies asked for in this incarnation.  The engaged initiator increments it
  // (release) after it has written the question and the data; the owner reads it (acquire) when it
  // is called.
  std::atomic<std::uint64_t> requested;
  std::uint32_t opcode;  // ibv_wr_opcode
  std::uint32_t pieces_count;
  std::uint64_t operand;  // of an atomic operation, as in Request
  std::uint64_t swap;
  Piece pieces[scatter_max];  // in the owner's memory

  // The number of copies answered so far: stored (release) after `error` and the data, loaded by
  // the engaged initiator (acquire), which writes here again only afterwards.
  alignas(line_bytes) std::atomic<std::uint64_t> answered;
  std::uint32_t error;  // 0, or an errno value; EACCES: a key does not fit, or no longer does

  alignas(line_bytes) std::byte data[data_bytes];
};
static_assert(sizeof(BounceArea::Piece) == 16);
static_assert(std::is_standard_layout_v<BounceArea>);
static_assert(offsetof(BounceArea, answered) % line_bytes == 0);
static_assert(offsetof(BounceArea, data) % line_bytes == 0);
static_assert(sizeof(BounceArea) == offsetof(BounceArea, data) + BounceArea::data_bytes);

/// One datagram on its way.  `sequence` is position + 1 and is stored last (release) by the sender:
/// an owner that sees it (acquire) sees the datagram.  A sender killed before has sent nothing.
struct alignas(line_bytes) DatagramSlot {
  // 66 lines are more than the longest datagram and its header, and no multiple of a page:
  // otherwise the first lines of all slots would compete for one set of the cache.
  static constexpr std::size_t data_bytes = 66 * line_bytes - 16;

  std::atomic<std::uint64_t> sequence;
  std::uint32_t bytes;
  std::uint32_t reserved;
  std::byte data[data_bytes];
};

/// Whether the sender of a datagram has to call the owner, whose helper thread then looks.
///
/// The sender stores a datagram and then exchanges the word, even if the value stays the same; the
/// owner sets it to `wanted` by an exchange and then looks for datagrams.  All exchanges are
/// acquire and release, so one comes after the other: either the sender finds the call wanted, or
/// the owner finds the datagram.  The word is `idle` only while a call is on its way, or while the
/// helper thread is going to look within a millisecond.  If a sender is killed before it calls, the
/// end of its connection wakes the owner; if it is stopped there, its own datagram is late unless
/// somebody polls.
enum class Bell : std::uint32_t { idle, wanted };

/// Datagrams from one process to another.  Each end has one user: the sender's threads hold the
/// mutex of their process, the owner's threads that of theirs.  There is no lock in shared memory,
/// so a process that is stopped or killed blocks nobody.
struct alignas(line_bytes) DatagramRing {
  static constexpr std::uint64_t slots_count = 64;

  // The number of datagrams taken so far; release: their slots may be filled again (acquire).
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
