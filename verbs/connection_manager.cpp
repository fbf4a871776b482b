#include "verbs/connection_manager.hpp"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <tutti/status.hpp>
#include <vector>

namespace tutti::verbs {
namespace {

using namespace std::chrono_literals;

/// Time to resolve an address: the kernel asks three times, a second apart, before it gives up.
constexpr Timeout address_time = 5s;

/// Interval at which ConnectPatience::is_pointless() is called.
constexpr Timeout look_interval = 50ms;

/// Pause before a request is repeated that the other kernel refused because of an old queue pair
/// number; it forgets the number within some seconds of its connection's end.
constexpr Timeout stale_pause = 200ms;

/// Requests that can wait until they are handled; the kernel allows at most 1024.
constexpr int backlog = 1024;

[[noreturn]] void refuse_manager(const std::string& call, const std::string& advice) {
  const int error = errno;
  throw Error(ErrorCode::system,
              "TUTTI_CONNECT=cm: " + call + ": " + std::strerror(error) + "; " + advice +
                  ", or set TUTTI_CONNECT=exchange",
              error);
}

IdHandle make_id(const CmDriver& driver, rdma_event_channel* events) {
  rdma_cm_id* id = nullptr;
  return IdHandle(driver.create_id(events, &id, nullptr, RDMA_PS_TCP) == 0 ? id : nullptr,
                  {&driver});
}

int milliseconds_of(Timeout time) {
  const auto rounded_up = std::chrono::ceil<std::chrono::milliseconds>(time);
  return static_cast<int>(std::min<std::int64_t>(rounded_up.count(), 1'000'000));
}

/// The content of an event, which was acknowledged.
struct Event {
  rdma_cm_event_type type;
  int status;
  rdma_cm_id* id;
  std::uint32_t queue_pair_number;
  std::array<std::byte, 256> bytes;
  std::size_t byte_count;

  std::span<const std::byte> private_data() const { return {bytes.data(), byte_count}; }
};

/// Takes the next event, if there is one.
std::optional<Event> take_event(const CmDriver& driver, rdma_event_channel* events) {
  rdma_cm_event* given = nullptr;
  if (driver.get_cm_event(events, &given) != 0) {
    if (errno == EAGAIN || errno == EINTR) return std::nullopt;
    refuse_manager("rdma_get_cm_event", "see the kernel's log");
  }
  const rdma_conn_param& parameters = given->param.conn;
  Event event{.type = given->event,
              .status = given->status,
              .id = given->id,
              .queue_pair_number = parameters.qp_num,
              .bytes = {},
              .byte_count = parameters.private_data ? parameters.private_data_len : 0u};
  assert(event.byte_count <= event.bytes.size());
  if (event.byte_count > 0)
    std::memcpy(event.bytes.data(), parameters.private_data, event.byte_count);
  driver.ack_cm_event(given);
  return event;
}

}  // namespace

/// One call of connect().
class ConnectionManager::Negotiation {
 public:
  Negotiation(const ConnectionManager& manager, std::span<CmPartner> partners, detail::Clock& clock,
              Deadline deadline)
      : manager_(manager), driver_(manager.driver_), clock_(clock), deadline_(deadline) {
    for (CmPartner& partner : partners) {
      assert(partner.pair != nullptr);
      assert(partner.ends.process == manager.process_);
      attempts_.push_back({.partner = &partner});
    }
  }

  void run(const ConnectPatience& patience) {
    for (Attempt& attempt : attempts_)
      if (attempt.partner->ends.asks()) begin(attempt);
    for (;;) {
      handle_events();
      if (done()) break;
      for (Attempt& attempt : attempts_)
        if (attempt.step == ConnectStep::pausing && clock_.now() >= attempt.again_at)
          begin(attempt);
      if (deadline_.passed(clock_.now())) fail_late();
      if (patience.is_pointless())
        throw Error(ErrorCode::peer_failed,
                    "connecting was given up: a rank has died, or has given up");
      wait();
    }
    for (Attempt& attempt : attempts_) {
      assert(attempt.id);
      attempt.partner->id = std::move(attempt.id);
    }
  }

 private:
  struct Attempt {
    CmPartner* partner;
    ConnectStep step = ConnectStep::awaiting_request;
    IdHandle id = {};
    Timeout again_at = {};  // pausing
  };

  void begin(Attempt& attempt) {
    attempt.step = ConnectStep::resolving_address;
    attempt.id = make_id(driver_, manager_.events_.get());
    if (!attempt.id) fail_call(attempt, "rdma_create_id");
    const Endpoint& remote = attempt.partner->ends.remote;
    IpAddress from = address_of(manager_.port_.gid.gid, 0);
    IpAddress to = address_of(gid_of(remote), remote.service_port);
    const Timeout time = std::min(address_time, deadline_.remaining(clock_.now()));
    if (driver_.resolve_addr(attempt.id.get(), &from.any, &to.any, milliseconds_of(time)) != 0)
      fail_call(attempt, "rdma_resolve_addr");
  }

  void request(Attempt& attempt) {
    assert(attempt.step == ConnectStep::resolving_route);
    assert(attempt.partner->ends.asks());
    attempt.step = ConnectStep::requesting;
    const ConnectionRequest data = request_of(attempt.partner->ends);
    rdma_conn_param parameters = parameters_of(attempt, data);
    if (driver_.connect(attempt.id.get(), &parameters) != 0) fail_call(attempt, "rdma_connect");
  }

  void finish(Attempt& attempt, const Event& response) {
    ConnectionRequest data{};
    const Refusal wrong = read_request(response.private_data(), manager_.process_, data);
    if (wrong != Refusal::none || !belongs_to(data, attempt.partner->ends) ||
        response.queue_pair_number != attempt.partner->ends.remote.queue_pair_number)
      fail(attempt, ErrorCode::mismatch, "something else than this partner has answered there");
    enter_ready(attempt, attempt.id.get());
    if (driver_.establish(attempt.id.get()) != 0) fail_answered_call(attempt, "rdma_establish");
    attempt.step = ConnectStep::connected;
  }

  void answer(const Event& event) {
    IdHandle id(event.id, {&driver_});
    ConnectionRequest data{};
    Refusal reason = read_request(event.private_data(), manager_.process_, data);
    if (reason == Refusal::none) {
      const auto attempt =
          std::find_if(attempts_.begin(), attempts_.end(), [&](const Attempt& entry) {
            return entry.step == ConnectStep::awaiting_request &&
                   belongs_to(data, entry.partner->ends) &&
                   event.queue_pair_number == data.from_queue_pair;
          });
      if (attempt != attempts_.end()) return accept(*attempt, std::move(id));
      reason = Refusal::not_expected;
    }
    const ConnectionRefusal refusal = refusal_of(reason);
    // The sender of the request may be gone already.
    (void)driver_.reject(id.get(), &refusal, sizeof refusal);
  }

  void accept(Attempt& attempt, IdHandle id) {
    assert(!attempt.partner->ends.asks());
    assert(!attempt.id);
    attempt.id = std::move(id);
    attempt.step = ConnectStep::awaiting_confirmation;
    require_our_device(attempt, *attempt.id);
    enter_ready(attempt, attempt.id.get());
    const ConnectionRequest data = request_of(attempt.partner->ends);
    rdma_conn_param parameters = parameters_of(attempt, data);
    if (driver_.accept(attempt.id.get(), &parameters) != 0)
      fail_answered_call(attempt, "rdma_accept");
  }

  void advance(Attempt& attempt, const Event& event) {
    switch (static_cast<int>(event.type)) {
      case RDMA_CM_EVENT_ADDR_RESOLVED:
        require_our_device(attempt, *attempt.id);
        attempt.step = ConnectStep::resolving_route;
        if (driver_.resolve_route(attempt.id.get(),
                                  milliseconds_of(deadline_.remaining(clock_.now()))) != 0)
          fail_call(attempt, "rdma_resolve_route");
        break;
      case RDMA_CM_EVENT_ROUTE_RESOLVED:
        request(attempt);
        break;
      case RDMA_CM_EVENT_CONNECT_RESPONSE:
        finish(attempt, event);
        break;
      case RDMA_CM_EVENT_ESTABLISHED:
        attempt.step = ConnectStep::connected;
        break;
      case RDMA_CM_EVENT_ADDR_CHANGE:  // a bonded interface has changed; the device stays chosen
      case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        break;
      default:
        fail_on(attempt, event);
    }
  }

  void fail_on(Attempt& attempt, const Event& event) {
    if (event.type == RDMA_CM_EVENT_REJECTED && event.status == rejected_as_stale &&
        attempt.step == ConnectStep::requesting) {
      attempt.step = ConnectStep::pausing;
      attempt.again_at = clock_.now() + stale_pause;
      attempt.id.reset();
      return;
    }
    const bool gave_up =
        event.type == RDMA_CM_EVENT_REJECTED || event.type == RDMA_CM_EVENT_DISCONNECTED;
    fail(attempt, gave_up ? ErrorCode::peer_failed : ErrorCode::system,
         meaning_of(event.type, event.status, event.private_data()),
         errno_of(event.type, event.status));
  }

  void require_our_device(const Attempt& attempt, const rdma_cm_id& id) const {
    const PortDescription& ours = manager_.port_.description;
    const char* device =
        id.verbs ? manager_.port_.driver().get_device_name(id.verbs->device) : "none";
    if (device == ours.device && id.port_num == ours.port) return;
    fail(attempt, ErrorCode::system,
         "the kernel takes device " + std::string(device) + " port " + std::to_string(id.port_num) +
             " for this path; set TUTTI_DEVICE to it, correct the routes, or set "
             "TUTTI_CONNECT=exchange");
  }

  void enter_ready(const Attempt& attempt, rdma_cm_id* id) const {
    attempt.partner->pair->connect_by(
        [&](ibv_qp_attr* attributes, int* mask) {
          if (driver_.init_qp_attr(id, attributes, mask) != 0)
            fail_answered_call(attempt, "rdma_init_qp_attr");
          return 0;
        },
        attempt.partner->ends.remote, attempt.partner->name, manager_.path_);
  }

  void handle_events() {
    // No more than can wait at once: a flood of foreign requests must not hide the deadline.
    for (int handled = 0; handled < backlog; ++handled) {
      const std::optional<Event> event = take_event(driver_, manager_.events_.get());
      if (!event) return;
      if (event->type == RDMA_CM_EVENT_CONNECT_REQUEST) {
        answer(*event);
        continue;
      }
      const auto attempt =
          std::find_if(attempts_.begin(), attempts_.end(),
                       [&](const Attempt& entry) { return entry.id.get() == event->id; });
      // Events of earlier connections are ignored: the side channel finds out who has died.
      if (attempt != attempts_.end()) advance(*attempt, *event);
    }
  }

  void wait() const {
    pollfd waited{.fd = manager_.events_->fd, .events = POLLIN, .revents = 0};
    const Timeout time = std::min(look_interval, deadline_.remaining(clock_.now()));
    (void)::poll(&waited, 1, milliseconds_of(time));  // EINTR: one more turn
  }

  rdma_conn_param parameters_of(const Attempt& attempt, const ConnectionRequest& data) const {
    const PathDefaults& path = manager_.path_;
    const ConnectionEnds& ends = attempt.partner->ends;
    // Both ends must grant the same number; librdmacm refuses more than this device can initiate.
    const int initiated_max = std::clamp(manager_.port_.limits.max_qp_init_rd_atom, 0, 16);
    const auto reads_max = static_cast<std::uint8_t>(
        std::min<int>(initiated_max, std::min(ends.local.reads_max, ends.remote.reads_max)));
    rdma_conn_param parameters{};
    parameters.private_data = &data;
    parameters.private_data_len = sizeof data;
    parameters.responder_resources = reads_max;
    parameters.initiator_depth = reads_max;
    parameters.retry_count = path.retries;
    parameters.rnr_retry_count = path.receiver_not_ready_retries;
    parameters.qp_num = ends.local.queue_pair_number;
    return parameters;
  }

  std::string places_of(const Attempt& attempt) const {
    const Endpoint& remote = attempt.partner->ends.remote;
    return attempt.partner->name + " at " +
           text_of(address_of(gid_of(remote), remote.service_port)) + " from " +
           text_of(address_of(manager_.port_.gid.gid, 0)) + " (" + manager_.port_.name() + ")";
  }

  bool done() const {
    return std::all_of(attempts_.begin(), attempts_.end(), [](const Attempt& attempt) {
      return attempt.step == ConnectStep::connected;
    });
  }

  [[noreturn]] void fail(const Attempt& attempt, ErrorCode code, const std::string& cause,
                         int error = 0) const {
    throw Error(
        code,
        "cannot connect to " + places_of(attempt) + ", " + text_of(attempt.step) + ": " + cause,
        error);
  }

  [[noreturn]] void fail_call(const Attempt& attempt, const char* call) const {
    const int error = errno;
    fail(attempt, ErrorCode::system,
         std::string(call) + ": " + std::strerror(error) +
             "; check the address and its route, or set TUTTI_CONNECT=exchange",
         error);
  }

  /// For a call after a request has arrived or was answered: if the other end has withdrawn the
  /// request, the kernel refuses the call with EINVAL before it says so by an event.
  [[noreturn]] void fail_answered_call(const Attempt& attempt, const char* call) const {
    if (errno != EINVAL) fail_call(attempt, call);
    fail(
        attempt, ErrorCode::peer_failed,
        std::string(call) + ": Invalid argument; the other end gave up meanwhile: see what it says",
        EINVAL);
  }

  [[noreturn]] void fail_late() const {
    const auto late = [](const Attempt& attempt) { return attempt.step != ConnectStep::connected; };
    const auto first = std::find_if(attempts_.begin(), attempts_.end(), late);
    const auto others = std::count_if(first, attempts_.end(), late) - 1;
    fail(*first, ErrorCode::timed_out,
         "the time is up" +
             (others == 0 ? "" : " (also for " + std::to_string(others) + " more partners)") +
             "; see what that rank says, or raise TUTTI_SETUP_TIMEOUT",
         ETIMEDOUT);
  }

  const ConnectionManager& manager_;
  const CmDriver& driver_;
  detail::Clock& clock_;
  Deadline deadline_;
  std::vector<Attempt> attempts_;
};

ConnectionManager::ConnectionManager(const Port& port, std::uint64_t process,
                                     const CmDriver& driver, const PathDefaults& path)
    : port_(port),
      process_(process),
      driver_(driver),
      path_(path),
      events_(driver.create_event_channel(), {&driver}) {
  if (!events_)
    refuse_manager("rdma_create_event_channel",
                   "load the kernel module rdma_ucm and allow this user /dev/infiniband/rdma_cm");
  const int flags = ::fcntl(events_->fd, F_GETFL);
  if (flags < 0 || ::fcntl(events_->fd, F_SETFL, flags | O_NONBLOCK) != 0)
    refuse_manager("fcntl of the event channel", "this is not expected to fail");
  listener_ = make_id(driver_, events_.get());
  if (!listener_) refuse_manager("rdma_create_id", "see the kernel's log");
  IpAddress address = address_of(port.gid.gid, 0);
  const std::string place = text_of(address) + " of " + port.name();
  if (driver_.bind_addr(listener_.get(), &address.any) != 0)
    refuse_manager("rdma_bind_addr to " + place,
                   "check that the network interface of this port has that address");
  if (driver_.listen(listener_.get(), backlog) != 0)
    refuse_manager("rdma_listen at " + place, "see the kernel's log");
  service_port_ = be16toh(driver_.get_src_port(listener_.get()));
}

void ConnectionManager::connect(std::span<CmPartner> partners, detail::Clock& clock,
                                const ConnectPatience& patience) {
  Negotiation(*this, partners, clock, Deadline::after(patience.timeout, clock.now())).run(patience);
}

}  // namespace tutti::verbs
