// Promise: whatever collectives ranks are in, and whatever they have met by, when at a random
// moment one of them is killed, gives up or leaves, when a completion carries an error or a link
// goes down, every survivor returns in time and names the rank, or one end of the connection.
// Ranks that are stopped for a while, slow networks and links that come back are no failures.
// Results before that are right, and nothing is left behind in any process.
//
// chaos --runs=N --seed=S --jobs=J: the runs are S .. S + N - 1, J at a time; a failure prints the
// seed of its run.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

#include "runtime/communicator.hpp"
#include "runtime/context.hpp"
#include "support/device.hpp"
#include "support/every_collective.hpp"
#include "support/held_resources.hpp"
#include "support/jobs.hpp"
#include "support/number_options.hpp"
#include "support/patient_wait.hpp"
#include "support/sceneries.hpp"
#include "support/shared.hpp"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using std::chrono::microseconds;
using test::Meeting;
using Clock = std::chrono::steady_clock;

// A sample in which everything happens.  This process plays every `jobs`-th run from `job` on.
unsigned runs = 12, seed = 592, jobs = 2, job = 0;

constexpr auto detection_bound = 1s;  // the default
/// The time until all hear of a death, a farewell or an abort(), at most (docs/guarantees.md).
constexpr auto process_bound = 2 * detection_bound;
/// The time until all hear of a broken connection, at most: 8 x 0.54 s of retries
/// (verbs/queue_pair.hpp), up to half a second in which the side channel may explain it, and twice
/// the detection bound.
constexpr auto connection_bound = 7s;
/// How long the objects of a failed communicator take to go.
constexpr auto destruction_bound = 5s;
/// How long a communicator that has not failed waits at its end for those that still use its
/// memory.
constexpr auto farewell_bound = 8s;
constexpr auto stopped_for = 1500ms;  // more than the detection bound
constexpr unsigned hung_after_s = 60;
/// When a link goes down, counted from the opening of the device, and for how long if it comes
/// back: less than the retries take.
constexpr auto link_down_from = 700ms, link_down_for = 1200ms;

enum class Event { kill, abort, leave, completion_error, link_down };
constexpr const char* event_names[] = {"is killed", "gives up", "leaves", "has a completion error",
                                       "is on a node whose link goes down"};
enum class Trouble { none, stop, slow_network, link_down_and_up };
constexpr const char* trouble_names[] = {"", ", a rank is stopped", ", the network is slow",
                                         ", a link goes down and up"};
constexpr const char* meeting_names[] = {"locally", "over TCP", "without a side channel"};

template <class T>
std::size_t number_of(T enumerator) {
  return static_cast<std::size_t>(enumerator);
}

/// The events of a run, which follow from its seed.
struct Script {
  unsigned seed;
  std::uint32_t ranks, ranks_per_node;
  Placement placement;
  Meeting meeting;
  Notify notify;
  WaitPolicy wait;
  bool all_at_once;  // every operation is in flight at once, twice: queues fill
  Event event;
  std::uint32_t victim;
  microseconds happens_after;  // after all have begun
  Trouble trouble;
  std::uint32_t troubled;
  microseconds stops_after;

  explicit Script(unsigned of) : seed(of) {
    std::mt19937 random(of);
    const auto below = [&](std::size_t end) { return static_cast<std::uint32_t>(random() % end); };
    ranks = 2 + below(7);
    ranks_per_node = 1 + below(ranks);
    placement = below(2) == 0 ? Placement::block : Placement::cyclic;
    meeting = static_cast<Meeting>(below(3));
    notify = below(3) == 0 ? Notify::flag : Notify::immediate;
    wait = below(3) == 0 ? WaitPolicy::block : WaitPolicy::automatic;
    all_at_once = below(4) == 0;
    const std::uint32_t event_draw = below(20), trouble_draw = below(20);
    event = event_draw < 8    ? Event::kill
            : event_draw < 10 ? Event::abort
            : event_draw < 12 ? Event::leave
            : event_draw < 18 ? Event::completion_error
                              : Event::link_down;
    trouble = trouble_draw < 11   ? Trouble::none
              : trouble_draw < 16 ? Trouble::stop
              : trouble_draw < 18 ? Trouble::slow_network
                                  : Trouble::link_down_and_up;
    if (event == Event::link_down && trouble == Trouble::link_down_and_up) trouble = Trouble::stop;
    if (uses_network_events() && ranks_per_node == ranks) ranks_per_node = 1 + below(ranks - 1);
    victim = below(ranks);
    troubled = below(ranks);
    if (troubled == victim) trouble = trouble == Trouble::stop ? Trouble::none : trouble;
    stops_after = microseconds(below(100'000));
    happens_after = microseconds(below(trouble == Trouble::link_down_and_up ? 2'500'000 : 200'000));
  }

  bool uses_network_events() const {
    return event == Event::completion_error || event == Event::link_down ||
           trouble == Trouble::link_down_and_up;
  }
  bool is_about_a_connection() const {
    return event == Event::completion_error || event == Event::link_down;
  }
  std::uint32_t nodes() const { return (ranks + ranks_per_node - 1) / ranks_per_node; }
  std::uint32_t node_of(std::uint32_t rank) const {
    if (placement == Placement::block) return rank / ranks_per_node;
    // The last node may have fewer ranks, and is full before the others are.
    const std::uint32_t in_last = ranks - (nodes() - 1) * ranks_per_node;
    return rank < in_last * nodes() ? rank % nodes() : (rank - in_last * nodes()) % (nodes() - 1);
  }
  std::string words() const {
    return std::to_string(ranks) + " ranks, " + std::to_string(ranks_per_node) +
           (placement == Placement::cyclic ? " a node by turns" : " a node") + ", meeting " +
           meeting_names[number_of(meeting)] + (notify == Notify::flag ? ", flags" : "") +
           (wait == WaitPolicy::block ? ", sleeping" : "") + (all_at_once ? ", all at once" : "") +
           ", rank " + std::to_string(victim) + " " + event_names[number_of(event)] +
           trouble_names[number_of(trouble)] +
           (trouble == Trouble::stop ? " (" + std::to_string(troubled) + ")" : "");
  }
  /// The network's file, if there is an emulated one; else empty.
  std::string network() const {
    std::string faults;
    const auto add_link = [&](std::uint32_t of, std::chrono::milliseconds until) {
      std::string list;
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        if (node_of(rank) != node_of(of)) continue;
        list += (list.empty() ? "" : ", ") + std::string("{\"place\": ") + std::to_string(rank) +
                ", \"from_us\": " + std::to_string(microseconds(link_down_from).count());
        if (until > 0ms) list += ", \"until_us\": " + std::to_string(microseconds(until).count());
        list += "}";
      }
      faults += ", \"link_down\": [" + list + "]";
    };
    if (event == Event::link_down) add_link(victim, 0ms);
    if (trouble == Trouble::link_down_and_up) add_link(troubled, link_down_from + link_down_for);
    if (trouble == Trouble::slow_network)
      faults +=
          ", \"delay_probability\": 0.05, \"delay_us\": 2000, \"drop_probability\": 0.0002, "
          "\"not_ready_probability\": 0.02";
    if (faults.empty()) return "";
    return "{\"latency_us\": 2, \"faults\": {\"seed\": " + std::to_string(seed) + faults + "}}";
  }
};

/// The findings of a survivor.
struct Found {
  std::uint32_t rank = 0;
  Status status = Status::ok;
  std::uint32_t peer = 0;
  std::int64_t at_ns = 0, lateness_ns = 0, destroyed_in_ns = 0;
  std::uint64_t calls = 0;
  std::uint32_t connected = 0;  // with which ranks, a bit for each
  bool has_filled_queues = false;
  char wrong[128] = {};  // empty: nothing
  char text[256] = {};
};

/// The memory that all ranks and the test share.
struct Board {
  std::atomic<std::uint32_t> begun = 0;
  std::atomic<std::int64_t> happened_at_ns = 0;        // the latest moment that counts
  std::atomic<std::uint32_t> broken_end = UINT32_MAX;  // of the victim's connection
  std::atomic<std::uint32_t> has_given_up = 0;         // in place of a completion error
  std::atomic<std::uint32_t> done = 0;

  void happens_now() { happens_by(Clock::now()); }
  void happens_by(Clock::time_point moment) {
    const std::int64_t at_ns = std::chrono::nanoseconds(moment.time_since_epoch()).count();
    for (std::int64_t known = happened_at_ns;
         known < at_ns && !happened_at_ns.compare_exchange_weak(known, at_ns);) {
    }
  }
};

void note(char (&text)[128], const std::string& words) {
  if (text[0] == '\0') std::snprintf(text, sizeof text, "%s", words.c_str());
}

/// One rank of a run.
class Player {
 public:
  Player(Exchange& exchange, const Script& script, Board& board)
      : script_(script),
        board_(board),
        self_(index_of(exchange.self())),
        is_victim_(self_ == script.victim),
        random_(script.seed) {
    found_.rank = self_;
    ContextOptions options = test::on_test_device(exchange);
    options.arena_bytes = 16u << 20;
    options.chunk_bytes = 4096;
    options.ranks_per_node = {script.ranks_per_node};
    options.placement = script.placement;
    options.notify = script.notify;
    options.wait = script.wait;
    opened_at_ = Clock::now();
    context_.emplace(options);
    communicator_.emplace(*context_, exchange);
    if (script.event == Event::link_down) board.happens_by(opened_at_ + link_down_from);
    try {
      make_operations();
    } catch (const Error&) {
      // If ranks are slow, the link may go down before all of them have made their operations.
      const bool is_first = !second_ || second_->failure().status == Status::ok;
      status_ = (is_first ? communicator_ : second_)->failure().status;
      if (script.event != Event::link_down || status_ == Status::ok) throw;
    }
  }

  /// Calls until one fails; then everything is destroyed.
  Found play() {
    while (status_ == Status::ok && !has_gone_) {
      if (++found_.calls == 20) begin();
      script_.all_at_once ? call_all() : call_one();
    }
    found_.status = status_;
    found_.at_ns = std::chrono::nanoseconds(Clock::now().time_since_epoch()).count();
    found_.lateness_ns = wait_.lateness().count();
    if (!has_gone_) {
      note_connections();  // on a slow network, a link may go down before all have begun
      const Communicator& failed =
          communicator_->failure().status != Status::ok || !second_ ? *communicator_ : *second_;
      found_.peer = index_of(failed.failure().peer);
      std::snprintf(found_.text, sizeof found_.text, "%s", failed.failure().text);
      if (status_ > Status::ok) std::fprintf(stderr, "%s", communicator_->report().c_str());
      destroy();
    }
    ++board_.done;
    return found_;
  }

 private:
  void make_operations() {
    const test::EveryCollective::Wanted wanted{.seed = script_.seed,
                                               .count = script_.all_at_once ? 12u : 8u,
                                               .with_ssp = script_.event != Event::leave,
                                               .with_segments = script_.seed % 2 == 0};
    sets_.push_back(std::make_unique<test::EveryCollective>(*communicator_, wanted));
    if (!script_.all_at_once) return;
    second_ = communicator_->split(0);
    sets_.push_back(std::make_unique<test::EveryCollective>(*second_, wanted));
  }

  void begin() {
    note_connections();
    begun_at_ = Clock::now();
    ++board_.begun;
  }

  void note_connections() {
    for (std::uint32_t rank = 0; rank < script_.ranks; ++rank)
      if (may_be_connected(rank)) found_.connected |= 1u << rank;
  }

  bool may_be_connected(std::uint32_t rank) {
    Communicator::Implementation& communicator = communicator_->implementation();
    return rank != self_ && !communicator.is_neighbour(Rank{rank}) &&
           context_->implementation().fabric.connections().has(communicator.process_of[rank]);
  }

  void call_one() {
    test::EveryCollective& set = *sets_[0];
    const std::size_t which = random_() % set.size();
    maybe_leave();
    if (has_gone_) return;
    status_ = set.start(which);
    maybe_happen();
    if (status_ == Status::ok) status_ = wait_(set[which], 40s);
    if (status_ == Status::ok && !set.is_right(which)) note(found_.wrong, set.name(which));
  }

  void call_all() {
    maybe_leave();
    if (has_gone_) return;
    for (auto& set : sets_)
      for (std::size_t which = 0; which < set->size() && status_ == Status::ok; ++which)
        status_ = set->start(which);
    look_at_queues();
    maybe_happen();
    for (auto& set : sets_)
      for (std::size_t which = 0; which < set->size() && status_ == Status::ok; ++which)
        status_ = wait_((*set)[which], 40s);
    for (auto& set : sets_)
      for (std::size_t which = 0; which < set->size() && status_ == Status::ok; ++which)
        if (!set->is_right(which)) note(found_.wrong, set->name(which));
  }

  void look_at_queues() {
    for (std::uint32_t rank = 0; rank < script_.ranks; ++rank)
      if (may_be_connected(rank))
        found_.has_filled_queues |= connection_to(rank).sends.credits() == 0;
  }

  verbs::Connection& connection_to(std::uint32_t rank) {
    return communicator_->implementation().connection_to(Rank{rank});
  }

  bool is_due() const {
    return is_victim_ && !has_happened_ && board_.begun == script_.ranks &&
           Clock::now() >= begun_at_ + script_.happens_after;
  }

  void maybe_leave() {
    if (script_.event != Event::leave || !is_due()) return;
    has_happened_ = has_gone_ = true;
    destroy();
    board_.happens_now();
  }

  /// Gives up or breaks a connection in the middle of a call, if that is due.
  void maybe_happen() {
    if (!is_due()) return;
    if (script_.event == Event::abort) {
      has_happened_ = true;
      give_up();
    }
    if (script_.event != Event::completion_error) return;
    has_happened_ = true;
    std::vector<std::uint32_t> ends;
    for (std::uint32_t rank = 0; rank < script_.ranks; ++rank)
      if (may_be_connected(rank)) ends.push_back(rank);
    if (ends.empty()) {
      board_.has_given_up = 1;
      return give_up();
    }
    const std::uint32_t end = ends[script_.seed / 7 % ends.size()];
    board_.broken_end = end;
    board_.happens_now();
    break_connection(connection_to(end));
  }

  void give_up() {
    board_.happens_now();
    communicator_->abort();
  }

  /// The device completes a request of this rank with an error, or all of the connection's because
  /// it moves to the error state.
  void break_connection(verbs::Connection& connection) {
    std::uint64_t nothing = 0;
    ibv_sge piece{.addr = reinterpret_cast<std::uint64_t>(&nothing), .length = 8, .lkey = 0xbad};
    ibv_send_wr request{}, *refused = nullptr;
    request.wr_id = verbs::CompletionTag{connection.index, 1}.encoded();
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.wr.rdma = {.remote_addr = 4096, .rkey = 0xbad};
    // A wrong remote key is found out by the peer, a wrong local one here.
    request.send_flags = IBV_SEND_SIGNALED;
    if (script_.seed % 3 == 0) request.send_flags |= IBV_SEND_INLINE;
    if (script_.seed % 3 == 2 || ibv_post_send(connection.pair->get(), &request, &refused) != 0)
      connection.pair->close();
  }

  void destroy() {
    const auto begin = Clock::now();
    while (!sets_.empty()) sets_.pop_back();
    second_.reset();
    communicator_.reset();
    context_.reset();
    found_.destroyed_in_ns = std::chrono::nanoseconds(Clock::now() - begin).count();
  }

  const Script& script_;
  Board& board_;
  std::uint32_t self_;
  bool is_victim_, has_happened_ = false, has_gone_ = false;
  std::mt19937 random_;
  std::optional<Context> context_;
  std::optional<Communicator> communicator_, second_;
  std::vector<std::unique_ptr<test::EveryCollective>> sets_;
  test::PatientWait wait_;
  Clock::time_point opened_at_, begun_at_;
  Status status_ = Status::ok;
  Found found_;
};

/// The file of an emulated network, while it exists.
class NetworkFile {
 public:
  explicit NetworkFile(const std::string& text)
      : path_(text.empty() ? ""
                           : std::filesystem::temp_directory_path() /
                                 ("chaos." + std::to_string(::getpid()) + ".json")) {
    if (!path_.empty()) std::ofstream(path_) << text;
  }
  ~NetworkFile() {
    if (!path_.empty()) std::filesystem::remove(path_);
  }
  NetworkFile(const NetworkFile&) = delete;
  NetworkFile& operator=(const NetworkFile&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// A port that the other jobs leave alone.
std::uint16_t port_of_this_job() {
  for (;;)
    if (const std::uint16_t port = test::free_port(); port % jobs == job) return port;
}

/// Signals from outside: the victim's death, and a rank that is stopped for a while.
void disturb(const Script& script, Board& board, const std::vector<pid_t>& processes) {
  const auto patience_ends = Clock::now() + 40s;
  while (board.begun < script.ranks) {
    if (board.done > 0 || Clock::now() > patience_ends) return;  // the ranks themselves report why
    std::this_thread::sleep_for(1ms);
  }
  std::thread stopping([&] {
    if (script.trouble != Trouble::stop) return;
    std::this_thread::sleep_for(script.stops_after);
    ::kill(processes[script.troubled], SIGSTOP);
    std::this_thread::sleep_for(stopped_for);
    ::kill(processes[script.troubled], SIGCONT);
  });
  if (script.event == Event::kill) {
    std::this_thread::sleep_for(script.happens_after);
    board.happens_now();
    ::kill(processes[script.victim], SIGKILL);
  }
  stopping.join();
}

/// Says what is wrong about a survivor's findings; empty if nothing is.
std::string judged(const Script& script, const Board& board, const std::vector<Found>& all,
                   const Found& found) {
  const auto is_end_of_a_broken_one = [&](std::uint32_t rank) {
    if (script.event == Event::completion_error)
      return rank == script.victim || rank == board.broken_end;
    for (const Found& one : all) {
      const bool is_down = script.node_of(one.rank) == script.node_of(script.victim);
      for (std::uint32_t other = 0; other < script.ranks; ++other) {
        const bool other_is_down = script.node_of(other) == script.node_of(script.victim);
        if ((one.connected >> other & 1) == 0 || is_down == other_is_down) continue;
        if (rank == one.rank || rank == other) return true;
      }
    }
    return false;
  };
  if (script.is_about_a_connection() && board.has_given_up == 0) {
    if (found.status != Status::peer_failed && found.status != Status::transport_failed &&
        found.status != Status::aborted)
      return "another status";
    return is_end_of_a_broken_one(found.peer) ? "" : "names another rank";
  }
  const bool has_given_up = script.event == Event::abort || board.has_given_up != 0;
  if (found.status != (has_given_up ? Status::aborted : Status::peer_failed))
    return "another status";
  return found.peer == script.victim ? "" : "names another rank";
}

std::map<std::string, unsigned> tally;  // of what has been played

void play(unsigned of) {
  const Script script(of);
  SCOPED_TRACE("--seed=" + std::to_string(of) + " --runs=1: " + script.words());
  const std::uint16_t port = script.meeting == Meeting::tcp ? port_of_this_job() : std::uint16_t{0};
  const NetworkFile network(script.network());
  const test::Shared<Board> shared;
  Board& board = *shared;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const auto results = run_local(
      {.rank_count = script.ranks,
       .on_started = [&](const auto& processes) { disturb(script, board, processes); }},
      [&](Exchange& local) {
        ::alarm(hung_after_s);
        if (!network.path().empty()) {
          ::setenv("TUTTI_SOFT_FABRIC", network.path().c_str(), 1);
          ::setenv("TUTTI_SOFT_PLACE", std::to_string(index_of(local.self())).c_str(), 1);
        }
        const auto before = test::HeldResources::now();
        Found found;
        {
          const test::Met met(script.meeting, local, port);
          Player player(*met, script, board);
          found = player.play();
        }
        if (const std::string more = test::HeldResources::now().beyond(before); !more.empty())
          note(found.wrong, more);
        return ::write(ends[1], &found, sizeof found) == sizeof found ? 0 : 2;
      });
  ::close(ends[1]);
  std::vector<Found> all;
  for (Found found; ::read(ends[0], &found, sizeof found) == sizeof found;) all.push_back(found);
  ::close(ends[0]);
  std::int64_t lateness_ns = 0;
  bool has_filled_queues = false;
  for (const Found& found : all) {
    has_filled_queues |= found.has_filled_queues;
    if (script.trouble != Trouble::stop || found.rank != script.troubled)
      lateness_ns = std::max(lateness_ns, found.lateness_ns);
  }
  const auto allowance = test::allowance_for(std::chrono::nanoseconds(lateness_ns));
  for (const Found& found : all) {
    const std::string who = "rank " + std::to_string(found.rank) + ": " + found.text;
    EXPECT_STREQ(found.wrong, "") << who;
    const bool is_gone = script.event == Event::leave && found.rank == script.victim;
    const auto stop = script.trouble == Trouble::stop ? stopped_for : 0ms;
    // A second communicator may not need the link, and waits at its end for the ranks behind it.
    const bool waits_in_vain = script.event == Event::link_down && script.all_at_once;
    const auto farewell = is_gone         ? farewell_bound * (script.all_at_once ? 2 : 1)
                          : waits_in_vain ? farewell_bound
                                          : 0s;
    EXPECT_LT(std::chrono::nanoseconds(found.destroyed_in_ns),
              destruction_bound + stop + farewell + allowance)
        << who;
    if (is_gone) continue;
    EXPECT_EQ(judged(script, board, all, found), "")
        << who << " (status " << number_of(found.status) << ", rank " << found.peer << ")";
    // A rank that is stopped holds up those that need it to find out about a connection.
    const bool is_held_up = found.rank == script.troubled || script.is_about_a_connection();
    const auto bound = script.is_about_a_connection() && board.has_given_up == 0
                           ? std::chrono::nanoseconds(connection_bound)
                           : std::chrono::nanoseconds(process_bound);
    EXPECT_LT(std::chrono::nanoseconds(found.at_ns - board.happened_at_ns),
              bound + (is_held_up ? stop : 0ms) + allowance)
        << who;
  }
  for (std::uint32_t rank = 0; rank < script.ranks; ++rank) {
    const bool is_killed = script.event == Event::kill && rank == script.victim;
    EXPECT_EQ(results[rank].signal, is_killed ? SIGKILL : 0) << rank;
    EXPECT_EQ(results[rank].exit_status, 0) << rank;
  }
  EXPECT_EQ(all.size(), script.ranks - (script.event == Event::kill ? 1 : 0));
  ++tally[std::string("rank ") + event_names[number_of(script.event)]];
  if (script.trouble != Trouble::none) ++tally[trouble_names[number_of(script.trouble)] + 2];
  if (has_filled_queues) ++tally["full send queues"];
}

TEST(Chaos, every_survivor_names_the_right_rank_in_time) {
  for (unsigned run = job; run < runs && !HasFailure(); run += jobs) play(seed + run);
  for (const auto& [what, count] : tally) std::printf("%u runs: %s\n", count, what.c_str());
  std::printf("seeds %u to %u\n", seed, seed + runs - 1);
}

}  // namespace
}  // namespace tutti

int main(int count, char** values) {
  testing::InitGoogleTest(&count, values);
  tutti::test::read_options(
      count, values, {{"--runs", tutti::runs}, {"--seed", tutti::seed}, {"--jobs", tutti::jobs}});
  if (tutti::jobs <= 1) return RUN_ALL_TESTS();
  std::vector<pid_t> children;
  for (unsigned job = 0; job < tutti::jobs; ++job) {
    const pid_t child = ::fork();
    if (child < 0) return 2;
    if (child == 0) {
      tutti::job = job;
      return RUN_ALL_TESTS();
    }
    children.push_back(child);
  }
  int failed = 0;
  for (const pid_t child : children) {
    int status = 0;
    if (::waitpid(child, &status, 0) != child || status != 0) ++failed;
  }
  return failed == 0 ? 0 : 1;
}
