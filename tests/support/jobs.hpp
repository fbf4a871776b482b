// Jobs for tests: a rendezvous on the loopback, memory by which ranks of run_local() inform each
// other beside their exchange, and how they ended.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <tutti/bootstrap.hpp>
#include <tutti/detail/descriptor.hpp>
#include <vector>

#include "support/shared.hpp"

namespace tutti::test {

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
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
      return port;
  }
}

inline std::unique_ptr<Exchange> meet_over_tcp(std::uint32_t rank, std::uint32_t rank_count,
                                               std::uint16_t port) {
  return tcp_exchange({.rank = Rank{rank},
                       .rank_count = rank_count,
                       .rendezvous = "127.0.0.1:" + std::to_string(port),
                       .secret = "of this test",
                       .timeout = std::chrono::seconds(20)});
}

/// An exchange by which ranks only meet, as over MPI: it hears of no incident and tells of none.
class MuteExchange final : public Exchange {
 public:
  explicit MuteExchange(Exchange& given) : given_(given) {}
  Rank self() const noexcept override { return given_.self(); }
  std::uint32_t rank_count() const noexcept override { return given_.rank_count(); }
  void allgather(std::span<const std::byte> mine, std::span<std::byte> all,
                 Timeout timeout) override {
    given_.allgather(mine, all, timeout);
  }
  void barrier(Timeout timeout) override { given_.barrier(timeout); }

 private:
  Exchange& given_;
};

/// A number that ranks see though they are processes; made before them.  For tests in which one
/// rank does nothing until others have come somewhere: a sleep would have to be longer than they
/// take.
class SharedCount {
 public:
  void add() const { number_->fetch_add(1); }
  std::uint32_t number() const { return number_->load(); }
  /// Whether the others have added so much within a minute.
  bool comes_to(std::uint32_t number) const {
    for (int pause = 0; *number_ < number; ++pause) {
      if (pause == 60'000) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

 private:
  Shared<std::atomic<std::uint32_t>> number_;
};

/// A text that one rank sets, and the test reads when the ranks have ended.
class SharedText {
 public:
  void set(const std::string& text) { text.copy(letters_.all().data(), letters_.all().size() - 1); }
  std::string get() const { return letters_.all().data(); }

 private:
  Shared<char> letters_{4096};
};

using Launch = std::vector<LocalResult> (*)(const LocalOptions&,
                                            const std::function<int(Exchange&)>&);
/// How a test starts ranks if it does not matter whether they are processes.  With the thread
/// sanitizer they are threads, because it does not see how messages order what two processes do.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool launches_processes = false;
inline constexpr Launch launch = run_local_threads;
inline constexpr Launch launches[] = {run_local_threads};
#else
inline constexpr bool launches_processes = true;
inline constexpr Launch launch = run_local;
inline constexpr Launch launches[] = {run_local_threads, run_local};
#endif

/// Exit statuses in rank order; 1000 + the signal of a rank that a signal ended.
inline std::vector<int> codes_of(const std::vector<LocalResult>& results) {
  std::vector<int> codes;
  for (const LocalResult& result : results)
    codes.push_back(result.signal != 0 ? 1000 + result.signal : result.exit_status);
  return codes;
}

}  // namespace tutti::test
