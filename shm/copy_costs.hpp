// Measures what two ranks of a node pay for a payload, on this machine and at this moment.  Either
// one rank copies it into its mapping and the other out of it, or the other reads it where its user
// has it (peer_memory.hpp).  Which way is faster differs between machines by more than a factor of
// three, so it is measured when ranks meet.
//
//   leader    own memory -> its block, step k     sees answer k    ...    reads alone
//   partner                   sees step k, leader's block -> own memory, answer k
//
// In every round both ranks also copy at the same time, as in an exchange: each into its own block
// and then out of the other one's.  Where two CPUs are threads of one core that takes twice as long
// and more, which nothing but a try can tell: a virtual machine shows its CPUs as cores.  After
// these rounds both ranks read at the same time, a chunk and 512 KiB, and exchange copies of 512
// KiB in pieces, as in an exchange of long blocks: each rank waits for each piece of the other one.
// These times cannot be derived from what one rank takes alone (docs/performance.md, "Reading in
// place").
//
// A chunk is put in the three ways in which the engine does it.  The fastest of them counts: the
// engine chooses by what its own copies cost, which mostly leads to the same way.
//
//   plain stores            into one and the same block
//   streaming stores        into one and the same block (tutti/detail/bulk_copy.hpp)
//   plain stores            into one block after the other of a ring (staging_ring.hpp), after both
//                           ranks have gone round twice
//
// Each rank writes only to its own mapping: its blocks and one line of its board.  So a rank that
// comes late, or not at all, makes the other one wait for as long as its patience says, and does no
// other harm.  A rank drops what it has read of the other one's memory.
//
// Figures are those of the shortest tries, because any disturbance makes a try longer.  Tries are
// repeated until three of them agree, up to a maximum number.  If they do not agree by then, other
// programs disturb them, and there are no figures of copies.  Tries with both ranks on one CPU do
// not count, because nothing crosses from cache to cache there; nor do tries in which a word took
// so long that one of the ranks cannot have been running.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

namespace tutti::shm {

inline constexpr std::size_t costs_page_bytes = 4096;
inline constexpr std::size_t costs_chunk_bytes = 65536;
/// The engine cuts long blocks into chunks of this size (tune/chunks.cpp).
inline constexpr std::size_t costs_piece_bytes = 4 * costs_chunk_bytes;
/// With payloads of this size, the sources, targets and shared memory of both ranks together exceed
/// a second-level cache.
inline constexpr std::size_t costs_large_bytes = 2 * costs_piece_bytes;

/// Nanoseconds, if nothing else is said.  A plain value that allgather can carry.
struct CopyCosts {
  double word = 0;        // from a store until the other rank has seen it
  double read_call = 0;   // a process_vm_readv of 8 bytes
  double read_page = 0;   // a process_vm_readv of a whole page
  double read_chunk = 0;  // a process_vm_readv of a chunk
  double put_page = 0;    // a page copied from own memory into the mapping
  double put_chunk = 0;
  double get_page = 0;  // a page that another rank has just put there, copied into own memory
  double get_chunk = 0;
  double own_chunk = 0;  // a chunk copied within own memory
  /// A chunk put and then another one got, while the other rank does the same.
  double exchange_chunk = 0;
  double exchange_large = 0;      // costs_large_bytes likewise, piece by piece; 0: not measured
  double read_chunk_at_once = 0;  // a process_vm_readv of a chunk, while the other rank reads, too
  double read_large_at_once = 0;  // costs_large_bytes likewise; 0: not measured
  double second_cache_bytes = 0;  // not a time: what the system says; 0: it says nothing
  /// Only `word` holds: nothing else was to be measured, too few tries counted or agreed, or memory
  /// could not be read.
  bool is_word_alone = false;

  bool has_large() const noexcept { return exchange_large > 0 && read_large_at_once > 0; }

  /// Whether the two ranks share no cache: there a word took 240 to 270 ns, and 30 to 70 between
  /// CPUs that share one (docs/performance.md).
  bool caches_are_apart() const noexcept { return word > 150; }
  double read_per_byte() const noexcept {  // within a page
    return std::max(0.0, (read_page - read_call) / costs_page_bytes);
  }
  double read_per_page() const noexcept {  // without its bytes
    constexpr double pages = static_cast<double>(costs_chunk_bytes) / costs_page_bytes;
    return std::max(0.0, (read_chunk - read_call - read_per_byte() * costs_chunk_bytes) / pages);
  }
};

/// Lies in the first page of a mapping, behind its nonce; only the mapping's owner writes it.
struct CopyBoard {
  static constexpr std::size_t offset = 1024;
  /// Names the probe and the step that it has reached, so that one probe is never taken for
  /// another.  Release, after everything else that the owner has written; acquire, before the other
  /// rank reads that.  This covers the block's bytes, too.
  alignas(64) std::uint64_t step;
  std::uint64_t block;   // where the owner puts in this step, in its process
  std::uint64_t blocks;  // how many it has
  std::uint64_t cpu;     // the partner's CPU when it answered
  std::uint64_t get_ns;  // the time of the partner's last copy
  std::uint64_t way;     // what is done in this step, and how; the leader's
  std::uint64_t pieces;  // how many the owner has put in this probe; ordered as `step`
  std::uint64_t lent;    // address, in the owner's process, of what the other rank reads
};
static_assert(sizeof(CopyBoard) == 64);
static_assert(CopyBoard::offset % alignof(CopyBoard) == 0);
static_assert(CopyBoard::offset + sizeof(CopyBoard) <= costs_page_bytes);
static_assert(std::is_trivially_copyable_v<CopyCosts>);
static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);

/// One side of a probe.
struct CopyProbe {
  std::uint64_t id;  // names this probe, the same on both sides; the lowest 16 bits are 0
  CopyBoard* mine;
  const CopyBoard* theirs;
  /// Blocks of costs_chunk_bytes in this rank's mapping, one or a ring of them, one behind the
  /// other; none: there was no room, or there is nothing to measure, and the other rank is
  /// informed.
  std::span<std::byte> blocks;
  /// Where a block of the other rank, by its address there, lies in this process; never null.
  std::function<const std::byte*(std::uint64_t)> their_block_at;
  std::int32_t their_process;  // of the other rank; may be this process
  /// The leader's.  False: how long a word takes is measured alone, in microseconds.
  bool copies = true;
  std::chrono::nanoseconds patience = std::chrono::milliseconds(20);  // for the whole probe
  /// The leader's.  A round in which a word took longer does not count: between two CPUs it takes
  /// 30 to 500 ns.
  std::chrono::nanoseconds word_max = std::chrono::microseconds(1);
  double spread_max = 1.1;  // the leader's; tries agree if they differ by at most this factor
};

/// The shortest of several times, and whether they agree.
class LeastTime {
 public:
  void add(double taken_ns) noexcept {
    for (double& least : least_)
      if (taken_ns < least) std::swap(taken_ns, least);
  }
  /// The third-shortest time.  A single try may be shorter by chance, for example because its lines
  /// happened to be in no cache.
  double figure() const noexcept { return least_[2]; }
  /// Whether the three times after the shortest one differ by at most that factor.
  bool is_agreed(double spread_max) const noexcept {
    return least_[3] < none && least_[3] <= spread_max * least_[1];
  }

 private:
  static constexpr double none = std::numeric_limits<double>::infinity();
  std::array<double, 4> least_{none, none, none, none};  // in ascending order
};

/// The board of a mapping whose first page has nothing else behind the nonce.
inline CopyBoard* board_of(std::byte* mapping) noexcept {
  return reinterpret_cast<CopyBoard*>(mapping + CopyBoard::offset);
}

struct CopyOutcome {
  /// Only the leader has them.  Empty if the partner did not come, had no room, was too slow or
  /// never on another CPU; the cost of a word alone if tries did not agree, or if a rank could not
  /// read the other one's memory.
  std::optional<CopyCosts> costs = {};
  bool blocks_are_free = true;  // false: the other rank may still read them
};

/// The leader's side.
CopyOutcome measure_copies_as_leader(const CopyProbe& probe);

/// For a partner: waits until the leader begins.  False: it has nothing to measure, or does not
/// come; measure_copies_as_partner() then needs no blocks.
bool leader_begins(const CopyProbe& probe) noexcept;

/// The partner's side.
CopyOutcome measure_copies_as_partner(const CopyProbe& probe);

}  // namespace tutti::shm
