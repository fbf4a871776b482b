// The order within a request is: access check, receive taken, data written,
// completion stored (release).  A process that is killed between any two of these steps leaves
// words that its survivors can judge: the engaged word names it, and a count moves only after what
// it counts.
#include "verbs/soft/remote.hpp"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <utility>

#include "verbs/soft/atomic.hpp"
#include "verbs/soft/bounce.hpp"
#include "verbs/soft/context.hpp"
#include "verbs/soft/crowd.hpp"
#include "verbs/soft/limits.hpp"
#include "verbs/soft/memory.hpp"
#include "verbs/soft/notification.hpp"
#include "verbs/soft/race_detector.hpp"
#include "verbs/soft/receive_queue.hpp"

namespace tutti::verbs::soft {
namespace {

using Kind = Outcome::Kind;

/// Reads and atomics return data, so the target needs resources for each such request.
bool returns_data(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_READ || is_atomic(opcode);
}
bool has_immediate(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/// Holds the target's queue pair for one request; see QueuePairEntry::engaged.
class Engagement {
 public:
  Engagement(QueuePairEntry& entry, std::uint64_t token) noexcept : entry_(entry), token_(token) {
    assert(token != 0);
    std::uint64_t nobody = 0;
    engaged_ = entry.engaged.compare_exchange_strong(nobody, token, std::memory_order_seq_cst,
                                                     std::memory_order_relaxed);
  }
  Engagement(const Engagement&) = delete;
  Engagement& operator=(const Engagement&) = delete;
  ~Engagement() {
    // The word belongs to another initiator if the owner took this process for dead.
    if (!engaged_ || entry_.engaged.load(std::memory_order_relaxed) != token_) return;
    // Release, twice: an owner that sees the higher count, or no initiator, sees all that was done.
    // Only the engaged initiator counts.
    entry_.engagements.store(entry_.engagements.load(std::memory_order_relaxed) + 1,
                             std::memory_order_release);
    entry_.engaged.store(0, std::memory_order_release);
  }
  explicit operator bool() const { return engaged_; }

  /// Shows an owner that waits for this engagement that status and keys are looked at again from
  /// here on.  False when the owner took this process for dead.
  bool renew() noexcept {
    if (entry_.engaged.load(std::memory_order_relaxed) != token_) return false;
    // Sequentially consistent: it comes before the looks that follow; see RunningEngagement.
    entry_.engagements.store(entry_.engagements.load(std::memory_order_relaxed) + 1,
                             std::memory_order_seq_cst);
    return true;
  }

 private:
  QueuePairEntry& entry_;
  std::uint64_t token_;
  bool engaged_;
};

ibv_wc_status collect_local(const QueuePair& pair, const Request& request, Pieces& local) {
  const bool returns = returns_data(request.opcode);
  assert(request.gather_count <= scatter_max);
  const std::uint32_t needed = returns ? IBV_ACCESS_LOCAL_WRITE : 0;
  for (std::uint32_t index = 0; index < request.gather_count; ++index) {
    const ibv_sge& piece = request.gather[index];
    local.add(reinterpret_cast<void*>(piece.addr), piece.length);
    Region region;
    if (request.is_inline || piece.length == 0) continue;
    if (!find_region(pair.process.view(), piece.lkey, region) ||
        region.domain != pair.entry.domain || (region.access & needed) != needed ||
        !region.covers(piece.addr, piece.length))
      return IBV_WC_LOC_PROT_ERR;
  }
  if (returns) [[unlikely]] {
    if (pair.attributes.max_rd_atomic == 0) return IBV_WC_LOC_QP_OP_ERR;  // it would never be sent
    if (is_atomic(request.opcode) && local.bytes != sizeof(std::uint64_t))
      return IBV_WC_LOC_LEN_ERR;
  }
  return local.bytes > message_max_bytes ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS;
}

bool find_target(QueuePair& pair) {
  assert(!pair.target.entry);
  const SegmentView& segment = pair.peer->segment();
  const std::uint32_t index = index_of(pair.attributes.dest_qp_num);
  // Acquire: the entries that are counted are backed by memory.
  if (index >= segment.header().queue_pairs_committed.load(std::memory_order_acquire)) return false;
  pair.target.segment = segment;
  pair.target.entry = &segment.queue_pair(index);
  return true;
}

/// Leaves the cause of an asynchronous event for the owner.
void leave_news(Target& target, std::uint32_t news) {
  target.entry->news.fetch_or(news, std::memory_order_release);
  target.call = Peer::everything;
}

/// Reads what is constant as long as the target's status word stays the same.  False when the
/// target is not at the port that the address handle leads to.
bool learn(QueuePair& pair, std::uint64_t status_word) {
  assert(Status{status_word}.receives_from(pair.qp_num));
  Target& target = pair.target;
  const QueuePairEntry& entry = *target.entry;
  if (entry.place.load(std::memory_order_relaxed) != pair.destination) return false;
  // Anything bounced or claimed went to the former incarnation.
  if (Status{target.status_word}.incarnation() != Status{status_word}.incarnation())
    pair.bounced = {};
  target.status_word = status_word;
  target.ring = target.segment.at<Completion>(entry.ring_offset);
  target.ring_mask = entry.ring_slots - 1;
  target.consumed = entry.consumed.load(std::memory_order_acquire);
  target.shared_receives = entry.receive_slots == 0
                               ? target.segment.at<SharedReceiveEntry>(entry.receive_offset)
                               : nullptr;
  target.arming =
      entry.arming_offset == 0 ? nullptr : target.segment.at<ArmingEntry>(entry.arming_offset);
  target.crowd =
      entry.crowd_offset == 0 ? nullptr : target.segment.at<CrowdEntry>(entry.crowd_offset);
  target.crowd_group = entry.crowd_group % CrowdEntry::groups_count;
  target.wants_word = target.arming || target.crowd;
  if (Status{status_word}.state() == IBV_QPS_RTR) leave_news(target, news_established);
  if (pair.peer->is_self() && pair.process.settings().logs_transports)
    log_way_slow(pair, Way::self, nullptr, "both belong to this process");
  return true;
}

/// Whether there is room for one completion, and for the event that may follow it.
bool has_room(Target& target, std::uint64_t produced) {
  // A private receive queue never has more receives outstanding than the ring has entries.
  if (!target.shared_receives || produced - target.consumed < target.ring_mask) return true;
  // Acquire: the owner has read what may be overwritten now.
  target.consumed = target.entry->consumed.load(std::memory_order_acquire);
  return produced - target.consumed < target.ring_mask;
}

/// Tells an owner that cannot look at each ring, or does not poll, of a completion that was stored.
/// First the mark: an owner that is called because of the other word polls, and must find it.  Not
/// inlined: most requests would save registers for it.
[[gnu::noinline]] void give_word(Target& target, bool is_urgent) {
  if (target.crowd) mark(*target.crowd, target.crowd_group);
  if (target.arming && claim_arming(*target.arming, is_urgent, Arming::claimed) && target.call == 0)
    target.call = target.entry->arming_offset;
}

void complete_receive(QueuePair& pair, const Request& request, const Receive& receive,
                      std::size_t bytes, ibv_wc_status status) {
  assert(takes_receive(request.opcode));
  assert(bytes <= message_max_bytes);
  assert(pair.qp_num <= queue_pair_number_max);
  Target& target = pair.target;
  const std::uint64_t position = target.entry->produced.load(std::memory_order_relaxed);
  Completion& slot = target.ring[position & target.ring_mask];
  slot.wr_id = receive.wr_id;
  slot.status = status;
  slot.opcode = is_send(request.opcode) ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
  slot.bytes = static_cast<std::uint32_t>(bytes);
  slot.immediate = request.immediate;
  slot.flags = has_immediate(request.opcode) ? IBV_WC_WITH_IMM : 0;
  slot.source = pair.qp_num;
  slot.is_event = 0;
  const bool is_urgent = request.solicited || status != IBV_WC_SUCCESS;
  slot.is_urgent = is_urgent ? 1 : 0;
  // Release: a poll that sees the sequence sees the entry and the data written before it.
  slot.sequence.store(position + 1, std::memory_order_release);
  // Relaxed: the owner only counts with it, and the next initiator comes after a disengagement.
  target.entry->produced.store(position + 1, std::memory_order_relaxed);
  if (target.wants_word) [[unlikely]]
    give_word(target, is_urgent);
}

/// The asynchronous event that the responder gets.
std::uint32_t news_of(ibv_wc_status status) {
  if (status == IBV_WC_REM_ACCESS_ERR) return news_access_error;
  return status == IBV_WC_REM_INV_REQ_ERR ? news_request_error : news_fatal;
}

/// A responder's error moves its queue pair to the error state, too.  False when it has left this
/// incarnation, or is in that state already.
bool fail_target(Target& target, ibv_wc_status reason) {
  assert(reason != IBV_WC_SUCCESS);
  leave_news(target, news_of(reason));
  std::uint64_t word = target.status_word;
  // Only this incarnation may be changed; the owner may have changed the state meanwhile.
  while (Status{word}.incarnation() == Status{target.status_word}.incarnation() &&
         Status{word}.state() != IBV_QPS_ERR && Status{word}.state() != IBV_QPS_RESET)
    if (target.entry->status.compare_exchange_weak(word, Status{word}.with(IBV_QPS_ERR).word,
                                                   std::memory_order_seq_cst))
      return true;
  return false;
}

/// Makes the owner's poll look at the state.  Called after fail_target and the last completion.
void store_event(const Target& target) {
  const std::uint64_t position = target.entry->produced.load(std::memory_order_relaxed);
  Completion& slot = target.ring[position & target.ring_mask];
  slot.is_event = 1;
  // Release, as above.  It is no completion: `produced` stays, and nothing follows it in the ring.
  slot.sequence.store(position + 1, std::memory_order_release);
  if (target.crowd) mark(*target.crowd, target.crowd_group);
}

/// The pieces of the target's memory that a request touches: at the target's addresses and, where
/// possible, where they are mapped here.
struct RemotePieces {
  Pieces mapped;
  Pieces direct;
  bool all_mapped = true;
  bool bounced = false;  // neither mapped here nor within reach: see bounce.hpp
};

/// Where the peer's memory is in this process; NULL if it is not mapped.
std::byte* find_mapping(QueuePair& pair, const Region& region, std::uint64_t address,
                        std::size_t bytes, bool& refused) {
  assert(!pair.peer->is_self());
  refused = region.backing == 0;
  if (refused) return nullptr;
  Target::CachedBacking& cached =
      pair.target.backings[region.backing % pair.target.backings.size()];
  if (cached.number != region.backing) [[unlikely]] {
    const BackingView backing = pair.peer->find_backing(region.backing);
    refused = backing.state == BackingState::refused;
    if (backing.state != BackingState::mapped) return nullptr;
    cached = {region.backing, backing.base, backing.bytes};
    if (pair.process.settings().logs_transports)
      log_way_slow(pair, Way::shared_map, &region, "it lies in a sealed file");
  }
  const std::uint64_t offset = region.backing_offset + (address - region.address);
  refused = offset > cached.bytes || bytes > cached.bytes - offset;
  return refused ? nullptr : cached.base + offset;
}

/// Whether this process may access the target's memory.  Asked once for each target, because the
/// answer costs a system call.
bool may_access_target(QueuePair& pair, std::uint64_t address) {
  assert(!pair.peer->is_self());
  Target& target = pair.target;
  const Transport transport = pair.process.transport();
  if (transport == Transport::shared || transport == Transport::bounce) return false;
  if (target.access == Access::unknown) {
    target.refusal = refusal_of_process(pair.peer->process(), address);
    target.access = target.refusal == 0 ? Access::allowed : Access::forbidden;
  }
  return target.access == Access::allowed;
}

/// The reason why another way than a shared map is taken, for the log.
const char* reason_for(const QueuePair& pair, const Region& region, bool refused) {
  if (pair.process.transport() == Transport::bounce)
    return "TUTTI_SOFT_TRANSPORT=bounce demands it";
  if (pair.target.refusal != 0) return "process_vm_writev is refused";
  if (region.backing == 0) return "the memory is private";
  if (pair.process.transport() == Transport::cma) return "TUTTI_SOFT_TRANSPORT=cma demands it";
  return refused ? "the file cannot be mapped here" : "the file is not mapped here yet";
}

void log_way(QueuePair& pair, Way way, const Region& region, bool refused) {
  if (pair.process.settings().logs_transports) [[unlikely]]
    log_way_slow(pair, way, &region, reason_for(pair, region, refused), pair.target.refusal);
}

/// Adds memory that is not mapped here.  `refused`: it never will be.
Outcome add_unmapped(QueuePair& pair, const Region& region, std::uint64_t address, bool refused,
                     RemotePieces& remote) {
  remote.all_mapped = false;
  if (may_access_target(pair, address)) {
    log_way(pair, Way::cma, region, refused);
    return {.kind = Kind::done};
  }
  // The mapping that is on its way is then the only way.
  if (!refused) return {.kind = Kind::wait};
  const Transport transport = pair.process.transport();
  if (transport == Transport::automatic || transport == Transport::bounce) {
    // It begins only when the request has its place in the order, and nothing can fail any more.
    if (pair.pending.empty()) return {.kind = Kind::wait};
    remote.bounced = true;
    log_way(pair, Way::bounce, region, refused);
    return {.kind = Kind::done};
  }
  log_way(pair, Way::none, region, refused);
  return failure(IBV_WC_REM_OP_ERR, transport == Transport::shared ? ENOTSUP : pair.target.refusal);
}

Outcome add_remote(QueuePair& pair, const Region& region, std::uint64_t address, std::size_t bytes,
                   RemotePieces& remote) {
  assert(bytes != 0);
  remote.direct.add(reinterpret_cast<void*>(address), bytes);
  if (pair.peer->is_self()) {
    remote.mapped.add(reinterpret_cast<void*>(address), bytes);
    return {.kind = Kind::done};
  }
  const Transport transport = pair.process.transport();
  bool refused = transport == Transport::cma || transport == Transport::bounce;
  if (!refused) {
    if (std::byte* const mapped = find_mapping(pair, region, address, bytes, refused)) {
      remote.mapped.add(mapped, bytes);
      return {.kind = Kind::done};
    }
  }
  return add_unmapped(pair, region, address, refused, remote);
}

/// Adds the word of an atomic operation.  All initiators reach it in the same way, whatever their
/// transport.
Outcome add_remote_word(QueuePair& pair, const Region& region, std::uint64_t address,
                        RemotePieces& remote) {
  if (address % sizeof(std::uint64_t) != 0) return failure(IBV_WC_REM_INV_REQ_ERR);
  remote.direct.add(reinterpret_cast<void*>(address), sizeof(std::uint64_t));
  remote.all_mapped = region.backing != 0;
  if (pair.peer->is_self()) {
    remote.mapped.add(reinterpret_cast<void*>(address), sizeof(std::uint64_t));
    return {.kind = Kind::done};
  }
  if (!remote.all_mapped) return add_unmapped(pair, region, address, true, remote);
  bool refused = false;
  std::byte* const mapped = find_mapping(pair, region, address, sizeof(std::uint64_t), refused);
  if (refused) return failure(IBV_WC_REM_OP_ERR, EPERM);
  if (!mapped) return {.kind = Kind::wait};
  remote.mapped.add(mapped, sizeof(std::uint64_t));
  return {.kind = Kind::done};
}

/// Whether Driver::keep_lines_whole() has promised that this request is stored as a whole.
bool must_stay_whole(const QueuePair& pair, const Request& request, std::size_t bytes) {
  return pair.process.keeps_lines_whole() && request.is_inline &&
         request.opcode == IBV_WR_RDMA_WRITE && (bytes == 64 || bytes == 8) &&
         request.remote_address % bytes == 0;
}

/// Waits for the mapping; the data are written in no other way, not even if it never comes.
Outcome wait_for_mapping(QueuePair& pair, const Region& region) {
  const bool is_coming =
      region.backing != 0 && pair.peer->find_backing(region.backing).state != BackingState::refused;
  return is_coming ? Outcome{.kind = Kind::wait} : failure(IBV_WC_REM_OP_ERR, ENOTSUP);
}

/// Whether the request's key, rights and range fit.
bool may_access(const Target& target, const Request& request, std::size_t bytes, Region& region) {
  return find_region(target.segment, request.remote_key, region) &&
         region.domain == target.entry->domain &&
         (region.access & needed_right(request.opcode)) != 0 &&
         region.covers(request.remote_address, bytes);
}

/// Whether a piece of a receive may be written.
bool may_write(const Target& target, const ibv_sge& piece, Region& region) {
  const std::uint32_t domain =
      target.shared_receives ? target.shared_receives->domain : target.entry->domain;
  return find_region(target.segment, piece.lkey, region) && region.domain == domain &&
         (region.access & IBV_ACCESS_LOCAL_WRITE) != 0 && region.covers(piece.addr, piece.length);
}

/// Checks the request's right to the target's memory and finds that memory.
Outcome find_rdma_memory(QueuePair& pair, const Request& request, std::size_t bytes,
                         RemotePieces& remote) {
  const std::uint32_t needed = needed_right(request.opcode);
  const QueuePairEntry& entry = *pair.target.entry;
  if ((entry.access.load(std::memory_order_relaxed) & needed) == 0)
    return failure(IBV_WC_REM_INV_REQ_ERR);
  if (bytes == 0) return {.kind = Kind::done};  // no memory is accessed, so no key is checked
  assert(bytes <= message_max_bytes);
  Region region;
  if (!may_access(pair.target, request, bytes, region)) return failure(IBV_WC_REM_ACCESS_ERR);
  if (is_atomic(request.opcode))
    return add_remote_word(pair, region, request.remote_address, remote);
  const Outcome found = add_remote(pair, region, request.remote_address, bytes, remote);
  if (!remote.all_mapped && must_stay_whole(pair, request, bytes)) [[unlikely]]
    return wait_for_mapping(pair, region);
  return found;
}

/// Finds the memory of a receive.  `status`: how the receive completes.
Outcome find_receive_memory(QueuePair& pair, const Receive& receive, std::size_t bytes,
                            RemotePieces& remote, ibv_wc_status& status) {
  assert(receive.scatter_count <= scatter_max);
  for (std::uint32_t index = 0; index < receive.scatter_count && remote.direct.bytes < bytes;
       ++index) {
    const ibv_sge& piece = receive.scatter[index];
    Region region;
    if (piece.length == 0) continue;
    if (!may_write(pair.target, piece, region)) {
      status = IBV_WC_LOC_PROT_ERR;
      return failure(IBV_WC_REM_OP_ERR);
    }
    const Outcome added =
        add_remote(pair, region, piece.addr,
                   std::min<std::size_t>(piece.length, bytes - remote.direct.bytes), remote);
    if (added.kind != Kind::done) {
      status = IBV_WC_LOC_PROT_ERR;
      return added;
    }
  }
  if (remote.direct.bytes == bytes) return {.kind = Kind::done};
  assert(remote.direct.bytes < bytes);
  status = IBV_WC_LOC_LEN_ERR;
  return failure(IBV_WC_REM_INV_REQ_ERR);
}

/// Whether the target has closed itself to other processes since it was asked.
bool has_lost_access(QueuePair& pair, int error) {
  if (!is_refusal(error) || pair.process.transport() != Transport::automatic) return false;
  pair.target.access = Access::forbidden;
  pair.target.refusal = error;
  return true;
}

void send_mapped(QueuePair& pair, const Pieces& local, const Pieces& mapped) {
  const PastRaceDetector past(*pair.peer);
  copy(local, mapped, &pair.bulk);
}
int send_to_process(QueuePair& pair, const Pieces& local, const Pieces& direct) {
  const PastRaceDetector past(*pair.peer);
  return copy_to_process(pair.peer->process(), local, direct);
}

/// Copies between memory of both sides, of the same length.  0 or an errno value.
int move_part(QueuePair& pair, ibv_wr_opcode opcode, const Pieces& local, const Pieces& there,
              bool mapped) {
  assert(local.bytes == there.bytes);
  const bool reads = opcode == IBV_WR_RDMA_READ;
  if (!mapped && !pair.peer->is_there()) return ESRCH;
  if (!mapped)
    return reads ? copy_from_process(pair.peer->process(), there, local)
                 : send_to_process(pair, local, there);
  if (reads)
    copy(there, local);
  else
    send_mapped(pair, local, there);
  return 0;
}

/// A long copy looks after each step of this size whether it may go on, so whoever takes something
/// down waits for one step.  Plain stores take some 20 us for it.  The kernel needs up to 3 us
/// before it copies anything, so its steps are longer.
constexpr std::size_t step_bytes(bool mapped) {
  return mapped ? std::size_t{256} << 10 : std::size_t{1} << 20;
}

/// Looks again at what execute() and find_rdma_memory() or find_receive_memory() have checked:
/// `done` if it still holds.  `dropped`: the owner has destroyed the queue pair, and nothing of it
/// may be touched; with the status WR_FLUSH_ERR, the owner has moved it to the error state.
Outcome look_again(const QueuePair& pair, const Request& request, const Receive& receive,
                   std::size_t bytes, Engagement& engagement) {
  const Target& target = pair.target;
  assert(bytes > step_bytes(true));
  if (!engagement.renew()) return {.kind = Kind::dropped};
  const Status status{target.entry->status.load(std::memory_order_seq_cst)};
  if (status.incarnation() != Status{target.status_word}.incarnation())
    return {.kind = Kind::dropped};
  if (!status.receives_from(pair.qp_num))
    return {.kind = Kind::dropped, .status = IBV_WC_WR_FLUSH_ERR};
  Region region;
  if (!is_send(request.opcode))
    return may_access(target, request, bytes, region) ? Outcome{.kind = Kind::done}
                                                      : failure(IBV_WC_REM_ACCESS_ERR);
  for (std::uint32_t index = 0; index < receive.scatter_count; ++index)
    if (receive.scatter[index].length != 0 && !may_write(target, receive.scatter[index], region))
      return failure(IBV_WC_REM_OP_ERR);
  return {.kind = Kind::done};
}

Outcome move_data(QueuePair& pair, const Request& request, const Pieces& local,
                  const RemotePieces& remote, const Receive& receive, Engagement& engagement) {
  if (remote.bounced) return bounce(pair, request, local, receive);
  assert(!is_atomic(request.opcode));
  const bool mapped = remote.all_mapped;
  const Pieces& there = mapped ? remote.mapped : remote.direct;
  const std::size_t step = step_bytes(mapped);
  int error = 0;
  if (local.bytes <= step) [[likely]] {
    error = move_part(pair, request.opcode, local, there, mapped);
  } else {
    Outcome outcome{.kind = Kind::done};
    pair.bulk.begin_steps();
    for (std::size_t done = 0; error == 0 && done < local.bytes;) {
      if (done != 0) outcome = look_again(pair, request, receive, local.bytes, engagement);
      if (outcome.kind != Kind::done) break;
      // The last step is at least a word long: the last word of the whole is stored last, as one.
      const std::size_t left = local.bytes - done;
      const std::size_t bytes = left < step + line_bytes ? left : step;
      error = move_part(pair, request.opcode, part_of(local, done, bytes),
                        part_of(there, done, bytes), mapped);
      done += bytes;
    }
    pair.bulk.end_steps();
    if (outcome.kind != Kind::done) return outcome;
  }
  if (error == 0) return {.kind = Kind::done};
  return has_lost_access(pair, error) ? Outcome{.kind = Kind::wait} : failed_access(pair, error);
}

/// The former value goes where the answer of a read would go.
Outcome change_word(QueuePair& pair, const Request& request, const Pieces& local,
                    const RemotePieces& remote) {
  assert(local.bytes == sizeof(std::uint64_t));
  std::uint64_t former = 0;
  Outcome outcome{.kind = Kind::done};
  if (remote.bounced) return bounce(pair, request, local, {});
  if (remote.all_mapped) {
    assert(remote.mapped.count == 1);
    former = change_mapped_word(remote.mapped.items[0].iov_base, request);
  } else {
    outcome = change_private_word(pair, request, former);
  }
  if (outcome.kind == Kind::failed && has_lost_access(pair, static_cast<int>(outcome.vendor_error)))
    return {.kind = Kind::wait};
  if (outcome.kind != Kind::done) return outcome;
  Pieces answer;
  answer.add(&former, sizeof(former));
  copy(answer, local);
  return outcome;
}

/// Takes the receive that has been read; false when another initiator was faster.
bool claim_shared(Target& target, const Receive& receive) {
  if (!claim_shared_receive(*target.shared_receives, receive)) return false;
  if (finds_limit_reached(*target.shared_receives)) target.call = Peer::everything;
  return true;
}

/// Takes the receive that a request needs, once its memory can be reached: `done`, or `failed` with
/// `status` for the receive.  With any other outcome nothing has been taken.
Outcome take_receive(QueuePair& pair, const Request& request, std::size_t bytes,
                     RemotePieces& remote, Receive& receive, ibv_wc_status& status) {
  assert(takes_receive(request.opcode));
  Target& target = pair.target;
  SharedReceiveEntry* const shared = target.shared_receives;
  const bool scatters = is_send(request.opcode);
  const std::uint64_t produced = target.entry->produced.load(std::memory_order_relaxed);
  if (!has_room(target, produced)) return {.kind = Kind::wait};
  // An earlier attempt may have claimed a receive: see keep_receive().
  const bool claimed = shared && pair.bounced.has_receive;
  if (claimed) receive = pair.bounced.receive;
  for (;;) {
    const bool ready =
        claimed  ? true
        : shared ? read_shared_receive(target.segment, *shared, scatters, receive)
                 : read_receive(target.segment, *target.entry, produced, scatters, receive);
    if (!ready) {
      // Stored while engaged: as soon as nobody is, the memory of a shared queue may be reused.
      (shared ? shared->wanted : target.entry->wanted).store(1, std::memory_order_relaxed);
      return {.kind = Kind::not_ready};
    }
    Outcome found{.kind = Kind::done};
    status = IBV_WC_SUCCESS;
    if (scatters) {
      remote = {};
      found = find_receive_memory(pair, receive, bytes, remote, status);
    }
    if (found.kind == Kind::wait || !shared) return found;
    if (claimed) pair.bounced.has_receive = false;
    if (claimed || claim_shared(target, receive)) return found;
  }
}

/// Keeps a claimed receive for the next attempt, so that it is taken once.  The receive of a
/// private queue is found again.
void keep_receive(QueuePair& pair, const Receive& receive) {
  assert(receive.scatter_count <= scatter_max);
  if (!pair.target.shared_receives) return;
  pair.bounced.receive = receive;
  pair.bounced.has_receive = true;
}

/// The part of execute() that needs the engagement on the target.
Outcome execute_engaged(QueuePair& pair, const Request& request, const Pieces& local,
                        Engagement& engagement) {
  RemotePieces remote;
  Receive receive;
  ibv_wc_status receive_status = IBV_WC_SUCCESS;
  bool has_receive = false;
  Outcome outcome{.kind = Kind::done};
  if (!is_send(request.opcode)) outcome = find_rdma_memory(pair, request, local.bytes, remote);
  if (outcome.kind == Kind::done && takes_receive(request.opcode)) {
    outcome = take_receive(pair, request, local.bytes, remote, receive, receive_status);
    has_receive = true;
  }
  if (outcome.kind != Kind::done && outcome.kind != Kind::failed) return outcome;
  if (outcome.kind == Kind::done) {
    outcome = is_atomic(request.opcode)
                  ? change_word(pair, request, local, remote)
                  : move_data(pair, request, local, remote, receive, engagement);
    if (outcome.kind == Kind::wait) {  // for the turn of an atomic, or the target's help
      if (has_receive) keep_receive(pair, receive);
      return outcome;
    }
    if (outcome.kind == Kind::dropped) {  // in the middle; the receive that was taken is flushed
      if (has_receive && outcome.status == IBV_WC_WR_FLUSH_ERR)
        complete_receive(pair, request, receive, 0, IBV_WC_WR_FLUSH_ERR);
      return outcome;
    }
    if (outcome.kind != Kind::done) receive_status = IBV_WC_LOC_PROT_ERR;
  } else if (!has_receive && pair.bounced.has_receive) {
    // It was claimed when the memory of the write could still be reached.
    receive = pair.bounced.receive;
    receive_status = IBV_WC_WR_FLUSH_ERR;
    has_receive = true;
  }
  // The state comes first: whoever polls the completion of an error finds the state changed.
  assert(outcome.kind == Kind::done || outcome.kind == Kind::failed);
  const bool changed = outcome.kind == Kind::failed && fail_target(pair.target, outcome.status);
  if (has_receive) complete_receive(pair, request, receive, local.bytes, receive_status);
  if (changed) store_event(pair.target);
  outcome.bytes = static_cast<std::uint32_t>(local.bytes);
  return outcome;
}

/// Informs the target's owner that there is an event for it.  It must not be engaged then: the
/// owner would find the initiator still at work, and wait.
void call_owner(QueuePair& pair) {
  const std::uint64_t call = std::exchange(pair.target.call, 0);
  assert(call != 0);
  if (pair.peer->is_self())
    pair.process.answer_slow(call);
  else if (!pair.peer->call(call))
    pair.process.wake_helper();  // which tries again
}

}  // namespace

Outcome execute(QueuePair& pair, const Request& request) noexcept {
  assert(pair.send_lock.is_held());
  assert(pair.qp_type == IBV_QPT_RC);
  Pieces local;
  if (const ibv_wc_status status = collect_local(pair, request, local); status != IBV_WC_SUCCESS)
    return failure(status);
  if (pair.destination == 0) return {.kind = Kind::dropped};
  assert(pair.peer);
  switch (pair.peer->state()) {
    case PeerState::dead:
      return failure(IBV_WC_RETRY_EXC_ERR);
    case PeerState::attaching:
      return {.kind = Kind::wait};
    case PeerState::attached:
      break;
  }
  Target& target = pair.target;
  if (!target.entry && !find_target(pair)) return {.kind = Kind::dropped};
  QueuePairEntry& entry = *target.entry;
  // Checked before engaging as well, so as not to be in the way of the rightful initiator.
  if (!Status{entry.status.load(std::memory_order_acquire)}.receives_from(pair.qp_num))
    return {.kind = Kind::dropped};
  Outcome outcome;
  {
    Engagement engagement(entry, pair.token);
    if (!engagement) return {.kind = Kind::wait};
    const Status status{entry.status.load(std::memory_order_seq_cst)};
    if (!status.receives_from(pair.qp_num)) return {.kind = Kind::dropped};
    if (status.word != target.status_word && !learn(pair, status.word))
      return {.kind = Kind::dropped};
    outcome = execute_engaged(pair, request, local, engagement);
  }
  if (target.call != 0) [[unlikely]]
    call_owner(pair);
  return outcome;
}

Outcome failed_access(const QueuePair& pair, int error) noexcept {
  assert(error > 0);
  const bool is_dead = error == ESRCH || (error == EFAULT && pair.peer->leaves_slow());
  return failure(is_dead ? IBV_WC_RETRY_EXC_ERR : IBV_WC_REM_OP_ERR, error);
}

void ask_for_kick(const QueuePair& pair) noexcept {
  // An entry of the table is never freed: at worst its next owner sends a useless message.
  if (pair.target.entry) pair.target.entry->wanted.store(1, std::memory_order_relaxed);
}

}  // namespace tutti::verbs::soft
