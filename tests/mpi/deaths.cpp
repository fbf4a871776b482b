// mpi_deaths FOLDER SEED kill|stop|abort|leave|shrink RANKS_PER_NODE: collectives over an MPI
// exchange, in which one rank, at a random call, is killed, is stopped for a while, gives up, or
// leaves in good order.  With shrink one is killed, and the others go on without it.  Every other
// rank leaves FOLDER/heard.RANK, which says "fine" if it has heard of the right thing in time, or
// what was wrong: a launcher may lose what is printed once a rank has died. deaths.sh counts the
// files.  FOLDER also has a file by which the ranks measure.
#include <fcntl.h>
#include <mpi.h>
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

#include "bootstrap/mpi_exchange.hpp"

namespace {

using namespace std::chrono_literals;
using tutti::Communicator, tutti::Operation, tutti::Rank, tutti::Status;

constexpr auto bound = 1s;        // the default
constexpr auto stopped_for = 2s;  // more than the bound
constexpr std::uint32_t calls_max = 60;

/// In a file that all ranks map.
struct Board {
  std::atomic<std::int64_t> happened_at;  // 0: not yet
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

/// Calls of several collectives, in which a rank waits for all others or for some only.
struct Collectives {
  std::vector<std::uint64_t> source, target;
  std::vector<Operation> operations;

  Collectives(Communicator& communicator, std::uint32_t root)
      : source(communicator.rank_count(), 1), target(communicator.rank_count()) {
    const auto one_each =
        tutti::built_in_reduction(tutti::BuiltIn::sum, tutti::ElementType::uint64);
    operations.push_back(tutti::allreduce(communicator, {.source = source.data(),
                                                         .target = target.data(),
                                                         .element_count = 1,
                                                         .reduction = one_each,
                                                         .per_round = {1, 1, 1}}));
    operations.push_back(tutti::barrier(communicator));
    operations.push_back(
        tutti::broadcast(communicator, {.buffer = target.data(), .bytes = 8, .root = Rank{root}}));
    operations.push_back(tutti::alltoall<std::uint64_t>(
        communicator, std::span<const std::uint64_t>(source), std::span(target)));
  }
};

/// What this rank should hear of `victim`, by what happens to it.
std::string judged(const Communicator& communicator, Status status, Rank victim,
                   std::string_view what, std::int64_t took_ns) {
  const tutti::Failure& failure = communicator.failure();
  const Status expected = what == "abort" ? Status::aborted : Status::peer_failed;
  const std::string words = what == "kill" || what == "shrink" ? "has died"
                            : what == "abort"                  ? "gave up"
                                                               : "has left while it was needed";
  const std::string text = failure.text;
  if (status != expected) return "status " + std::to_string(static_cast<int>(status)) + ": " + text;
  if (failure.peer != victim || text.find(words) == std::string::npos) return text;
  if (took_ns > 2 * std::chrono::nanoseconds(bound).count())
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
std::string go_on_without(Communicator& communicator, Rank victim) {
  Communicator survivors = communicator.shrink(20s);
  Collectives collectives(survivors, survivors.rank_count() - 1);
  for (Operation& operation : collectives.operations) {
    Status status = operation.start();
    if (status == Status::ok) status = operation.wait(20s);
    if (status != Status::ok) return std::string("after shrink(): ") + survivors.failure().text;
  }
  const bool was_after = communicator.rank() > victim;
  const auto expected = index_of(communicator.rank()) - (was_after ? 1u : 0u);
  if (survivors.rank_count() + 1 != communicator.rank_count() ||
      index_of(survivors.rank()) != expected)
    return "after shrink() this is rank " + std::to_string(index_of(survivors.rank())) + " of " +
           std::to_string(survivors.rank_count());
  return {};
}

/// Returns what was wrong, an empty text if nothing was, and nothing at all on the victim.
std::optional<std::string> play(Board& board, unsigned seed, std::string_view what,
                                std::uint32_t ranks_per_node) {
  auto exchange = tutti::mpi_exchange(MPI_COMM_WORLD);
  tutti::ContextOptions options;
  options.device = "soft0";
  if (ranks_per_node > 0) options.ranks_per_node = std::vector<std::uint32_t>{ranks_per_node};
  options.shrinkable = what == "shrink";
  tutti::Context context(options);
  auto communicator = std::make_unique<Communicator>(context, *exchange);
  const std::uint32_t ranks = communicator->rank_count();
  std::mt19937 random(seed);
  // Between hosts rank 0 relays what becomes of the others; who comes after it has left is not
  // heard.
  const std::uint32_t first = what == "leave" && std::getenv("APART") != nullptr ? 1 : 0;
  const Rank victim{first + static_cast<std::uint32_t>(random() % (ranks - first))};
  const std::uint32_t fatal_call = static_cast<std::uint32_t>(random() % (calls_max / 2));
  auto collectives =
      std::make_unique<Collectives>(*communicator, static_cast<std::uint32_t>(random() % ranks));
  const bool is_victim = communicator->rank() == victim;
  for (std::uint32_t call = 0; what != "stop" || call < calls_max; ++call) {
    Operation& operation = collectives->operations[random() % collectives->operations.size()];
    if (is_victim && call == fatal_call) {
      board.happened_at = now_ns();
      if (what == "kill" || what == "shrink") ::raise(SIGKILL);
      if (what == "stop") stop_for_a_while();
      if (what == "abort") communicator->abort();
      if (what == "leave") collectives.reset();
      if (what == "leave") communicator.reset();
      if (what == "leave") exchange.reset();
      if (what != "stop") {  // it lives on until the others have heard of it
        const auto end = std::chrono::steady_clock::now() + 30s;
        while (board.done + 1 < ranks && std::chrono::steady_clock::now() < end)
          std::this_thread::sleep_for(1ms);
        return std::nullopt;
      }
    }
    Status status = operation.start();
    if (status == Status::ok) status = operation.wait(20s);
    if (status == Status::ok) continue;
    const std::int64_t took_ns = now_ns() - board.happened_at;
    std::string wrong = judged(*communicator, status, victim, what, took_ns);
    ++board.done;
    if (wrong.empty() && what == "shrink") wrong = go_on_without(*communicator, victim);
    return wrong;
  }
  return std::string();
}

}  // namespace

int main(int argument_count, char** arguments) {
  MPI_Init(&argument_count, &arguments);
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
  try {
    wrong = play(board, seed, what, ranks_per_node);
  } catch (const std::exception& error) {
    wrong = error.what();
  }
  if (wrong) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::ofstream(std::string(arguments[1]) + "/heard." + std::to_string(rank))
        << (wrong->empty() ? "fine" : *wrong) << '\n';
  }
  // MPI would wait for the rank that was killed.
  if (what == "kill" || what == "shrink") ::_exit(0);
  MPI_Finalize();
  return 0;
}
