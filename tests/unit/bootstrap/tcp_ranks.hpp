// Ranks of a TCP exchange as threads, and a rendezvous for them.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tutti/bootstrap.hpp"
#include "tutti/detail/clock.hpp"
#include "tutti/detail/descriptor.hpp"
#include "tutti/status.hpp"

namespace tutti::bootstrap {

inline sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

/// A port of the loopback that nobody uses, below those that the kernel gives to outgoing
/// connections, which could otherwise take it before rank 0 does.
inline std::uint16_t free_port() {
  static std::atomic<unsigned> calls{0};
  for (;;) {
    const unsigned seed = static_cast<unsigned>(::getpid()) * 37u + calls++;
    const auto port = static_cast<std::uint16_t>(20000 + seed % 12000);
    const detail::Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address = loopback(port);
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      return port;
    }
  }
}

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
