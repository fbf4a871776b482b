// See generator.hpp.
#include "generator.hpp"

#include <algorithm>

namespace tutti::conformance::fuzz {
namespace {

constexpr std::uint32_t far_too_many = 1'000'000;

struct Weight {
  Verb verb;
  unsigned weight;
};
constexpr Weight weights[] = {
    {Verb::create_shared, 3},
    {Verb::destroy_shared, 2},
    {Verb::create_pair, 16},
    {Verb::destroy_pair, 4},
    {Verb::modify, 80},
    {Verb::query, 4},
    {Verb::post_send, 90},
    {Verb::post_receive, 25},
    {Verb::post_shared, 12},
    {Verb::register_region, 24},
    {Verb::deregister, 4},
    {Verb::poll, 20},
    {Verb::arm, 8},
    {Verb::destroy_queue, 4},
    {Verb::deallocate_domain, 4},
    {Verb::scribble, 6},
};

constexpr int opcodes[] = {IBV_WR_SEND,
                           IBV_WR_SEND,
                           IBV_WR_SEND_WITH_IMM,
                           IBV_WR_RDMA_WRITE,
                           IBV_WR_RDMA_WRITE_WITH_IMM,
                           IBV_WR_RDMA_READ,
                           IBV_WR_ATOMIC_CMP_AND_SWP,
                           IBV_WR_ATOMIC_FETCH_AND_ADD};

bool takes_receive(int opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
         opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
bool returns_data(int opcode) {
  return opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
         opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

constexpr std::uint32_t queue_key = 0x1234;

int mask_for(ibv_qp_state from, ibv_qp_state to, bool is_for_datagrams) {
  if (is_for_datagrams) {
    if (to == IBV_QPS_INIT) return IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
    return to == IBV_QPS_RTS && from == IBV_QPS_RTR ? int{IBV_QP_SQ_PSN} : 0;
  }
  switch (to) {
    case IBV_QPS_INIT:
      return IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    case IBV_QPS_RTR:
      return IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    case IBV_QPS_RTS:
      return IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
             IBV_QP_MAX_QP_RD_ATOMIC;
    case IBV_QPS_RESET:
    case IBV_QPS_SQD:
    case IBV_QPS_SQE:
    case IBV_QPS_ERR:
    case IBV_QPS_UNKNOWN:
      break;
  }
  return 0;
}

bool overlap(const Work& work) {
  for (std::uint32_t first = 0; first < work.count; ++first)
    for (std::uint32_t second = first + 1; second < work.count; ++second) {
      const Piece &one = work.pieces[first], &other = work.pieces[second];
      if (one.offset < other.offset + other.length && other.offset < one.offset + one.length)
        return true;
    }
  return false;
}

}  // namespace

template <class Objects>
bool Generator::pick(const Objects& objects, bool alive, std::uint32_t& slot) {
  const auto count = static_cast<std::uint32_t>(objects.size());
  const std::uint32_t first = below(count);
  for (std::uint32_t tries = 0; tries < count; ++tries) {
    slot = (first + tries) % count;
    if (objects[slot].alive == alive) return true;
  }
  return false;
}

Command Generator::next(const Model& model) {
  unsigned total = 0;
  for (const Weight& entry : weights) total += entry.weight;
  for (;;) {
    Command command{};
    command.side = below(2);
    std::uint32_t drawn = below(total);
    const Weight* entry = weights;
    for (; drawn >= entry->weight; ++entry) drawn -= entry->weight;
    command.verb = entry->verb;
    if (fill(model, command)) return command;
  }
}

bool Generator::fill(const Model& model, Command& command) {
  const Side& side = model.sides[command.side];
  command.domain = chance(88) ? 0 : 1;
  switch (command.verb) {
    case Verb::create_shared:
      fill_create_shared(command);
      return pick(side.shared, false, command.slot);
    case Verb::destroy_shared:
      return pick(side.shared, true, command.slot);
    case Verb::create_pair:
      return fill_create_pair(model, command);
    case Verb::destroy_pair:
    case Verb::query:
      return pick(side.pairs, true, command.slot);
    case Verb::modify:
      if (!pick(side.pairs, true, command.slot)) return false;
      fill_modify(model, side.pairs[command.slot], command);
      return true;
    case Verb::post_send:
      if (!pick(side.pairs, true, command.slot)) return false;
      if (!wants(model, side.pairs[command.slot])) return false;
      fill_sends(model, side.pairs[command.slot], command);
      if (side.pairs[command.slot].is_for_datagrams) fill_datagrams(model, command);
      return true;
    case Verb::post_receive:
      if (!pick(side.pairs, true, command.slot)) return false;
      if (side.pairs[command.slot].state == IBV_QPS_ERR && !chance(10)) return false;
      fill_receives(side, side.pairs[command.slot].domain,
                    side.pairs[command.slot].cap.max_recv_sge, command);
      return true;
    case Verb::post_shared:
      if (!pick(side.shared, true, command.slot)) return false;
      fill_receives(side, side.shared[command.slot].domain,
                    side.shared[command.slot].cap.max_recv_sge, command);
      return true;
    case Verb::register_region:
      return fill_region(side, command);
    case Verb::deregister:
      return pick(side.regions, true, command.slot);
    case Verb::poll:
      command.slot = below(queues_count);
      command.count = 1 + below(polled_max);
      return true;
    case Verb::arm:
      command.slot = below(queues_count);
      command.count = below(2);
      return true;
    case Verb::destroy_queue:
      command.slot = below(queues_count);
      return true;
    case Verb::deallocate_domain:
      command.slot = below(domains_count);
      return true;
    case Verb::scribble:
      command.offset = below(half_bytes);
      command.bytes = below(half_bytes - command.offset);
      command.random = random_();
      return true;
    case Verb::take_event:
    case Verb::show_memory:
    case Verb::clear:
    case Verb::end:
      break;
  }
  return false;
}

void Generator::fill_create_shared(Command& command) {
  command.cap.max_recv_wr = 1 + below(8);
  command.cap.max_recv_sge = 1 + below(4);
  if (chance(5)) command.cap.max_recv_wr = chance(50) ? 0 : far_too_many;
}

bool Generator::fill_create_pair(const Model& model, Command& command) {
  const Side& side = model.sides[command.side];
  if (!pick(side.pairs, false, command.slot)) return false;
  command.send_queue = below(queues_count);
  command.receive_queue = below(queues_count);
  command.shared = none;
  if (chance(30) && !pick(side.shared, true, command.shared)) command.shared = none;
  command.signal_all = chance(10) ? 1 : 0;
  ibv_qp_cap& cap = command.cap;
  cap.max_send_wr = 1 + below(8);
  cap.max_recv_wr = chance(5) ? 0 : 1 + below(8);
  cap.max_send_sge = 1 + below(4);
  cap.max_recv_sge = 1 + below(4);
  cap.max_inline_data = below(64);
  if (chance(4)) cap.max_send_wr = far_too_many;
  if (chance(4)) cap.max_recv_sge = far_too_many;
  if (chance(4)) cap.max_inline_data = far_too_many;
  // Kept sequences without datagrams stay what they are.
  command.datagrams = model.has_datagrams && chance(50) ? 1 : 0;
  return true;
}

void Generator::fill_modify(const Model& model, const Pair& pair, Command& command) {
  ibv_qp_state to = IBV_QPS_RESET;
  switch (pair.state) {
    case IBV_QPS_RESET:
      to = IBV_QPS_INIT;
      break;
    case IBV_QPS_INIT:
      to = IBV_QPS_RTR;
      break;
    case IBV_QPS_RTR:
      to = IBV_QPS_RTS;
      break;
    case IBV_QPS_RTS:
      to = chance(94) ? IBV_QPS_RTS : (chance(50) ? IBV_QPS_ERR : IBV_QPS_RESET);
      break;
    case IBV_QPS_SQE:
      to = IBV_QPS_RTS;
      break;
    case IBV_QPS_ERR:
    case IBV_QPS_SQD:
    case IBV_QPS_UNKNOWN:
      break;
  }
  if (chance(4)) to = static_cast<ibv_qp_state>(below(IBV_QPS_UNKNOWN + 1));
  if (to == IBV_QPS_SQD) to = IBV_QPS_SQE;  // the model knows no draining: drain_test.cpp
  command.mask = IBV_QP_STATE | mask_for(pair.state, to, pair.is_for_datagrams);
  if (to == IBV_QPS_RTS && pair.state == IBV_QPS_RTS) command.mask = IBV_QP_STATE;
  if (chance(30) && to == pair.state) command.mask |= IBV_QP_ACCESS_FLAGS;
  if (chance(5)) command.mask ^= 1 << below(22);
  if (chance(3)) command.mask ^= 1 << below(22);
  command.attributes.qp_state = to;
  fill_values(model, pair, command);
}

void Generator::fill_values(const Model& model, const Pair& pair, Command& command) {
  ibv_qp_attr& values = command.attributes;
  values.cur_qp_state = chance(90) ? pair.state : IBV_QPS_INIT;
  values.qkey = queue_key;
  values.pkey_index = chance(98) ? 0 : 3;
  values.port_num = chance(98) ? 1 : 2;
  values.qp_access_flags = all_access | IBV_ACCESS_REMOTE_ATOMIC;
  if (chance(4)) values.qp_access_flags = below(16);
  if (chance(2)) values.qp_access_flags = 1 << 12;
  values.ah_attr.port_num = chance(98) ? 1 : 2;
  values.ah_attr.dlid = chance(99) ? model.lid : static_cast<std::uint16_t>(model.lid + 1);
  values.path_mtu = chance(98) ? IBV_MTU_1024 : static_cast<ibv_mtu>(chance(50) ? 0 : 6);
  values.max_dest_rd_atomic = chance(95) ? 1 : 0;
  values.max_rd_atomic = chance(95) ? 1 : 0;
  values.min_rnr_timer = 1;  // 10 us
  values.timeout = chance(85) ? 1 : 0;
  values.retry_cnt = static_cast<std::uint8_t>(chance(98) ? below(4) : 8);
  values.rnr_retry = static_cast<std::uint8_t>(chance(80) ? 7 : below(4));
  // The first two queue pairs of a process are meant for the other process, the next two for each
  // other.
  const std::uint32_t slot = command.slot;
  const std::uint32_t partner_side = slot < 2 ? 1 - command.side : command.side;
  const Pair& partner = model.sides[partner_side].pairs[slot < 2 ? slot : slot ^ 1];
  const Pair& any = model.sides[below(2)].pairs[below(pairs_count)];
  values.dest_qp_num = chance(95) ? partner.number : any.number;
  if (values.dest_qp_num == 0) values.dest_qp_num = pair.number;
  // The number keeps its process, and most likely belongs to no queue pair.
  if (errs()) values.dest_qp_num ^= 0x800;
  if (errs()) values.dest_qp_num |= 1 << 24;
}

/// Whether a request has a chance; some are wanted without.
bool Generator::wants(const Model& model, const Pair& pair) {
  if (chance(4)) return true;
  if (pair.state != IBV_QPS_RTS) return false;
  if (pair.is_for_datagrams) return true;
  for (const Side& side : model.sides)
    for (const Pair& other : side.pairs)
      if (other.alive && other.number == pair.attributes.dest_qp_num &&
          other.attributes.dest_qp_num == pair.number &&
          (other.state == IBV_QPS_RTR || other.state == IBV_QPS_RTS))
        return true;
  return chance(4);
}

Piece Generator::piece(const Side& side, std::uint32_t domain, bool in_second_half) {
  const std::uint32_t first = in_second_half ? regions_count / 2 : 0;
  const std::uint32_t half = in_second_half ? half_bytes : 0;
  constexpr unsigned wanted = all_access | IBV_ACCESS_REMOTE_ATOMIC;
  const auto any = [&] { return side.regions[first + below(regions_count / 2)]; };
  Region region = any();
  const auto fits = [&] {
    return region.alive && region.domain == domain && region.access == wanted;
  };
  for (std::uint32_t tries = 0; tries < 12 && !fits(); ++tries) region = any();
  Piece made{};
  if (region.alive && !errs()) {
    made.offset = region.offset + below(region.bytes);
    made.length = below(std::min(region.offset + region.bytes - made.offset + 1, 200U));
    made.key = region.key;
  } else {
    made.offset = half + below(half_bytes);
    made.length = below(200);
    made.key = region.alive ? region.key : 1;
  }
  if (errs()) made.key ^= 1U << below(32);
  if (errs()) made.length += below(200);
  made.length = std::min(made.length, half + half_bytes - made.offset);
  return made;
}

void Generator::fill_pieces(const Side& side, std::uint32_t domain, bool in_second_half,
                            bool is_sink, Work& work) {
  for (std::uint32_t index = 0; index < work.count; ++index)
    work.pieces[index] = piece(side, domain, in_second_half);
  if (is_sink && overlap(work)) work.count = 1;
}

void Generator::fill_remote(const Model& model, const Pair& pair, Work& work) {
  std::uint32_t target = below(2);
  std::uint32_t domain = 0;
  for (std::uint32_t side = 0; side < 2; ++side)
    for (const Pair& other : model.sides[side].pairs)
      if (other.alive && other.number == pair.attributes.dest_qp_num) {
        target = side;
        domain = other.domain;
      }
  const Side& side = model.sides[target];
  std::uint32_t bytes = 0;
  for (std::uint32_t index = 0; index < work.count; ++index) bytes += work.pieces[index].length;
  Piece place = piece(side, domain, true);
  for (unsigned tries = 0; tries < 8; ++tries) {
    const Region* const region = side.region_of(place.key);
    if (region && region->offset >= half_bytes && region->bytes >= bytes) {
      place.offset = region->offset + below(region->bytes - bytes + 1);
      break;
    }
    place = piece(side, domain, true);
  }
  work.remote = side.base + place.offset;
  if (bytes == 8 && !errs()) work.remote &= ~std::uint64_t{7};
  if (errs()) work.remote += below(half_bytes);
  if (errs()) work.remote = ~std::uint64_t{0} - below(64);
  work.remote_key = place.key;
}

void Generator::fill_sends(const Model& model, const Pair& pair, Command& command) {
  const Side& side = model.sides[command.side];
  command.count = chance(60) ? 1 : 1 + below(works_max);
  // A request whose end nobody sees would race with the next command.
  const bool all_fit = pair.sent - pair.retired + command.count <= pair.cap.max_send_wr;
  for (std::uint32_t index = command.count; index-- > 0;) {
    Work& work = command.works[index];
    work.id = ++last_id_;
    work.opcode = opcodes[below(std::size(opcodes))];
    const bool returns = returns_data(work.opcode);
    work.count = 1 + below(pair.cap.max_send_sge);
    if (chance(10)) work.count = 0;
    fill_pieces(side, pair.domain, false, returns, work);
    if (returns && work.opcode != IBV_WR_RDMA_READ && work.count != 0 && !errs()) {
      work.count = 1;
      work.pieces[0].length = 8;
      work.pieces[0].offset = std::min(work.pieces[0].offset, half_bytes - 8);
    }
    fill_remote(model, pair, work);
    work.immediate = below(1 << 30);
    work.operand = chance(50) ? below(16) : 0;
    work.swap = random_();
    work.flags = IBV_SEND_SIGNALED;
    const Work* const next = index + 1 < command.count ? &command.works[index + 1] : nullptr;
    const bool is_seen_anyway =
        takes_receive(work.opcode) ||
        (next && !takes_receive(next->opcode) && (next->flags & IBV_SEND_SIGNALED) != 0);
    if (all_fit && !returns && is_seen_anyway && chance(40)) work.flags = 0;
    if (chance(20)) work.flags |= IBV_SEND_SOLICITED;
    if (chance(10)) work.flags |= IBV_SEND_FENCE;
    if (chance(15) && (!returns || errs())) work.flags |= IBV_SEND_INLINE;
  }
  // What an earlier request brings and a later one takes along at once has no defined value.
  const bool brings = std::any_of(command.works.begin(), command.works.begin() + command.count,
                                  [](const Work& work) { return returns_data(work.opcode); });
  if (command.count > 1 && brings)
    for (Work& work : command.works) work.flags &= ~std::uint32_t{IBV_SEND_INLINE};
  if (command.count != 1 || !chance(4)) return;
  Work& work = command.works[0];
  switch (below(3)) {
    case 0:
      work.opcode = chance(50) ? IBV_WR_SEND_WITH_INV : IBV_WR_LOCAL_INV;
      break;
    case 1:
      work.flags |= 1 << 9;
      break;
    default:
      work.count = pieces_max;
      for (Piece& entry : work.pieces) entry = piece(side, pair.domain, false);
      if (returns_data(work.opcode)) work.opcode = IBV_WR_SEND;
      break;
  }
}

/// Requests of a connection become datagrams, most of which arrive.
void Generator::fill_datagrams(const Model& model, Command& command) {
  for (std::uint32_t index = 0; index < command.count; ++index) {
    Work& work = command.works[index];
    if (!errs()) work.opcode = chance(70) ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM;
    work.flags |= IBV_SEND_SIGNALED;
    work.remote_key = chance(90) ? queue_key : chance(50) ? queue_key + 1 : 0x80000000;
    work.operand = errs() ? 1 : 0;
    for (unsigned tries = 0; tries < 8; ++tries) {
      const Pair& target = model.sides[below(2)].pairs[below(pairs_count)];
      work.remote = target.number;
      if (target.alive && target.is_for_datagrams && target.state != IBV_QPS_RESET) break;
    }
    if (errs()) work.remote = below(1 << 25);
  }
}

void Generator::fill_receives(const Side& side, std::uint32_t domain, std::uint32_t pieces_max_here,
                              Command& command) {
  command.count = 1 + below(works_max);
  for (std::uint32_t index = 0; index < command.count; ++index) {
    Work& work = command.works[index];
    work.id = ++last_id_ | receive_id;
    work.count = chance(95) ? 1 + below(pieces_max_here) : below(pieces_max + 1);
    fill_pieces(side, domain, true, true, work);
    // Long enough, mostly.
    if (chance(85) && work.count != 0) {
      Piece& first = work.pieces[0];
      const Region* const region = side.region_of(first.key);
      if (region && region->offset >= half_bytes) {
        work.count = 1;
        first.offset = region->offset;
        first.length = region->bytes;
      }
    }
  }
}

bool Generator::fill_region(const Side& side, Command& command) {
  if (!pick(side.regions, false, command.slot)) return false;
  const std::uint32_t half = command.slot < regions_count / 2 ? 0 : half_bytes;
  const std::uint32_t begin = below(half_bytes / 2);
  command.offset = half + begin;
  command.bytes = chance(98) ? 1 + below(half_bytes - begin) : 0;
  command.access = all_access | IBV_ACCESS_REMOTE_ATOMIC;
  if (chance(6)) command.access = below(16);
  if (chance(3)) command.access = IBV_ACCESS_MW_BIND;
  return true;
}

}  // namespace tutti::conformance::fuzz
