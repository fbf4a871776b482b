// See party.hpp.
#include "party.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tutti::conformance::fuzz {
namespace {

constexpr int completions = 1024;  // more than all queue pairs can have outstanding
constexpr int event_patience_ms = 10'000;

}  // namespace

std::byte scribbled(std::uint64_t random, std::uint32_t offset) {
  return static_cast<std::byte>((random >> (offset % 8 * 8)) + offset / 8);
}

Party::Party(Storage storage)
    : buffer_(memory_bytes, storage), channel_(driver().create_comp_channel(device_.context)) {
  for (std::uint32_t index = 0; index < domains_count; ++index) {
    domains_[index] = driver().alloc_pd(device_.context);
    make_handles(index);
  }
  for (std::uint32_t index = 0; index < queues_count; ++index) make_queue(index);
}

Party::~Party() {
  clear();
  for (ibv_cq* const queue : queues_) EXPECT_EQ(driver().destroy_cq(queue), 0);
  EXPECT_EQ(driver().destroy_comp_channel(channel_), 0);
  for (std::uint32_t index = 0; index < domains_count; ++index) {
    destroy_handles(index);
    EXPECT_EQ(driver().dealloc_pd(domains_[index]), 0);
  }
}

void Party::make_queue(std::uint32_t index) {
  queues_[index] = driver().create_cq(device_.context, completions, nullptr,
                                      index == channel_queue ? channel_ : nullptr, 0);
}

void Party::make_handles(std::uint32_t domain) {
  ibv_ah_attr attributes{};
  attributes.port_num = 1;
  attributes.dlid = introduction().lid;
  for (ibv_ah*& handle : handles_[domain]) {
    handle = driver().create_ah(domains_[domain], &attributes);
    EXPECT_NE(handle, nullptr);
    attributes.dlid = static_cast<std::uint16_t>(attributes.dlid % 1000 + 1001);
  }
}

void Party::destroy_handles(std::uint32_t domain) {
  for (ibv_ah* const handle : handles_[domain]) EXPECT_EQ(driver().destroy_ah(handle), 0);
}

Introduction Party::introduction() const {
  ibv_port_attr port{};
  EXPECT_EQ(driver().query_port(device_.context, 1, &port), 0);
  return {buffer_.address(), port.lid};
}

Memory Party::memory() const {
  Memory copy;
  std::memcpy(copy.data(), buffer_.data(), memory_bytes);
  return copy;
}

void Party::clear() {
  const auto destroy_all = [](auto& objects, auto destroy) {
    for (auto*& object : objects) {
      if (object) {
        EXPECT_EQ(destroy(object), 0);
      }
      object = nullptr;
    }
  };
  destroy_all(pairs_, driver().destroy_qp);
  destroy_all(shared_, driver().destroy_srq);
  destroy_all(regions_, driver().dereg_mr);
  // With them, what they have completed and what was armed.
  for (ibv_cq* const queue : queues_) EXPECT_EQ(driver().destroy_cq(queue), 0);
  for (std::uint32_t index = 0; index < queues_count; ++index) make_queue(index);
  std::fill_n(buffer_.data(), buffer_.size(), std::byte{0});
}

ibv_sge Party::piece_of(const Piece& piece) const {
  return {.addr = buffer_.address() + piece.offset, .length = piece.length, .lkey = piece.key};
}

void Party::create_pair(const Command& command, Reply& reply) {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = queues_[command.send_queue];
  attributes.recv_cq = queues_[command.receive_queue];
  attributes.srq = command.shared == none ? nullptr : shared_[command.shared];
  attributes.cap = command.cap;
  attributes.qp_type = command.datagrams != 0 ? IBV_QPT_UD : IBV_QPT_RC;
  attributes.sq_sig_all = static_cast<int>(command.signal_all);
  ibv_qp* const pair = driver().create_qp(domains_[command.domain], &attributes);
  reply.error = pair ? 0 : errno;
  reply.number = pair ? pair->qp_num : 0;
  reply.cap = attributes.cap;
  pairs_[command.slot] = pair;
}

void Party::create_shared(const Command& command, Reply& reply) {
  ibv_srq_init_attr attributes{};
  attributes.attr.max_wr = command.cap.max_recv_wr;
  attributes.attr.max_sge = command.cap.max_recv_sge;
  ibv_srq* const shared = driver().create_srq(domains_[command.domain], &attributes);
  reply.error = shared ? 0 : errno;
  shared_[command.slot] = shared;
}

void Party::register_region(const Command& command, Reply& reply) {
  ibv_mr* const region = driver().reg_mr(domains_[command.domain], buffer_.data() + command.offset,
                                         command.bytes, static_cast<int>(command.access));
  reply.error = region ? 0 : errno;
  reply.number = region ? region->rkey : 0;
  regions_[command.slot] = region;
}

void Party::post_send(const Command& command, Reply& reply) {
  std::array<ibv_send_wr, works_max> requests{};
  std::array<std::array<ibv_sge, pieces_max>, works_max> pieces{};
  for (std::uint32_t index = 0; index < command.count; ++index) {
    const Work& work = command.works[index];
    ibv_send_wr& request = requests[index];
    for (std::uint32_t piece = 0; piece < work.count; ++piece)
      pieces[index][piece] = piece_of(work.pieces[piece]);
    request.wr_id = work.id;
    request.next = index + 1 < command.count ? &requests[index + 1] : nullptr;
    request.sg_list = pieces[index].data();
    request.num_sge = static_cast<int>(work.count);
    request.opcode = static_cast<ibv_wr_opcode>(work.opcode);
    request.send_flags = work.flags;
    request.imm_data = work.immediate;
    if (pairs_[command.slot]->qp_type == IBV_QPT_UD) {
      const auto domain = std::find(domains_.begin(), domains_.end(), pairs_[command.slot]->pd);
      const auto& handles = handles_[static_cast<std::size_t>(domain - domains_.begin())];
      request.wr.ud.ah = handles[work.operand == 0 ? 0 : 1];
      request.wr.ud.remote_qpn = static_cast<std::uint32_t>(work.remote);
      request.wr.ud.remote_qkey = work.remote_key;
    } else if (request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
               request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      request.wr.atomic.remote_addr = work.remote;
      request.wr.atomic.rkey = work.remote_key;
      request.wr.atomic.compare_add = work.operand;
      request.wr.atomic.swap = work.swap;
    } else {
      request.wr.rdma.remote_addr = work.remote;
      request.wr.rdma.rkey = work.remote_key;
    }
  }
  ibv_send_wr* bad = nullptr;
  reply.error = ibv_post_send(pairs_[command.slot], requests.data(), &bad);
  reply.accepted =
      reply.error == 0 ? command.count : static_cast<std::uint32_t>(bad - requests.data());
}

void Party::post_receives(const Command& command, Reply& reply) {
  std::array<ibv_recv_wr, works_max> requests{};
  std::array<std::array<ibv_sge, pieces_max>, works_max> pieces{};
  for (std::uint32_t index = 0; index < command.count; ++index) {
    const Work& work = command.works[index];
    for (std::uint32_t piece = 0; piece < work.count; ++piece)
      pieces[index][piece] = piece_of(work.pieces[piece]);
    requests[index].wr_id = work.id;
    requests[index].next = index + 1 < command.count ? &requests[index + 1] : nullptr;
    requests[index].sg_list = pieces[index].data();
    requests[index].num_sge = static_cast<int>(work.count);
  }
  ibv_recv_wr* bad = nullptr;
  reply.error = command.verb == Verb::post_shared
                    ? ibv_post_srq_recv(shared_[command.slot], requests.data(), &bad)
                    : ibv_post_recv(pairs_[command.slot], requests.data(), &bad);
  reply.accepted =
      reply.error == 0 ? command.count : static_cast<std::uint32_t>(bad - requests.data());
}

void Party::take_event(Reply& reply) const {
  pollfd entry{.fd = channel_->fd, .events = POLLIN, .revents = 0};
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  reply.error = ::poll(&entry, 1, event_patience_ms) == 1 ? 0 : ETIMEDOUT;
  if (reply.error != 0) return;
  reply.error = driver().get_cq_event(channel_, &queue, &context);
  if (reply.error == 0) driver().ack_cq_events(queue, 1);
}

Reply Party::run(const Command& command) {
  Reply reply{};
  switch (command.verb) {
    case Verb::create_shared:
      create_shared(command, reply);
      break;
    case Verb::destroy_shared:
      reply.error = driver().destroy_srq(shared_[command.slot]);
      if (reply.error == 0) shared_[command.slot] = nullptr;
      break;
    case Verb::create_pair:
      create_pair(command, reply);
      break;
    case Verb::destroy_pair:
      reply.error = driver().destroy_qp(pairs_[command.slot]);
      if (reply.error == 0) pairs_[command.slot] = nullptr;
      break;
    case Verb::modify: {
      ibv_qp_attr attributes = command.attributes;
      reply.error = driver().modify_qp(pairs_[command.slot], &attributes, command.mask);
      break;
    }
    case Verb::query: {
      ibv_qp_attr attributes{};
      ibv_qp_init_attr initial{};
      reply.error = driver().query_qp(pairs_[command.slot], &attributes, IBV_QP_STATE, &initial);
      reply.state = attributes.qp_state;
      break;
    }
    case Verb::post_send:
      post_send(command, reply);
      break;
    case Verb::post_receive:
    case Verb::post_shared:
      post_receives(command, reply);
      break;
    case Verb::register_region:
      register_region(command, reply);
      break;
    case Verb::deregister:
      reply.error = driver().dereg_mr(regions_[command.slot]);
      if (reply.error == 0) regions_[command.slot] = nullptr;
      break;
    case Verb::poll:
      reply.count = ibv_poll_cq(queues_[command.slot], static_cast<int>(command.count),
                                reply.completions.data());
      break;
    case Verb::arm:
      reply.error = ibv_req_notify_cq(queues_[command.slot], static_cast<int>(command.count));
      break;
    case Verb::take_event:
      if (command.count != 0) {
        take_event(reply);
      } else {  // is there one?
        pollfd entry{.fd = channel_->fd, .events = POLLIN, .revents = 0};
        reply.count = ::poll(&entry, 1, 0);
      }
      break;
    case Verb::destroy_queue:
      reply.error = driver().destroy_cq(queues_[command.slot]);
      if (reply.error == 0) make_queue(command.slot);
      break;
    case Verb::deallocate_domain:
      destroy_handles(command.slot);
      reply.error = driver().dealloc_pd(domains_[command.slot]);
      if (reply.error == 0) domains_[command.slot] = driver().alloc_pd(device_.context);
      make_handles(command.slot);
      break;
    case Verb::scribble:
      for (std::uint32_t index = 0; index < command.bytes; ++index)
        buffer_.data()[command.offset + index] = scribbled(command.random, command.offset + index);
      break;
    case Verb::clear:
      clear();
      break;
    case Verb::show_memory:
    case Verb::end:
      break;
  }
  return reply;
}

void Party::serve(const Line& line) {
  line.put(introduction());
  for (;;) {
    const auto command = line.get<Command>();
    // A line whose other end is gone gives zeros.
    if (command.verb == Verb::end || testing::Test::HasFailure()) return;
    if (command.verb == Verb::show_memory)
      line.put(memory());
    else
      line.put(run(command));
  }
}

}  // namespace tutti::conformance::fuzz
