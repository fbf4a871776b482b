#include "microbench/probes.hpp"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "microbench/together.hpp"
#include "verbs/arena.hpp"
#include "verbs/queue_pair.hpp"

namespace tutti::bench {
namespace {

constexpr std::uint32_t payload_bytes = 8;
constexpr std::uint32_t receives_max = 256;
constexpr std::uint32_t refill = 64;  // receives posted at once
constexpr std::uint32_t sends_max = 64;
constexpr std::uint32_t signal_every = 32;
// There is room for all that is posted, signaled or not: some devices count all of it when they
// look for an overrun.
constexpr int completions_max = receives_max + sends_max;

verbs::CompletionQueueHandle make_completions(const verbs::Port& port) {
  verbs::CompletionQueueHandle queue(
      port.driver().create_cq(port.device.get(), completions_max, nullptr, nullptr, 0),
      {&port.driver()});
  if (!queue) throw Error(ErrorCode::system, "wimm: create_cq on " + port.name(), errno);
  return queue;
}

/// What the other rank needs to know to connect and write.
struct Address {
  verbs::Endpoint endpoint = {};
  std::uint64_t target = 0;
  std::uint32_t remote_key = 0;
  std::uint32_t reserved = 0;
};

class Wimm final : public Subject {
 public:
  Wimm(const std::string& device, bool first)
      : port_(verbs::open_port(device)),
        domain_(verbs::make_domain(port_)),
        arena_(port_, domain_.get(), 4096),
        completions_(make_completions(port_)),
        pair_(port_, domain_.get(), completions_.get(),
              {.sends_max = sends_max,
               .receives_max = receives_max,
               .inline_bytes_max = payload_bytes}),
        source_(arena_.allocate(payload_bytes)),
        target_(arena_.allocate(payload_bytes)),
        first_(first) {
    for (std::uint32_t i = 0; i < refill; ++i)
      receives_[i].next = i + 1 < refill ? &receives_[i + 1] : nullptr;
    for (std::uint32_t posted = 0; posted < receives_max; posted += refill) post_receives();
  }

  Address address() const {
    return {.endpoint = pair_.endpoint(),
            .target = reinterpret_cast<std::uint64_t>(target_),
            .remote_key = arena_.remote_key()};
  }

  void connect(const Address& remote) {
    pair_.connect(remote.endpoint, first_ ? "rank 1" : "rank 0");
    piece_ = {.addr = reinterpret_cast<std::uint64_t>(source_),
              .length = payload_bytes,
              .lkey = arena_.local_key()};
    put_.sg_list = &piece_;
    put_.num_sge = 1;
    put_.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    put_.wr.rdma.remote_addr = remote.target;
    put_.wr.rdma.rkey = remote.remote_key;
  }

  void run(std::size_t calls) override {
    for (; calls > 0; --calls) {
      if (first_) send();
      receive();
      if (!first_) send();
    }
  }
  void synchronise() override { run(1); }
  double hand_overs_per_call() const noexcept override { return 2; }

 private:
  void send() {
    const bool signal = ++sends_ % signal_every == 0;
    put_.send_flags = (pair_.inline_bytes() >= payload_bytes ? unsigned{IBV_SEND_INLINE} : 0u) |
                      (signal ? unsigned{IBV_SEND_SIGNALED} : 0u);
    ibv_send_wr* refused = nullptr;
    if (const int error = ibv_post_send(pair_.get(), &put_, &refused); error != 0)
      throw RunFailed(fmt::format("wimm: ibv_post_send: {}", std::strerror(error)));
  }

  void receive() {
    spin_until("wimm", [this] { return poll(); });
    --arrived_;
    if (++used_ < refill) return;
    used_ = 0;
    post_receives();
  }

  /// Whether a notification has arrived.  A ping-pong has one under way at a time, but the
  /// completion of this rank's own signaled send may come first.
  bool poll() {
    ibv_wc completion;
    const int count = ibv_poll_cq(completions_.get(), 1, &completion);
    if (count == 0) return false;
    if (count < 0 || completion.status != IBV_WC_SUCCESS)
      throw RunFailed(
          fmt::format("wimm: completion with error: {}",
                      count < 0 ? "the queue is in error" : ibv_wc_status_str(completion.status)));
    if (completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM) ++arrived_;
    return arrived_ > 0;
  }

  void post_receives() {
    ibv_recv_wr* refused = nullptr;
    if (const int error = ibv_post_recv(pair_.get(), receives_.data(), &refused); error != 0)
      throw RunFailed(fmt::format("wimm: ibv_post_recv: {}", std::strerror(error)));
  }

  verbs::Port port_;
  verbs::ProtectionDomainHandle domain_;
  verbs::Arena arena_;
  verbs::CompletionQueueHandle completions_;
  verbs::QueuePair pair_;
  std::byte* source_;
  std::byte* target_;
  bool first_;
  std::array<ibv_recv_wr, refill> receives_{};
  ibv_send_wr put_{};
  ibv_sge piece_{};
  std::uint64_t sends_ = 0;
  std::uint32_t arrived_ = 0;
  std::uint32_t used_ = 0;  // receives since the last refill
};

}  // namespace

std::unique_ptr<Subject> wimm_probe(Exchange& exchange, const std::string& device) {
  std::unique_ptr<Wimm> probe;
  together(exchange, [&] { probe = std::make_unique<Wimm>(device, exchange.self() == Rank{0}); });
  const auto addresses = gather(exchange, probe->address());
  together(exchange, [&] { probe->connect(addresses[1 - index_of(exchange.self())]); });
  return probe;
}

}  // namespace tutti::bench
