// mpi_deaths FOLDER SEED kill|stop|abort|leave|shrink RANKS_PER_NODE (and pmix_deaths): collectives
// over an MPI or a PMIx exchange, in which one rank, at a random call, is killed, is stopped for a
// while, gives up, or leaves in good order.  With shrink one is killed, and the others go on
// without it.  Every other rank leaves FOLDER/heard.RANK, which says "fine" if it has heard of the
// right thing in time, or what was wrong: a launcher may lose what is printed once a rank has died.
// deaths.sh counts the files.  FOLDER also has a file by which the ranks measure.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

#include "meeting.hpp"
#include "support/every_collective.hpp"
#include "support/patient_wait.hpp"

namespace {

using namespace std::chrono_literals;
using tutti::Communicator, tutti::Rank, tutti::Status;
using tutti::test::EveryCollective;

constexpr auto bound = 1s;        // the default
constexpr auto stopped_for = 2s;  // more than the bound
constexpr std::uint32_t calls_max = 60;

/// In a file that all ranks map.
struct Board {
  std::atomic<std::int64_t> happened_at;  // 0: not yet
  std::atomic<std::int64_t> lateness_ns;  // of those that wait and are not stopped
  std::atomic<std::uint32_t> done;        // ranks that have seen what they should
};

Board& map_board(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ::ftruncate(file, sizeof(Board)) != 0) std::abort();
  void* const memory = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory == MAP_FAILED) std::abort();
  return *static_cast<Board*>(memory);  // the file begins as zeros
}

std::int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

/// What this rank should hear of `victim`, by what happens to it.
std::string judged(const Communicator& communicator, Status status, Rank victim,
                   std::string_view what, std::int64_t took_ns, std::int64_t lateness_ns) {
  const tutti::Failure& failure = communicator.failure();
  const Status expected = what == "abort" ? Status::aborted : Status::peer_failed;
  const std::string words = what == "kill" || what == "shrink" ? "has died"
                            : what == "abort"                  ? "gave up"
                                                               : "has left while it was needed";
  const std::string text = failure.text;
  if (status != expected) return "status " + std::to_string(static_cast<int>(status)) + ": " + text;
  if (failure.peer != victim || text.find(words) == std::string::npos) return text;
  const auto allowance = tutti::test::allowance_for(std::chrono::nanoseconds(lateness_ns));
  if (took_ns > (2 * bound + allowance).count())
    return std::to_string(took_ns / 1'000'000) + " ms: " + text;
  return {};
}

void stop_for_a_while() {
  const pid_t self = ::getpid();
  if (::fork() == 0) {
    const timespec time{.tv_sec = std::chrono::seconds(stopped_for).count(), .tv_nsec = 0};
    ::nanosleep(&time, nullptr);
    ::kill(self, SIGCONT);
    ::_exit(0);
  }
  ::raise(SIGSTOP);
}

/// The ranks that are still there go on.  Returns what was wrong.
std::string go_on_without(Communicator& communicator, Rank victim, unsigned seed) {
  Communicator survivors = communicator.shrink(20s);
  EveryCollective collectives(survivors, EveryCollective::Wanted{.seed = seed, .count = 8});
  for (std::size_t which = 0; which < collectives.size(); ++which) {
    Status status = collectives.start(which);
    if (status == Status::ok) status = collectives[which].wait(20s);
    if (status != Status::ok) return std::string("after shrink(): ") + survivors.failure().text;
    if (!collectives.is_right(which))
      return std::string("after shrink(): a wrong result of ") + collectives.name(which);
  }
  const bool was_after = communicator.rank() > victim;
  const auto expected = index_of(communicator.rank()) - (was_after ? 1u : 0u);
  if (survivors.rank_count() + 1 != communicator.rank_count() ||
      index_of(survivors.rank()) != expected)
    return "after shrink() this is rank " + std::to_string(index_of(survivors.rank())) + " of " +
           std::to_string(survivors.rank_count());
  return {};
}

/// The longest lateness of any rank.
std::int64_t shared_lateness(Board& board, std::int64_t own_ns) {
  std::int64_t known = board.lateness_ns;
  while (known < own_ns && !board.lateness_ns.compare_exchange_weak(known, own_ns)) {
  }
  return std::max(known, own_ns);
}

/// Returns what was wrong, an empty text if nothing was, and nothing at all on the victim.
/// `self` receives the rank.
std::optional<std::string> play(Board& board, unsigned seed, std::string_view what,
                                std::uint32_t ranks_per_node, std::uint32_t& self) {
  auto exchange = tutti::test::meet();
  self = index_of(exchange->self());
  tutti::ContextOptions options;
  options.device = "soft0";
  if (ranks_per_node > 0) options.ranks_per_node = std::vector<std::uint32_t>{ranks_per_node};
  options.shrinkable = what == "shrink";
  tutti::Context context(options);
  auto communicator = std::make_unique<Communicator>(context, *exchange);
  const std::uint32_t ranks = communicator->rank_count();
  std::mt19937 random(seed);
  const Rank victim{static_cast<std::uint32_t>(random() % ranks)};
  const std::uint32_t fatal_call = static_cast<std::uint32_t>(random() % (calls_max / 2));
  auto collectives = std::make_unique<EveryCollective>(
      *communicator,
      EveryCollective::Wanted{.seed = seed, .count = 8, .with_ssp = what != "leave"});
  tutti::test::PatientWait wait;
  const bool is_victim = communicator->rank() == victim;
  for (std::uint32_t call = 0; what != "stop" || call < calls_max; ++call) {
    const std::size_t which = random() % collectives->size();
    if (is_victim && call == fatal_call) {
      board.happened_at = now_ns();
      if (what == "kill" || what == "shrink") ::raise(SIGKILL);
      if (what == "stop") stop_for_a_while();
      if (what == "abort") communicator->abort();
      if (what == "leave") collectives.reset();
      if (what == "leave") communicator.reset();
      // It has left only now: the last ring in its memory may have held it up (docs/guarantees.md).
      if (what == "leave") board.happened_at = now_ns();
      if (what == "leave") exchange.reset();
      if (what != "stop") {  // it lives on until the others have heard of it
        const auto end = std::chrono::steady_clock::now() + 30s;
        while (board.done + 1 < ranks && std::chrono::steady_clock::now() < end)
          std::this_thread::sleep_for(1ms);
        return std::nullopt;
      }
    }
    Status status = collectives->start(which);
    if (status == Status::ok) status = wait((*collectives)[which], 20s);
    if (status == Status::ok && !collectives->is_right(which))
      return std::string("a wrong result of ") + collectives->name(which);
    if (status == Status::ok) continue;
    const std::int64_t took_ns = now_ns() - board.happened_at;
    std::string wrong = judged(*communicator, status, victim, what, took_ns,
                               shared_lateness(board, wait.lateness().count()));
    ++board.done;
    if (wrong.empty() && what == "shrink") wrong = go_on_without(*communicator, victim, seed);
    return wrong;
  }
  return std::string();
}

}  // namespace

int main(int argument_count, char** arguments) {
  tutti::test::begin_meeting(argument_count, arguments);
  // By which MPICH's launcher tells of a rank that was killed.
  (void)::signal(SIGUSR1, SIG_IGN);
  if (argument_count != 5) return 2;
  unsigned seed = 0;
  std::uint32_t ranks_per_node = 0;
  const std::string_view seed_text = arguments[2], what = arguments[3], nodes = arguments[4];
  std::from_chars(seed_text.data(), seed_text.data() + seed_text.size(), seed);
  std::from_chars(nodes.data(), nodes.data() + nodes.size(), ranks_per_node);
  Board& board = map_board(std::string(arguments[1]) + "/board");
  std::optional<std::string> wrong;
  std::uint32_t self = 0;
  try {
    wrong = play(board, seed, what, ranks_per_node, self);
  } catch (const std::exception& error) {
    wrong = error.what();
  }
  if (wrong)
    std::ofstream(std::string(arguments[1]) + "/heard." + std::to_string(self))
        << (wrong->empty() ? "fine" : *wrong) << '\n';
  // MPI would wait for the rank that was killed.
  if (what == "kill" || what == "shrink") ::_exit(0);
  tutti::test::end_meeting();
  return 0;
}
