// start_among_strangers [JOBS]: starts JOBS (15) jobs of 4 processes for each of four cases, in
// turns, and prints the medians of what they took, and the ratios to the first case:
//   alone    nobody else connects
//   behind   200 strangers have connected and say nothing; rank 0 has taken as many as it keeps
//            before the ranks 1 to 3 start, and the process of the strangers sleeps
//   beside   the strangers connect at the same time as these ranks, on the same CPUs
//   again    as "behind", but each stranger that is dropped connects again at once: the flood goes
//            on, and the process of the strangers takes CPU time from the ranks
// "met" is the time from the start of the ranks 1 to 3 until all have met over TCP;
// "begun" until all have made a communicator and left its first barrier.  Exit status 0 if all jobs
// have run; the figures are not judged.
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

#include "support/jobs.hpp"
#include "support/shared.hpp"

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t rank_count = 4;
constexpr int stranger_count = 200;

enum class Case : std::uint8_t { alone, behind, beside, again };
constexpr std::array cases{Case::alone, Case::behind, Case::beside, Case::again};
constexpr std::array<const char*, cases.size()> names{"alone", "behind", "beside", "again"};

/// What the processes of a job leave for the one that started them.
struct Marks {
  std::array<std::atomic<std::int64_t>, rank_count> met_at, begun_at;  // of the steady clock
  std::atomic<int> standing{0};                                        // strangers
};

std::int64_t now_ns() {
  return Clock::now().time_since_epoch() / 1ns;
}

int be_rank(std::uint32_t rank, std::uint16_t port, Marks& marks) {
  try {
    const auto exchange = tutti::test::meet_over_tcp(rank, rank_count, port);
    marks.met_at[rank] = now_ns();
    tutti::ContextOptions options;
    options.device = "soft0";
    tutti::Context context(options);
    tutti::Communicator communicator(context, *exchange);
    tutti::Operation barrier = tutti::barrier(communicator);
    if (barrier.start() != tutti::Status::ok || barrier.wait(20s) != tutti::Status::ok) return 1;
    marks.begun_at[rank] = now_ns();
    return 0;
  } catch (const tutti::Error& error) {
    std::fprintf(stderr, "rank %u: %s\n", rank, error.what());
    return 2;
  }
}

/// The strangers connect as soon as somebody listens, and stay until the job is over: then `end`
/// can be read.
int be_strangers(std::uint16_t port, bool again, int end, Marks& marks) {
  const sockaddr_in address = tutti::test::loopback(port);
  std::vector<pollfd> crowd{{end, POLLIN, 0}};
  const auto connect_one = [&] {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
      return socket;
    ::close(socket);
    return -1;
  };
  while (marks.standing < stranger_count && ::poll(crowd.data(), 1, 0) == 0) {
    if (const int socket = connect_one(); socket >= 0) {
      crowd.push_back({socket, POLLIN, 0});
      ++marks.standing;
    } else {
      std::this_thread::sleep_for(100us);
    }
  }
  while (::poll(crowd.data(), again ? crowd.size() : 1, -1) > 0 && crowd[0].revents == 0) {
    for (pollfd& stranger : crowd) {
      if (stranger.revents == 0) continue;
      ::close(stranger.fd);
      stranger.fd = connect_one();
    }
  }
  return 0;
}

/// A child that is not heard of is waited for, at most until its own deadlines have passed.
template <class Body>
pid_t start(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  return child;
}

struct Durations {
  double met_ms = 0, begun_ms = 0;
  bool failed = false;
};

Durations run_job(Case which) {
  const tutti::test::Shared<Marks> shared;
  Marks& marks = *shared;
  const std::uint16_t port = tutti::test::free_port();
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {.failed = true};
  pid_t strangers = 0;
  const auto start_strangers = [&] {
    strangers = start([&] {
      ::close(ends[1]);
      return be_strangers(port, which == Case::again, ends[0], marks);
    });
  };
  const bool are_first = which == Case::behind || which == Case::again;
  if (are_first) start_strangers();
  std::int64_t begin = now_ns();
  std::vector<pid_t> ranks;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
    ranks.push_back(start([&] { return be_rank(rank, port, marks); }));
    if (rank > 0) continue;
    for (int pause = 0; are_first && marks.standing < stranger_count; ++pause) {
      if (pause == 20'000) break;
      std::this_thread::sleep_for(1ms);
    }
    // The pause is the same in each case, so that rank 0 has got equally far.
    std::this_thread::sleep_for(20ms);
    if (which == Case::beside) start_strangers();
    begin = now_ns();
  }
  Durations durations;
  for (const pid_t rank : ranks) {
    int status = 0;
    durations.failed = ::waitpid(rank, &status, 0) != rank || status != 0 || durations.failed;
  }
  ::close(ends[1]);
  ::close(ends[0]);
  if (strangers != 0) (void)::waitpid(strangers, nullptr, 0);
  const auto latest = [&](const auto& marks_of_ranks) {
    return static_cast<double>(*std::max_element(marks_of_ranks.begin(), marks_of_ranks.end()) -
                               begin) /
           1e6;
  };
  durations.met_ms = latest(marks.met_at);
  durations.begun_ms = latest(marks.begun_at);
  return durations;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int count, char** words) {
  const long jobs = count == 2 ? std::strtol(words[1], nullptr, 10) : 15;
  if (count > 2 || jobs < 1 || jobs > 10'000) {
    std::fprintf(stderr, "usage: start_among_strangers [JOBS], 1 to 10000\n");
    return 2;
  }
  std::array<std::vector<double>, cases.size()> met, begun;
  for (long job = 0; job < jobs; ++job)
    for (const Case which : cases) {
      const Durations durations = run_job(which);
      if (durations.failed) return 1;
      met[static_cast<std::size_t>(which)].push_back(durations.met_ms);
      begun[static_cast<std::size_t>(which)].push_back(durations.begun_ms);
    }
  std::printf("medians of %ld jobs of %u processes; %d strangers\n", jobs, rank_count,
              stranger_count);
  for (std::size_t i = 0; i < cases.size(); ++i)
    std::printf("  %-8s met %7.2f ms (%.2f)   begun %7.2f ms (%.2f)\n", names[i], median(met[i]),
                median(met[i]) / median(met[0]), median(begun[i]),
                median(begun[i]) / median(begun[0]));
  return 0;
}
