#include "verbs/soft/datagram.hpp"

#include <endian.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>

#include "verbs/soft/address_handle.hpp"
#include "verbs/soft/datagram_sockets.hpp"
#include "verbs/soft/device.hpp"
#include "verbs/soft/memory.hpp"
#include "verbs/soft/process.hpp"
#include "verbs/soft/send.hpp"

namespace tutti::verbs::soft {
namespace {

/// Precedes the payload on its way.  Both ends are on one host, so its byte order is used.
struct DatagramHeader {
  std::uint32_t target;  // queue pair numbers
  std::uint32_t source;
  std::uint32_t queue_key;
  std::uint32_t immediate;
  std::uint32_t flags;  // ibv_wc_flags
  std::uint16_t service_level;
  std::uint16_t solicited;
  std::uint32_t target_place;  // places of ports, see place_of()
  std::uint32_t source_place;
  ibv_grh route;  // zero without IBV_WC_GRH
};
static_assert(sizeof(ibv_grh) == 40 && sizeof(DatagramHeader) == 72);
static_assert(sizeof(DatagramHeader) <= datagram_header_max_bytes);
static_assert(std::is_trivially_copyable_v<DatagramHeader>);
static_assert(std::has_unique_object_representations_v<DatagramHeader>);
static_assert(sizeof(Message) < sizeof(DatagramHeader));  // a socket tells them apart by that

using Bytes = std::array<std::byte, sizeof(DatagramHeader) + datagram_max_bytes>;

// --- Sending ------------------------------------------------------------------------------------

/// Copies the payload behind the header; IBV_WC_SUCCESS, or the status that the request ends with.
ibv_wc_status gather(const QueuePair& pair, const ibv_send_wr& posted, Bytes& to,
                     std::size_t& bytes) {
  bytes = sizeof(DatagramHeader);
  for (int index = 0; index < posted.num_sge; ++index) {
    const ibv_sge& piece = posted.sg_list[index];
    if (piece.length == 0) continue;
    Region region;
    if ((posted.send_flags & IBV_SEND_INLINE) == 0 &&
        (!find_region(pair.process.view(), piece.lkey, region) ||
         region.domain != pair.entry.domain || !region.covers(piece.addr, piece.length)))
      return IBV_WC_LOC_PROT_ERR;
    if (piece.length > to.size() - bytes) return IBV_WC_LOC_LEN_ERR;
    std::memcpy(to.data() + bytes, reinterpret_cast<const void*>(piece.addr), piece.length);
    bytes += piece.length;
  }
  assert(bytes <= to.size());
  return IBV_WC_SUCCESS;
}

ibv_grh route_of(const ibv_ah_attr& attributes, const ibv_gid& source, std::size_t payload_bytes) {
  constexpr std::size_t transport_bytes = 12 + 8 + 4;  // two headers and the checksum
  constexpr std::uint8_t infiniband = 0x1b;
  const ibv_global_route& global = attributes.grh;
  ibv_grh route{};
  route.version_tclass_flow =
      htobe32(6U << 28 | std::uint32_t{global.traffic_class} << 20 | (global.flow_label & 0xfffff));
  route.paylen = htobe16(static_cast<std::uint16_t>(payload_bytes + transport_bytes));
  route.next_hdr = infiniband;
  route.hop_limit = global.hop_limit;
  route.sgid = source;
  route.dgid = global.dgid;
  return route;
}

void transmit(QueuePair& pair, const ibv_send_wr& posted, Bytes& datagram, std::size_t bytes) {
  assert(bytes >= sizeof(DatagramHeader));
  assert(bytes <= sizeof(datagram));
  constexpr std::uint32_t own_key = 0x80000000;  // this bit means: the queue pair's own key
  const auto& handle = *static_cast<const AddressHandle*>(posted.wr.ud.ah);
  const std::uint32_t place = pair.entry.place.load(std::memory_order_relaxed);
  if (handle.destination == 0 || place == 0) return;
  DatagramHeader header{};
  header.target = posted.wr.ud.remote_qpn;
  assert(header.target <= queue_pair_number_max);
  assert(handle.destination <= places_count);
  header.source = pair.qp_num;
  header.queue_key =
      (posted.wr.ud.remote_qkey & own_key) != 0 ? pair.attributes.qkey : posted.wr.ud.remote_qkey;
  if (posted.opcode == IBV_WR_SEND_WITH_IMM) {
    header.immediate = posted.imm_data;
    header.flags |= IBV_WC_WITH_IMM;
  }
  header.service_level = handle.attributes.sl;
  header.target_place = handle.destination;
  header.source_place = place;
  header.solicited = (posted.send_flags & IBV_SEND_SOLICITED) != 0 ? 1 : 0;
  if (handle.attributes.is_global != 0) {
    header.route =
        route_of(handle.attributes, gid_of(place, pair.process.host()), bytes - sizeof(header));
    header.flags |= IBV_WC_GRH;
  }
  std::memcpy(datagram.data(), &header, sizeof(header));
  Process& process = pair.process;
  const auto sent = std::span(datagram).first(bytes);
  const std::uint32_t id = process_id_of(header.target);
  if (id == process.id())
    deliver_datagram(process, sent);
  else if (process.datagrams.send(id, process.connections.message(MessageKind::datagrams), sent))
    process.wake_helper();
}

void complete(QueuePair& pair, const ibv_send_wr& posted, std::uint64_t position,
              ibv_wc_status status) {
  assert(pair.send_lock.is_held());
  LocalCompletion added{};
  added.completion.wr_id = posted.wr_id;
  added.completion.status = status;
  added.completion.opcode = IBV_WC_SEND;
  added.completion.qp_num = pair.qp_num;
  added.pair = &pair;
  added.retires = position + 1;
  CompletionQueue& queue = pair.send_queue();
  const std::lock_guard guard(queue.lock);
  queue.push(added);
}

/// A request that fails stops the send queue; datagrams still arrive.
void stop_sending(QueuePair& pair) {
  std::uint64_t word = pair.status().word;
  // The exchange fails when a receive has failed meanwhile, and the queue pair with it.
  if (Status{word}.state() == IBV_QPS_RTS)
    pair.entry.status.compare_exchange_strong(word, Status{word}.with(IBV_QPS_SQE).word,
                                              std::memory_order_seq_cst);
}

/// Sends the datagram of an accepted request, or flushes it.  Throws std::bad_alloc before either.
void send_taken(QueuePair& pair, const ibv_send_wr& posted, std::uint64_t position) {
  assert(pair.qp_type == IBV_QPT_UD);
  assert(pair.send_lock.is_held());
  if (pair.status().state() != IBV_QPS_RTS)
    return complete(pair, posted, position, IBV_WC_WR_FLUSH_ERR);
  Bytes datagram;
  std::size_t bytes = 0;
  const ibv_wc_status status = gather(pair, posted, datagram, bytes);
  if (status == IBV_WC_SUCCESS)
    transmit(pair, posted, datagram, bytes);
  else
    stop_sending(pair);
  const bool signaled =
      pair.initial.sq_sig_all != 0 || (posted.send_flags & IBV_SEND_SIGNALED) != 0;
  if (signaled || status != IBV_WC_SUCCESS) complete(pair, posted, position, status);
}

/// Converts a datagram that is posted in the state SQD into a request to be held.  The address
/// handle and the numbers take the place of the target's memory.
Request held_request(const QueuePair& pair, const ibv_send_wr& posted) {
  return {.wr_id = posted.wr_id,
          .position = pair.sent,
          .gather = posted.sg_list,
          .gather_count = static_cast<std::uint32_t>(posted.num_sge),
          .opcode = posted.opcode,
          .immediate = posted.imm_data,
          .remote_key = posted.wr.ud.remote_qkey,
          .remote_address = reinterpret_cast<std::uint64_t>(posted.wr.ud.ah),
          .operand = posted.wr.ud.remote_qpn,
          .swap = 0,
          .signaled = (posted.send_flags & IBV_SEND_SIGNALED) != 0,
          .solicited = (posted.send_flags & IBV_SEND_SOLICITED) != 0,
          .is_inline = (posted.send_flags & IBV_SEND_INLINE) != 0};
}

/// Converts a held request back.
ibv_send_wr posted_request(const Request& held) {
  assert(held.gather_count <= scatter_max);
  assert(held.operand <= queue_pair_number_max);
  ibv_send_wr posted{};
  posted.wr_id = held.wr_id;
  posted.sg_list = const_cast<ibv_sge*>(held.gather);
  posted.num_sge = static_cast<int>(held.gather_count);
  posted.opcode = held.opcode;
  if (held.signaled) posted.send_flags |= IBV_SEND_SIGNALED;
  if (held.solicited) posted.send_flags |= IBV_SEND_SOLICITED;
  if (held.is_inline) posted.send_flags |= IBV_SEND_INLINE;
  posted.imm_data = held.immediate;
  posted.wr.ud.ah = reinterpret_cast<ibv_ah*>(held.remote_address);
  posted.wr.ud.remote_qpn = static_cast<std::uint32_t>(held.operand);
  posted.wr.ud.remote_qkey = held.remote_key;
  return posted;
}

int post_one(QueuePair& pair, const ibv_send_wr& posted) {
  const ibv_qp_state state = pair.status().state();
  if (state != IBV_QPS_RTS && state != IBV_QPS_SQD && state != IBV_QPS_SQE && state != IBV_QPS_ERR)
    return EINVAL;
  if (const int error = check_datagram(pair, posted)) return error;
  assert(pair.retired.load(std::memory_order_relaxed) <= pair.sent);
  // Acquire: nothing but the count; it pairs with the release of the poll.
  if (pair.sent - pair.retired.load(std::memory_order_acquire) >= pair.initial.cap.max_send_wr)
    return ENOMEM;
  if (state == IBV_QPS_ERR) flush_sends(pair);  // earlier requests complete first
  if (state == IBV_QPS_SQD)
    hold(pair, held_request(pair, posted));
  else
    send_taken(pair, posted, pair.sent);
  ++pair.sent;
  return 0;
}

// --- Receiving ----------------------------------------------------------------------------------

QueuePair* find_target(const Process& process, const DatagramHeader& header) {
  for (QueuePair* const pair : process.queue_pairs) {
    if (pair->qp_num != header.target) continue;
    const ibv_qp_state state = pair->status().state();
    const bool takes = pair->qp_type == IBV_QPT_UD &&
                       (state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD ||
                        state == IBV_QPS_SQE) &&
                       pair->attributes.qkey == header.queue_key &&
                       pair->entry.place.load(std::memory_order_relaxed) == header.target_place;
    return takes ? pair : nullptr;
  }
  return nullptr;
}

/// Collects the pieces of the receive, cut to `bytes`; IBV_WC_SUCCESS, or how the receive
/// completes.
ibv_wc_status scatter(const QueuePair& pair, const Receive& receive, std::size_t bytes,
                      Pieces& target) {
  const std::uint32_t domain = pair.srq ? pair.srq->pd->handle : pair.entry.domain;
  for (std::uint32_t index = 0; index < receive.scatter_count && target.bytes < bytes; ++index) {
    const ibv_sge& piece = receive.scatter[index];
    Region region;
    if (piece.length == 0) continue;
    if (!find_region(pair.process.view(), piece.lkey, region) || region.domain != domain ||
        (region.access & IBV_ACCESS_LOCAL_WRITE) == 0 || !region.covers(piece.addr, piece.length))
      return IBV_WC_LOC_PROT_ERR;
    target.add(reinterpret_cast<void*>(piece.addr),
               std::min<std::size_t>(piece.length, bytes - target.bytes));
  }
  assert(target.bytes <= bytes);
  return IBV_WC_SUCCESS;
}

bool has_room(const Receive& receive, std::size_t bytes) {
  std::size_t room = 0;
  for (std::uint32_t index = 0; index < receive.scatter_count; ++index)
    room += receive.scatter[index].length;
  return room >= bytes;
}

/// Takes a receive that is long enough.  One that is too short stays, and the datagram is dropped.
bool take_receive(const QueuePair& pair, std::size_t bytes, Receive& receive) {
  const SegmentView view = pair.process.view();
  if (!pair.srq)
    return read_receive(view, pair.entry, pair.completed, true, receive) &&
           has_room(receive, bytes);
  SharedReceiveEntry& shared = *static_cast<SharedReceiveQueue*>(pair.srq)->entry;
  do {
    if (!read_shared_receive(view, shared, true, receive) || !has_room(receive, bytes))
      return false;
  } while (!claim_shared_receive(shared, receive));
  if (finds_limit_reached(shared)) pair.process.look_slow();
  return true;
}

}  // namespace

int check_datagram(const QueuePair& pair, const ibv_send_wr& posted) {
  constexpr unsigned flags =
      IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;
  const ibv_ah* const handle = posted.wr.ud.ah;
  if ((posted.opcode != IBV_WR_SEND && posted.opcode != IBV_WR_SEND_WITH_IMM) ||
      posted.num_sge < 0 ||
      static_cast<std::uint32_t>(posted.num_sge) > pair.initial.cap.max_send_sge ||
      (posted.send_flags & ~flags) != 0 || !handle || handle->pd != pair.pd ||
      posted.wr.ud.remote_qpn > 0xffffff)
    return EINVAL;
  if ((posted.send_flags & IBV_SEND_INLINE) == 0) return 0;
  std::uint64_t bytes = 0;
  for (int index = 0; index < posted.num_sge; ++index) bytes += posted.sg_list[index].length;
  return bytes > pair.initial.cap.max_inline_data ? EINVAL : 0;
}

int post_datagram(QueuePair& pair, const ibv_send_wr& posted) noexcept {
  try {
    return post_one(pair, posted);
  } catch (const std::bad_alloc&) {  // no memory for a socket's queue: the request was not accepted
    return ENOMEM;
  }
}

int post_datagrams(QueuePair& pair, ibv_send_wr* first, ibv_send_wr** bad) noexcept {
  const std::lock_guard process_guard(pair.process.mutex);
  const std::lock_guard guard(pair.send_lock);
  for (; first; first = first->next) {
    if (const int error = post_datagram(pair, *first); error != 0) {
      *bad = first;
      return error;
    }
  }
  return 0;
}

void send_held_datagrams(QueuePair& pair) noexcept {
  assert(pair.qp_type == IBV_QPT_UD);
  assert(pair.send_lock.is_held());
  for (; !pair.pending.empty(); pair.pending.pop_front()) {
    const Request& held = pair.pending.front().request;
    const ibv_send_wr posted = posted_request(held);
    try {
      send_taken(pair, posted, held.position);
    } catch (const std::bad_alloc&) {  // no memory for a socket's queue: lost, as datagrams may be
      if (held.signaled || pair.initial.sq_sig_all != 0)
        complete(pair, posted, held.position, IBV_WC_SUCCESS);
    }
  }
}

void deliver_datagram(Process& process, std::span<const std::byte> bytes) noexcept {
  DatagramHeader header;
  if (bytes.size() < sizeof(header) || bytes.size() > sizeof(Bytes)) return;
  std::memcpy(&header, bytes.data(), sizeof(header));
  QueuePair* const pair = find_target(process, header);
  if (!pair) return;

  const auto payload = bytes.subspan(sizeof(header));
  Pieces source, target;
  source.add(&header.route, sizeof(header.route));
  source.add(const_cast<std::byte*>(payload.data()), payload.size());
  CompletionQueue& queue = pair->receive_queue();
  const std::lock_guard guard(queue.lock);
  Receive receive;
  if (!take_receive(*pair, source.bytes, receive)) return;
  const ibv_wc_status status = scatter(*pair, receive, source.bytes, target);
  if (status == IBV_WC_SUCCESS)
    copy(source, target);
  else
    pair->fail();  // done first: whoever polls the completion finds the state changed

  LocalCompletion arrived{};
  arrived.completion.wr_id = receive.wr_id;
  arrived.completion.status = status;
  arrived.completion.opcode = IBV_WC_RECV;
  arrived.completion.byte_len = static_cast<std::uint32_t>(source.bytes);
  arrived.completion.imm_data = header.immediate;
  arrived.completion.qp_num = pair->qp_num;
  arrived.completion.src_qp = header.source;
  arrived.completion.wc_flags = header.flags;
  arrived.completion.slid = lid_of(header.source_place, process.host());
  arrived.completion.sl = static_cast<std::uint8_t>(header.service_level);
  arrived.pair = pair;
  arrived.is_receive = true;
  arrived.solicited = header.solicited != 0;
  ++pair->completed;
  queue.push(arrived);
}

}  // namespace tutti::verbs::soft
