#include "microbench/station.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "microbench/together.hpp"
#include "verbs/soft/soft_clock.hpp"
#include "verbs/soft/virtual_time.hpp"

namespace tutti::bench {
namespace {

namespace soft = verbs::soft;

constexpr int poll_batch = 16;  // as the library's
constexpr std::uint32_t signal_every = 16;
static_assert(2 * signal_every <= Station::sends_max);

verbs::CompletionQueueHandle make_queue(const verbs::Port& port, std::uint32_t entries) {
  const auto count = static_cast<int>(std::max(entries, 1u));
  verbs::CompletionQueueHandle queue(
      port.driver().create_cq(port.device.get(), count, nullptr, nullptr, 0), {&port.driver()});
  if (!queue)
    throw Error(ErrorCode::system, fmt::format("create_cq of {} entries on {}", count, port.name()),
                errno);
  return queue;
}

}  // namespace

struct Station::Address {
  verbs::Endpoint endpoint;
  std::uint64_t target;
  std::uint32_t key;
  std::uint32_t reserved;
};

Station::Station(Exchange& exchange, const std::string& device, std::size_t memory_bytes,
                 std::vector<Cable> cables, std::size_t further_bytes)
    : cables_(std::move(cables)), ends_(cables_.size()) {
  const Rank self = exchange.self();
  together(exchange, [&] {
    port_ = verbs::open_port(device);
    domain_ = verbs::make_domain(port_);
    arena_ = std::make_unique<verbs::Arena>(
        port_, domain_.get(), 2 * (memory_bytes + verbs::Arena::alignment), further_bytes);
    source_ = arena_->allocate(memory_bytes);
    target_ = arena_->allocate(memory_bytes);
    if (source_ == nullptr || target_ == nullptr)
      throw Error(ErrorCode::limit_exceeded,
                  fmt::format("{} bytes of registered memory could not be had", 2 * memory_bytes));
    make_ends(self);
  });
  std::vector<Address> mine(cables_.size(), Address{});
  for (const End& end : ends_)
    if (end.pair)
      mine[end.index] = {.endpoint = end.pair->endpoint(),
                         .target = reinterpret_cast<std::uint64_t>(target_),
                         .key = arena_->remote_key(),
                         .reserved = 0};
  std::vector<Address> all(mine.size() * exchange.rank_count());
  exchange.allgather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)),
                     setup_timeout);
  together(exchange, [&] {
    for (std::uint32_t cable = 0; cable < cables_.size(); ++cable)
      if (has(cable)) connect(cable, all[index_of(ends_[cable].peer) * mine.size() + cable]);
  });
  exchange.barrier(setup_timeout);
  // Connections are complete once they were used, in both directions.
  for (std::uint32_t cable = 0; cable < cables_.size(); ++cable)
    if (has(cable)) put(cable, {.signaled = true});
  for (std::uint32_t cable = 0; cable < cables_.size(); ++cable) {
    if (!has(cable)) continue;
    take(cable);
    flush(cable);
  }
  exchange.barrier(setup_timeout);
}

void Station::make_ends(Rank self) {
  std::array<std::uint32_t, 2> entries{};
  const auto is_mine = [self](const Cable& cable) {
    return cable.one == self || cable.other == self;
  };
  for (const Cable& cable : cables_)
    if (is_mine(cable)) entries[cable.queue] += cable.receives_max + sends_max;
  for (const std::uint32_t queue : {0u, 1u}) queues_[queue] = make_queue(port_, entries[queue]);
  for (std::uint32_t index = 0; index < cables_.size(); ++index) {
    const Cable& cable = cables_[index];
    End& end = ends_[index];
    end.index = index;
    if (!is_mine(cable)) continue;
    assert(cable.one != cable.other);
    end.peer = cable.one == self ? cable.other : cable.one;
    end.queue = cable.queue;
    end.refill = std::max(cable.receives_max / 4, 1u);
    end.pair = std::make_unique<verbs::QueuePair>(
        port_, domain_.get(), queues_[cable.queue].get(),
        verbs::QueuePairLimits{.sends_max = sends_max, .receives_max = cable.receives_max});
    post_receives(end, cable.receives_max);
  }
}

void Station::connect(std::uint32_t cable, const Address& remote) {
  End& end = ends_[cable];
  end.pair->connect(remote.endpoint, fmt::format("rank {}", index_of(end.peer)));
  end.target = remote.target;
  end.key = remote.key;
}

void Station::post_receives(End& end, std::uint32_t count) {
  std::array<ibv_recv_wr, 64> chain{};  // one post costs less than one for each
  while (count > 0) {
    const std::uint32_t posted = std::min<std::uint32_t>(count, chain.size());
    for (std::uint32_t i = 0; i < posted; ++i) {
      chain[i].wr_id = std::uint64_t{end.index} << 32;
      chain[i].next = i + 1 < posted ? &chain[i + 1] : nullptr;
    }
    ibv_recv_wr* refused = nullptr;
    if (const int error = ibv_post_recv(end.pair->get(), chain.data(), &refused); error != 0)
      throw RunFailed(fmt::format("ibv_post_recv: {}", std::strerror(error)));
    count -= posted;
  }
}

void Station::post(End& end, const Put& what, bool signaled) {
  ++end.posted;
  if (signaled) end.signaled = end.posted;
  ibv_sge piece{.addr = reinterpret_cast<std::uint64_t>(source_ + what.offset),
                .length = static_cast<std::uint32_t>(what.bytes),
                .lkey = arena_->local_key()};
  ibv_send_wr request{};
  request.wr_id = std::uint64_t{end.index} << 32 | end.posted;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = what.immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
  request.send_flags = (what.bytes <= end.pair->inline_bytes() ? unsigned{IBV_SEND_INLINE} : 0u) |
                       (signaled ? unsigned{IBV_SEND_SIGNALED} : 0u);
  request.wr.rdma.remote_addr = end.target + what.offset;
  request.wr.rdma.rkey = end.key;
  ibv_send_wr* refused = nullptr;
  if (const int error = ibv_post_send(end.pair->get(), &request, &refused); error != 0)
    throw RunFailed(
        fmt::format("ibv_post_send to rank {}: {}", index_of(end.peer), std::strerror(error)));
}

void Station::put(std::uint32_t cable, const Put& what) {
  End& end = ends_[cable];
  assert(end.pair);
  if (end.posted - end.completed >= sends_max)
    spin_until("put", [&] {
      poll(end.queue);
      return end.posted - end.completed < sends_max;
    });
  post(end, what, what.signaled || (end.posted + 1) % signal_every == 0);
}

void Station::take(std::uint32_t cable) {
  End& end = ends_[cable];
  assert(end.pair);
  if (end.arrived == 0)
    spin_until("take", [&] {
      poll(end.queue);
      return end.arrived > 0;
    });
  --end.arrived;
  --arrived_[end.queue];
}

void Station::take_while_sending(std::uint32_t cable) {
  if (ends_[cable].arrived == 0)
    spin_until("take", [&] {
      poll(1);
      poll(0);
      return ends_[cable].arrived > 0;
    });
  take(cable);
}

void Station::take_of_queue_1(std::size_t messages) {
  if (arrived_[1] < messages)
    spin_until("take", [&] {
      poll(1);
      return arrived_[1] >= messages;
    });
  arrived_[1] -= messages;
  // Which cable they were of does not count here: cables of queue 1 are never taken one by one
  // after the connections were tried.
}

void Station::flush(std::uint32_t cable) {
  End& end = ends_[cable];
  if (end.signaled != end.posted) put(cable, {.immediate = false, .signaled = true});
  if (end.completed != end.posted)
    spin_until("flush", [&] {
      poll(end.queue);
      return end.completed == end.posted;
    });
}

void Station::settle(std::uint32_t cable) {
  const soft::VirtualTime* const time = soft::VirtualTime::joined();
  if (time == nullptr || !time->is_entered()) flush(cable);
}

void Station::poll(std::uint32_t queue) {
  ibv_wc completions[poll_batch];
  const int count = ibv_poll_cq(queues_[queue].get(), poll_batch, completions);
  if (count < 0) throw RunFailed("ibv_poll_cq: the completion queue is in error");
  for (int i = 0; i < count; ++i) {
    const ibv_wc& completion = completions[i];
    End& end = ends_[completion.wr_id >> 32];
    if (completion.status != IBV_WC_SUCCESS)
      throw RunFailed(fmt::format("completion with error, rank {}: {}", index_of(end.peer),
                                  ibv_wc_status_str(completion.status)));
    if ((completion.opcode & IBV_WC_RECV) == 0) {
      end.completed = static_cast<std::uint32_t>(completion.wr_id);
      continue;
    }
    ++end.arrived;
    ++arrived_[queue];
    if (++end.used < end.refill) continue;
    post_receives(end, end.used);
    end.used = 0;
  }
}

namespace {

constexpr std::size_t bursts_in_flight = 2;

}  // namespace

void send(Station& station, const Flow& flow, std::size_t bursts) {
  std::size_t turn = 0;
  for (std::size_t burst = 0; burst < bursts; ++burst) {
    if (burst >= bursts_in_flight) station.take_while_sending(flow.control);
    for (std::uint32_t message = 1; message <= flow.burst; ++message) {
      station.put(flow.cables[turn],
                  {.bytes = flow.bytes, .immediate = flow.immediates || message == flow.burst});
      if (++turn == flow.cables.size()) turn = 0;
    }
  }
  for (std::size_t burst = 0; burst < std::min(bursts, bursts_in_flight); ++burst)
    station.take_while_sending(flow.control);
}

void receive(Station& station, const Flow& flow, std::size_t bursts) {
  for (; bursts > 0; --bursts) {
    station.take_of_queue_1(flow.immediates ? flow.burst : 1);
    station.put(flow.control, {});
  }
  station.settle(flow.control);
}

plan::Picoseconds instant() noexcept {
  const soft::VirtualTime* const time = soft::VirtualTime::joined();
  if (time != nullptr && time->is_entered()) return time->now();
  return detail::MonotonicClock::read().count() * 1000;
}

InVirtualTime::InVirtualTime() noexcept {
  if (soft::VirtualTime::joined() != nullptr) soft::enter_virtual_time();
}
InVirtualTime::~InVirtualTime() {
  if (soft::VirtualTime::joined() != nullptr) soft::leave_virtual_time();
}

}  // namespace tutti::bench
