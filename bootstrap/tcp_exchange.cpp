#include "bootstrap/tcp_exchange.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <new>
#include <thread>
#include <utility>

#include "bootstrap/describe.hpp"
#include "bootstrap/handshake.hpp"
#include "bootstrap/socket.hpp"
#include "tutti/detail/check.hpp"
#include "tutti/detail/clock.hpp"
#include "tutti/status.hpp"

namespace tutti::bootstrap {

namespace {

using namespace std::chrono_literals;
using detail::now;
using wire::FrameType;

// After a deadline the hub is asked which ranks are missing.  It answers within a round trip;
// otherwise it is itself missing.
constexpr Timeout answer_timeout = 500ms;
// Enough for the goodbye to leave this host.
constexpr Timeout goodbye_timeout = 200ms;
// Enough for the thread of this rank's hub to read it.
constexpr Timeout own_goodbye_timeout = 2s;
// The time between attempts to connect: short at first, so that nobody waits for it, then longer.
constexpr Timeout retry_first = 5ms;
constexpr Timeout retry_last = 200ms;
// If a leader has not answered after Patience::with_port divided by this, which is a second by
// default, MeetingPlace probes it and the other hosts at the same time.
constexpr int silence_divisor = 7;

/// The longest payload that the hub may send before its welcome: a list of ranks.
std::size_t joining_bytes_max(std::uint32_t rank_count) noexcept {
  return sizeof(wire::Missing) + rank_count * sizeof(std::uint32_t);
}

void check_options(const TcpOptions& options) {
  const auto refuse = [](const std::string& text) {
    throw Error(ErrorCode::invalid_argument, text);
  };
  // The length of a frame and the lists of ranks have 32 bits.
  constexpr std::uint32_t rank_count_max = std::uint32_t{1} << 20;
  const std::string rank_count = "TUTTI_SIZE=" + std::to_string(options.rank_count);
  if (options.rank_count == 0 || options.rank_count > rank_count_max) {
    refuse(rank_count + ": expected the number of ranks, 1 to " + std::to_string(rank_count_max));
  }
  if (index_of(options.rank) >= options.rank_count) {
    refuse("TUTTI_RANK=" + std::to_string(index_of(options.rank)) + ": expected 0 to " +
           std::to_string(options.rank_count - 1) + ", because " + rank_count);
  }
  // Secrets are never printed, not even wrong ones.
  if (options.secret.empty() || options.secret.size() > wire::secret_bytes_max) {
    refuse("TUTTI_SECRET has " + std::to_string(options.secret.size()) + " bytes: expected 1 to " +
           std::to_string(wire::secret_bytes_max) +
           ", the same on every rank and known to nobody else");
  }
  if (options.timeout <= Timeout::zero()) {
    refuse("TUTTI_BOOTSTRAP_TIMEOUT is " + name_timeout(options.timeout) +
           ": expected more than 0 s");
  }
}

/// A name may not resolve yet when a job's first host has just come up.
std::vector<Address> resolve_until(Deadline deadline, const std::string& rendezvous) {
  const Endpoint endpoint = parse_endpoint(rendezvous);
  for (;;) {
    std::vector<Address> addresses = resolve(endpoint, rendezvous);
    if (!addresses.empty()) return addresses;
    if (deadline.passed(now())) {
      throw Error(ErrorCode::timed_out, "TUTTI_RENDEZVOUS=\"" + rendezvous +
                                            "\": no name server answers for this host; give its "
                                            "address instead");
    }
    std::this_thread::sleep_for(std::min(retry_last, deadline.remaining(now())));
  }
}

[[noreturn]] void throw_missing(const TcpOptions& options, std::span<const Rank> missing,
                                const std::string& remark) {
  throw Error(ErrorCode::timed_out, name_ranks(missing) + " did not come to " + options.rendezvous +
                                        " within " + name_timeout(options.timeout) + "; " + remark);
}

/// What a rank brings to a step.
std::string name_bytes(std::uint64_t total_bytes) {
  return name_contribution(total_bytes & ~wire::letters_bit,
                           (total_bytes & wire::letters_bit) != 0);
}

constexpr Rank hub_rank{0};

/// For a leader that cannot connect to its own hub.
[[noreturn]] void throw_alone(const Address& place, const std::string& why, int error = 0) {
  throw Error(
      ErrorCode::system,
      "this rank is the lowest one that is still there, to which all others connect, but it "
      "cannot connect to itself at its own address " +
          text_of(place) + ", as TUTTI_SHRINKABLE (or shrinkable in code) needs: " + why +
          "; is the network interface up, and does a firewall let this pass?",
      error);
}

}  // namespace

struct TcpExchange::Call {
  const char* name;
  Timeout timeout;
  Deadline deadline;
};

TcpExchange::TcpExchange(const TcpOptions& options, UnsharedDescriptor listener, End end)
    : end_(end),
      self_(options.rank),
      rank_count_(options.rank_count),
      reader_(0),
      left_(options.rank_count, false) {
  try {
    join(options, std::move(listener));
  } catch (...) {
    // The others then know that this rank has come, and do not name it among the missing.
    say_goodbye();
    throw;
  }
}

TcpExchange::~TcpExchange() {
  say_goodbye();
  if (hub_ && end_ == End::quiet) Hub::keep_serving(std::move(hub_));
}

void TcpExchange::say_goodbye() noexcept {
  if (!socket_) return;
  // A hub that serves on passes the goodbye on before it closes this connection.  After that this
  // process may end in any way, and the others know that this rank had left.
  const bool hub_serves_on = hub_ && end_ == End::quiet;
  const Deadline deadline =
      Deadline::after(hub_serves_on ? own_goodbye_timeout : goodbye_timeout, now());
  say_last(FrameType::goodbye, {});
  for (flush(); !outbox_.empty() && !deadline.passed(now()); flush()) {
    pollfd waiting{socket_.get(), POLLOUT, 0};
    (void)::poll(&waiting, 1, poll_milliseconds(deadline.remaining(now())));
    if ((waiting.revents & (POLLERR | POLLHUP)) != 0) break;
  }
  if (hub_serves_on)
    finish_and_await_end(socket_.get(), deadline);
  else
    finish_sending(socket_.get(), deadline);
  socket_ = UnsharedDescriptor();
}

// Joining.

void TcpExchange::join(const TcpOptions& options, UnsharedDescriptor listener) {
  const Deadline deadline = Deadline::after(options.timeout, now());
  const std::vector<Address> addresses = resolve_until(deadline, options.rendezvous);
  if (self_ == hub_rank) {
    if (!listener) listener = listen_at(addresses, options.rendezvous);
    hub_ =
        std::make_unique<Hub>(std::move(listener), HubOptions{.rank_count = rank_count_,
                                                              .secret = options.secret,
                                                              .linger = options.timeout,
                                                              .ends_quietly = end_ == End::quiet});
  }
  secret_ = options.secret;
  hello_ = {.magic = wire::magic,
            .version = wire::protocol_version,
            .rank = index_of(self_),
            .rank_count = rank_count_};

  std::string last_words;
  for (Timeout pause = retry_first;; pause = std::min(2 * pause, retry_last)) {
    socket_ = connect_to(addresses, deadline);
    if (socket_) {
      say_hello();
      if (await_welcome(options, deadline)) {
        secret_.clear();
        return;
      }
      last_words = "the connection was closed again";
    } else {
      last_words = std::strerror(errno);
    }
    if (deadline.passed(now())) break;
    std::this_thread::sleep_for(std::min(pause, deadline.remaining(now())));
  }
  throw_missing(options, std::span{&hub_rank, 1},
                "last attempt: " + last_words +
                    "; is it running, with the same TUTTI_RENDEZVOUS, on that host?");
}

void TcpExchange::say_hello() {
  // Anything half received or half sent on an earlier connection is void.
  reader_ = FrameReader(sizeof(wire::Challenge));
  outbox_.clear();
  outbox_sent_ = 0;
  challenge_.reset();
  trusts_hub_ = false;
  ended_by_ = 0;
  if (!fill_random(hello_.nonce)) throw Error(ErrorCode::system, "getrandom", errno);
  say(FrameType::hello, bytes_of(hello_));
}

TcpExchange::Reply TcpExchange::await_reply(Deadline deadline) {
  answer_.reset();
  std::optional<Deadline> answer_by;  // once the deadline has passed
  for (;;) {
    if (welcome_) return Reply::welcome;
    if (refusal_) return Reply::refusal;
    if (gave_up_) return Reply::gave_up;
    if (answer_ && !answer_->empty()) return Reply::missing;
    if (impostor_) return Reply::impostor;
    if (foreign_) return Reply::foreign;
    if (!socket_) return Reply::end;
    if (!answer_by && deadline.passed(now())) {
      answer_by = Deadline::after(answer_timeout, now());
      if (trusts_hub_) ask(0);
    }
    if (answer_by && answer_by->passed(now())) return Reply::silence;
    await_news(answer_by ? *answer_by : deadline);
  }
}

/// False: the connection has ended without a message; another attempt may succeed.
bool TcpExchange::await_welcome(const TcpOptions& options, Deadline deadline) {
  switch (await_reply(deadline)) {
    case Reply::welcome:
      return true;
    case Reply::refusal:
      throw_refusal(options);
    case Reply::gave_up:
      // The list is empty if the last rank came just too late: then rank 0 itself is missing.
      throw_missing(options, gave_up_->empty() ? std::span{&hub_rank, 1} : std::span{*gave_up_},
                    "rank 0 has given up");
    case Reply::missing:
      throw_missing(options, *answer_,
                    shortage_ != 0
                        ? remark_on_shortage()
                        : "is every rank running, with the same TUTTI_RENDEZVOUS and TUTTI_SIZE?");
    case Reply::impostor:
      throw Error(ErrorCode::peer_failed, "what listens at " + options.rendezvous +
                                              " does not know the secret of this job; set the "
                                              "same TUTTI_SECRET on every rank of a job, and use "
                                              "another port for another job");
    case Reply::foreign:
      throw Error(ErrorCode::peer_failed, "what listens at " + options.rendezvous +
                                              " is no rank 0 of tutti; choose another port in "
                                              "TUTTI_RENDEZVOUS");
    case Reply::end:
      return false;
    case Reply::silence:
      break;
  }
  throw_missing(options, std::span{&hub_rank, 1},
                "something accepts connections there, but does not answer");
}

// Meeting those that are still there.

TcpExchange::TcpExchange(const Meeting& meeting)
    : end_(End::awaited),
      self_(meeting.self),
      rank_count_(static_cast<std::uint32_t>(meeting.places.size())),
      reader_(0),
      secret_(meeting.secret),
      is_meeting_again_(true),
      left_(meeting.places.size(), false) {}

TcpExchange::Attended TcpExchange::attend(const Meeting& meeting, Deadline deadline,
                                          UnsharedDescriptor listener) {
  std::unique_ptr<TcpExchange> exchange(new TcpExchange(meeting));
  Attended attended = exchange->join(meeting, deadline, std::move(listener));
  if (exchange->welcome_) {
    attended.exchange = std::move(exchange);
  } else if (exchange->hub_) {
    exchange->say_goodbye();
    attended.silences = exchange->hub_->end();
  }
  return attended;
}

TcpExchange::Attended TcpExchange::join(const Meeting& meeting, Deadline deadline,
                                        UnsharedDescriptor listener) {
  const Address& place = meeting.places[index_of(meeting.leader)];
  if (listener)
    hub_ = std::make_unique<Hub>(
        std::move(listener), HubOptions{.rank_count = rank_count_,
                                        .secret = meeting.secret,
                                        .linger = meeting.linger,
                                        .places = {meeting.places.begin(), meeting.places.end()},
                                        .own_rank = index_of(self_),
                                        .is_gone = meeting.is_gone,
                                        .patience = meeting.patience,
                                        .silent_since = meeting.silent_since});
  hello_ = {.magic = wire::magic,
            .version = wire::protocol_version,
            .rank = index_of(self_),
            .rank_count = rank_count_};
  const Patience& patience = meeting.patience;
  const bool leads = meeting.leader == self_;
  const bool may_vanish = !are_of_one_host(place, meeting.places[index_of(self_)]);
  const auto leader_is_gone = [&](const std::string& why) -> Attended {
    if (leads) throw_alone(place, why);
    return {.exchange = {}, .leader_is_gone = true};
  };
  const auto missing = [&](std::span<const Rank> ranks) {
    return Attended{
        .exchange = {}, .missing = {ranks.begin(), ranks.end()}, .remark = remark_on_shortage()};
  };
  const auto leader_is_missing = [&] { return missing({&meeting.leader, 1}); };
  bool has_answered = false;
  const auto leader_is_silent = [&](Timeout since) {
    Attended attended = leader_is_missing();
    attended.leader_silent_since = since;
    attended.leader_has_answered = has_answered;
    return attended;
  };
  for (Timeout pause = retry_first;; pause = std::min(2 * pause, retry_last)) {
    const Timeout begun = now();
    const Timeout patient = may_vanish ? patience.with_port / silence_divisor : wait_forever;
    socket_ = connect_to({&place, 1},
                         Deadline::after(std::min(deadline.remaining(begun), patient), begun));
    const int error = socket_ ? 0 : errno;
    if (may_vanish && is_silence(error)) return leader_is_silent(begun);
    if (socket_) {
      has_answered = true;
      say_hello();
      switch (await_reply(deadline)) {
        case Reply::welcome:
          secret_.clear();
          return {.exchange = {}, .present = survivors_};
        case Reply::refusal:
          // A hub of ours proves that it is one before it says either of these.
          if (trusts_hub_ && refusal_->reason == wire::Reason::left_out)
            throw Error(ErrorCode::peer_failed,
                        "the others go on without this rank: the lowest of them has found that "
                        "nobody listened at the port of this rank, or that its host did not "
                        "answer for " +
                            name_timeout(vanished_after));
          // This rank's connection of an earlier call, which has timed out, may still be counted.
          if (!trusts_hub_ || refusal_->reason != wire::Reason::rank_taken)
            return leader_is_gone("the program that listens there refuses it");
          refusal_.reset();
          socket_ = UnsharedDescriptor();
          break;
        case Reply::gave_up:
          // The leader's time was up.  If this rank's is not, the leader may come again.
          if (deadline.remaining(now()) <= answer_timeout)
            return gave_up_->empty() ? leader_is_missing() : missing(*gave_up_);
          gave_up_.reset();
          socket_ = UnsharedDescriptor();
          break;
        case Reply::missing:
          return missing(*answer_);
        case Reply::impostor:
        case Reply::foreign:
          return leader_is_gone("another program listens there");
        case Reply::end:
          // TCP ends a connection with such an error once its other end has been silent for
          // vanished_after.  That end may never have had it, if its queue was full: the host is
          // asked next.
          if (may_vanish && is_silence(ended_by_))
            return leader_is_silent(now() - patience.with_port);
          break;
        case Reply::silence: {
          Attended attended = leader_is_missing();
          if (!trusts_hub_ && may_vanish)
            attended.remark =
                "or it has gone on without this rank, if this host did not answer for a while";
          return attended;
        }
      }
    } else if (error == ECONNREFUSED) {
      return leader_is_gone(std::strerror(error));
    }
    if (deadline.passed(now())) {
      if (leads && error != 0) throw_alone(place, std::strerror(error), error);
      if (is_own_shortage(error))
        throw Error(ErrorCode::system,
                    "this rank cannot connect to rank " + std::to_string(index_of(meeting.leader)) +
                        ": " + std::strerror(error),
                    error);
      return leader_is_missing();
    }
    std::this_thread::sleep_for(std::min(pause, deadline.remaining(now())));
  }
}

std::string TcpExchange::remark_on_shortage() const {
  if (shortage_ == 0) return {};
  return std::string("the lowest rank, to which all connect, can let nobody in: ") +
         std::strerror(static_cast<int>(shortage_)) + "; raise its limit (" +
         (shortage_ == ENOSPC ? "sysctl fs.epoll.max_user_watches)" : "ulimit -n)");
}

/// The hub's list of those that are still there.  False: no hub of ours would send that.
bool TcpExchange::count_anew(std::span<const std::byte> payload) {
  const auto head = front_of<wire::Missing>(payload);
  const std::vector<std::uint32_t> ranks = ranks_in(payload, rank_count_);
  const auto own = std::find(ranks.begin(), ranks.end(), index_of(self_));
  if (!head || ranks.size() != head->count || own == ranks.end() ||
      std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) != ranks.end())
    return false;
  for (const std::uint32_t rank : ranks) survivors_.push_back(Rank{rank});
  self_ = Rank{static_cast<std::uint32_t>(own - ranks.begin())};
  rank_count_ = static_cast<std::uint32_t>(ranks.size());
  left_.assign(rank_count_, false);
  return true;
}

void TcpExchange::throw_refusal(const TcpOptions& options) const {
  const std::string text =
      "rank 0 at " + options.rendezvous + " refused rank " + std::to_string(index_of(self_)) + ": ";
  const std::string expected = std::to_string(refusal_->expected);
  switch (refusal_->reason) {
    case wire::Reason::version:
      throw Error(ErrorCode::mismatch,
                  text + "this is protocol version " + std::to_string(wire::protocol_version) +
                      ", there it is " + expected + "; use one version of tutti everywhere");
    case wire::Reason::secret:
      throw Error(ErrorCode::peer_failed,
                  text +
                      "wrong secret; set the same TUTTI_SECRET on every rank of a job, and use "
                      "another port for another job");
    case wire::Reason::rank_count:
      throw Error(ErrorCode::mismatch, text + "TUTTI_SIZE is " + std::to_string(rank_count_) +
                                           " here and " + expected + " there");
    case wire::Reason::rank_range:
      throw Error(ErrorCode::mismatch, text + "TUTTI_RANK must be below " + expected);
    case wire::Reason::rank_taken:
      throw Error(ErrorCode::peer_failed,
                  text + "this rank is taken; give every rank its own TUTTI_RANK");
    case wire::Reason::left_out:  // only in meetings
      break;
  }
  throw Error(ErrorCode::peer_failed, text + "for a reason that this version does not know");
}

// Exchanging.

void TcpExchange::allgather(std::span<const std::byte> mine, std::span<std::byte> all,
                            Timeout timeout) {
  (void)exchange("allgather", FrameType::contribution, mine, all, timeout);
}

bool TcpExchange::allgather_unless_equal(std::span<const std::byte> mine, std::span<std::byte> all,
                                         Timeout timeout) {
  return exchange("allgather_unless_equal", FrameType::comparison, mine, all, timeout);
}

void TcpExchange::barrier(Timeout timeout) {
  (void)exchange("barrier", FrameType::contribution, {}, {}, timeout);
}

void TcpExchange::check_usable(const char* name) const {
  if (socket_.inherited()) {
    throw Error(ErrorCode::invalid_argument,
                std::string(name) + ": this is a forked child, and the exchange is its parent's");
  }
  if (!broken_.empty()) throw Error(ErrorCode::peer_failed, broken_);
}

bool TcpExchange::exchange(const char* name, FrameType type, std::span<const std::byte> mine,
                           std::span<std::byte> all, Timeout timeout) {
  detail::check(all.size() == mine.size() * rank_count_, "allgather has room for every rank",
                all.size(), mine.size() * rank_count_);
  check_usable(name);
  const Call call{name, timeout, Deadline::after(timeout, now())};
  const std::size_t chunk_bytes_max = wire::chunk_bytes_max(rank_count_);
  all_ = all;
  mine_bytes_ = mine.size();
  record_bytes_ = 0;
  offset_ = 0;
  bool all_equal = true;
  do {  // at least once, because an empty allgather is a barrier
    const auto chunk = mine.subspan(offset_, std::min(mine.size() - offset_, chunk_bytes_max));
    receive();
    fail_if_gone(call);
    const wire::Step step{++sequence_, mine.size()};
    early_letters_.clear();  // others swap in this step, which they will hear is a disagreement
    say(type, bytes_of(step), chunk);
    awaiting_ = true;
    is_equal_ = false;
    await_gathered(call);
    // One chunk may be equal, and another not.
    if (is_equal_ && chunk.size() < mine.size()) {
      for (std::uint32_t rank = 0; rank < rank_count_; ++rank) {
        std::copy(chunk.begin(), chunk.end(), all.subspan(rank * mine.size() + offset_).begin());
      }
    }
    all_equal = all_equal && is_equal_;
    offset_ += chunk.size();
  } while (offset_ < mine.size());
  all_ = {};
  return all_equal;
}

void TcpExchange::swap(std::span<const Rank> partners, std::size_t record_bytes,
                       std::span<const std::byte> mine, std::span<std::byte> theirs,
                       Timeout timeout) {
  const std::size_t letter_bytes = sizeof(std::uint32_t) + record_bytes;
  const std::size_t frame_bytes_max = wire::chunk_bytes_max(rank_count_);
  detail::check(mine.size() == partners.size() * record_bytes && theirs.size() == mine.size(),
                "there is a record for each partner, and room for theirs", mine.size(),
                partners.size() * record_bytes);
  detail::check(record_bytes > 0 && letter_bytes <= frame_bytes_max, "a record fits a frame",
                record_bytes, frame_bytes_max);
  check_usable("swap");
  const Call call{"swap", timeout, Deadline::after(timeout, now())};
  receive();
  fail_if_gone(call);
  all_ = theirs;
  partners_ = partners;
  record_bytes_ = record_bytes;
  position_.assign(rank_count_, UINT32_MAX);
  for (std::uint32_t i = 0; i < partners.size(); ++i) position_[index_of(partners[i])] = i;
  ++sequence_;
  const std::size_t each = frame_bytes_max / letter_bytes;
  std::vector<std::byte> letters;
  std::size_t said = 0;
  do {  // at least once, because nobody is done before all have come
    const std::size_t count = std::min(each, partners.size() - said);
    letters.clear();
    for (std::size_t i = said; i < said + count; ++i) {
      const auto to = std::as_bytes(partners.subspan(i, 1));
      const auto record = mine.subspan(i * record_bytes, record_bytes);
      letters.insert(letters.end(), to.begin(), to.end());
      letters.insert(letters.end(), record.begin(), record.end());
    }
    said += count;
    const wire::Letters head{sequence_, wire::letters_bit | record_bytes,
                             static_cast<std::uint32_t>(count), said == partners.size() ? 1u : 0u};
    say(FrameType::letters, bytes_of(head), letters);
  } while (said < partners.size());
  awaiting_ = true;
  for (const std::vector<std::byte>& early : std::exchange(early_letters_, {}))
    foreign_ = !take_letters(early) || foreign_;
  if (foreign_) lose_hub();
  await_gathered(call);
  all_ = {};
  partners_ = {};
}

/// False: no hub of ours would send that.
bool TcpExchange::take_letters(std::span<const std::byte> payload) {
  const auto head = front_of<wire::Letters>(payload);
  if (!head) return false;
  if (head->sequence == sequence_ + 1) {  // others are in the next step already
    early_letters_.emplace_back(payload.begin(), payload.end());
    return true;
  }
  if (!awaiting_ || head->sequence != sequence_) return true;  // of a step that failed
  // Letters that others swapped before this rank came with something else: that they disagree
  // follows.
  if (record_bytes_ == 0 || head->total_bytes != (wire::letters_bit | record_bytes_)) return true;
  payload = payload.subspan(sizeof *head);
  const std::size_t letter_bytes = sizeof(std::uint32_t) + record_bytes_;
  if (payload.size() != head->count * letter_bytes) return false;
  for (; !payload.empty(); payload = payload.subspan(letter_bytes)) {
    const std::uint32_t from = *front_of<std::uint32_t>(payload);
    if (from >= rank_count_) return false;
    if (position_[from] == UINT32_MAX) continue;  // this rank does not hold it for a partner
    const auto record = payload.subspan(sizeof from, record_bytes_);
    std::copy(record.begin(), record.end(), all_.subspan(position_[from] * record_bytes_).begin());
  }
  if (head->last != 0) awaiting_ = false;
  return true;
}

/// Returns once the result of this step has been stored.
void TcpExchange::await_gathered(const Call& call) {
  std::optional<Deadline> answer_by;  // once the deadline has passed
  bool asking = false;
  bool asked_late = false;      // asked after the deadline, so the answer decides
  std::uint32_t left_seen = 0;  // a rank that left before this step may have taken part in it
  for (;;) {
    if (!awaiting_) return;
    if (disagreement_ && disagreement_->sequence == sequence_) {
      fail(call, ErrorCode::mismatch,
           "rank " + std::to_string(disagreement_->one_rank) + " contributes " +
               name_bytes(disagreement_->one_bytes) + ", rank " +
               std::to_string(disagreement_->other_rank) + " " +
               (((disagreement_->one_bytes ^ disagreement_->other_bytes) & wire::letters_bit) != 0
                    ? name_bytes(disagreement_->other_bytes)
                    : std::to_string(disagreement_->other_bytes & ~wire::letters_bit)));
    }
    fail_if_gone(call);
    const bool late = call.deadline.passed(now());
    if (asking && answer_) {
      if (asked_late) {
        fail(call, ErrorCode::timed_out,
             name_ranks(*answer_) + " did not come within " + name_timeout(call.timeout));
      }
      if (const auto gone = left_among(*answer_); !gone.empty()) {
        fail(call, ErrorCode::peer_failed, name_ranks(gone) + " left without taking part");
      }
      asking = false;
    }
    if (late && !answer_by) answer_by = Deadline::after(answer_timeout, now());
    // A rank that has left may have contributed before; only the hub knows that.
    if (!asking && (late || left_count_ > left_seen)) {
      left_seen = left_count_;
      asking = true;
      asked_late = late;
      ask(sequence_);
    }
    if (answer_by && answer_by->passed(now())) {
      fail(call, ErrorCode::timed_out,
           "rank 0, which relays, did not answer within " + name_timeout(call.timeout));
    }
    await_news(answer_by ? *answer_by : call.deadline);
  }
}

void TcpExchange::fail_if_gone(const Call& call) {
  if (incident_.kind != Incident::Kind::none) {
    fail(call, ErrorCode::peer_failed, name_incident(incident_));
  }
  if (left_[index_of(hub_rank)]) {
    fail(call, ErrorCode::peer_failed, "rank 0, which relays, has left");
  }
}

void TcpExchange::fail(const Call& call, ErrorCode code, const std::string& text) {
  // The caller's buffer is released, and a late result will not be stored.
  awaiting_ = false;
  all_ = {};
  const std::string whole = std::string(call.name) + ": " + text;
  broken_ = "this exchange is out of step since " + whole;
  throw Error(code, whole);
}

std::vector<Rank> TcpExchange::left_among(std::span<const Rank> ranks) const {
  std::vector<Rank> found;
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(found),
               [this](Rank rank) { return left_[index_of(rank)]; });
  return found;
}

// The side channel.

Incident TcpExchange::incident() noexcept {
  flush();
  receive_what_fits();
  return incident_;
}

bool TcpExchange::has_left(Rank rank) noexcept {
  detail::check(index_of(rank) < rank_count_, "the rank is one of the exchange's", index_of(rank),
                rank_count_);
  receive_what_fits();
  return left_[index_of(rank)];
}

void TcpExchange::announce(Incident incident) noexcept {
  if (incident.kind == Incident::Kind::none) return;
  detail::check(index_of(incident.rank) < rank_count_, "the incident names a rank",
                index_of(incident.rank), rank_count_);
  if (!socket_) return;  // nobody can receive it, and losing the hub was an incident already
  // It is not believed here until the hub repeats it: another incident may have been first.
  const wire::News news{static_cast<std::uint32_t>(incident.kind), index_of(incident.rank)};
  say_last(FrameType::incident, bytes_of(news));
  flush();
}

// The connection.

void TcpExchange::ask(std::uint64_t sequence) {
  answer_.reset();
  say(FrameType::query, bytes_of(wire::Step{sequence, 0}));
}

void TcpExchange::say(FrameType type, std::span<const std::byte> front,
                      std::span<const std::byte> rest) {
  outbox_.reserve(outbox_.size() + sizeof(wire::FrameHeader) + front.size() + rest.size() +
                  last_words_bytes);
  append_frame(outbox_, type, front, rest);
}

/// Allocates nothing: say() has left room.  There is no room for a second message before the first
/// is sent; the hub would not believe it either.
void TcpExchange::say_last(FrameType type, std::span<const std::byte> front) noexcept {
  const std::size_t goodbye_bytes = type == FrameType::goodbye ? 0 : sizeof(wire::FrameHeader);
  const std::size_t bytes = sizeof(wire::FrameHeader) + front.size() + goodbye_bytes;
  if (bytes <= outbox_.capacity() - outbox_.size()) append_frame(outbox_, type, front);
}

void TcpExchange::flush() noexcept {
  if (!socket_ || outbox_.empty()) return;
  std::size_t sent = 0;
  // receive() notices a failed connection, after it has read the last messages on it.
  (void)send_some(socket_.get(), std::span<const std::byte>{outbox_}.subspan(outbox_sent_), sent);
  outbox_sent_ += sent;
  if (outbox_sent_ < outbox_.size()) return;
  outbox_.clear();
  outbox_sent_ = 0;
}

void TcpExchange::receive() {
  if (!socket_) return;
  std::size_t bytes = 0;
  const auto space = reader_.space();
  errno = 0;
  switch (receive_some(socket_.get(), space, bytes)) {
    case Reception::nothing_yet:
      return;
    case Reception::end:
      ended_by_ = errno;
      lose_hub();
      return;
    case Reception::some:
      break;
  }
  reader_.received(bytes);
  while (const auto frame = reader_.next()) handle(*frame);
  if (reader_.malformed()) foreign_ = true;
  if (foreign_) lose_hub();
}

/// Bytes for which there is no memory stay in the socket until the next call.  Long answers only
/// come during exchanges, and none is under way.
void TcpExchange::receive_what_fits() noexcept {
  try {
    receive();
  } catch (const std::bad_alloc&) {
  }
}

void TcpExchange::handle(const Frame& frame) {
  const auto rank_list = [&] {
    std::vector<Rank> ranks;
    for (const std::uint32_t rank : ranks_in(frame.payload, rank_count_)) {
      ranks.push_back(Rank{rank});
    }
    return ranks;
  };
  if (!trusts_hub_) {
    foreign_ = !shake_hands(frame) || foreign_;
    return;
  }
  switch (frame.type) {
    case FrameType::welcome:
      if (welcome_) break;
      if (is_meeting_again_ && !count_anew(frame.payload)) break;
      welcome_ = true;
      reader_.set_limit(wire::to_client_bytes_max(rank_count_));
      return;
    case FrameType::refusal:
      refusal_ = front_of<wire::Refusal>(frame.payload);
      return;
    case FrameType::gave_up:
    case FrameType::missing: {
      // The step that was asked about may have ended before its answer came.
      const auto head = front_of<wire::Missing>(frame.payload);
      shortage_ = head ? head->shortage : 0;
      if (frame.type == FrameType::gave_up)
        gave_up_ = rank_list();
      else if (head && head->sequence == sequence_)
        answer_ = rank_list();
      return;
    }
    case FrameType::disagreement:
      disagreement_ = front_of<wire::Disagreement>(frame.payload);
      return;
    case FrameType::gathered: {
      const auto step = front_of<wire::Step>(frame.payload);
      if (!step || !awaiting_ || step->sequence != sequence_) return;
      if (record_bytes_ != 0) break;
      const auto chunks = frame.payload.subspan(sizeof *step);
      const std::size_t chunk_bytes = chunks.size() / rank_count_;
      // A hub returns as many bytes as it was given; otherwise this is no hub of ours.
      if (chunk_bytes > mine_bytes_ - offset_) break;
      for (std::uint32_t rank = 0; rank < rank_count_; ++rank) {
        const auto chunk = chunks.subspan(rank * chunk_bytes, chunk_bytes);
        std::copy(chunk.begin(), chunk.end(), all_.subspan(rank * mine_bytes_ + offset_).begin());
      }
      awaiting_ = false;
      return;
    }
    case FrameType::equal: {
      const auto step = front_of<wire::Step>(frame.payload);
      if (!step || !awaiting_ || step->sequence != sequence_) return;
      is_equal_ = true;
      awaiting_ = false;
      return;
    }
    case FrameType::delivered:
      if (!take_letters(frame.payload)) break;
      return;
    case FrameType::incident: {
      const auto news = front_of<wire::News>(frame.payload);
      if (!news || news->rank >= rank_count_ || incident_.kind != Incident::Kind::none) return;
      incident_ = {.kind = Incident::Kind{news->kind}, .rank = Rank{news->rank}};
      return;
    }
    case FrameType::left: {
      const auto news = front_of<wire::News>(frame.payload);
      if (!news || news->rank >= rank_count_ || left_[news->rank]) return;
      left_[news->rank] = true;
      ++left_count_;
      return;
    }
    case FrameType::hello:
    case FrameType::contribution:
    case FrameType::comparison:
    case FrameType::letters:
    case FrameType::query:
    case FrameType::goodbye:
    case FrameType::challenge:
    case FrameType::proof:
      break;
  }
  foreign_ = true;
}

/// What comes before the hub has proved that it knows the secret.  False: no hub of ours would send
/// that.
bool TcpExchange::shake_hands(const Frame& frame) {
  if (frame.type == FrameType::refusal) {
    refusal_ = front_of<wire::Refusal>(frame.payload);
    return refusal_.has_value();
  }
  if (frame.type == FrameType::challenge && !challenge_) {
    challenge_ = front_of<wire::Challenge>(frame.payload);
    if (!challenge_) return false;
    const wire::Proof own{prove(Prover::rank, secret_, hello_, *challenge_)};
    say(FrameType::proof, bytes_of(own));
    return true;
  }
  const auto proof = front_of<wire::Proof>(frame.payload);
  if (frame.type != FrameType::proof || !proof || !challenge_) return false;
  trusts_hub_ =
      equal_in_constant_time(proof->digest, prove(Prover::hub, secret_, hello_, *challenge_));
  impostor_ = !trusts_hub_;
  reader_.set_limit(joining_bytes_max(rank_count_));
  return trusts_hub_;
}

/// Sleeps until the hub sends something or the deadline passes; may return early.
void TcpExchange::await_news(Deadline deadline) {
  flush();
  if (!socket_) return;
  pollfd waiting{socket_.get(), static_cast<short>(outbox_.empty() ? POLLIN : POLLIN | POLLOUT), 0};
  const int ready = ::poll(&waiting, 1, poll_milliseconds(deadline.remaining(now())));
  if (ready > 0) receive();
}

/// There will be no more news, so losing the hub is an incident, whatever the reason, unless rank 0
/// was to end it.
void TcpExchange::lose_hub() noexcept {
  socket_ = UnsharedDescriptor();
  if (!welcome_ || incident_.kind != Incident::Kind::none) return;
  const bool left = left_[index_of(hub_rank)];
  if (left && end_ == End::quiet) return;
  incident_ = {.kind = left ? Incident::Kind::aborted : Incident::Kind::died, .rank = hub_rank};
}

}  // namespace tutti::bootstrap

namespace tutti {

std::unique_ptr<Exchange> tcp_exchange(const TcpOptions& options) {
  bootstrap::check_options(options);
  return std::make_unique<bootstrap::TcpExchange>(options);
}

}  // namespace tutti
