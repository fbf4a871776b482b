// A queue pair of this process, connected or for datagrams.  Its entry lies in the segment, where
// the connected initiator works on it; send queue, counters and attributes are private.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include <tutti/detail/bulk_copy.hpp>
#include "verbs/soft/bounce.hpp"
#include "verbs/soft/completion_queue.hpp"
#include "verbs/soft/event_queue.hpp"
#include "verbs/soft/handle_room.hpp"
#include "verbs/soft/layout.hpp"
#include "verbs/soft/limits.hpp"
#include "verbs/soft/peer.hpp"
#include "verbs/soft/receive_queue.hpp"
#include "verbs/soft/spin_lock.hpp"
#include "verbs/soft/transport_log.hpp"
#include "verbs/soft/work_request_builder.hpp"

namespace tutti::verbs::soft {

class Process;
class Timing;
struct CompletionQueue;

/// A request as it is executed.  Its lists belong to the caller or to a PendingRequest.
struct Request {
  std::uint64_t wr_id;
  std::uint64_t position;  // in the send queue
  const ibv_sge* gather;
  std::uint32_t gather_count;
  ibv_wr_opcode opcode;
  std::uint32_t immediate;
  std::uint32_t remote_key;
  std::uint64_t remote_address;
  std::uint64_t operand;  // of an atomic operation: what to compare with, or to add
  std::uint64_t swap;
  bool signaled;
  bool solicited;
  bool is_inline;  // the gather list holds addresses only, no keys to check
};

/// A request that could not be executed at once, with copies of everything that the caller may
/// reuse.
struct PendingRequest {
  Request request;
  // These are used in an emulated network; see Timing.
  std::int64_t due_ps =
      0;  // when it reaches the receiver's port; once executed: when it is answered
  std::uint32_t bytes = 0;
  ibv_wc_status fault = IBV_WC_SUCCESS;  // not success: the request ends with this when it is due
  std::uint64_t number = 0;              // in the order in which this process has posted them
  bool has_passed_port = false;
  std::array<ibv_sge, scatter_max> gather;
  std::array<std::byte, inline_max_bytes> inline_data;
};

/// Whether the system lets an initiator access the memory of its target's process.
enum class Access : std::uint8_t { unknown, allowed, forbidden };

/// What an initiator knows about its target.  It is valid for one status word of the target.
struct Target {
  struct CachedBacking {
    std::uint32_t number = 0;
    std::byte* base = nullptr;
    std::size_t bytes = 0;
  };

  QueuePairEntry* entry = nullptr;
  std::uint64_t status_word = 0;
  SegmentView segment;
  Completion* ring = nullptr;
  std::uint64_t ring_mask = 0;
  std::uint64_t consumed = 0;  // entries of the ring that were polled when seen last
  SharedReceiveEntry* shared_receives = nullptr;  // NULL: private receive queue
  bool wants_word = false;                        // for a completion: `arming` or `crowd` is there
  std::uint64_t call = 0;                         // to be made after the engagement; see Peer::call
  std::array<CachedBacking, 4> backings;
  Access access = Access::unknown;
  int refusal = 0;  // the errno value with which access is forbidden
  LoggedWays logged;
  // Behind what every request needs.
  ArmingEntry* arming = nullptr;  // NULL: there is no completion channel
  CrowdEntry* crowd = nullptr;    // NULL: its owner watches the ring
  std::uint32_t crowd_group = 0;
};

/// The state SQD.
struct Draining {
  std::uint64_t held_from = 0;  // position of the first request that waits for RTS
  bool active = false;          // requests before `held_from` are not done yet
  bool notify = false;          // an event is raised when they are done
};

/// Why the oldest pending request waits, and until when.
struct Patience {
  std::int64_t dropped_until_ns = 0;  // 0: the target answers
  std::int64_t rnr_until_ns = 0;      // 0: the target has not answered "receiver not ready"
  unsigned rnr_count = 0;
  std::int64_t look_again_ns = 0;
};

struct QueuePair : QueuePairHandle {
  QueuePair(Process& owner, std::uint32_t entry_index);

  Status status() const { return {entry.status.load(std::memory_order_acquire)}; }
  CompletionQueue& send_queue() const;
  CompletionQueue& receive_queue() const;
  /// Moves this incarnation to the error state; false when it is there already.
  bool fail() noexcept;

  Process& process;
  const std::uint32_t index;
  QueuePairEntry& entry;
  std::uint64_t token = 0;
  ibv_qp_init_attr initial{};     // as granted
  ibv_qp_attr attributes{};       // as modified
  std::uint32_t destination = 0;  // see find_destination(); 0: the path leads nowhere
  bool failure_reported = false;
  EventSource events;

  SpinLock send_lock;  // guards the send side
  std::shared_ptr<Peer> peer;
  Target target;
  detail::BulkCopy bulk;
  std::uint64_t sent = 0;  // position of the next request
  std::deque<PendingRequest> pending;
  Timing* timing = nullptr;  // the process's; NULL: there is no emulated network
  // The number of pending requests that are executed and wait for the answer; 0 unless the network
  // is emulated.
  std::size_t executed = 0;
  std::int64_t last_due_ps = 0;
  Patience patience;
  Draining draining;
  BounceProgress bounced;  // concerns the oldest pending request
  bool listed = false;     // whether the process's list of pending queue pairs has it
  // The number of requests whose slots are free again.  Stored by a poll (release), loaded by
  // post_send.
  std::atomic<std::uint64_t> retired{0};

  SpinLock receive_lock;  // guards `posted`, and the slots against flushing
  std::uint64_t posted = 0;
  // The number of receives whose completions were polled (release); their slots are free (acquire).
  std::atomic<std::uint64_t> released{0};

  // Guarded by the lock of the completion queue that receives complete to.
  Completion* ring = nullptr;
  std::uint64_t ring_mask = 0;
  std::uint64_t ring_head = 0;
  std::uint64_t completed = 0;  // receives that came from the ring, or were flushed
  std::uint64_t announced = 0;  // receives whose flush has raised an event before it can happen
  Watch* watch = nullptr;       // one of that queue's, or `unwatched`

  WorkRequestBuilder builder;

  static constexpr std::uint32_t no_seat = 0xffffffff;
  std::uint32_t crowd_seat = no_seat;  // its seat in that queue's crowd
  Watch unwatched;                     // of such a member: nobody looks

  /// Makes polls without the lock look where the next completion will appear.
  void watch_ring() noexcept {
    assert(watch != nullptr);
    assert(ring != nullptr);
    watch->expected.store(ring_head + 1, std::memory_order_relaxed);
    watch->sequence.store(&ring[ring_head & ring_mask].sequence, std::memory_order_release);
  }
};

inline QueuePair& pair_of(ibv_qp* pair) {
  assert(pair != nullptr);
  return *static_cast<QueuePair*>(pair);
}

ibv_qp* create_queue_pair(ibv_pd* domain, ibv_qp_init_attr* attributes);
int modify_queue_pair(ibv_qp* pair, ibv_qp_attr* attributes, int mask);
int query_queue_pair(ibv_qp* pair, ibv_qp_attr* attributes, int mask, ibv_qp_init_attr* initial);
int destroy_queue_pair(ibv_qp* pair);

}  // namespace tutti::verbs::soft
