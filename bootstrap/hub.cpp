#include "bootstrap/hub.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bootstrap/frame.hpp"
#include "bootstrap/handshake.hpp"
#include "bootstrap/probes.hpp"
#include "bootstrap/readiness.hpp"
#include "bootstrap/socket.hpp"
#include "bootstrap/thread.hpp"
#include "bootstrap/wire.hpp"
#include "tutti/detail/check.hpp"
#include "tutti/detail/clock.hpp"
#include "tutti/exchange.hpp"
#include "tutti/status.hpp"

namespace tutti::bootstrap {

namespace {

using namespace std::chrono_literals;
using detail::now;
using wire::FrameType;

// A client says hello and answers the challenge at once; its packets may be lost twice before this
// is over.
constexpr Timeout greeting_timeout = 5s;
// A refused client needs one round trip to read the reason.
constexpr Timeout closing_timeout = 1s;
// How long the hub, when it is stopped before all ranks have met, still waits for what rank 0 has
// sent; and how long it tries to send the last frames.
constexpr Timeout farewell_timeout = 500ms;
// How long the hub stops accepting, and leaves connections in the kernel's queue: while descriptors
// are short and no stranger has one to give back; and, once all ranks have met, when it has
// accepted accepts_per_turn within this time.
constexpr Timeout accept_pause = 100ms;
// How many strangers are kept in addition to one for each rank that is still to come.  Once there
// are accepts_per_turn more, strangers are dropped down to this number, never the newest ones, so
// that silent connections cannot lock a rank out.
constexpr std::size_t strangers_max = 128;
// A limit per turn of the loop, so that a flood of connections does not starve the ranks.  It is
// a fraction of strangers_max, so that newcomers have some turns to say who they are.
constexpr std::size_t accepts_per_turn = 16;
// A refused client has said its hello, and nothing more is expected from it.
constexpr std::size_t ignored_bytes_max = std::size_t{64} << 10;

Deadline in(Timeout timeout) noexcept {
  return Deadline::after(timeout, now());
}

using SharedFrame = std::shared_ptr<const std::vector<std::byte>>;

SharedFrame make_frame(FrameType type, std::span<const std::byte> front = {},
                       std::span<const std::byte> rest = {}) {
  auto bytes = std::make_shared<std::vector<std::byte>>();
  append_frame(*bytes, type, front, rest);
  return bytes;
}

struct Connection {
  enum class Phase : std::uint8_t { greeting, challenged, member, closing };

  Connection(UnsharedDescriptor accepted, std::uint64_t host)
      : socket(std::move(accepted)),
        origin(host),
        reader(sizeof(wire::Hello)),
        expires(in(greeting_timeout)) {}

  bool is_stranger() const noexcept { return phase != Phase::member && !lost; }

  UnsharedDescriptor socket;
  std::uint64_t origin;  // its host, see origin_of()
  FrameReader reader;
  struct Outgoing {
    SharedFrame frame;
    std::size_t sent;
  };
  std::deque<Outgoing> outbox;
  Phase phase = Phase::greeting;
  wire::Hello hello;              // once it is challenged
  wire::Challenge challenge;      // likewise
  std::uint32_t rank = 0;         // a member's
  Deadline expires;               // for all connections but members'
  std::size_t ignored_bytes = 0;  // since it was refused
  bool awaits_room = false;       // is waited for until more of the outbox can be sent
  bool deaf = false;              // sending has failed; what it said before is still to be read
  bool fell_silent = false;       // and has ended because of that
  bool lost = false;              // it will be forgotten at the end of this turn
};

struct Member {
  Connection* connection = nullptr;  // NULL: the rank is not here yet, or no longer
  bool left = false;
  bool is_gone = false;      // for good, see Probe
  bool gave_up = false;      // it came, and stopped waiting for the others
  bool has_begun = false;    // the current step; what it brings is in `step`
  bool contributed = false;  // all that it brings to the current step
  bool compares = false;     // and needs nothing else if all have contributed the same
  wire::Step step{};
  std::vector<std::byte> contribution;
  std::vector<std::byte> letters;  // to it, which are not sent yet
};

}  // namespace

// Only allocations can throw here, and the limits of wire.hpp keep them small.  Without memory for
// those there is no job to save, so everything runs below serve(), which is noexcept.
class Hub::Service {
 public:
  Service(UnsharedDescriptor listener, int stop, const HubOptions& options)
      : listener_(std::move(listener)),
        stop_(stop),
        secret_(options.secret),
        linger_(options.linger),
        ends_quietly_(options.ends_quietly),
        own_rank_(options.own_rank),
        members_(options.rank_count) {
    if (!options.places.empty())
      probes_ = Probes(options.places, own_rank_, options.patience, options.silent_since);
    for (std::size_t rank = 0; rank < options.is_gone.size(); ++rank)
      members_[rank].is_gone = options.is_gone[rank];
    if (!fill_random(job_)) throw Error(ErrorCode::system, "getrandom", errno);
    if (!ready_.add(stop_, &stop_) || !ready_.add(listener_.get(), &listener_))
      throw Error(ErrorCode::system, std::string("epoll_ctl: ") + std::strerror(errno), errno);
  }

  /// Throws Error{system}.
  void start() {
    thread_ = thread_without_signals([this] { serve(); });
  }
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  /// Any thread may call this.  True: when the hub is told to stop, it serves until no rank needs
  /// it any more.
  void serve_on(bool until_not_needed) noexcept { serves_on_ = until_not_needed; }
  /// Any thread may ask.  If it is over, join() returns at once.
  bool is_over() const noexcept { return is_over_; }
  /// After join().
  Silences silences() const { return {probes_.silent_since(), probes_.vanished()}; }

  /// Any thread may ask.
  Relayed relayed() const noexcept {
    return {relayed_.received.load(std::memory_order_relaxed),
            relayed_.sent.load(std::memory_order_relaxed)};
  }

 private:
  void serve() noexcept {
    while (!finished()) {
      sleep_until_something();
      expire_strangers();
      forget_lost();
    }
    say_farewell();
    is_over_ = true;
  }

  std::uint32_t rank_count() const noexcept { return static_cast<std::uint32_t>(members_.size()); }

  bool finished() const noexcept {
    if (!stopping_) return false;
    if (stopping_->passed(now())) return true;
    const Member& own = members_[own_rank_];
    const bool own_is_gone = own.connection == nullptr || own.left;
    const bool ends_early = ends_quietly_ && !serves_on_;
    return own_is_gone && (!joined_ || incident_ || ends_early || !needed());
  }

  /// Whether any rank is left that may wait for news.
  bool needed() const noexcept {
    return std::any_of(members_.begin(), members_.end(), [](const Member& member) {
      return member.connection != nullptr && !member.left;
    });
  }

  void stop() noexcept {
    std::uint64_t times = 0;  // a hub that serves on is stopped again when the process ends
    [[maybe_unused]] const ssize_t taken = ::read(stop_, &times, sizeof times);
    stopping_ = in(!joined_ ? farewell_timeout : serves_on_ ? wait_forever : linger_);
    if (!joined_) return;
    // Nobody can join any more, and the next job may want the port.
    close_listener();
    drop_those_that_join();
  }

  void close_listener() noexcept {
    if (listener_) ready_.remove(listener_.get());
    listener_ = UnsharedDescriptor();
  }

  void pause_accepting(const Deadline& until) noexcept {
    accept_again_ = until;
    ready_.change(listener_.get(), &listener_, 0);
  }

  void lose(Connection& connection) noexcept {
    connection.lost = true;
    any_is_lost_ = true;
  }

  // Sleeping and reading.

  void sleep_until_something() {
    if (accept_again_ && accept_again_->passed(now())) {
      accept_again_.reset();
      if (listener_) ready_.change(listener_.get(), &listener_, EPOLLIN);
    }
    Timeout sleep = wait_forever;
    for (const auto& deadline : {stopping_, accept_again_, look_at_strangers_})
      if (deadline) sleep = std::min(sleep, deadline->remaining(now()));
    if (!probes_.empty()) {
      sleep_beside_probes(sleep);
      sleep = Timeout::zero();
    }

    bool have_come = false;
    for (const epoll_event& event : ready_.wait(sleep)) {
      if (event.data.ptr == &stop_) {
        stop();
      } else if (event.data.ptr == &listener_) {
        have_come = true;
      } else {
        Connection& connection = *static_cast<Connection*>(event.data.ptr);
        if ((event.events & EPOLLOUT) != 0) flush(connection);
        if ((event.events & ~std::uint32_t{EPOLLOUT}) != 0 && !connection.lost) receive(connection);
      }
    }
    look_at_probes();
    // Members come first, and whoever is there before those who have just come.
    if (have_come && listener_) accept_newcomers();
  }

  // Ranks that have not come to a meeting of those that are still there.

  bool is_awaited(std::uint32_t rank) const noexcept {
    return !probes_.empty() && rank != own_rank_ && !members_[rank].is_gone &&
           members_[rank].connection == nullptr;
  }

  /// Returns once a probe or anything else is ready, or after `sleep`.
  void sleep_beside_probes(Timeout sleep) {
    for (std::uint32_t rank = 0; rank < rank_count(); ++rank)
      probes_.look_for(rank, is_awaited(rank));
    leave_out(probes_.begin(now()));
    polled_.assign(1, {ready_.descriptor(), POLLIN, 0});
    if (probes_.empty()) return;  // all that are still there have come
    probes_.await(polled_);
    sleep = std::min(sleep, probes_.sleep_max(now()));
    (void)::poll(polled_.data(), polled_.size(), poll_milliseconds(sleep));
  }

  /// Handles the entries of polled_ from the second on.
  void look_at_probes() {
    if (!probes_.empty()) leave_out(probes_.look(std::span(polled_).subspan(1), now()));
  }

  void leave_out(const std::vector<std::uint32_t>& ranks) {
    for (const std::uint32_t rank : ranks)
      if (is_awaited(rank)) members_[rank].is_gone = true;
    if (!ranks.empty()) welcome_if_complete();
  }

  void accept_newcomers() {
    // Until all ranks have met, the limit is for each turn; after that, for each accept_pause.
    if (!joined_ || !period_ends_ || period_ends_->passed(now())) {
      period_ends_ = in(accept_pause);
      accepted_ = 0;
    }
    for (; accepted_ < accepts_per_turn; ++accepted_) {
      Address peer;
      peer.bytes = sizeof peer.storage;
      UnsharedDescriptor socket = UnsharedDescriptor::made_by([&] {
        return ::accept4(listener_.get(), reinterpret_cast<sockaddr*>(&peer.storage), &peer.bytes,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
      });
      if (!socket) {
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
          shortage_ = 0;
          break;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
          const int error = errno;
          // accept4() fails for want of a descriptor even if no connection is waiting.
          pollfd waiting{listener_.get(), POLLIN, 0};
          if (::poll(&waiting, 1, 0) == 0) {
            shortage_ = 0;
            break;
          }
          // The next turn accepts with the freed descriptor, after it has read what clients have
          // sent.
          if (drop_strangers(1) != 0 || probes_.give_back(accepts_per_turn, now()) != 0) return;
          shortage_ = error;
          pause_accepting(in(accept_pause));
          return;
        }
        continue;  // that client has gone again
      }
      auto connection = std::make_unique<Connection>(std::move(socket), origin_of(peer));
      if (!ready_.add(connection->socket.get(), connection.get())) {  // it will try again
        shortage_ = errno;
        pause_accepting(in(accept_pause));
        return;
      }
      shortage_ = 0;
      look_at_strangers_by(connection->expires);
      connections_.push_back(std::move(connection));
    }
    if (joined_ && accepted_ == accepts_per_turn) pause_accepting(*period_ends_);
    const auto strangers = static_cast<std::size_t>(
        std::count_if(connections_.begin(), connections_.end(),
                      [](const auto& connection) { return connection->is_stranger(); }));
    const std::size_t room = strangers_max + ranks_to_come();
    // `room` shrinks by one whenever a rank joins.  To drop a stranger each time would delay the
    // ranks, so some more are tolerated.
    if (strangers > room + accepts_per_turn) (void)drop_strangers(strangers - room);
  }

  std::size_t ranks_to_come() const noexcept {
    if (joined_) return 0;
    return static_cast<std::size_t>(
        std::count_if(members_.begin(), members_.end(),
                      [](const Member& member) { return member.connection == nullptr; }));
  }

  /// Drops those that have come first from the host that has most of them, so that a crowd pushes
  /// out its own.  Returns how many.
  std::size_t drop_strangers(std::size_t count) {
    std::map<std::uint64_t, std::size_t> crowds;  // by origin
    for (const auto& connection : connections_)
      if (connection->is_stranger()) ++crowds[connection->origin];
    std::size_t dropped = 0;
    for (; dropped < count && !crowds.empty(); ++dropped) {
      const auto largest = std::max_element(
          crowds.begin(), crowds.end(),
          [](const auto& one, const auto& other) { return one.second < other.second; });
      if (largest->second == 0) break;
      --largest->second;
      for (const auto& connection : connections_) {
        if (!connection->is_stranger() || connection->origin != largest->first) continue;
        lose(*connection);
        break;
      }
    }
    return dropped;
  }

  void look_at_strangers_by(const Deadline& deadline) noexcept {
    const Timeout at = now();
    if (!look_at_strangers_ || deadline.remaining(at) < look_at_strangers_->remaining(at))
      look_at_strangers_ = deadline;
  }

  void expire_strangers() noexcept {
    if (!look_at_strangers_ || !look_at_strangers_->passed(now())) return;
    look_at_strangers_.reset();
    for (const auto& connection : connections_) {
      if (!connection->is_stranger()) continue;
      if (connection->expires.passed(now()))
        lose(*connection);
      else
        look_at_strangers_by(connection->expires);
    }
  }

  void receive(Connection& connection) {
    std::size_t bytes = 0;
    const auto space = connection.reader.space();
    errno = 0;
    switch (receive_some(connection.socket.get(), space, bytes)) {
      case Reception::nothing_yet:
        return;
      case Reception::end:
        connection.fell_silent = is_silence(errno);
        lose(connection);
        return;
      case Reception::some:
        break;
    }
    if (connection.phase == Connection::Phase::closing) {  // nobody listens any more
      connection.ignored_bytes += bytes;
      if (connection.ignored_bytes > ignored_bytes_max) lose(connection);
      return;
    }
    connection.reader.received(bytes);
    while (!connection.lost && connection.phase != Connection::Phase::closing) {
      const auto frame = connection.reader.next();
      if (!frame) break;
      const bool understood =
          connection.phase == Connection::Phase::greeting     ? challenge(connection, *frame)
          : connection.phase == Connection::Phase::challenged ? admit(connection, *frame)
                                                              : handle(connection, *frame);
      if (!understood) lose(connection);
    }
    if (connection.reader.malformed()) lose(connection);
  }

  /// Losing one connection makes news for the others, and sending that news may lose more of them.
  void forget_lost() {
    if (!std::exchange(any_is_lost_, false)) return;
    for (bool again = true; again;) {
      again = false;
      for (std::uint32_t rank = 0; rank < rank_count(); ++rank) {
        Member& member = members_[rank];
        if (member.connection == nullptr || !member.connection->lost) continue;
        const bool fell_silent = member.connection->fell_silent;
        member.connection = nullptr;
        if (!joined_ && !probes_.empty()) {
          probes_.forget(rank);
          if (fell_silent) probes_.suspect(rank, now());
        }
        // While ranks are joining its place is simply free again: the rank may have been restarted.
        if (joined_ && !member.left) {
          announce({static_cast<std::uint32_t>(Incident::Kind::died), rank});
        }
        again = true;
      }
    }
    std::erase_if(connections_, [this](const auto& connection) {
      if (connection->lost) ready_.remove(connection->socket.get());
      return connection->lost;
    });
  }

  // Sending.

  void send(Connection& connection, SharedFrame frame) {
    if (connection.lost || connection.deaf) return;
    connection.outbox.push_back({std::move(frame), 0});
    flush(connection);
  }

  void broadcast(const SharedFrame& frame) {
    for (const Member& member : members_) {
      if (member.connection != nullptr && !member.left) send(*member.connection, frame);
    }
  }

  void flush(Connection& connection) noexcept {
    send_outbox(connection);
    if (connection.awaits_room == !connection.outbox.empty()) return;
    connection.awaits_room = !connection.outbox.empty();
    ready_.change(connection.socket.get(), &connection,
                  connection.awaits_room ? EPOLLIN | EPOLLOUT : EPOLLIN);
  }

  void send_outbox(Connection& connection) noexcept {
    while (!connection.outbox.empty()) {
      Connection::Outgoing& first = connection.outbox.front();
      std::size_t sent = 0;
      if (!send_some(connection.socket.get(), std::span{*first.frame}.subspan(first.sent), sent)) {
        // It is lost only once it has been read to its end: the last that a rank said before it
        // closed may be the goodbye that tells it from a dead one.
        ::shutdown(connection.socket.get(), SHUT_RDWR);
        connection.outbox.clear();
        connection.deaf = true;
        return;
      }
      first.sent += sent;
      if (first.sent < first.frame->size()) return;
      connection.outbox.pop_front();
    }
  }

  /// The ranks that have not contributed to the step or, before all have met, that are not here.
  /// Ranks whose deadline is a moment earlier than the asker's are gone by then; they are named
  /// only if nobody else is missing.
  std::vector<std::uint32_t> missing_ranks(std::uint64_t sequence, bool impatient_too) const {
    std::vector<std::uint32_t> missing;
    for (std::uint32_t rank = 0; rank < rank_count(); ++rank) {
      const Member& member = members_[rank];
      const bool absent = rank != own_rank_ && member.connection == nullptr && !member.is_gone;
      if (joined_ ? sequence == sequence_ && !member.contributed
                  : absent && (impatient_too || !member.gave_up)) {
        missing.push_back(rank);
      }
    }
    return missing;
  }

  SharedFrame missing_frame(FrameType type, std::uint64_t sequence) const {
    std::vector<std::uint32_t> missing = missing_ranks(sequence, false);
    if (missing.empty()) missing = missing_ranks(sequence, true);
    return list_frame(type, sequence, missing, shortage_ != 0 ? shortage_ : probes_.shortage());
  }

  static SharedFrame list_frame(FrameType type, std::uint64_t sequence,
                                std::span<const std::uint32_t> ranks, int shortage = 0) {
    const wire::Missing head{sequence, static_cast<std::uint32_t>(ranks.size()),
                             static_cast<std::uint32_t>(shortage)};
    return make_frame(type, bytes_of(head), std::as_bytes(ranks));
  }

  // Handling frames.  The result false means that this is no client of ours.

  bool challenge(Connection& connection, const Frame& frame) {
    const auto hello = front_of<wire::Hello>(frame.payload);
    if (frame.type != FrameType::hello || !hello || hello->magic != wire::magic) return false;
    if (hello->version != wire::protocol_version) {
      refuse(connection, {wire::Reason::version, wire::protocol_version});
      return true;
    }
    connection.hello = *hello;
    connection.challenge.job = job_;
    if (!fill_random(connection.challenge.nonce)) return false;
    connection.phase = Connection::Phase::challenged;
    send(connection, make_frame(FrameType::challenge, bytes_of(connection.challenge)));
    return true;
  }

  bool admit(Connection& connection, const Frame& frame) {
    const auto proof = front_of<wire::Proof>(frame.payload);
    if (frame.type != FrameType::proof || !proof) return false;
    const wire::Hello& hello = connection.hello;
    // The secret comes before anything else is compared: a stranger learns nothing about the job.
    if (!equal_in_constant_time(proof->digest,
                                prove(Prover::rank, secret_, hello, connection.challenge))) {
      refuse(connection, {wire::Reason::secret, 0});
      return true;
    }
    // Only now, so that strangers cost little: so far only the challenge has been sent, which the
    // options would not speed up, and a silent client has a deadline anyway.
    set_connection_options(connection.socket.get());
    const wire::Proof own{prove(Prover::hub, secret_, hello, connection.challenge)};
    send(connection, make_frame(FrameType::proof, bytes_of(own)));
    if (hello.rank_count != rank_count()) {
      refuse(connection, {wire::Reason::rank_count, rank_count()});
    } else if (hello.rank >= rank_count() || hello.rank < own_rank_) {
      refuse(connection, {wire::Reason::rank_range, rank_count()});
    } else if (members_[hello.rank].is_gone) {
      refuse(connection, {wire::Reason::left_out, 0});
    } else if (const Connection* holder = members_[hello.rank].connection;
               joined_ || (holder != nullptr && !holder->lost)) {
      refuse(connection, {wire::Reason::rank_taken, 0});
    } else {
      connection.phase = Connection::Phase::member;
      connection.rank = hello.rank;
      connection.reader.set_limit(wire::to_hub_bytes_max(rank_count()));
      members_[hello.rank].connection = &connection;
      members_[hello.rank].gave_up = false;
      welcome_if_complete();
    }
    return true;
  }

  void welcome_if_complete() {
    if (joined_) return;
    joined_ = std::all_of(members_.begin(), members_.end(), [](const Member& member) {
      return member.is_gone ||
             (member.connection != nullptr && !member.connection->lost && !member.left);
    });
    if (!joined_) return;
    if (probes_.empty())
      broadcast(make_frame(FrameType::welcome));
    else
      count_anew();
  }

  /// Welcomes the ranks that are still there, and numbers them from 0 on.
  void count_anew() {
    std::vector<std::uint32_t> present;
    std::vector<Member> members;
    for (std::uint32_t rank = 0; rank < rank_count(); ++rank) {
      if (members_[rank].is_gone) continue;
      if (rank == own_rank_) own_rank_ = static_cast<std::uint32_t>(present.size());
      members_[rank].connection->rank = static_cast<std::uint32_t>(present.size());
      present.push_back(rank);
      members.push_back(std::move(members_[rank]));
    }
    members_ = std::move(members);
    for (const Member& member : members_)
      member.connection->reader.set_limit(wire::to_hub_bytes_max(rank_count()));
    probes_.clear();
    // The hub of a later meeting listens at the same port.
    close_listener();
    drop_those_that_join();
    broadcast(list_frame(FrameType::welcome, 0, present));
  }

  void drop_those_that_join() noexcept {
    for (const auto& connection : connections_) {
      if (connection->phase == Connection::Phase::greeting ||
          connection->phase == Connection::Phase::challenged)
        lose(*connection);
    }
  }

  void refuse(Connection& connection, const wire::Refusal& refusal) {
    send(connection, make_frame(FrameType::refusal, bytes_of(refusal)));
    // The frame fits any socket buffer, so it is on its way; the client closes after reading it.
    ::shutdown(connection.socket.get(), SHUT_WR);
    connection.phase = Connection::Phase::closing;
    connection.expires = in(closing_timeout);
    look_at_strangers_by(connection.expires);
  }

  bool handle(Connection& connection, const Frame& frame) {
    Member& member = members_[connection.rank];
    switch (frame.type) {
      case FrameType::contribution:
      case FrameType::comparison:
        return take_contribution(member, frame);
      case FrameType::letters:
        return take_letters(member, frame.payload);
      case FrameType::query: {
        const auto step = front_of<wire::Step>(frame.payload);
        if (!step) return false;
        send(connection, missing_frame(FrameType::missing, step->sequence));
        return true;
      }
      case FrameType::incident: {
        const auto news = front_of<wire::News>(frame.payload);
        if (!news || news->rank >= rank_count()) return false;
        if (news->kind == static_cast<std::uint32_t>(Incident::Kind::none) ||
            news->kind > static_cast<std::uint32_t>(Incident::Kind::silent)) {
          return false;
        }
        announce(*news);
        return true;
      }
      case FrameType::goodbye:
        if (!joined_ && connection.rank != own_rank_) {
          member.gave_up = true;
          lose(connection);  // its place is free again
          return true;
        }
        member.left = true;
        if (joined_)
          broadcast(make_frame(FrameType::left, bytes_of(wire::News{0, connection.rank})));
        return true;
      case FrameType::hello:
      case FrameType::welcome:
      case FrameType::refusal:
      case FrameType::gave_up:
      case FrameType::gathered:
      case FrameType::disagreement:
      case FrameType::missing:
      case FrameType::left:
      case FrameType::equal:
      case FrameType::delivered:
      case FrameType::challenge:
      case FrameType::proof:
        break;
    }
    return false;
  }

  bool take_contribution(Member& member, const Frame& frame) {
    const auto step = front_of<wire::Step>(frame.payload);
    if (!step || !joined_ || step->sequence != sequence_ || member.contributed) return false;
    if ((step->total_bytes & wire::letters_bit) != 0) return false;
    const auto payload = frame.payload.subspan(sizeof *step);
    if (member.has_begun) return false;  // with letters
    count_received(frame.payload);
    member.compares = frame.type == FrameType::comparison;
    member.contribution.assign(payload.begin(), payload.end());
    begin(member, *step);
    contribute(member);
    return true;
  }

  bool take_letters(Member& member, std::span<const std::byte> payload) {
    const auto head = front_of<wire::Letters>(payload);
    if (!head || !joined_ || head->sequence != sequence_ || member.contributed) return false;
    const std::uint64_t record_bytes = head->total_bytes & ~wire::letters_bit;
    if (record_bytes == head->total_bytes || record_bytes > wire::chunk_bytes_max(rank_count()))
      return false;
    const std::size_t letter_bytes = sizeof(std::uint32_t) + record_bytes;
    count_received(payload);
    payload = payload.subspan(sizeof *head);
    if (payload.size() != head->count * letter_bytes) return false;
    if (!member.has_begun) begin(member, {head->sequence, head->total_bytes});
    if (member.step.total_bytes != head->total_bytes) return false;
    if (disagreed_) return true;  // nobody gets any of this step
    const std::uint32_t from = rank_of(member);
    for (; !payload.empty(); payload = payload.subspan(letter_bytes)) {
      const std::uint32_t to = *front_of<std::uint32_t>(payload);
      if (to >= rank_count()) return false;
      std::vector<std::byte>& letters = members_[to].letters;
      if (letters.size() + letter_bytes > wire::letters_bytes_max(rank_count()))
        deliver(members_[to], head->total_bytes, false);
      const auto sender = bytes_of(from), record = payload.subspan(sizeof to, record_bytes);
      letters.insert(letters.end(), sender.begin(), sender.end());
      letters.insert(letters.end(), record.begin(), record.end());
    }
    if (head->last != 0) contribute(member);
    return true;
  }

  /// Sends what has been collected for that rank.
  void deliver(Member& member, std::uint64_t total_bytes, bool last) {
    const std::size_t letter_bytes =
        sizeof(std::uint32_t) + static_cast<std::size_t>(total_bytes & ~wire::letters_bit);
    const wire::Letters head{sequence_, total_bytes,
                             static_cast<std::uint32_t>(member.letters.size() / letter_bytes),
                             last ? 1u : 0u};
    if (!last) count_sent(sizeof(wire::FrameHeader) + sizeof head + member.letters.size());
    if (member.connection != nullptr && !member.left)
      send(*member.connection, make_frame(FrameType::delivered, bytes_of(head), member.letters));
    member.letters.clear();
  }

  /// What the member brings to the step is known before any of it is passed on, so that letters of
  /// different sizes are never collected for one rank.
  void begin(Member& member, const wire::Step& step) {
    member.has_begun = true;
    member.step = step;
    if (disagreed_) return;
    for (const Member& other : members_) {
      // The step then never completes: a rank that comes to it has already received the
      // disagreement.
      if (other.has_begun && (other.step.total_bytes != step.total_bytes ||
                              other.contribution.size() != member.contribution.size())) {
        const wire::Disagreement disagreement{sequence_, step.total_bytes, other.step.total_bytes,
                                              rank_of(member), rank_of(other)};
        broadcast(make_frame(FrameType::disagreement, bytes_of(disagreement)));
        disagreed_ = true;
        for (Member& each : members_) each.letters = {};
        return;
      }
    }
  }

  void contribute(Member& member) {
    member.contributed = true;
    ++contributed_;
    if (contributed_ == rank_count() && !disagreed_) relay_step(member.step);
  }

  bool all_are_equal() const noexcept {
    return std::all_of(members_.begin(), members_.end(), [&](const Member& member) {
      return member.compares && member.contribution == members_[0].contribution;
    });
  }

  void relay_step(const wire::Step& step) {
    if ((step.total_bytes & wire::letters_bit) != 0) {
      for (const Member& member : members_)
        count_sent(sizeof(wire::FrameHeader) + sizeof(wire::Letters) + member.letters.size());
      for (Member& member : members_) deliver(member, step.total_bytes, true);
    } else if (all_are_equal()) {
      relay_to_all(make_frame(FrameType::equal, bytes_of(step)));
    } else {
      std::vector<std::byte> all;
      all.reserve(members_.size() * members_[0].contribution.size());
      for (const Member& member : members_)
        all.insert(all.end(), member.contribution.begin(), member.contribution.end());
      relay_to_all(make_frame(FrameType::gathered, bytes_of(step), all));
    }
    for (Member& member : members_) {
      member.contribution = {};
      member.has_begun = false;
      member.contributed = false;
      member.compares = false;
    }
    contributed_ = 0;
    ++sequence_;
  }

  void relay_to_all(const SharedFrame& frame) {
    count_sent(members_.size() * frame->size());
    broadcast(frame);
  }
  /// Before anything of a step is sent, so that who has its end sees all of it counted.
  void count_sent(std::size_t bytes) noexcept {
    relayed_.sent.fetch_add(bytes, std::memory_order_relaxed);
  }
  void count_received(std::span<const std::byte> payload) noexcept {
    relayed_.received.fetch_add(sizeof(wire::FrameHeader) + payload.size(),
                                std::memory_order_relaxed);
  }

  std::uint32_t rank_of(const Member& member) const noexcept {
    return static_cast<std::uint32_t>(&member - members_.data());
  }

  void announce(const wire::News& incident) {
    if (incident_) return;
    incident_ = incident;
    broadcast(make_frame(FrameType::incident, bytes_of(incident)));
  }

  void say_farewell() {
    close_listener();
    if (!joined_) {
      broadcast(missing_frame(FrameType::gave_up, 0));
    } else if (needed() && !ends_quietly_) {
      announce({static_cast<std::uint32_t>(Incident::Kind::aborted), 0});
    }
    const Deadline deadline = in(farewell_timeout);
    for (const Member& member : members_) {
      if (member.connection == nullptr) continue;
      Connection& connection = *member.connection;
      while (!connection.lost && !connection.outbox.empty() && !deadline.passed(now())) {
        pollfd waiting{connection.socket.get(), POLLOUT, 0};
        (void)::poll(&waiting, 1, poll_milliseconds(deadline.remaining(now())));
        flush(connection);
      }
      ::shutdown(connection.socket.get(), SHUT_WR);
    }
    for (const Member& member : members_) {
      if (member.connection != nullptr) finish_sending(member.connection->socket.get(), deadline);
    }
    connections_.clear();
  }

  UnsharedDescriptor listener_;
  int stop_;  // borrowed from Hub; readable once the thread has to stop
  std::string secret_;
  decltype(wire::Challenge::job) job_{};
  Timeout linger_;
  bool ends_quietly_;
  std::atomic<bool> serves_on_{false}, is_over_{false};
  std::uint32_t own_rank_;       // of the rank whose hub it is
  std::vector<Member> members_;  // by rank
  Probes probes_;                // empty once no rank is awaited, or if all have to come
  Readiness ready_;              // has stop_, listener_ and each connection
  std::vector<std::unique_ptr<Connection>> connections_;  // in order of arrival
  bool any_is_lost_ = false;                              // of the connections
  std::vector<pollfd> polled_;                            // ready_, then each probe; reused
  bool joined_ = false;         // whether all ranks have been here at the same time
  std::uint64_t sequence_ = 1;  // the step that contributions are for
  std::uint32_t contributed_ = 0;
  bool disagreed_ = false;
  std::optional<wire::News> incident_;
  std::optional<Deadline> stopping_;  // when to end at the latest, once Hub is to end
  std::optional<Deadline> accept_again_;
  int shortage_ = 0;          // errno, while newcomers wait for a descriptor and none can be freed
  std::size_t accepted_ = 0;  // in this turn; once all have met, until period_ends_
  std::optional<Deadline> period_ends_;
  std::optional<Deadline> look_at_strangers_;  // none of them expires before
  struct {
    std::atomic<std::uint64_t> received{0}, sent{0};
  } relayed_;
  std::thread thread_;
};

Relayed Hub::relayed() const noexcept {
  return service_->relayed();
}

Hub::Hub(UnsharedDescriptor listener, const HubOptions& options)
    : stop_(UnsharedDescriptor::made_by([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); })) {
  if (!stop_)
    throw Error(ErrorCode::system, std::string("eventfd: ") + std::strerror(errno), errno);
  service_ = std::make_unique<Service>(std::move(listener), stop_.get(), options);
  service_->start();
}

Hub::~Hub() {
  if (stop_.inherited()) {
    // The thread exists only in the parent, and its data were copied at some point of its work.
    (void)service_.release();
    return;
  }
  stop_and_join();
}

Silences Hub::end() {
  stop_and_join();
  return service_->silences();
}

void Hub::stop() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
}

void Hub::stop_and_join() noexcept {
  service_->serve_on(false);
  stop();
  service_->join();
}

/// Hubs that serve on without an owner.  When the process ends, or this library is unloaded, they
/// are stopped.
class Hub::Kept {
 public:
  /// After close() the hub ends at once.
  void add(std::unique_ptr<Hub> hub) {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return;
    std::erase_if(hubs_, [](const auto& one) { return one->service_->is_over(); });
    hubs_.push_back(std::move(hub));
  }
  void close() noexcept {
    std::vector<std::unique_ptr<Hub>> hubs;  // which end without the lock
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    hubs.swap(hubs_);
  }

 private:
  std::mutex mutex_;
  bool is_closed_ = false;
  std::vector<std::unique_ptr<Hub>> hubs_;
};

void Hub::keep_serving(std::unique_ptr<Hub> hub) noexcept {
  if (hub->stop_.inherited()) return;
  hub->service_->serve_on(true);
  hub->stop();
  try {
    // It is never destroyed, because exchanges that are older static objects end after it.
    static Kept& kept = *new Kept;
    static const struct AtExit {
      ~AtExit() { kept.close(); }
    } at_exit;
    kept.add(std::move(hub));
  } catch (const std::exception&) {  // without memory the hub ends at once
  }
}

}  // namespace tutti::bootstrap
