#include "microbench/verbs_cases.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "microbench/together.hpp"

namespace tutti::bench {
namespace {

constexpr std::uint32_t fan_max = 64;       // queue pairs
constexpr std::size_t registered_max = 64;  // regions of one memory at a time
constexpr std::size_t small = 8;

std::uint32_t burst_for(std::size_t bytes) {
  constexpr std::size_t together = 1u << 20;
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(together / bytes, 4, 64));
}

/// Half a round trip of writes with immediate.
class Latency final : public VerbsSubject {
 public:
  Latency(Station& station, std::uint32_t control, std::size_t bytes, Rank self)
      : station_(station), control_(control), put_{.bytes = bytes} {
    if (!station.has(control)) return;
    is_first_ = station.cables()[control].one == self;
    is_second_ = !is_first_;
  }
  void run(std::size_t calls) override {
    for (; calls > 0; --calls) {
      if (is_first_) station_.put(control_, put_);
      if (is_first_ || is_second_) station_.take(control_);
      if (is_second_) station_.put(control_, put_);
    }
    if (is_second_) station_.settle(control_);
  }
  double hand_overs_per_call() const noexcept override { return 2; }

 private:
  Station& station_;
  std::uint32_t control_;
  Put put_;
  bool is_first_ = false, is_second_ = false;
};

/// Bursts of messages from one rank to another.
class Stream final : public VerbsSubject {
 public:
  Stream(Station& station, Flow flow, std::size_t bursts_per_call, Rank self)
      : station_(station), flow_(std::move(flow)), bursts_(bursts_per_call) {
    if (!station.has(flow_.control)) return;
    is_sender_ = station.cables()[flow_.control].one == self;
    is_receiver_ = !is_sender_;
  }
  void run(std::size_t calls) override {
    if (is_sender_) send(station_, flow_, calls * bursts_);
    if (is_receiver_) receive(station_, flow_, calls * bursts_);
  }
  double hand_overs_per_call() const noexcept override {
    return static_cast<double>(bursts_ * flow_.burst);
  }

 private:
  Station& station_;
  Flow flow_;
  std::size_t bursts_;
  bool is_sender_ = false, is_receiver_ = false;
};

/// Rank 0 asks several ranks at once, and waits until it has a message of each.
class Incast final : public VerbsSubject {
 public:
  Incast(Station& station, std::vector<std::uint32_t> answers, std::size_t bytes, Rank self)
      : station_(station), answers_(std::move(answers)), put_{.bytes = bytes} {
    is_receiver_ = self == Rank{0};
  }
  void run(std::size_t calls) override {
    for (; calls > 0 && is_receiver_; --calls) {
      for (const std::uint32_t cable : answers_) station_.put(cable, {});
      for (const std::uint32_t cable : answers_) station_.take(cable);
    }
    if (is_receiver_) return;
    for (const std::uint32_t cable : answers_) {  // of these, a rank has one at most
      if (!station_.has(cable)) continue;
      for (; calls > 0; --calls) {
        station_.take(cable);
        station_.put(cable, put_);
      }
      station_.settle(cable);
    }
  }

 private:
  Station& station_;
  std::vector<std::uint32_t> answers_;
  Put put_;
  bool is_receiver_ = false;
};

/// Rank 0 tells the other senders of its node to begin; all send; it hears when they are done.
class SharedPort final : public VerbsSubject {
 public:
  struct Lane {
    Flow flow;
    std::uint32_t told = 0;
  };
  SharedPort(Station& station, std::vector<Lane> lanes, std::size_t bursts_per_call, Rank self)
      : station_(station), lanes_(std::move(lanes)), bursts_(bursts_per_call), self_(self) {}

  void run(std::size_t calls) override {
    const std::size_t bursts = calls * bursts_;
    const bool is_first = self_ == Rank{0};
    for (std::size_t i = 1; i < lanes_.size() && is_first; ++i) station_.put(lanes_[i].told, {});
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      const Lane& lane = lanes_[i];
      if (!station_.has(lane.flow.control)) continue;
      const bool is_sender = station_.cables()[lane.flow.control].one == self_;
      if (is_sender && i > 0) station_.take(lane.told);
      if (is_sender)
        send(station_, lane.flow, bursts);
      else
        receive(station_, lane.flow, bursts);
      if (is_sender && i > 0) station_.put(lane.told, {});
      if (is_sender && i > 0) station_.settle(lane.told);
    }
    for (std::size_t i = 1; i < lanes_.size() && is_first; ++i) station_.take(lanes_[i].told);
  }
  double hand_overs_per_call() const noexcept override {
    return static_cast<double>(bursts_ * lanes_[0].flow.burst * lanes_.size());
  }

 private:
  Station& station_;
  std::vector<Lane> lanes_;
  std::size_t bursts_;
  Rank self_;
};

/// What ibv_reg_mr or ibv_dereg_mr takes, of memory whose pages are there.  Rank 0 alone.
class Registration final : public VerbsSubject {
 public:
  Registration(Station& station, std::size_t bytes, bool is_deregistration, Rank self)
      : station_(station), is_deregistration_(is_deregistration), is_mine_(self == Rank{0}) {
    if (is_mine_) memory_.assign(bytes, std::byte{1});
  }
  void run(std::size_t calls) override { (void)take_time(calls, nullptr); }
  double sample(std::size_t calls, const Timer& timer) override { return take_time(calls, &timer); }

 private:
  double take_time(std::size_t calls, const Timer* timer) {
    if (!is_mine_) return 0;
    const verbs::Driver& driver = station_.port().driver();
    std::uint64_t taken = 0;
    for (std::size_t left = calls; left > 0;) {
      regions_.clear();
      const std::size_t count = std::min(left, registered_max);
      const std::uint64_t begin = timer ? timer->ticks() : 0;
      for (std::size_t i = 0; i < count; ++i) {
        ibv_mr* const region = driver.reg_mr(station_.domain(), memory_.data(), memory_.size(),
                                             IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
        if (region == nullptr)
          throw RunFailed(fmt::format("ibv_reg_mr of {} bytes: {} (a limit may be ulimit -l)",
                                      memory_.size(), std::strerror(errno)));
        regions_.push_back(region);
      }
      const std::uint64_t middle = timer ? timer->ticks() : 0;
      for (ibv_mr* const region : regions_)
        if (const int error = driver.dereg_mr(region); error != 0)
          throw RunFailed(fmt::format("ibv_dereg_mr: {}", std::strerror(error)));
      const std::uint64_t end = timer ? timer->ticks() : 0;
      taken += is_deregistration_ ? end - middle : middle - begin;
      left -= count;
    }
    return timer ? timer->nanoseconds(taken) / static_cast<double>(calls) : 0;
  }

  Station& station_;
  bool is_deregistration_, is_mine_;
  std::vector<std::byte> memory_;
  std::vector<ibv_mr*> regions_;
};

/// A queue pair is created and brought to ready-to-send, towards one that the other rank has.
class QueuePairSetUp final : public VerbsSubject {
 public:
  /// Collective.
  QueuePairSetUp(Station& station, Exchange& exchange, Rank partner)
      : station_(station), is_mine_(exchange.self() == Rank{0}) {
    together(exchange, [&] {
      const verbs::Port& port = station.port();
      queue_ = verbs::CompletionQueueHandle(
          port.driver().create_cq(port.device.get(), 1024, nullptr, nullptr, 0), {&port.driver()});
      if (!queue_) throw Error(ErrorCode::system, "create_cq on " + port.name(), errno);
      standing_ = make();
    });
    remote_ = gather(exchange, standing_->endpoint())[index_of(partner)];
  }
  void run(std::size_t calls) override {
    for (; calls > 0 && is_mine_; --calls) make()->connect(remote_, "the other rank");
  }
  double sample(std::size_t calls, const Timer& timer) override {
    std::uint64_t taken = 0;
    for (std::size_t left = calls; left > 0 && is_mine_; --left) {
      const std::uint64_t begin = timer.ticks();
      const auto pair = make();
      pair->connect(remote_, "the other rank");
      taken += timer.ticks() - begin;  // its destruction is not in it
    }
    return timer.nanoseconds(taken) / static_cast<double>(calls);
  }

 private:
  std::unique_ptr<verbs::QueuePair> make() const {
    return std::make_unique<verbs::QueuePair>(station_.port(), station_.domain(), queue_.get(),
                                              verbs::QueuePairLimits{});
  }

  Station& station_;
  bool is_mine_;
  verbs::CompletionQueueHandle queue_;
  std::unique_ptr<verbs::QueuePair> standing_;
  verbs::Endpoint remote_ = {};
};

/// Two ranks make a queue pair each, exchange what the other has to know, connect, and meet.
/// All ranks take part in the exchange.
class ConnectionSetUp final : public VerbsSubject {
 public:
  ConnectionSetUp(Exchange& exchange, const std::string& device, Rank partner)
      : exchange_(exchange), device_(device), partner_(partner) {}
  void run(std::size_t calls) override {
    for (; calls > 0; --calls) set_up();
  }

 private:
  void set_up() {
    const bool is_mine = exchange_.self() == Rank{0} || exchange_.self() == partner_;
    if (is_mine && !port_) {
      port_.emplace(verbs::open_port(device_));
      domain_ = verbs::make_domain(*port_);
      const verbs::Driver& driver = port_->driver();
      queue_ = verbs::CompletionQueueHandle(
          driver.create_cq(port_->device.get(), 1024, nullptr, nullptr, 0), {&driver});
      if (!queue_) throw RunFailed("create_cq on " + port_->name());
    }
    std::optional<verbs::QueuePair> pair;
    verbs::Endpoint mine{};
    if (is_mine) {
      pair.emplace(*port_, domain_.get(), queue_.get(), verbs::QueuePairLimits{});
      mine = pair->endpoint();
    }
    const std::vector<verbs::Endpoint> all = gather(exchange_, mine);
    if (is_mine)
      pair->connect(all[exchange_.self() == Rank{0} ? index_of(partner_) : 0], "the other rank");
    exchange_.barrier(setup_timeout);  // nobody writes before the other is ready
  }

  Exchange& exchange_;
  std::string device_;
  Rank partner_;
  std::optional<verbs::Port> port_;
  verbs::ProtectionDomainHandle domain_;
  verbs::CompletionQueueHandle queue_;
};

/// What perftest takes for a first guess at the number of messages of a size.
PerftestCommand bandwidth_command(std::size_t bytes, std::uint32_t queue_pairs, bool is_rate) {
  constexpr std::size_t together = 256u << 20;
  const std::size_t messages = std::clamp<std::size_t>(together / bytes, 256, 200'000);
  const std::size_t each = std::max<std::size_t>(messages / queue_pairs, 256);
  return {.tool = "ib_write_bw",
          .arguments = {"-s", fmt::format("{}", bytes), "-n", fmt::format("{}", each), "-q",
                        fmt::format("{}", queue_pairs)},
          .column = is_rate ? std::size_t{4} : std::size_t{3},
          .scale = is_rate ? 1e6 : (1 << 20) / 1e9};  // millions of messages, or MiB, a second
}

}  // namespace

VerbsCases::VerbsCases(const Options& options, Exchange& exchange, std::span<const Node> nodes,
                       const std::string& device)
    : options_(options), exchange_(exchange), device_(device), self_(exchange.self()) {
  std::vector<Rank> others, neighbours;
  for (std::uint32_t rank = 1; rank < nodes.size(); ++rank)
    (nodes[rank] == nodes[0] ? neighbours : others).push_back(Rank{rank});
  std::stable_sort(others.begin(), others.end(), [&](Rank one, Rank other) {
    return index_of(nodes[index_of(one)]) < index_of(nodes[index_of(other)]);
  });
  if (!others.empty() || !neighbours.empty())
    partner_ = others.empty() ? neighbours.front() : others.front();
  senders_ = {Rank{0}};
  senders_.insert(senders_.end(), neighbours.begin(), neighbours.end());
  senders_.resize(std::min(senders_.size(), others.size()), Rank{0});
  targets_.assign(others.begin(), others.begin() + static_cast<std::ptrdiff_t>(senders_.size()));
  answerers_ = others;
  answerers_.insert(answerers_.end(), neighbours.begin(), neighbours.end());
  for (const VerbsCase which : options.verbs_cases)
    if (is_possible(which)) cases_.push_back(which);
  plan_cables();
  std::size_t memory_bytes = std::size_t{1} << 20;
  for (const std::size_t bytes : options.bytes)
    if (options.has_bytes) memory_bytes = std::max(memory_bytes, bytes);
  station_ = std::make_unique<Station>(exchange, device, memory_bytes, cables_);
  for (const VerbsCase which : cases_) add(which);
}

bool VerbsCases::is_possible(VerbsCase which) const {
  const std::uint32_t ranks = exchange_.rank_count();
  std::string needs;
  switch (which) {
    case VerbsCase::registration:
      break;
    case VerbsCase::latency:
    case VerbsCase::message_rate:
    case VerbsCase::bandwidth:
    case VerbsCase::fan_out:
    case VerbsCase::connection:
      if (ranks < 2) needs = "2 ranks or more";
      break;
    case VerbsCase::incast:
      if (ranks < 3) needs = "3 ranks or more";
      break;
    case VerbsCase::shared_port:
      if (senders_.size() < 2)
        needs =
            "2 ranks or more on rank 0's node, and as many on others (--ranks-per-node 2 with "
            "--local 4 imposes such nodes)";
      break;
  }
  if (needs.empty()) return true;
  if (options_.all_verbs_cases) return false;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{} needs {}, this run has {}: start more, or leave it out",
                          name_of(which), needs, ranks));
}

std::uint32_t VerbsCases::add_cable(Rank one, Rank other, std::uint32_t queue,
                                    std::uint32_t receives_max) {
  cables_.push_back({.one = one, .other = other, .queue = queue, .receives_max = receives_max});
  return static_cast<std::uint32_t>(cables_.size()) - 1;
}

/// Two bursts of 64 messages and what is posted again in the meantime: 192 receives are enough.
void VerbsCases::plan_cables() {
  constexpr std::uint32_t receives_max = 192;
  if (partner_ == no_rank) return;
  control_ = add_cable(Rank{0}, partner_, 0, receives_max);
  main_ = add_cable(Rank{0}, partner_, 1, receives_max);
  for (const VerbsCase which : cases_) {
    if (which == VerbsCase::fan_out)
      for (std::uint32_t i = 0; i < fan_max; ++i)
        fan_.push_back(add_cable(Rank{0}, partner_, 1, receives_max));
    if (which == VerbsCase::incast)
      for (const Rank answerer : answerers_)
        answers_.push_back(add_cable(Rank{0}, answerer, 0, receives_max));
    if (which != VerbsCase::shared_port) continue;
    for (std::size_t i = 0; i < senders_.size(); ++i)
      lanes_.push_back({.control = add_cable(senders_[i], targets_[i], 0, receives_max),
                        .data = add_cable(senders_[i], targets_[i], 1, receives_max),
                        .told = i == 0 ? 0 : add_cable(Rank{0}, senders_[i], 0, receives_max)});
  }
}

std::vector<std::size_t> VerbsCases::sizes(std::vector<std::size_t> by_default) const {
  return options_.has_bytes ? options_.bytes : by_default;
}

void VerbsCases::add_flow(VerbsTest&& test, const Flow& flow) {
  test.subject = std::make_unique<Stream>(*station_, flow, bursts_per_call(), self_);
  test.queue_pairs = static_cast<std::uint32_t>(flow.cables.size());
  test.bytes = test.bytes_together = flow.bytes;
  test.perftest =
      bandwidth_command(flow.bytes, *test.queue_pairs, test.figure == VerbsFigure::rate);
  tests_.push_back(std::move(test));
}

void VerbsCases::add(VerbsCase which) {
  switch (which) {
    case VerbsCase::latency:
      for (const std::size_t bytes : sizes({8, 256, 4096, 65536}))
        tests_.push_back(
            {.name = name_of(which),
             .bytes = bytes,
             .queue_pairs = 1,
             .subject = std::make_unique<Latency>(*station_, control_, bytes, self_),
             .perftest = PerftestCommand{.tool = "ib_write_lat",
                                         .arguments = {"-s", fmt::format("{}", bytes), "-n",
                                                       bytes > 65536 ? "1000" : "10000"},
                                         .column = 4}});
      break;
    case VerbsCase::message_rate:
      add_flow({.name = name_of(which), .figure = VerbsFigure::rate},
               {.control = control_, .cables = {main_}, .bytes = small});
      break;
    case VerbsCase::bandwidth:
      for (const std::size_t bytes : sizes({256, 4096, 65536, 1u << 20}))
        add_flow({.name = name_of(which), .figure = VerbsFigure::bandwidth},
                 {.control = control_,
                  .cables = {main_},
                  .bytes = bytes,
                  .burst = burst_for(bytes),
                  .immediates = false});
      break;
    case VerbsCase::fan_out:
      for (std::uint32_t pairs = 1; pairs <= fan_max; pairs *= 2)
        add_flow(
            {.name = name_of(which), .figure = VerbsFigure::rate},
            {.control = control_, .cables = {fan_.begin(), fan_.begin() + pairs}, .bytes = small});
      break;
    case VerbsCase::incast:
      add_incast();
      break;
    case VerbsCase::shared_port:
      add_shared_port();
      break;
    case VerbsCase::registration:
      add_calls();
      break;
    case VerbsCase::connection:
      add_connection();
      break;
  }
}

void VerbsCases::add_incast() {
  const auto most = static_cast<std::uint32_t>(answers_.size());
  for (const std::size_t bytes : sizes({8, 65536}))
    for (std::uint32_t senders = 1;; senders = std::min(2 * senders, most)) {
      const std::vector<std::uint32_t> answers(answers_.begin(), answers_.begin() + senders);
      tests_.push_back({.name = name_of(VerbsCase::incast),
                        .bytes = bytes,
                        .senders = senders,
                        .bytes_together = bytes * senders,
                        .needs_card = true,
                        .subject = std::make_unique<Incast>(*station_, answers, bytes, self_)});
      if (senders == most) break;
    }
}

void VerbsCases::add_shared_port() {
  const auto most = static_cast<std::uint32_t>(lanes_.size());
  for (const std::size_t bytes : sizes({8, 65536}))
    for (std::uint32_t senders = 1;; senders = std::min(2 * senders, most)) {
      std::vector<SharedPort::Lane> lanes;
      for (std::uint32_t i = 0; i < senders; ++i)
        lanes.push_back({.flow = {.control = lanes_[i].control,
                                  .cables = {lanes_[i].data},
                                  .bytes = bytes,
                                  .burst = burst_for(bytes)},
                         .told = lanes_[i].told});
      tests_.push_back({.name = name_of(VerbsCase::shared_port),
                        .bytes = bytes,
                        .figure = bytes <= small ? VerbsFigure::rate : VerbsFigure::bandwidth,
                        .senders = senders,
                        .bytes_together = bytes,
                        .needs_card = true,
                        .subject = std::make_unique<SharedPort>(*station_, std::move(lanes),
                                                                bursts_per_call(), self_)});
      if (senders == most) break;
    }
}

void VerbsCases::add_calls() {
  for (const bool is_deregistration : {false, true})
    for (const std::size_t bytes : sizes({4096, 65536, 1u << 20}))
      tests_.push_back(
          {.name = is_deregistration ? "deregistration" : "registration",
           .bytes = bytes,
           .subject = std::make_unique<Registration>(*station_, bytes, is_deregistration, self_)});
}

void VerbsCases::add_connection() {
  tests_.push_back({.name = "queue_pair",
                    .queue_pairs = 1,
                    .subject = std::make_unique<QueuePairSetUp>(*station_, exchange_, partner_)});
  tests_.push_back({.name = "connection",
                    .queue_pairs = 1,
                    .subject = std::make_unique<ConnectionSetUp>(exchange_, device_, partner_)});
}

}  // namespace tutti::bench
