// Ranks of a TCP exchange as threads, and a rendezvous for them.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/jobs.hpp"
#include "tutti/bootstrap.hpp"
#include "tutti/detail/clock.hpp"
#include "tutti/detail/descriptor.hpp"
#include "tutti/status.hpp"

namespace tutti::bootstrap {

using test::free_port;
using test::loopback;

inline TcpOptions tcp_options(std::uint16_t port, std::uint32_t rank, std::uint32_t rank_count) {
  return {.rank = Rank{rank},
          .rank_count = rank_count,
          .rendezvous = "127.0.0.1:" + std::to_string(port),
          .secret = "correct horse",
          .timeout = std::chrono::seconds(20)};
}

/// Options of all ranks of a job on a port of its own.
inline std::vector<TcpOptions> tcp_job(std::uint32_t rank_count) {
  const std::uint16_t port = free_port();
  std::vector<TcpOptions> job;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
    job.push_back(tcp_options(port, rank, rank_count));
  }
  return job;
}

/// How one rank ended: with an Error, or well.
struct Ending {
  bool failed = false;
  ErrorCode code{};
  std::string text;
  Timeout took{};

  bool says(const std::string& part) const { return text.find(part) != std::string::npos; }
};

/// Runs `body` in one thread per entry, each with an exchange of its own.
inline std::vector<Ending> run_ranks(const std::vector<TcpOptions>& job,
                                     const std::function<void(Exchange&)>& body) {
  std::vector<Ending> endings(job.size());
  std::vector<std::thread> threads;
  for (std::size_t position = 0; position < job.size(); ++position) {
    threads.emplace_back([&body, &options = job[position], &ending = endings[position]] {
      const Timeout start = detail::MonotonicClock::read();
      try {
        const auto exchange = tcp_exchange(options);
        body(*exchange);
      } catch (const Error& error) {
        ending = {true, error.code(), error.what(), {}};
      }
      ending.took = detail::MonotonicClock::read() - start;
    });
  }
  for (auto& thread : threads) thread.join();
  return endings;
}

/// Polls until `condition` holds; false if it does not within `limit`.
template <class Condition>
bool within(Timeout limit, Condition condition) {
  const Deadline deadline = Deadline::after(limit, detail::MonotonicClock::read());
  while (!condition()) {
    if (deadline.passed(detail::MonotonicClock::read())) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace tutti::bootstrap
