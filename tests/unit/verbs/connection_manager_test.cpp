// Promise: whatever the kernel and the other ends do, connecting ends in time, with every partner
// connected or an error that names the partner, both addresses, the step and the cause; a stranger
// disturbs nothing; and no id or event is left over.
#include "verbs/connection_manager.hpp"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <tutti/status.hpp>

namespace tutti::verbs {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t self_key = 100;

/// The kernel and all peers: every call is answered by an event, at once.
class FakeCm {
 public:
  FakeCm() { current = this; }
  ~FakeCm() {
    EXPECT_EQ(ids_, 0);
    EXPECT_EQ(events_not_acknowledged_, 0);
    EXPECT_FALSE(channel_open_);
  }
  FakeCm(const FakeCm&) = delete;
  FakeCm& operator=(const FakeCm&) = delete;

  /// The call that fails, with which errno.
  std::string failing_call;
  int failing_errno = EINVAL;
  /// Instead of the event that a call usually causes.
  struct Answer {
    rdma_cm_event_type type;
    int status = 0;
    std::vector<std::byte> data = {};
    bool silent = false;
  };
  std::map<std::string, std::deque<Answer>> answers;
  Port* port = nullptr;
  Endpoint peer = {};                      // whose attributes init_qp_attr knows
  std::uint32_t answering_queue_pair = 0;  // in CONNECT_RESPONSE; 0: the peer's
  std::uint8_t port_of_path = 1;
  std::vector<std::uint16_t> refusals;      // reasons of reject()
  std::vector<ConnectionRequest> requests;  // of connect()
  std::vector<rdma_conn_param> parameters;  // of connect() and accept()
  int established = 0;

  void push(rdma_cm_id* id, const Answer& answer, std::uint32_t queue_pair = 0) {
    if (answer.silent) return;
    Pending* pending = new Pending{{}, answer.data};
    pending->event.id = id;
    pending->event.event = answer.type;
    pending->event.status = answer.status;
    pending->event.param.conn.qp_num = queue_pair;
    pending->event.param.conn.private_data = pending->data.data();
    pending->event.param.conn.private_data_len = static_cast<std::uint8_t>(pending->data.size());
    events_.push_back(pending);
    eventfd_write(channel_.fd, 1);
  }

  /// Somebody asks.
  void ask(std::span<const std::byte> data, std::uint32_t queue_pair) {
    push(new_id(), {RDMA_CM_EVENT_CONNECT_REQUEST, 0, {data.begin(), data.end()}}, queue_pair);
  }
  void ask(const ConnectionRequest& request) {
    ask(std::as_bytes(std::span(&request, 1)), request.from_queue_pair);
  }

  static const CmDriver& driver();

 private:
  struct Pending {
    rdma_cm_event event;  // first: an event is found by its address
    std::vector<std::byte> data;
  };

  static bool refuses(const char* call) {
    if (current->failing_call != call) return false;
    errno = current->failing_errno;
    return true;
  }

  rdma_cm_id* new_id() {
    ++ids_;
    auto* const id = new rdma_cm_id{};
    id->verbs = port ? port->device.get() : nullptr;
    id->port_num = port_of_path;
    return id;
  }

  /// The event of `call`: `usual`, unless the test wants another one.
  int answer(const char* call, rdma_cm_id* id, Answer usual, std::uint32_t queue_pair = 0) {
    if (refuses(call)) return -1;
    auto& scripted = answers[call];
    if (!scripted.empty()) {
      usual = scripted.front();
      scripted.pop_front();
    }
    push(id, usual, queue_pair);
    return 0;
  }

  static FakeCm* current;
  rdma_event_channel channel_ = {-1};
  bool channel_open_ = false;
  std::deque<Pending*> events_;
  int ids_ = 0;
  int events_not_acknowledged_ = 0;
};

FakeCm* FakeCm::current = nullptr;

const CmDriver& FakeCm::driver() {
  static constexpr CmDriver table{
      .create_event_channel = []() -> rdma_event_channel* {
        if (refuses("create_event_channel")) return nullptr;
        current->channel_.fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
        current->channel_open_ = true;
        return &current->channel_;
      },
      .destroy_event_channel =
          [](rdma_event_channel* channel) {
            close(channel->fd);
            current->channel_open_ = false;
            for (const Pending* left : current->events_) delete left;
            current->events_.clear();
          },
      .get_cm_event =
          [](rdma_event_channel* channel, rdma_cm_event** event) {
            if (refuses("get_cm_event")) return -1;
            eventfd_t count = 0;
            if (eventfd_read(channel->fd, &count) != 0) return -1;  // EAGAIN
            *event = &current->events_.front()->event;
            current->events_.pop_front();
            ++current->events_not_acknowledged_;
            return 0;
          },
      .ack_cm_event =
          [](rdma_cm_event* event) {
            --current->events_not_acknowledged_;
            delete reinterpret_cast<Pending*>(event);
            return 0;
          },
      .create_id =
          [](rdma_event_channel*, rdma_cm_id** id, void*, rdma_port_space space) {
            EXPECT_EQ(space, RDMA_PS_TCP);
            if (refuses("create_id")) return -1;
            *id = current->new_id();
            return 0;
          },
      .destroy_id =
          [](rdma_cm_id* id) {
            --current->ids_;
            delete id;
            return 0;
          },
      .bind_addr = [](rdma_cm_id*, sockaddr*) { return refuses("bind_addr") ? -1 : 0; },
      .listen = [](rdma_cm_id*, int) { return refuses("listen") ? -1 : 0; },
      .get_src_port = [](rdma_cm_id*) -> __be16 { return htons(4711); },
      .resolve_addr =
          [](rdma_cm_id* id, sockaddr*, sockaddr*, int) {
            return current->answer("resolve_addr", id, {RDMA_CM_EVENT_ADDR_RESOLVED});
          },
      .resolve_route =
          [](rdma_cm_id* id, int) {
            return current->answer("resolve_route", id, {RDMA_CM_EVENT_ROUTE_RESOLVED});
          },
      .connect =
          [](rdma_cm_id* id, rdma_conn_param* given) {
            ConnectionRequest request{};
            EXPECT_EQ(given->private_data_len, sizeof request);
            std::memcpy(&request, given->private_data, sizeof request);
            current->requests.push_back(request);
            current->parameters.push_back(*given);
            std::swap(request.from_process, request.to_process);
            std::swap(request.from_queue_pair, request.to_queue_pair);
            std::swap(request.from_sequence, request.to_sequence);
            const auto data = std::as_bytes(std::span(&request, 1));
            return current->answer("connect", id,
                                   {RDMA_CM_EVENT_CONNECT_RESPONSE, 0, {data.begin(), data.end()}},
                                   current->answering_queue_pair ? current->answering_queue_pair
                                                                 : current->peer.queue_pair_number);
          },
      .establish =
          [](rdma_cm_id*) {
            ++current->established;
            return refuses("establish") ? -1 : 0;
          },
      .accept =
          [](rdma_cm_id* id, rdma_conn_param* given) {
            current->parameters.push_back(*given);
            return current->answer("accept", id, {RDMA_CM_EVENT_ESTABLISHED});
          },
      .reject =
          [](rdma_cm_id*, const void* data, uint8_t size) {
            ConnectionRefusal refusal{};
            EXPECT_EQ(size, sizeof refusal);
            std::memcpy(&refusal, data, sizeof refusal);
            current->refusals.push_back(refusal.reason);
            return 0;
          },
      .init_qp_attr =
          [](rdma_cm_id*, ibv_qp_attr* attributes, int* mask) {
            if (refuses("init_qp_attr")) return -1;
            *mask = IBV_QP_STATE;
            attributes->port_num = 1;
            if (attributes->qp_state == IBV_QPS_INIT) {
              *mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
            } else if (attributes->qp_state == IBV_QPS_RTR) {
              *mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
              attributes->path_mtu = IBV_MTU_512;
              attributes->dest_qp_num = current->peer.queue_pair_number;
              attributes->ah_attr.is_global = 1;
              attributes->ah_attr.port_num = 1;
              std::memcpy(attributes->ah_attr.grh.dgid.raw, current->peer.gid, 16);
            } else {
              *mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                       IBV_QP_MAX_QP_RD_ATOMIC;
              attributes->timeout = 19;
            }
            return 0;
          },
  };
  return table;
}

/// A manager and a queue pair to be connected to another one of the software device.
class Connecting : public testing::Test {
 protected:
  Connecting()
      : port(open_port("soft0")),
        domain(port.driver().alloc_pd(port.device.get()), {&port.driver()}),
        queue(port.driver().create_cq(port.device.get(), 64, nullptr, nullptr, 0),
              {&port.driver()}),
        pair(port, domain.get(), queue.get(), limits),
        other(port, domain.get(), queue.get(), limits) {
    kernel.port = &port;
    kernel.peer = other.endpoint();
  }

  /// To the process with this key.
  CmPartner partner(std::uint64_t key) {
    Endpoint local = pair.endpoint(), remote = other.endpoint();
    local.service_port = 4711;
    remote.service_port = 4712;
    return {.ends = {.process = self_key, .peer = key, .local = local, .remote = remote},
            .pair = &pair,
            .name = "rank 3"};
  }
  static constexpr std::uint64_t to_ask = self_key + 1, to_be_asked = self_key - 1;

  /// What the partner with the key to_be_asked sends.
  ConnectionRequest request_of_partner() {
    const ConnectionEnds ends = partner(to_be_asked).ends;
    return request_of(
        {.process = ends.peer, .peer = ends.process, .local = ends.remote, .remote = ends.local});
  }

  ConnectionManager& manager() {
    if (!manager_) manager_.emplace(port, self_key, FakeCm::driver());
    return *manager_;
  }

  void connect(std::uint64_t key, Timeout timeout = 5s) {
    CmPartner made = partner(key);
    manager().connect({&made, 1}, clock, {.timeout = timeout});
    EXPECT_TRUE(made.id);
    EXPECT_EQ(state(), IBV_QPS_RTS);
  }

  /// The error of connecting contains all of it, and the places.
  void expect_failure(std::uint64_t key, ErrorCode code, std::vector<std::string> words,
                      Timeout timeout = 5s) {
    words.insert(words.end(), {"rank 3", "port 4712", "soft0:1"});
    CmPartner made = partner(key);
    try {
      manager().connect({&made, 1}, clock, {.timeout = timeout});
      ADD_FAILURE() << words[0];
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      for (const std::string& word : words)
        EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
            << word << ": " << error.what();
    }
    EXPECT_FALSE(made.id);
  }

  ibv_qp_state state() {
    ibv_qp_init_attr initial{};
    EXPECT_EQ(port.driver().query_qp(pair.get(), &attributes, IBV_QP_STATE, &initial), 0);
    return attributes.qp_state;
  }

  FakeCm kernel;
  detail::MonotonicClock clock;
  QueuePairLimits limits{.sends_max = 4, .receives_max = 4};
  Port port;
  ProtectionDomainHandle domain;
  CompletionQueueHandle queue;
  QueuePair pair, other;
  ibv_qp_attr attributes = {};
  std::optional<ConnectionManager> manager_;
};

TEST_F(Connecting, the_smaller_key_asks_and_names_both_ends) {
  EXPECT_EQ(manager().service_port(), 4711);
  connect(to_ask);
  ASSERT_EQ(kernel.requests.size(), 1u);
  const ConnectionRequest& sent = kernel.requests[0];
  EXPECT_EQ(sent.from_process, self_key);
  EXPECT_EQ(sent.to_process, to_ask);
  EXPECT_EQ(sent.from_queue_pair, pair.endpoint().queue_pair_number);
  EXPECT_EQ(sent.to_sequence, other.endpoint().packet_sequence);
  EXPECT_EQ(kernel.parameters[0].qp_num, pair.endpoint().queue_pair_number);
  EXPECT_EQ(kernel.established, 1);
}

TEST_F(Connecting, times_are_ours_whatever_the_kernel_says) {
  connect(to_ask);
  const PathDefaults path;
  EXPECT_EQ(attributes.timeout, path.timeout);
  EXPECT_EQ(attributes.min_rnr_timer, path.receiver_not_ready_timer);
  EXPECT_EQ(attributes.path_mtu, IBV_MTU_512);  // the smallest of three
}

TEST_F(Connecting, the_other_one_accepts_what_it_expects) {
  static_cast<void>(manager());
  kernel.ask(request_of_partner());
  connect(to_be_asked);
  EXPECT_EQ(kernel.parameters.size(), 1u);
  EXPECT_EQ(kernel.established, 0);
}

TEST_F(Connecting, strangers_are_refused_with_the_reason_and_disturb_nothing) {
  static_cast<void>(manager());
  const ConnectionRequest good = request_of_partner();
  kernel.ask(std::span<const std::byte>(), 9);
  ConnectionRequest wrong = good;
  ++wrong.version;
  kernel.ask(wrong);
  wrong = good;
  ++wrong.to_process;
  kernel.ask(wrong);
  wrong = good;
  ++wrong.from_sequence;  // of a set-up that has failed
  kernel.ask(wrong);
  kernel.ask(std::as_bytes(std::span(&good, 1)), good.from_queue_pair + 1);
  kernel.ask(good);
  kernel.ask(good);  // a second one of the same name
  connect(to_be_asked);
  EXPECT_EQ(kernel.refusals, (std::vector<std::uint16_t>{1, 2, 3, 4, 4, 4}));
}

TEST_F(Connecting, an_earlier_connections_end_is_ignored) {
  CmPartner made = partner(to_ask);
  manager().connect({&made, 1}, clock, {.timeout = 5s});
  kernel.push(made.id.get(), {RDMA_CM_EVENT_DISCONNECTED});
  kernel.push(made.id.get(), {RDMA_CM_EVENT_TIMEWAIT_EXIT});
  kernel.ask(request_of_partner());
  QueuePair third(port, domain.get(), queue.get(), limits);
  CmPartner later = partner(to_be_asked);
  later.pair = &third;
  manager().connect({&later, 1}, clock, {.timeout = 5s});
  EXPECT_TRUE(later.id);
}

TEST_F(Connecting, every_event_that_ends_it_is_named_with_its_step) {
  const std::vector<std::byte> refusal = [] {
    const ConnectionRefusal reason = refusal_of(Refusal::other_process);
    const auto data = std::as_bytes(std::span(&reason, 1));
    return std::vector<std::byte>(data.begin(), data.end());
  }();
  const auto fails = [&](const char* call, FakeCm::Answer answer, ErrorCode code,
                         std::vector<std::string> words) {
    kernel.answers[call] = {std::move(answer)};
    expect_failure(to_ask, code, std::move(words));
  };
  fails("resolve_addr", {RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT}, ErrorCode::system,
        {"ADDR_ERROR", "resolving its address", "Connection timed out"});
  fails("resolve_route", {RDMA_CM_EVENT_ROUTE_ERROR, -EHOSTUNREACH}, ErrorCode::system,
        {"ROUTE_ERROR", "resolving the route"});
  fails("connect", {RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT}, ErrorCode::system,
        {"UNREACHABLE", "its answer"});
  fails("connect", {RDMA_CM_EVENT_REJECTED, 28, refusal}, ErrorCode::peer_failed,
        {"REJECTED", "another process listens there"});
  fails("connect", {RDMA_CM_EVENT_REJECTED, 8}, ErrorCode::peer_failed, {"nobody listens"});
  fails("connect", {RDMA_CM_EVENT_CONNECT_ERROR, -EINVAL}, ErrorCode::system, {"CONNECT_ERROR"});
  fails("connect", {RDMA_CM_EVENT_DEVICE_REMOVAL}, ErrorCode::system, {"DEVICE_REMOVAL"});
  kernel.answers["accept"] = {{RDMA_CM_EVENT_REJECTED, 28}};
  kernel.ask(request_of_partner());
  expect_failure(to_be_asked, ErrorCode::peer_failed, {"REJECTED", "to confirm", "gave up"});
}

TEST_F(Connecting, every_call_that_is_refused_is_named) {
  for (const char* call : {"create_id", "resolve_addr", "resolve_route", "connect"}) {
    static_cast<void>(manager());
    kernel.failing_call = call;
    expect_failure(to_ask, ErrorCode::system, {"rdma_" + std::string(call), "Invalid argument"});
  }
}

TEST_F(Connecting, a_partner_that_takes_its_answer_back_is_not_taken_for_the_cause) {
  static_cast<void>(manager());
  kernel.failing_call = "init_qp_attr";
  kernel.failing_errno = ENODEV;
  expect_failure(to_ask, ErrorCode::system, {"rdma_init_qp_attr", "No such device"});
  kernel.failing_errno = EINVAL;
  for (const char* call : {"init_qp_attr", "establish"}) {
    kernel.failing_call = call;
    expect_failure(to_ask, ErrorCode::peer_failed, {"rdma_" + std::string(call), "gave up"});
  }
}

TEST_F(Connecting, a_partner_that_takes_its_request_back_is_not_taken_for_the_cause) {
  static_cast<void>(manager());
  kernel.failing_call = "accept";
  kernel.ask(request_of_partner());
  expect_failure(to_be_asked, ErrorCode::peer_failed, {"rdma_accept", "gave up"});
}

TEST_F(Connecting, a_stale_rejection_is_retried_until_the_kernel_has_forgotten) {
  kernel.answers["connect"] = {{RDMA_CM_EVENT_REJECTED, rejected_as_stale},
                               {RDMA_CM_EVENT_REJECTED, rejected_as_stale}};
  connect(to_ask);
  EXPECT_EQ(kernel.requests.size(), 3u);
}

TEST_F(Connecting, a_stale_rejection_that_stays_ends_in_time) {
  kernel.answers["connect"].assign(100, {RDMA_CM_EVENT_REJECTED, rejected_as_stale});
  expect_failure(to_ask, ErrorCode::timed_out, {"forget an earlier queue pair"}, 500ms);
}

TEST_F(Connecting, a_partner_that_never_asks_or_answers_ends_in_a_timeout_that_names_it) {
  expect_failure(to_be_asked, ErrorCode::timed_out,
                 {"waiting for its connection request", "TUTTI_SETUP_TIMEOUT"}, 100ms);
  kernel.answers["connect"] = {{.type = RDMA_CM_EVENT_CONNECT_RESPONSE, .silent = true}};
  expect_failure(to_ask, ErrorCode::timed_out, {"waiting for its answer"}, 100ms);
}

TEST_F(Connecting, waiting_ends_when_it_has_become_pointless) {
  CmPartner made = partner(to_be_asked);
  try {
    manager().connect({&made, 1}, clock, {.timeout = 10s, .is_pointless = [] { return true; }});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::peer_failed);
  }
}

TEST_F(Connecting, a_path_over_another_device_is_refused) {
  kernel.port_of_path = 2;
  expect_failure(to_ask, ErrorCode::system, {"device soft0 port 2", "TUTTI_DEVICE"});
}

TEST_F(Connecting, an_answer_of_somebody_else_is_refused) {
  kernel.answering_queue_pair = 1;
  expect_failure(to_ask, ErrorCode::mismatch, {"something else"});
  kernel.answering_queue_pair = 0;
  kernel.answers["connect"] = {{RDMA_CM_EVENT_CONNECT_RESPONSE, 0, {}}};
  expect_failure(to_ask, ErrorCode::mismatch, {"something else"});
  EXPECT_EQ(kernel.established, 0);
}

TEST_F(Connecting, a_manager_that_cannot_listen_says_what_is_missing) {
  const auto text = [&](const char* call, int error) -> std::string {
    kernel.failing_call = call;
    kernel.failing_errno = error;
    try {
      static_cast<void>(manager());
    } catch (const Error& thrown) {
      EXPECT_EQ(thrown.system_errno(), error);
      return thrown.what();
    }
    return "no error";
  };
  for (const auto& [call, word] :
       {std::pair("create_event_channel", "rdma_ucm"), std::pair("bind_addr", "network interface"),
        std::pair("listen", "rdma_listen"), std::pair("create_id", "rdma_create_id")}) {
    const std::string found = text(call, EACCES);
    EXPECT_NE(found.find(word), std::string::npos) << found;
    EXPECT_NE(found.find("Permission denied"), std::string::npos) << found;
    EXPECT_NE(found.find("TUTTI_CONNECT=exchange"), std::string::npos) << found;
  }
}

}  // namespace
}  // namespace tutti::verbs
