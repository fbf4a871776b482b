#include "bootstrap/local_exchange.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <numeric>
#include <system_error>
#include <thread>

#include "bootstrap/describe.hpp"
#include "bootstrap/thread.hpp"
#include "tutti/bootstrap.hpp"
#include "tutti/detail/check.hpp"
#include "tutti/detail/clock.hpp"
#include "tutti/detail/descriptor.hpp"
#include "tutti/status.hpp"

// Weak: it is present in sanitized builds only.  A child ends without the parent's exit handlers;
// the leak check is one of them, so the child calls it.
extern "C" void __lsan_do_leak_check() __attribute__((weak));

namespace tutti::bootstrap {

namespace {

/// On the board, tells records of so many bytes from an allgather of so many.
constexpr std::uint64_t records_bit = std::uint64_t{1} << 63;

std::string text_of(std::uint64_t total) {
  return name_contribution(total & ~records_bit, (total & records_bit) != 0);
}

/// The record for that rank, of entries that are sorted by rank; empty if there is none.
std::span<const std::byte> record_for(Rank rank, std::span<const std::byte> entries,
                                      std::size_t entry_bytes) {
  const auto rank_at = [&](std::size_t entry) {
    Rank found{};
    std::memcpy(&found, &entries[entry * entry_bytes], sizeof found);
    return found;
  };
  std::size_t first = 0, end = entries.size() / entry_bytes;
  while (first < end) {
    const std::size_t middle = first + (end - first) / 2;
    if (rank_at(middle) == rank)
      return entries.subspan(middle * entry_bytes + sizeof(Rank), entry_bytes - sizeof(Rank));
    if (rank_at(middle) < rank)
      first = middle + 1;
    else
      end = middle;
  }
  return {};
}

}  // namespace

LocalExchange::LocalExchange(Board& board, Rank self) noexcept
    : board_(board), self_(self), process_(::getpid()) {}

LocalExchange::~LocalExchange() {
  if (!dead_ && !is_inherited()) board_.leave(self_);
}

bool LocalExchange::is_inherited() const noexcept {
  return ::getpid() != process_;
}

void LocalExchange::announce(Incident incident) noexcept {
  if (!is_inherited()) board_.announce(incident);
}

void LocalExchange::die() noexcept {
  if (is_inherited()) return;
  dead_ = true;
  board_.announce({.kind = Incident::Kind::died, .rank = self_});
}

void LocalExchange::allgather(std::span<const std::byte> mine, std::span<std::byte> all,
                              Timeout timeout) {
  detail::check(all.size() == mine.size() * rank_count(), "allgather has room for every rank",
                all.size(), mine.size() * rank_count());
  exchange("allgather", mine, all, timeout);
}

/// Each rank posts its records, and reads those of its partners only.
void LocalExchange::swap(std::span<const Rank> partners, std::size_t record_bytes,
                         std::span<const std::byte> mine, std::span<std::byte> theirs,
                         Timeout timeout) {
  const std::size_t entry_bytes = sizeof(Rank) + record_bytes;  // whom it is for, and the record
  detail::check(mine.size() == partners.size() * record_bytes && theirs.size() == mine.size(),
                "there is a record for each partner, and room for theirs", mine.size(),
                partners.size() * record_bytes);
  detail::check(record_bytes > 0 && entry_bytes <= Board::chunk_bytes_max, "a record fits a chunk",
                record_bytes, Board::chunk_bytes_max);
  const Deadline deadline = Deadline::after(timeout, detail::MonotonicClock::read());
  // Who does something else, or has other records, is found out before any count is believed.
  const std::uint64_t count = partners.size(), total = records_bit | record_bytes;
  post_and_await("swap", total, std::as_bytes(std::span(&count, 1)), deadline, timeout);
  std::size_t most = 0;
  for (std::uint32_t rank = 0; rank < rank_count(); ++rank) {
    std::uint64_t theirs_count = 0;
    const auto chunk = board_.chunk(Rank{rank}, step_);
    detail::check(chunk.size() == sizeof theirs_count, "a swap begins with the number of records",
                  chunk.size());
    std::memcpy(&theirs_count, chunk.data(), sizeof theirs_count);
    most = std::max<std::size_t>(most, theirs_count);
  }
  std::vector<std::uint32_t> order(partners.size());  // of the records: by partner
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](std::uint32_t one, std::uint32_t other) {
    return partners[one] < partners[other];
  });
  const std::size_t each = Board::chunk_bytes_max / entry_bytes;
  std::vector<std::byte> entries;
  for (std::size_t done = 0; done < most; done += each) {
    entries.clear();
    for (std::size_t i = done; i < std::min(done + each, order.size()); ++i) {
      const auto to = std::as_bytes(partners.subspan(order[i], 1));
      const auto record = mine.subspan(order[i] * record_bytes, record_bytes);
      entries.insert(entries.end(), to.begin(), to.end());
      entries.insert(entries.end(), record.begin(), record.end());
    }
    post_and_await("swap", total, entries, deadline, timeout);
    for (std::size_t i = 0; i < partners.size(); ++i)
      if (const auto record = record_for(self_, board_.chunk(partners[i], step_), entry_bytes);
          !record.empty())
        std::copy(record.begin(), record.end(), theirs.subspan(i * record_bytes).begin());
  }
}

void LocalExchange::barrier(Timeout timeout) {
  exchange("barrier", {}, {}, timeout);
}

void LocalExchange::exchange(const char* name, std::span<const std::byte> mine,
                             std::span<std::byte> all, Timeout timeout) {
  const Deadline deadline = Deadline::after(timeout, detail::MonotonicClock::read());
  std::size_t offset = 0;
  do {  // at least once, because an empty allgather is a barrier
    const std::size_t chunk_bytes = std::min(mine.size() - offset, Board::chunk_bytes_max);
    post_and_await(name, mine.size(), mine.subspan(offset, chunk_bytes), deadline, timeout);
    if (all.empty()) return;
    for (std::uint32_t rank = 0; rank < rank_count(); ++rank) {
      const auto chunk = board_.chunk(Rank{rank}, step_);
      std::copy(chunk.begin(), chunk.end(), all.subspan(rank * mine.size() + offset).begin());
    }
    offset += chunk_bytes;
  } while (offset < mine.size());
}

/// The next step: the others' chunks are on the board afterwards, and all bring as much.
void LocalExchange::post_and_await(const char* name, std::uint64_t total,
                                   std::span<const std::byte> chunk, Deadline deadline,
                                   Timeout timeout) {
  // The others would take what a child posts for its parent's.
  if (is_inherited())
    throw Error(ErrorCode::invalid_argument,
                std::string(name) + ": this is a forked child, and the exchange is its parent's");
  if (!broken_.empty()) throw Error(ErrorCode::peer_failed, broken_);
  board_.post(self_, ++step_, total, chunk);
  await_all(name, deadline, timeout);
  for (std::uint32_t rank = 0; rank < rank_count(); ++rank)
    if (const std::uint64_t theirs = board_.total_bytes(Rank{rank}, step_); theirs != total)
      fail(ErrorCode::mismatch, std::string(name) + ": this rank contributes " + text_of(total) +
                                    ", rank " + std::to_string(rank) + " " + text_of(theirs));
}

/// Returns once every rank has posted this step.  Completion takes precedence over bad news: a step
/// that every rank has reached succeeds on all of them, or another rank's failure came after it.
void LocalExchange::await_all(const char* name, Deadline deadline, Timeout timeout) {
  for (;;) {
    const std::uint32_t changes = board_.changes();
    // Read before `missing`: a rank that posted and then left must not look absent.
    std::vector<bool> gone(rank_count());
    for (std::uint32_t rank = 0; rank < rank_count(); ++rank) {
      gone[rank] = board_.has_left(Rank{rank});
    }
    const Incident incident = board_.incident();
    std::vector<Rank> missing = board_.missing(step_);
    if (missing.empty()) return;
    if (incident.kind != Incident::Kind::none) {
      fail(ErrorCode::peer_failed, std::string(name) + ": " + name_incident(incident));
    }
    const Timeout now = detail::MonotonicClock::read();
    if (deadline.passed(now)) {
      fail(ErrorCode::timed_out, std::string(name) + ": " + name_ranks(missing) +
                                     " did not come within " + name_timeout(timeout));
    }
    std::erase_if(missing, [&](Rank rank) { return !gone[index_of(rank)]; });
    if (!missing.empty()) {
      fail(ErrorCode::peer_failed,
           std::string(name) + ": " + name_ranks(missing) + " left without taking part");
    }
    board_.sleep_while(changes, deadline.remaining(now));
  }
}

void LocalExchange::fail(ErrorCode code, const std::string& text) {
  broken_ = "this exchange is out of step since " + text;
  throw Error(code, text);
}

namespace {

[[noreturn]] void throw_system(const std::string& call) {
  const int error = errno;
  throw Error(ErrorCode::system, call + ": " + std::strerror(error), error);
}

/// Runs the body of one rank; the exchange lives exactly as long as the body runs.
int run_rank(Board& board, Rank self, const std::function<int(Exchange&)>& body) {
  LocalExchange exchange(board, self);
  try {
    return body(exchange);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tutti: rank %u: %s\n", index_of(self), error.what());
  } catch (...) {
    std::fprintf(stderr, "tutti: rank %u: an exception that is no std::exception\n",
                 index_of(self));
  }
  exchange.die();
  return 1;
}

[[noreturn]] void run_child(Board& board, Rank self, pid_t parent,
                            const std::function<int(Exchange&)>& body) noexcept {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before the line above took effect.
  if (::getppid() != parent) ::_exit(1);
  const int exit_status = run_rank(board, self, body);
  // exit() is not used, because the parent's handlers and static objects (a test framework, MPI)
  // are its own.
  std::fflush(stdout);
  std::fflush(stderr);
  if (__lsan_do_leak_check) __lsan_do_leak_check();
  ::_exit(exit_status);
}

/// The forked ranks.  The destructor kills and reaps the remaining ones, because nothing may
/// survive a failed start.
class Children {
 public:
  Children() = default;
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  ~Children() {
    for (const pid_t pid : pids_) ::kill(pid, SIGKILL);
    while (!pids_.empty()) (void)reap_last();
  }

  void add(pid_t pid) { pids_.push_back(pid); }
  const std::vector<pid_t>& pids() const noexcept { return pids_; }

  /// Waits for the child that was added last and forgets it.
  LocalResult reap_last() noexcept {
    int status = 0;
    while (::waitpid(pids_.back(), &status, 0) < 0 && errno == EINTR) {
    }
    pids_.pop_back();
    if (WIFSIGNALED(status)) return {.signal = WTERMSIG(status)};
    return {.exit_status = WEXITSTATUS(status)};
  }

 private:
  std::vector<pid_t> pids_;
};

/// Announces every child that ends without having left its exchange; returns when all have ended.
/// It does not reap them: until run_local does, the process ids that on_started got are not reused.
void watch(Board& board, const std::vector<detail::Descriptor>& processes) noexcept {
  std::vector<pollfd> waiting;
  waiting.reserve(processes.size());
  for (const auto& process : processes) waiting.push_back({process.get(), POLLIN, 0});
  std::size_t running = waiting.size();
  while (running > 0) {
    if (::poll(waiting.data(), waiting.size(), -1) < 0) continue;  // EINTR
    for (std::uint32_t rank = 0; rank < waiting.size(); ++rank) {
      if (waiting[rank].revents == 0) continue;
      waiting[rank].fd = -1;  // poll ignores it from now on
      --running;
      if (!board.has_left(Rank{rank})) {
        board.announce({.kind = Incident::Kind::died, .rank = Rank{rank}});
      }
    }
  }
}

void check_options(const LocalOptions& options, const std::function<int(Exchange&)>& body) {
  if (options.rank_count == 0) {
    throw Error(ErrorCode::invalid_argument, "rank_count = 0: a run needs at least one rank");
  }
  if (!body) throw Error(ErrorCode::invalid_argument, "the ranks have no body to run");
}

}  // namespace

}  // namespace tutti::bootstrap

namespace tutti {

using namespace bootstrap;

std::vector<LocalResult> run_local(const LocalOptions& options,
                                   const std::function<int(Exchange&)>& body) {
  check_options(options, body);
  struct sigaction action {};
  ::sigaction(SIGCHLD, nullptr, &action);
  if (action.sa_handler == SIG_IGN || (action.sa_flags & SA_NOCLDWAIT) != 0) {
    throw Error(ErrorCode::system,
                "SIGCHLD is ignored, so the ends of local ranks would be lost; set it to SIG_DFL");
  }

  Board board(options.rank_count);
  Children children;
  const pid_t parent = ::getpid();
  std::fflush(nullptr);  // or every child would print what the parent has buffered
  for (std::uint32_t rank = 0; rank < options.rank_count; ++rank) {
    const pid_t pid = ::fork();
    if (pid < 0) throw_system("fork of rank " + std::to_string(rank));
    if (pid == 0) run_child(board, Rank{rank}, parent, body);
    children.add(pid);
  }
  // After the last fork, so that no child holds another's descriptor.
  std::vector<detail::Descriptor> processes;
  for (const pid_t pid : children.pids()) {
    processes.emplace_back(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!processes.back()) throw_system("pidfd_open (needs Linux 5.3 or later)");
  }

  {
    // In a thread, so that the ranks learn of deaths while on_started is still at work.
    std::thread watcher = thread_without_signals([&] { watch(board, processes); });
    struct End {
      std::thread& watcher;
      const std::vector<pid_t>& pids;
      bool kill = true;  // for an on_started that throws: the watcher would wait for ranks for ever
      ~End() {
        if (kill) {
          for (const pid_t pid : pids) ::kill(pid, SIGKILL);
        }
        watcher.join();
      }
    } end{watcher, children.pids()};
    if (options.on_started) options.on_started(children.pids());
    end.kill = false;
  }

  std::vector<LocalResult> results(options.rank_count);
  for (std::uint32_t rank = options.rank_count; rank-- > 0;) {
    results[rank] = children.reap_last();
  }
  return results;
}

std::vector<LocalResult> run_local_threads(const LocalOptions& options,
                                           const std::function<int(Exchange&)>& body) {
  check_options(options, body);
  Board board(options.rank_count);
  std::vector<LocalResult> results(options.rank_count);
  std::vector<std::jthread> threads;
  threads.reserve(options.rank_count);
  for (std::uint32_t rank = 0; rank < options.rank_count; ++rank) {
    try {
      threads.emplace_back([&board, &body, &result = results[rank], rank] {
        result.exit_status = run_rank(board, Rank{rank}, body);
      });
    } catch (const std::system_error& error) {
      board.announce({.kind = Incident::Kind::died, .rank = Rank{rank}});
      throw Error(ErrorCode::system,
                  "cannot start the thread of rank " + std::to_string(rank) + ": " + error.what(),
                  error.code().value());
    }
  }
  if (options.on_started) options.on_started({});
  threads.clear();  // once all have ended
  return results;
}

}  // namespace tutti
