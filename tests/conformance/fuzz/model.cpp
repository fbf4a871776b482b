// See model.hpp.  The table of transitions follows ibv_modify_qp(3).
#include "model.hpp"

#include <algorithm>
#include <cstring>
#include <span>

namespace tutti::conformance::fuzz {
namespace {

constexpr std::uint32_t too_many = 100'000;  // the fuzzer asks for far less, or for more

struct Transition {
  ibv_qp_state from;
  ibv_qp_state to;
  int required;
  int optional;
};
constexpr int initial_bits = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int running_bits = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER;
constexpr Transition transitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, initial_bits, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, initial_bits},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     running_bits},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, running_bits},
};

constexpr int datagram_bits = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
constexpr int sending_bits = IBV_QP_CUR_STATE | IBV_QP_QKEY;
constexpr Transition transitions_of_datagrams[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, datagram_bits, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, datagram_bits},
    {IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, sending_bits},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, sending_bits},
    {IBV_QPS_SQE, IBV_QPS_RTS, 0, sending_bits},
};
constexpr std::uint32_t header_bytes = 40;

bool is_allowed(bool is_for_datagrams, ibv_qp_state from, ibv_qp_state to, int mask) {
  mask &= ~IBV_QP_STATE;
  if (to == IBV_QPS_RESET) return mask == 0;
  if (to == IBV_QPS_ERR) return mask == 0 && from != IBV_QPS_RESET;
  using Rows = std::span<const Transition>;
  const Rows rows = is_for_datagrams ? Rows(transitions_of_datagrams) : Rows(transitions);
  return std::any_of(rows.begin(), rows.end(), [&](const Transition& row) {
    return row.from == from && row.to == to && (mask & row.required) == row.required &&
           (mask & ~(row.required | row.optional)) == 0;
  });
}

bool is_valid(const ibv_qp_attr& values, int mask, ibv_qp_state current) {
  constexpr unsigned rights = all_access | IBV_ACCESS_REMOTE_ATOMIC;
  const auto fits = [mask](int bit, bool fine) { return (mask & bit) == 0 || fine; };
  return fits(IBV_QP_CUR_STATE, values.cur_qp_state == current) &&
         fits(IBV_QP_PKEY_INDEX, values.pkey_index == 0) &&
         fits(IBV_QP_PORT, values.port_num == 1) &&
         fits(IBV_QP_ACCESS_FLAGS, (values.qp_access_flags & ~rights) == 0) &&
         fits(IBV_QP_AV, values.ah_attr.port_num == 1) &&
         fits(IBV_QP_PATH_MTU, values.path_mtu >= IBV_MTU_256 && values.path_mtu <= IBV_MTU_4096) &&
         fits(IBV_QP_DEST_QPN, values.dest_qp_num <= 0xffffff) &&
         fits(IBV_QP_RETRY_CNT, values.retry_cnt <= 7) &&
         fits(IBV_QP_RNR_RETRY, values.rnr_retry <= 7);
}

bool is_atomic(int opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}
bool is_send(int opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM;
}
bool has_immediate(int opcode) {
  return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
bool takes_receive(int opcode) {
  return is_send(opcode) || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
bool returns_data(int opcode) {
  return opcode == IBV_WR_RDMA_READ || is_atomic(opcode);
}

ibv_wc_opcode completion_opcode(int opcode) {
  if (is_send(opcode)) return IBV_WC_SEND;
  if (opcode == IBV_WR_RDMA_READ) return IBV_WC_RDMA_READ;
  if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP) return IBV_WC_COMP_SWAP;
  return opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? IBV_WC_FETCH_ADD : IBV_WC_RDMA_WRITE;
}

std::uint32_t length_of(const Work& work) {
  std::uint32_t bytes = 0;
  for (std::uint32_t index = 0; index < work.count; ++index) bytes += work.pieces[index].length;
  return bytes;
}

/// What is refused when it is posted.
bool may_be_posted(const Pair& pair, const Work& work) {
  constexpr unsigned flags =
      IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;
  if (pair.is_for_datagrams && (!is_send(work.opcode) || work.remote > 0xffffff)) return false;
  const bool is_known =
      takes_receive(work.opcode) || returns_data(work.opcode) || work.opcode == IBV_WR_RDMA_WRITE;
  const bool is_inline = (work.flags & IBV_SEND_INLINE) != 0;
  return is_known && work.count <= pair.cap.max_send_sge && (work.flags & ~flags) == 0 &&
         !(is_inline && returns_data(work.opcode)) &&
         !(is_inline && length_of(work) > pair.cap.max_inline_data);
}

/// Bytes of a list of pieces, as far as `bytes` go; `visit` gets their offsets.
template <class Visit>
void for_each_byte(const Piece* first, std::size_t count, std::uint32_t bytes, const Visit& visit) {
  std::uint32_t done = 0;
  for (std::size_t piece = 0; piece < count; ++piece)
    for (std::uint32_t index = 0; index < first[piece].length && done < bytes; ++index, ++done)
      visit(done, first[piece].offset + index);
}

std::vector<std::byte> gathered(const Side& side, const Work& work) {
  std::vector<std::byte> data(length_of(work));
  for_each_byte(
      work.pieces.data(), work.count, length_of(work),
      [&](std::uint32_t index, std::uint32_t offset) { data[index] = side.memory[offset]; });
  return data;
}

Receive receive_of(const Work& work) {
  return {work.id, {work.pieces.begin(), work.pieces.begin() + work.count}};
}

}  // namespace

std::uint32_t Pair::rights() const {
  constexpr unsigned need_resources = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  return attributes.max_dest_rd_atomic != 0 ? attributes.qp_access_flags
                                            : attributes.qp_access_flags & ~need_resources;
}

const Region* Side::region_of(std::uint32_t key) const {
  for (const Region& region : regions)
    if (region.alive && region.key == key) return &region;
  return nullptr;
}

// --- Commands -----------------------------------------------------------------------------------

bool Model::apply(const Command& command, std::uint32_t& accepted) {
  Side& side = sides[command.side];
  needs_rest_ = is_waiting();
  may_be_lost_ = false;
  bool succeeds = true;
  switch (command.verb) {
    case Verb::create_shared:
      succeeds = command.cap.max_recv_wr != 0 && command.cap.max_recv_wr < too_many;
      if (succeeds) side.shared[command.slot] = {true, command.domain, command.cap, {}};
      break;
    case Verb::destroy_shared:
      succeeds = destroy_shared(command);
      break;
    case Verb::create_pair:
      succeeds = create_pair(command);
      break;
    case Verb::destroy_pair:
      side.pairs[command.slot] = {};
      break;
    case Verb::modify:
      succeeds = modify(command);
      break;
    case Verb::post_send:
      succeeds = post_send(command, accepted);
      break;
    case Verb::post_receive:
    case Verb::post_shared:
      succeeds = post_receives(command, accepted);
      break;
    case Verb::register_region: {
      const bool written =
          (command.access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
      succeeds = command.bytes != 0 && (command.access & IBV_ACCESS_MW_BIND) == 0 &&
                 (!written || (command.access & IBV_ACCESS_LOCAL_WRITE) != 0);
      if (succeeds)
        side.regions[command.slot] = {true,           command.domain, command.access,
                                      command.offset, command.bytes,  0};
      break;
    }
    case Verb::deregister:
      side.regions[command.slot] = {};
      break;
    case Verb::arm: {
      Queue::Arming& arming = side.queues[command.slot].arming;
      if (command.slot == channel_queue && arming != Queue::Arming::any)
        arming = command.count != 0 ? Queue::Arming::solicited : Queue::Arming::any;
      break;
    }
    case Verb::destroy_queue:
      succeeds = !queue_is_used(command.side, command.slot);
      if (succeeds) side.queues[command.slot] = {};  // another takes its place
      break;
    case Verb::deallocate_domain:
      succeeds = !domain_is_used(command.side, command.slot);
      break;
    case Verb::scribble:
      for (std::uint32_t offset = command.offset; offset < command.offset + command.bytes; ++offset)
        side.memory[offset] = scribbled(command.random, offset);
      break;
    case Verb::query:
    case Verb::poll:
    case Verb::take_event:
    case Verb::show_memory:
    case Verb::clear:
    case Verb::end:
      break;
  }
  advance();
  return succeeds;
}

bool Model::create_pair(const Command& command) {
  const ibv_qp_cap& cap = command.cap;
  if (cap.max_send_wr >= too_many || cap.max_recv_wr >= too_many || cap.max_send_sge >= too_many ||
      cap.max_recv_sge >= too_many || cap.max_inline_data >= too_many)
    return false;
  Pair& pair = sides[command.side].pairs[command.slot];
  pair = {};
  pair.alive = true;
  pair.domain = command.domain;
  pair.send_queue = command.send_queue;
  pair.receive_queue = command.receive_queue;
  pair.shared = command.shared;
  pair.signal_all = command.signal_all != 0;
  pair.is_for_datagrams = command.datagrams != 0;
  pair.cap = cap;
  return true;
}

bool Model::destroy_shared(const Command& command) {
  Side& side = sides[command.side];
  for (const Pair& pair : side.pairs)
    if (pair.alive && pair.shared == command.slot) return false;
  side.shared[command.slot] = {};
  return true;
}

bool Model::domain_is_used(std::uint32_t side, std::uint32_t domain) const {
  const auto uses = [&](const auto& object) { return object.alive && object.domain == domain; };
  const Side& of = sides[side];
  return std::any_of(of.pairs.begin(), of.pairs.end(), uses) ||
         std::any_of(of.regions.begin(), of.regions.end(), uses) ||
         std::any_of(of.shared.begin(), of.shared.end(), uses);
}

bool Model::queue_is_used(std::uint32_t side, std::uint32_t queue) const {
  const auto& pairs = sides[side].pairs;
  return std::any_of(pairs.begin(), pairs.end(), [&](const Pair& pair) {
    return pair.alive && (pair.send_queue == queue || pair.receive_queue == queue);
  });
}

void Model::forget(Pair& pair) {
  pair.pending.clear();
  pair.receives.clear();
  pair.sends_done.clear();
  pair.receives_done.clear();
  pair.sent = pair.retired = 0;
  pair.waits_for_shared = none;
}

bool Model::modify(const Command& command) {
  Pair& pair = sides[command.side].pairs[command.slot];
  const ibv_qp_attr& values = command.attributes;
  const int mask = command.mask;
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? values.qp_state : pair.state;
  if (!is_allowed(pair.is_for_datagrams, pair.state, to, mask) ||
      !is_valid(values, mask, pair.state))
    return false;
  if (to == IBV_QPS_ERR) {
    fail(command.side, pair);
    return true;
  }
  ibv_qp_attr& kept = pair.attributes;
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) kept.qp_access_flags = values.qp_access_flags;
  if ((mask & IBV_QP_QKEY) != 0) kept.qkey = values.qkey;
  if (to == IBV_QPS_RESET) {
    forget(pair);
    pair.reachable = false;
  }
  if (to == IBV_QPS_RTR) {
    kept.dest_qp_num = values.dest_qp_num;
    kept.max_dest_rd_atomic = values.max_dest_rd_atomic;
    pair.reachable = values.ah_attr.dlid == lid;
  }
  if (to == IBV_QPS_RTS && pair.state == IBV_QPS_RTR) {
    kept.timeout = values.timeout;
    kept.rnr_retry = values.rnr_retry;
    kept.max_rd_atomic = values.max_rd_atomic;
  }
  pair.state = to;
  return true;
}

bool Model::post_send(const Command& command, std::uint32_t& accepted) {
  Side& side = sides[command.side];
  Pair& pair = side.pairs[command.slot];
  for (accepted = 0; accepted < command.count; ++accepted) {
    const Work& work = command.works[accepted];
    if ((pair.state != IBV_QPS_RTS && pair.state != IBV_QPS_SQE && pair.state != IBV_QPS_ERR) ||
        !may_be_posted(pair, work) || pair.sent - pair.retired >= pair.cap.max_send_wr)
      return false;
    Send send{work, pair.signal_all || (work.flags & IBV_SEND_SIGNALED) != 0, pair.sent++, {}};
    if ((work.flags & IBV_SEND_INLINE) != 0) send.inline_data = gathered(side, work);
    // A word is changed where its file is mapped, and nowhere else.
    needs_rest_ |= any_request_may_wait || is_atomic(work.opcode);
    pair.pending.push_back(std::move(send));
    advance();
  }
  return true;
}

bool Model::post_receives(const Command& command, std::uint32_t& accepted) {
  Side& side = sides[command.side];
  const bool is_shared = command.verb == Verb::post_shared;
  Pair& pair = side.pairs[is_shared ? 0 : command.slot];
  Shared& shared = side.shared[is_shared ? command.slot : 0];
  const ibv_qp_cap& cap = is_shared ? shared.cap : pair.cap;
  for (accepted = 0; accepted < command.count; ++accepted) {
    const Work& work = command.works[accepted];
    if (work.count > cap.max_recv_sge) return false;
    if (is_shared) {
      if (shared.receives.size() >= cap.max_recv_wr) return false;
      shared.receives.push_back(receive_of(work));
      continue;
    }
    if (pair.shared != none || pair.state == IBV_QPS_RESET ||
        pair.receives.size() + pair.receives_done.size() >= cap.max_recv_wr)
      return false;
    if (pair.state == IBV_QPS_ERR)
      complete_receive(command.side, pair,
                       {.id = work.id, .status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV},
                       false);
    else
      pair.receives.push_back(receive_of(work));
  }
  return true;
}

// --- Execution ----------------------------------------------------------------------------------

void Model::advance() {
  constexpr std::uint32_t all_pairs = 2 * pairs_count;
  for (bool changed = true; changed;) {
    changed = false;
    for (std::uint32_t turn = 0; turn < all_pairs; ++turn) {
      const std::uint32_t number = goes_backward ? all_pairs - 1 - turn : turn;
      Pair& pair = sides[number / pairs_count].pairs[number % pairs_count];
      if (pair.alive && !pair.pending.empty()) changed |= advance(number / pairs_count, pair);
    }
  }
}

/// A datagram waits for nothing: its request ends at once, whether it arrives or not.
bool Model::advance_datagram(std::uint32_t side, Pair& pair) {
  const Send send = pair.pending.front();
  pair.pending.pop_front();
  if (pair.state != IBV_QPS_RTS) {
    complete_send(side, pair, send, IBV_WC_WR_FLUSH_ERR, 0);
    return true;
  }
  if (const Outcome outcome = check_local(sides[side], pair, send); outcome.kind != Kind::done) {
    pair.state = IBV_QPS_SQE;
    needs_rest_ = true;
    complete_send(side, pair, send, outcome.status, 0);
    return true;
  }
  deliver(side, pair, send);
  if (send.signaled) complete_send(side, pair, send, IBV_WC_SUCCESS, length_of(send.work));
  return true;
}

/// To where its key and number lead, if there is a receive that is long enough.
void Model::deliver(std::uint32_t side, const Pair& pair, const Send& send) {
  constexpr std::uint32_t own_key = 0x80000000;
  const Work& work = send.work;
  const std::uint32_t key =
      (work.remote_key & own_key) != 0 ? pair.attributes.qkey : work.remote_key;
  std::uint32_t number = 0;
  Pair* const target = find(static_cast<std::uint32_t>(work.remote), number);
  if (work.operand != 0 || !target || !target->is_for_datagrams) return;
  const bool listens = target->attributes.qkey == key &&
                       (target->state == IBV_QPS_RTR || target->state == IBV_QPS_RTS ||
                        target->state == IBV_QPS_SQE);
  Side& there = sides[number];
  std::deque<Receive>& queue =
      target->shared == none ? target->receives : there.shared[target->shared].receives;
  const std::uint32_t bytes = header_bytes + length_of(work);
  std::uint32_t room = 0;
  if (listens && !queue.empty())
    for (const Piece& piece : queue.front().pieces) room += piece.length;
  if (!listens || queue.empty() || room < bytes) {
    may_be_lost_ |= number != side;
    return;
  }
  const Receive receive = queue.front();
  queue.pop_front();
  Expected completion{.id = receive.id,
                      .opcode = IBV_WC_RECV,
                      .bytes = bytes,
                      .immediate = work.immediate,
                      .has_immediate = has_immediate(work.opcode),
                      .source = pair.number};
  const std::uint32_t domain =
      target->shared == none ? target->domain : there.shared[target->shared].domain;
  room = 0;
  for (const Piece& piece : receive.pieces) {
    if (room >= bytes || completion.status != IBV_WC_SUCCESS) break;
    if (piece.length == 0) continue;
    const Region* const region = there.region_of(piece.key);
    if (!region || region->domain != domain || (region->access & IBV_ACCESS_LOCAL_WRITE) == 0 ||
        !region->covers(piece.offset, piece.length))
      completion.status = IBV_WC_LOC_PROT_ERR;
    room += piece.length;
  }
  needs_rest_ = true;
  complete_receive(number, *target, completion, (work.flags & IBV_SEND_SOLICITED) != 0);
  if (completion.status != IBV_WC_SUCCESS) return fail(number, *target);
  std::vector<std::byte> data(header_bytes);  // zeros: there is no global route
  const std::vector<std::byte> payload =
      (work.flags & IBV_SEND_INLINE) != 0 ? send.inline_data : gathered(sides[side], work);
  data.insert(data.end(), payload.begin(), payload.end());
  for_each_byte(
      receive.pieces.data(), receive.pieces.size(), bytes,
      [&](std::uint32_t index, std::uint32_t offset) { there.memory[offset] = data[index]; });
}

bool Model::advance(std::uint32_t side, Pair& pair) {
  if (pair.is_for_datagrams) return advance_datagram(side, pair);
  const Send send = pair.pending.front();
  pair.waits_for_shared = none;
  if (pair.state == IBV_QPS_ERR) {
    pair.pending.pop_front();
    complete_send(side, pair, send, IBV_WC_WR_FLUSH_ERR, 0);
    return true;
  }
  Outcome outcome = execute(side, pair, send);
  constexpr unsigned for_ever = 7;
  if (outcome.kind == Kind::not_ready) {
    if (pair.attributes.rnr_retry == for_ever) return false;
    outcome.status = IBV_WC_RNR_RETRY_EXC_ERR;
  }
  if (outcome.kind == Kind::dropped) {
    if (pair.attributes.timeout == 0) return false;
    outcome.status = IBV_WC_RETRY_EXC_ERR;
  }
  pair.pending.pop_front();
  if (outcome.kind == Kind::done) {
    if (send.signaled) complete_send(side, pair, send, IBV_WC_SUCCESS, outcome.bytes);
    return true;
  }
  needs_rest_ = true;
  complete_send(side, pair, send, outcome.status, 0);
  fail(side, pair);
  if (outcome.target) fail(outcome.target_side, *outcome.target);
  return true;
}

Pair* Model::find(std::uint32_t number, std::uint32_t& side) {
  for (side = 0; side < sides.size(); ++side)
    for (Pair& pair : sides[side].pairs)
      if (pair.alive && pair.number == number) return &pair;
  return nullptr;
}

Model::Outcome Model::check_local(const Side& side, const Pair& pair, const Send& send) const {
  const Work& work = send.work;
  const bool returns = returns_data(work.opcode);
  const bool is_inline = (work.flags & IBV_SEND_INLINE) != 0;
  const auto failed = [](ibv_wc_status status) {
    return Outcome{.kind = Kind::failed, .status = status};
  };
  for (std::uint32_t index = 0; index < work.count; ++index) {
    const Piece& piece = work.pieces[index];
    if (is_inline || piece.length == 0) continue;
    const Region* const region = side.region_of(piece.key);
    if (!region || region->domain != pair.domain ||
        (returns && (region->access & IBV_ACCESS_LOCAL_WRITE) == 0) ||
        !region->covers(piece.offset, piece.length))
      return failed(IBV_WC_LOC_PROT_ERR);
  }
  if (returns && pair.attributes.max_rd_atomic == 0) return failed(IBV_WC_LOC_QP_OP_ERR);
  if (is_atomic(work.opcode) && length_of(work) != 8) return failed(IBV_WC_LOC_LEN_ERR);
  return {};
}

Model::Outcome Model::check_remote(Side& side, Pair& target, const Send& send) const {
  const Work& work = send.work;
  const std::uint32_t bytes = length_of(work);
  const auto failed = [&](ibv_wc_status status) {
    return Outcome{.kind = Kind::failed, .status = status, .target = &target};
  };
  const unsigned right = is_atomic(work.opcode)            ? IBV_ACCESS_REMOTE_ATOMIC
                         : work.opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ
                                                           : IBV_ACCESS_REMOTE_WRITE;
  if ((target.rights() & right) == 0) return failed(IBV_WC_REM_INV_REQ_ERR);
  if (bytes == 0) return {};
  const Region* const region = side.region_of(work.remote_key);
  if (!region || region->domain != target.domain || (region->access & right) == 0 ||
      !region->covers(work.remote - side.base, bytes))
    return failed(IBV_WC_REM_ACCESS_ERR);
  if (is_atomic(work.opcode) && work.remote % 8 != 0) return failed(IBV_WC_REM_INV_REQ_ERR);
  return {};
}

/// The receive completes here if it fails; `pieces` is where the message goes.
Model::Outcome Model::take_receive(Pair& pair, Pair& target, const Send& send,
                                   std::vector<Piece>& pieces) {
  std::uint32_t number = 0;
  (void)find(target.number, number);
  Side& side = sides[number];
  std::deque<Receive>& queue =
      target.shared == none ? target.receives : side.shared[target.shared].receives;
  if (queue.empty()) {
    if (target.shared != none) pair.waits_for_shared = number * shared_count + target.shared;
    return {.kind = Kind::not_ready};
  }
  const Receive receive = queue.front();
  queue.pop_front();
  pieces = receive.pieces;
  const bool scatters = is_send(send.work.opcode);
  Expected completion{.id = receive.id,
                      .opcode = scatters ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM,
                      .bytes = length_of(send.work),
                      .immediate = send.work.immediate,
                      .has_immediate = has_immediate(send.work.opcode),
                      .source = pair.number};
  Outcome outcome;
  const std::uint32_t domain =
      target.shared == none ? target.domain : side.shared[target.shared].domain;
  std::uint32_t room = 0;
  const auto failed = [&](ibv_wc_status status, ibv_wc_status of_receive) {
    completion.status = of_receive;
    outcome = {.kind = Kind::failed, .status = status, .target = &target};
  };
  for (const Piece& piece : receive.pieces) {
    if (!scatters || room >= completion.bytes || outcome.kind != Kind::done) break;
    if (piece.length == 0) continue;
    const Region* const region = side.region_of(piece.key);
    if (!region || region->domain != domain || (region->access & IBV_ACCESS_LOCAL_WRITE) == 0 ||
        !region->covers(piece.offset, piece.length))
      failed(IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR);
    room += piece.length;
  }
  if (scatters && outcome.kind == Kind::done && room < completion.bytes)
    failed(IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR);
  complete_receive(number, target, completion, (send.work.flags & IBV_SEND_SOLICITED) != 0);
  return outcome;
}

void Model::move_data(Side& from, Side& to, const Send& send,
                      const std::vector<Piece>& pieces) const {
  const Work& work = send.work;
  const std::uint32_t bytes = length_of(work);
  const auto remote = static_cast<std::uint32_t>(work.remote - to.base);
  if (is_atomic(work.opcode)) {
    std::uint64_t former = 0;
    std::memcpy(&former, &to.memory[remote], 8);
    std::uint64_t changed = former == work.operand ? work.swap : former;
    if (work.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) changed = former + work.operand;
    std::memcpy(&to.memory[remote], &changed, 8);
    for_each_byte(work.pieces.data(), work.count, 8,
                  [&](std::uint32_t index, std::uint32_t offset) {
                    from.memory[offset] = static_cast<std::byte>(former >> (8 * index));
                  });
    return;
  }
  if (work.opcode == IBV_WR_RDMA_READ) {
    for_each_byte(work.pieces.data(), work.count, bytes,
                  [&](std::uint32_t index, std::uint32_t offset) {
                    from.memory[offset] = to.memory[remote + index];
                  });
    return;
  }
  const bool is_inline = (work.flags & IBV_SEND_INLINE) != 0;
  const std::vector<std::byte> data = is_inline ? send.inline_data : gathered(from, work);
  if (is_send(work.opcode))
    for_each_byte(
        pieces.data(), pieces.size(), bytes,
        [&](std::uint32_t index, std::uint32_t offset) { to.memory[offset] = data[index]; });
  else
    std::copy(data.begin(), data.end(), to.memory.begin() + remote);
}

Model::Outcome Model::execute(std::uint32_t side, Pair& pair, const Send& send) {
  const Work& work = send.work;
  Outcome outcome = check_local(sides[side], pair, send);
  if (outcome.kind != Kind::done) return outcome;
  std::uint32_t target_side = 0;
  Pair* const target = find(pair.attributes.dest_qp_num, target_side);
  const bool listens = target && !target->is_for_datagrams &&
                       (target->state == IBV_QPS_RTR || target->state == IBV_QPS_RTS) &&
                       target->attributes.dest_qp_num == pair.number;
  if (!pair.reachable || !listens) return {.kind = Kind::dropped};
  std::vector<Piece> pieces;
  if (!is_send(work.opcode)) outcome = check_remote(sides[target_side], *target, send);
  if (outcome.kind == Kind::done && takes_receive(work.opcode))
    outcome = take_receive(pair, *target, send, pieces);
  outcome.target_side = target_side;
  if (outcome.kind != Kind::done) return outcome;
  outcome.bytes = length_of(work);
  if (outcome.bytes != 0) move_data(sides[side], sides[target_side], send, pieces);
  return outcome;
}

// --- Completions --------------------------------------------------------------------------------

void Model::notify(std::uint32_t side, std::uint32_t queue, bool is_urgent) {
  Queue::Arming& arming = sides[side].queues[queue].arming;
  if (arming == Queue::Arming::idle || (arming == Queue::Arming::solicited && !is_urgent)) return;
  arming = Queue::Arming::idle;
  ++sides[side].events;
  needs_rest_ = true;
}

void Model::complete_send(std::uint32_t side, Pair& pair, const Send& send, ibv_wc_status status,
                          std::uint32_t bytes) {
  pair.sends_done.push_back({.id = send.work.id,
                             .status = status,
                             .opcode = completion_opcode(send.work.opcode),
                             .bytes = bytes,
                             .position = send.position});
  notify(side, pair.send_queue, status != IBV_WC_SUCCESS);
}

void Model::complete_receive(std::uint32_t side, Pair& pair, const Expected& completion,
                             bool is_solicited) {
  pair.receives_done.push_back(completion);
  notify(side, pair.receive_queue, is_solicited || completion.status != IBV_WC_SUCCESS);
}

void Model::fail(std::uint32_t side, Pair& pair) {
  if (pair.state == IBV_QPS_ERR || pair.state == IBV_QPS_RESET) return;
  pair.state = IBV_QPS_ERR;
  pair.waits_for_shared = none;
  for (; !pair.pending.empty(); pair.pending.pop_front())
    complete_send(side, pair, pair.pending.front(), IBV_WC_WR_FLUSH_ERR, 0);
  for (; !pair.receives.empty(); pair.receives.pop_front())
    complete_receive(
        side, pair,
        {.id = pair.receives.front().id, .status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV},
        false);
}

std::string Model::take(std::uint32_t side, const ibv_wc& completion) {
  std::uint32_t number = 0;
  Pair* const pair = find(completion.qp_num, number);
  if (!pair || number != side) return "a completion of no queue pair";
  const bool is_receive = (completion.wr_id & receive_id) != 0;
  std::deque<Expected>& queue = is_receive ? pair->receives_done : pair->sends_done;
  if (queue.empty()) return "a completion that was not expected";
  const Expected expected = queue.front();
  queue.pop_front();
  if (completion.wr_id != expected.id) return "another request's completion";
  if (completion.status != expected.status)
    return std::string("status ") + ibv_wc_status_str(completion.status) + " instead of " +
           ibv_wc_status_str(expected.status);
  if (!is_receive) pair->retired = expected.position + 1;
  if (completion.status != IBV_WC_SUCCESS) return {};
  if (completion.opcode != expected.opcode) return "another opcode";
  if (!is_receive) return {};
  if (completion.byte_len != expected.bytes) return "another length";
  if (((completion.wc_flags & IBV_WC_WITH_IMM) != 0) != expected.has_immediate)
    return "an immediate value where none was sent, or none";
  if (expected.has_immediate && completion.imm_data != expected.immediate)
    return "another immediate value";
  return completion.src_qp == expected.source ? "" : "another source";
}

bool Model::is_waiting() const {
  return std::any_of(sides.begin(), sides.end(), [](const Side& side) {
    return std::any_of(side.pairs.begin(), side.pairs.end(),
                       [](const Pair& pair) { return !pair.pending.empty(); });
  });
}

bool Model::has_completions(std::uint32_t side) const {
  const auto& pairs = sides[side].pairs;
  return std::any_of(pairs.begin(), pairs.end(), [](const Pair& pair) {
    return !pair.sends_done.empty() || !pair.receives_done.empty();
  });
}

bool Model::agrees_with(const Model& other) const {
  const auto same_pair = [](const Pair& one, const Pair& two) {
    return one.state == two.state && one.pending.size() == two.pending.size() &&
           one.receives.size() == two.receives.size() && one.sends_done == two.sends_done &&
           one.receives_done == two.receives_done;
  };
  const auto same_shared = [](const Shared& one, const Shared& two) {
    return one.receives.size() == two.receives.size();
  };
  return std::equal(
      sides.begin(), sides.end(), other.sides.begin(), [&](const Side& one, const Side& two) {
        return one.events == two.events && one.memory == two.memory &&
               std::equal(one.pairs.begin(), one.pairs.end(), two.pairs.begin(), same_pair) &&
               std::equal(one.shared.begin(), one.shared.end(), two.shared.begin(), same_shared);
      });
}

bool Model::is_ambiguous() const {
  if (may_be_lost_) return true;
  std::array<unsigned, 2 * shared_count> waiting{};
  for (const Side& side : sides)
    for (const Pair& pair : side.pairs)
      if (pair.waits_for_shared != none && ++waiting[pair.waits_for_shared] > 1) return true;
  return false;
}

}  // namespace tutti::conformance::fuzz
